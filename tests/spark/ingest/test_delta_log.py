"""The Delta log beside the store's tables: `deltalake` reads what our own reader does, whatever an ingest died of."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from logagent.fleet.ingest.dates import KEEP_RUNS, ingest_dates, sweep
from logagent.fleet.tables import delta_log
from logagent.fleet.tables.delta_log import DeltaLog, DeltaLogs
from logagent.fleet.tables.frames import STORE
from logagent.fleet.tables.store import Commit, Store
from tests.long_form import long_form
from tests.spark.hand_made import AT, Kafka, dir_row
from tests.spark.ingest.delta_reader import by_delta, by_spark, by_us, of_answer, versions

DAY = AT.date()
BEFORE = DAY - timedelta(days=1)


class Killed(BaseException):
    """Nothing that comes after it is done, clean-up neither."""


def _killed(*_: object) -> None:
    raise Killed


@dataclass
class Life:
    """A store after two dates, and after the second one again with an orphan: that ingest was killed after its
    commit."""

    store: Store
    path: Path
    first: dict[date, Commit]
    last: dict[date, Commit]
    behind: list[int]
    """The versions when it was killed."""


@pytest.fixture(scope="module")
def life(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    path = tmp_path_factory.mktemp("delta") / "store with a space"
    path.mkdir()
    kafka = Kafka(path, "delta")
    kafka.topic("orders", [1, 2], [2, 1])
    for ago in (timedelta(days=1), timedelta()):
        kafka.assignments(brokers=(1, 2), at=AT + timedelta(minutes=10) - ago, offset=7 - ago.days)
        for node in (1, 2):
            kafka.snapshot(node, kafka.replicas_of(node), at=AT - ago)
    store = Store.open(spark, str(path))
    ingest_dates(store, None, warn=pytest.fail)
    first = store.commits()
    lost = [*kafka.replicas_of(1), dir_row("gone-0", "AAAAAAAAAAAAAAAAAAAAAQ")]
    kafka.snapshot(1, lost, at=AT + timedelta(minutes=2))
    with pytest.MonkeyPatch.context() as patch:
        follow = DeltaLogs.follow
        patch.setattr(
            DeltaLogs, "follow", lambda s, commits: _killed() if commits[DAY].number > 1 else follow(s, commits)
        )
        with pytest.raises(Killed):
            ingest_dates(store, None)
    store.refresh()
    behind = versions(path, "dirs")
    assert ingest_dates(store, None, warn=pytest.fail) == []
    yield Life(store, path, first, store.commits(), behind)


@pytest.fixture
def copy(life: Life, tmp_path: Path) -> Store:
    """The store, for a test that changes it."""
    shutil.copytree(life.path, tmp_path / "store")
    return Store.open(life.store.spark, str(tmp_path / "store"))


def _folder(store: Store, table: str = "dirs") -> Path:
    local = store.files.local(DeltaLog(store, table).uri)
    assert local is not None
    return local


def _files(store: Store, table: str = "dirs") -> set[str]:
    """The active files of a table, below its root."""
    root = _folder(store, table).parent
    return {os.path.relpath(uri, root) for uri in DeltaTable(str(root)).file_uris()}


def _named(commits: dict[date, Commit], table: str = "dirs") -> set[str]:
    return {f"run={c.run}/{each['file']}" for c in commits.values() for each in c.tables[table] if each["rows"]}


def _warnings(store: Store, commits: dict[date, Commit]) -> list[str]:
    said: list[str] = []
    DeltaLogs(store, said.append).follow(commits)
    return said


@pytest.mark.parametrize("table", STORE)
def test_delta_reads_what_we_read(life: Life, table: str) -> None:
    assert by_delta(life.path, table) == by_us(life.store, table, life.last), "each date once, as it was ingested last"


@pytest.mark.parametrize("table", ["dirs", "topics"])
def test_time_travel(life: Life, table: str) -> None:
    """A version for each commit of a date; what was superseded is there for as long as its run is."""
    assert by_delta(life.path, table, 0).keys() == {BEFORE}
    assert by_delta(life.path, table, 1) == by_us(life.store, table, life.first)
    assert by_delta(life.path, table, 2) != by_delta(life.path, table, 1)


def test_a_killed_ingest_is_made_good_by_the_next(life: Life) -> None:
    """Which had no date to ingest."""
    assert life.behind == [0, 1]
    assert [versions(life.path, table) for table in STORE] == [[0, 1, 2]] * len(STORE)
    assert ingest_dates(life.store, None, warn=pytest.fail) == []
    assert versions(life.path, "dirs") == [0, 1, 2], "nothing to say, nothing said"


def test_the_same_commits_give_the_same_versions(life: Life, copy: Store) -> None:
    """But for the table's id."""
    shutil.rmtree(_folder(copy))
    for commits in ({BEFORE: life.first[BEFORE]}, life.first, life.last):
        assert _warnings(copy, commits) == []
    for version in (0, 1, 2):
        name = f"{version:020}.json"
        old, new = (folder / name for folder in (_folder(life.store), _folder(copy)))
        ids = [json.loads(path.read_text().splitlines()[0])["commitInfo"]["logagent"]["id"] for path in (old, new)]
        assert ids[0] != ids[1]
        assert old.read_text().replace(ids[0], ids[1]) == new.read_text()


def test_removed_before_its_files_are(life: Life, copy: Store) -> None:
    sweep(copy, datetime.now(UTC) + KEEP_RUNS + timedelta(hours=1))
    path = _folder(copy).parents[2]
    assert copy.runs() == sorted(commit.run for commit in life.last.values())
    assert by_delta(path, "dirs") == by_us(copy, "dirs", life.last)
    assert by_delta(path, "dirs", 0).keys() == {BEFORE}, "of its files none was superseded"


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"commitInfo": {"logagent": {"runs": [], "id": 1, "created": 1}}}'])
def test_a_damaged_log_is_a_warning(life: Life, copy: Store, damage: bytes) -> None:
    """Of this table, at every ingest; without the folder it is begun again."""
    folder = _folder(copy)
    shutil.rmtree(_folder(copy, "topics"))
    (folder / f"{2:020}.json").write_bytes(damage)
    said: list[str] = []
    assert ingest_dates(copy, None, warn=said.append) == []
    assert len(said) == 1 and "the Delta log of the table dirs is behind, the store is whole" in said[0]
    assert f"{2:020}.json is damaged; remove the folder _delta_log" in said[0]
    assert versions(folder.parents[2], "topics") == [0] and _files(copy, "topics") == _named(life.last, "topics")
    shutil.rmtree(folder)
    assert _warnings(copy, life.last) == []
    assert _files(copy) == _named(life.last)


def test_a_log_that_cannot_be_written_is_a_warning(life: Life, copy: Store) -> None:
    shutil.rmtree(_folder(copy))
    _folder(copy).write_text("in the way")
    assert len(_warnings(copy, life.last)) == 1


def test_who_is_first_has_the_version(life: Life, copy: Store) -> None:
    """The next one is written instead, from what was found there."""
    log, other = DeltaLog(copy, "dirs"), DeltaLog(copy, "dirs")
    log.follow(life.last)
    other.follow(life.first)
    other.follow(life.last)
    log.follow(life.first)
    assert versions(_folder(copy).parents[2], "dirs") == [0, 1, 2, 3, 4, 5]
    assert _files(copy) == _named(life.first)


def test_a_date_that_was_dropped(life: Life, copy: Store) -> None:
    """Somebody removed its commits, and landing has it no more."""
    shutil.rmtree(_folder(copy).parents[2] / "commits" / str(DAY))
    shutil.rmtree(_folder(copy).parents[2] / "landing")
    copy.refresh()
    assert _warnings(copy, copy.commits()) == []
    assert _files(copy) == _named({BEFORE: life.last[BEFORE]})


def test_a_date_whose_commits_cannot_be_read_stays(life: Life, copy: Store) -> None:
    for path in (_folder(copy).parents[2] / "commits" / str(DAY)).iterdir():
        path.write_bytes(b"")
    copy.refresh()
    assert _warnings(copy, copy.commits()) == [] and copy.commits().keys() == {BEFORE}
    assert _files(copy) == _named(life.last)


def test_new_columns(life: Life, copy: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before has none."""
    monkeypatch.setitem(STORE, "topics", STORE["topics"] + ", said bigint")
    assert _warnings(copy, life.last) == []
    assert versions(_folder(copy).parents[2], "topics") == [0, 1, 2, 3]
    rows = by_delta(_folder(copy).parents[2], "topics")
    assert rows.keys() == {BEFORE, DAY} and {row[-1] for each in rows.values() for row in each} == {None}


def test_checkpoints_and_what_is_before_them(life: Life, copy: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 3)
    log, folder = DeltaLog(copy, "dirs"), _folder(copy)
    for number in range(3, 7):
        log.follow(life.first if number % 2 else life.last)
        if number == 3:
            os.utime(folder / f"{3:020}.checkpoint.parquet", (0, time.time() - 31 * 86400))
    left = {path.name for path in folder.iterdir()}
    assert left == {
        *(f"{number:020}.json" for number in range(3, 7)),
        *(f"{number:020}.checkpoint.parquet" for number in (3, 6)),
        "_last_checkpoint",
    }
    (folder / f"{6:020}.json").rename(folder / "kept")
    assert by_delta(folder.parents[2], "dirs") == by_us(copy, "dirs", life.last), "from the checkpoint alone"
    (folder / "kept").rename(folder / f"{6:020}.json")
    assert by_delta(folder.parents[2], "dirs", 4) == by_us(copy, "dirs", life.last)
    log.follow(life.first)
    assert by_delta(folder.parents[2], "dirs") == by_us(copy, "dirs", life.first)


def test_nobody_else_may_write(copy: Store) -> None:
    with pytest.raises(DeltaError, match="logagent-store"):
        DeltaTable(str(_folder(copy).parent)).delete()


def test_an_empty_store_has_no_log(copy: Store) -> None:
    shutil.rmtree(_folder(copy))
    assert _warnings(copy, {}) == [] or not _folder(copy).exists()
    assert not _folder(copy).exists()


@long_form
def test_spark_with_delta_reads_what_we_read(
    life: Life, copy: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tables, one of them from a checkpoint; time travel by version and by time; no statement changes them."""
    root = _folder(copy).parents[1]
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 3)
    DeltaLog(copy, "others").follow(life.first)
    for version in (0, 1, 2):
        (_folder(copy, "others") / f"{version:020}.json").unlink()
    for version in (0, 1, 2):
        at = time.time() - (3 - version) * 3600  # Delta refuses to travel back further than a week
        os.utime(root / "dirs/_delta_log" / f"{version:020}.json", (at, at))
    dirs, half_past = root / "dirs", f"{datetime.now(UTC) - timedelta(minutes=90):%Y-%m-%d %H:%M:%S}"
    asked = [(root / table, dict[str, str](), "") for table in STORE]
    asked += [
        (dirs, {"versionAsOf": "0"}, ""),
        (dirs, {"versionAsOf": "1"}, ""),
        (dirs, {"timestampAsOf": half_past}, ""),
    ]
    words = ("delete from delta.`{}`", "vacuum delta.`{}`")
    asked += [(dirs, {}, word.format(dirs)) for word in words]
    answers = by_spark(tmp_path, asked)
    for table, answer in zip(STORE, answers, strict=False):
        commits = life.first if table == "others" else life.last
        assert of_answer(answer, table) == by_us(life.store, table, commits), table
    before, first, then, *refused = answers[len(STORE) :]
    assert of_answer(before, "dirs") == by_us(life.store, "dirs", {BEFORE: life.first[BEFORE]})
    assert of_answer(first, "dirs") == of_answer(then, "dirs") == by_us(life.store, "dirs", life.first)
    assert ["logagent-store" in said for said in refused] == [True, True], refused
    assert versions(root.parent, "dirs") == [0, 1, 2]
