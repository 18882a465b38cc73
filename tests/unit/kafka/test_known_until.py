"""Up to when a broker knows what its cluster decided."""

from __future__ import annotations

import pytest

from logagent.kafka.commitment import APPLY_MS, QuorumRead, QuorumReplica, quorum_known_until_ms
from tests.hosts import NOW

LEADER, OURS = 11, 2


def quorum(*fetched: int, ours: int = NOW) -> QuorumRead:
    """`fetched`: the other voters' last fetches. The leader reports its own clock as caught up."""
    voters = [QuorumReplica(LEADER, -1, NOW)]
    voters += [QuorumReplica(LEADER + n, at, at) for n, at in enumerate(fetched, 1)]
    return QuorumRead(LEADER, tuple(voters), (QuorumReplica(OURS, ours, ours),))


@pytest.mark.parametrize(
    ("fetched", "ours", "known"),
    [
        ((NOW, NOW), NOW, NOW),
        ((NOW, NOW), NOW - 7_000, NOW - 7_000),  # our broker lags
        ((NOW - 9_000, NOW - 5_000), NOW, NOW - 5_000),  # two of three have it
        ((NOW - 9_000, NOW - 5_000, NOW - 3_000, NOW - 1_000), NOW, NOW - 3_000),  # three of five have it
        ((NOW - 9_000, NOW - 5_000), NOW - 6_000, NOW - 6_000),
    ],
)
def test_it_is_what_our_broker_and_a_majority_have(fetched: tuple[int, ...], ours: int, known: int) -> None:
    assert quorum_known_until_ms(quorum(*fetched, ours=ours), OURS, NOW) == known - APPLY_MS


@pytest.mark.parametrize(
    ("look", "why"),
    [
        (quorum(-1, -1), "has not heard of a majority"),
        (quorum(NOW, NOW, ours=-1), f"does not know how far node {OURS}"),
    ],
)
def test_what_the_leader_does_not_know_is_said(look: QuorumRead, why: str) -> None:
    assert why in str(quorum_known_until_ms(look, OURS, NOW))
