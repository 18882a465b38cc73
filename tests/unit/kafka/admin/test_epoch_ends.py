"""Which end of a leader epoch is believed, whatever epochs the leader still knows.

The leader answers as `LeaderEpochFileCache.endOffsetFor`, and for where it begins as
`UnifiedLog.fetchOffsetByTimestamp` (the epoch of its first record, if it knows it).
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.records import TopicPartition
from logagent.kafka.admin.client import AdminClient, ListOffsetsRequest
from logagent.kafka.admin.reader import Leader, ask_epoch_ends
from logagent.kafka.extents import EpochEnd, LogExtent
from logagent.verdict.copies import covers, end_of_epoch, past_retention

ORDERS = TopicPartition("orders", 0)
Epochs = tuple[tuple[int, int], ...]


class PartitionLeader:
    """Stands in for the connection to the leader of orders-0, whose log has these epochs and begins and ends there."""

    def __init__(self, epochs: Epochs, log_end: int, log_start: int = 0, committed: int | None = None) -> None:
        self.epochs, self.log_start, self.log_end = epochs, log_start, log_end
        self.high_watermark = log_end if committed is None else committed

    def refuses(self, asked: Any) -> int:
        """As `Partition.checkCurrentLeaderEpoch`: it leads in epoch 7, and answers whoever does not say."""
        return {-1: 0, 7: 0}.get(asked.current_leader_epoch, 74)

    def send(self, make_request: Callable[[], Any], node_id: int) -> Any:
        request = make_request()
        if isinstance(request, ListOffsetsRequest):
            asked = request.topics[0].partitions[0]
            first = [epoch for epoch, start in self.epochs[:1] if start <= self.log_start]
            offset, epoch = (self.log_start, [*first, -1][0]) if asked.timestamp == -2 else (self.high_watermark, 7)
            answer = SimpleNamespace(
                partition_index=0, error_code=self.refuses(asked), offset=offset, leader_epoch=epoch
            )
            return SimpleNamespace(topics=[SimpleNamespace(name="orders", partitions=[answer])])
        asked = request.topics[0].partitions[0]
        epoch, end = self.end_offset_for(asked.leader_epoch)
        answer = SimpleNamespace(partition=0, error_code=self.refuses(asked), leader_epoch=epoch, end_offset=end)
        return SimpleNamespace(topics=[SimpleNamespace(topic="orders", partitions=[answer])])

    def end_offset_for(self, asked: int) -> tuple[int, int]:
        if self.epochs and asked == self.epochs[-1][0]:
            return asked, self.log_end
        higher = [start for epoch, start in self.epochs if epoch > asked]
        if not higher:
            return -1, -1
        return max((epoch for epoch, _ in self.epochs if epoch <= asked), default=asked), higher[0]

    def answers(self, asked: int) -> EpochEnd:
        return ask_epoch_ends(cast(AdminClient, self), {ORDERS: Leader(1, 7)}, {ORDERS: asked})[ORDERS]


def stray(epoch: int, end: int) -> LogExtent:
    return LogExtent(0, end, ((epoch, 0),), last_segment=0)


def test_a_leader_that_knows_the_epoch_covers_what_it_has() -> None:
    leader = PartitionLeader(((0, 0), (2, 60)), log_end=100)
    assert covers(leader.answers(0), stray(0, 60))
    assert not covers(leader.answers(0), stray(0, 61))
    assert covers(leader.answers(2), stray(2, 100))
    assert not covers(leader.answers(1), stray(1, 60))


@pytest.mark.parametrize("first", [1, 2, 5])
@pytest.mark.parametrize("asked", [0, 1, 2])
def test_a_leader_that_lost_its_older_epochs_covers_nothing_of_them(first: int, asked: int) -> None:
    """It calls the start of the first epoch that it knows the end of each one before it. (What it says of that first
    one is true, and not believed: what came before it is not known.)"""
    leader = PartitionLeader(((first, 60),), log_end=100)
    assert leader.answers(asked).end_offset is None
    assert not covers(leader.answers(asked), stray(asked, 50))


def test_what_the_leader_let_go_of_is_not_covered() -> None:
    """It may have been a mistaken retention."""
    leader = PartitionLeader(((3, 60),), log_end=100, log_start=60)
    assert past_retention(leader.answers(0), stray(0, 60)) and not covers(leader.answers(0), stray(0, 60))
    assert not past_retention(leader.answers(0), stray(0, 61)) and not covers(leader.answers(0), stray(0, 61))


def test_what_the_leader_has_not_committed_is_not_covered() -> None:
    leader = PartitionLeader(((0, 0), (2, 60)), log_end=100, committed=80)
    assert covers(leader.answers(2), stray(2, 80))
    assert not covers(leader.answers(2), stray(2, 81))
    assert covers(leader.answers(0), stray(0, 60))


@pytest.mark.parametrize("epoch", [6, 8, -1])
def test_who_leads_in_another_epoch_is_not_believed(epoch: int) -> None:
    """-1 is what a broker before 2.1 says, and whoever is asked with that answers, deposed or not."""
    leader = cast(AdminClient, PartitionLeader(((0, 0),), log_end=100))
    assert ask_epoch_ends(leader, {ORDERS: Leader(1, 7)}, {ORDERS: 0})[ORDERS].end_offset == 100
    assert ask_epoch_ends(leader, {ORDERS: Leader(1, epoch)}, {ORDERS: 0}) == {}


LOGS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=4, unique_by=lambda e: e[0])


@given(LOGS, st.integers(0, 9), st.integers(1, 12), st.integers(0, 4))
def test_a_leader_is_never_believed_more_than_the_same_log_on_this_disk(
    epochs: list[tuple[int, int]], log_start: int, length: int, asked: int
) -> None:
    """The last epoch has records: a leader also answers for one that it was elected with and wrote nothing in, which
    no directory asks about, as it asks for the epoch of its last record."""
    ordered = tuple(zip(sorted(e for e, _ in epochs), sorted(s for _, s in epochs), strict=True))
    log_end = max([log_start, *(start for _, start in ordered)]) + length
    said = PartitionLeader(ordered, log_end, log_start).answers(asked)
    here = end_of_epoch("here", LogExtent(log_start, log_end, ordered, last_segment=log_start), asked)
    assert said.end_offset is None or (said.epoch, said.end_offset) == (here.epoch, here.end_offset)
