"""Two ingests of one store at once: the second one is refused, a dead one does not stand in the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from logagent.base.errors import Exit, LogAgentError
from logagent.fleet.ingest import dates
from logagent.fleet.ingest.dates import NAME, IngestLock, ingest_dates, machine, trim_landing
from logagent.fleet.tables.store import Store
from tests.spark.hand_made import AT
from tests.waiting import wait_until


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> Store:
    (tmp_path / "landing").mkdir()
    return Store.open(spark, str(tmp_path))


def _left_by(store: Store, **said: object) -> Path:
    place = Path(store.uri.removeprefix("file:")) / NAME
    place.write_text(json.dumps({"id": "other", "machine": "elsewhere", "host": "h", "pid": 1, "at": "then"} | said))
    return place


def _dead_pid() -> int:
    done = subprocess.Popen([sys.executable, "-c", "pass"])
    done.wait()
    return done.pid


def test_the_second_one_is_refused(store: Store) -> None:
    with IngestLock(store) as held:
        for second in (lambda: ingest_dates(store, None), lambda: trim_landing(store, AT.date())):
            with pytest.raises(LogAgentError, match=f"is running: process {os.getpid()} on") as raised:
                second()
            assert raised.value.exit_status is Exit.TEMPORARY
        held.check()
    assert ingest_dates(store, None) == []
    assert not list(Path(store.uri.removeprefix("file:")).glob(".*"))


def test_one_on_another_host_is_believed_while_it_is_heard_from(store: Store) -> None:
    place = _left_by(store, pid=_dead_pid())
    with pytest.raises(LogAgentError, match="is running: process"):
        ingest_dates(store, None)
    long_ago = place.stat().st_mtime - dates.STALE_SECONDS - 60
    os.utime(place, (long_ago, long_ago))
    assert ingest_dates(store, None) == []
    assert not place.exists()


def test_one_that_is_ahead_of_the_clock_keeps_nobody_out(store: Store) -> None:
    """Somebody gave it that time, or the clock of the store was set back. A little ahead is two clocks."""
    place = _left_by(store, pid=_dead_pid())
    now = place.stat().st_mtime
    os.utime(place, (now + 60, now + 60))
    with pytest.raises(LogAgentError, match="heard from 0 s ago"):
        ingest_dates(store, None)
    os.utime(place, (now + dates.AHEAD_SECONDS + 60,) * 2)
    assert ingest_dates(store, None) == []
    assert not place.exists()


def test_a_dead_one_of_this_host_is_no_obstacle(store: Store) -> None:
    """Killed in the middle: what it had in work goes too."""
    place = _left_by(store, pid=_dead_pid(), machine=machine())
    scratch = place.with_name(".scratch-0123")
    (scratch / "checked").mkdir(parents=True)
    said: list[str] = []
    ingest_dates(store, None, say=said.append)
    assert said[0].startswith("taking over from a dead ingest: process")
    assert not scratch.exists()
    assert not place.exists()


def test_a_lock_that_was_taken_away_stops_its_holder(store: Store) -> None:
    with IngestLock(store) as held:
        place = _left_by(store)
        with pytest.raises(LogAgentError, match="another ingest has taken the lock"):
            held.check()
    assert json.loads(place.read_text())["id"] == "other"


def test_the_holder_says_that_it_lives(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dates, "REFRESH_SECONDS", 0.05)
    place = Path(store.uri.removeprefix("file:")) / NAME
    with IngestLock(store) as held:
        os.utime(place, (1, 1))
        wait_until(lambda: place.stat().st_mtime > 1 or None, "a sign of life")
        held.check()


@pytest.mark.parametrize("kind", ["symlink", "fifo"])
def test_a_lock_that_was_replaced_is_not_written_through(store: Store, tmp_path: Path, kind: str) -> None:
    """Who may write the store puts something else in its place: nothing outside the store changes, nobody waits."""
    victim = tmp_path / "victim"
    victim.write_text("of somebody else")
    place = tmp_path / NAME
    if kind == "symlink":
        place.symlink_to(victim)
    else:
        os.mkfifo(place)
    with pytest.raises(OSError):
        store.files.overwrite(f"{store.uri}/{NAME}", b"ours")
    assert victim.read_text() == "of somebody else"
    place.unlink()
