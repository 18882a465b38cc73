"""What a lower `retention.ms` on the largest topics would free on this host. Only a broker can apply it.

Computed as Kafka does (`UnifiedLog.deleteRetentionMsBreachedSegments`): whole segments, oldest first, as long as the
largest timestamp is older than the retention; the active segment too, which is rolled then (`deletableSegments`,
since 2.5 at least; only an empty one stays). That nothing beyond the high watermark goes is not known here.

A topic's retention is its own `retention.ms`, else `log.retention.ms` of this broker, of all brokers (both dynamic),
then of `server.properties` (`DynamicBrokerConfig`, `ServerProperties.retention_ms`). What a tiered topic has on this
host goes by `local.retention.ms` instead, once it has been copied; its `retention.ms` governs the remote copies too, so
none is ever advised for a topic that may be tiered.
"""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from logagent.model.facts import Facts
from logagent.model.naming.dir_names import NEVER_DELETED, is_internal, is_valid_topic
from logagent.model.records import DirKey, Health, Kind, PartitionDir, Verdict
from logagent.model.retention import settings as names
from logagent.model.retention.reasons import oldest_that_go

HOUR_MS = 3_600_000
# Offered from the longest to the shortest.
STEPS_MS = tuple(hours * HOUR_MS for hours in (7 * 24, 3 * 24, 24, 12, 6, 1))
LARGEST_TOPICS = 5
RETENTION, LOCAL_RETENTION, RETENTION_BYTES = names.RETENTION_MS, names.LOCAL_RETENTION_MS, names.RETENTION_BYTES
AS_RETENTION_MS = names.AS_RETENTION


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """A segment: bytes of its `.log` on disk, and its largest timestamp in ms. `active`: it is the one written to."""

    bytes: int
    largest_ms: int
    active: bool = False


@dataclass(frozen=True, slots=True)
class Tiering:
    """What is known of tiered storage (KIP-405). Of the topics that have them, in the metadata log, `enabled`:
    `remote.storage.enable`, `copy_disabled`: `remote.log.copy.disable`, `local_ms`: `local.retention.ms` (None: not a
    number). `default_local_ms`: the broker's default for the others. `on_broker`: whether this broker may have remote
    storage; None: its configuration was not read."""

    enabled: Mapping[str, str] = field(default_factory=dict)
    copy_disabled: Mapping[str, str] = field(default_factory=dict)
    local_ms: Mapping[str, int | None] = field(default_factory=dict)
    default_local_ms: int | None = AS_RETENTION_MS
    on_broker: bool | None = None


@dataclass(frozen=True, slots=True)
class TopicConfigs:
    """`cleanup.policy` and retention of topics, as far as they are known without asking the cluster.

    `policies`, `retentions_ms`, `retentions_bytes`: of the topics that have their own (a retention of None: its value
    is not a number); `policy`, `retention_ms`, `retention_bytes`: the broker's defaults for the others (None: unknown).
    `complete`: the metadata log was read, so a topic that is not in these has none of its own. A retention below 0 is
    unlimited. `tiering`: which topics are tiered.
    """

    policies: Mapping[str, str] = field(default_factory=dict)
    policy: str | None = None
    retentions_ms: Mapping[str, int | None] = field(default_factory=dict)
    retention_ms: int | None = None
    complete: bool = False
    tiering: Tiering = Tiering()
    retentions_bytes: Mapping[str, int | None] = field(default_factory=dict)
    retention_bytes: int | None = None

    def policy_of(self, topic: str) -> str | None:
        """As Kafka lists it: `delete`, `compact`, or both with a comma."""
        return self.policies.get(topic, self.policy)

    def keeps_all(self, topic: str) -> bool:
        """Whether retention is known to free nothing of `topic`: its policy has no `delete` (`LogConfig.delete`)."""
        policy = self.policy_of(topic)
        return policy is not None and "delete" not in (word.strip() for word in policy.split(","))

    def setting_of(self, topic: str) -> str | None:
        """The setting that governs what `topic` has on this host and nothing else (`UnifiedLog.localRetentionMs`); None
        if there is none, or it is not known (`why_no_setting`)."""
        if not self.complete:
            return RETENTION if self.tiering.on_broker is False else None
        enabled = may_be_true(self.tiering.enabled.get(topic))
        if not enabled or names.is_never_tiered(topic, self.policy_of(topic)):
            return RETENTION
        return None if may_be_true(self.tiering.copy_disabled.get(topic)) else LOCAL_RETENTION

    def why_no_setting(self, topic: str) -> str | None:
        if self.setting_of(topic) is not None:
            return None
        if self.complete:
            why = "it is tiered with remote.log.copy.disable"
        else:
            why = "its broker may have tiered storage, and no current metadata log here says whether it is tiered"
            why += " (--kafka-config names its server.properties)" if self.tiering.on_broker is None else ""
        return f"{why}; a lower retention.ms would delete its remote records too"

    def retention_of(self, topic: str) -> int | None:
        """Of what is on this host, in ms, below 0 if unlimited; None if it is unknown."""
        if not self.complete:
            return None
        local = self.tiering.local_ms.get(topic, self.tiering.default_local_ms)
        if self.setting_of(topic) == LOCAL_RETENTION and local != AS_RETENTION_MS:
            return local
        return self.retentions_ms.get(topic, self.retention_ms)

    def retention_bytes_of(self, topic: str) -> int | None:
        """Below 0 if unlimited; None if it is unknown. Of a tiered topic it counts what is in remote storage too."""
        return self.retentions_bytes.get(topic, self.retention_bytes) if self.complete else None

    def steps(self, topic: str) -> list[int]:
        """The retentions that are lower than the present one: any other would keep records longer. Where only the
        broker's default is known, they are lower than that."""
        now = self.retention_of(topic) if self.complete else self.retention_ms
        return [step for step in STEPS_MS if now is None or now < 0 or step < now]


UNKNOWN_CONFIGS = TopicConfigs()


def may_be_true(value: str | None) -> bool:
    """Whether a boolean setting is or may be on: false is the default, and a config provider may fill in any other."""
    return value is not None and value.strip().lower() != "false"


def kafka_configs(topic: str, action: str, *words: str) -> str:
    """The `kafka-configs.sh` command line that does `action` on one topic, for a shell."""
    where = ["--entity-type", "topics", "--entity-name", topic]
    return shlex.join(["kafka-configs.sh", "--bootstrap-server", "HOST:PORT", action, *where, *words])


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
