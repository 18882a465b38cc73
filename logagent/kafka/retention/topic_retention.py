"""The retention of topics, as far as it is known without asking the cluster.

A topic's retention is its own `retention.ms`, else `log.retention.ms` of this broker, of all brokers (both dynamic),
then of `server.properties` (`DynamicBrokerConfig`, `ServerProperties.retention_ms`). What a tiered topic has on this
host goes by `local.retention.ms` instead, once it has been copied; its `retention.ms` governs the remote copies too.

What is set aside waits for ever; what is restored is checked 30 seconds after the broker's start. Which segments go is
the rule of all retention (`oldest_that_go`), over the checks that follow each other (`UnifiedLog.deleteOldSegments`),
of which the first may take only a part (`first_check`). A topic whose `cleanup.policy` has no `delete` keeps all.

What another broker's answer on a topic's settings means for this host's (`as_answered`): a broker answers with what is
in force for itself (`ConfigHelper.describeConfigs`). What the topic has of its own, or what all brokers have in common,
holds here too; what comes from its own configuration does not, and ours counts.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from logagent.base.dir_names import parse_long
from logagent.base.times import HOUR_MS
from logagent.kafka.retention import settings as names

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
    """A segment. `bytes`: written to its `.log`, which is what `retention.bytes` counts (an active one's file may be
    preallocated); `allocated`: on disk, of all its files (of the active one without its preallocated indexes).
    `largest_ms`: as Kafka takes it (`largestTimestamp`), the last write where no record has a timestamp; None if it
    cannot be read. `first_ms`: the timestamp of its first batch, None where it was not read. Of the active one, `end`:
    the offset after its last record, None if unknown, and `indexed`: bytes of entries in the longer of its indexes."""

    base: int
    bytes: int
    allocated: int
    largest_ms: int | None
    active: bool = False
    first_ms: int | None = None
    end: int | None = None
    indexed: int = 0


def oldest_that_go(
    sizes: Sequence[int], largest_ms: Iterable[int | None], now_ms: int, retention_ms: int, retention_bytes: int
) -> list[tuple[bool, bool]]:
    """Of each of the oldest segments that retention lets go, oldest first, up to the first that stays: whether by time,
    and whether by size. `sizes`: bytes of
    the `.log` files; `largest_ms`: `LogSegment.largestTimestamp` of each (None: not known), read only as far as needed.
    A retention below 0 is unlimited."""
    found: list[tuple[bool, bool]] = []
    over, times = sum(sizes) - retention_bytes, iter(largest_ms)
    for size in sizes:
        largest = next(times, None)
        time = retention_ms >= 0 and largest is not None and now_ms - largest > retention_ms
        breach = (time, retention_bytes >= 0 and over - size >= 0)
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


def kafka_configs(topic: str, action: str, *words: str, servers: str | None = None) -> str:
    """The `kafka-configs.sh` command line that does `action` on one topic, for a shell; without `servers` with a
    placeholder for them."""
    where = ["--entity-type", "topics", "--entity-name", topic]
    return shlex.join(["kafka-configs.sh", "--bootstrap-server", servers or "HOST:PORT", action, *where, *words])


@dataclass(frozen=True, slots=True)
class FirstCheck:
    """`bytes`: what goes of the `of` bytes of `.log` files, None if that is not known; `why`, in words. `keep`: the
    settings of the topic with which everything stays, as `--add-config` takes them."""

    topic: str
    bytes: int | None
    of: int
    why: str
    keep: tuple[str, ...]

    @property
    def fact(self) -> str:
        if self.bytes is None:
            return f"its broker's first retention check may delete its {self.of} bytes: {self.why}"
        what = f"all its {self.of} bytes" if self.bytes == self.of else f"{self.bytes} of its {self.of} bytes"
        return f"its broker's first retention check deletes {what}: {self.why}"

    @property
    def command(self) -> str:
        """The `kafka-configs.sh` command line that keeps everything, for a shell."""
        return kafka_configs(self.topic, "--alter", "--add-config", ",".join(self.keep))

    @property
    def hint(self) -> str:
        look = f"{kafka_configs(self.topic, '--describe', '--all')} shows its retention; " if self.bytes is None else ""
        return f"{look}{self.command} keeps them; with that in effect, or if they may go, add --retention-will-delete"


def first_check(
    topic: str,
    segments: Iterable[SegmentAge],
    sizes: Sequence[int],
    now_ms: int,
    configs: TopicConfigs,
    why_incomplete: str,
) -> FirstCheck | None:
    """None if nothing goes. `segments`: oldest first, and read only as far as needed; `sizes`: of all `.log` files."""
    whole = sum(sizes)
    if not whole or (configs.complete and configs.keeps_all(topic)):
        return None
    tiered = configs.setting_of(topic) == LOCAL_RETENTION
    limit_ms, limit = configs.retention_of(topic), configs.retention_bytes_of(topic)
    keep = (f"{RETENTION}=-1", *([f"{LOCAL_RETENTION}=-1"] if tiered else []))
    if limit_ms is None or limit is None:
        no_number = "its retention is no number here, or server.properties was not read (--kafka-config names it)"
        return FirstCheck(topic, None, whole, no_number if configs.complete else why_incomplete, keep)
    # Of a tiered topic the size counts the remote copies too, of which the oldest go first.
    ages = (segment.largest_ms for segment in segments)
    breaches = oldest_that_go(sizes, ages, now_ms, limit_ms, -1 if tiered else limit)
    why = []
    if any(time for time, _ in breaches):
        setting, own = (LOCAL_RETENTION, configs.tiering.local_ms) if tiered else (RETENTION, configs.retentions_ms)
        why.append(f"they are past {setting}={limit_ms} ({_whose(topic, own)})")
    if any(size for _, size in breaches):
        why.append(f"the log exceeds {RETENTION_BYTES}={limit} ({_whose(topic, configs.retentions_bytes)})")
        keep = (*keep, f"{RETENTION_BYTES}=-1")
    goes = sum(sizes[: len(breaches)])
    return FirstCheck(topic, goes, whole, ", and ".join(why), keep) if goes else None


def _whose(topic: str, own: Iterable[str]) -> str:
    return "of the topic" if topic in own else "the broker's default"


ASKED = (
    names.CLEANUP_POLICY,
    RETENTION,
    RETENTION_BYTES,
    LOCAL_RETENTION,
    names.TIERED,
    names.COPY_DISABLED,
)


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """`own`: the topic has it itself; `common`: it is the dynamic default of all brokers."""

    value: str | None
    own: bool = False
    common: bool = False


_NONE = DescribedConfig(None)


def as_answered(topic: str, answers: Mapping[str, DescribedConfig], defaults: Sequence[TopicConfigs]) -> TopicConfigs:
    """What holds for `topic` on this host. `defaults`: the broker's own, by `server.properties` and by the metadata log
    as it was when it ended; where they differ, the one that deletes more counts."""

    def number(name: str, ours: Iterable[int | None]) -> int | None:
        answer = answers.get(name, _NONE)
        if answer.own:
            return _number(answer.value)
        return _strictest([*ours, *([_number(answer.value)] if answer.common else [])])

    def of_its_own(name: str) -> dict[str, str]:
        answer = answers.get(name, _NONE)
        return {topic: answer.value or ""} if answer.own else {}

    local = {name: _number(value) for name, value in of_its_own(LOCAL_RETENTION).items()}
    policy = _policy(answers.get(names.CLEANUP_POLICY, _NONE), defaults)
    return TopicConfigs(
        {topic: policy} if policy is not None else {},
        retentions_ms={topic: number(RETENTION, (d.retention_ms for d in defaults))},
        complete=True,
        tiering=replace(
            defaults[-1].tiering,
            enabled=of_its_own(names.TIERED),
            copy_disabled=of_its_own(names.COPY_DISABLED),
            local_ms=local,
        ),
        retentions_bytes={topic: number(RETENTION_BYTES, (d.retention_bytes for d in defaults))},
    )


def _policy(answer: DescribedConfig, defaults: Sequence[TopicConfigs]) -> str | None:
    if answer.own:
        return answer.value
    found = [*(d.policy for d in defaults), *([answer.value] if answer.common else [])]
    known = [policy for policy in found if policy is not None]
    return next((p for p in known if "delete" in p), known[0]) if len(known) == len(found) > 0 else None


def _number(text: str | None) -> int | None:
    try:
        return parse_long((text or "").strip())
    except ValueError:
        return None


def _strictest(limits: Iterable[int | None]) -> int | None:
    """The lowest limit; below 0 (none) if no limit is, and None if any is unknown."""
    known = list(limits)
    if not known or None in known:
        return None
    return min((limit for limit in known if limit is not None and limit >= 0), default=-1)
