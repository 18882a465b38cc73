"""Small fleets made by hypothesis, judged by the job and by the agent's own decision (`verdict.rules`)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from logagent.base.records import Kind, PartitionDir, Verdict
from logagent.base.units import instant
from logagent.fleet.demo import topic_id
from logagent.kafka.image import AssignmentImage, BrokerRegistration, PartitionAssignment, Source, Topic, make_image
from logagent.verdict.rules import Host, decide
from tests.long_form import FULL
from tests.spark.conftest import Told, Zoo
from tests.spark.hand_made import AT, NOW, Kafka, dir_row, log_dir_row
from tests.spark.planting import planted

NODES = (1, 2, 3)
NAMES = ("a", "b", "__consumer_offsets")
IDS = (topic_id("one"), topic_id("two"), topic_id("three"), None)
WRITTEN = {"old": AT - timedelta(days=9), "young": AT - timedelta(minutes=1)}
HEX = "0123456789abcdef0123456789abcdef"


@dataclass
class Drawn:
    """A cluster as it is written and as the reference sees it."""

    topics: dict[str, tuple[str | None, list[list[int]]]]
    moving: set[tuple[str, int]]
    source: str
    image_at: datetime
    known_until: datetime
    dirs: dict[int, dict[tuple[str, str], dict[str, Any]]]


@st.composite
def clusters(draw: st.DrawFn) -> Drawn:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    ids = draw(st.permutations([id_ for id_ in IDS if id_ is not None]))
    replicas = st.lists(st.sampled_from(NODES), unique=True, min_size=1, max_size=3)
    topics: dict[str, tuple[str | None, list[list[int]]]] = {}
    for name, id_ in zip(names, ids, strict=False):
        own: str | None = None if draw(st.integers(0, 9)) == 0 else id_
        topics[name] = (own, draw(st.lists(replicas, min_size=1, max_size=2)))
    moving = {(n, 0) for n in names if draw(st.integers(0, 4)) == 0}
    dirs: dict[int, dict[tuple[str, str], dict[str, Any]]] = {}
    for node in NODES:
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for row in draw(st.lists(directories(), max_size=5)):
            rows[row["log_dir"], row["name"]] = row
        for name, (living, partitions) in topics.items():
            for number, nodes in enumerate(partitions):
                if node in nodes and draw(st.integers(0, 3)):
                    rows["/d0", f"{name}-{number}"] = dir_row(f"{name}-{number}", living)
        dirs[node] = rows
    source = draw(st.sampled_from(["kraft-log", "kraft-log", "file", "admin"]))
    at = AT + timedelta(minutes=-30 if draw(st.booleans()) else 10)
    return Drawn(topics, moving, source, at, at - timedelta(minutes=draw(st.sampled_from([0, 20]))), dirs)


@st.composite
def directories(draw: st.DrawFn) -> dict[str, Any]:
    name, partition = draw(st.sampled_from([*NAMES, "gone"])), draw(st.integers(0, 2))
    kind = draw(st.sampled_from(["current", "current", "current", "future", "stray", "delete"]))
    full = f"{name}-{partition}" if kind == "current" else f"{name}-{partition}.{HEX}-{kind}"
    return dir_row(
        full,
        draw(st.sampled_from(IDS)),
        topic=name,
        partition=partition,
        kind=kind,
        log_dir=draw(st.sampled_from(["/d0", "/d1"])),
        newest_mtime=instant(WRITTEN[draw(st.sampled_from(["old", "old", "young"]))]),
        last_segment_offset=draw(st.sampled_from([None, 1, 2])),
    )


def _write(store: Path, name: str, drawn: Drawn) -> Kafka:
    kafka = Kafka(store, name, dict(drawn.topics))
    rows = kafka.partition_rows()
    for row in rows:
        if (row["topic"], row["partition"]) in drawn.moving:
            row["adding"] = [row["replicas"][0]]
    known: dict[str, Any] = {} if drawn.known_until == drawn.image_at else {"known_until": instant(drawn.known_until)}
    kafka.assignments(rows, at=drawn.image_at, source=drawn.source, **known)
    kafka.assignments(rows, at=AT - timedelta(hours=1), source=drawn.source, offset=3)
    for node, dirs in drawn.dirs.items():
        kafka.snapshot(node, dirs.values(), log_dirs=[log_dir_row("/d0"), log_dir_row("/d1")])
    return kafka


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _image(kafka: Kafka, drawn: Drawn) -> AssignmentImage:
    topics = []
    for name, (id_, partitions) in drawn.topics.items():
        made = Topic(name, id_)
        for number, nodes in enumerate(partitions):
            adding = tuple(nodes[:1]) if (name, number) in drawn.moving else ()
            made.partitions[number] = PartitionAssignment(tuple(nodes), tuple(nodes), adding)
        topics.append(made)
    at, until = _ms(drawn.image_at), _ms(drawn.known_until)
    complete = drawn.source == "kraft-log"
    source = Source(drawn.source)
    brokers = {node: BrokerRegistration(node) for node in NODES}
    return make_image(
        topics,
        AssignmentImage(
            source=source,
            cluster_id=kafka.cluster_id,
            at_ms=at,
            known_until_ms=until,
            complete=complete,
            metadata_version=21,  # as `hand_made` writes it
            brokers=brokers,
        ),
    )


def _reference_orphans(kafka: Kafka, drawn: Drawn) -> dict[tuple[int, str, str], str]:
    image = _image(kafka, drawn)
    found = {}
    for node, rows in drawn.dirs.items():
        host = Host(node, kafka.cluster_id, 26 * 3600 * 1000)
        for row in rows.values():
            written = int(datetime.fromisoformat(row["newest_mtime"]).timestamp() * 1e9)
            # The snapshot's own time bounds the directory's age as well: nothing in it is younger.
            written = min(written, int(AT.timestamp() * 1e9))
            made = PartitionDir(
                row["log_dir"], row["name"], Kind(row["kind"]), row["topic"], row["partition"], None, False, 1, 1,
                written, written, row["topic_id"],
            )  # fmt: skip
            ruling = decide(made, image, host, now_ms=_ms(NOW))
            if ruling is not None and ruling.verdict is Verdict.ORPHAN:
                assert ruling.reason is not None
                found[node, row["log_dir"], row["name"]] = str(ruling.reason)
    return found


def _reference_missing(drawn: Drawn) -> set[tuple[int, str, int]]:
    found: set[tuple[int, str, int]] = set()
    if drawn.known_until < AT:  # of whatever the snapshots lack, the assignments do not say that it had to be there
        return found
    for name, (id_, partitions) in drawn.topics.items():
        for number, nodes in enumerate(partitions):
            for node in nodes:
                live = [r for r in drawn.dirs[node].values() if r["kind"] in ("current", "future")]
                same = [r for r in live if r["partition"] == number and (r["topic_id"] == id_ if id_ else False)]
                nameless = [
                    r for r in live if r["partition"] == number and r["topic_id"] is None and r["topic"] == name
                ]
                marked = {
                    r["kind"]
                    for r in drawn.dirs[node].values()
                    if r["kind"] in ("stray", "delete") and r["partition"] == number
                    and (r["topic_id"] == id_ if id_ else (r["topic_id"], r["topic"]) == (None, name))
                }  # fmt: skip
                if not same and not nameless and marked != {"delete"}:
                    found.add((node, name, number))
    return found


def _reference_duplicates(drawn: Drawn) -> set[tuple[int, str, str | None, int]]:
    places: dict[tuple[int, str, str | None, int], set[str]] = defaultdict(set)
    for node, rows in drawn.dirs.items():
        for row in rows.values():
            if row["kind"] == "current":
                places[node, row["topic"], row["topic_id"], row["partition"]].add(row["log_dir"])
    return {key for key, where in places.items() if len(where) > 1}


def _reference_copies(drawn: Drawn, orphan: tuple[int, str, str]) -> tuple[int, bool]:
    """Copies elsewhere, and whether this one is the longest."""
    node, log_dir, name = orphan
    own = drawn.dirs[node][log_dir, name]

    def length(row: dict[str, Any]) -> tuple[int, str]:
        offset = row["last_segment_offset"]
        return (-1 if offset is None else offset, row["newest_mtime"])

    copies = _copies(drawn, own["topic_id"], own["topic"], own["partition"])
    return len(copies) - 1, length(own) >= max(map(length, copies))


def _copies(drawn: Drawn, id_: str | None, topic: str, partition: int) -> list[dict[str, Any]]:
    """Of a partition: by topic id, whatever the directories are called; by name where there is no id."""
    return [
        row
        for rows in drawn.dirs.values()
        for row in rows.values()
        if row["kind"] in ("current", "future", "stray")
        and (row["topic_id"], row["partition"]) == (id_, partition)
        and (id_ is not None or row["topic"] == topic)
    ]


def _check(mine: dict[str, list[dict[str, Any]]], kafka: Kafka, drawn: Drawn) -> None:
    orphans = {(r["node_id"], r["log_dir"], r["name"]): r for r in mine["orphans"]}
    assert {key: row["reason"] for key, row in orphans.items()} == _reference_orphans(kafka, drawn), drawn
    for key, row in orphans.items():
        assert (row["copies_elsewhere"], row["longest_copy"]) == _reference_copies(drawn, key), key
    missing = {(r["node_id"], r["topic"], r["partition"]) for r in mine["missing_replicas"]}
    assert missing == _reference_missing(drawn), drawn
    for row in mine["missing_replicas"]:
        left = _copies(drawn, row["topic_id"], row["topic"], row["partition"])
        assert row["copies_elsewhere"] == len(left), row
    duplicates = {(r["node_id"], r["topic"], r["topic_id"], r["partition"]) for r in mine["duplicates"]}
    assert duplicates == _reference_duplicates(drawn), drawn
    usage = {(r["topic"], r["topic_id"], r["partition"]): r["copies"] for r in mine["usage_partitions"] if r["copies"]}
    copies: dict[tuple[str, str | None, int], int] = defaultdict(int)
    for rows in drawn.dirs.values():
        for row in rows.values():
            if row["kind"] == "current":
                copies[row["topic"], row["topic_id"], row["partition"]] += 1
    assert usage == copies, drawn


def _same_id_under_other_names() -> Drawn:
    """Copies of one topic id and partition whose directories spell the topic in four ways: names are cut at 255."""
    one, two = IDS[0], IDS[1]
    dirs = [
        dir_row("a-1", one, last_segment_offset=1),
        dir_row(f"gone-1.{HEX}-future", one, topic="gone", partition=1, kind="future", last_segment_offset=2),
        dir_row(f"g-1.{HEX}-stray", one, topic="g", partition=1, kind="stray", last_segment_offset=None),
        dir_row(f"go-1.{HEX}-delete", one, topic="go", partition=1, kind="delete"),
        dir_row(f"a-0.{HEX}-future", two, topic="a", partition=0, kind="future", last_segment_offset=None),
        dir_row(f"lo-0.{HEX}-future", two, topic="lo", partition=0, kind="future", log_dir="/d1"),
    ]
    there = {node: {(row["log_dir"], row["name"]): row for row in (*dirs[node - 1 :: 3],)} for node in NODES}
    there[1]["/d0", "a-0"] = dir_row("a-0", two, last_segment_offset=9)
    at = AT + timedelta(minutes=10)
    return Drawn({"a": (two, [[1], [1, 2, 3]])}, set(), "kraft-log", at, at, there)


COUNT = 100 if FULL else 24
MADE_BY_HAND = {"same_id_under_other_names": _same_id_under_other_names()}


def _drawn(count: int) -> list[Drawn]:
    """Other clusters each time: they are small enough to be read in a failure, and to be drawn all before the job that
    judges them, which takes as long for one as for all."""
    made: list[Drawn] = []

    @settings(max_examples=count, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
    @given(clusters())
    def draw(one: Drawn) -> None:
        made.append(one)

    draw()
    return made


@planted
def drawn_clusters(store: Path) -> list[tuple[Kafka, Drawn]]:
    every = [*MADE_BY_HAND.items(), *((f"drawn-{number}", one) for number, one in enumerate(_drawn(COUNT)))]
    return [(_write(store, name, one), one) for name, one in every]


def test_the_fleet_decides_as_the_agent_does(zoo: Zoo) -> None:
    made = zoo.planted["drawn_clusters"]
    assert len(made) > COUNT // 2
    tables = {name: _by_cluster(zoo.told, name) for name in COMPARED}
    for kafka, one in made:
        _check({name: rows[kafka.cluster_id] for name, rows in tables.items()}, kafka, one)


COMPARED = ("orphans", "missing_replicas", "duplicates", "usage_partitions")


def _by_cluster(told: Told, table: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in told.rows(table):
        found[row["cluster_id"]].append(row)
    return found
