"""What is assigned before an inventory and after it, and lies nowhere, is missing; nothing else is."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from logagent.base.records import Kind, PartitionDir
from logagent.kafka.image import AssignmentImage, PartitionAssignment, Source, Topic, make_image
from logagent.verdict.without_directory import can_enclose, still_assigned, without_directory
from tests.metadata_writer import id_of

NODE = 1
LONG = "t" * 240


def image(*topics: tuple[str, int, tuple[int, ...]], offset: int = 10, at_ms: int = 1000) -> AssignmentImage:
    """Topics of one partition: name, number of the id, replicas."""
    made = [Topic(name, id_of(number), {0: PartitionAssignment(nodes)}) for name, number, nodes in topics]
    of = AssignmentImage(
        Source.KRAFT_LOG, "cluster", at_ms, at_ms, complete=True, offset=offset, leader_epoch=1, metadata_version=21
    )
    return make_image(made, of)


def directory(topic: str, topic_id: str | None, kind: Kind = Kind.CURRENT, *, cut: bool = False) -> PartitionDir:
    name = f"{topic}-0" if kind is Kind.CURRENT else f"{topic}-0.{'0' * 32}-{kind.value}"
    return PartitionDir("/d", name, kind, topic, 0, None, cut, 1, 1, 1, 1, topic_id)


def absent(before: AssignmentImage, after: AssignmentImage, *dirs: PartitionDir) -> list[str]:
    return [str(w) for w in still_assigned(without_directory(before, NODE, dirs), after, NODE)]


def test_only_what_both_assign_is_missing() -> None:
    before = image(("a", 1, (1, 2)), ("deleted", 2, (1,)), ("again", 3, (1,)), ("left", 4, (1,)), ("other", 5, (2,)))
    after = image(("a", 1, (1,)), ("made", 6, (1,)), ("again", 7, (1,)), ("left", 4, (2,)), ("other", 5, (1, 2)))
    assert absent(before, after) == ["a-0"]
    assert absent(before, after, directory("a", id_of(1))) == []
    assert absent(before, after, directory("a", id_of(9))) == ["a-0"], "of another incarnation"
    assert absent(before, after, directory("a", None)) == [], "it may be this one"


def test_a_move_under_a_name_that_was_cut_is_its_future_directory() -> None:
    one = image((f"{LONG}-whole", 1, (1,)))

    def has_future(topic: str, topic_id: str | None, *, cut: bool = True) -> bool:
        future = directory(topic, topic_id, Kind.FUTURE, cut=cut)
        (w,) = without_directory(one, NODE, [future])
        assert w.future in (None, future.key)
        assert absent(one, one, future, directory(f"{LONG}-whole", id_of(1))) == [], "a move that goes on"
        return w.future is not None

    assert has_future(LONG, id_of(1)) and has_future(LONG, None) and not has_future(LONG, id_of(2))
    assert has_future(f"{LONG}-whole", None, cut=False) and not has_future(f"{LONG}-whole", id_of(2), cut=False)


def test_what_else_lies_there_is_told() -> None:
    one, id_ = image(("a", 1, (1,))), id_of(1)

    def left(*dirs: PartitionDir) -> list[Kind | None]:
        return [w.left for w in without_directory(one, NODE, dirs)]

    assert left() == [None]
    assert left(directory("a", id_, Kind.DELETE)) == [Kind.DELETE]
    stray = directory("a", id_, Kind.STRAY)
    assert (
        left(stray, directory("a", id_, Kind.DELETE)) == left(directory("a", id_, Kind.DELETE), stray) == [Kind.STRAY]
    )


def test_images_of_two_lineages_enclose_nothing() -> None:
    before, after = image(offset=10), image(offset=12, at_ms=2000)
    assert can_enclose(before, after) and can_enclose(before, before)
    assert not can_enclose(None, after) and not can_enclose(before, None)
    for wrong in (
        replace(after, offset=9),
        replace(after, offset=None),
        replace(after, at_ms=999),
        replace(after, leader_epoch=0),
        replace(after, cluster_id="another"),
        replace(after, source=Source.ADMIN),
        replace(after, open_transaction=True),
        replace(after, metadata_version=1000),
    ):
        assert not can_enclose(before, wrong)
    assert not can_enclose(replace(before, open_transaction=True), after)
    exported = replace(before, source=Source.FILE)
    assert not can_enclose(exported, exported), "it says nothing of now"
    asked = replace(before, source=Source.ADMIN, offset=None)
    assert can_enclose(asked, replace(asked, at_ms=2000))


TOPICS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([(1,), (2,), (1, 2)])), unique_by=lambda t: t[0])


@given(TOPICS, TOPICS, st.sets(st.integers(1, 4)))
def test_it_is_what_is_in_both_and_not_there(
    before: list[tuple[int, tuple[int, ...]]], after: list[tuple[int, tuple[int, ...]]], there: set[int]
) -> None:
    images = [image(*((f"t{n}", n, nodes) for n, nodes in topics)) for topics in (before, after)]
    mine = [{n for n, nodes in topics if NODE in nodes} for topics in (before, after)]
    dirs = [directory(f"t{n}", id_of(n)) for n in there]
    assert absent(images[0], images[1], *dirs) == [f"t{n}-0" for n in sorted((mine[0] & mine[1]) - there)]
