"""Why segments stay and when they go, against a plain port of `UnifiedLog.deleteOldSegments`, check after check."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.dir_names import INTERNAL_TOPICS, NEVER_DELETED
from logagent.base.records import TopicPartition
from logagent.kafka.retention.reasons import Group, Offsets, RetentionReason, explain_log, offsets_of, settings_of
from logagent.kafka.retention.settings import Layers, LogSegment
from tests.hosts import NOW

DAY = 86_400_000
Predicate = Callable[[LogSegment, LogSegment | None], bool]


class KafkaLog:
    """The segments of a log, its high watermark and log start offset, and what one retention check does with them."""

    def __init__(self, segments: Sequence[LogSegment], offsets: Offsets, ms: int, size: int, delete: bool) -> None:
        self.segments, self.ms, self.size, self.delete = list(segments), ms, size, delete
        self.end = segments[-1].end if segments[-1].end is not None else segments[-1].base
        self.start, self.hw = (
            offsets.log_start or 0,
            self.end if offsets.high_watermark is None else offsets.high_watermark,
        )

    def check(self, now_ms: int, *, start_first: bool) -> None:
        steps: list[Callable[[], None]] = [self._by_start, self._by_size, lambda: self._by_time(now_ms)]
        steps = steps if start_first else [steps[2], steps[1], steps[0]]
        for step in steps if self.delete else [self._by_start]:
            step()

    def _by_time(self, now_ms: int) -> None:
        if self.ms >= 0:
            self._delete_old(lambda s, _: now_ms - (s.largest_ms or 0) > self.ms)

    def _by_size(self) -> None:
        total = sum(s.bytes for s in self.segments)
        if self.size < 0 or total < self.size:
            return
        left = [total - self.size]

        def over(s: LogSegment, _: LogSegment | None) -> bool:
            if left[0] - s.bytes < 0:
                return False
            left[0] -= s.bytes
            return True

        self._delete_old(over)

    def _by_start(self) -> None:
        self._delete_old(lambda _, after: after is not None and after.base <= self.start)

    def _delete_old(self, predicate: Predicate) -> None:
        gone = 0
        for i, s in enumerate(self.segments):
            after = self.segments[i + 1] if i + 1 < len(self.segments) else None
            upper = after.base if after is not None else self.end
            if not (self.hw >= upper and predicate(s, after)) or (after is None and s.bytes == 0):
                break
            gone += 1
        if gone == len(self.segments) > 0:
            self.segments.append(LogSegment(self.end, 0, 0, NOW, active=True, end=self.end))
        if gone:
            self.start = max(self.start, self.segments[gone].base)
        del self.segments[:gone]

    def after_checks(self, now_ms: int, *, start_first: bool) -> list[int]:
        """The bases that are left once nothing changes any more."""
        before = None
        while before != (before := [s.base for s in self.segments]):
            self.check(now_ms, start_first=start_first)
        return before


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[LogSegment], Offsets, int, int, str]:
    count = draw(st.integers(1, 6))
    sizes = draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
    sizes[-1] = draw(st.integers(0, 5))
    ages = draw(st.lists(st.integers(-3, 8), min_size=count, max_size=count))
    end = (count - 1) * 10 + 2 * sizes[-1]
    segments = [
        LogSegment(i * 10, size, 4096, NOW - age * DAY, i == count - 1, None, end if i == count - 1 else None)
        for i, (size, age) in enumerate(zip(sizes, ages, strict=True))
    ]
    offsets = Offsets(draw(st.none() | st.integers(0, end)), draw(st.none() | st.just(end) | st.integers(0, end)))
    ms = draw(st.sampled_from([-1, 0, DAY, 3 * DAY, 5 * DAY]))
    size = draw(st.sampled_from([-1, -1, 0, 3, 6, 10]))
    return segments, offsets, ms, size, draw(st.sampled_from(["delete", "delete", "compact", "compact,delete"]))


def explained(log: tuple[list[LogSegment], Offsets, int, int, str], now_ms: int = NOW) -> list[Group]:
    segments, offsets, ms, size, policy = log
    own = {"cleanup.policy": policy, "retention.ms": str(ms), "retention.bytes": str(size)}
    layers = Layers(topics={name: {"t": text} for name, text in own.items()}, file={}, complete=True)
    return explain_log(segments, settings_of(layers, "t"), offsets, now_ms)


def goes_now(groups: Sequence[Group]) -> int:
    """How many segments the next checks delete."""
    return sum(g.segments for g in groups if g.why.code in (RetentionReason.DUE, RetentionReason.BELOW_LOG_START))


@given(logs(), st.booleans())
def test_what_is_due_is_what_the_checks_delete(log: tuple[list[LogSegment], Offsets, int, int, str], new: bool) -> None:
    segments, offsets, ms, size, policy = log
    groups = explained(log)
    assert sum(g.segments for g in groups) == len(segments)
    assert sum(g.bytes for g in groups) == sum(s.bytes for s in segments)
    kafka = KafkaLog(segments, offsets, ms, size, "delete" in policy)
    left = kafka.after_checks(NOW, start_first=new)
    assert [s.base for s in segments[goes_now(groups) :]] == [
        base for base in left if base in {s.base for s in segments}
    ]


def held_back(written_ms: int, as_of_ms: int | None) -> list[str]:
    """Of a log that is past its retention, with a high watermark in its second segment, which was written then."""
    segments = [
        LogSegment(base, 5, 4096, NOW - 8 * DAY, base == 20, end=22 if base == 20 else None, written_ms=at_ms)
        for base, at_ms in ((0, NOW - DAY), (10, written_ms), (20, NOW))
    ]
    offsets = Offsets(high_watermark=12, as_of_ms=as_of_ms)
    return [g.why.code for g in explained((segments, offsets, DAY, -1, "delete")) for _ in range(g.segments)]


def test_a_high_watermark_from_before_the_last_writes_holds_nothing_back() -> None:
    """A running broker writes the file every 5 s, and replicates meanwhile."""
    due, above, after = RetentionReason.DUE, RetentionReason.ABOVE_HIGH_WATERMARK, RetentionReason.OLDER_SEGMENT
    assert held_back(NOW - 100, as_of_ms=NOW - 4_000) == [due, due, due]
    # It was not replicated although there was time.
    assert held_back(NOW - 9_000, as_of_ms=NOW - 4_000) == [due, above, after]
    # No broker runs: the next one begins with what the file says.
    assert held_back(NOW - 100, as_of_ms=None) == [due, above, after]


@given(logs())
def test_each_date_is_when_the_checks_delete_it_and_not_earlier(
    log: tuple[list[LogSegment], Offsets, int, int, str],
) -> None:
    segments, offsets, ms, size, policy = log
    # Those of the future are replicated by then.
    offsets = Offsets(offsets.log_start, None)
    groups = explained((segments, offsets, ms, size, policy))
    dated = [g for g in groups if g.why.until_ms is not None and g.why.until_ms > NOW]
    for g in dated:
        assert g.why.until_ms is not None and g.base is not None
        early = KafkaLog(segments, offsets, ms, size, "delete" in policy)
        assert g.base in early.after_checks(g.why.until_ms - 1, start_first=True), g
        late = KafkaLog(segments, offsets, ms, size, "delete" in policy)
        assert g.base not in late.after_checks(g.why.until_ms, start_first=True), g
    undated = [g for g in groups if g.why.until_ms is None and g.why.code is not RetentionReason.ABOVE_HIGH_WATERMARK]
    for g in undated:
        ever = KafkaLog(segments, offsets, ms, size, "delete" in policy)
        assert g.base in ever.after_checks(NOW + 1000 * DAY, start_first=True), g


def test_what_is_not_known_is_said() -> None:
    segments = [LogSegment(0, 5, 4096, NOW, active=True)]
    (unknown,) = explain_log(segments, settings_of(Layers(), "t"), Offsets(), NOW)
    assert unknown.why.code is RetentionReason.SETTINGS_UNKNOWN
    layers = Layers(topics={"retention.ms": {"t": "${file:x}"}}, file={}, complete=True)
    (unknown,) = explain_log(segments, settings_of(layers, "t"), Offsets(), NOW)
    assert unknown.why.code is RetentionReason.SETTINGS_UNKNOWN and unknown.why.setting is not None


def test_a_segment_whose_timestamps_cannot_be_read_keeps_the_later_ones() -> None:
    segments = [LogSegment(0, 5, 0, None), LogSegment(9, 5, 0, 0), LogSegment(12, 0, 0, NOW, active=True)]
    groups = explain_log(segments, settings_of(Layers(file={}, complete=True), "t"), Offsets(), NOW)
    assert [g.why.code for g in groups] == [
        RetentionReason.UNREADABLE,
        RetentionReason.OLDER_SEGMENT,
        RetentionReason.ACTIVE,
    ]


@pytest.mark.parametrize(("count", "groups"), [(1, 2), (500, 2)])
def test_neighbours_with_the_same_reason_are_one_group(count: int, groups: int) -> None:
    segments = [LogSegment(i, 5, 4096, NOW - (count - i)) for i in range(count)]
    segments.append(LogSegment(count, 5, 4096, NOW, active=True, end=count + 1))
    found = explain_log(segments, settings_of(Layers(file={}, complete=True), "t"), Offsets(), NOW)
    assert len(found) == groups and found[0].segments == count
    assert (found[0].why.until_ms, found[0].last_at_ms) == (NOW - count + 7 * DAY + 1, NOW - 1 + 7 * DAY + 1)


@pytest.mark.parametrize(
    ("own", "file", "tiered"),
    [
        ({"remote.storage.enable": "true"}, {"remote.log.storage.system.enable": "true"}, True),
        ({"remote.storage.enable": "true"}, None, True),
        ({"remote.storage.enable": "true"}, {}, False),
        ({"remote.storage.enable": "true", "remote.log.copy.disable": "true"}, None, False),
        ({"remote.storage.enable": "true", "cleanup.policy": "compact"}, None, False),
        ({}, None, False),
    ],
)
def test_which_topics_go_by_their_local_retention(
    own: dict[str, str], file: dict[str, str] | None, tiered: bool
) -> None:
    own = {"retention.ms": "1", "local.retention.ms": "2", **own}
    layers = Layers(topics={name: {"t": text} for name, text in own.items()}, file=file, complete=True)
    found = settings_of(layers, "t")
    assert (found.tiered, found.retention_ms.number) == (tiered, 2 if tiered else 1)
    as_retention = Layers(topics={**layers.topics, "local.retention.ms": {"t": "-2"}}, file=file, complete=True)
    assert settings_of(as_retention, "t").retention_ms.number == 1


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS | NEVER_DELETED))
def test_internal_topics_are_never_tiered(topic: str) -> None:
    own = {"remote.storage.enable": "true", "retention.ms": "1", "local.retention.ms": "2", "cleanup.policy": "delete"}
    layers = Layers(topics={name: {topic: text} for name, text in own.items()}, complete=True)
    found = settings_of(layers, topic)
    assert (found.tiered, found.retention_ms.number) == (False, 1)


def test_below_the_log_start_offset_nothing_has_to_be_copied_to_remote_storage() -> None:
    segments = [LogSegment(0, 5, 0, 0), LogSegment(9, 5, 0, 0), LogSegment(12, 5, 0, NOW, active=True, end=20)]
    own = {"remote.storage.enable": "true", "local.retention.ms": str(DAY)}
    file = {"remote.log.storage.system.enable": "true"}
    layers = Layers(topics={name: {"t": text} for name, text in own.items()}, file=file, complete=True)
    groups = explain_log(segments, settings_of(layers, "t"), Offsets(log_start=9), NOW)
    assert [g.why.code for g in groups] == [
        RetentionReason.BELOW_LOG_START,
        RetentionReason.NOT_YET_TIERED,
        RetentionReason.NOT_YET_TIERED,
    ]


TIERED = {"remote.storage.enable": "true", "retention.ms": str(9 * DAY), "retention.bytes": "-1"}


def tiered(segments: Sequence[LogSegment], own: dict[str, str], file: dict[str, str] | None = None) -> list[Group]:
    file = {"remote.log.storage.system.enable": "true", **(file or {})}
    layers = Layers(topics={name: {"t": text} for name, text in (TIERED | own).items()}, file=file, complete=True)
    return explain_log(segments, settings_of(layers, "t"), Offsets(), NOW)


def ages(*days: float, size: int = 5) -> list[LogSegment]:
    """Segments whose newest record is so old; the last is active, and of now."""
    segments = [LogSegment(10 * i, size, 0, NOW - int(age * DAY)) for i, age in enumerate(days)]
    return [*segments, LogSegment(10 * len(days), size, 0, NOW, active=True, end=10 * len(days) + 1)]


@pytest.mark.parametrize(
    ("own", "file", "reasons", "setting"),
    [
        # By Kafka's defaults nothing is delayed, before 4.4 neither.
        ({}, {}, ["not-yet-tiered"] * 2, "local.retention.ms=86400000 (topic)"),
        ({"remote.copy.lag.bytes": "999"}, {}, ["not-yet-tiered"] * 2, "local.retention.ms=86400000 (topic)"),
        ({"remote.copy.lag.ms": str(DAY)}, {}, ["not-yet-tiered"] * 2, "local.retention.ms=86400000 (topic)"),
        # Longer than the local retention: by either, and the next ones wait for it.
        (
            {"remote.copy.lag.ms": str(4 * DAY)},
            {},
            ["copy-delayed"] * 2,
            "remote.copy.lag.ms=345600000 (topic)",
        ),
        (
            {},
            {"log.remote.copy.lag.ms": str(4 * DAY)},
            ["copy-delayed"] * 2,
            "log.remote.copy.lag.ms=345600000 (server.properties)",
        ),
        (
            {"remote.copy.lag.ms": str(4 * DAY), "remote.copy.lag.bytes": "5"},
            {},
            ["not-yet-tiered"] * 2,
            "local.retention.ms=86400000 (topic)",
        ),
        # As the local retention, which is over.
        ({"remote.copy.lag.ms": "-1"}, {}, ["not-yet-tiered"] * 2, "local.retention.ms=86400000 (topic)"),
    ],
)
def test_what_is_copied_later_stays_longer(
    own: dict[str, str], file: dict[str, str], reasons: list[str], setting: str
) -> None:
    groups = tiered(ages(3, 2), {"local.retention.ms": str(DAY), **own}, file)
    found = [g.why.code for g in groups for _ in range(g.segments)]
    assert found[:2] == reasons and str(groups[0].why.setting) == setting
    if found[0] == "copy-delayed":
        assert groups[0].why.until_ms == NOW + DAY


def test_what_is_copied_once_more_is_written_says_how_much() -> None:
    own = {"local.retention.bytes": "8", "local.retention.ms": "-1", "remote.copy.lag.ms": "-1"}
    groups = tiered(ages(3, 2), {**own, "remote.copy.lag.bytes": "30"})
    assert (groups[0].why.code, groups[0].why.until_ms, str(groups[0].why.setting)) == (
        RetentionReason.COPY_DELAYED,
        None,
        "remote.copy.lag.bytes=30 (topic)",
    )
    assert groups[0].why.until == "20 more bytes are written to the partition"
    assert tiered(ages(3, 2), {**own, "remote.copy.lag.bytes": "10"})[0].why.code is RetentionReason.NOT_YET_TIERED


def copied(segments: Sequence[LogSegment], now_ms: int, lag_ms: int, lag_bytes: int) -> int:
    """A port of `RLMCopyTask.candidateLogSegments`: how many of the oldest are copied."""
    newer = sum(s.bytes for s in segments)
    for i, s in enumerate(segments):
        newer -= s.bytes
        age = now_ms - (s.largest_ms or 0)
        by_time = lag_ms > 0 and (age < 0 or age >= lag_ms)
        if s.active or not (0 in (lag_ms, lag_bytes) or by_time or 0 < lag_bytes <= newer):
            return i
    return len(segments)


@given(logs(), st.sampled_from([-1, 0, DAY, 4 * DAY, 6 * DAY]), st.sampled_from([-1, 0, 1, 5, 12]))
def test_a_segment_of_a_tiered_topic_goes_once_it_is_past_local_retention_and_may_be_copied(
    log: tuple[list[LogSegment], Offsets, int, int, str], lag_ms: int, lag_bytes: int
) -> None:
    # What is of the future is copied at once.
    segments = [s._replace(largest_ms=min(s.largest_ms or 0, NOW)) for s in log[0]]
    ms, size = log[2:4]
    local = {"local.retention.ms": str(ms), "local.retention.bytes": str(size)}
    groups = tiered(segments, {**local, "remote.copy.lag.ms": str(lag_ms), "remote.copy.lag.bytes": str(lag_bytes)})

    def gone(now_ms: int) -> int:
        kafka = KafkaLog(segments, Offsets(), ms, size, delete=True)
        left = kafka.after_checks(now_ms, start_first=True)
        past = sum(s.base not in left for s in segments)
        return min(
            past, copied(segments, now_ms, ms if lag_ms == -1 else lag_ms, size if lag_bytes == -1 else lag_bytes)
        )

    index = -1
    for g in groups:
        first, index = index + 1, index + g.segments
        for i, at_ms in ((first, g.why.until_ms), (index, g.last_at_ms)):
            if segments[i].active:
                continue
            if at_ms is None:
                assert gone(NOW + 1000 * DAY) <= i, g
                continue
            assert gone(max(at_ms, NOW)) > i, g
            assert at_ms <= NOW or gone(at_ms - 1) <= i, g


def test_the_checkpoints_that_were_read() -> None:
    """rescue reads no cleaner's, and died of it."""
    where = TopicPartition("orders", 0)
    for read in range(4):
        found = offsets_of(where, [{where: 7}] * read)
        assert found[:3] == (*[7] * read, None, None, None)[:3]
