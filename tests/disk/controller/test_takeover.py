"""One controller at a time: two at once, one stopped while another takes over, one killed at each call that writes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from logagent.store.orders import ORDER_NAME, orders_folder
from tests.disk.controller.small_fleet import CLUSTER, DIRECTORY, TOPIC_ID, SmallFleet
from tests.needs import need_command

WRITES = "link,linkat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,write,fsync"
FULL = bool(os.environ.get("LOGAGENT_TESTS_FULL"))


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    (tmp_path / "store").mkdir()
    fleet = SmallFleet(tmp_path / "store")
    fleet.everywhere()
    fleet.request(topics=(fleet.topic(),))
    return fleet


def process(fleet: SmallFleet, rounds: int, *before: str) -> subprocess.Popen[str]:
    command = [*before, sys.executable, "-m", "tests.disk.controller.controller_process", str(fleet.store), CLUSTER,
               str(rounds)]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})  # fmt: skip


def said(running: subprocess.Popen[str], line: str) -> None:
    assert running.stdout is not None
    for text in running.stdout:
        if text.startswith(line):
            return
    pytest.fail(f"it ended without {line!r}")


def complete(fleet: SmallFleet) -> None:
    """A controller of this process sees it through, and the state is what it must be whatever came before."""
    last = fleet.controller()
    last.start()
    fleet.rounds(last, 12)
    assert last.states.of("request-1") == "done", last.context.replicas
    assert all(not host.disk for host in fleet.hosts.values())
    assert all(host.acted == {(TOPIC_ID, 0)} for host in fleet.hosts.values())


def orders_of(fleet: SmallFleet, epoch: int) -> set[str]:
    names = [name for node in fleet.hosts for name in fleet.control.names(orders_folder(node))]
    return {name for name in names if (match := ORDER_NAME.fullmatch(name)) and int(match[2]) == epoch}


def test_a_controller_that_was_stopped_ends_when_it_goes_on(fleet: SmallFleet) -> None:
    stopped = process(fleet, 10_000)
    try:
        said(stopped, "round")
        stopped.send_signal(signal.SIGSTOP)
        successor = fleet.controller()
        successor.start()
        assert successor.epoch == 2
        fleet.rounds(successor, 2)
        stopped.send_signal(signal.SIGCONT)
        out, err = stopped.communicate(timeout=30)
    finally:
        stopped.kill()
    assert stopped.returncode == 3 and "epoch 2 was taken" in out, out + err
    assert (fleet.store / "asked").read_text().count(TOPIC_ID) == 1
    fleet.rounds(successor, 10)
    assert successor.states.of("request-1") == "done" and orders_of(fleet, 1) == set()


def test_of_two_controllers_at_once_one_goes_on(fleet: SmallFleet) -> None:
    both = [process(fleet, 60) for _ in range(2)]
    ends = [running.communicate(timeout=60) for running in both]
    assert sorted(running.returncode for running in both) == [0, 3], ends
    complete(fleet)


def test_a_controller_killed_at_any_call_that_writes_leaves_what_the_next_one_finishes(
    fleet: SmallFleet, tmp_path: Path
) -> None:
    need_command("strace")
    kept = tmp_path / "kept"
    shutil.copytree(fleet.store, kept)
    trace = tmp_path / "trace"
    whole = process(fleet, 2, "strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={WRITES}")
    whole.communicate(timeout=60)
    assert whole.returncode == 0
    calls = [match[1] for line in trace.read_text().splitlines() if (match := re.match(r"\d+ +(\w+)\(", line))]
    counted = {call: calls.count(call) for call in dict.fromkeys(calls)}
    sites = [(call, n) for call, count in counted.items() for n in range(1, count + 1)]
    assert len(sites) > 10, counted
    for call, n in sites if FULL else sites[:: max(1, len(sites) // 4)]:
        shutil.rmtree(fleet.store)
        shutil.copytree(kept, fleet.store)
        again = SmallFleet(fleet.store)
        again.hosts = {node: type(host)(node) for node, host in fleet.hosts.items()}
        for node in again.hosts:
            again.hosts[node].disk[TOPIC_ID, 0] = DIRECTORY
        killed = process(again, 2, "strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                         f"inject={call}:signal=KILL:when={n}")  # fmt: skip
        killed.communicate(timeout=60)
        assert killed.returncode != 0, f"{call} {n} was not reached"
        complete(again)
