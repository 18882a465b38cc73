"""What a lower `retention.ms` on the largest topics would free on this host. Only a broker can apply it.

Computed as Kafka does (`UnifiedLog.deleteRetentionMsBreachedSegments`): whole segments, oldest first, as long as the
largest timestamp is older than the retention; the active segment too, which is rolled then (`deletableSegments`,
since 2.5 at least; only an empty one stays). That nothing beyond the high watermark goes is not known here.

What a tiered topic has on this host goes by `local.retention.ms`, once it has been copied; its `retention.ms` governs
the remote copies too, so none is ever advised for a topic that may be tiered.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from logagent.base.dir_names import NEVER_DELETED, is_internal, is_valid_topic
from logagent.base.records import DirKey, Health, Kind, PartitionDir, Verdict
from logagent.kafka.retention.reasons import oldest_that_go
from logagent.kafka.retention.topic_retention import RETENTION, UNKNOWN_CONFIGS, SegmentAge, TopicConfigs, kafka_configs
from logagent.verdict.facts import Facts

LARGEST_TOPICS = 5


@dataclass(frozen=True, slots=True)
class RetentionAdvice:
    """`gives_back`: for each retention in ms that may be set (longest first), the bytes on this host that only this
    would free: what is past the present retention does not count. `retention_ms`: the one to set; `now_ms`: the present
    one (below 0: unlimited), and where that is unknown (None) it may be lower already, and then nothing is freed.
    `policy`: its `cleanup.policy`; where that is unknown (None) it may free nothing. `setting`: which retention; of a
    tiered topic (LOCAL_RETENTION) only what was copied already is freed."""

    topic: str
    bytes: int
    retention_ms: int
    gives_back: Mapping[int, int]
    policy: str | None = None
    now_ms: int | None = None
    setting: str = RETENTION

    @property
    def command(self) -> str:
        """The `kafka-configs.sh` command line that sets it, for a shell."""
        return kafka_configs(self.topic, "--alter", "--add-config", f"{self.setting}={self.retention_ms}")


@dataclass(frozen=True, slots=True)
class Expired:
    """Bytes of a topic on this host that are past its retention, which a running broker deletes by itself."""

    topic: str
    bytes: int
    retention_ms: int


def loaded(dirs: Iterable[PartitionDir], facts: Facts, planned: Container[DirKey]) -> list[PartitionDir]:
    """The directories in which retention would free anything on this host: assigned replicas of topics that are
    neither internal nor `NEVER_DELETED`, in log dirs that their broker can use, without those that the plan
    removes (`planned`).

    No broker starts with two copies of a partition, so neither of them counts.
    """
    found: dict[tuple[str | None, int | None], list[PartitionDir]] = {}
    for d in dirs:
        where = facts.log_dirs.get(d.log_dir)
        if (
            d.kind is Kind.CURRENT
            and d.topic is not None
            # Topics that exist have legal names; a directory can have any.
            and is_valid_topic(d.topic)
            and not is_internal(d.topic)
            and d.topic not in NEVER_DELETED
            and not d.removal_started
            and d.key not in planned
            and where is not None
            and where.health in (Health.ONLINE, Health.FULL)
            and d.log_dir not in facts.cluster_problems
            and facts.ruling(d).verdict is Verdict.ASSIGNED
        ):
            found.setdefault((d.topic_id, d.partition), []).append(d)
    return [copies[0] for copies in found.values() if len(copies) == 1]


def advise(
    topics: Mapping[str, Sequence[Iterable[SegmentAge]]],
    sizes: Mapping[str, int],
    now_ms: int,
    need: int | None,
    configs: TopicConfigs = UNKNOWN_CONFIGS,
) -> tuple[list[RetentionAdvice], list[Expired]]:
    """Advice for each topic (with its partitions' segments) that could free anything, the largest gain first;
    and what is past the retention of its topic already.

    The suggested retention is the longest that frees `need` (less what is past retention); if none does, the shortest
    that frees anything; if `need` is None, the longest that frees anything. There is none if nothing more is needed.
    What a tiered topic has past its local retention does not count as needed: it may not have been copied yet.
    """
    settings = {topic: setting for topic in topics if (setting := configs.setting_of(topic)) is not None}
    # The active segment of a tiered topic is not copied, and so not deleted, before it is rolled.
    logs = {
        topic: [[s for s in segments if setting == RETENTION or not s.active] for segments in topics[topic]]
        for topic, setting in settings.items()
    }
    past = _past_retention(logs, now_ms, configs)
    gone, expired = {e.topic: e.bytes for e in past}, [e for e in past if settings[e.topic] == RETENTION]
    if need is not None:
        need -= sum(e.bytes for e in expired)
        if need <= 0:
            return [], expired
    found: list[RetentionAdvice] = []
    for topic, partitions in logs.items():
        gives = {
            step: sum(_older(log, now_ms - step) for log in partitions) - gone.get(topic, 0)
            for step in configs.steps(topic)
        }
        chosen = _step_to_set(gives, need)
        if chosen is not None:
            policy, present = configs.policy_of(topic), configs.retention_of(topic)
            found.append(RetentionAdvice(topic, sizes.get(topic, 0), chosen, gives, policy, present, settings[topic]))
    return sorted(found, key=lambda a: (-a.gives_back[a.retention_ms], a.topic)), expired


def _past_retention(
    logs: Mapping[str, Sequence[Sequence[SegmentAge]]], now_ms: int, configs: TopicConfigs
) -> list[Expired]:
    return [
        Expired(topic, size, now)
        for topic, partitions in logs.items()
        if (now := configs.retention_of(topic)) is not None
        and now >= 0
        and configs.policy_of(topic) is not None
        and (size := sum(_older(log, now_ms - now) for log in partitions)) > 0
    ]


def _step_to_set(gives: Mapping[int, int], need: int | None) -> int | None:
    """Of the retentions, from the longest to the shortest, the one to suggest; None if none frees anything."""
    useful = [step for step in gives if gives[step] > 0]
    enough = [step for step in useful if need is None or gives[step] >= need]
    return enough[0] if enough else useful[-1] if useful else None


def _older(log: Sequence[SegmentAge], than_ms: int) -> int:
    """The bytes on disk that go once everything before `than_ms` is past the retention."""
    going = oldest_that_go([s.bytes for s in log], (s.largest_ms for s in log), than_ms, 0, -1)
    return sum(s.bytes for s in log[: len(going)])
