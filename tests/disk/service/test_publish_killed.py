"""SIGKILL at every point of spooling and sending: never a manifest without its whole data, and nothing lost."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.store.tree import MARKER
from tests.publish_host import HOUR_MS, Publishing, data_files, landed

# Audit events right before a call that changes a name or opens a file.
_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir")
# By path, or below an open folder by name.
_OURS = re.compile(r"/spool|/store|\.(jsonl\.gz|manifest\.json)(\.tmp)?$")
# More than there are; the last run is the one that nobody killed.
_MOST = 200


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Run `work` in a process of its own that is killed before its `number`-th event on the spool or the store; whether
    it came that far."""
    child = os.fork()
    if child == 0:
        seen = 0

        def count(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal seen
            if event in _EVENTS and _OURS.search(str(arguments[0])):
                seen += 1
                if seen == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.fixture
def publishing(tmp_path: Path) -> Publishing:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / MARKER).touch()
    publishing = Publishing(tmp_path, tmp_path / "store")
    publishing.host.configure()
    publishing.look()
    publishing.host.with_assignments(**{"assignments.max_age": "365d"})
    return publishing


def settled(publishing: Publishing) -> None:
    """After the next cycle and the next attempt nothing half is left anywhere, and what the store has is whole."""
    data_files(publishing.store)
    publishing.publisher = publishing.started()
    publishing.clock.ahead_ms += HOUR_MS
    snapshot_id = publishing.look()
    told = publishing.publisher.send()
    assert (told.waiting, told.error) == (0, None)
    assert publishing.spooled() == []
    assert f"{snapshot_id}.jsonl.gz" in {path.name for path in data_files(publishing.store, "snapshot", "delta")}
    names = [path.name for path in landed(publishing.store)]
    assert [name for name in names if not name.endswith((".jsonl.gz", ".manifest.json"))] == []
    assert len(names) == 2 * len(data_files(publishing.store))


def test_killed_anywhere_while_sending(publishing: Publishing) -> None:
    """Everything that was spooled before arrives, and once."""
    (publishing.store / "landing").mkdir()
    number, snapshots = 0, 0
    while killed_at(number := number + 1, lambda: publishing.publisher.send()):
        assert number < _MOST
        data_files(publishing.store)
        waiting = len(list((publishing.host.state / "spool").glob("*-snapshot.manifest.json")))
        arrived = len(data_files(publishing.store, "snapshot", "delta"))
        assert waiting + arrived >= snapshots + 1
        settled(publishing)
        snapshots += 2
        assert len(data_files(publishing.store, "snapshot", "delta")) == snapshots
        publishing.clock.ahead_ms += HOUR_MS
        publishing.look()
    assert number > 10


def test_killed_anywhere_while_spooling(publishing: Publishing) -> None:
    """What was spooled before stays, what was being spooled is there whole or not at all."""
    number = 0
    before = len(publishing.publisher._spool.waiting())
    while killed_at(number := number + 1, lambda: publishing.look()):
        assert number < _MOST
        waiting = publishing.started()._spool.waiting()
        assert before <= len(waiting) <= before + 2
        settled(publishing)
        publishing.clock.ahead_ms += HOUR_MS
        publishing.look()
        before = len(publishing.publisher._spool.waiting())
        publishing.clock.ahead_ms += HOUR_MS
    assert number > 10
