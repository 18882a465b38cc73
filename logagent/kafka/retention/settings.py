"""Which value of a topic's setting is in force on this broker, and where it is set; and how long that keeps its
records, as far as it is known without asking the cluster.

Kafka's precedence: the topic's own, then of the broker's setting behind it (`ServerTopicConfigSynonyms`) the dynamic
one of this broker, the dynamic default of all brokers, `server.properties`, Kafka's default (`DynamicBrokerConfig`).
Of several broker settings for one thing, milliseconds come before minutes and minutes before hours, wherever set.

What a tiered topic has on this host goes by `local.retention.ms`, once it has been copied; its `retention.ms` governs
the remote copies too. What is set aside waits for ever; what is restored is checked 30 seconds after the broker's
start. Which segments go is the rule of all retention (`oldest_that_go`), over the checks that follow each other
(`UnifiedLog.deleteOldSegments`), of which the first may take only a part (`first_check`). A topic whose
`cleanup.policy` has no `delete` keeps all.

What another broker's answer on a topic's settings means for this host's (`as_answered`): a broker answers with what is
in force for itself (`ConfigHelper.describeConfigs`). What the topic has of its own, or what all brokers have in common,
holds here too; what comes from its own configuration does not, and ours counts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, NamedTuple

from logagent.base.dir_names import NEVER_DELETED, is_internal, parse_int, parse_long
from logagent.base.records import ConfigEntry, Reason, SetBy
from logagent.base.units import DAY_MS, HOUR_MS, MINUTE_MS

CLEANUP_POLICY, RETENTION_MS, RETENTION_BYTES = "cleanup.policy", "retention.ms", "retention.bytes"
LOCAL_RETENTION_MS, LOCAL_RETENTION_BYTES = "local.retention.ms", "local.retention.bytes"
TIERED, COPY_DISABLED = "remote.storage.enable", "remote.log.copy.disable"
REMOTE_COPY_LAG_MS, REMOTE_COPY_LAG_BYTES = "remote.copy.lag.ms", "remote.copy.lag.bytes"  # KIP-1241
SEGMENT_MS, SEGMENT_BYTES = "segment.ms", "segment.bytes"
SEGMENT_JITTER_MS, SEGMENT_INDEX_BYTES = "segment.jitter.ms", "segment.index.bytes"
FILE_DELETE_DELAY_MS = "file.delete.delay.ms"
CORDONED_LOG_DIRS = "cordoned.log.dirs"  # KIP-1066
MIN_COMPACTION_LAG_MS, MIN_DIRTY_RATIO = "min.compaction.lag.ms", "min.cleanable.dirty.ratio"
MAX_COMPACTION_LAG_MS = "max.compaction.lag.ms"
DELETE_RETENTION_MS = "delete.retention.ms"

# As `local.retention.*`, and its default: the same as without `local` (`LogConfig.DEFAULT_LOCAL_RETENTION_MS`).
AS_RETENTION: Final = -2
# As `remote.copy.lag.*`: the same as the local retention (`LogConfig.remoteCopyLagMs`).
AS_LOCAL_RETENTION: Final = -1
NEVER: Final = (1 << 63) - 1

BROKER_SETTINGS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    CLEANUP_POLICY: (("log.cleanup.policy", 1),),
    RETENTION_MS: (
        ("log.retention.ms", 1),
        ("log.retention.minutes", MINUTE_MS),
        ("log.retention.hours", HOUR_MS),
    ),
    RETENTION_BYTES: (("log.retention.bytes", 1),),
    LOCAL_RETENTION_MS: (("log.local.retention.ms", 1),),
    LOCAL_RETENTION_BYTES: (("log.local.retention.bytes", 1),),
    REMOTE_COPY_LAG_MS: (("log.remote.copy.lag.ms", 1),),
    REMOTE_COPY_LAG_BYTES: (("log.remote.copy.lag.bytes", 1),),
    SEGMENT_MS: (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    SEGMENT_JITTER_MS: (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    SEGMENT_BYTES: (("log.segment.bytes", 1),),
    SEGMENT_INDEX_BYTES: (("log.index.size.max.bytes", 1),),
    FILE_DELETE_DELAY_MS: (("log.segment.delete.delay.ms", 1),),
    MIN_COMPACTION_LAG_MS: (("log.cleaner.min.compaction.lag.ms", 1),),
    MAX_COMPACTION_LAG_MS: (("log.cleaner.max.compaction.lag.ms", 1),),
    MIN_DIRTY_RATIO: (("log.cleaner.min.cleanable.ratio", 1),),
    DELETE_RETENTION_MS: (("log.cleaner.delete.retention.ms", 1),),
}
"""Of a topic's setting, the broker's settings that it defaults to, the first that is set; each with its unit in ms."""

# The key under which the default is known, and its value there (`LogConfig`, `ServerLogConfigs`).
_DEFAULTS: Final[Mapping[str, tuple[str, str]]] = {
    CLEANUP_POLICY: ("log.cleanup.policy", "delete"),
    RETENTION_MS: ("log.retention.hours", "168"),
    RETENTION_BYTES: ("log.retention.bytes", "-1"),
    LOCAL_RETENTION_MS: ("log.local.retention.ms", "-2"),
    LOCAL_RETENTION_BYTES: ("log.local.retention.bytes", "-2"),
    REMOTE_COPY_LAG_MS: ("log.remote.copy.lag.ms", "0"),
    REMOTE_COPY_LAG_BYTES: ("log.remote.copy.lag.bytes", "-1"),
    SEGMENT_MS: ("log.roll.hours", "168"),
    SEGMENT_JITTER_MS: ("log.roll.jitter.hours", "0"),
    SEGMENT_BYTES: ("log.segment.bytes", str(1 << 30)),
    SEGMENT_INDEX_BYTES: ("log.index.size.max.bytes", str(10 << 20)),
    FILE_DELETE_DELAY_MS: ("log.segment.delete.delay.ms", "60000"),
    MIN_COMPACTION_LAG_MS: ("log.cleaner.min.compaction.lag.ms", "0"),
    MAX_COMPACTION_LAG_MS: ("log.cleaner.max.compaction.lag.ms", str(NEVER)),
    MIN_DIRTY_RATIO: ("log.cleaner.min.cleanable.ratio", "0.5"),
    DELETE_RETENTION_MS: ("log.cleaner.delete.retention.ms", str(DAY_MS)),
}
TOPIC_SETTINGS: Final = (*BROKER_SETTINGS, TIERED, COPY_DISABLED)
"""The settings of topics that matter here."""
DYNAMIC_SETTINGS: Final = (*(keys[0][0] for keys in BROKER_SETTINGS.values()), "log.cleaner.backoff.ms")
"""Their settings of brokers that can be changed without a restart (`DynamicLogConfig`): of several, the finest."""

REMOTE_STORAGE = "remote.log.storage.system.enable"
CLEANER_ENABLE, CLEANER_BACKOFF_MS = "log.cleaner.enable", "log.cleaner.backoff.ms"
RETENTION_CHECK_MS = "log.retention.check.interval.ms"
METADATA_MAX_BYTES, METADATA_MAX_MS = "metadata.max.retention.bytes", "metadata.max.retention.ms"
# What only brokers have, with defaults (`CleanerConfig`, `ServerLogConfigs`, `MetadataLogConfig`).
_OF_BROKER: Final[Mapping[str, str]] = {
    CLEANER_ENABLE: "true",
    CLEANER_BACKOFF_MS: "15000",
    RETENTION_CHECK_MS: "300000",
    METADATA_MAX_BYTES: str(100 << 20),
    METADATA_MAX_MS: str(7 * DAY_MS),
}
_READ: Final = frozenset(
    {
        *TOPIC_SETTINGS,
        *(key for keys in BROKER_SETTINGS.values() for key, _ in keys),
        CORDONED_LOG_DIRS,
        REMOTE_STORAGE,
        *_OF_BROKER,
    }
)
_NEAR = re.compile(
    r"(?:log|remote|retention|local|cleanup|compaction|segment|tier\w*|cordoned)\.|file\.delete\.|delete\.retention\."
    r"|(?:min|max)\.(?:compaction|cleanable)\.|metadata\.max\.retention\.|preallocate$"
)
# Near by name, and whatever they say, they keep no segment here and take none: how fast something goes, what a producer
# may send, when something is flushed, how another file is read.
OF_NO_ACCOUNT: Final = frozenset(
    {
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "log.dir",
        "log.dir.failure.timeout.ms",
        "log.dirs",
        "log.flush.interval.messages",
        "log.flush.interval.ms",
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.scheduler.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "log.index.interval.bytes",
        "log.initial.task.delay.ms",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.difference.max.ms",
        "log.message.timestamp.type",
        # How long a file is, not how much is written to it.
        "log.preallocate",
        "preallocate",
        "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms",
        "remote.log.delete.on.disable",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.index.file.cache.ttl.ms",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.copy.quota.window.num",
        "remote.log.manager.copy.quota.window.size.seconds",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.manager.fetch.quota.window.num",
        "remote.log.manager.fetch.quota.window.size.seconds",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.manager.task.interval.ms",
        "remote.log.manager.task.retry.backoff.max.ms",
        "remote.log.manager.task.retry.backoff.ms",
        "remote.log.manager.task.retry.jitter",
        "remote.log.manager.thread.pool.size",
        "remote.log.metadata.custom.metadata.max.bytes",
        "remote.log.metadata.manager.class.name",
        "remote.log.metadata.manager.class.path",
        "remote.log.metadata.manager.impl.prefix",
        "remote.log.metadata.manager.listener.name",
        "remote.log.reader.max.pending.tasks",
        "remote.log.reader.threads",
        "remote.log.storage.manager.class.name",
        "remote.log.storage.manager.class.path",
        "remote.log.storage.manager.impl.prefix",
    }
)
# `String.trim`, as `ConfigDef.parseType` calls it.
_JAVA_BLANKS = "".join(map(chr, range(33)))


@lru_cache(1024)
def parsed_ms(text: str, unit_ms: int = 1) -> int | None:
    """A number of units as `ConfigDef.parseType` reads it (an int; a long if they are milliseconds), in milliseconds;
    None if it is none. Also for bytes."""
    try:
        return (parse_long if unit_ms == 1 else parse_int)(text.strip(_JAVA_BLANKS)) * unit_ms
    except ValueError:
        return None


@lru_cache(1024)
def is_not_considered(name: str) -> bool:
    """Whether a setting of this name may keep or take segments, for all that is known, and is nowhere read here. So are
    those of a release that came later."""
    return _NEAR.match(name) is not None and name not in _READ and name not in OF_NO_ACCOUNT


def is_never_tiered(topic: str, policy: str | None) -> bool:
    """Whether `topic` has no remote storage, whatever its `remote.storage.enable` says
    (`UnifiedLog.isRemoteLogEnabled`). `policy`: its `cleanup.policy`, None if it is not known."""
    return is_internal(topic) or topic in NEVER_DELETED or "compact" in (policy or "")


def _entry(key: str, text: str | None, source: SetBy, unit_ms: int = 1) -> ConfigEntry:
    """`text`: in units of `unit_ms`."""
    number = None if text is None else parsed_ms(text, unit_ms)
    # `AbstractKafkaConfig.logRetentionTimeMillis`: -1 hours are no hours, but unlimited.
    number = max(number, -1) if number is not None and key.startswith("log.retention.") else number
    return ConfigEntry(key, text, source, number)


class NotConsidered(NamedTuple):
    """A setting that is set and not read here (`is_not_considered`). `topics`: those that have this value, if it is of
    topics."""

    setting: ConfigEntry
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layers:
    """Everything that is set. `topics`: by setting, the value by topic; `broker`: the dynamic settings of this broker;
    `all_brokers`: those that are the default of all. `file`: `server.properties`, None if it was not read. `complete`:
    the metadata log was read, so what is in none of the first three is not set there. `as_of_ms`: when that log ends.
    """

    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broker: Mapping[str, str] = field(default_factory=dict)
    all_brokers: Mapping[str, str] = field(default_factory=dict)
    file: Mapping[str, str] | None = None
    complete: bool = False
    as_of_ms: int | None = None

    @property
    def may_tier(self) -> bool:
        """Whether this broker has remote storage, or may have."""
        text = "true" if self.file is None else self.file.get(REMOTE_STORAGE, "false")
        return text.strip().lower() != "false"

    @property
    def cordoned(self) -> frozenset[str]:
        """The log dirs that get no new partitions, "*" for all of them."""
        layers = (self.broker, self.all_brokers, self.file or {})
        text = next((values[CORDONED_LOG_DIRS] for values in layers if CORDONED_LOG_DIRS in values), "")
        return frozenset(path.strip().rstrip("/") for path in text.split(",")) - {""}

    def not_considered(self, topics: Collection[str]) -> Iterator[NotConsidered]:
        """By name: what is set for `topics` and for this broker that may change why segments stay, and was not taken
        into account."""
        for name in sorted(filter(is_not_considered, self.topics)):
            by_text: dict[str, list[str]] = {}
            for topic, text in sorted(self.topics[name].items()):
                if topic in topics:
                    by_text.setdefault(text, []).append(topic)
            for text, having in by_text.items():
                yield NotConsidered(_entry(name, text, SetBy.TOPIC), tuple(having))
        yield from map(NotConsidered, self._not_considered_of_broker())

    def _not_considered_of_broker(self) -> Iterator[ConfigEntry]:
        layers = ((SetBy.BROKER, self.broker), (SetBy.ALL_BROKERS, self.all_brokers), (SetBy.FILE, self.file or {}))
        found: dict[str, ConfigEntry] = {}
        for source, values in layers:
            for name in filter(is_not_considered, values):
                found.setdefault(name, _entry(name, values[name], source))
        yield from (found[name] for name in sorted(found))

    def with_own(self, topics: Collection[str], own: Mapping[str, str]) -> Layers:
        """As if each of `topics` had these settings of its own."""
        changed = {name: {**self.topics.get(name, {}), **dict.fromkeys(topics, text)} for name, text in own.items()}
        return replace(self, topics={**self.topics, **changed})

    def of(self, topic: str, name: str) -> ConfigEntry:
        """The setting `name` of `topic`. Where the topic's own are not known, the broker's default, which is then an
        assumption."""
        own = self.topics.get(name, {}).get(topic)
        return _entry(name, own, SetBy.TOPIC) if own is not None else self.default(name)

    def default(self, name: str) -> ConfigEntry:
        """That of topics that have none of their own, or a setting that only brokers have."""
        layers = ((SetBy.BROKER, self.broker), (SetBy.ALL_BROKERS, self.all_brokers), (SetBy.FILE, self.file or {}))
        for key, unit_ms in BROKER_SETTINGS.get(name, ()):
            for source, values in layers:
                if key in values:
                    return _entry(key, values[key], source, unit_ms)
        if name in _OF_BROKER:
            found = next((_entry(name, values[name], source) for source, values in layers if name in values), None)
            unset = _entry(name, _OF_BROKER[name], SetBy.DEFAULT)
            return found or (unset if self.file is not None else _entry(name, None, SetBy.UNKNOWN))
        if name not in _DEFAULTS:
            return _entry(name, "false", SetBy.DEFAULT)
        key, text = _DEFAULTS[name]
        if self.file is None:
            return _entry(key, None, SetBy.UNKNOWN)
        units = dict(BROKER_SETTINGS[name])
        return _entry(key, text, SetBy.DEFAULT, units[key])


NOTHING_SET: Final = Layers()


# Offered from the longest to the shortest.
STEPS_MS = tuple(hours * HOUR_MS for hours in (7 * 24, 3 * 24, 24, 12, 6, 1))
RETENTION, LOCAL_RETENTION = RETENTION_MS, LOCAL_RETENTION_MS
AS_RETENTION_MS = AS_RETENTION


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
    the offset after its last record, None if unknown, and `indexed`: bytes of entries in the longer of its indexes.
    `written_ms`: when its `.log` was last written to."""

    base: int
    bytes: int
    allocated: int
    largest_ms: int | None
    active: bool = False
    first_ms: int | None = None
    end: int | None = None
    indexed: int = 0
    written_ms: int | None = None


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
        if not enabled or is_never_tiered(topic, self.policy_of(topic)):
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


def first_check(
    topic: str,
    segments: Iterable[SegmentAge],
    sizes: Sequence[int],
    now_ms: int,
    configs: TopicConfigs,
    why_incomplete: str,
) -> Reason | None:
    """What retention deletes of it, with the command that keeps everything; None if nothing goes. `segments`: oldest
    first, and read only as far as needed; `sizes`: of all `.log` files."""
    whole = sum(sizes)
    if not whole or (configs.complete and configs.keeps_all(topic)):
        return None
    tiered = configs.setting_of(topic) == LOCAL_RETENTION
    limit_ms, limit = configs.retention_of(topic), configs.retention_bytes_of(topic)
    keep = (f"{RETENTION}=-1", *([f"{LOCAL_RETENTION}=-1"] if tiered else []))
    if limit_ms is None or limit is None:
        no_number = "its retention is no number here, or server.properties was not read (--kafka-config names it)"
        why_not = no_number if configs.complete else why_incomplete
        fact = f"its broker's first retention check may delete its {whole} bytes: {why_not}"
        return _kept_by(topic, keep, fact, f"{kafka_configs(topic, '--describe', '--all')} shows its retention; ")
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
    what = f"all its {whole} bytes" if goes == whole else f"{goes} of its {whole} bytes"
    fact = f"its broker's first retention check deletes {what}: {', and '.join(why)}"
    return _kept_by(topic, keep, fact) if goes else None


def _kept_by(topic: str, keep: Iterable[str], fact: str, first: str = "") -> Reason:
    """`keep`: settings of the topic with which everything stays, as `--add-config` takes them."""
    command = kafka_configs(topic, "--alter", "--add-config", ",".join(keep))
    hint = f"{first}{command} keeps them; with that in effect, or if they may go, add --retention-will-delete"
    return Reason(fact, hint, command=command)


def _whose(topic: str, own: Iterable[str]) -> str:
    return "of the topic" if topic in own else "the broker's default"


ASKED = (
    CLEANUP_POLICY,
    RETENTION,
    RETENTION_BYTES,
    LOCAL_RETENTION,
    TIERED,
    COPY_DISABLED,
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
        # The lowest limit; below 0 (none) if no limit is, and None if any is unknown.
        known = [*ours, *([_number(answer.value)] if answer.common else [])]
        if not known or None in known:
            return None
        return min((limit for limit in known if limit is not None and limit >= 0), default=-1)

    def of_its_own(name: str) -> dict[str, str]:
        answer = answers.get(name, _NONE)
        return {topic: answer.value or ""} if answer.own else {}

    local = {name: _number(value) for name, value in of_its_own(LOCAL_RETENTION).items()}
    policy = _policy(answers.get(CLEANUP_POLICY, _NONE), defaults)
    return TopicConfigs(
        {topic: policy} if policy is not None else {},
        retentions_ms={topic: number(RETENTION, (d.retention_ms for d in defaults))},
        complete=True,
        tiering=replace(
            defaults[-1].tiering,
            enabled=of_its_own(TIERED),
            copy_disabled=of_its_own(COPY_DISABLED),
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
