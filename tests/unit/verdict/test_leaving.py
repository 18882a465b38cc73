"""May a log dir leave: what is in the way, where its partitions go, and what the reassignment tool gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.records import DirKey, Kind, PartitionDir, Verdict
from logagent.kafka.image import AssignmentImage, PartitionAssignment, Source, Topic, make_image
from logagent.verdict.facts import Ruling
from logagent.verdict.leaving import KEPT_FREE, Leaving, TargetLogDir, may_leave, stale_cordons

HERE, THERE, NODE = "/data/d1", "/data/d2", 3
ASSIGNED = Ruling(Verdict.ASSIGNED)


def directory(name: str, kind: Kind = Kind.CURRENT, *, log_dir: str = HERE, allocated: int = 100) -> PartitionDir:
    stem = name.split(".")[0]
    topic, _, number = stem.rpartition("-")
    return PartitionDir(log_dir, name, kind, topic, int(number), None, False, 1, 1, 0, 0, allocated=allocated)


def image_of(dirs: list[PartitionDir], **partition: Any) -> AssignmentImage:
    empty = AssignmentImage(Source.KRAFT_LOG, "cluster", 0, 0, True)
    topics: dict[str, Topic] = {}
    for d in dirs:
        topic = topics.setdefault(d.topic or "", Topic(d.topic or "", None))
        topic.partitions[d.partition or 0] = PartitionAssignment((1, NODE), (1, NODE), leader=1)._replace(**partition)
    return make_image(topics.values(), empty)


def facts_of(
    *dirs: PartitionDir, rooms: tuple[TargetLogDir, ...] = (TargetLogDir(THERE, 2, 10_000, 9_000),), **more: Any
) -> Leaving:
    """A stopped broker with two log dirs; every current directory is assigned to it."""
    current = [d for d in dirs if d.kind is Kind.CURRENT]
    known = Leaving(
        HERE, None, dirs, {d.key: ASSIGNED for d in current}, image_of(current), "nobody was asked", NODE,
        (HERE, THERE), THERE, rooms, True, frozenset(), True, (4, 3, 1),
    )  # fmt: skip
    return replace(known, **more)


def codes(facts: Leaving) -> list[str]:
    answer = may_leave(facts)
    assert [o for o in answer.obstacles if not (o.fact and o.hint)] == []
    assert answer.may_leave == (not answer.obstacles)
    return [o.code for o in answer.obstacles]


def test_an_empty_log_dir_of_a_stopped_broker_may_leave() -> None:
    answer = may_leave(facts_of(directory("orders-0", log_dir=THERE), configured=(f"{HERE}/", THERE)))
    assert answer.may_leave and answer.left == () and answer.reassignment is None
    assert answer.line == f"log.dirs={THERE}"


@pytest.mark.parametrize(
    ("dirs", "more", "code"),
    [
        ([directory("orders-0")], {}, "assigned"),
        ([directory("orders-0")], {"rulings": {}}, "unknown"),
        ([directory("orders-0")], {"rulings": {DirKey(HERE, "orders-0"): Ruling(Verdict.ORPHAN)}}, "orphan"),
        ([directory("orders-0.aa-future", Kind.FUTURE)], {}, "moving-in"),
        ([directory("orders-0"), directory("orders-0.aa-future", Kind.FUTURE, log_dir=THERE)], {}, "moving-out"),
        ([directory("orders-0.aa-stray", Kind.STRAY)], {}, "stray"),
        ([directory("orders-0.aa-delete", Kind.DELETE)], {}, "marked"),
        ([directory("__cluster_metadata-0", Kind.METADATA)], {}, "metadata"),
        ([directory("lost-0", Kind.INVALID)], {}, "not-a-partition"),
        ([], {"unseen": "it is offline: EIO"}, "unseen"),
        ([], {"configured": (THERE,)}, "not-configured"),
        ([], {"configured": (HERE,)}, "only-log-dir"),
        ([], {"metadata_log_dir": f"{HERE}/"}, "metadata-log"),
        ([], {"stopped": False}, "broker-runs"),
        ([], {"stopped": None}, "broker-unknown"),
        ([], {"stopped": None, "cordoned": {HERE}}, "broker-unknown"),
    ],
)
def test_each_thing_that_is_in_the_way_keeps_it(dirs: list[PartitionDir], more: dict[str, Any], code: str) -> None:
    assert codes(facts_of(*dirs, **more)) == [code]


def test_a_running_broker_places_nothing_in_a_cordoned_log_dir() -> None:
    for cordoned in ({HERE}, {"*"}):
        assert codes(facts_of(stopped=False, cordoned=cordoned)) == []


def test_a_remote_index_cache_is_made_anew_anywhere() -> None:
    assert codes(facts_of(replace(directory("cache-0", Kind.CACHE), name="remote-log-index-cache"))) == []


def test_the_reassignment_moves_this_node_s_replica_and_leaves_the_replicas_alone() -> None:
    answer = may_leave(facts_of(directory("orders-1"), directory("orders-0")))
    assert answer.reassignment == {
        "version": 1,
        "partitions": [
            {"topic": "orders", "partition": n, "replicas": [1, NODE], "log_dirs": ["any", THERE]} for n in (0, 1)
        ],
    }


@pytest.mark.parametrize(
    ("more", "stays"),
    [
        ({"image": None}, "its replicas are not known: nobody was asked"),
        ({"image": image_of([directory("orders-0")], replicas=(1, 2))}, " has no replica of it on this node"),
        ({"image": image_of([directory("other-0")])}, " has no replica of it on this node"),
        (
            {"image": image_of([directory("orders-0")], adding=(4,))},
            "its replicas are being reassigned: wait until that is done",
        ),
        ({"rooms": ()}, "no other log dir has room for it"),
        ({"rooms": (TargetLogDir(THERE, 2, 10_000, 599),)}, "no other log dir has room for it"),
    ],
)
def test_what_cannot_be_moved_is_not_in_the_reassignment(more: dict[str, Any], stays: str) -> None:
    answer = may_leave(facts_of(directory("orders-0"), **more))
    assert answer.reassignment is None and [each.stays for each in answer.left] == [stays]
    assert not answer.may_leave


def test_a_name_that_another_log_dir_has_already_goes_elsewhere() -> None:
    answer = may_leave(facts_of(directory("orders-0"), replace(directory("orders-0"), log_dir=THERE)))
    assert answer.left[0].stays == "no other log dir is without a directory of its name"


def test_who_has_the_only_copy_is_said() -> None:
    lone = image_of([directory("orders-0")], isr=(NODE,))
    assert [each.only_copy for each in may_leave(facts_of(directory("orders-0"), image=lone)).left] == [True]
    silent = image_of([directory("orders-0")], leader=None)
    assert [each.only_copy for each in may_leave(facts_of(directory("orders-0"), image=silent)).left] == [None]


@given(
    st.lists(st.integers(0, 400), max_size=12),
    st.lists(st.tuples(st.integers(2, 4), st.integers(0, 1_000)), max_size=4),
)
def test_no_file_system_gets_more_than_it_has_room_for(sizes: list[int], free: list[tuple[int, int]]) -> None:
    """Several log dirs may share a file system: its room counts once."""
    by_device = dict(reversed(free))
    rooms = tuple(TargetLogDir(f"/data/o{n}", device, 1_000, by_device[device]) for n, (device, _) in enumerate(free))
    dirs = [directory(f"t-{n}", allocated=size) for n, size in enumerate(sizes)]
    answer = may_leave(facts_of(*dirs, rooms=rooms))
    device_of = {room.log_dir: room.device for room in rooms}
    placed = dict.fromkeys(by_device, 0)
    for each in answer.left:
        assert (each.to is None) != (each.stays is None)
        if each.to is not None:
            placed[device_of[each.to]] += each.dir.allocated
    room_of = {device: by_device[device] - int(1_000 * KEPT_FREE) for device in by_device}
    assert [device for device in by_device if placed[device] > max(room_of[device], 0)] == []
    # What stays did not fit anywhere when its turn came, so it fits nowhere at the end.
    left = {device: room_of[device] - placed[device] for device in by_device}
    assert [
        each for each in answer.left if each.to is None if each.dir.allocated <= max(left.values(), default=-1)
    ] == []


FOUR = (HERE, THERE, "/data/d3", "/data/d4/")
SETS = "kafka-configs.sh --bootstrap-server HOST:PORT --entity-type brokers --entity-name 3 --alter "


def test_the_command_that_cordons_keeps_what_is_cordoned() -> None:
    runs = facts_of(stopped=False, configured=FOUR, cordoned={"/data/d3", "/data/gone"})
    assert may_leave(runs).cordon == SETS + "--add-config 'cordoned.log.dirs=[/data/d3,/data/d1]'"
    for more in (
        {"cordoned": {HERE}},
        {"cordoned": {"*"}},
        {"version": (4, 2, 0)},
        {"version": None},
        {"node_id": None},
    ):
        assert may_leave(replace(runs, **more)).cordon is None


def test_nobody_is_sent_to_cordon_a_log_dir_whose_broker_is_stopped() -> None:
    """It gets no partition there, and the cordon would outlast the log dir."""
    assert may_leave(facts_of(stopped=True)).cordon is None


def test_the_command_that_takes_the_cordon_back_keeps_the_others() -> None:
    assert may_leave(facts_of(cordoned={HERE, "/data/gone"})).uncordon == SETS + "--delete-config cordoned.log.dirs"
    others = facts_of(cordoned={HERE, "/data/d4", "/data/d3"}, configured=FOUR)
    assert may_leave(others).uncordon == SETS + "--add-config 'cordoned.log.dirs=[/data/d3,/data/d4]'"
    assert may_leave(replace(others, cordon_is_dynamic=False)).uncordon is None
    for cordoned in ({"*"}, {"/data/d3"}, set[str]()):
        assert may_leave(facts_of(cordoned=cordoned)).uncordon is None


def test_a_cordon_is_stale_where_log_dirs_does_not_name_it() -> None:
    assert stale_cordons({"*", HERE, "/data/d4", "/data/gone"}, FOUR) == ["/data/gone"]
