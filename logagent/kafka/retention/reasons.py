"""Why the segments of a log are still there, and when they go.

Segments go as `UnifiedLog.deleteOldSegments` lets them, check after check. Whole segments go, from the oldest on: below
the log start offset, while the rest still has `retention.bytes`, while the largest timestamp of each is older than
`retention.ms`; the active one too, which is rolled then, unless it is empty. Nothing goes whose end is above the high
watermark. A segment that none of this takes keeps all later ones. In which order the three are looked at differs
between releases, and with it what one check deletes; the checks are repeated, and what they delete in the end is the
same.

A compacted log keeps the newest record of each key (`LogCleaner`): only what is below the log start offset goes by
whole segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Final, NamedTuple

from logagent.base.times import rfc3339
from logagent.kafka.retention import settings as names
from logagent.kafka.retention.settings import AS_LOCAL_RETENTION, AS_RETENTION, ConfigEntry, Layers
from logagent.kafka.retention.topic_retention import Breach, LogSegment, oldest_that_go


class RetentionReason(StrEnum):
    """Why bytes are still there."""

    DUE = "due"
    RETENTION = "retention"
    ACTIVE = "active"
    OLDER_SEGMENT = "older-segment"
    FUTURE_TIMESTAMPS = "future-timestamps"
    SIZE = "size"
    UNLIMITED = "unlimited"
    COMPACTED = "compacted"
    NOT_YET_COMPACTED = "not-yet-compacted"
    BELOW_LOG_START = "below-log-start"
    ABOVE_HIGH_WATERMARK = "above-high-watermark"
    NOT_YET_TIERED = "not-yet-tiered"
    COPY_DELAYED = "copy-delayed"
    SETTINGS_UNKNOWN = "settings-unknown"
    UNREADABLE = "unreadable"
    # Beside the segments.
    DELETED_FILES = "deleted-files"
    ACTIVE_INDEXES = "active-indexes"
    PARTITION_FILES = "partition-files"
    # Whole directories, and what is beside them.
    ORPHAN = "orphan"
    STRAY = "stray"
    MARKED = "marked"
    MOVE = "move"
    METADATA_LOG = "metadata-log"
    INDEX_CACHE = "index-cache"
    NOT_A_LOG = "not-a-log"
    LOG_DIR_FILES = "log-dir-files"
    OPEN_REMOVED = "open-removed"
    UNEXPLAINED = "unexplained"


class Offsets(NamedTuple):
    """Of a partition, from the checkpoints of its log dir; None where it has no entry. `cleaned`: below it everything
    was compacted once."""

    log_start: int | None = None
    high_watermark: int | None = None
    cleaned: int | None = None


class Group(NamedTuple):
    """Bytes that stay for one reason. `at_ms`: when the first of them go, at the earliest, and `last_at_ms` the last;
    None if no date is known. `first`: what must happen before they go, in words. `setting`: what decides it."""

    reason: RetentionReason
    bytes: int
    allocated: int
    segments: int = 0
    base: int | None = None
    at_ms: int | None = None
    last_at_ms: int | None = None
    setting: ConfigEntry | None = None
    first: str | None = None


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What is in force for one topic. `tiered`: what it has here goes by the local retention, once it is copied.
    `copy_lag_ms`, `copy_lag_bytes`: of a tiered topic, by which its copy is delayed; where they are set to that, the
    local retention."""

    policy: ConfigEntry
    retention_ms: ConfigEntry
    retention_bytes: ConfigEntry
    segment_ms: ConfigEntry
    segment_bytes: ConfigEntry
    min_lag_ms: ConfigEntry
    dirty_ratio: ConfigEntry
    tiered: bool = False
    copy_lag_ms: ConfigEntry | None = None
    copy_lag_bytes: ConfigEntry | None = None

    @property
    def policies(self) -> frozenset[str]:
        return frozenset(word.strip() for word in (self.policy.text or "").split(",")) - {""}


def settings_of(layers: Layers, topic: str) -> TopicSettings:
    """`UnifiedLog.localRetentionMs` and its like: the local retention counts where the topic is copied to remote
    storage, and where that is -2, the topic's retention."""

    def retention(name: str, local: str) -> ConfigEntry:
        found = layers.of(topic, local) if tiered else None
        return layers.of(topic, name) if found is None or found.number == AS_RETENTION else found

    def on(name: str) -> bool:
        return (layers.of(topic, name).text or "").strip().lower() == "true"

    def lag(name: str, local: ConfigEntry) -> ConfigEntry | None:
        found = layers.of(topic, name) if tiered else None
        return local if found is not None and found.number == AS_LOCAL_RETENTION else found

    policy = layers.of(topic, names.CLEANUP_POLICY)
    tiered = layers.may_tier and on(names.TIERED) and not on(names.COPY_DISABLED)
    tiered = tiered and not names.is_never_tiered(topic, policy.text)
    retention_ms = retention(names.RETENTION_MS, names.LOCAL_RETENTION_MS)
    retention_bytes = retention(names.RETENTION_BYTES, names.LOCAL_RETENTION_BYTES)
    return TopicSettings(
        policy=policy,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        segment_ms=layers.of(topic, names.SEGMENT_MS),
        segment_bytes=layers.of(topic, names.SEGMENT_BYTES),
        min_lag_ms=layers.of(topic, names.MIN_COMPACTION_LAG_MS),
        dirty_ratio=layers.of(topic, names.MIN_DIRTY_RATIO),
        tiered=tiered,
        copy_lag_ms=lag(names.REMOTE_COPY_LAG_MS, retention_ms),
        copy_lag_bytes=lag(names.REMOTE_COPY_LAG_BYTES, retention_bytes),
    )


def explain_log(segments: Sequence[LogSegment], topic: TopicSettings, offsets: Offsets, now_ms: int) -> list[Group]:
    """Every segment's bytes with their reason, oldest first; neighbours with the same reason are one group."""
    groups: list[Group] = []
    for group in _Log(segments, topic, offsets, now_ms).explained():
        last = groups[-1] if groups else None
        kind = (group.reason, group.setting, group.first, group.at_ms is None)
        if last is None or kind != (last.reason, last.setting, last.first, last.at_ms is None):
            groups.append(group)
            continue
        groups[-1] = last._replace(
            bytes=last.bytes + group.bytes,
            allocated=last.allocated + group.allocated,
            segments=last.segments + group.segments,
            last_at_ms=group.last_at_ms,
        )
    return groups


class _Waits(NamedTuple):
    """Why one segment stays, whatever the others do, and its date."""

    reason: RetentionReason
    setting: ConfigEntry | None
    at_ms: int | None = None
    first: str | None = None


# At the next checks, and then the next segment is looked at.
GOING: Final = (RetentionReason.DUE, RetentionReason.BELOW_LOG_START, RetentionReason.NOT_YET_TIERED)
_HIGH_WATERMARK = "it is replicated (the high watermark is {0}; the in-sync replicas have to fetch up to {1})"
_COPIED = "it is copied to remote storage"
_ROLLED_AND_COPIED = "it is rolled, and copied to remote storage"
_NO_MORE_WRITES = "nothing more is written to it"


class _Log:
    def __init__(self, segments: Sequence[LogSegment], topic: TopicSettings, offsets: Offsets, now_ms: int) -> None:
        self.segments, self.topic, self.offsets, self.now_ms = segments, topic, offsets, now_ms
        self.deletes = "delete" in topic.policies
        self.ms, self.size = topic.retention_ms.number, topic.retention_bytes.number
        self.upto = list(accumulate(s.bytes for s in segments))
        start = offsets.log_start
        # `deleteLogStartOffsetBreachedSegments`
        self.below = 0 if start is None else sum(s.base <= start for s in segments[1:])
        self.breaches = self._breaches() if self.deletes else []

    def explained(self) -> Iterator[Group]:
        going, follows, blocked, date = True, True, False, self.now_ms
        for i, s in enumerate(self.segments):
            due = self._due(i) if follows else None
            going = going and due is not None and due.reason in GOING
            # Past its retention all the same, and behind one whose copy is delayed.
            follows = due is not None and due.reason in (*GOING, RetentionReason.COPY_DELAYED)
            found = due if due is not None else self._waits(i) if self.deletes else self._kept(s)
            if going:
                yield self._group(s, found)
                continue
            if found.at_ms is not None and blocked:
                found = found._replace(
                    reason=RetentionReason.OLDER_SEGMENT, at_ms=None, first="the segments before it go"
                )
            elif found.at_ms is not None and found.at_ms < date:
                found = found._replace(reason=RetentionReason.OLDER_SEGMENT, at_ms=date)
            blocked = blocked or found.at_ms is None
            date = max(date, found.at_ms or date)
            yield self._group(s, found)

    @staticmethod
    def _group(s: LogSegment, found: _Waits) -> Group:
        at = found.at_ms
        return Group(found.reason, s.bytes, s.allocated, 1, s.base, at, at, found.setting, found.first)

    def _breaches(self) -> list[Breach]:
        """By time and size, from the first segment that is not below the log start offset on."""
        left = self.segments[self.below :]
        return oldest_that_go(
            [s.bytes for s in left],
            (s.largest_ms for s in left),
            self.now_ms,
            -1 if self.ms is None else self.ms,
            -1 if self.size is None else self.size,
        )

    def _due(self, i: int) -> _Waits | None:
        """What becomes of a segment at the next checks, if all before it go then; None if it stays."""
        s, topic = self.segments[i], self.topic
        if i < self.below:
            return self._unless_above(i, _Waits(RetentionReason.BELOW_LOG_START, None, self.now_ms))
        if i - self.below >= len(self.breaches) or (s.active and s.bytes == 0):
            return None
        setting = topic.retention_ms if self.breaches[i - self.below].time else topic.retention_bytes
        found = _Waits(RetentionReason.DUE, setting, self.now_ms)
        if topic.tiered:
            found = self._once_copied(i, setting, self.now_ms)
        return self._unless_above(i, found) if found.reason in GOING else found

    def _once_copied(self, i: int, setting: ConfigEntry, at_ms: int) -> _Waits:
        """Of a tiered topic, a segment that its retention leaves here until `at_ms`, by `setting`: until it is copied,
        if that comes later (`RemoteLogManager.RLMCopyTask.isEligibleForUpload`, by age or by the bytes of newer
        segments; one that is not keeps back all after it). Which are copied already, no file here says."""
        s, lag = self.segments[i], self.topic.copy_lag_ms
        copied = _ROLLED_AND_COPIED if s.active else _COPIED
        ms, size = (0 if found is None else found.number for found in (lag, self.topic.copy_lag_bytes))
        newer = self.upto[-1] - self.upto[i]
        if ms is None or size is None:
            return _Waits(RetentionReason.NOT_YET_TIERED, setting, at_ms, f"{copied} (how much later is not known)")
        aged = s.largest_ms is None or s.largest_ms > self.now_ms or (ms > 0 and s.largest_ms + ms <= at_ms)
        if 0 in (ms, size) or (ms > 0 and aged) or 0 < size <= newer:
            return _Waits(RetentionReason.NOT_YET_TIERED, setting, at_ms, copied)
        grows = f"{size - newer} more bytes are written to the partition" if size > 0 else None
        if ms > 0 and s.largest_ms is not None:
            first = f"{copied}, at that time or once {grows}" if grows is not None else copied
            return _Waits(RetentionReason.COPY_DELAYED, lag, s.largest_ms + ms, first)
        return _Waits(RetentionReason.COPY_DELAYED, self.topic.copy_lag_bytes, None, grows)

    def _unless_above(self, i: int, found: _Waits) -> _Waits:
        # `upperBoundOffset`: the base of the next segment, else the log end.
        upper = self.segments[i + 1].base if i + 1 < len(self.segments) else self.segments[i].end
        hw = self.offsets.high_watermark
        if hw is None or upper is None or hw >= upper:
            return found
        return _Waits(RetentionReason.ABOVE_HIGH_WATERMARK, found.setting, None, _HIGH_WATERMARK.format(hw, upper))

    def _waits(self, i: int) -> _Waits:
        """Why a segment stays that no check deletes now, of a log that retention deletes from."""
        s, topic = self.segments[i], self.topic
        if s.active and s.bytes == 0:
            return _Waits(RetentionReason.ACTIVE, None, None, "records are written to it")
        ms, size = self.ms, self.size
        if ms is None or size is None:
            return _Waits(RetentionReason.SETTINGS_UNKNOWN, topic.retention_ms if ms is None else topic.retention_bytes)
        if ms >= 0:
            return self._by_time(i, ms)
        if size < 0:
            return _Waits(RetentionReason.UNLIMITED, topic.retention_ms)
        if i and self.upto[-1] - self.upto[i - 1] < size:
            # How much more has to be written is said of the oldest that stays.
            return _Waits(RetentionReason.SIZE, topic.retention_bytes, None, "the log grows beyond it")
        more = max(size - (self.upto[-1] - self.upto[i]), 1)
        return _Waits(
            RetentionReason.SIZE, topic.retention_bytes, None, f"{more} more bytes are written to the partition"
        )

    def _by_time(self, i: int, ms: int) -> _Waits:
        s, setting = self.segments[i], self.topic.retention_ms
        if s.largest_ms is None:
            return _Waits(RetentionReason.UNREADABLE, setting, None, "its timestamps can be read")
        # Kafka: now - largest > retention.
        at_ms = s.largest_ms + ms + 1
        if s.largest_ms > self.now_ms:
            return _Waits(RetentionReason.FUTURE_TIMESTAMPS, setting, at_ms)
        if self.topic.tiered:
            return self._once_copied(i, setting, at_ms)
        if s.active:
            return _Waits(RetentionReason.ACTIVE, setting, at_ms, _NO_MORE_WRITES)
        found = _Waits(RetentionReason.RETENTION, setting, at_ms)
        above = self._unless_above(i, found)
        return above if above is found else above._replace(at_ms=at_ms)

    def _kept(self, s: LogSegment) -> _Waits:
        """Why a segment stays of a log from which retention deletes nothing."""
        if self.topic.policy.text is None:
            return _Waits(RetentionReason.SETTINGS_UNKNOWN, self.topic.policy)
        if "compact" not in self.topic.policies:
            return _Waits(RetentionReason.UNLIMITED, self.topic.policy)
        if s.active:
            return _Waits(RetentionReason.ACTIVE, self.topic.segment_bytes, None, self._rolls(s))
        if self.offsets.cleaned is not None and s.base < self.offsets.cleaned:
            return _Waits(
                RetentionReason.COMPACTED, self.topic.policy, None, "newer records with the same keys are compacted"
            )
        lag = self.topic.min_lag_ms.number
        if lag and s.largest_ms is not None and s.largest_ms + lag > self.now_ms:
            return _Waits(RetentionReason.NOT_YET_COMPACTED, self.topic.min_lag_ms, s.largest_ms + lag)
        first = "the share of what is not compacted exceeds it"
        return _Waits(RetentionReason.NOT_YET_COMPACTED, self.topic.dirty_ratio, None, first)

    def _rolls(self, s: LogSegment) -> str:
        """When the active segment is rolled: with a record that no longer fits (`LogSegment.shouldRoll`)."""
        size, ms = self.topic.segment_bytes.number, self.topic.segment_ms.number
        if not s.bytes or size is None:
            return "it is rolled"
        text = f"it is rolled, by a record beyond {max(size - s.bytes, 0)} more bytes"
        if ms is not None and s.first_ms is not None and s.first_ms >= 0:
            from_ms = s.first_ms + ms
            text += " or any record" if from_ms <= self.now_ms else f" or after {rfc3339(from_ms)}"
        return text
