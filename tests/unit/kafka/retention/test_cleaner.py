"""What the log cleaner can take of a log, against a plain port of `LogCleanerManager` and `LogToClean`; when a segment
is followed by a new one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.units import human_time
from logagent.kafka.retention.reasons import cleanable_offsets, overdue_ms, when_rolled
from logagent.kafka.retention.settings import NEVER, LogSegment
from tests.hosts import NOW

DAY = 86_400_000
LATER = human_time(NOW + DAY + 1)


class KafkaLog:
    """`LogSegments.values`, and what `LogCleanerManager` and `LogToClean` make of it."""

    def __init__(self, segments: Sequence[LogSegment], log_start: int, stable: int) -> None:
        self.segments, self.log_start, self.stable = segments, log_start, stable
        self.active = segments[-1]

    def values(self, first: int, end: int) -> list[LogSegment]:
        if first == end:
            return []
        floor = max((s.base for s in self.segments if s.base <= first), default=-1)
        return [s for s in self.segments if floor <= s.base < end]

    def closed_from(self, first: int) -> list[LogSegment]:
        return [] if first > self.active.base else self.values(first, self.active.base)

    def offsets(self, cleaned: int | None, lag: int, now: int) -> tuple[int, int]:
        first = self.log_start if cleaned is None else cleaned
        if first < self.log_start or first > (self.active.end or 0):
            first = self.log_start
        bounds = [self.stable, self.active.base]
        if lag > 0:
            bounds += [s.base for s in self.closed_from(first) if (s.largest_ms or 0) > now - lag][:1]
        return first, max(first, min(bounds))

    def to_clean(self, first: int, uncleanable: int) -> tuple[int, int]:
        after = next(iter(self.closed_from(uncleanable)), self.active).base
        cleanable = sum(s.bytes for s in self.values(min(first, after), after))
        return sum(s.bytes for s in self.values(-1, first)), cleanable

    def overdue(self, first: int, lag: int, now: int) -> bool:
        times = [s.first_ms for s in self.closed_from(first) if s.first_ms is not None and s.first_ms > 0]
        return bool(times) and min(times) < now - max(lag, 0)


@st.composite
def logs(draw: st.DrawFn) -> list[LogSegment]:
    count = draw(st.integers(1, 6))
    first = draw(st.integers(0, 3)) * 10
    ages = draw(st.lists(st.integers(-2, 9), min_size=count, max_size=count))
    sizes = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    times = [NOW - age * DAY for age in ages]
    end = first + (count - 1) * 10 + draw(st.integers(0, 9))
    return [
        LogSegment(first + n * 10, size, 0, at, n == count - 1, at - 5, end if n == count - 1 else None)
        for n, (size, at) in enumerate(zip(sizes, times, strict=True))
    ]


@given(logs(), st.data())
def test_what_can_be_cleaned_is_what_kafka_finds(segments: list[LogSegment], data: st.DataObject) -> None:
    end = segments[-1].end or 0
    offsets = st.integers(segments[0].base, end)
    log_start, stable = data.draw(offsets), data.draw(offsets)
    cleaned = data.draw(st.none() | st.integers(0, end + 3))
    lag, most = data.draw(st.sampled_from([0, DAY, 4 * DAY])), data.draw(st.sampled_from([0, DAY, 3 * DAY, NEVER]))
    kafka = KafkaLog(segments, log_start, stable)
    first, uncleanable = kafka.offsets(cleaned, lag, NOW)
    found = cleanable_offsets(
        segments, log_start=log_start, cleaned=cleaned, high_watermark=end, unstable=stable, lag_ms=lag, now_ms=NOW
    )
    assert found.dirty == first
    assert (found.clean, found.cleanable) == kafka.to_clean(first, uncleanable)
    overdue = overdue_ms(segments, found.dirty, most)
    assert (overdue is not None and overdue <= NOW) == (most < NEVER and kafka.overdue(first, most, NOW))


@given(logs(), st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.9, 0.999]))
def test_so_many_more_bytes_and_not_one_less_make_it_dirty_enough(segments: list[LogSegment], ratio: float) -> None:
    found = cleanable_offsets(
        segments, log_start=None, cleaned=20, high_watermark=None, unstable=None, lag_ms=0, now_ms=NOW
    )
    more = found.more(ratio)
    if found.ratio > ratio or more is None:
        return
    assert found._replace(cleanable=found.cleanable + more).ratio > ratio
    assert more == 1 or found._replace(cleanable=found.cleanable + more - 2).ratio <= ratio + 1e-12


def test_at_a_ratio_of_1_no_share_is_enough() -> None:
    segments = [LogSegment(0, 10, 0, NOW), LogSegment(10, 10, 0, NOW, active=True, end=20)]
    found = cleanable_offsets(segments, log_start=0, cleaned=0, high_watermark=20, unstable=None, lag_ms=0, now_ms=NOW)
    assert (found.ratio, found.more(1.0)) == (1.0, None)


def rolled(s: LogSegment, size: int, index_bytes: int, ms: int, jitter_ms: int = 0) -> str:
    return when_rolled(s, size=size, index_bytes=index_bytes, ms=ms, jitter_ms=jitter_ms, now_ms=NOW)


@pytest.mark.parametrize(
    ("limits", "segment", "says"),
    [
        ((100, 1000, NEVER, 0), (40, NOW), "after 60 bytes more"),
        ((100, 1000, NEVER, 0), (100, NOW), "with the next record"),
        ((3 << 12, 1000, DAY, 0), (1 << 12, NOW), f"after 8.0 KiB more, or at the first write after {LATER}"),
        ((100, 1000, DAY, 3_600_000), (40, NOW), "a time between "),
        ((100, 1000, DAY, 0), (40, NOW - 2 * DAY), "with the next record"),
        ((100, 1000, DAY, 0), (40, -1), "segment.ms after the broker began or opened it"),
        ((100, 12, DAY, 0), (0, NOW), "records are written to it"),
    ],
)  # fmt: skip
def test_when_a_new_segment_starts(limits: tuple[int, int, int, int], segment: tuple[int, int], says: str) -> None:
    size, first_ms = segment
    assert says in rolled(LogSegment(0, size, 0, NOW, True, first_ms, 10), *limits)


def test_full_indexes_start_a_new_segment() -> None:
    segment = LogSegment(0, 40, 0, NOW, True, NOW, 10, indexed=240 - 12)
    assert rolled(segment, 1000, 240, NEVER) == "a new segment starts: with the next record"
    assert "after 960 bytes" in rolled(segment, 1000, 252, NEVER)
