"""A store that is missing, damaged, read-only or full: one clear error with its exit status, and no report made of
it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from logagent.base.errors import ConfigError, Exit, LogAgentError, ServiceUnreachable, UnreadableError
from logagent.fleet.ingest.dates import ingest_dates, trim_landing
from logagent.fleet.job import Job, report
from logagent.fleet.report.scope import asked, scope
from logagent.fleet.spark_session import explained
from logagent.fleet.tables.frames import STORE
from logagent.fleet.tables.store import Store
from tests.needs import need_command, need_root
from tests.spark.conftest import Told, tell
from tests.spark.hand_made import AT, NOW, Kafka, idle, log_dir_row, small_cluster, small_kafka

DAY = date(2025, 3, 10)


def _unheard(_: str) -> None:
    """Progress."""


def test_duplicates_of_one_host_do_not_hide_what_another_one_lists_twice(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logagent.fleet.ingest.ingest.MOST_TWICE", 3)
    store = tmp_path / "store"
    kafka = small_cluster(store)
    kafka.topic("many", *([1] for _ in range(20)))
    kafka.assignments(offset=8)
    mine = kafka.replicas_of(1)
    elsewhere = [row | {"log_dir": "/d2"} for row in mine]
    kafka.snapshot(1, [*mine, *elsewhere], log_dirs=[log_dir_row(), log_dir_row("/d2")])
    kafka.snapshot(2, [*kafka.replicas_of(2), *kafka.replicas_of(2)])
    opened = Store.open(spark, str(store))
    ingest_dates(opened, None)
    commit = opened.commit_of(DAY)
    assert commit is not None
    refused = [row for row in opened.small("files", commit) if row["status"] == "rejected"]
    assert [(row["node_id"], row["reason"]) for row in refused] == [(2, "directory-twice")]
    twice = opened.read("dirs", [commit]).where("node_id = 1").groupBy("name").count().where("count = 2")
    assert twice.count() == 22


def _copy(small: Told, to: Path) -> Store:
    shutil.copytree(small.store.uri.removeprefix("file:"), to)
    return Store.open(small.store.spark, str(to))


def test_a_store_whose_path_is_no_plain_word_and_that_needs_nobody(spark: SparkSession, tmp_path: Path) -> None:
    """Spaces, escapes and what globs are made of: files are found by their names, and theirs alone. Of two dates, as
    without the first one it is not known how fast anything grows."""
    folder = tmp_path / "a store, 1+1 %41 [x]{y}"
    folder.mkdir()
    kafka = small_kafka(folder)
    kafka.assignments()
    for at in (AT - timedelta(days=1), AT):
        for node in (1, 2, 3):
            kafka.snapshot(node, kafka.replicas_of(node), at=at, boot_id=f"boot-{node}", **idle(at))
    told = tell(spark, folder, tmp_path / "out [1]")
    assert [(one.taken, one.rows) for one in told.ingested] == [(3, 12), (4, 18)]
    assert told.content["hosts"]["reporting"] == 3
    assert told.content["totals"]["missing_replicas"] == 0
    assert "Nothing needs you today" in (told.out / "index.html").read_text()


def test_on_its_first_date_how_fast_a_fleet_grows_is_not_known(small: Told) -> None:
    assert small.content["answers"]["risk"]["pace_unknown"] == 3
    assert "Nothing needs you today" not in (small.out / "index.html").read_text()


def test_no_store(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ServiceUnreachable, match="there is no fleet store"):
        Store.open(spark, str(tmp_path / "nowhere"))


def test_no_landing(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ServiceUnreachable, match="there is no landing"):
        ingest_dates(Store.open(spark, str(tmp_path)), None)


def test_nothing_ingested(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(LogAgentError, match="nothing was ingested") as raised:
        report(Job(Store.open(spark, str(tmp_path)), str(tmp_path / "out"), NOW))
    assert raised.value.exit_status is Exit.FAILED
    assert raised.value.hint is not None and "fleet ingest" in raised.value.hint


def test_unknown_file_system(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="no connector"), explained("looking"):
        Store.open(spark, "nosuch://bucket/fleet")


def test_date_without_landing(small: Told, tmp_path: Path) -> None:
    with pytest.raises(LogAgentError, match="landing has nothing for 2025-03-01"):
        ingest_dates(small.store, date(2025, 3, 1))


def test_landing_of_nothing_but_scraps(spark: SparkSession, tmp_path: Path) -> None:
    """An unfinished upload is no snapshot and an empty folder none: nothing is ingested, and there is no report of
    zeros."""
    place = tmp_path / "store" / "landing" / "cluster" / "2025-03-10" / "1"
    place.mkdir(parents=True)
    (place / "x.jsonl.gz.tmp").write_bytes(b"half")
    store = Store.open(spark, str(tmp_path / "store"))
    assert ingest_dates(store, None) == []
    with pytest.raises(LogAgentError, match="landing has nothing for 2025-03-10"):
        ingest_dates(store, DAY)
    with pytest.raises(LogAgentError, match="nothing was ingested"):
        report(Job(store, str(tmp_path / "out"), NOW))


def test_a_date_that_was_ingested_without_a_file(small: Told, tmp_path: Path) -> None:
    """It is no page of zeros either."""
    store = _copy(small, tmp_path / "store")
    commit = store.commit_of(DAY)
    assert commit is not None
    run = store.new_run()
    run.write_small("files", [])
    day = DAY - timedelta(days=30)
    store.add_commit(replace(commit, day=day, run=run.name, tables=commit.tables | run.tables))
    with pytest.raises(LogAgentError, match="nothing was ingested for 2025-02-08"):
        report(Job(store, str(tmp_path / "out"), NOW, day))


def test_a_day_of_which_nothing_was_ingested(small: Told, tmp_path: Path) -> None:
    """Not a page of zeros; and the last report stays."""
    good = _reported(small, tmp_path)
    with pytest.raises(LogAgentError, match="nothing was ingested for 2025-03-09: the last date that was is") as raised:
        report(Job(small.store, str(tmp_path / "out"), NOW, DAY - timedelta(days=1)))
    assert raised.value.exit_status is Exit.FAILED
    assert (tmp_path / "out" / "latest").resolve().name == good


def _reported(small: Told, tmp_path: Path) -> str:
    """The last good report, in `out`; its name."""
    shutil.copytree(small.out.parent, tmp_path / "out", symlinks=True)
    return small.out.name


def _files(tmp_path: Path, table: str) -> list[Path]:
    below = f"tables/{table}/run=*/*.parquet" if table in STORE else f"runs/*/{table}/*.gz"
    found = list((tmp_path / "store").glob(below))
    assert found
    return found


def test_flipped_bytes_in_the_store(small: Told, tmp_path: Path) -> None:
    """Parquet's page checksums are verified: a changed topic id would be a false orphan."""
    store = _copy(small, tmp_path / "store")
    for data in _files(tmp_path, "parts"):
        content = bytearray(data.read_bytes())
        for place in range(40, len(content) // 2, 23):
            content[place] ^= 0x55
        data.write_bytes(content)
        data.with_name(f".{data.name}.crc").unlink(missing_ok=True)
    with pytest.raises(UnreadableError, match="a file of the store is damaged"), explained("reporting"):
        report(Job(store, str(tmp_path / "out"), NOW))
    assert list((tmp_path / "out").glob("*")) == []


@pytest.mark.parametrize("table", ["dirs", "assignments", "parts", "topics", "others", "files", "log_dirs", "choice"])
def test_lost_file_of_the_store(small: Told, tmp_path: Path, table: str) -> None:
    """What is gone would be missing replicas, or orphans: every file is looked for under its name and size."""
    store = _copy(small, tmp_path / "store")
    good = _reported(small, tmp_path)
    for data in _files(tmp_path, table):
        data.unlink()
    with pytest.raises(UnreadableError, match="a file of the store is damaged"):
        report(Job(store, str(tmp_path / "out"), NOW))
    assert (tmp_path / "out" / "latest").resolve().name == good, "the last good one stays"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {good, "latest"}


def test_interrupted_ingest_counts_as_none(small: Told, tmp_path: Path) -> None:
    store = _copy(small, tmp_path / "store")
    shutil.rmtree(tmp_path / "store" / "commits")
    store.refresh()
    with pytest.raises(LogAgentError, match="nothing was ingested"):
        report(Job(store, str(tmp_path / "out"), NOW))
    assert [one.taken for one in ingest_dates(store, None)] == [4]


def test_late_snapshot_is_noticed_and_trimmed_dates_stay(small: Told, tmp_path: Path) -> None:
    """In the report two days later without a word, too: nobody is reporting, nothing is an orphan or missing. What was
    rejected is not trimmed."""
    store = _copy(small, tmp_path / "store")
    kafka = Kafka(tmp_path / "store", "small", {"orders": ("x", [])})
    kafka.snapshot(9, [], at=AT + timedelta(minutes=5))
    broken = kafka.snapshot(8, [])
    broken.write_bytes(b"broken")
    assert [(one.date, one.taken, one.rejected) for one in ingest_dates(store, None)] == [(DAY, 5, 1)]
    assert ingest_dates(store, None) == []
    assert trim_landing(store, DAY) == []
    assert trim_landing(store, DAY + timedelta(days=1)) == [DAY]
    assert list((tmp_path / "store" / "landing").rglob("*.gz")) == [broken]
    assert ingest_dates(store, None) == []
    with pytest.raises(LogAgentError, match="removed from landing"):
        ingest_dates(store, DAY)
    kafka.snapshot(2, [], at=AT + timedelta(minutes=6))
    assert ingest_dates(store, None) == []
    content = report(Job(store, str(tmp_path / "out"), NOW + timedelta(days=2)))
    assert content["hosts"]["reporting"] == 0
    assert content["hosts"]["unknown_total"] == 5
    assert content["totals"]["orphans"] == content["totals"]["missing_replicas"] == 0
    assert "all 5 hosts are unknown" in content["warnings"][0]
    assert any("late: 1" in warning for warning in content["warnings"]), content["warnings"]
    for age, counted in ((timedelta(), 4), (timedelta(days=2), 0)):
        question = asked(store, NOW + age, None, Job.max_age)
        assert len(scope(store, question, None, _unheard).choice.counting) == counted


@contextmanager
def _mounted(place: Path, options: str) -> Iterator[None]:
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "logagent-test", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_read_only_store(spark: SparkSession, tmp_path: Path) -> None:
    need_root()
    need_command("mount")
    with _mounted(tmp_path / "store", "size=8m"):
        small_cluster(tmp_path / "store")
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "store")], check=True)
        store = Store.open(spark, str(tmp_path / "store"))
        with pytest.raises(LogAgentError, match="the place cannot be written") as raised, explained("ingesting"):
            ingest_dates(store, None)
    assert raised.value.exit_status is Exit.FAILED


def test_full_store(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is left behind that looks like an ingested date."""
    need_root()
    need_command("mount")
    with _mounted(tmp_path / "store", "size=256k"):
        small_cluster(tmp_path / "store")
        ballast = tmp_path / "store" / "ballast"
        with pytest.raises(OSError, match="No space left"), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        store = Store.open(spark, str(tmp_path / "store"))
        with pytest.raises(LogAgentError) as raised, explained("ingesting"):
            ingest_dates(store, None)
        assert "no space is left" in str(raised.value) or "cannot be written" in str(raised.value)
        assert store.dates() == []
        assert not (tmp_path / "store" / ".ingest-lock").exists()
