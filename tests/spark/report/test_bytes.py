"""Every figure of bytes, added up from the lines in landing by code that shares nothing with the job.

Directories of every kind, of which no two have the same size, and whose files are longer than what they have on disk
(or shorter: a block is given whole): whichever of the two a figure holds, and whatever it leaves out, shows.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from logagent.fleet.page.document import brief
from logagent.fleet.page.words import size
from logagent.fleet.report.columns import CHARTS, TABLES
from tests.spark.conftest import Told, tell
from tests.spark.hand_made import AT, GIB, Kafka, dir_row, log_dir_row

Row = dict[str, Any]
MIB = 1 << 20
UUID = "0" * 32
KINDS = ("current", "future", "stray", "delete")
WINDOWS = ("now", "restart", "approval", "later")
YESTERDAY = AT - timedelta(days=1)


def sizes(number: int) -> Row:
    """Of each directory others: sums tell which ones they are of."""
    length = 7 * number + 5 if number % 5 == 0 else 20 * MIB + (7 << number % 16) + number
    return {"bytes": length, "allocated": 4096 << number, "inode": 1000 + number}


def plant(store: Path) -> Kafka:
    kafka = Kafka(store, "bytes")
    kafka.topic("orders", [1, 2], [2, 1])
    kafka.topic("clicks", [1])
    gone, older, moved = (letter * 22 for letter in "GOM")
    orders = kafka.topics["orders"][0]

    def stray(topic: str, id_: str | None, partition: int, days: int, window: str) -> Row:
        return dir_row(f"{topic}-{partition}.{UUID}-stray", id_, kind="stray", topic=topic, partition=partition,
                       window=window, marked_at=ms(AT - timedelta(days=days)))  # fmt: skip

    def marked(partition: int, hours: int) -> Row:
        return dir_row(f"gone-{partition}.{UUID}-delete", gone, kind="delete", topic="gone", partition=partition,
                       window="restart", marked_at=ms(AT - timedelta(hours=hours)))  # fmt: skip

    def future(topic: str, id_: str | None, partition: int) -> Row:
        return dir_row(f"{topic}-{partition}.{UUID}-future", id_, kind="future", topic=topic, partition=partition,
                       log_dir="/d1", window="restart")  # fmt: skip

    says_orphan = {"verdict": "orphan", "reason": "topic-absent", "window": "restart"}
    both = [
        dir_row("gone-0", gone, **says_orphan),
        stray("older", older, 0, 9, "now"),
        stray("older", older, 1, 2, "later"),
        stray("orders", orders, 0, 9, "approval"),
        marked(2, 9),
        marked(3, 0),
        dir_row("orders-1", orders, log_dir="/d1"),
        future("orders", orders, 0),
        dir_row("nameless-0", None),
    ]
    today = [future("moved", moved, 0), dir_row("gone-5", gone, **says_orphan), stray("gone", gone, 0, 9, "now")]
    cleared = [stray("older", older, 7, 1, "later"), dir_row("gone-9", gone, **says_orphan)]
    number = 0
    for at, only in ((YESTERDAY, cleared), (AT, today)):
        for node in (1, 2):
            rows = [*kafka.replicas_of(node), *(both + only if node == 1 else [dir_row("gone-0", gone, **says_orphan)])]
            rows = [row | sizes(number + n) for n, row in enumerate(rows)]
            number = (number + 3) % 7
            places = [log_dir_row(path, device=n, ledger=ledger(rows, path)) for n, path in enumerate(("/d0", "/d1"))]
            kafka.hourly(node, [row | {"newest_mtime": ms(AT - timedelta(days=9))} for row in rows], at=at,
                         log_dirs=places, unread_processes=3 if node == 1 else 0)  # fmt: skip
        kafka.assignments(at=at + timedelta(minutes=10))
    return kafka


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def ledger(rows: Iterable[Row], path: str) -> Row:
    kinds = {kind: sum(r["allocated"] for r in rows if (r["kind"], r["log_dir"]) == (kind, path)) for kind in KINDS}
    hidden = {"other": 3 * MIB, "open_removed": 5 * MIB, "unexplained": 7 * MIB}
    used = sum(kinds.values()) + sum(hidden.values())
    return {"size": 900 * GIB, "used": used, "free": 900 * GIB - used, **kinds, **hidden}


class Truth:
    """The rule in words: an orphan is a current or future directory whose topic id is assigned nowhere; a leftover a
    stray, or marked longer ago than an hour and the broker's delay. Without a copy elsewhere an orphan needs approval.
    """

    def __init__(self, store: Path, day: datetime) -> None:
        (folder,) = (store / "landing").iterdir()
        self.dirs: list[Row] = []
        self.log_dirs: list[Row] = []
        for data in sorted((folder / f"{day:%Y-%m-%d}").glob("[0-9]*/*.jsonl.gz")):
            for row in map(json.loads, gzip.decompress(data.read_bytes()).splitlines()):
                # An agent leaves out what is null.
                row = dict.fromkeys(("topic_id", "window", "verdict", "marked_at")) | row
                row["node_id"] = int(data.parent.name)
                if row["row"] == "dir":
                    self.dirs.append(row)
                elif row["row"] == "log_dir":
                    self.log_dirs.append(row)
        images = (folder / f"{day:%Y-%m-%d}" / "assignments").glob("*.jsonl.gz")
        lines = [json.loads(line) for data in images for line in gzip.decompress(data.read_bytes()).splitlines()]
        living = {line["topic_id"] for line in lines if line["row"] == "partition"}
        copies: dict[tuple[str, int], int] = defaultdict(int)
        for row in self.dirs:
            if row["kind"] != "delete" and row["topic_id"]:
                copies[row["topic_id"], row["partition"]] += 1
        for row in self.dirs:
            used = row["kind"] in ("current", "future")
            row["orphan"] = used and row["topic_id"] is not None and row["topic_id"] not in living
            row["only"] = row["orphan"] and copies[row["topic_id"], row["partition"]] == 1
            overdue = row["kind"] == "delete" and ms(day) - row["marked_at"] > 3_660_000
            row["leftover"] = row["kind"] == "stray" or overdue
            row["due"] = "approval" if row["only"] else row["window"] if row["orphan"] or row["leftover"] else None

    def added(self, of: str = "allocated", which: Callable[[Row], bool] = lambda row: True) -> int:
        return sum(row[of] for row in self.dirs if which(row))

    def waste(self, which: Callable[[Row], bool]) -> Row:
        """The columns of what can be reclaimed."""
        found = {f"reclaim_{w}": self.added(which=lambda r, w=w: which(r) and r["due"] == w) for w in WINDOWS}  # type: ignore[misc]
        return found | {"orphan_bytes": self.added(which=lambda r: which(r) and r["orphan"])}

    def usage(self, which: Callable[[Row], bool]) -> Row:
        kinds = {kind: self.added(which=lambda r, k=kind: which(r) and r["kind"] == k) for kind in KINDS}  # type: ignore[misc]
        sums = {name: self.added(name, which) for name in ("bytes", "allocated")}
        return sums | kinds | self.waste(which)

    def groups(self, *names: str, which: Callable[[Row], bool] = lambda row: True) -> dict[tuple[Any, ...], list[Row]]:
        found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in self.dirs:
            if which(row):
                found[tuple(row[name] for name in names)].append(row)
        return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("bytes") / "store"
    store.mkdir()
    plant(store)
    return store


@pytest.fixture(scope="module")
def told(spark: SparkSession, store: Path) -> Told:
    return tell(spark, store, store.parent / "out")


@pytest.fixture(scope="module")
def truth(store: Path) -> Truth:
    return Truth(store, AT)


@pytest.fixture(scope="module")
def before(store: Path) -> Truth:
    return Truth(store, YESTERDAY)


BOTH = {"bytes", "allocated"}
OF_KINDS = {*KINDS, "orphan_bytes", *(f"reclaim_{window}" for window in WINDOWS)}
OF_DISK = {"size", "used", "free", "other", "open_removed", "unexplained"}
ADDED_UP = {
    **dict.fromkeys(("usage_clusters", "usage_hosts", "usage_log_dirs"), BOTH | OF_KINDS | OF_DISK | {"open_unread"}),
    "usage_topics": BOTH | OF_KINDS | {"largest_partition"},
    "usage_partitions": BOTH | {"smallest_copy", "largest_copy"},
    **dict.fromkeys(("orphans", "leftovers", "undecided", "duplicates", "audit"), BOTH),
    "growth": {"bytes", "bytes_per_day", "free"},
    "deletion_progress": {"marked_bytes", "removed_bytes"},
    "chart_growth": {"bytes", "used", "size", "was", "now"},
}
"""The columns of bytes that a test adds up: here, but for `audit` (`test_audit.py`), `deletion_progress`
(`tests/disk/store`) and `chart_growth` (`tests/unit/fleet/test_cluster_growth.py`)."""


def test_no_column_of_bytes_is_left_out() -> None:
    tables = TABLES | CHARTS
    units = {name: {c.name for c in table.columns if c.unit == "bytes"} for name, table in tables.items()}
    assert {name: columns for name, columns in units.items() if columns} == ADDED_UP


def test_the_fleet_has_every_kind_and_tells_the_two_apart(truth: Truth, before: Truth) -> None:
    for kind in KINDS:
        long, given = (truth.added(of, lambda r, k=kind: r["kind"] == k) for of in ("bytes", "allocated"))  # type: ignore[misc]
        assert 0 < long != given > 0
    assert {row["due"] for row in truth.dirs} == {None, *WINDOWS}
    assert any(r["bytes"] < r["allocated"] for r in truth.dirs), truth.dirs
    assert any(r["bytes"] > r["allocated"] for r in truth.dirs), truth.dirs
    assert before.added() != truth.added()


def test_usage_by_cluster_host_and_log_dir(told: Told, truth: Truth) -> None:
    def place(one: Row) -> str:
        return str(one["path"] if one["row"] == "log_dir" else one["log_dir"])

    every: dict[str, Callable[[Row, Row], bool]] = {
        "usage_clusters": lambda row, one: True,
        "usage_hosts": lambda row, one: one["node_id"] == row["node_id"],
        "usage_log_dirs": lambda row, one: (one["node_id"], place(one)) == (row["node_id"], row["log_dir"]),
    }
    for table, same in every.items():
        rows = told.rows(table)
        assert rows
        for row in rows:
            expected = truth.usage(lambda one, row=row, same=same: same(row, one))  # type: ignore[misc]
            disks = [one["ledger"] for one in truth.log_dirs if same(row, one)]
            expected |= {name: sum(disk[name] for disk in disks) for name in OF_DISK}
            unread = [one for one in truth.log_dirs if same(row, one) and one["node_id"] == 1]
            expected["open_unread"] = sum(one["ledger"]["unexplained"] for one in unread)
            assert {name: row[name] for name in expected} == expected, (table, row)


def test_usage_by_topic_and_partition(told: Told, truth: Truth) -> None:
    rows = {(r["topic"], r["topic_id"]): r for r in told.rows("usage_topics") if r["copies"]}
    groups = truth.groups("topic", "topic_id")
    assert rows.keys() == groups.keys()
    for key, dirs in groups.items():
        expected = truth.usage(lambda one, key=key: (one["topic"], one["topic_id"]) == key)  # type: ignore[misc]
        current = [one["allocated"] for one in dirs if one["kind"] == "current"]
        expected["largest_partition"] = max(current, default=None)
        assert {name: rows[key][name] for name in expected} == expected, key
    found = {(r["topic"], r["topic_id"], r["partition"]): r for r in told.rows("usage_partitions") if r["copies"]}
    copies = truth.groups("topic", "topic_id", "partition", which=lambda r: r["kind"] == "current")
    assert found.keys() == copies.keys()
    for place, dirs in copies.items():
        given = [one["allocated"] for one in dirs]
        expected = {"bytes": sum(one["bytes"] for one in dirs), "allocated": sum(given)}
        expected |= {"smallest_copy": min(given), "largest_copy": max(given)}
        assert {name: found[place][name] for name in expected} == expected, place


def test_each_directory_says_both(told: Told, truth: Truth) -> None:
    def of(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
        return sorted((r["node_id"], r["log_dir"], r["name"], r["bytes"], r["allocated"]) for r in rows)

    abandoned = [r for r in truth.dirs if r["kind"] == "future" and r["orphan"]]
    assert of(told.rows("orphans")) == of(r for r in truth.dirs if r["orphan"])
    assert of(told.rows("leftovers")) == of([*(r for r in truth.dirs if r["leftover"]), *abandoned])
    assert of(told.rows("undecided")) == of(r for r in truth.dirs if r["topic_id"] is None)
    twice = [
        dirs
        for dirs in truth.groups("node_id", "topic_id", "partition", which=lambda r: r["kind"] == "current").values()
        if len({r["log_dir"] for r in dirs}) > 1
    ]
    mine = [(r["bytes"], r["allocated"]) for r in told.rows("duplicates")]
    assert sorted(mine) == sorted((sum(r["bytes"] for r in d), sum(r["allocated"] for r in d)) for d in twice) and mine


def test_the_first_answers(told: Told, truth: Truth) -> None:
    answers = told.content["answers"]
    for window in WINDOWS:
        requestable = [r for r in truth.dirs if r["due"] == window and (r["orphan"] or r["kind"] == "stray")]
        expected = truth.added(which=lambda r, w=window: r["due"] == w), sum(r["allocated"] for r in requestable)  # type: ignore[misc]
        assert (answers["reclaim"][window]["bytes"], answers["reclaim"][window]["asked_bytes"]) == expected, window
    not_overdue = truth.added(which=lambda r: r["kind"] == "delete" and not r["leftover"])
    assert answers["reclaim"]["marked"] == not_overdue > 0
    assert answers["risk"]["only_copies"]["bytes"] == truth.added(which=lambda r: r["only"]) > 0
    used = sum(row["ledger"]["used"] for row in truth.log_dirs)
    assert answers["disks"]["used"] == used
    totals = {name: told.content["totals"][name] for name in (*BOTH, *KINDS, "orphan_bytes")}
    whole = truth.usage(lambda row: True)
    assert totals == {name: whole[name] for name in totals}
    steps = [step for step in answers["steps"] if step["bytes"]]
    assert {step["what"] for step in steps} >= {"host", "topic"}
    for step in steps:
        names = [name for name in ("node_id", "topic") if step[name] is not None]
        due = truth.groups("due", *names)[step["window"], *(step[name] for name in names)]
        asked = [r for r in due if r["orphan"] or r["kind"] == "stray"] if step["requestable"] else due
        assert step["bytes"] == sum(r["allocated"] for r in asked), step


def test_what_changed_and_what_grew(told: Told, truth: Truth, before: Truth) -> None:
    def waste(of: Truth) -> dict[tuple[Any, ...], Row]:
        rows = (r for r in of.dirs if r["verdict"] == "orphan" or r["kind"] in ("stray", "delete"))
        return {(r["node_id"], r["log_dir"], r["topic_id"], r["partition"]): r for r in rows}

    now, old = waste(truth), waste(before)
    new = [r for key, r in now.items() if key not in old and r["verdict"] == "orphan"]
    gone = [r for key, r in old.items() if key not in now]
    (change,) = told.content["answers"]["changes"]
    assert change["orphan_bytes"] == sum(r["allocated"] for r in new) > 0
    assert change["cleared_bytes"] == sum(r["allocated"] for r in gone) > 0
    for row in told.rows("growth"):
        if row["scope"] == "topic":
            key = row["topic"], row["topic_id"]
            last, first = (
                sum(r["allocated"] for r in of.groups("topic", "topic_id")[key]) for of in (truth, before)
            )  # fmt: skip
            assert (row["bytes"], row["bytes_per_day"]) == (last, last - first if last > first else None), key
        else:
            last, first = (
                next(r["ledger"] for r in of.log_dirs if (r["node_id"], r["path"]) == (row["node_id"], row["log_dir"]))
                for of in (truth, before)
            )
            pace = last["used"] - first["used"]
            assert (row["bytes"], row["free"]) == (last["used"], last["free"])
            assert row["bytes_per_day"] == (pace if pace > 0 else None)
    assert {row["scope"] for row in told.rows("growth")} == {"topic", "log_dir"}


def test_page_brief_and_csv_say_the_same(told: Told, truth: Truth) -> None:
    short, page = brief(told.content), (told.out / "index.html").read_text()
    for window in WINDOWS:
        words = size(truth.added(which=lambda r, w=window: r["due"] == w))  # type: ignore[misc]
        assert words in short and words in page, window
    assert "\\u" not in short
    with (told.out / "usage_topics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["stray"]) for row in rows) == truth.added(which=lambda r: r["kind"] == "stray")
    assert [int(r["allocated"]) for r in rows] == sorted((int(r["allocated"]) for r in rows), reverse=True)
