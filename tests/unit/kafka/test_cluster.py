"""Whose log dirs they are: all must agree, and with the configuration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.kafka_version import LastRun, VersionsSeen, which_version
from logagent.kafka.identity import MetaRead, agree

A = MetaRead("cluster-a", 1, "dir-a")
B = MetaRead("cluster-a", 1, "dir-b")


def test_log_dirs_that_agree_have_no_problem() -> None:
    view = agree({"/d1": A, "/d2": B}, 1)
    assert (view.cluster_id, view.node_id, dict(view.problems)) == ("cluster-a", 1, {})


def test_a_node_id_below_zero_in_the_configuration_or_none_asks_nothing() -> None:
    assert agree({"/d1": A}, None).problems == {}


@pytest.mark.parametrize(
    ("other", "configured", "says"),
    [
        (MetaRead("cluster-b", 1), 1, "different clusters"),
        (MetaRead("cluster-a", 2), 1, "different nodes"),
        (MetaRead("cluster-a", 1), 2, "the broker's configuration 2"),
        (MetaRead(error="no version"), 1, "cannot be read"),
    ],
)
def test_any_disagreement_is_everybodys_problem(other: MetaRead, configured: int, says: str) -> None:
    """It cannot be told which of them is the stranger."""
    view = agree({"/d1": A, "/d2": other}, configured)
    assert set(view.problems) == {"/d1", "/d2"}
    assert says in view.problems["/d1"] and says in view.problems["/d2"]


def test_an_unformatted_log_dir_is_its_own_problem_only() -> None:
    view = agree({"/d1": A, "/d2": MetaRead(missing=True)}, 1)
    assert set(view.problems) == {"/d2"}
    assert "unformatted" in view.problems["/d2"]
    assert (view.cluster_id, view.node_id) == ("cluster-a", 1)


def test_without_a_cluster_id_nothing_is_known() -> None:
    assert set(agree({"/d1": MetaRead(None, 1)}, 1).problems) == {"/d1"}


BEFORE, SINCE = (2, 1, 0), (3, 5, 2)
OLD = VersionsSeen(configured=BEFORE)


@pytest.mark.parametrize("seen", [OLD, VersionsSeen(running=BEFORE, pid=1), VersionsSeen(installed=(2, 3, 1))])
def test_log_dirs_of_a_broker_before_2_4_are_known_by_their_node_id(seen: VersionsSeen) -> None:
    view = agree({"/d1": MetaRead(None, 1), "/d2": MetaRead(None, 1), "/new": MetaRead(missing=True)}, 1)
    assert set(view.problems_for(which_version(seen), zookeeper=True)) == {"/new"}
    assert (view.cluster_id, view.node_id, view.memory_id) == (None, 1, "")


@pytest.mark.parametrize(
    "seen",
    [
        VersionsSeen(),
        VersionsSeen(configured=(2, 4, 0)),
        VersionsSeen(configured=BEFORE, installed=SINCE),
        VersionsSeen(configured=BEFORE, last_run=LastRun(SINCE)),
        VersionsSeen(configured=BEFORE, last_run=LastRun(unread="damaged")),
        VersionsSeen(configured=SINCE, running=BEFORE, pid=1),
        VersionsSeen(configured=BEFORE, metadata=(3, 0, 0)),
    ],
)
def test_any_source_with_a_later_release_and_the_cluster_id_is_missed(seen: VersionsSeen) -> None:
    """Here the oldest version is not the strictest one."""
    view = agree({"/d1": MetaRead(None, 1)}, 1)
    assert set(view.problems_for(which_version(seen), zookeeper=True)) == {"/d1"}


def test_a_configuration_of_kraft_is_not_of_a_broker_before_2_4() -> None:
    assert agree({"/d1": MetaRead(None, 1)}, 1).problems_for(which_version(OLD), zookeeper=False)


@pytest.mark.parametrize(
    ("other", "configured"),
    [
        (MetaRead("cluster-a", 1), 1),
        (MetaRead(None, 2), 1),
        (MetaRead(None, 1), 2),
        (MetaRead(None, None), 1),
        (MetaRead(None, -1), 1),
        (MetaRead(None, 1, "dir-a"), 1),
        (MetaRead(error="cut"), 1),
    ],
)
def test_whatever_else_is_odd_and_the_node_id_alone_identifies_nothing(other: MetaRead, configured: int) -> None:
    view = agree({"/d1": MetaRead(None, 1), "/d2": other}, configured)
    assert "/d1" in view.problems_for(which_version(OLD), zookeeper=True)


def test_of_log_dirs_with_one_directory_id_any_may_be_a_copy() -> None:
    metas = {f"/d{n}": MetaRead("a", 1, directory_id=id_) for n, id_ in enumerate(["x", "y", "x", None, None])}
    assert agree(metas, 1).copied == {"/d0", "/d2"} and agree(metas, 1).problems == {}


METAS = st.builds(
    MetaRead,
    cluster_id=st.sampled_from([None, "a", "b"]),
    node_id=st.sampled_from([None, -1, 1, 2]),
    missing=st.booleans(),
    error=st.sampled_from([None, "broken"]),
)


@given(st.dictionaries(st.sampled_from(["/d1", "/d2", "/d3"]), METAS, min_size=1), st.sampled_from([None, 1, 2]))
def test_what_has_no_problem_agrees_with_all_others(metas: dict[str, MetaRead], configured: int | None) -> None:
    view = agree(metas, configured)
    fine = [m for path, m in metas.items() if path not in view.problems]
    readable = [m for m in metas.values() if not m.missing and not m.error]
    for m in fine:
        assert not m.missing and not m.error and m.cluster_id is not None
        assert [o for o in readable if o.cluster_id not in (None, m.cluster_id)] == []
        known = {o.node_id for o in readable if o.node_id is not None and o.node_id >= 0}
        assert len(known) <= 1
        assert configured is None or known <= {configured}
