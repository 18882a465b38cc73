"""Why the segments of a log are still there, and when they go.

Segments go as `UnifiedLog.deleteOldSegments` lets them, check after check. Whole segments go, from the oldest on: below
the log start offset, while the rest still has `retention.bytes`, while the largest timestamp of each is older than
`retention.ms`; the active one too, which is rolled then, unless it is empty. Nothing goes whose end is above the high
watermark. A segment that none of this takes keeps all later ones. In which order the three are looked at differs
between releases, and with it what one check deletes; the checks are repeated, and what they delete in the end is the
same.

A compacted log keeps the newest record of each key: only what is below the log start offset goes by whole segments. The
cleaner takes a log when the share of its cleanable bytes is strictly above `min.cleanable.dirty.ratio`, or when a
closed segment that it has not cleaned begins with a record older than `max.compaction.lag.ms`
(`LogCleanerManager.grabFilthiestCompactedLog`, `LogToClean`). Cleanable is what lies between the first dirty offset
(`cleaner-offset-checkpoint`) and the lowest of: the last stable offset, the active segment, the first closed segment
with a record that is younger than `min.compaction.lag.ms` (`LogCleanerManager.cleanableOffsets`). All of it is the
cleaner's work, retention of `compact,delete` too (`LogCleaner.cleanFilthiestLog`): where `log.cleaner.enable` is false,
nothing goes (`LogManager.cleanupLogs` passes compacted logs over).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from math import floor
from typing import Final, Literal, NamedTuple

from logagent.base.records import ConfigEntry, Reason, TopicPartition
from logagent.base.units import human_time, in_units
from logagent.kafka.retention import settings as names
from logagent.kafka.retention.settings import (
    AS_LOCAL_RETENTION,
    AS_RETENTION,
    Layers,
    LogSegment,
    oldest_that_go,
)


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
    CLEANABLE = "cleanable"
    CLEANER_OFF = "cleaner-off"
    OPEN_TRANSACTION = "open-transaction"
    BELOW_LOG_START = "below-log-start"
    ABOVE_HIGH_WATERMARK = "above-high-watermark"
    NOT_YET_TIERED = "not-yet-tiered"
    COPY_DELAYED = "copy-delayed"
    SETTINGS_UNKNOWN = "settings-unknown"
    UNREADABLE = "unreadable"
    # Beside the segments.
    DELETED_FILES = "deleted-files"
    ACTIVE_INDEXES = "active-indexes"
    PRODUCER_SNAPSHOTS = "producer-snapshots"
    PARTITION_FILES = "partition-files"
    # Whole directories, and what is beside them.
    ORPHAN = "orphan"
    STRAY = "stray"
    MARKED = "marked"
    MOVE = "move"
    NOT_LOADED = "not-loaded"
    METADATA_LOG = "metadata-log"
    INDEX_CACHE = "index-cache"
    NOT_A_LOG = "not-a-log"
    LOG_DIR_FILES = "log-dir-files"
    OPEN_REMOVED = "open-removed"
    UNEXPLAINED = "unexplained"


IN_WORDS: Final = {
    RetentionReason.DUE: "past its retention",
    RetentionReason.RETENTION: "retention not reached",
    RetentionReason.ACTIVE: "active segment",
    RetentionReason.OLDER_SEGMENT: "behind an older segment",
    RetentionReason.FUTURE_TIMESTAMPS: "timestamps in the future",
    RetentionReason.SIZE: "retention.bytes not reached",
    RetentionReason.UNLIMITED: "kept for ever",
    RetentionReason.COMPACTED: "compacted",
    RetentionReason.NOT_YET_COMPACTED: "not yet compacted",
    RetentionReason.CLEANABLE: "compaction is due",
    RetentionReason.CLEANER_OFF: "the log cleaner is off",
    RetentionReason.OPEN_TRANSACTION: "open transaction",
    RetentionReason.BELOW_LOG_START: "below the log start offset",
    RetentionReason.ABOVE_HIGH_WATERMARK: "above the high watermark",
    RetentionReason.NOT_YET_TIERED: "local retention",
    RetentionReason.COPY_DELAYED: "copy to remote storage delayed",
    RetentionReason.SETTINGS_UNKNOWN: "settings unknown",
    RetentionReason.UNREADABLE: "unreadable",
    RetentionReason.DELETED_FILES: "deleted segments' files",
    RetentionReason.ACTIVE_INDEXES: "active segment's indexes",
    RetentionReason.PRODUCER_SNAPSHOTS: "old producer snapshots",
    RetentionReason.PARTITION_FILES: "other files of partitions",
    RetentionReason.ORPHAN: "orphan",
    RetentionReason.STRAY: "stray",
    RetentionReason.MARKED: "marked for deletion",
    RetentionReason.MOVE: "move between log dirs",
    RetentionReason.NOT_LOADED: "not loaded by the broker",
    RetentionReason.METADATA_LOG: "KRaft metadata log",
    RetentionReason.INDEX_CACHE: "remote index cache",
    RetentionReason.NOT_A_LOG: "not a partition",
    RetentionReason.LOG_DIR_FILES: "files beside partitions",
    RetentionReason.OPEN_REMOVED: "removed but open files",
    RetentionReason.UNEXPLAINED: "outside the log dirs",
}


class OpenTransaction(NamedTuple):
    """The oldest one of a partition, as its broker has it: its first offset, the id of its producer, and when that
    wrote last, by its own clock (-1: unknown)."""

    first: int
    producer: int
    last_ms: int


class Offsets(NamedTuple):
    """Of a partition, from the checkpoints of its log dir; None where it has no entry. `cleaned`: below it everything
    was compacted once. `unstable`: the first offset of its oldest open transaction, by its broker (`transaction`), else
    by its producer snapshot and what was written since; None if there is none, or it was not looked for. `as_of_ms`:
    where a broker runs, when it wrote the file of high watermarks (it does so every 5 s)."""

    log_start: int | None = None
    high_watermark: int | None = None
    cleaned: int | None = None
    unstable: int | None = None
    transaction: OpenTransaction | None = None
    as_of_ms: int | None = None


def offsets_of(
    partition: TopicPartition, checkpoints: Sequence[Mapping[TopicPartition, int]], as_of_ms: int | None = None
) -> Offsets:
    """`checkpoints`: of the log start, the high watermark and the cleaner, as far as they were read."""
    log_start, high_watermark, cleaned, *_ = (*(entries.get(partition) for entries in checkpoints), None, None, None)
    return Offsets(log_start, high_watermark, cleaned, as_of_ms=as_of_ms)


class Group(NamedTuple):
    """Bytes that stay for one reason, `why`: its date is when the first of them go. `last_at_ms`: and the last."""

    why: Reason
    bytes: int
    allocated: int
    segments: int = 0
    base: int | None = None
    last_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What is in force for one topic. `tiered`: what it has here goes by the local retention, once it is copied.
    `copy_lag_ms`, `copy_lag_bytes`: of a tiered topic, by which its copy is delayed; where they are set to that, the
    local retention. `cleaner`: `log.cleaner.enable` of this broker, `backoff_ms`: how long it waits between two
    rounds. `not_tiered`: why a topic with `remote.storage.enable` is not tiered; None for all others."""

    policy: ConfigEntry
    retention_ms: ConfigEntry
    retention_bytes: ConfigEntry
    segment_ms: ConfigEntry
    segment_bytes: ConfigEntry
    min_lag_ms: ConfigEntry
    max_lag_ms: ConfigEntry
    dirty_ratio: ConfigEntry
    jitter_ms: ConfigEntry
    index_bytes: ConfigEntry
    cleaner: ConfigEntry
    backoff_ms: ConfigEntry
    delete_ms: ConfigEntry
    tiered: bool = False
    copy_lag_ms: ConfigEntry | None = None
    copy_lag_bytes: ConfigEntry | None = None
    not_tiered: str | None = None

    @property
    def policies(self) -> frozenset[str]:
        return frozenset(word.strip() for word in (self.policy.text or "").split(",")) - {""}

    @property
    def reads_transactions(self) -> bool:
        """Whether an open transaction holds anything up: compaction, or copies to remote storage."""
        return self.tiered or "compact" in self.policies

    @property
    def reads_first_batches(self) -> bool:
        """Whether the first timestamp of each segment decides anything (`overdue_ms`)."""
        return "compact" in self.policies and (self.max_lag_ms.number or names.NEVER) < names.NEVER


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

    def why_not_tiered() -> str | None:
        if tiered or not on(names.TIERED):
            return None
        if names.is_never_tiered(topic, policy.text):
            return "internal and compacted topics never are"
        return "remote.log.copy.disable" if layers.may_tier else "remote.log.storage.system.enable is false here"

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
        max_lag_ms=layers.of(topic, names.MAX_COMPACTION_LAG_MS),
        dirty_ratio=layers.of(topic, names.MIN_DIRTY_RATIO),
        jitter_ms=layers.of(topic, names.SEGMENT_JITTER_MS),
        index_bytes=layers.of(topic, names.SEGMENT_INDEX_BYTES),
        cleaner=layers.default(names.CLEANER_ENABLE),
        backoff_ms=layers.default(names.CLEANER_BACKOFF_MS),
        delete_ms=layers.of(topic, names.DELETE_RETENTION_MS),
        tiered=tiered,
        copy_lag_ms=lag(names.REMOTE_COPY_LAG_MS, retention_ms),
        copy_lag_bytes=lag(names.REMOTE_COPY_LAG_BYTES, retention_bytes),
        not_tiered=why_not_tiered(),
    )


def explain_log(
    segments: Sequence[LogSegment],
    topic: TopicSettings,
    offsets: Offsets,
    now_ms: int,
    checked_since_ms: int | None = None,
) -> list[Group]:
    """Every segment's bytes with their reason, oldest first; neighbours with the same reason are one group.
    `checked_since_ms`: since when the running broker checks its logs; None: none does."""
    groups: list[Group] = []
    last_kind: tuple[object, ...] = ()
    for group in _Log(segments, topic, offsets, now_ms, checked_since_ms).explained():
        why = group.why
        kind = why.code, why.setting, why.until, why.until_ms is None
        if kind != last_kind:
            groups.append(group)
            last_kind = kind
            continue
        last = groups[-1]
        groups[-1] = last._replace(
            bytes=last.bytes + group.bytes,
            allocated=last.allocated + group.allocated,
            segments=last.segments + group.segments,
            last_at_ms=group.last_at_ms,
        )
    return groups


def bytes_due(segments: Sequence[LogSegment], topic: TopicSettings, offsets: Offsets, now_ms: int) -> int:
    """Allocated bytes that the next checks delete; of a tiered topic once they are copied, and without the active
    segment, which is rolled first."""
    size = 0
    for s, g in zip(segments, _Log(segments, topic, offsets, now_ms).explained(), strict=True):
        due = g.why.code in GOING and g.why.until_ms is not None and g.why.until_ms <= now_ms
        size += g.allocated if due and not (topic.tiered and s.active) else 0
    return size


def because(
    reason: RetentionReason, setting: ConfigEntry | None = None, until_ms: int | None = None, until: str | None = None
) -> Reason:
    """Why bytes stay, and what ends that."""
    return Reason(IN_WORDS[reason], code=reason, until_ms=until_ms, until=until, setting=setting)


# At the next checks, and then the next segment is looked at.
GOING: Final = (RetentionReason.DUE, RetentionReason.BELOW_LOG_START, RetentionReason.NOT_YET_TIERED)
_HIGH_WATERMARK = "it is replicated (the high watermark is {0}; the in-sync replicas have to fetch up to {1})"
_COPIED = "it is copied to remote storage"
_ROLLED_AND_COPIED = "it is rolled, and copied to remote storage"
_NO_MORE_WRITES = "nothing more is written to it (the check begins a new segment)"
_FIND_HANGING = "kafka-transactions.sh find-hanging: one that never does"
_LOOK_IN_LOG = "; if it stays, look for 'as uncleanable' and 'kafka-log-cleaner-thread' in the broker's log"
_LONG_MS = 3_600_000
# Followers fetch at least every `replica.fetch.wait.max.ms`, 500 by default.
_FETCH_MS = 1000
_NEWER = "newer records with the same keys are compacted"
_PASSED_OVER = (
    "or at the broker's next start: no check took it since {0}; unless its retention is new, a cancelled move between"
    " log dirs or an error stops them (see the broker's log)"
)


class _Log:
    def __init__(
        self,
        segments: Sequence[LogSegment],
        topic: TopicSettings,
        offsets: Offsets,
        now_ms: int,
        checked_since_ms: int | None = None,
    ) -> None:
        self.segments, self.topic, self.offsets, self.now_ms = segments, topic, offsets, now_ms
        self.checked_since_ms = checked_since_ms
        self.compacts = "compact" in topic.policies
        self.cleaner = (topic.cleaner.text or "").strip().lower() if self.compacts else "true"
        # `LogManager.cleanupLogs`: without a cleaner nobody goes through compacted logs.
        self.deletes = "delete" in topic.policies and self.cleaner == "true"
        self.ms, self.size = topic.retention_ms.number, topic.retention_bytes.number
        self.upto = list(accumulate(s.bytes for s in segments))
        start = offsets.log_start
        # `deleteLogStartOffsetBreachedSegments`
        self.below = 0 if start is None else sum(s.base <= start for s in segments[1:])
        self.below = self.below if self.cleaner == "true" else 0
        self.breaches = self._breaches() if self.deletes else []
        self.high_watermark = self._known_high_watermark()

    def explained(self) -> Iterator[Group]:
        going, follows, blocked, date = True, True, False, self.now_ms
        for i, s in enumerate(self.segments):
            due = self._due(i) if follows else None
            going = going and due is not None and due.code in GOING
            # Past its retention all the same, and behind one whose copy is delayed.
            follows = due is not None and due.code in (*GOING, RetentionReason.COPY_DELAYED)
            why = due if due is not None else self._waits(i) if self.deletes else self._kept(i)
            if not going:
                if why.until_ms is not None and blocked:
                    why = because(RetentionReason.OLDER_SEGMENT, why.setting, None, "the segments before it go")
                elif why.until_ms is not None and why.until_ms < date:
                    why = because(RetentionReason.OLDER_SEGMENT, why.setting, date, why.until)
                blocked = blocked or why.until_ms is None
                date = max(date, why.until_ms or date)
            yield Group(why, s.bytes, s.allocated, 1, s.base, why.until_ms)

    def _breaches(self) -> list[tuple[bool, bool]]:
        """By time and size, from the first segment that is not below the log start offset on."""
        left = self.segments[self.below :]
        return oldest_that_go(
            [s.bytes for s in left],
            (s.largest_ms for s in left),
            self.now_ms,
            -1 if self.ms is None else self.ms,
            -1 if self.size is None else self.size,
        )

    def _due(self, i: int) -> Reason | None:
        """What becomes of a segment at the next checks, if all before it go then; None if it stays."""
        s, topic = self.segments[i], self.topic
        if i < self.below:
            return self._unless_above(i, because(RetentionReason.BELOW_LOG_START, None, self.now_ms))
        if i - self.below >= len(self.breaches) or (s.active and s.bytes == 0):
            return None
        setting = topic.retention_ms if self.breaches[i - self.below][0] else topic.retention_bytes
        found = because(RetentionReason.DUE, setting, self.now_ms, self._passed_over())
        if topic.tiered:
            found = self._once_copied(i, setting, self.now_ms)
        return self._unless_above(i, found) if found.code in GOING else found

    def _passed_over(self) -> str | None:
        """What is suspected if the checks should have taken the oldest segment long ago (such as KAFKA-15082)."""
        oldest, since = self.segments[self.below], self.checked_since_ms
        if since is None or not self.breaches[0][0] or oldest.largest_ms is None or self.ms is None:
            return None
        due_ms = max(since, oldest.largest_ms + self.ms)
        return _PASSED_OVER.format(human_time(due_ms)) if due_ms + _LONG_MS < self.now_ms else None

    def _once_copied(self, i: int, setting: ConfigEntry, at_ms: int) -> Reason:
        """Of a tiered topic, a segment that its retention leaves here until `at_ms`, by `setting`: until it is copied,
        if that comes later (`RemoteLogManager.RLMCopyTask.isEligibleForUpload`, by age or by the bytes of newer
        segments; one that is not keeps back all after it). Which are copied already, no file here says."""
        s, lag = self.segments[i], self.topic.copy_lag_ms
        unstable = self.offsets.unstable
        if unstable is not None and unstable < self._upper_bound(i):
            # `RLMCopyTask.copyLogSegmentsToRemote`: up to the last stable offset.
            return because(RetentionReason.OPEN_TRANSACTION, None, None, self._committed())
        copied = _ROLLED_AND_COPIED if s.active else _COPIED
        ms, size = (0 if found is None else found.number for found in (lag, self.topic.copy_lag_bytes))
        newer = self.upto[-1] - self.upto[i]
        if ms is None or size is None:
            return because(RetentionReason.NOT_YET_TIERED, setting, at_ms, f"{copied} (how much later is not known)")
        aged = s.largest_ms is None or s.largest_ms > self.now_ms or (ms > 0 and s.largest_ms + ms <= at_ms)
        if 0 in (ms, size) or (ms > 0 and aged) or 0 < size <= newer:
            return because(RetentionReason.NOT_YET_TIERED, setting, at_ms, copied)
        grows = f"{size - newer} more bytes are written to the partition" if size > 0 else None
        if ms > 0 and s.largest_ms is not None:
            first = f"{copied}, at that time or once {grows}" if grows is not None else copied
            return because(RetentionReason.COPY_DELAYED, lag, s.largest_ms + ms, first)
        return because(RetentionReason.COPY_DELAYED, self.topic.copy_lag_bytes, None, grows)

    def _unless_above(self, i: int, found: Reason) -> Reason:
        upper, hw = self._upper_bound(i), self.high_watermark
        if hw is None or hw >= upper:
            return found
        return because(RetentionReason.ABOVE_HIGH_WATERMARK, found.setting, None, _HIGH_WATERMARK.format(hw, upper))

    def _known_high_watermark(self) -> int | None:
        """The one of the file; None if the segment that it would hold back was written to since, which a running broker
        may have replicated by now."""
        hw, as_of_ms = self.offsets.high_watermark, self.offsets.as_of_ms
        if hw is None or as_of_ms is None:
            return hw
        held = next((s for i, s in enumerate(self.segments) if self._upper_bound(i) > hw), None)
        return hw if held is None or (held.written_ms or as_of_ms) < as_of_ms - _FETCH_MS else None

    def _upper_bound(self, i: int) -> int:
        """`upperBoundOffset`: the base of the next segment, else the log end; where that is unknown, no offset is
        above it."""
        upper = self.segments[i + 1].base if i + 1 < len(self.segments) else self.segments[i].end
        return -1 if upper is None else upper

    def _waits(self, i: int) -> Reason:
        """Why a segment stays that no check deletes now, of a log that retention deletes from."""
        s, topic = self.segments[i], self.topic
        if s.active and s.bytes == 0:
            return because(RetentionReason.ACTIVE, None, None, "records are written to it")
        ms, size = self.ms, self.size
        if ms is None or size is None:
            return because(
                RetentionReason.SETTINGS_UNKNOWN, topic.retention_ms if ms is None else topic.retention_bytes
            )
        if ms >= 0:
            return self._by_time(i, ms)
        if s.active and self._is_emptied(s):
            return because(RetentionReason.ACTIVE, topic.segment_bytes, None, self._rolls(s))
        if size < 0:
            return because(RetentionReason.UNLIMITED, topic.retention_ms)
        if i and self.upto[-1] - self.upto[i - 1] < size:
            # How much more has to be written is said of the oldest that stays.
            return because(RetentionReason.SIZE, topic.retention_bytes, None, "the partition grows beyond it")
        more = in_words(max(size - (self.upto[-1] - self.upto[i]), 1))
        first = f"{more} more are written to the partition (each has {topic.retention_bytes.key} of its own)"
        if s.active:
            # Never the active one while the limit is above 0: what is left without it would be nothing.
            first = f"{self._rolls(s)}; and {first}"
        return because(RetentionReason.SIZE, topic.retention_bytes, None, first)

    def _by_time(self, i: int, ms: int) -> Reason:
        s, setting = self.segments[i], self.topic.retention_ms
        if s.largest_ms is None:
            return because(RetentionReason.UNREADABLE, setting, None, "its timestamps can be read")
        # Kafka: now - largest > retention.
        at_ms = s.largest_ms + ms + 1
        if s.largest_ms > self.now_ms:
            return because(RetentionReason.FUTURE_TIMESTAMPS, setting, at_ms)
        if self.topic.tiered:
            return self._once_copied(i, setting, at_ms)
        found = because(RetentionReason.RETENTION, setting, at_ms)
        if s.active:
            found = because(RetentionReason.ACTIVE, setting, at_ms, _NO_MORE_WRITES)
        above = self._unless_above(i, found)
        return above if above is found else replace(above, until_ms=at_ms)

    def _kept(self, i: int) -> Reason:
        """Why a segment stays of a log from which retention deletes nothing."""
        s, topic = self.segments[i], self.topic
        if topic.policy.text is None:
            return because(RetentionReason.SETTINGS_UNKNOWN, topic.policy)
        if not self.compacts:
            return because(RetentionReason.UNLIMITED, topic.policy)
        if self.cleaner != "true":
            known = topic.cleaner.text is not None
            return because(RetentionReason.CLEANER_OFF if known else RetentionReason.SETTINGS_UNKNOWN, topic.cleaner)
        if s.active:
            return because(RetentionReason.ACTIVE, topic.segment_bytes, None, self._rolls(s))
        lag = topic.min_lag_ms.number or 0
        start, cleaned, unstable = self.offsets.log_start, self.offsets.cleaned, self.offsets.unstable
        found = cleanable_offsets(
            self.segments,
            log_start=start,
            cleaned=cleaned,
            high_watermark=self.high_watermark,
            unstable=unstable,
            lag_ms=lag,
            now_ms=self.now_ms,
        )
        if s.base < found.dirty and cleaned is not None:
            after = topic.delete_ms.text or "it"
            first = f"{_NEWER}; tombstones by a cleaning {topic.delete_ms.key}={after} after the one that reached them"
            return because(RetentionReason.COMPACTED, topic.policy, None, first)
        if s.base < found.upto:
            return self._cleanable(found)
        if found.bound == "transaction":
            return because(RetentionReason.OPEN_TRANSACTION, None, None, self._committed())
        if found.bound == "high-watermark":
            first = _HIGH_WATERMARK.format(self.high_watermark, self._upper_bound(i))
            return because(RetentionReason.ABOVE_HIGH_WATERMARK, topic.policy, None, first)
        if s.largest_ms is None:
            return because(RetentionReason.UNREADABLE, topic.min_lag_ms, None, "its timestamps can be read")
        return because(RetentionReason.NOT_YET_COMPACTED, topic.min_lag_ms, s.largest_ms + lag)

    def _cleanable(self, found: CleanableOffsets) -> Reason:
        """Why the cleaner has not taken a segment that it may take: too little is dirty, or it comes to it."""
        topic, why = self.topic, RetentionReason.NOT_YET_COMPACTED
        overdue = overdue_ms(self.segments, found.dirty, topic.max_lag_ms.number or names.NEVER)
        try:
            ratio = float(topic.dirty_ratio.text or "")
        except ValueError:
            return because(RetentionReason.SETTINGS_UNKNOWN, topic.dirty_ratio)
        setting = topic.dirty_ratio if found.ratio > ratio else topic.max_lag_ms
        if found.ratio > ratio or (overdue is not None and overdue <= self.now_ms):
            share = f"{found.ratio:.0%} is not compacted: the log cleaner's next round takes it"
            since = max((s.largest_ms or 0 for s in self.segments if s.base < found.upto), default=0)
            if max(since + (topic.min_lag_ms.number or 0), overdue or 0) + _LONG_MS < self.now_ms:
                share += _LOOK_IN_LOG
            return because(RetentionReason.CLEANABLE, setting, None, share)
        more = found.more(ratio)
        share = f"{found.ratio:.0%} is not compacted, and"
        ways = [f"{in_words(more)} more are in closed segments"] if more is not None else []
        if overdue is not None:
            return because(why, topic.max_lag_ms, overdue, f"or once {ways[0]}" if ways else None)
        if not ways:
            return because(why, topic.dirty_ratio, None, "max.compaction.lag.ms is set, or a ratio below 1")
        return because(why, topic.dirty_ratio, None, f"{share} {ways[0]}")

    def _committed(self) -> str:
        open_ = self.offsets.transaction
        last = f", which wrote at {human_time(open_.last_ms)} last" if open_ is not None and open_.last_ms >= 0 else ""
        whose = f"of producer {open_.producer}{last}; " if open_ is not None else ""
        return f"the transaction that began at offset {self.offsets.unstable} ends ({whose}{_FIND_HANGING})"

    def _is_emptied(self, s: LogSegment) -> bool:
        """Whether all records of the active segment are below the log start offset (`kafka-delete-records.sh`)."""
        return bool(s.bytes) and s.end is not None and (self.offsets.log_start or 0) >= s.end

    def _rolls(self, s: LogSegment) -> str:
        topic = self.topic
        ms, lag = topic.segment_ms.number, topic.max_lag_ms.number or 0
        # `LogConfig.maxSegmentMs`
        ms = min(ms, lag) if ms is not None and self.compacts and lag > 0 else ms
        deleted = " (all its records are deleted already)" if self._is_emptied(s) else ""
        when = when_rolled(
            s,
            size=topic.segment_bytes.number,
            index_bytes=topic.index_bytes.number,
            ms=ms,
            jitter_ms=topic.jitter_ms.number,
            now_ms=self.now_ms,
        )
        return when + deleted


# What the log cleaner does with a compacted log, and when a segment ends

_Bound = Literal["active", "high-watermark", "transaction", "lag"]


class CleanableOffsets(NamedTuple):
    """`dirty`: the first dirty offset; `upto`: the base offset of the first segment that is not cleaned yet, by
    `bound`; `clean`, `cleanable`: bytes below and between."""

    dirty: int
    upto: int
    bound: _Bound
    clean: int
    cleanable: int

    @property
    def ratio(self) -> float:
        whole = self.clean + self.cleanable
        return self.cleanable / whole if whole else 0.0

    def more(self, ratio: float) -> int | None:
        """How many more cleanable bytes bring the share above `ratio`; None if none can (at 1)."""
        if ratio >= 1:
            return None
        more = max(floor((ratio * (self.clean + self.cleanable) - self.cleanable) / (1 - ratio)) + 1, 1)
        # Kafka compares doubles: rounding may take one byte more.
        return more if self._replace(cleanable=self.cleanable + more).ratio > ratio else more + 1


def cleanable_offsets(
    segments: Sequence[LogSegment],
    *,
    log_start: int | None,
    cleaned: int | None,
    high_watermark: int | None,
    unstable: int | None,
    lag_ms: int,
    now_ms: int,
) -> CleanableOffsets:
    """`LogCleanerManager.cleanableOffsets` and `calculateCleanableBytes`. `segments`: not empty, the last one active;
    `unstable`: the first offset of the oldest open transaction. What is None does not bound it. A closed segment whose
    timestamps cannot be read counts as within the lag."""
    active = segments[-1]
    start = max(log_start or 0, segments[0].base)
    dirty = (
        start if cleaned is None or cleaned < start or (active.end is not None and cleaned > active.end) else cleaned
    )
    closed = [s for s in segments[:-1] if s.base >= _floor(segments, dirty)] if dirty <= active.base else []
    within = (s.base for s in closed if s.largest_ms is None or s.largest_ms > now_ms - lag_ms)
    bounds: list[tuple[int, _Bound]] = [(active.base, "active")]
    bounds += [(high_watermark, "high-watermark")] if high_watermark is not None else []
    bounds += [(unstable, "transaction")] if unstable is not None else []
    bounds += [(base, "lag") for base in within if lag_ms > 0][:1]
    offset, bound = min(bounds, key=lambda each: each[0])
    offset = max(dirty, offset)
    upto = _floor(segments, offset) if offset < active.base else active.base
    first = _floor(segments, min(dirty, upto))
    return CleanableOffsets(
        dirty,
        upto,
        bound,
        sum(s.bytes for s in segments if s.base < dirty),
        sum(s.bytes for s in segments if first <= s.base < upto) if min(dirty, upto) < upto else 0,
    )


def _floor(segments: Sequence[LogSegment], offset: int) -> int:
    """The base offset of the segment that `offset` is in (`LogSegments.values`)."""
    return max((s.base for s in segments if s.base <= offset), default=segments[0].base)


def overdue_ms(segments: Sequence[LogSegment], dirty: int, max_lag_ms: int) -> int | None:
    """From when on the maximum lag makes the cleaner take a log, whatever the share of its dirty bytes
    (`LogCleanerManager.maxCompactionDelay`): by the first batch of each closed segment from `dirty` on. None if never,
    or if none of them was read."""
    if max_lag_ms >= names.NEVER:
        return None
    floor_ = _floor(segments, dirty)
    first = [s.first_ms for s in segments[:-1] if s.base >= floor_ and s.first_ms is not None and s.first_ms > 0]
    return min(first) + max(max_lag_ms, 0) + 1 if first else None


def when_rolled(
    s: LogSegment, *, size: int | None, index_bytes: int | None, ms: int | None, jitter_ms: int | None, now_ms: int
) -> str:
    """When the active segment `s` is followed by a new one (`LogSegment.shouldRoll`), in words: by its bytes, those of
    its indexes, and the age of its first record, of which a jitter is taken that a broker draws for each segment and
    keeps in memory. What is true already is left out."""
    if not s.bytes:
        return "records are written to it"
    # One entry is left free (`TimeIndex.isFull`).
    full = index_bytes is not None and 0 < index_bytes - 12 <= s.indexed
    left = None if size is None else size - s.bytes
    if full or (left is not None and left <= 0):
        return "a new segment starts: with the next record"
    ways = [] if left is None else [f"after {in_words(left)} more"]
    if s.first_ms is None or s.first_ms < 0:
        ways.append("segment.ms after the broker began or opened it")
    elif ms is not None and ms < names.NEVER:
        last = s.first_ms + ms + 1
        first = last - min(jitter_ms or 0, ms)
        if last <= now_ms:
            return "a new segment starts: with the next record"
        date = (
            human_time(last) if first == last else f"a time between {human_time(first)} and {human_time(last)} (jitter)"
        )
        ways.append(f"at the first write after {date}")
    return f"a new segment starts: {', or '.join(ways)}" if ways else "a new segment starts"


def in_words(count: int) -> str:
    size, unit = in_units(count)
    return f"{count} bytes" if unit == "B" else f"{size:.1f} {unit}"
