"""The retention of topics, as far as it is known without asking the cluster.

A topic's retention is its own `retention.ms`, else `log.retention.ms` of this broker, of all brokers (both dynamic),
then of `server.properties` (`DynamicBrokerConfig`, `ServerProperties.retention_ms`). What a tiered topic has on this
host goes by `local.retention.ms` instead, once it has been copied; its `retention.ms` governs the remote copies too.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from logagent.kafka.retention import settings as names

HOUR_MS = 3_600_000
# Offered from the longest to the shortest.
STEPS_MS = tuple(hours * HOUR_MS for hours in (7 * 24, 3 * 24, 24, 12, 6, 1))
RETENTION, LOCAL_RETENTION, RETENTION_BYTES = names.RETENTION_MS, names.LOCAL_RETENTION_MS, names.RETENTION_BYTES
AS_RETENTION_MS = names.AS_RETENTION


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """A segment: bytes of its `.log` on disk, and its largest timestamp in ms. `active`: it is the one written to."""

    bytes: int
    largest_ms: int
    active: bool = False


class LogSegment(NamedTuple):
    """A segment. `bytes`: of its `.log`, which is what `retention.bytes` counts; `allocated`: on disk, of all its files
    (of the active one without its preallocated indexes). `largest_ms`: as Kafka takes it (`largestTimestamp`), the last
    write where no record has a timestamp; None if it cannot be read. Of the active one, `first_ms`: the timestamp of
    its first batch, and `end`: the offset after its last, None if unknown."""

    base: int
    bytes: int
    allocated: int
    largest_ms: int | None
    active: bool = False
    first_ms: int | None = None
    end: int | None = None


class Breach(NamedTuple):
    """Why a segment goes at the next checks."""

    time: bool
    size: bool


def oldest_that_go(
    sizes: Sequence[int], largest_ms: Iterable[int | None], now_ms: int, retention_ms: int, retention_bytes: int
) -> list[Breach]:
    """Why each of the oldest segments goes by retention, oldest first, up to the first that stays. `sizes`: bytes of
    the `.log` files; `largest_ms`: `LogSegment.largestTimestamp` of each (None: not known), read only as far as needed.
    A retention below 0 is unlimited."""
    found: list[Breach] = []
    over, times = sum(sizes) - retention_bytes, iter(largest_ms)
    for size in sizes:
        largest = next(times, None)
        time = retention_ms >= 0 and largest is not None and now_ms - largest > retention_ms
        breach = Breach(time, retention_bytes >= 0 and over - size >= 0)
        if not any(breach):
            break
        over -= size
        found.append(breach)
    return found


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
