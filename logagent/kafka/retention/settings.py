"""Which value of a topic's setting is in force on this broker, and where it is set.

Kafka's precedence: the topic's own, then of the broker's setting behind it (`ServerTopicConfigSynonyms`) the dynamic
one of this broker, the dynamic default of all brokers, `server.properties`, Kafka's default (`DynamicBrokerConfig`).
Of several broker settings for one thing, milliseconds come before minutes and minutes before hours, wherever set.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from logagent.base.dir_names import NEVER_DELETED, is_internal, parse_int, parse_long
from logagent.base.times import DAY_MS, HOUR_MS, MINUTE_MS

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


class Source(StrEnum):
    """Where a value is set. UNKNOWN: nothing that was read says."""

    TOPIC = "topic"
    BROKER = "broker"
    ALL_BROKERS = "all-brokers"
    FILE = "server.properties"
    DEFAULT = "default"
    UNKNOWN = "unknown"


_IN_WORDS: Final = {
    Source.TOPIC: "topic",
    Source.BROKER: "this broker, dynamic",
    Source.ALL_BROKERS: "all brokers, dynamic",
    Source.FILE: "server.properties",
    Source.DEFAULT: "Kafka's default",
}


class ConfigEntry(NamedTuple):
    """A value in force: the key and text with which it is set, in units of `unit_ms`, and where. `text`: None if it is
    not known."""

    key: str
    text: str | None
    source: Source
    unit_ms: int = 1

    @property
    def number(self) -> int | None:
        """In milliseconds or bytes; None if it is unknown or no number (a config provider may fill it in)."""
        parsed = None if self.text is None else parsed_ms(self.text, self.unit_ms)
        # `AbstractKafkaConfig.logRetentionTimeMillis`: -1 hours are no hours, but unlimited.
        return max(parsed, -1) if parsed is not None and self.key.startswith("log.retention.") else parsed

    def __str__(self) -> str:
        if self.text is None:
            return f"{self.key} is not known"
        return f"{self.key}={self.text} ({_IN_WORDS[self.source]})"


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
                yield NotConsidered(ConfigEntry(name, text, Source.TOPIC), tuple(having))
        yield from map(NotConsidered, self._not_considered_of_broker())

    def _not_considered_of_broker(self) -> Iterator[ConfigEntry]:
        layers = ((Source.BROKER, self.broker), (Source.ALL_BROKERS, self.all_brokers), (Source.FILE, self.file or {}))
        found: dict[str, ConfigEntry] = {}
        for source, values in layers:
            for name in filter(is_not_considered, values):
                found.setdefault(name, ConfigEntry(name, values[name], source))
        yield from (found[name] for name in sorted(found))

    def with_own(self, topics: Collection[str], own: Mapping[str, str]) -> Layers:
        """As if each of `topics` had these settings of its own."""
        changed = {name: {**self.topics.get(name, {}), **dict.fromkeys(topics, text)} for name, text in own.items()}
        return replace(self, topics={**self.topics, **changed})

    def of(self, topic: str, name: str) -> ConfigEntry:
        """The setting `name` of `topic`. Where the topic's own are not known, the broker's default, which is then an
        assumption."""
        own = self.topics.get(name, {}).get(topic)
        return ConfigEntry(name, own, Source.TOPIC) if own is not None else self.default(name)

    def default(self, name: str) -> ConfigEntry:
        """That of topics that have none of their own, or a setting that only brokers have."""
        layers = ((Source.BROKER, self.broker), (Source.ALL_BROKERS, self.all_brokers), (Source.FILE, self.file or {}))
        for key, unit_ms in BROKER_SETTINGS.get(name, ()):
            for source, values in layers:
                if key in values:
                    return ConfigEntry(key, values[key], source, unit_ms)
        if name in _OF_BROKER:
            found = next((ConfigEntry(name, values[name], source) for source, values in layers if name in values), None)
            unset = ConfigEntry(name, _OF_BROKER[name], Source.DEFAULT)
            return found or (unset if self.file is not None else ConfigEntry(name, None, Source.UNKNOWN))
        if name not in _DEFAULTS:
            return ConfigEntry(name, "false", Source.DEFAULT)
        key, text = _DEFAULTS[name]
        if self.file is None:
            return ConfigEntry(key, None, Source.UNKNOWN)
        units = dict(BROKER_SETTINGS[name])
        return ConfigEntry(key, text, Source.DEFAULT, units[key])


NOTHING_SET: Final = Layers()
