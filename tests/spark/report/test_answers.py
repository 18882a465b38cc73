"""The answers of a report are sums over all rows: each is made again here from the CSV, without Spark."""

from __future__ import annotations

import csv
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from logagent.fleet.demo import topic_id
from logagent.fleet.page.words import UNKNOWN_WORDS
from tests.spark.conftest import DAY, Told, Zoo, tell
from tests.spark.hand_made import AT, GIB, Kafka, dir_row, log_dir_row

Row = dict[str, str]
WINDOWS = ("now", "restart", "approval", "later")


def table(folder: Path, name: str) -> list[Row]:
    with (folder / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def waste(folder: Path) -> list[Row]:
    """Orphans and leftovers; a move that was abandoned stands in both, and is one directory."""
    return table(folder, "orphans") + [row for row in table(folder, "leftovers") if row["why"] != "abandoned"]


def is_asked(row: Row) -> bool:
    """Whether `topics purge` plans it without another option."""
    return bool(row["id"] and row["inode"]) and not row["topic"].startswith("_")


def summed(rows: list[Row], column: str = "allocated") -> int:
    return sum(int(row[column]) for row in rows if row[column])


def test_what_can_be_reclaimed(zoo: Zoo) -> None:
    reclaim = zoo.told.content["answers"]["reclaim"]
    rows = waste(zoo.told.out)
    for window in WINDOWS:
        mine = [row for row in rows if row["window"] == window]
        hosts = {(row["cluster_id"], row["node_id"]) for row in mine}
        asked = [row for row in mine if is_asked(row)]
        said = {
            "dirs": len(mine),
            "bytes": summed(mine),
            "hosts": len(hosts),
            "requestable": len(asked),
            "asked_bytes": summed(asked),
        }
        assert reclaim[window] == said, window
    assert reclaim["barred"] == summed([row for row in rows if not row["window"]])
    assert min(reclaim[window]["dirs"] for window in ("now", "restart", "approval")) > 0
    overdue = summed([row for row in rows if row["kind"] == "delete"])
    usage = table(zoo.told.out, "usage_log_dirs")
    assert reclaim["marked"] == summed(usage, "delete") - overdue


def test_only_copies_are_never_free_to_go(zoo: Zoo) -> None:
    only = [row for row in table(zoo.told.out, "orphans") if row["only_copy"] == "true"]
    assert only
    assert {row["window"] for row in only} == {"approval"}
    risk = zoo.told.content["answers"]["risk"]
    assert risk["only_copies"] == {"dirs": len(only), "bytes": summed(only)}


def test_sums_of_log_dirs_hosts_clusters_and_topics_agree(zoo: Zoo) -> None:
    rows = waste(zoo.told.out)
    keys = {
        "usage_log_dirs": ("cluster_id", "node_id", "log_dir"),
        "usage_hosts": ("cluster_id", "node_id"),
        "usage_clusters": ("cluster_id",),
        "usage_topics": ("cluster_id", "topic", "topic_id"),
    }
    for name, key in keys.items():
        for window in WINDOWS:
            expected: dict[tuple[str, ...], int] = defaultdict(int)
            for row in rows:
                if row["window"] == window:
                    expected[tuple(row[k] for k in key)] += int(row["allocated"])
            found = {
                tuple(row[k] for k in key): int(row[f"reclaim_{window}"])
                for row in table(zoo.told.out, name)
                if int(row[f"reclaim_{window}"])
            }
            assert found == {k: v for k, v in expected.items() if v}, (name, window)


def test_where_the_bytes_are(zoo: Zoo) -> None:
    disks = zoo.told.content["answers"]["disks"]
    rows = table(zoo.told.out, "usage_log_dirs")
    once = [row for row in rows if not row["shares_with"]]
    assert (disks["size"], disks["used"], disks["free"]) == tuple(
        summed(once, name) for name in ("size", "used", "free")
    )
    shares = [float(row["used_share"]) for row in rows if row["used_share"]]
    assert disks["log_dirs"] == len(rows)
    assert disks["unread"] == len(rows) - len(shares)
    assert disks["nearly_full"] == sum(share >= 0.95 for share in shares)
    for at, count in enumerate(disks["fullness"]):
        assert count == sum(min(int(share * 20), 19) == at for share in shares)


def test_what_is_at_risk(zoo: Zoo) -> None:
    risk = zoo.told.content["answers"]["risk"]
    missing = table(zoo.told.out, "missing_replicas")
    key = "cluster_id", "topic", "topic_id", "partition"  # without topic ids the name alone tells two topics apart
    lost = {tuple(row[name] for name in key) for row in missing if row["copies_elsewhere"] == "0"}
    assert risk["no_copy"] == len(lost)
    assert risk["no_copy_replicas"] == sum(row["copies_elsewhere"] == "0" for row in missing)
    assert risk["missing_elsewhere"] == sum(row["copies_elsewhere"] != "0" for row in missing) > 0
    ahead = [
        float(row["days_to_full"])
        for row in table(zoo.told.out, "growth")
        if row["scope"] == "log_dir" and row["days_to_full"]
    ]
    assert (risk["full_soon"], risk["full_later"]) == (sum(d <= 7 for d in ahead), sum(d <= 30 for d in ahead))
    assert risk["next_full_days"] == (min(ahead) if ahead else None)
    findings = [row["finding"] for row in table(zoo.told.out, "log_dir_health")]
    assert [risk["offline"], risk["read_only"], risk["full"]] == [
        findings.count(name) for name in ("offline", "read-only", "full")
    ]
    assert sum(cause["hosts"] for cause in risk["unknown"]) == findings.count("unknown-host") > 0
    causes = {cause["cause"] for cause in risk["unknown"]}
    assert "broken file" in causes <= UNKNOWN_WORDS.keys()


def test_what_changed_is_of_the_log_dirs_of_both_dates(zoo: Zoo) -> None:
    changes = zoo.told.content["answers"]["changes"]
    before = DAY - timedelta(days=1)
    assert changes[0]["date"] == before.isoformat()
    then = {
        (r["cluster_id"], str(r["node_id"]), r["log_dir"]): r["used"] for r in zoo.told.small("log_dirs", day=before)
    }
    now = {
        (r["cluster_id"], r["node_id"], r["log_dir"]): int(r["used"])
        for r in table(zoo.told.out, "usage_log_dirs")
        if r["used"]
    }
    both = [key for key in now if then.get(key) is not None]
    assert changes[0]["log_dirs"] == len(both) > 0
    assert changes[0]["used"] == sum(now[key] - then[key] for key in both) != 0
    assert changes[0]["cleared"] > 0


@pytest.fixture(scope="module")
def figures(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Figures of the whole report, to the byte: each cluster adds to others of them, or nothing."""
    store = tmp_path_factory.mktemp("figures") / "store"
    store.mkdir()
    for plant in (_changed, _requestable, _shared):
        plant(store)
    return tell(spark, store, store.parent / "out")


def _changed(store: Path) -> None:
    kafka = Kafka(store, "change")
    kafka.topic("orders", [1, 2])
    ids = {name: topic_id("change", name) for name in ("gone", "stays", "set-aside", "back", "new", "stray", "marked")}

    def waste_row(name: str, kind: str, size: int) -> dict[str, Any]:
        text = f"{name}-0" if kind == "current" else f"{name}-0.{'0' * 31}1-{kind}"
        verdict = {"verdict": "orphan", "reason": "topic-absent"} if kind == "current" else {}
        return dir_row(text, ids[name], kind=kind, topic=name, partition=0, bytes=size, **verdict)

    then = [
        waste_row("gone", "current", 1), waste_row("stays", "current", 10), waste_row("set-aside", "current", 100),
        waste_row("back", "current", 1_000), waste_row("stray", "stray", 10_000),
        waste_row("marked", "delete", 100_000),
    ]  # fmt: skip
    now = [
        waste_row("stays", "current", 11), waste_row("set-aside", "stray", 100), waste_row("new", "current", 1_000_000),
        dir_row("back-0", ids["back"], bytes=1_000, verdict="assigned"),
    ]  # fmt: skip
    yesterday = AT - timedelta(days=1)
    for node, dirs in ((1, then), (2, []), (3, [waste_row("gone", "current", 7)])):
        kafka.snapshot(node, [*kafka.replicas_of(node), *dirs], at=yesterday)
    kafka.assignments(at=yesterday + timedelta(minutes=10), offset=6)
    kafka.assignments()
    # Node 3 is not heard of today: what it had yesterday is neither there nor cleared.
    for node, dirs in ((1, now), (2, [])):
        kafka.snapshot(node, [*kafka.replicas_of(node), *dirs])


def test_what_was_cleared_and_what_is_new(figures: Told) -> None:
    """To the directory and the byte: waste of yesterday that is none today, renamed or removed or assigned again."""
    (change,) = figures.content["answers"]["changes"]
    assert change["date"] == (AT - timedelta(days=1)).date().isoformat()
    assert (change["cleared"], change["cleared_bytes"]) == (4, 1 + 1_000 + 10_000 + 100_000)
    assert (change["orphans"], change["orphan_bytes"]) == (1, 1_000_000)


MARK = f".{'0' * 31}1-"


def _requestable(store: Path) -> None:
    kafka = Kafka(store, "ids")
    kafka.topic("orders", [1, 2])
    gone = topic_id("ids", "gone")
    stray: dict[str, Any] = {"kind": "stray", "marked_at": "2025-01-01T00:00:00.000Z"}
    rows = [
        dir_row("gone-0", gone, verdict="orphan", reason="topic-absent", inode=7, bytes=10_000),
        dir_row(f"gone-1{MARK}stray", gone, partition=1, inode=8, **stray | {"bytes": 20_000}),
        dir_row(f"gone-4{MARK}stray", gone, partition=4, **stray),  # its agent does not say its inode
        dir_row(f"_schemas-0{MARK}stray", topic_id("ids", "_schemas"), topic="_schemas", partition=0, inode=9, **stray),
        dir_row(f"ancient-0{MARK}stray", None, **stray),
        dir_row(f"a b-0{MARK}stray", topic_id("ids", "blank"), **stray),
        dir_row(f"gone-2{MARK}stray", gone, **stray | {"partition": None}),
        dir_row(f"gone-3{MARK}stray", gone, **stray, log_dir="/d\\udcff"),
        dir_row(f"marked-0{MARK}delete", gone, kind="delete", marked_at="2025-01-01T00:00:00.000Z"),
    ]
    kafka.snapshot(1, [*kafka.replicas_of(1), *rows])
    kafka.snapshot(2, kafka.replicas_of(2))
    kafka.assignments()


def test_what_cannot_be_requested_has_no_id_and_counts_for_no_command(figures: Told) -> None:
    cluster = Kafka(Path(), "ids").cluster_id
    found = {row["name"]: row["id"] for row in waste(figures.out) if row["cluster_id"] == cluster}
    able = {"gone-0", f"gone-1{MARK}stray", f"gone-4{MARK}stray", f"_schemas-0{MARK}stray"}
    assert len(found) == 9 and {name for name, id_ in found.items() if id_} == able
    reclaim = figures.content["answers"]["reclaim"]
    assert sum(reclaim[window]["requestable"] for window in WINDOWS) == 2
    assert sum(reclaim[window]["asked_bytes"] for window in WINDOWS) == 30_000
    assert (reclaim["now"]["requestable"], reclaim["now"]["asked_bytes"]) == (1, 20_000)
    steps = [step for step in figures.content["answers"]["steps"] if step["what"] == "topic"]
    (mine,) = [step for step in steps if (step["cluster_id"], step["topic"]) == (cluster, "gone")]
    assert (mine["window"], mine["requestable"], mine["bytes"], mine["hosts"]) == ("now", 1, 20_000, 1)
    others = [step for step in steps if step is not mine]
    assert others
    assert [step for step in others if step["requestable"]] == []


def _shared(store: Path) -> None:
    kafka = Kafka(store, "shared")
    kafka.topic("orders", [1])
    both = [log_dir_row(path, device=5) for path in ("/d0", "/d1")]
    kafka.snapshot(1, kafka.replicas_of(1), log_dirs=[*both, log_dir_row("/d2", device=6)])
    kafka.assignments(brokers=(1,))


def test_two_log_dirs_on_one_file_system_are_one_disk(figures: Told) -> None:
    """In the answers, and in the sums of hosts and clusters: only one of the rows of log dirs has no `shares_with`."""
    cluster = Kafka(Path(), "shared").cluster_id
    disks = figures.content["answers"]["disks"]
    # The hosts of the other two clusters have a disk each; one has a directory in a log dir without a row.
    others = 3 + 2
    assert (disks["size"], disks["used"], disks["free"], disks["log_dirs"]) == (
        (2 + others) * 100 * GIB, (2 + others) * 10 * GIB, (2 + others) * 90 * GIB, 3 + others + 1,
    )  # fmt: skip
    for name in ("usage_hosts", "usage_clusters"):
        (row,) = [row for row in figures.rows(name) if row["cluster_id"] == cluster]
        assert (row["size"], row["used"], row["free"]) == (200 * GIB, 20 * GIB, 180 * GIB), name
    rows = figures.rows("usage_log_dirs")
    shares = {row["log_dir"]: row["shares_with"] for row in rows if row["cluster_id"] == cluster}
    assert shares == {"/d0": None, "/d1": "/d0", "/d2": None}


def test_what_to_do_next_names_the_largest(zoo: Zoo) -> None:
    steps = zoo.told.content["answers"]["steps"]
    topics: dict[tuple[str, str], int] = defaultdict(int)
    for row in waste(zoo.told.out):
        if row["window"] in ("now", "restart") and row["topic"]:
            topics[row["cluster_id"], row["topic"]] += int(row["allocated"])
    named = [(step["cluster_id"], step["topic"]) for step in steps if step["what"] == "topic"]
    assert not named or topics[named[0]] == max(topics.values())
    whats = [step["what"] for step in steps]
    assert whats == sorted(whats, key=("log-dir", "offline", "read-only", "no-copy", "host", "topic").index)
    assert ("offline" in whats) == bool(zoo.told.content["answers"]["risk"]["offline"])
