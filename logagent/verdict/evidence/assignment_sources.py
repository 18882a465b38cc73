"""The sources of verdicts, in the configured order: the first usable one decides, and any other must agree.

A source that cannot be read, is too old or is of another cluster is not usable; the reason is kept as text. Without any
usable source every verdict is `unknown`. No error is ever turned into an empty answer.

The metadata log on this host's own disk is a source, and evidence of which cluster others are about, only for a broker
in KRaft mode (`process.roles`). A migration that was reverted leaves one behind (KAFKA-16463), with our cluster id
beside it, which knows nothing of the topics made in ZooKeeper mode since.
"""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, cast

from logagent.base.claims import Claim, Held, Proof, Witness
from logagent.base.config.settings import Settings
from logagent.base.dir_names import METADATA_DIR
from logagent.base.errors import ConfigError, LogAgentError, NotUnderstood, ServiceUnreachable, UnreadableError
from logagent.base.files.safe_open import opened_directory
from logagent.base.records import Health, PartitionDir, Reason
from logagent.base.units import rfc3339
from logagent.kafka.commitment import (
    NOTHING_REMEMBERED,
    LogPoint,
    Remembered,
    other_history,
    why_not_our_lineage,
    why_not_our_log,
    why_other_log_dirs,
    with_lineage_hint,
)
from logagent.kafka.files.properties import META_PROPERTIES, read_meta_properties
from logagent.kafka.identity import BrokerPlace, Partition, partitions_on_disk, why_not_ours
from logagent.kafka.image import AssignmentImage, Source, doubt_of, unread
from logagent.kafka.processes.target import Target
from logagent.kafka.retention import settings as names
from logagent.kafka.retention.settings import NOTHING_SET, UNKNOWN_CONFIGS, Layers, Tiering, TopicConfigs, parsed_ms
from logagent.verdict.brokers import StoppedBroker, as_of_stop, why_live
from logagent.verdict.evidence.other_brokers import (
    CONNECT_SECONDS,
    Connect,
    OtherBrokers,
    client_config,
    connect_to,
    stopped_broker,
)
from logagent.verdict.facts import LogDirFacts
from logagent.verdict.rules import CLOCK_TOLERANCE_MS, Host, too_old

if TYPE_CHECKING:
    from logagent.kafka.admin.reader import AdminReader
    from logagent.kafka.metadata_log.log import MetadataImage
    from logagent.verdict.evidence.documents import AssignmentsUsed, LogDoubtDoc


@dataclass(frozen=True, slots=True)
class Answering:
    """The broker that answers for this cluster. `own`: it is this host's, proven by what is on its disk (`on_disk`).
    For another broker, `known_until_ms` is the time up to which it knows the cluster's decisions, None if unknown.
    `places`: where the brokers of the cluster listen (set only by our own broker)."""

    node_id: int
    own: bool
    on_disk: Mapping[str, frozenset[Partition]]
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


def settled_on_disk(
    dirs: Iterable[PartitionDir], log_dirs: Mapping[str, LogDirFacts], found: Assignments, now_ms: int
) -> dict[str, frozenset[Partition]]:
    """What this host's broker must list of its disk (`partitions_on_disk`), as far as that can be read now."""
    online = [p for p, f in log_dirs.items() if not f.quarantine and f.health is not Health.OFFLINE]
    here = partitions_on_disk(dirs, online, now_ms, found.name_of)
    return {posixpath.normpath(path): partitions for path, partitions in here.items()}


def shows_another_disk(
    reader: AdminReader, node_id: int, on_disk: Mapping[str, frozenset[Partition]], *, is_its_own: bool = False
) -> str | None:
    """Why the broker that answers as `node_id` is not that of these disks. Raises what a broker's answer raises."""
    described = {posixpath.normpath(path): d.partitions for path, d in reader.log_dirs(node_id).items()}
    return why_not_ours(described, on_disk, is_its_own=is_its_own)


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


def read_own_log(target: Target, host: Host, now_ms: int, remembered: int | None = None) -> MetadataImage | None:
    """What it says; None if there is none, or if the broker's configuration says that it is in ZooKeeper mode.

    Without that configuration it is read, but `mode_unknown` says why it proves nothing. Its cluster id comes from the
    `meta.properties` beside it: the log itself has none. `remembered`: see `read_metadata_log`. Raises UnreadableError.
    """
    if target.config is not None and not target.server.process_roles:
        return None
    if target.config is None:
        directory = next((d for d in target.log_dirs if os.path.isdir(os.path.join(d, METADATA_DIR))), None)
    else:
        directory = target.server.metadata_log_dir
    if directory is None or not os.path.isdir(os.path.join(directory, METADATA_DIR)):
        return None
    from logagent.kafka.metadata_log.log import read_metadata_log

    return read_metadata_log(
        os.path.join(directory, METADATA_DIR),
        node_id=host.node_id,
        cluster_id=_cluster_id_beside(directory),
        now_ms=now_ms,
        configured_voters=len(target.server.quorum_voters) or None,
        fetch_timeout_ms=target.server.quorum_fetch_timeout_ms,
        booted_ms=now_ms - time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000,
        remembered=remembered,
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
    on this host; `broker_defaults`: those of this broker by `server.properties`, and by that log, however old;
    `layers`: everything that is set, by both, however old.
    `own_log`: that log, however old, where it was read: as a source, or as evidence of what the others are about.
    `log_doubt`: why that log proves less, as a source, than that of a tested release. `no_answer`: why the Admin API is
    no source, with what to do.
    `lineage`: what the state dir remembers of it; `lineage_problem`: why it is not the log that is remembered, and
    proves nothing; `other_history`: why its cluster has another history than that, so that nobody's answer proves
    anything; `newest_committed`: what to remember of it. `stopped_broker`: this host's broker by that log, if nobody
    holds its log dirs; `nobody`: why no other broker could be asked in its place; `tried_others`: the addresses that
    the log names were tried.
    """

    usable: list[AssignmentImage] = field(default_factory=list)
    unusable: list[AssignmentImage] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    delete_delay_ms: int | None = None
    topic_configs: TopicConfigs = UNKNOWN_CONFIGS
    broker_defaults: list[TopicConfigs] = field(default_factory=lambda: [UNKNOWN_CONFIGS])
    layers: Layers = NOTHING_SET
    unreachable: ServiceUnreachable | None = None
    reader: AdminReader | None = None
    answering: Answering | None = None
    own_log: AssignmentImage | None = None
    log_doubt: Reason | None = None
    no_answer: Reason | None = None
    lineage: Remembered = NOTHING_REMEMBERED
    lineage_problem: str | None = None
    newest_committed: LogPoint | None = None
    other_history: str | None = None
    mode_known: bool = False

    stopped_broker: StoppedBroker | None = None
    nobody: str | None = None
    tried_others: bool = False

    @property
    def grounds(self) -> Proof:
        """Why the source that decides may be rested on: it is of this broker's mode and of our cluster's history."""
        image, answering = self.first, self.answering
        if image is None:
            return ()
        mode: Witness | None = Witness(image.source)
        lineage: Witness | None = Witness.CLUSTER
        if image.source is Source.KRAFT_LOG:
            mode = Witness.PROCESS_ROLES if self.mode_known else None
            lineage = Witness.REGISTRATION if self.lineage.point is None else Witness.STATE_DIR
            lineage = lineage if self.lineage_problem is None else None
        elif image.source is Source.ADMIN:
            own = Witness.OWN_DISK if answering is not None and answering.own else Witness.CLUSTER
            lineage = own if answering is not None else None
        witnesses = ((Claim.OUR_LINEAGE, lineage), (Claim.IN_THIS_MODE, mode))
        return tuple(Held(claim, witness, image.at_ms) for claim, witness in witnesses if witness is not None)

    @property
    def ends_at_stop(self) -> str | None:
        """What to say if nothing younger decides than the metadata log on this host, which ends when its broker
        stopped: it says what was assigned then."""
        own, shown = self.own_log, self.shown
        # What is wrong with a log of another history is not that it ends.
        if self.stopped_broker is None or own is None or shown is not own or self.lineage_problem is not None:
            return None
        return as_of_stop(own.at_ms, usable=bool(self.usable), nobody=self.nobody)

    @property
    def first(self) -> AssignmentImage | None:
        return self.usable[0] if self.usable else None

    def of(self, source: Source) -> AssignmentImage | None:
        """The usable image of a source."""
        return next((image for image in self.usable if image.source is source), None)

    def name_of(self, topic_id: str) -> str | None:
        """The name under which a topic id lives, by whatever was read."""
        images = (*self.usable, *self.unusable, *([self.own_log] if self.own_log is not None else []))
        return next((image.by_id[topic_id].name for image in images if topic_id in image.by_id), None)

    def own_end(self, cluster_id: str | None) -> int | None:
        """How far this host's own metadata log reaches, or was known to reach, if it is of that cluster."""
        own, known = self.own_log, self.lineage.point
        remembered = None if known is None else known.offset
        if own is None:
            return remembered
        if own.cluster_id != cluster_id or own.offset is None:
            return None
        return max(own.offset, remembered or 0)

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

    @property
    def shown_is_sure(self) -> bool:
        """Whether no start goes by better ones than `shown`: they are fresh, or of this node's own metadata log."""
        shown = self.shown
        return self.lineage_problem is None and shown is not None and (shown is self.own_log or shown is self.first)

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
        document: AssignmentsUsed = {
            "source": image.source if image is not None else "none",
            "cluster_id": image.cluster_id if image is not None else None,
            "at": rfc3339(image.at_ms) if image is not None else None,
            "offset": image.offset if image is not None else None,
            "age_seconds": image.age_ms(now_ms) / 1000 if image is not None else None,
            "topics": image.topic_count if image is not None else 0,
            "partitions": image.partition_count if image is not None else 0,
        }
        if (note := self.ends_at_stop) is not None:
            document["ends_at_stop"] = note
        if self.log_doubt is not None:
            document["log_doubt"] = log_doubt_row(self.log_doubt)
        return document


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentQuery:
    """For which host the sources are read, and how.

    `stopped`: nobody holds the lock of a log dir; then our own broker is not asked, and without
    `kafka.bootstrap_servers` those that our metadata log names are. `may_read_log`: False if its disk hangs.
    `lineage`: what is remembered of that log; `directory_ids`: of the log dirs. `network_seconds`: how long all answers
    of the cluster may take, later ones included; `until`: so until when, on the monotonic clock. `connect`: to the
    configured cluster; `connect_other`: to a broker that our metadata log names.
    """

    target: Target
    settings: Settings
    cluster_id: str | None
    node_id: int | None
    now_ms: int
    stopped: bool = False
    may_read_log: bool = True
    lineage: Remembered = NOTHING_REMEMBERED
    directory_ids: Collection[str] = ()
    network_seconds: float | None = None
    until: float | None = None
    connect: Callable[[Settings], AdminReader] = field(default=lambda settings: open_reader(settings))
    connect_other: Connect = connect_to

    @property
    def host(self) -> Host:
        return Host(self.node_id, self.cluster_id, self.settings.assignments.max_age)

    def from_now(self) -> AssignmentQuery:
        """The same with its deadline."""
        if self.network_seconds is None:
            return self
        return replace(self, until=time.monotonic() + self.network_seconds)

    def in_time(self, reader: AdminReader) -> AdminReader:
        if self.until is not None:
            reader.stop_at(self.until)
        return reader


def load_assignments(query: AssignmentQuery) -> Assignments:
    """Read the sources of `assignments.sources`. What cannot be used is described in `problems`.

    A file, or another broker in place of our own, may be of a clone of this cluster or of its past: the metadata log on
    this host's own disk shows that, so it is read then although it may be no source. Raises only ConfigError (an
    invalid `kafka.client` file).
    """
    query = query.from_now()
    target, lineage = query.target, query.lineage
    static = _topic_configs(_static_layers(target), target)
    found = Assignments(
        layers=_static_layers(target),
        topic_configs=replace(static, policy=None, retention_bytes=None),
        broker_defaults=[static],
        lineage=lineage,
        # Until its log is read, which may be impossible now.
        other_history=lineage.other_history if target.server.process_roles else None,
    )
    for source in query.settings.assignments.sources:
        image = _read_or_say_why(source, query, found)
        if image is not None:
            doubt = mode_unknown(target) or found.lineage_problem if image.source is Source.KRAFT_LOG else None
            found.sort_in(image, _unusable(image, query.host, query.now_ms) or doubt)
    _read_own_log_aside(query, found)
    if query.stopped:
        found.stopped_broker = _stopped_broker(query, found)
    _compare_file_with_own_log(query, found)
    _believe_nobody_of_another_history(query, found)
    return found


def _read_or_say_why(source: str, query: AssignmentQuery, found: Assignments) -> AssignmentImage | None:
    try:
        return _read(source, query, found)
    except ConfigError:
        raise
    except (LogAgentError, OSError) as e:
        found.problems.append(f"{source}: {e}")
        if isinstance(e, UnreadableError) and source == "kraft-log":
            asks = query.settings.kafka.bootstrap_servers is not None
            found.log_doubt = unread(str(e), newer=isinstance(e, NotUnderstood), asks_brokers=asks)
        found.unreachable = e if isinstance(e, ServiceUnreachable) else found.unreachable
        if source == "admin":
            found.nobody = str(e)
            found.no_answer = Reason(str(e), (e.hint if isinstance(e, LogAgentError) else None) or "")
        return None
    except BaseException:
        found.close()
        raise


def _read_own_log_aside(query: AssignmentQuery, found: Assignments) -> None:
    """As evidence of what the sources are about. It is none itself, so what it lacks is no problem of theirs."""
    if found.own_log is not None or not query.may_read_log:
        return
    aside = Assignments(topic_configs=found.topic_configs, lineage=found.lineage, other_history=found.other_history)
    with suppress(LogAgentError, OSError):
        _kraft_log(query, aside)
        found.own_log, found.topic_configs = aside.own_log, aside.topic_configs
        found.lineage_problem, found.newest_committed = aside.lineage_problem, aside.newest_committed
        found.mode_known, found.other_history = aside.mode_known, aside.other_history
        found.broker_defaults += aside.broker_defaults[1:]
        found.layers = aside.layers if aside.layers.complete else found.layers


def _compare_file_with_own_log(query: AssignmentQuery, found: Assignments) -> None:
    """A file has to be of our cluster's log as far as that can be seen, and to agree with a newer one of our own."""
    file, own = found.of(Source.FILE), found.own_log
    if file is None or (own is not None and own in found.usable):
        return
    newer = own if own is not None and own.cluster_id == file.cluster_id and own.at_ms >= file.at_ms else None
    if newer is not None and _unusable(newer, query.host, query.now_ms) is None:
        found.usable.append(newer)
    elif (why := _not_our_file(file, query, found)) is not None:
        found.usable.remove(file)
        found.sort_in(file, why)


def _not_our_file(file: AssignmentImage, query: AssignmentQuery, found: Assignments) -> str | None:
    """Why it is not known to be of our cluster; None if nothing contradicts that."""
    if (why := why_not_our_log(file.offset, found.own_end(file.cluster_id), "the file")) is not None:
        return why
    registration = file.brokers.get(query.host.node_id) if query.host.node_id is not None else None
    if (why := why_other_log_dirs(registration, query.directory_ids)) is not None:
        return why
    if found.stopped_broker is None or file.at_ms <= found.stopped_broker.forgotten_ms:
        return None
    live = [node_id for node_id, broker in file.brokers.items() if broker.fenced is False]
    return why_live(live, found.stopped_broker, file.at_ms)


def _believe_nobody_of_another_history(query: AssignmentQuery, found: Assignments) -> None:
    """Every broker, and what another host exported, may follow the quorum that wrote the log here. One that is only
    behind may have been restored just now, and catches up otherwise. That it has other log dirs of this node says
    nothing about what others know."""
    own = found.own_log
    registration = own.brokers.get(query.host.node_id) if own is not None and query.host.node_id is not None else None
    of_log = found.lineage_problem if why_other_log_dirs(registration, query.directory_ids) is None else None
    of_memory = with_lineage_hint(found.other_history, found.lineage) if found.other_history is not None else None
    why = of_log or of_memory
    if why is None:
        return
    doubted, found.usable = found.usable, []
    for image in doubted:
        found.sort_in(image, why)


def _read(source: str, query: AssignmentQuery, found: Assignments) -> AssignmentImage | None:
    if source == "kraft-log":
        _kraft_log(query, found)
        if (own := found.own_log) is not None:
            asks = query.settings.kafka.bootstrap_servers is not None
            found.log_doubt = doubt_of(own.untested_because, own.untested, asks_brokers=asks)
        return found.own_log
    if source == "file":
        from logagent.kafka.files.exported import read_assignments

        assert query.settings.assignments.file is not None
        return read_assignments(query.settings.assignments.file)
    if query.settings.kafka.bootstrap_servers is None:
        found.reader = _one_of_the_others(query, found)
        return found.reader.image(query.now_ms) if found.reader is not None else None
    found.reader = query.in_time(query.connect(query.settings))
    # Our own broker first: others may lag, and a broker that lost its cluster only knows the past.
    if query.host.node_id is not None and not query.stopped:
        with suppress(ServiceUnreachable):
            return found.reader.image(query.now_ms, node_id=query.host.node_id)
    return found.reader.image(query.now_ms)


def _stopped_broker(query: AssignmentQuery, found: Assignments) -> StoppedBroker | None:
    ours = stopped_broker(found.own_log, query.host, query.target) if mode_unknown(query.target) is None else None
    # The disk may have been rolled back: what is remembered of the log counts, too.
    return replace(ours, end=found.own_end(ours.cluster_id)) if ours is not None else None


def _one_of_the_others(query: AssignmentQuery, found: Assignments) -> AdminReader | None:
    """While our own broker is stopped, one that the metadata log on this host names."""
    if query.stopped:
        _read_own_log_aside(query, found)
    ours = _stopped_broker(query, found) if query.stopped else None
    if ours is None or found.own_log is None:
        found.problems.append(ADMIN_NOT_CONFIGURED)
        return None
    client = client_config(query.settings.kafka)
    others = OtherBrokers(found.own_log, ours, query.target, client, query.now_ms)
    others.connect = lambda servers, config: query.in_time(query.connect_other(servers, config))
    if query.until is not None:
        others.connect_seconds = max(0.0, min(CONNECT_SECONDS, query.until - time.monotonic()))
    found.tried_others, one = True, others.find()
    if isinstance(one, str):
        found.nobody = one
        found.problems.append(f"admin: no living broker could be asked: {one}")
        return None
    return one


def open_reader(settings: Settings) -> AdminReader:
    """Connect to the configured cluster. Raises ConfigError for an invalid client properties file."""
    from logagent.kafka.admin.client_properties import read_client_properties
    from logagent.kafka.admin.reader import AdminReader

    assert settings.kafka.bootstrap_servers is not None
    client = read_client_properties(settings.kafka.client) if settings.kafka.client is not None else None
    return AdminReader(settings.kafka.bootstrap_servers, client)


def _kraft_log(query: AssignmentQuery, found: Assignments) -> None:
    target, host = query.target, query.host
    point = found.lineage.point
    metadata = read_own_log(target, host, query.now_ms, point.offset if point is not None else None)
    if metadata is None:
        found.problems.append(f"kraft-log: {why_no_source(target)}")
        return
    found.own_log = image = metadata.assignments
    found.mode_known = mode_unknown(target) is None
    image.gone_ids = (image.gone_ids or frozenset()) | found.lineage.topic_ids
    if image.cluster_id == host.cluster_id:
        registration = image.brokers.get(host.node_id) if host.node_id is not None else None
        why = why_not_our_lineage(metadata.history, found.lineage, registration, query.directory_ids)
        found.lineage_problem, found.newest_committed = why, metadata.newest_committed
        if found.mode_known:
            found.other_history = other_history(metadata.history, found.lineage)
    rests_on_it = found.mode_known and found.lineage_problem is None
    if host.node_id is not None:
        found.delete_delay_ms = metadata.delete_delay_ms(host.node_id)
        layers = _layers(target, metadata, host.node_id)
        configs = _topic_configs(layers, target)
        if _unusable(image, host, query.now_ms) is None and rests_on_it:
            found.topic_configs = configs
        if image.cluster_id == host.cluster_id and rests_on_it:
            found.broker_defaults.append(configs)
            found.layers = layers


def _layers(target: Target, metadata: MetadataImage, node_id: int) -> Layers:
    """What is set, by `server.properties` and the metadata log."""
    from logagent.kafka.metadata_log.replay import DELETE_DELAY

    def dynamic(node: str) -> dict[str, str]:
        found = {name: values[node] for name, values in metadata.broker_configs.items() if node in values}
        delay = metadata.delete_delays.get(node)
        return found if delay is None else {**found, DELETE_DELAY: str(delay)}

    return Layers(
        topics=metadata.topic_configs,
        broker=dynamic(str(node_id)),
        all_brokers=dynamic(""),
        file=target.server.props if target.config is not None else None,
        complete=True,
        as_of_ms=metadata.assignments.at_ms,
    )


def _topic_configs(layers: Layers, target: Target) -> TopicConfigs:
    def own(name: str) -> dict[str, int | None]:
        return {topic: parsed_ms(text) for topic, text in layers.topics.get(name, {}).items()}

    def default(name: str) -> int | None:
        return layers.default(name).number

    known = layers.file is not None
    return TopicConfigs(
        policies=layers.topics.get(names.CLEANUP_POLICY, {}),
        policy=layers.default(names.CLEANUP_POLICY).text,
        retentions_ms=own(names.RETENTION_MS),
        retention_ms=default(names.RETENTION_MS),
        complete=layers.complete,
        tiering=Tiering(
            enabled=layers.topics.get(names.TIERED, {}),
            copy_disabled=layers.topics.get(names.COPY_DISABLED, {}),
            local_ms=own(names.LOCAL_RETENTION_MS),
            default_local_ms=default(names.LOCAL_RETENTION_MS) if known else names.AS_RETENTION,
            on_broker=target.server.tiers if known else None,
        ),
        retentions_bytes=own(names.RETENTION_BYTES),
        retention_bytes=default(names.RETENTION_BYTES),
    )


def _static_layers(target: Target) -> Layers:
    return target.server.layers if target.config is not None else NOTHING_SET


def _unusable(image: AssignmentImage, host: Host, now_ms: int) -> str | None:
    """Why `image` cannot decide anything here, with the figure; None if it can."""
    if host.cluster_id is None or image.cluster_id != host.cluster_id:
        return f"it is of cluster {image.cluster_id}, this host is of {host.cluster_id}"
    age = image.age_ms(now_ms)
    if age > host.max_age_ms:
        return f"it is {too_old(age, host)}"
    if age < -CLOCK_TOLERANCE_MS:
        return f"it is {-age // 1000} s from the future"
    if image.topic_count == 0:
        return "it has no topics"
    return None


def log_doubt_row(doubt: Reason) -> LogDoubtDoc:
    proves = cast(Literal["all", "removals", "nothing"], doubt.code)
    return {"proves": proves, "says": doubt.fact, "hint": doubt.hint}
