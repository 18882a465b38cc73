"""What a lower retention.ms would give back, by Kafka's rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.model.planning.topic_retention import HOUR_MS, STEPS_MS, CleanupPolicies, SegmentAge, advise

NOW = 1_800_000_000_000


def segment(size: int, hours: float) -> SegmentAge:
    return SegmentAge(size, NOW - int(hours * HOUR_MS))


def test_segments_go_oldest_first_until_one_is_young_enough() -> None:
    # The third is old, but stands behind one that is not: Kafka stops there.
    log = [segment(100, 200), segment(10, 2), segment(1, 100)]
    (found,) = advise({"t": [log]}, {"t": 500}, NOW, None)
    assert found.gives_back[168 * HOUR_MS] == 100 and found.gives_back[HOUR_MS] == 111
    assert found.retention_ms == 168 * HOUR_MS
    assert found.command.endswith("--entity-name t --add-config retention.ms=604800000")


def test_the_longest_retention_that_gives_what_is_needed() -> None:
    log = [segment(100, 200), segment(100, 80), segment(100, 30), segment(100, 2)]
    chosen = {need: advise({"t": [log]}, {}, NOW, need)[0].retention_ms // HOUR_MS for need in (0, 150, 250, 350, 999)}
    assert chosen == {0: 168, 150: 72, 250: 24, 350: 1, 999: 1}


def test_topics_that_have_nothing_to_give_are_left_out_and_the_others_ordered() -> None:
    found = advise(
        {"young": [[segment(9, 0.5)]], "small": [[segment(1, 99)]], "big": [[segment(5, 99)]]}, {}, NOW, None
    )
    assert [a.topic for a in found] == ["big", "small"]


@pytest.mark.parametrize(
    ("own", "default", "policy", "keeps_all"),
    [
        ("compact", "delete", "compact", True),
        ("compact,delete", "compact", "compact,delete", False),
        ("delete, compact", None, "delete, compact", False),
        ("", "delete", "", True),
        (None, "compact", "compact", True),
        (None, "delete", "delete", False),
        (None, None, None, False),
    ],
)
def test_what_retention_frees_of_a_topic(
    own: str | None, default: str | None, policy: str | None, keeps_all: bool
) -> None:
    policies = CleanupPolicies({} if own is None else {"t": own}, default)
    assert (policies.of("t"), policies.keeps_all("t")) == (policy, keeps_all)
    (found,) = advise({"t": [[segment(9, 99)]]}, {}, NOW, None, policies)
    assert found.policy == policy


@given(st.lists(st.lists(st.builds(segment, st.integers(0, 1000), st.floats(0, 300)), max_size=8), max_size=4))
def test_a_shorter_retention_never_gives_less(logs: list[list[SegmentAge]]) -> None:
    for found in advise({"t": logs}, {}, NOW, None):
        gives = [found.gives_back[step] for step in STEPS_MS]
        assert gives == sorted(gives)
