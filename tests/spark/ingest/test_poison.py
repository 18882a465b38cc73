"""What one host can send, by mistake or on purpose, does not keep the others from being reported.

Every poison lands in `quarantined_input` with its file, host and reason, and the host is unknown with that reason.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from logagent.base.units import FIRST_MS, LAST_MS
from logagent.fleet.ingest import check as unpack
from logagent.fleet.ingest.check import MOST_NODES, check
from logagent.fleet.ingest.dates import ingest_dates, trim_landing
from logagent.fleet.ingest.ingest import MAX_TRIES
from logagent.fleet.ingest.landing import Landing
from logagent.fleet.tables.files import Files
from logagent.fleet.tables.store import Store
from logagent.store.landing_files import manifest_of
from tests.needs import need_command, need_root
from tests.spark.conftest import Told, Zoo
from tests.spark.hand_made import AT, Kafka, dir_row, log_dir_row
from tests.spark.planting import planted

DAY = AT.date()
Poison = Callable[[Kafka], None]
POISONS: dict[str, tuple[Poison, str]] = {}


def poison(reason: str) -> Callable[[Poison], Poison]:
    def add(make: Poison) -> Poison:
        POISONS[make.__name__] = (make, reason)
        return make

    return add


def _replaced(data: Path, packed: bytes, rows: int) -> None:
    """Other content, for which the manifest vouches in every way."""
    data.write_bytes(packed)
    said = json.loads(manifest_of(data).read_text())
    said |= {"rows": rows, "bytes": len(packed), "sha256": hashlib.sha256(packed).hexdigest()}
    manifest_of(data).write_text(json.dumps(said))


def _without_times(kafka: Kafka) -> list[dict[str, Any]]:
    """Replicas of node 2: in the second version of snapshots times are numbers."""
    return [row | {"newest_mtime": None} for row in kafka.replicas_of(2)]


@poison("too-large")
def a_bomb(kafka: Kafka) -> None:
    """200 MB from 0.2 MB: stopped at what a file of its size may unpack to."""
    data = kafka.snapshot(2, kafka.replicas_of(2))
    line = b'{"row":"dir"}' + b" " * 1000 + b"\n"
    _replaced(data, gzip.compress(line * 200_000, 9), 200_000)


@poison("line-too-long")
def a_line_without_end(kafka: Kafka) -> None:
    data = kafka.snapshot(2, kafka.replicas_of(2))
    _replaced(data, gzip.compress(b'{"row":"dir","name":"' + b"x" * (30 << 20) + b'"}\n', 9), 1)


@poison("bad-rows")
def a_size_of_all_bytes_there_are(kafka: Kafka) -> None:
    kafka.snapshot(2, [dir_row("orders-0", kafka.topics["orders"][0], bytes=2**63 - 1)])


@poison("bad-rows")
def a_negative_size(kafka: Kafka) -> None:
    kafka.snapshot(2, [dir_row("orders-0", kafka.topics["orders"][0], allocated=-1)])


@poison("bad-rows")
def a_directory_that_does_not_say_what_is_allocated(kafka: Kafka) -> None:
    """Its file sizes are another figure: a preallocated index has 10 MiB of them."""
    kafka.snapshot(2, [*kafka.replicas_of(2), dir_row("gone-0", "G" * 22, allocated=None)])


@poison("bad-rows")
def a_ledger_of_all_bytes_there_are(kafka: Kafka) -> None:
    ledger = {"size": 2**63 - 1, "used": 2**63 - 1}
    kafka.snapshot(2, kafka.replicas_of(2), log_dirs=[log_dir_row(ledger=ledger)])


@poison("bad-rows")
def a_time_beyond_every_calendar(kafka: Kafka) -> None:
    kafka.snapshot(2, [dir_row("orders-0", kafka.topics["orders"][0], newest_mtime=2**63 - 1)])


@poison("bad-rows")
def a_mark_of_the_year_10000(kafka: Kafka) -> None:
    stray = dir_row("gone-0", None, kind="stray", newest_mtime=None, marked_at=LAST_MS + 1)
    kafka.snapshot(2, [*_without_times(kafka), stray])


@poison("old-schema")
def a_snapshot_of_before_the_first_release(kafka: Kafka) -> None:
    """It would say of no replica that it is missing."""
    kafka.snapshot(2, kafka.replicas_of(2), schema="logagent.snapshot/2")


@poison("too-many-bytes")
def directories_whose_sum_is_no_number(kafka: Kafka) -> None:
    """Each of them is of the largest size that passes."""
    kafka.snapshot(2, [dir_row(f"big-{n}", None, bytes=2**53, allocated=2**53) for n in range(1100)])


@poison("too-many-log-dirs")
def directories_in_made_up_log_dirs(kafka: Kafka) -> None:
    """So many that all of them are not collected, however many hosts there are."""
    kafka.snapshot(2, [dir_row("gone-0", None, log_dir=f"/made/up/{n}") for n in range(30_000)])


@poison("too-many-log-dirs")
def directories_in_more_log_dirs_than_a_host_has(kafka: Kafka) -> None:
    kafka.snapshot(2, [dir_row("gone-0", None, log_dir=f"/made/up/{n}") for n in range(1_001)])


@poison("too-many-log-dirs")
def a_list_of_more_log_dirs_than_a_host_has(kafka: Kafka) -> None:
    kafka.snapshot(2, [], log_dirs=[log_dir_row(f"/made/up/{n}") for n in range(1_001)])


@poison("bad-rows")
def a_file_system_that_is_too_large(kafka: Kafka) -> None:
    kafka.snapshot(2, [], log_dirs=[log_dir_row(ledger={"size": 2**53 + 1})])


@poison("bad-rows")
def names_of_half_a_megabyte(kafka: Kafka) -> None:
    """A few thousand rows of them are more than an executor has."""
    kafka.snapshot(2, [dir_row(f"gone-{n}", "g" * 22, log_dir="/d" + str(n) * 500_000) for n in range(3)])


@poison("bad-rows")
def names_no_file_system_has(kafka: Kafka) -> None:
    kafka.snapshot(2, [dir_row("gone-0", None) | {"name": "x" * 1531}])


@poison("too-many-bytes")
def more_bytes_than_a_host_has(kafka: Kafka) -> None:
    rows = [dir_row(f"big-{n}", None, log_dir=f"/d{n}", allocated=2**53) for n in range(2)]
    kafka.snapshot(2, rows, log_dirs=[log_dir_row("/d0"), log_dir_row("/d1")])


@poison("too-many-bytes")
def ledgers_whose_sum_is_too_much(kafka: Kafka) -> None:
    kafka.snapshot(2, [], log_dirs=[log_dir_row(f"/d{n}", ledger={"unexplained": -(2**53)}) for n in range(2)])


@poison("bad-rows")
def many_files_that_are_broken_inside(kafka: Kafka) -> None:
    """Each costs a rewrite of everything: after some of them the host is given up, and nobody else."""
    for n in range(25):
        kafka.snapshot(2, [{"row": "dir", "kind": "current"}], at=AT + timedelta(seconds=n))


@poison("directory-twice")
def a_directory_twice(kafka: Kafka) -> None:
    kafka.snapshot(2, [*kafka.replicas_of(2), *kafka.replicas_of(2)])


@poison("directory-twice")
def a_stray_twice(kafka: Kafka) -> None:
    stray = dir_row(f"gone-0.{'0' * 32}-stray", None, kind="stray", topic="gone", partition=0)
    kafka.snapshot(2, [*kafka.replicas_of(2), stray, stray])


@poison("log-dir-twice")
def a_log_dir_twice(kafka: Kafka) -> None:
    kafka.snapshot(2, kafka.replicas_of(2), log_dirs=[log_dir_row(), log_dir_row()])


@poison("bad-manifest")
def a_manifest_of_numbers_that_are_none(kafka: Kafka) -> None:
    data = kafka.snapshot(2, kafka.replicas_of(2))
    said = json.loads(manifest_of(data).read_text())
    manifest_of(data).write_text(json.dumps(said | {"rows": True, "at": 10**30}))


@poison("wrong-host")
def a_file_that_speaks_for_another_node(kafka: Kafka) -> None:
    kafka.snapshot(2, kafka.replicas_of(2), node_id=3)


@poison("unreadable")
def not_gzip_at_all(kafka: Kafka) -> None:
    _replaced(kafka.snapshot(2, kafka.replicas_of(2)), b"\x1f\x8b" + b"nothing of the kind", 5)


@poison("bad-rows")
def deep_json(kafka: Kafka) -> None:
    data = kafka.snapshot(2, kafka.replicas_of(2))
    _replaced(data, gzip.compress(b"[" * 200_000 + b"\n"), 1)


def two_machines(kafka: Kafka) -> None:
    """Both whole, both of today: whose replicas are missing cannot be said."""
    kafka.snapshot(2, kafka.replicas_of(2))
    kafka.name += "-clone"
    kafka.snapshot(2, [], at=AT + timedelta(minutes=3), cluster_id=_CLONED[kafka.name])


_CLONED: dict[str, str] = {}


def times_of_the_first_and_last_year(kafka: Kafka) -> None:
    """What an agent prints for files with absurd times. They are rows like any other."""
    times = {"newest_mtime": FIRST_MS, "first_seen": -1, "marked_at": LAST_MS, "due_at": 10**18}
    rows = [dir_row("gone-0", None, kind="stray", uuid="x", window="later", **times)]
    rows += [dir_row("left-0", None, kind="stray", uuid="y", newest_mtime=None, marked_at=LAST_MS)]
    kafka.snapshot(2, [*_without_times(kafka), *rows])


def a_directory_in_no_log_dir(kafka: Kafka) -> None:
    """Its log dir has no row of its own, so no ledger and no health."""
    kafka.snapshot(2, [*kafka.replicas_of(2), dir_row("gone-0", None, log_dir="/nowhere")])


def a_log_dir_whose_path_is_not_utf8(kafka: Kafka) -> None:
    rows = [dir_row("gone-0", "G" * 22, log_dir="/d\udcff", allocated=12_288)]
    kafka.snapshot(2, [*kafka.replicas_of(2), *rows], log_dirs=[log_dir_row(), log_dir_row("/d\udcff")])


def a_thousand_log_dirs_on_one_large_file_system(kafka: Kafka) -> None:
    """Each says all of it: as many and as large as there may be."""
    disk = {"size": 2**53, "used": 2**53 - 1, "free": 1}
    kafka.snapshot(2, kafka.replicas_of(2), log_dirs=[log_dir_row(f"/d{n}", ledger=disk) for n in range(1_000)])


HARMLESS: dict[str, Poison] = {
    each.__name__: each
    for each in (
        a_thousand_log_dirs_on_one_large_file_system,
        times_of_the_first_and_last_year,
        a_directory_in_no_log_dir,
        a_log_dir_whose_path_is_not_utf8,
    )
}


def names_that_are_not_ours(kafka: Kafka) -> None:
    """Beside a healthy host; one folder of it has a name of Hadoop's."""
    landing = kafka.store / "landing"
    kafka.snapshot(2, kafka.replicas_of(2))
    for name in ("prod:eu", "2026-W01-1", "[a]*", "..x"):
        (landing / name / str(DAY) / "1").mkdir(parents=True, exist_ok=True)
        (landing / name / str(DAY) / "1" / "x.jsonl.gz").write_bytes(b"x")
        (landing / kafka.cluster_id / name).mkdir(exist_ok=True)
        (landing / kafka.cluster_id / str(DAY) / name).mkdir(exist_ok=True)
    place = landing / kafka.cluster_id / str(DAY) / "2"
    (place / "snap:shot.jsonl.gz").write_bytes(b"x")
    os.mkfifo(place / "fifo.jsonl.gz")
    (place / "link.jsonl.gz").symlink_to("/etc/passwd")


@planted
def poison_of_everybody(store: Path) -> dict[str, Kafka]:
    """A cluster of three per poison, node 2 poisoned."""
    made = {}
    everything: dict[str, Poison] = {name: make for name, (make, _) in POISONS.items()}
    everything |= {"two_machines": two_machines, "names_that_are_not_ours": names_that_are_not_ours}
    everything |= HARMLESS
    for name, make in everything.items():
        kafka = made[name] = Kafka(store, name)
        kafka.topic("orders", [1, 2, 3])
        kafka.assignments()
        kafka.everyone(nodes=(1, 3))
        cluster_id = kafka.cluster_id
        _CLONED[f"{name}-clone"] = cluster_id
        make(kafka)
        kafka.name = name
    # An assignment file of tomorrow that says that nothing exists, beside an honest one of now.
    future = made["assignments_of_tomorrow"] = Kafka(store, "assignments_of_tomorrow")
    future.topic("orders", [1, 2, 3])
    future.assignments()
    future.everyone(nodes=(1, 2, 3))
    ahead = AT + timedelta(hours=11)
    row = {"row": "partition", "topic": "other", "topic_id": None, "partition": 0, "replicas": [1, 2, 3]}
    future.assignments([row], at=ahead, offset=8)
    for name, (bad, _) in ASSIGNMENTS.items():
        made[name] = kafka = Kafka(store, name)
        kafka.topic("orders", [1, 2, 3])
        kafka.assignments()
        kafka.everyone(nodes=(1, 2, 3))
        for n in range(MAX_TRIES + 2):
            kafka.assignments(
                [*kafka.partition_rows(), *bad], at=AT + timedelta(minutes=11 + n), offset=8 + n, publisher=9
            )
    return made


@pytest.fixture(scope="module")
def poisoned(zoo: Zoo) -> tuple[Told, dict[str, Kafka], Path]:
    return zoo.told, zoo.planted["poison_of_everybody"], zoo.path


_REMOVAL = {"row": "uncommitted", "topic_id": "A" * 22, "partition": None}
_MANY: dict[str, Any] = {"row": "partition", "topic": "many", "topic_id": None, "adding": [], "removing": [], "isr": []}
ASSIGNMENTS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "removal_of_an_object": ([_REMOVAL | {"partition": {}}], "bad-rows"),
    "removal_of_a_large_number": ([_REMOVAL | {"partition": 2**70}], "bad-rows"),
    "removal_of_a_surrogate": ([_REMOVAL | {"topic_id": "\ud800x"}], "bad-rows"),
    "partition_of_no_number": ([_MANY | {"partition": -1, "replicas": [1]}], "bad-rows"),
    "more_nodes_than_a_cluster_has": (
        [_MANY | {"partition": n, "replicas": list(range(n * 1_000, (n + 1) * 1_000))} for n in range(21)],
        "too-many-nodes",
    ),
    "more_brokers_than_a_cluster_has": (
        [{"row": "broker", "node_id": n} for n in range(MOST_NODES + 1)],
        "too-many-nodes",
    ),
}


def _why(told: Told, kafka: Kafka, node: int) -> str | None:
    hosts = told.content["hosts"]["unknown"]
    found = [h["why"] for h in hosts if (h["cluster_id"], h["node_id"]) == (kafka.cluster_id, node)]
    return found[0] if found else None


@pytest.mark.parametrize("name", sorted(POISONS))
def test_a_poisoned_host_is_unknown_and_nobody_else(poisoned: tuple[Told, dict[str, Kafka], Path], name: str) -> None:
    told, made, _ = poisoned
    kafka, reason = made[name], POISONS[name][1]
    why = _why(told, kafka, 2)
    assert why is not None
    assert reason in why
    assert _why(told, kafka, 1) is None
    assert _why(told, kafka, 3) is None
    listed = [r for r in told.rows("quarantined_input") if r["cluster_id"] == kafka.cluster_id]
    assert reason in {r["reason"] for r in listed}
    assert {r["node_id"] for r in listed} == {2}
    assert [r for r in listed if not r["file"].startswith(f"{kafka.cluster_id}/{DAY}/2/")] == []
    for table in ("orphans", "missing_replicas", "duplicates"):
        assert [r for r in told.rows(table) if r["cluster_id"] == kafka.cluster_id] == [], table


def test_of_many_broken_files_few_are_tried(poisoned: tuple[Told, dict[str, Kafka], Path]) -> None:
    told, made, _ = poisoned
    cluster = made["many_files_that_are_broken_inside"].cluster_id
    entries = [e for e in told.small("files") if (e["cluster_id"], e["node_id"]) == (cluster, 2)]
    assert Counter(e["reason"] for e in entries) == {"bad-rows": MAX_TRIES, "not-tried": 25 - MAX_TRIES}


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_what_is_odd_and_no_error_is_taken(poisoned: tuple[Told, dict[str, Kafka], Path], name: str) -> None:
    told, made, _ = poisoned
    assert [_why(told, made[name], node) for node in (1, 2, 3)] == [None, None, None]
    assert made[name].cluster_id not in {r["cluster_id"] for r in told.rows("quarantined_input")}


def test_a_path_that_is_not_utf8_is_one_log_dir(poisoned: tuple[Told, dict[str, Kafka], Path]) -> None:
    """With its ledger, its directories and what can be reclaimed of them."""
    told, made, _ = poisoned
    kafka = made["a_log_dir_whose_path_is_not_utf8"]
    rows = [r for r in told.rows("usage_log_dirs") if (r["cluster_id"], r["node_id"]) == (kafka.cluster_id, 2)]
    assert sorted(r["log_dir"] for r in rows) == ["/d0", "/d\\udcff"]
    (odd,) = (r for r in rows if r["log_dir"] != "/d0")
    assert (odd["dirs"], odd["allocated"], odd["orphans"]) == (1, 12_288, 1) and odd["size"] is not None
    assert odd["health"] == "online"


def test_a_log_dir_without_a_row_has_no_ledger(poisoned: tuple[Told, dict[str, Kafka], Path]) -> None:
    told, made, _ = poisoned
    kafka = made["a_directory_in_no_log_dir"]
    (row,) = [
        r for r in told.rows("usage_log_dirs") if (r["cluster_id"], r["log_dir"]) == (kafka.cluster_id, "/nowhere")
    ]
    assert (row["bytes"], row["used"], row["health"]) == (1000, None, None)


@pytest.mark.parametrize("name", sorted(ASSIGNMENTS))
def test_assignments_that_are_broken_do_not_replace_good_ones(
    poisoned: tuple[Told, dict[str, Kafka], Path], name: str
) -> None:
    """However many one publisher sends: those of the next one count."""
    told, made, _ = poisoned
    cluster, reason = made[name].cluster_id, ASSIGNMENTS[name][1]
    entry = next(c for c in told.content["clusters"] if c["cluster_id"] == cluster)
    assert entry["verdicts"] == "decided"
    assert entry["assignments"]["at"].startswith("2025-03-10T12:10")
    reasons = {r["reason"] for r in told.rows("quarantined_input") if r["cluster_id"] == cluster}
    assert reason in reasons
    assert reasons <= {reason, "bad-row", "not-tried"}
    assert entry["hosts"] == 3
    assert entry["unknown_hosts"] == 0


def test_two_machines_that_claim_one_node(poisoned: tuple[Told, dict[str, Kafka], Path]) -> None:
    told, made, _ = poisoned
    why = _why(told, made["two_machines"], 2)
    assert why is not None
    assert "2 hosts claim this node id: two_machines-2, two_machines-clone-2" in why
    missing = {r["cluster_id"] for r in told.rows("missing_replicas")}
    assert made["two_machines"].cluster_id not in missing


def test_names_that_are_not_ours_are_said(poisoned: tuple[Told, dict[str, Kafka], Path]) -> None:
    told, made, _ = poisoned
    kafka = made["names_that_are_not_ours"]
    assert _why(told, kafka, 2) is None, "its own snapshot is whole"
    listed = {r["file"] for r in told.rows("quarantined_input") if r["reason"] == "not-ours"}
    for name in ("prod:eu", "2026-W01-1", "[a]*", "..x"):
        assert {f"{kafka.cluster_id}/{name}", f"{kafka.cluster_id}/{DAY}/{name}"} <= listed
    place = f"{kafka.cluster_id}/{DAY}/2"
    assert {f"{place}/snap:shot.jsonl.gz", f"{place}/fifo.jsonl.gz", f"{place}/link.jsonl.gz"} <= listed


def test_assignments_of_tomorrow_decide_nothing(poisoned: tuple[Told, dict[str, Kafka], Path]) -> None:
    told, made, _ = poisoned
    kafka = made["assignments_of_tomorrow"]
    entry = next(c for c in told.content["clusters"] if c["cluster_id"] == kafka.cluster_id)
    assert entry["verdicts"] == "decided"
    assert entry["assignments"]["at"].startswith("2025-03-10T12:10")
    reasons = {r["reason"] for r in told.rows("quarantined_input") if r["cluster_id"] == kafka.cluster_id}
    assert reasons == {"from-the-future"}


def test_late_files_and_what_is_not_ours_survive_a_trim(spark: SparkSession, tmp_path: Path) -> None:
    """Only listed files go; a symlink in landing leads nowhere; what comes late is said and not taken."""
    store = tmp_path / "store"
    store.mkdir()
    kafka = Kafka(store, "trimmed")
    kafka.topic("orders", [1, 2, 3])
    kafka.assignments()
    kafka.everyone()
    precious = tmp_path / "precious"
    (precious / str(DAY)).mkdir(parents=True)
    (precious / str(DAY) / "1.jsonl.gz").write_text("precious")
    (store / "landing" / "link").symlink_to(precious)
    (store / "landing" / kafka.cluster_id / "2025-03-08").symlink_to(precious)
    opened = Store.open(spark, str(store))
    assert [one.taken for one in ingest_dates(opened, None)] == [4]
    stranger = store / "landing" / kafka.cluster_id / str(DAY) / "1" / "notes.txt"
    stranger.write_text("somebody's")
    assert trim_landing(opened, DAY + timedelta(days=1)) == [DAY]
    assert (precious / str(DAY) / "1.jsonl.gz").read_text() == "precious"
    assert stranger.read_text() == "somebody's"
    assert not list((store / "landing" / kafka.cluster_id / str(DAY)).rglob("*.gz"))
    kafka.snapshot(2, [], at=AT + timedelta(minutes=5))
    assert ingest_dates(opened, None) == []
    commit = opened.commit_of(DAY)
    assert commit is not None
    assert [(row["node_id"], row["reason"]) for row in commit.late] == [(2, "late")]


def test_what_cannot_be_removed_holds_up_no_trim(spark: SparkSession, tmp_path: Path) -> None:
    """A file and a folder that are mount points stand for those that a host has made so that nobody else may remove
    them."""
    need_root()
    need_command("mount")
    store = tmp_path / "store"
    store.mkdir()
    kafka = Kafka(store, "held")
    kafka.topic("orders", [1, 2, 3])
    kafka.assignments()
    kafka.everyone()
    opened = Store.open(spark, str(store))
    assert [one.taken for one in ingest_dates(opened, None)] == [4]
    date_dir = store / "landing" / kafka.cluster_id / str(DAY)
    held, folder = next((date_dir / "1").glob("*.gz")), date_dir / "0"
    folder.mkdir()
    said: list[str] = []
    with _bound(held), _bound(folder):
        assert trim_landing(opened, DAY + timedelta(days=1), warn=said.append) == [DAY]
        assert list(date_dir.rglob("*.gz")) == [held]
        assert any("1 of 4 files could not be removed from landing" in line and held.name in line for line in said), (
            said
        )
        assert trim_landing(opened, DAY + timedelta(days=1)) == [], "and so it is every day"
        assert ingest_dates(opened, None) == []
    assert trim_landing(opened, DAY + timedelta(days=1)) == []
    assert not date_dir.exists(), "gone as soon as it can go"
    commit = opened.commit_of(DAY)
    assert commit is not None and commit.trimmed and not commit.late


@contextmanager
def _bound(path: Path) -> Iterator[None]:
    """A mount point of its own: not even root may remove it."""
    subprocess.run(["mount", "--bind", str(path), str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    """As a user who is not root: that host is unknown, the others are taken."""
    need_root()
    kafka = Kafka(tmp_path, "closed")
    kafka.topic("orders", [1, 2, 3])
    kafka.assignments()
    kafka.everyone()
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    (tmp_path / "landing" / kafka.cluster_id / str(DAY) / "2").chmod(0o700)
    store: Any = SimpleNamespace(uri=f"file:{tmp_path}", landing=f"file:{tmp_path}/landing", files=Files)
    run: Any = SimpleNamespace(uri="file:/not-written")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(4001)
            os.setuid(4001)
            with Landing(store.uri, store.files) as landing:
                checked = check(run, landing, landing.listed(), DAY, None)
            rows = [(e["node_id"], e["status"], e["reason"], e["detail"]) for e in checked.entries]
            os.write(writer, json.dumps(sorted(rows, key=str)).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert json.loads(os.read(reader, 1 << 16)) == [
        [1, "taken", None, None],
        [2, "rejected", "unreadable", "the folder cannot be read: Permission denied"],
        [3, "taken", None, None],
        [None, "taken", None, None],
    ]


def test_limits() -> None:
    assert unpack.limit_of(11 << 20) == (11 << 20) * 100 < 2_500_000_000
    assert unpack.limit_of(256 << 20) == unpack.LARGEST_UNPACKED
