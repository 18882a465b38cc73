"""The sources of verdicts, in the configured order: the first usable one decides, and any other must agree.

A source that cannot be read, is too old or is of another cluster is not usable; the reason is kept as text. Without any
usable source every verdict is `unknown`. No error is ever turned into an empty answer.

Which broker answers through the Admin API, up to when it knows the cluster, and which topic ids it does not know.

The metadata log on this host's own disk: a source of assignments, and evidence of which cluster others are about.

It is that only for a broker in KRaft mode (`process.roles`). A migration that was reverted leaves one behind
(KAFKA-16463), with our cluster id beside it, which knows nothing of the topics made in ZooKeeper mode since.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from logagent.agent.target import Target
from logagent.broker.files.meta_properties import META_PROPERTIES, read_meta_properties
from logagent.broker.files.server_properties import parsed_ms
from logagent.errors import ConfigError, LogAgentError, ServiceUnreachable, UnreadableError
from logagent.files.safe_open import opened_directory
from logagent.model.assignments.commitment import why_not_our_log
from logagent.model.assignments.identity import BrokerPlace
from logagent.model.assignments.image import AssignmentImage, Source
from logagent.model.assignments.verdict import CLOCK_TOLERANCE_MS, Host
from logagent.model.planning.topic_retention import UNKNOWN_CONFIGS, Tiering, TopicConfigs
from logagent.model.records import PartitionDir
from logagent.model.times import rfc3339
from logagent.settings import Settings

if TYPE_CHECKING:
    from logagent.broker.admin.reader import AdminReader
    from logagent.broker.metadata_log.log import MetadataImage
    from logagent.documents.inventory import AssignmentsUsed


@dataclass(frozen=True, slots=True)
class Answering:
    """The broker that answers for this cluster. `own`: it is this host's, proven by what is on its disk (`on_disk`).
    For another broker, `known_until_ms` is the time up to which it knows the cluster's decisions, None if unknown.
    `places`: where the brokers of the cluster listen (set only by our own broker)."""

    node_id: int
    own: bool
    on_disk: Mapping[str, frozenset[tuple[str, int]]]
    known_until_ms: int | None = None
    places: frozenset[BrokerPlace] = frozenset()


@dataclass(frozen=True, slots=True)
class Absent:
    """Topic ids that no longer exist. `asked`: whether there was a broker to ask. If `until_ms` is set, this counts
    only for directories that contain nothing younger; `proven` counts for all (a topic id is random and never
    reused)."""

    ids: frozenset[str] = frozenset()
    proven: frozenset[str] = frozenset()
    asked: bool = False
    until_ms: int | None = None

    def of(self, d: PartitionDir) -> AbstractSet[str] | None:
        """The absent ids that count for `d`; None if no broker was asked."""
        if not self.asked:
            return None
        newest_ms = max(d.ctime_ns, d.mtime_ns, d.newest_mtime_ns) // 1_000_000
        late = self.until_ms is not None and newest_ms > self.until_ms
        return self.proven if late else self.ids | self.proven


METADATA_DIR = "__cluster_metadata-0"
MODE_UNKNOWN = (
    "whether the broker uses it is unknown, since its configuration was not read (a migration to KRaft that was"
    " reverted leaves such a log behind): name server.properties with --kafka-config"
)


def why_no_source(target: Target) -> str:
    """Why `read_own_log` read nothing."""
    if target.config is not None and not target.server.process_roles:
        return (
            f"{target.config} has no process.roles, so this broker is in ZooKeeper mode and uses no metadata log (one"
            " on this host would be left over from a migration)"
        )
    return "there is no metadata log on this host (it may be stored elsewhere)"


def mode_unknown(target: Target) -> str | None:
    """Why a metadata log that was read proves nothing, whatever it says; None if the broker uses it."""
    return MODE_UNKNOWN if target.config is None else None


def read_own_log(target: Target, host: Host, now_ms: int) -> MetadataImage | None:
    """What it says; None if there is none, or if the broker's configuration says that it is in ZooKeeper mode.

    Without that configuration it is read, but `mode_unknown` says why it proves nothing. Its cluster id comes from the
    `meta.properties` beside it: the log itself has none. Raises UnreadableError.
    """
    if target.config is not None and not target.server.process_roles:
        return None
    if target.config is None:
        directory = next((d for d in target.log_dirs if os.path.isdir(os.path.join(d, METADATA_DIR))), None)
    else:
        directory = target.server.metadata_log_dir
    if directory is None or not os.path.isdir(os.path.join(directory, METADATA_DIR)):
        return None
    from logagent.broker.metadata_log.log import read_metadata_log

    return read_metadata_log(
        os.path.join(directory, METADATA_DIR),
        node_id=host.node_id,
        cluster_id=_cluster_id_beside(directory),
        now_ms=now_ms,
        configured_voters=len(target.server.quorum_voters) or None,
        fetch_timeout_ms=target.server.quorum_fetch_timeout_ms,
        booted_ms=now_ms - time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000,
    )


def _cluster_id_beside(directory: str) -> str | None:
    try:
        with opened_directory(directory, follow=True) as dir_fd:
            meta = read_meta_properties(dir_fd)
    except OSError as e:
        raise UnreadableError(f"{os.path.join(directory, META_PROPERTIES)}: {e.strerror}") from e
    if meta is None:
        raise UnreadableError(f"there is no {META_PROPERTIES} in {directory}")
    return meta.cluster_id


ADMIN_NOT_CONFIGURED = "admin: kafka.bootstrap_servers is not set"


@dataclass(slots=True)
class Assignments:
    """The usable images, in the order of the sources, and what was wrong with the others.

    `unusable` images were read, but are stale, of another cluster, or not known to be of this one: they decide nothing,
    but their figures are reported, and they may contradict (`doubted`). `unreachable`: a source was a service that did
    not answer. `topic_configs`: by `server.properties` and, unless it is stale or its mode is unknown, the metadata log
    on this host; `broker_defaults`: those of this broker by `server.properties`, and by that log, however old.
    `own_log`: that log, however old, where it was read: as a source, or as evidence of what the others are about.
    """

    usable: list[AssignmentImage] = field(default_factory=list)
    unusable: list[AssignmentImage] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    delete_delay_ms: int | None = None
    topic_configs: TopicConfigs = UNKNOWN_CONFIGS
    broker_defaults: list[TopicConfigs] = field(default_factory=lambda: [UNKNOWN_CONFIGS])
    unreachable: ServiceUnreachable | None = None
    reader: AdminReader | None = None
    answering: Answering | None = None
    own_log: AssignmentImage | None = None
    own_broker_silent: bool = False

    @property
    def first(self) -> AssignmentImage | None:
        return self.usable[0] if self.usable else None

    def of(self, source: Source) -> AssignmentImage | None:
        """The usable image of a source."""
        return next((image for image in self.usable if image.source is source), None)

    def sort_in(self, image: AssignmentImage, problem: str | None) -> None:
        """Add an image to the usable ones, or with its `problem` to the others."""
        if problem is None:
            self.usable.append(image)
        else:
            self.problems.append(f"{image.source}: {problem}")
            self.unusable.append(image)

    @property
    def doubted(self) -> list[AssignmentImage]:
        """Images that prove nothing and may contradict what others prove (`verdict.contradict`)."""
        own = self.own_log
        aside = own is not None and all(image is not own for image in (*self.usable, *self.unusable))
        return [*self.unusable, *([own] if own is not None and aside else [])]

    @property
    def shown(self) -> AssignmentImage | None:
        """The image to show: the first usable one, else the first that was read at all."""
        return next(iter((*self.usable, *self.unusable)), None)

    def log_dir_served(self, node_id: int, path: str) -> bool | None:
        """Whether our broker says that it serves the log dir; None if it cannot be asked or is not known to be ours: a
        cloned cluster also has a node with our id, and perhaps a log dir with our path."""
        ours = self.answering is not None and self.answering.own
        return self.reader.log_dir_served(node_id, path) if ours and self.reader is not None else None

    def close(self) -> None:
        """Close the connection to the cluster."""
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def document(self, now_ms: int) -> AssignmentsUsed:
        """The `assignments` member of scan and plan documents."""
        image = self.shown
        if image is None:
            return {
                "source": "none",
                "cluster_id": None,
                "at": None,
                "offset": None,
                "age_seconds": None,
                "topics": 0,
                "partitions": 0,
            }
        return {
            "source": image.source,
            "cluster_id": image.cluster_id,
            "at": rfc3339(image.at_ms),
            "offset": image.offset,
            "age_seconds": image.age_ms(now_ms) / 1000,
            "topics": image.topic_count,
            "partitions": image.partition_count,
        }


def load_assignments(
    target: Target,
    settings: Settings,
    *,
    cluster_id: str | None,
    node_id: int | None,
    now_ms: int,
    may_read_log: bool = True,
    connect: Callable[[Settings], AdminReader] | None = None,
) -> Assignments:
    """Read the sources of `assignments.sources`. What cannot be used is described in `problems`.

    A file, or another broker in place of our own, may be of a clone of this cluster or of its past: the metadata log on
    this host's own disk shows that, so it is read then although it may be no source (unless not `may_read_log`: its
    disk hangs). `connect`: to the configured cluster (default: `open_reader`). Raises only ConfigError (an invalid
    `kafka.client` file).
    """
    found = Assignments(
        topic_configs=TopicConfigs(retention_ms=_static_retention_ms(target), tiering=_static_tiering(target)),
        broker_defaults=[_static_defaults(target)],
    )
    connect = connect or open_reader
    host = Host(node_id, cluster_id, settings.assignments.max_age)
    for source in settings.assignments.sources:
        try:
            image = _read(source, target, settings, host, found, now_ms, connect)
        except ConfigError:
            raise
        except ServiceUnreachable as e:
            found.problems.append(f"{source}: {e}")
            found.unreachable = e
            continue
        except (LogAgentError, OSError) as e:
            found.problems.append(f"{source}: {e}")
            continue
        except BaseException:
            found.close()
            raise
        if image is None:
            continue
        doubt = None
        if image.source is Source.KRAFT_LOG:
            found.own_log, doubt = image, mode_unknown(target)
        found.sort_in(image, _unusable(image, host, now_ms) or doubt)
    if may_read_log and found.own_log is None and (found.of(Source.FILE) or found.own_broker_silent):
        # It is no source, so what it lacks is no problem of the sources.
        with suppress(LogAgentError, OSError):
            aside = Assignments(topic_configs=found.topic_configs)
            found.own_log = _kraft_log(target, host, aside, now_ms)
            found.topic_configs = aside.topic_configs
            found.broker_defaults += aside.broker_defaults[1:]
    file, own = found.of(Source.FILE), found.own_log
    if file is not None and own is not None and own not in found.usable and own.cluster_id == file.cluster_id:
        if own.at_ms >= file.at_ms and _unusable(own, host, now_ms) is None:
            found.usable.append(own)  # newer than the file: it has to agree
        elif (why := why_not_our_log(file.offset, own.offset, "the file")) is not None:
            found.usable.remove(file)
            found.sort_in(file, why)
    return found


def _read(
    source: str,
    target: Target,
    settings: Settings,
    host: Host,
    found: Assignments,
    now_ms: int,
    connect: Callable[[Settings], AdminReader],
) -> AssignmentImage | None:
    if source == "kraft-log":
        return _kraft_log(target, host, found, now_ms)
    if source == "file":
        from logagent.broker.exported.file import read_assignments

        assert settings.assignments.file is not None
        return read_assignments(settings.assignments.file)
    if settings.kafka.bootstrap_servers is None:
        found.problems.append(ADMIN_NOT_CONFIGURED)
        return None
    found.reader = connect(settings)
    if host.node_id is not None:
        # Our own broker first: others may lag, and a broker that lost its cluster only knows the past.
        with suppress(ServiceUnreachable):
            return found.reader.image(now_ms, node_id=host.node_id)
        found.own_broker_silent = True
    return found.reader.image(now_ms)


def open_reader(settings: Settings) -> AdminReader:
    """Connect to the configured cluster. Raises ConfigError for an invalid client properties file."""
    from logagent.broker.admin.client_properties import read_client_properties
    from logagent.broker.admin.reader import AdminReader

    assert settings.kafka.bootstrap_servers is not None
    client = read_client_properties(settings.kafka.client) if settings.kafka.client is not None else None
    return AdminReader(settings.kafka.bootstrap_servers, client)


def _kraft_log(target: Target, host: Host, found: Assignments, now_ms: int) -> AssignmentImage | None:
    metadata = read_own_log(target, host, now_ms)
    if metadata is None:
        found.problems.append(f"kraft-log: {why_no_source(target)}")
        return None
    if host.node_id is not None:
        found.delete_delay_ms = metadata.delete_delay_ms(host.node_id)
        configs = _topic_configs(target, metadata, host.node_id)
        if _unusable(metadata.assignments, host, now_ms) is None and mode_unknown(target) is None:
            found.topic_configs = configs
        if metadata.assignments.cluster_id == host.cluster_id and mode_unknown(target) is None:
            found.broker_defaults.append(configs)
    return metadata.assignments


def _topic_configs(target: Target, metadata: MetadataImage, node_id: int) -> TopicConfigs:
    from logagent.broker.metadata_log.replay import (
        CLEANUP_POLICY,
        DEFAULT_POLICY,
        DEFAULT_RETENTION,
        DEFAULT_RETENTION_BYTES,
        RETENTION,
        RETENTION_BYTES,
    )

    policy = metadata.broker_config(DEFAULT_POLICY, node_id)
    retention = metadata.broker_config(DEFAULT_RETENTION, node_id)
    size = metadata.broker_config(DEFAULT_RETENTION_BYTES, node_id)
    return TopicConfigs(
        metadata.topic_configs[CLEANUP_POLICY],
        policy if policy is not None or target.config is None else target.server.cleanup_policy,
        {topic: parsed_ms(text) for topic, text in metadata.topic_configs[RETENTION].items()},
        _static_retention_ms(target) if retention is None else parsed_ms(retention),
        complete=True,
        tiering=_tiering(target, metadata, node_id),
        retentions_bytes={topic: parsed_ms(text) for topic, text in metadata.topic_configs[RETENTION_BYTES].items()},
        retention_bytes=_static_retention_bytes(target) if size is None else parsed_ms(size),
    )


def _tiering(target: Target, metadata: MetadataImage, node_id: int) -> Tiering:
    from logagent.broker.metadata_log.replay import COPY_DISABLED, DEFAULT_LOCAL_RETENTION, LOCAL_RETENTION, TIERED

    local, static = metadata.broker_config(DEFAULT_LOCAL_RETENTION, node_id), _static_tiering(target)
    return replace(
        static,
        enabled=metadata.topic_configs[TIERED],
        copy_disabled=metadata.topic_configs[COPY_DISABLED],
        local_ms={topic: parsed_ms(text) for topic, text in metadata.topic_configs[LOCAL_RETENTION].items()},
        default_local_ms=static.default_local_ms if local is None else parsed_ms(local),
    )


def _static_defaults(target: Target) -> TopicConfigs:
    if target.config is None:
        return UNKNOWN_CONFIGS
    server = target.server
    return TopicConfigs(
        policy=server.cleanup_policy,
        retention_ms=server.retention_ms,
        tiering=_static_tiering(target),
        retention_bytes=server.retention_bytes,
    )


def _static_tiering(target: Target) -> Tiering:
    if target.config is None:
        return Tiering()
    return Tiering(default_local_ms=target.server.local_retention_ms, on_broker=target.server.tiers)


def _static_retention_ms(target: Target) -> int | None:
    return target.server.retention_ms if target.config is not None else None


def _static_retention_bytes(target: Target) -> int | None:
    return target.server.retention_bytes if target.config is not None else None


def _unusable(image: AssignmentImage, host: Host, now_ms: int) -> str | None:
    """Why `image` cannot decide anything here, with the figure; None if it can."""
    if host.cluster_id is None or image.cluster_id != host.cluster_id:
        return f"it is of cluster {image.cluster_id}, this host is of {host.cluster_id}"
    age = image.age_ms(now_ms)
    if age > host.max_age_ms:
        return f"it is {age // 1000} s old (assignments.max_age is {host.max_age_ms // 1000} s)"
    if age < -CLOCK_TOLERANCE_MS:
        return f"it is {-age // 1000} s from the future"
    if image.topic_count == 0:
        return "it has no topics"
    return None
