"""Everything that may go wrong, each as a cluster of its own in one landing: one job run judges them all."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from logagent.fleet.demo import topic_id
from logagent.store.landing_files import manifest_of
from tests.fleets.corruptions import CORRUPTIONS, corrupt
from tests.spark.hand_made import AT, Kafka, dir_row, log_dir_row


@dataclass
class Expected:
    """What the report must say about a cluster.

    Keys are `node|name`; `unknown` are node ids; `rejected` reasons of files.
    """

    cluster_id: str
    orphans: dict[str, str] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    duplicates: set[str] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    rejected: set[str] = field(default_factory=set)
    decided: bool = True


Scenario = Callable[[Kafka], Expected]
SCENARIOS: dict[str, Scenario] = {}


def scenario(make: Scenario) -> Scenario:
    SCENARIOS[make.__name__] = make
    return make


GONE = topic_id("a topic that was deleted")


def _gone(**fields: Any) -> dict[str, Any]:
    return dir_row("gone-0", GONE, **fields)


def _plain(kafka: Kafka) -> None:
    kafka.topic("orders", [1, 2, 3], [2, 3, 1], [3, 1, 2])


def _rewritten(data: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Replaces the rows of a file; its manifest agrees with the new content in every way."""
    rows = [json.loads(line) for line in gzip.decompress(data.read_bytes()).splitlines()]
    rows = change(rows)
    packed = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), mtime=0)
    data.write_bytes(packed)
    manifest = json.loads(manifest_of(data).read_text())
    manifest |= {"rows": len(rows), "bytes": len(packed), "sha256": hashlib.sha256(packed).hexdigest()}
    manifest_of(data).write_text(json.dumps(manifest))


# Files that are not what their manifests say. Believed, each of them would make orphans or missing replicas.

REASONS = {
    "truncated": "bytes-differ",
    "flipped": "sha256-differs",
    "empty": "no-data-file",
    "half-manifest": "bad-manifest",
    "no-manifest": "no-manifest",
    "bad-row": "bad-rows",
    "lost-row": "rows-differ",
}


def _corrupted(kind: str) -> Scenario:
    def make(kafka: Kafka) -> Expected:
        _plain(kafka)
        kafka.assignments()
        for node in (1, 2, 3):
            data = kafka.snapshot(node, [*kafka.replicas_of(node), _gone()])
            if node == 2:
                corrupt(data, kind)
        orphans = {"1|gone-0": "topic-absent", "3|gone-0": "topic-absent"}
        return Expected(kafka.cluster_id, orphans, unknown={2}, rejected={REASONS[kind]})

    return make


for _kind in CORRUPTIONS:
    SCENARIOS[f"corrupted_{_kind.replace('-', '_')}"] = _corrupted(_kind)


@scenario
def swapped_manifests(kafka: Kafka) -> Expected:
    _plain(kafka)
    kafka.assignments()
    files = [kafka.snapshot(node, [*kafka.replicas_of(node), _gone(bytes=node)]) for node in (1, 2, 3)]
    first, second = (manifest_of(data) for data in files[:2])
    text = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(text)
    same_size = files[0].stat().st_size == files[1].stat().st_size
    reason = "sha256-differs" if same_size else "bytes-differ"
    return Expected(kafka.cluster_id, {"3|gone-0": "topic-absent"}, unknown={1, 2}, rejected={reason})


@scenario
def whole_file_of_another_cluster(kafka: Kafka) -> Expected:
    """Copied with its manifest into the wrong cluster's directory: all its topics are foreign there."""
    _plain(kafka)
    kafka.assignments()
    for node in (1, 3):
        kafka.snapshot(node, kafka.replicas_of(node))
    other = Kafka(kafka.store / "elsewhere", "another cluster")
    other.topic("foreign", [2])
    data = other.snapshot(2, other.replicas_of(2))
    place = kafka.store / "landing" / kafka.cluster_id / f"{AT:%Y-%m-%d}" / "2"
    shutil.copytree(data.parent, place)
    shutil.rmtree(other.store)
    return Expected(kafka.cluster_id, unknown={2}, rejected={"wrong-cluster"})


@scenario
def header_of_another_cluster(kafka: Kafka) -> Expected:
    """The manifest names the right cluster, the rows are another's."""
    _plain(kafka)
    kafka.assignments()
    kafka.everyone(nodes=(1, 3))
    data = kafka.snapshot(2, [_gone()])
    _rewritten(data, lambda rows: [rows[0] | {"cluster_id": topic_id("elsewhere")}, *rows[1:]])
    return Expected(kafka.cluster_id, unknown={2}, rejected={"wrong-cluster"})


@scenario
def delivered_for_another_node(kafka: Kafka) -> Expected:
    """Node 1's files lie in node 2's directory as well; what node 2 has is not known."""
    _plain(kafka)
    kafka.assignments()
    kafka.everyone(nodes=(1, 3))
    source = kafka.store / "landing" / kafka.cluster_id / f"{AT:%Y-%m-%d}" / "1"
    shutil.copytree(source, source.with_name("2"))
    return Expected(kafka.cluster_id, unknown={2}, rejected={"wrong-host"})


@scenario
def two_headers(kafka: Kafka) -> Expected:
    _plain(kafka)
    kafka.assignments()
    kafka.everyone(nodes=(1, 3))
    _rewritten(kafka.snapshot(2, [_gone()]), lambda rows: [rows[0], *rows])
    return Expected(kafka.cluster_id, unknown={2}, rejected={"header-differs"})


@scenario
def newer_schema(kafka: Kafka) -> Expected:
    """Unknown columns and kinds of row are ignored."""
    _plain(kafka)
    kafka.assignments(schema="logagent.assignments/2", colour="blue")
    kafka.everyone(nodes=(1, 3))
    data = kafka.snapshot(2, [*kafka.replicas_of(2), _gone(tiered={"bytes": 7})], schema="logagent.snapshot/9")
    _rewritten(data, lambda rows: [*rows, {"row": "disk", "serial": "x"}])
    return Expected(kafka.cluster_id, {"2|gone-0": "topic-absent"})


@scenario
def newer_schema_without_what_we_need(kafka: Kafka) -> Expected:
    _plain(kafka)
    kafka.assignments()
    kafka.everyone(nodes=(1, 3))
    rows = [{k: v for k, v in row.items() if k != "bytes"} for row in (*kafka.replicas_of(2), _gone())]
    kafka.snapshot(2, rows, schema="logagent.snapshot/9")
    return Expected(kafka.cluster_id, unknown={2}, rejected={"bad-rows"})


@scenario
def wrong_types(kafka: Kafka) -> Expected:
    """A number that is a word must not become null in silence."""
    _plain(kafka)
    kafka.assignments()
    kafka.everyone(nodes=(1, 3))
    kafka.snapshot(2, [*kafka.replicas_of(2), _gone(partition="zero")])
    return Expected(kafka.cluster_id, unknown={2}, rejected={"bad-rows"})


@scenario
def older_snapshots_do_not_count(kafka: Kafka) -> Expected:
    """The directory was there in the morning and is gone by noon."""
    _plain(kafka)
    kafka.assignments()
    kafka.snapshot(1, [*kafka.replicas_of(1), _gone()], at=AT - timedelta(hours=4))
    kafka.everyone()
    return Expected(kafka.cluster_id)


@scenario
def broken_inside_falls_back(kafka: Kafka) -> Expected:
    """Node 2's two newest snapshots are broken, inside and outside; the third one counts."""
    _plain(kafka)
    kafka.assignments()
    kafka.everyone(nodes=(1, 3))
    kafka.snapshot(2, [*kafka.replicas_of(2), _gone()], at=AT - timedelta(hours=3))
    corrupt(kafka.snapshot(2, [_gone()], at=AT - timedelta(hours=2)), "lost-row")
    corrupt(kafka.snapshot(2, [_gone()], at=AT - timedelta(hours=1)), "bad-row")
    corrupt(kafka.snapshot(2, [_gone()]), "truncated")
    reasons = {"rows-differ", "bad-rows", "bytes-differ"}
    return Expected(kafka.cluster_id, {"2|gone-0": "topic-absent"}, rejected=reasons)


@scenario
def clock_ahead(kafka: Kafka) -> Expected:
    """A snapshot stamped two hours ahead does not outrank the one that arrived after it."""
    _plain(kafka)
    kafka.assignments()
    kafka.everyone(nodes=(1, 3))
    early = AT - timedelta(hours=1)
    kafka.snapshot(2, [*kafka.replicas_of(2), _gone()], at=AT + timedelta(hours=2), received_at=early)
    kafka.snapshot(2, kafka.replicas_of(2))
    return Expected(kafka.cluster_id)


@scenario
def clock_behind(kafka: Kafka) -> Expected:
    """Node 2's clock is an hour slow: its new topic only looks older than the assignments."""
    _plain(kafka)
    kafka.assignments()
    kafka.everyone(nodes=(1, 3))
    slow = AT - timedelta(minutes=40)
    young = dir_row("young-0", topic_id("young"), newest_mtime=f"{slow:%Y-%m-%dT%H:%M:%S}.000Z")
    kafka.snapshot(2, [*kafka.replicas_of(2), young], at=slow, received_at=AT + timedelta(minutes=15))
    return Expected(kafka.cluster_id)


@scenario
def too_young_for_the_assignments(kafka: Kafka) -> Expected:
    """Written after the assignments were read; the same kind of directory that was seen before them is an orphan."""
    _plain(kafka)
    kafka.assignments(at=AT - timedelta(minutes=30))
    minute = f"{AT - timedelta(minutes=1):%Y-%m-%dT%H:%M:%S}.000Z"
    seen = f"{AT - timedelta(days=2):%Y-%m-%dT%H:%M:%S}.000Z"
    young = dir_row("young-0", topic_id("young"), newest_mtime=minute)
    old = dir_row("written-0", topic_id("written"), newest_mtime=minute, first_seen=seen, sightings=9)
    kafka.everyone(young, old)
    return Expected(kafka.cluster_id, {"1|written-0": "topic-absent"})


@scenario
def marked_at_an_unknown_time(kafka: Kafka) -> Expected:
    _plain(kafka)
    kafka.assignments()
    unknown = {"topic": "gone", "partition": 0, "topic_id": topic_id("gone")}
    marked, stray = (
        dir_row(f"gone-0.{'0' * 32}-{kind}", None, kind=kind, newest_mtime=None, **unknown)
        for kind in ("delete", "stray")
    )
    kafka.everyone(marked, stray)
    return Expected(kafka.cluster_id)


# Clusters of which too little is known.


@scenario
def no_assignments(kafka: Kafka) -> Expected:
    _plain(kafka)
    kafka.everyone(_gone())
    return Expected(kafka.cluster_id, decided=False)


@scenario
def empty_assignments(kafka: Kafka) -> Expected:
    """Complete and empty: nobody's disk is all orphans, and an older file with content does not step in."""
    _plain(kafka)
    kafka.assignments(at=AT - timedelta(hours=1))
    kafka.assignments([], offset=8)
    kafka.everyone(_gone())
    return Expected(kafka.cluster_id, decided=False)


@scenario
def broken_assignments(kafka: Kafka) -> Expected:
    _plain(kafka)
    corrupt(kafka.assignments(), "lost-row")
    kafka.everyone(_gone())
    return Expected(kafka.cluster_id, decided=False, rejected={"rows-differ"})


@scenario
def assignments_of_a_topic_without_end(kafka: Kafka) -> Expected:
    _plain(kafka)
    kafka.everyone(_gone())
    kafka.topic("x" * 1531, [1, 2, 3])
    kafka.assignments()
    return Expected(kafka.cluster_id, decided=False, rejected={"bad-rows"})


@scenario
def broken_assignments_fall_back(kafka: Kafka) -> Expected:
    _plain(kafka)
    kafka.assignments(at=AT - timedelta(minutes=5))
    corrupt(kafka.assignments(offset=8), "bad-row")
    kafka.everyone(_gone())
    return Expected(kafka.cluster_id, {"1|gone-0": "topic-absent"}, rejected={"bad-rows"})


@scenario
def duplicates_in_undecided_clusters(kafka: Kafka) -> Expected:
    id_ = kafka.topic("orders", [1, 2, 3])
    both = [log_dir_row("/d0"), log_dir_row("/d1")]
    kafka.snapshot(1, [*kafka.replicas_of(1), dir_row("orders-0", id_, log_dir="/d1")], log_dirs=both)
    return Expected(kafka.cluster_id, duplicates={"1|orders-0"}, decided=False)


@scenario
def admin_answer_is_no_proof(kafka: Kafka) -> Expected:
    """The Admin API leaves out what one may not describe: only an agent that asked by id can say "absent"."""
    _plain(kafka)
    kafka.assignments(source="admin")
    proven = dir_row("proven-0", topic_id("proven"), verdict="orphan", reason="topic-absent")
    stranger = dir_row("orders-0", kafka.topics["orders"][0])
    kafka.everyone(_gone(), proven)
    kafka.snapshot(4, [stranger, *kafka.replicas_of(1)][:1])
    return Expected(kafka.cluster_id, {"1|proven-0": "topic-absent"})


@scenario
def node_without_any_replica(kafka: Kafka) -> Expected:
    """Node 4 is in no replica list and not registered: a foreign broker, not a disk full of orphans."""
    _plain(kafka)
    kafka.assignments(brokers=(1, 2, 3))
    kafka.everyone()
    kafka.snapshot(4, [*kafka.replicas_of(1), _gone()])
    return Expected(kafka.cluster_id)


@scenario
def drained_broker(kafka: Kafka) -> Expected:
    """Node 4 has no replica any more, but it is registered: what is left on it is decided."""
    _plain(kafka)
    kafka.assignments(brokers=(1, 2, 3, 4))
    kafka.everyone()
    kafka.snapshot(4, [*kafka.replicas_of(1), _gone()])
    left = {f"4|orders-{n}": "not-a-replica" for n in range(3)}
    return Expected(kafka.cluster_id, {"4|gone-0": "topic-absent", **left})


@scenario
def absurd_share(kafka: Kafka) -> Expected:
    """The assignments know one topic of hundreds: they are doubted, not the disks."""
    kafka.topic("orders", [1, 2, 3])
    kafka.assignments()
    kafka.everyone(*(dir_row(f"t{n}-0", topic_id("absurd", n)) for n in range(300)))
    return Expected(kafka.cluster_id)


# Directories that look like orphans, and some that are.


@scenario
def doubtful_directories(kafka: Kafka) -> Expected:
    orders = kafka.topic("orders", [1, 2], [2, 3])
    moving = kafka.topic("moving", [2, 3])
    rows = kafka.partition_rows()
    for row in rows:
        if row["topic"] == "moving":
            row["adding"] = [3]
    kafka.assignments(rows)
    kafka.everyone(
        dir_row("orders-1", orders),
        dir_row("orders-9", orders),
        dir_row("moving-0", moving),
        dir_row("renamed-0", orders),
        dir_row("nameless-0", None),
        dir_row("zero-0", "A" * 22),
        dir_row("__consumer_offsets-3", topic_id("internal")),
        dir_row("__cluster_metadata-0", None, kind="metadata"),
        dir_row("orders-0.0123456789abcdef0123456789abcdef-future", orders, kind="future", topic="orders", partition=0),
        dir_row("gone-1.0123456789abcdef0123456789abcdef-future", GONE, kind="future", topic="gone", partition=1),
    )
    orphans = {
        "1|orders-1": "not-a-replica",
        "1|renamed-0": "copy-of",
        "1|gone-1.0123456789abcdef0123456789abcdef-future": "topic-absent",
    }
    return Expected(kafka.cluster_id, orphans)


@scenario
def recreated_topic(kafka: Kafka) -> Expected:
    kafka.topic("orders", [1, 2, 3])
    kafka.assignments()
    old = dir_row("orders-0", topic_id("old orders"), log_dir="/d1")
    for node in (1, 2, 3):
        rows = [*kafka.replicas_of(node), *([old] if node == 2 else [])]
        kafka.snapshot(node, rows, log_dirs=[log_dir_row("/d0"), log_dir_row("/d1")])
    return Expected(kafka.cluster_id, {"2|orders-0": "topic-recreated"})


@scenario
def before_topic_ids(kafka: Kafka) -> Expected:
    """A 2.5 cluster: neither side has ids, so nothing can be an orphan; what is nowhere is missing all the same."""
    kafka.topic("orders", [1, 2], [1, 2], id_=None)
    kafka.assignments(brokers=(1, 2), source="admin")
    kafka.assignments(brokers=(1, 2), source="admin", at=AT - timedelta(minutes=10), offset=3)
    kafka.snapshot(1, [*kafka.replicas_of(1), dir_row("gone-0", None)])
    kafka.snapshot(2, kafka.replicas_of(2)[:1])
    return Expected(kafka.cluster_id, missing={"2|orders-1"})


@scenario
def missing_or_offline(kafka: Kafka) -> Expected:
    """Node 1 lacks a replica; node 2's may lie in its offline log dir; node 3's cannot, it was assigned to the
    other."""
    kafka.topic("orders", [1], [2], [3])
    rows = kafka.partition_rows()
    for row in rows:
        row["directories"] = [topic_id("directory", row["replicas"][0], "/d0")] if row["partition"] == 2 else []
    kafka.assignments(rows)
    kafka.assignments(rows, at=AT - timedelta(minutes=10), offset=3)
    kafka.topic("other", [1])
    kafka.snapshot(1, [dir_row("nothing-0", None, kind="invalid", topic=None, partition=None)])
    for node in (2, 3):
        dirs = [
            log_dir_row(p, h, directory_id=topic_id("directory", node, p))
            for p, h in (("/d0", "online"), ("/d1", "offline"))
        ]
        kafka.snapshot(node, [], log_dirs=dirs)
    return Expected(kafka.cluster_id, missing={"1|orders-0", "3|orders-2"})


@scenario
def replica_without_its_topic_id(kafka: Kafka) -> Expected:
    """A lost partition.metadata: neither an orphan nor a missing replica."""
    kafka.topic("orders", [1, 2, 3])
    kafka.assignments()
    kafka.everyone(nodes=(1, 3))
    kafka.snapshot(2, [dir_row("orders-0", None)])
    return Expected(kafka.cluster_id)


@scenario
def repeated_assignment_rows(kafka: Kafka) -> Expected:
    """The same partition twice, with different replicas: all of them count."""
    id_ = kafka.topic("orders", [1, 2, 3])
    rows = kafka.partition_rows()
    kafka.assignments([*rows, *rows, rows[0] | {"replicas": [4, 1]}], brokers=(1, 2, 3, 4))
    kafka.everyone()
    kafka.snapshot(4, [dir_row("orders-0", id_)])
    return Expected(kafka.cluster_id)


@scenario
def same_partition_twice(kafka: Kafka) -> Expected:
    id_ = kafka.topic("orders", [1, 2, 3])
    kafka.assignments()
    kafka.everyone(nodes=(2, 3))
    both = [log_dir_row("/d0"), log_dir_row("/d1")]
    kafka.snapshot(1, [*kafka.replicas_of(1), dir_row("orders-0", id_, log_dir="/d1")], log_dirs=both)
    return Expected(kafka.cluster_id, duplicates={"1|orders-0"})


@scenario
def names_that_are_no_text(kafka: Kafka) -> Expected:
    """Two names that differ in a byte which is not UTF-8 stay two, an emoji stays itself."""
    kafka.topic("orders", [1, 2, 3])
    kafka.assignments()
    names = ["caf\udce9-0", "caf\udcea-0", "\U0001f480-0", "back\\udce9slash-0", 'quote",comma\n-0']
    kafka.everyone(*(dir_row(name, topic_id(name)) for name in names))
    shown = {name: name.encode("utf-8", "backslashreplace").decode() for name in names}
    return Expected(kafka.cluster_id, {f"1|{shown[name]}": "topic-absent" for name in names})


@scenario
def silent_hosts(kafka: Kafka) -> Expected:
    """Node 2 was never heard from, node 3's last word is thirty hours old, node 9 is in a replica list only."""
    kafka.topic("orders", [1, 2, 3, 9])
    kafka.assignments()
    kafka.snapshot(1, kafka.replicas_of(1))
    kafka.snapshot(3, [_gone()], at=AT - timedelta(hours=30))
    return Expected(kafka.cluster_id, unknown={2, 3, 9})


def write_all(store: Path) -> dict[str, Expected]:
    """Every scenario below `store`; what is expected of each."""
    return {name: make(Kafka(store, name)) for name, make in SCENARIOS.items()}
