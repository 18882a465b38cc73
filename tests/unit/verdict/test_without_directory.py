"""Where what has no directory here is or may be: nothing that is missing drops out, and no doubt takes it away."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from logagent.base.records import DirKey
from logagent.verdict.without_directory import (
    LeftLogDir,
    Missing,
    NamedLogDirs,
    OtherLogDir,
    WithoutDirectory,
    in_words,
    sort_missing,
)

A = WithoutDirectory("a", 0, "A", only_copy=True, directory_id="left")
B = WithoutDirectory("b", 0, "B", only_copy=False)
HERE = NamedLogDirs({"/d1": "here"})

ids = st.sampled_from([None, "here", "left", "other"])
partitions = st.builds(
    WithoutDirectory, st.sampled_from("ab"), st.just(0), st.sampled_from([None, "A", "B"]),
    st.sampled_from([None, True]), st.none(), ids, st.none(), st.sampled_from([None, DirKey("/d1", "x-future")]),
)  # fmt: skip
holds = st.none() | st.dictionaries(st.sampled_from([("a", 0), ("b", 0)]), st.sampled_from([None, "A", "B"]))
others = st.lists(
    st.builds(OtherLogDir, st.sampled_from(["/x", "/y"]), st.just("the journal"), ids, holds, st.booleans()),
    unique_by=lambda o: o.path,
)
named_log_dirs = st.builds(
    NamedLogDirs, st.just({"/d1": "here"}), st.sampled_from([(), ("/dead",)]), st.booleans(), st.booleans()
)


@given(st.lists(partitions, unique=True), others, named_log_dirs)
def test_whatever_is_missing_is_said(
    missing: list[WithoutDirectory], known: list[OtherLogDir], named: NamedLogDirs
) -> None:
    """But what a start takes its `-future` directory for."""
    found = sort_missing(missing, known, named)
    assert {*found.all, *found.promoted} == set(missing)
    assert [w for w in found.promoted if not (w.future is not None and w.directory_id == "here")] == []


@given(st.lists(partitions, unique=True), others, named_log_dirs)
def test_a_doubt_is_never_more_than_possible(
    missing: list[WithoutDirectory], known: list[OtherLogDir], named: NamedLogDirs
) -> None:
    """What is known rests on assignments that a start goes by, and on an id or a topic id that was read."""
    for left in sort_missing(missing, known, named).left:
        if left.known:
            assert named.sure
            other = next((o for o in known if o.path == left.path), None)
            assert [
                w
                for w in left.partitions
                if not (other.has(w) if other is not None else w.directory_id == left.directory_id)
            ] == []
            assert left.path is not None or not (named.unseen or not named.configured)


@given(st.lists(partitions, unique=True), others, named_log_dirs)
def test_a_log_dir_that_cannot_be_read_takes_nothing_away(
    missing: list[WithoutDirectory], known: list[OtherLogDir], named: NamedLogDirs
) -> None:
    """It turns what is known by an id alone into what is possible, and is named."""
    dead = NamedLogDirs(named.ids, ("/dead",), named.configured, named.sure)
    seen, unseen = sort_missing(missing, known, named), sort_missing(missing, known, dead)
    assert set(unseen.all) == set(seen.all) and unseen.unseen == ("/dead",)
    paths = [{left.path for left in found.left if left.known and left.path is not None} for found in (seen, unseen)]
    assert paths[0] == paths[1]


@given(st.lists(partitions, unique=True), others, named_log_dirs)
def test_assignments_that_do_not_count_hide_no_log_dir_that_none_would_show(
    missing: list[WithoutDirectory], known: list[OtherLogDir], named: NamedLogDirs
) -> None:
    """An export of yesterday in which nothing was missing said that all is well, where no export at all did not."""
    old = replace(named, sure=False, unknown="it is a day old")
    without, found = sort_missing(None, known, old), sort_missing(missing, known, old)
    assert {left.path for left in without.left} <= {left.path for left in found.left}
    assert found.unknown == "it is a day old"
    assert sort_missing(missing, known, replace(old, sure=True)).unknown is None


def test_a_future_directory_alone_is_where_it_is_assigned_to_or_no_replica() -> None:
    there = replace(A, directory_id="here", future=DirKey("/d1", "a-0.x-future"))
    elsewhere = replace(there, future=DirKey("/d2", "a-0.x-future"))
    assert sort_missing([there, elsewhere], (), HERE) == Missing((elsewhere,), promoted=(there,))
    whole = OtherLogDir("/x", "the journal", None, {("a", 0): "A"})
    (left,) = left_of([there, elsewhere], whole)
    assert left.partitions == (there, elsewhere), "the one that left has all of it"


def left_of(missing: list[WithoutDirectory] | None, *known: OtherLogDir) -> list[LeftLogDir]:
    return list(sort_missing(missing, known, HERE).left)


def test_it_is_known_by_its_directory_id_alone() -> None:
    assert left_of([A, B]) == [LeftLogDir(None, "left", "the assignments", True, (A,))]


def test_and_by_what_lies_in_it_under_the_same_topic_id() -> None:
    for topic_id, known in (("B", True), (None, False)):
        other = OtherLogDir("/x", "the journal", None, {("b", 0): topic_id})
        assert left_of([B], other) == [LeftLogDir("/x", None, "the journal", known, (B,))]
    assert left_of([B], OtherLogDir("/x", "the journal", None, {("b", 0): "another"})) == []


def test_what_could_not_be_inspected_may_have_it() -> None:
    other = OtherLogDir("/x", "the journal")
    assert left_of([B], other) == [LeftLogDir("/x", None, "the journal", False, (B,))]


def test_without_assignments_what_was_remembered_or_lies_there_is_a_doubt() -> None:
    lies = OtherLogDir("/x", "the journal", None, {("b", 0): None}, remembered=False)
    assert left_of(None, lies) == [LeftLogDir("/x", None, "the journal", False, held=("b-0",))]
    assert left_of(None, OtherLogDir("/x", "the journal", remembered=False)) == []
    assert left_of(None, OtherLogDir("/x", "a file")) == [LeftLogDir("/x", None, "a file", False)]
    assert left_of(None, OtherLogDir("/x", "a file", holds={})) == [], "it is empty"


def test_the_two_ways_out_are_named() -> None:
    for known in (True, False):
        why = in_words(LeftLogDir("/x", "left", "a file", known, (A, B)))
        assert "anew, empty" in why.fact and "1 of them not known to have another replica in sync" in why.fact
        assert "put it back into log.dirs" in why.hint and "elsewhere" in why.hint
