"""What operators ask in public about retention that "does not work", as short inputs, and what an expert answered."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from logagent.kafka.retention.reasons import Offsets, RetentionReason, explain_log, settings_of
from logagent.kafka.retention.settings import Layers, LogSegment
from tests.hosts import NOW

HOUR, DAY, GIB = 3_600_000, 86_400_000, 1 << 30
NO_ENTRIES = Offsets()


def log(*ages_days: float, sizes: int = 100, last: int | None = None) -> list[LogSegment]:
    """Segments of ten records with newest records of these ages; the last one is active."""
    newest = len(ages_days) - 1
    return [
        LogSegment(
            i * 10,
            sizes if i < newest or last is None else last,
            4096,
            NOW - int(age * DAY),
            active=i == newest,
            first_ms=NOW - int(age * DAY) if i == newest else None,
            end=i * 10 + 10 if i == newest else None,
        )
        for i, age in enumerate(ages_days)
    ]


@dataclass(frozen=True)
class Question:
    """`answer`: the reason of each group; `setting`: of the first; `goes`: days from now of the first, None = no date;
    `first`: in what must happen before, of the first."""

    asked: str
    segments: list[LogSegment]
    answer: list[RetentionReason]
    topic: dict[str, str] = field(default_factory=dict)
    dynamic: dict[str, str] = field(default_factory=dict)
    file: dict[str, str] = field(default_factory=dict)
    offsets: Offsets = NO_ENTRIES
    setting: str = ""
    goes: float | None = None
    first: str = ""


QUESTIONS = [
    Question(
        "retention.ms is an hour, and records of last week are still there: few are written, all in one segment",
        log(0.01),
        [RetentionReason.ACTIVE],
        topic={"retention.ms": str(HOUR)},
        setting="retention.ms=3600000 (topic)",
        goes=0.01 * -1 + 1 / 24,
        first="nothing more is written to it",
    ),
    Question(
        "the retention is over, nothing is deleted, and timestamps are in microseconds",
        [LogSegment(0, 100, 4096, NOW * 1000), *log(30, 0.1)[1:]],
        [RetentionReason.FUTURE_TIMESTAMPS, RetentionReason.OLDER_SEGMENT],
        topic={"retention.ms": str(DAY)},
        goes=(NOW * 1000 - NOW) / DAY + 1,
    ),
    Question(
        "one record of 2030 in the oldest segment, and years of old ones behind it",
        [LogSegment(0, 1, 4096, NOW + 1000 * DAY), *log(0, 300, 200, 100)[1:]],
        [RetentionReason.FUTURE_TIMESTAMPS, RetentionReason.OLDER_SEGMENT],
        goes=1007,
    ),
    Question(
        "log.retention.hours was lowered in server.properties, and this topic keeps its records",
        log(5, 0),
        [RetentionReason.RETENTION, RetentionReason.ACTIVE],
        topic={"retention.ms": str(7 * DAY)},
        file={"log.retention.hours": "24"},
        setting="retention.ms=604800000 (topic)",
        goes=2,
    ),
    Question(
        "log.retention.hours is set, and log.retention.ms, left over in the file, is obeyed",
        log(5, 0),
        [RetentionReason.RETENTION, RetentionReason.ACTIVE],
        file={"log.retention.hours": "24", "log.retention.ms": str(30 * DAY)},
        setting=f"log.retention.ms={30 * DAY} (server.properties)",
        goes=25,
    ),
    Question(
        "the file says a day, kafka-configs.sh --entity-default said a month years ago",
        log(5, 0),
        [RetentionReason.RETENTION, RetentionReason.ACTIVE],
        dynamic={"log.retention.ms": str(30 * DAY)},
        file={"log.retention.ms": str(DAY)},
        setting=f"log.retention.ms={30 * DAY} (all brokers, dynamic)",
        goes=25,
    ),
    Question(
        "a compacted topic with retention.ms keeps everything",
        log(300, 200, 0),
        [RetentionReason.COMPACTED, RetentionReason.ACTIVE],
        topic={"cleanup.policy": "compact", "retention.ms": str(DAY)},
        offsets=Offsets(cleaned=20),
        setting="cleanup.policy=compact (topic)",
        first="newer records with the same keys",
    ),
    Question(
        "delete.retention.ms is an hour, and the tombstones of last week stay",
        log(300, 200, 0),
        [RetentionReason.COMPACTED, RetentionReason.ACTIVE],
        topic={"cleanup.policy": "compact", "delete.retention.ms": str(HOUR)},
        offsets=Offsets(cleaned=20),
        first="tombstones by a cleaning delete.retention.ms=3600000 after the one that reached them",
    ),
    Question(
        "a compacted topic still has old values of a key: they are in the active segment",
        log(3),
        [RetentionReason.ACTIVE],
        topic={"cleanup.policy": "compact", "segment.bytes": "1000"},
        first="a new segment starts: after 900 bytes more, or at the first write after ",
    ),
    Question(
        "__consumer_offsets has hundreds of GB: the cleaner has never come to it",
        log(300, 200, 0),
        [RetentionReason.CLEANABLE, RetentionReason.ACTIVE],
        topic={"cleanup.policy": "compact"},
        offsets=Offsets(cleaned=0),
        setting="log.cleaner.min.cleanable.ratio=0.5 (Kafka's default)",
        first="the log cleaner's next round takes it; if it stays, look for 'as uncleanable'",
    ),
    Question(
        "log.cleaner.enable=false, once, because of a bug of long ago: nothing compacted is deleted, by age neither",
        log(300, 200, 0),
        [RetentionReason.CLEANER_OFF],
        topic={"cleanup.policy": "compact,delete", "retention.ms": str(DAY)},
        file={"log.cleaner.enable": "false"},
        setting="log.cleaner.enable=false (server.properties)",
    ),
    Question(
        "half of it was compacted, and the ratio is 0.5: strictly more must be dirty",
        log(300, 200, 0),
        [RetentionReason.COMPACTED, RetentionReason.NOT_YET_COMPACTED, RetentionReason.ACTIVE],
        topic={"cleanup.policy": "compact"},
        offsets=Offsets(cleaned=10),
        setting="cleanup.policy=compact (topic)",
    ),
    Question(
        "a producer died in the middle of a transaction, and __consumer_offsets grows: nothing behind it is compacted",
        log(3, 2, 1, 0),
        [RetentionReason.CLEANABLE, RetentionReason.OPEN_TRANSACTION, RetentionReason.ACTIVE],
        topic={"cleanup.policy": "compact"},
        offsets=Offsets(unstable=15, high_watermark=40),
    ),
    Question(
        "max.compaction.lag.ms is a day, little of it is dirty, and it is compacted all the same",
        [s._replace(first_ms=s.largest_ms) for s in log(9, 8, 7, 6, 2, 0)],
        [RetentionReason.COMPACTED, RetentionReason.CLEANABLE, RetentionReason.ACTIVE],
        topic={"cleanup.policy": "compact", "max.compaction.lag.ms": str(DAY)},
        offsets=Offsets(cleaned=40),
        first="newer records",
    ),
    Question(
        "everything was deleted with kafka-delete-records.sh: the active segment waits for a roll",
        log(1, 0),
        [RetentionReason.BELOW_LOG_START, RetentionReason.ACTIVE],
        topic={"retention.ms": "-1", "segment.bytes": "150"},
        offsets=Offsets(log_start=20, high_watermark=20),
        goes=0,
    ),
    Question(
        "segment.jitter.ms: nobody knows when exactly the segment ends",
        log(1),
        [RetentionReason.SIZE],
        topic={
            "retention.ms": "-1",
            "retention.bytes": "50",
            "segment.ms": str(7 * DAY),
            "segment.jitter.ms": str(DAY),
        },
        setting="retention.bytes=50 (topic)",
        first="a time between ",
    ),
    Question(
        "the active segment is past its retention, and a follower has not fetched all of it",
        log(30),
        [RetentionReason.ABOVE_HIGH_WATERMARK],
        topic={"retention.ms": str(DAY)},
        offsets=Offsets(high_watermark=5),
        first="the in-sync replicas have to fetch up to 10",
    ),
    Question(
        "min.compaction.lag.ms is a week: nothing younger is compacted",
        log(5, 0),
        [RetentionReason.NOT_YET_COMPACTED, RetentionReason.ACTIVE],
        topic={"cleanup.policy": "compact", "min.compaction.lag.ms": str(7 * DAY)},
        setting="min.compaction.lag.ms=604800000 (topic)",
        goes=2,
    ),
    Question(
        "retention.bytes=1 GiB, and the partition has 1.9: a whole segment goes only while 1 GiB is left without it",
        log(3, 0, sizes=GIB, last=GIB - 100),
        [RetentionReason.SIZE],
        topic={"retention.bytes": str(GIB), "retention.ms": "-1"},
        setting=f"retention.bytes={GIB} (topic)",
        first="100 bytes more are written",
    ),
    Question(
        "retention.bytes is reached: the oldest go at the next check, whatever their age",
        log(0.3, 0.2, 0, sizes=GIB),
        [RetentionReason.DUE, RetentionReason.RETENTION, RetentionReason.ACTIVE],
        topic={"retention.bytes": str(2 * GIB)},
        setting=f"retention.bytes={2 * GIB} (topic)",
        goes=0,
    ),
    Question(
        "kafka-delete-records.sh was run, and the disk has not changed: the segment with the new start stays",
        log(1, 1, 0),
        [RetentionReason.BELOW_LOG_START, RetentionReason.UNLIMITED],
        topic={"retention.ms": "-1"},
        offsets=Offsets(log_start=15, high_watermark=30),
        goes=0,
    ),
    Question(
        "a replica is out of sync since long, and the leader deletes nothing beyond the high watermark",
        log(30, 20, 10),
        [RetentionReason.DUE, RetentionReason.ABOVE_HIGH_WATERMARK, RetentionReason.OLDER_SEGMENT],
        topic={"retention.ms": str(DAY)},
        offsets=Offsets(high_watermark=12),
        setting="retention.ms=86400000 (topic)",
        goes=0,
    ),
    Question(
        "retention.ms=-1 was set on the topic, once",
        log(900, 0),
        [RetentionReason.UNLIMITED],
        topic={"retention.ms": "-1"},
        setting="retention.ms=-1 (topic)",
    ),
    Question(
        "tiered storage: the local disk stays full although local.retention.ms is an hour",
        log(5, 0),
        [RetentionReason.NOT_YET_TIERED],
        topic={"remote.storage.enable": "true", "local.retention.ms": str(HOUR)},
        file={"remote.log.storage.system.enable": "true"},
        setting="local.retention.ms=3600000 (topic)",
        goes=0,
        first="copied to remote storage",
    ),
    Question(
        "compact,delete: segments past retention.ms go as a whole",
        log(30, 0),
        [RetentionReason.DUE, RetentionReason.ACTIVE],
        topic={"cleanup.policy": "compact,delete", "retention.ms": str(DAY)},
        goes=0,
    ),
]


@pytest.mark.parametrize("q", QUESTIONS, ids=lambda q: q.asked)
def test_the_answer_is_the_experts(q: Question) -> None:
    layers = Layers(
        topics={name: {"t": text} for name, text in q.topic.items()},
        all_brokers=q.dynamic,
        file=q.file,
        complete=True,
    )
    groups = explain_log(q.segments, settings_of(layers, "t"), q.offsets, NOW)
    reasons = list(dict.fromkeys(g.why.code for g in groups))
    assert reasons == q.answer
    oldest = groups[0]
    assert q.setting in ("", str(oldest.why.setting))
    assert q.first in (oldest.why.until or "")
    if q.goes is None:
        assert oldest.why.until_ms is None
    else:
        assert oldest.why.until_ms is not None and abs(oldest.why.until_ms - NOW - q.goes * DAY) <= 2


@pytest.mark.parametrize(
    ("age_days", "runs_days", "suspected"), [(30, 5, True), (30, 0.01, False), (7.01, 5, False), (30, None, False)]
)
def test_what_the_checks_of_a_running_broker_pass_over_is_a_suspicion(
    age_days: float, runs_days: float | None, suspected: bool
) -> None:
    """Due for long, beside a broker that checks for long: something else keeps it, and a start ends it."""
    since = None if runs_days is None else NOW - int(runs_days * DAY)
    settings = settings_of(Layers(file={}, complete=True), "t")
    (due, _) = explain_log(log(age_days, 0), settings, NO_ENTRIES, NOW, since)
    assert due.why.code is RetentionReason.DUE and due.why.until_ms == NOW
    assert ("cancelled move" in (due.why.until or "")) == suspected
