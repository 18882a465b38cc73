"""`topics status --watch`, as somebody sees it: on a terminal and in a pipe, until nothing is open."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from logagent.deletion.store.answers import DirectoryAnswer
from logagent.deletion.store.requests import RequestedDirectory
from tests.disk.deletion.controller.small_fleet import CLUSTER, KEY, NODES, TOPIC_ID, SmallFleet
from tests.waiting import wait_until

PATIENCE = 240.0


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    """A request for a directory on each host, which all agents have taken. The clock is that of the command."""
    fleet = SmallFleet(tmp_path / "store")
    asked = tuple(
        RequestedDirectory(n, "/d1", "clicks-0", "clicks", TOPIC_ID, 0, "orphan", 7, bytes=1 << 30) for n in NODES
    )
    fleet.request("directories", directories=asked)
    for node in NODES:
        fleet.agent(node)
    return fleet


def has_done_it(fleet: SmallFleet, *nodes: int) -> None:
    for node in nodes:
        fleet.agent(node, mine=[DirectoryAnswer("/d1", "clicks-0", "done", "quarantined", bytes=1 << 30)])


def watching(fleet: SmallFleet, stdout: int, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "logagent", "topics", "status", "--watch", "--interval", "500ms", *words,
               "--store", str(fleet.store), "--cluster", CLUSTER, "--state-dir", str(fleet.store.parent)]  # fmt: skip
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    env |= {"LOGAGENT_ORDERS__KEYS": KEY.public(), "TERM": "xterm"}

    def heed_interrupts() -> None:
        # What a shell starts in the background does not, nor what that starts.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=env, preexec_fn=heed_interrupts)


class Reading:
    """What came so far from a descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd, self.text = fd, ""

    def until(self, what: str) -> str:
        """What came up to and with `what`, which is then forgotten."""

        def arrived() -> bool:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    read = os.read(self.fd, 65536)
                except OSError:  # a terminal whose other side is closed
                    read = b""
                assert read, f"it ended without {what!r}: {self.text!r}"
                self.text += read.decode()
            return what in self.text

        wait_until(lambda: what in self.text or arrived(), f"{what!r} after {self.text!r}", PATIENCE)
        before, _, self.text = self.text.partition(what)
        return before + what


def test_on_a_terminal_it_shows_the_states_until_all_is_done(fleet: SmallFleet) -> None:
    ours, theirs = pty.openpty()
    with watching(fleet, theirs) as running:
        os.close(theirs)
        screen = Reading(ours)
        assert "\x1b[2J" in screen.until("3 OfflineReplica"), "each look replaces the one before"
        has_done_it(fleet, 1, 2)
        screen.until("2 ReplicaDeletionSuccessful")
        assert running.poll() is None
        has_done_it(fleet, 3)
        screen.until("3 NonExistentReplica")
        assert running.wait(PATIENCE) == 0, running.stderr and running.stderr.read()
    os.close(ours)


def test_in_a_pipe_each_round_is_a_document_that_comes_at_once(fleet: SmallFleet) -> None:
    with watching(fleet, subprocess.PIPE, "--json") as running:
        assert running.stdout is not None
        pipe = Reading(running.stdout.fileno())
        first = json.loads(pipe.until("\n}\n"))
        assert [t["states"] for t in first["requests"][0]["topics"]] == [{"OfflineReplica": 3}]
        away = fleet.store.rename(fleet.store.parent / "away")
        assert running.stderr is not None
        Reading(running.stderr.fileno()).until("trying again")
        away.rename(fleet.store)
        has_done_it(fleet, *NODES)
        assert running.wait(PATIENCE) == 0
        call_each = (pipe.text + running.stdout.read().decode()).split("\n}\n")
        assert call_each[-1] == "" and json.loads(call_each[-2] + "}")["requests"][0]["state"] == "done"


def test_it_ends_when_it_is_interrupted(fleet: SmallFleet) -> None:
    with watching(fleet, subprocess.PIPE) as running:
        assert running.stdout is not None and running.stderr is not None
        Reading(running.stdout.fileno()).until("OfflineReplica")
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE) == 130 and b"Traceback" not in running.stderr.read()
    assert not fleet.state(fleet.numbers()[0]).is_over
