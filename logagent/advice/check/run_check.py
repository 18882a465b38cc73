"""Would this broker start, and how are its log dirs? Inspects everything a start depends on; changes nothing.

Strays that the broker will empty at its next start: it looks up the log start offset by the parsed name
(`LogManager.loadLog`), so a stray shares the checkpoint entry of the current partition of the same name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from logagent.advice.check.rules.linter import check
from logagent.advice.check.rules.log_dirs import FIT, check_disk
from logagent.advice.check.rules.releases import CUTS_SINCE
from logagent.advice.check.rules.start_facts import (
    Emptied,
    MetaState,
    Mode,
    Override,
    PathProblem,
    StartFacts,
    StartLogDirFacts,
    StartServerFacts,
    concerns_us,
)
from logagent.advice.check.start_inspection import (
    PartitionDirs,
    broken_checkpoints,
    broken_epochs,
    denied_at,
    denied_in_log_dir,
    failed_marks,
    fixed_in,
    followed_topic_ids,
    has_metadata_log,
    in_place_of_directory,
    links_and_leftovers,
    log_places,
    path_problem,
    places_of,
    places_of_files,
    read_meta_file,
    room_of,
)
from logagent.advice.finding import Finding, Severity
from logagent.base.dir_names import LOG_START_OFFSET, METADATA_DIR, STRAY_SUFFIX
from logagent.base.errors import LogAgentError, UnreadableError
from logagent.base.kafka_version import Version
from logagent.base.linux.access import User, owner_of, user_of_process
from logagent.base.linux.kernel import is_kafka, mount_of, mounts
from logagent.base.records import (
    LOADED_KINDS,
    DirKey,
    Health,
    Holder,
    HolderState,
    Kind,
    PartitionDir,
    TopicPartition,
    Verdict,
    id_unread,
)
from logagent.cleanup.session.left_log_dirs import missing as missing_of
from logagent.cleanup.session.recall import open_exchanges
from logagent.cleanup.session.session import Session
from logagent.disk.health import ProbeOutcome, ProbeResult, given_up, lock_facts
from logagent.disk.holders import OpenFiles, holder_of, scan_open_files
from logagent.disk.log_dir import CLEAN_SHUTDOWN, LogDirFailures, OpenLogDir
from logagent.disk.probe import Prober, broken_steps, probe
from logagent.disk.scan import SYMLINK_ERROR
from logagent.kafka.config_in_force import in_force, still_in_doubt
from logagent.kafka.files.checkpoint_files import read_checkpoint
from logagent.kafka.files.metadata_dir import metadata_faults, read_start_levels
from logagent.kafka.image import StartLevels
from logagent.kafka.processes.broker_process import launch_of_process
from logagent.kafka.processes.discovery import newest_change_ms, same_file, start_scripts
from logagent.kafka.processes.systemd_units import broker_units
from logagent.kafka.retention.settings import CORDONED_LOG_DIRS
from logagent.verdict.evidence.stray_questions import read_log
from logagent.verdict.evidence.version_seen import is_noted
from logagent.verdict.facts import Facts, LogDirFacts
from logagent.verdict.leaving import set_cordoned, stale_cordons
from logagent.verdict.rules import VerdictReason
from logagent.verdict.without_directory import Missing

if TYPE_CHECKING:
    from logagent.advice.documents import FindingDoc

# A broker locks its log dirs one after the other: only an older broker has left one out.
STATES = {
    ProbeOutcome.FAILED: Health.OFFLINE,
    ProbeOutcome.HUNG: Health.OFFLINE,
    ProbeOutcome.READ_ONLY: Health.READ_ONLY,
    ProbeOutcome.FULL: Health.FULL,
}


def emptied_logs(session: Session, *kinds: Kind) -> tuple[Emptied, ...]:
    """Strays whose log is not known to reach the log start offset recorded for their name, and current directories
    whose log is known not to, in the log dirs that can be read."""
    log_dirs = session.log_dirs.online()
    dirs = [d for d in session.of_kind(*kinds) if d.log_dir in log_dirs and d.segments and d.error is None]
    jobs = {
        path: partial(_emptied_in, log_dirs[path], [d for d in dirs if d.log_dir == path])
        for path in {d.log_dir for d in dirs}
        if path not in session.log_dirs.quarantine
    }
    by_log_dir = session.calls.call_each(jobs)
    return tuple(e for each in by_log_dir.values() if not isinstance(each, LogAgentError) for e in each)


def _emptied_in(log_dir: OpenLogDir, dirs: Sequence[PartitionDir]) -> list[Emptied]:
    with log_dir.acting("read", LOG_START_OFFSET):
        try:
            starts = read_checkpoint(log_dir.fd, LOG_START_OFFSET, follow=True) or {}
        except UnreadableError:
            # Another finding reports this: the log dir goes offline, and nothing in it is loaded.
            return []
    emptied: list[Emptied] = []
    for d in dirs:
        # For a truncated name the broker looks up the truncated topic.
        start = starts.get(TopicPartition(d.topic or "", d.partition if d.partition is not None else -1), 0)
        if start == 0:
            continue
        log = read_log(log_dir, d)
        # That the end of a current one is unknown is nothing new to a broker: it recovers that log.
        current = d.kind is Kind.CURRENT
        if log is not None and log.emptied_by(start) and not (current and log.log_end is None):
            emptied.append(Emptied(f"{d.log_dir}/{d.name}", start, log.log_end, current))
    return emptied


@dataclass(frozen=True, slots=True)
class CheckedLogDir:
    """State of one log dir. probe_ms: how long the probe took; None if there was nothing to probe."""

    path: str
    health: Health
    reason: str | None
    probe_ms: float | None
    limited: str | None = None


@dataclass(frozen=True, slots=True)
class CheckReport:
    """kafka_version: the version that was checked for; None: every version from `at_least` on (None: every supported
    one)."""

    log_dirs: tuple[CheckedLogDir, ...]
    findings: tuple[Finding, ...]
    kafka_version: Version | None
    at_least: Version | None
    user: User | None


def run_check(
    session: Session,
    version: Version | None = None,
    *,
    timeout: float,
    user: User | None = None,
    deep: bool = True,
    about_to_start: bool = False,
    read_all: Callable[[], None] | None = None,
) -> CheckReport:
    """Probe every log dir, then check what a start depends on.

    version: check for this release instead of the broker's own. timeout: seconds that a disk has to answer. user: the
    broker's user, instead of the one it runs as or the owner of its log dirs. deep: also inspect every partition
    directory for owners, modes and odd files (about 10 µs a file). about_to_start: for `prestart`, where any holder at
    all is an obstacle, and the epoch files that a clean stop has left are not read. The inventory of `session` is used;
    if it has none, `read_all` follows the probes: it reads the assignments, then takes the inventory.
    """
    probes = dict(Prober().probe_all(session.log_dirs.online().values(), timeout))
    _mark_failed(probes.values(), session.log_dirs.failures)
    if not session.inventory.by_log_dir:
        # A hung disk would block this, so the disks are probed before. The assignments come first, because a directory
        # younger than they are proves nothing.
        (read_all or partial(_read_all, session))()
    facts = session.facts()
    known = facts.known_version
    chosen = version if version is not None else known.exact
    oldest = known.at_least if chosen is None else None
    who = user if user is not None else _broker_user(facts.log_dirs.values())
    reader = LogDirInspector(session, facts, probes, who, deep, hurried=about_to_start)
    seen = reader.all_log_dirs()
    metadata = MetadataDir(session, seen, timeout, who, hurried=about_to_start).inspect()
    start = _start_facts(session, facts, seen + metadata, who, about_to_start)
    start = replace(start, kafka_version=known, failed_marks=_failed_marks(session, seen, chosen or oldest))
    findings = check(start, chosen, at_least=oldest)
    return CheckReport(tuple(_health(s, probes) for s in seen), tuple(findings), chosen, oldest, who)


def _read_all(session: Session) -> None:
    session.read_assignments()
    session.take_inventory()


def check_space(session: Session, path: str, timeout: float) -> list[Finding]:
    """The findings about the disk of one log dir (or `metadata.log.dir`), as it is now."""
    opened = session.log_dirs.online().get(path)
    if opened is None:
        with OpenLogDir(path, LogDirFailures()) as other:
            return _space_of(other, timeout, metadata_only=True)
    return _space_of(opened, timeout, metadata_only=session.target.server.controller_only)


def _space_of(log_dir: OpenLogDir, timeout: float, *, metadata_only: bool) -> list[Finding]:
    probed = probe(log_dir, timeout)
    with log_dir.acting("read"):
        room = room_of(log_dir.fd)
    health = STATES.get(probed.outcome, Health.ONLINE)
    state = StartLogDirFacts(log_dir.path, metadata_only=metadata_only, health=health, detail=probed.reason, room=room)
    return list(check_disk(state))


def _mark_failed(probes: Iterable[ProbeResult], failures: LogDirFailures) -> None:
    for p in probes:
        if STATES.get(p.outcome) is Health.OFFLINE:
            failures.mark_offline(p.path, p.reason or "the probe failed")


def _broker_user(log_dirs: Iterable[LogDirFacts]) -> User | None:
    """The user of the running broker, else the owner of the first log dir that exists."""
    facts = list(log_dirs)
    for f in facts:
        if f.holder.state.is_broker and f.holder.pid is not None:
            user = user_of_process(f.holder.pid)
            if user is not None:
                return user
    for f in facts:
        try:
            return owner_of(os.stat(f.path), f.path)
        except OSError:
            continue
    return None


def _start_facts(
    session: Session, facts: Facts, seen: tuple[StartLogDirFacts, ...], user: User | None, about_to_start: bool
) -> StartFacts:
    rulings = facts.rulings
    orphans = {key for key, ruling in rulings.items() if ruling.verdict is Verdict.ORPHAN}
    wrong = {k: r.detail or "another one" for k, r in rulings.items() if r.reason == VerdictReason.WRONG_DIRECTORY}
    missing = missing_of(session, facts)
    return StartFacts(
        server=_server(session, seen),
        log_dirs=seen,
        dirs=tuple(session.dirs),
        user=f"user {user.name} ({user.known_by})" if user is not None else "the broker's user",
        assigned=_assigned(session),
        gone=orphans,
        set_aside=_set_aside(session, seen),
        wrong_directory=wrong,
        homeless=_homeless(session, seen, {key: rulings[key].last_copy for key in wrong}),
        open_exchanges=open_exchanges(session.journal, session.dirs),
        # Before a start there is no time to read logs that only a checkpoint of another log could empty.
        emptied=emptied_logs(session, Kind.STRAY, *(() if about_to_start else (Kind.CURRENT,))),
        overrides=_overrides(session.target.config, facts.log_dirs.values()),
        config_doubt=None if about_to_start else _config_doubt(session, facts, seen),
        about_to_start=about_to_start,
        missing=missing,
        taken=_names_taken(session, missing),
        missing_sure=session.assignments.shown_is_sure and not any(s.holder_is_broker for s in seen),
        stale_cordons=_stale_cordons(session),
        settings=session.assignments.layers,
    )


def _stale_cordons(session: Session) -> dict[str, str]:
    """None without a configuration: then the log dirs are those that the command names."""
    layers, configured = replace(session.assignments.layers, file=None), session.target.server.log_dirs
    node_id = session.log_dirs.cluster.node_id
    if session.target.config is None or not (stale := stale_cordons(layers.cordoned, configured)):
        return {}
    hint = f"take it out of {CORDONED_LOG_DIRS}"
    if CORDONED_LOG_DIRS in layers.broker and node_id is not None:
        hint = f"when it runs: {set_cordoned(node_id, sorted({*layers.cordoned} - {*stale}))}"
    return dict.fromkeys(stale, hint)


def _failed_marks(session: Session, seen: Sequence[StartLogDirFacts], version: Version | None) -> dict[DirKey, str]:
    """From the broker's log, if its release is one that needs it."""
    if version is None or version >= CUTS_SINCE:
        return {}
    config = session.target.config
    scripts = start_scripts(config) if config is not None else ()
    pid = next((s.holder.pid for s in seen if s.holder_is_broker and s.holder.pid is not None), None)
    log_dirs = [path for s in seen for path in (s.path, s.canonical) if path is not None]
    return failed_marks(log_places(config, scripts, pid), log_dirs)


def _server(session: Session, seen: Iterable[StartLogDirFacts]) -> StartServerFacts:
    """Without a configuration, the version in `meta.properties` shows the mode: KRaft formats with version 1."""
    target = session.target
    if target.config is None:
        versions = {s.meta.version for s in seen if s.meta.state is MetaState.READ}
        modes = {1: Mode.KRAFT, 0: Mode.ZOOKEEPER}
        return StartServerFacts(mode=modes.get(versions.pop() or 0) if len(versions) == 1 else None)
    server = target.server
    return StartServerFacts(
        mode=Mode.KRAFT if server.process_roles else Mode.ZOOKEEPER,
        node_id=server.node_id,
        log_dirs_text=server.props.get("log.dirs", server.props.get("log.dir")),
        metadata_log_dir=server.metadata_log_dir if server.process_roles else None,
        config=target.config,
        runs_controller="controller" in server.process_roles,
        controller_only=server.controller_only,
        generates_id=server.generates_broker_id,
        reserved_max_id=server.reserved_broker_max_id,
        may_migrate=server.props.get("zookeeper.metadata.migration.enable", "false").strip().lower() != "false",
        names_quorum=bool(server.quorum_voters or server.props.get("controller.quorum.bootstrap.servers", "").strip()),
    )


def _config_doubt(session: Session, facts: Facts, seen: Iterable[StartLogDirFacts]) -> str | None:
    """The running broker is asked (at most 2 s) only where its file may have changed."""
    config, broker = session.target.config, next((s.holder for s in seen if s.holder_is_broker), None)
    if config is None or broker is None:
        return None
    changed_ms = newest_change_ms(config)
    pid, started_ms = broker.pid, broker.start_time_ms
    noted = is_noted(session.state_dir, config, pid, started_ms)
    doubt = in_force(config, running=True, started_ms=started_ms, changed_ms=changed_ms, noted=noted).doubt
    if doubt is None:
        return None
    running, unknown, _ = session.layers_in_force(facts, ask=True)
    return still_in_doubt(doubt, session.assignments.layers.file, running.file if unknown is None else None)


def _overrides(config: str | None, log_dirs: Iterable[LogDirFacts]) -> tuple[Override, ...]:
    """What the command lines of the running broker and of the units that start it say otherwise than `config`."""
    if config is None:
        return ()
    overrides: dict[tuple[str, str], Override] = {}
    launches = [(u.name, u.launch) for u in broker_units() if same_file(u.launch.config, config)]
    for pid in dict.fromkeys(f.holder.pid for f in log_dirs if f.holder.state.is_broker and f.holder.pid is not None):
        launch = launch_of_process(pid)
        if launch is not None:
            launches.append((f"process {pid}", launch))
    for who, launch in launches:
        for key, value in launch.overrides.items():
            if concerns_us(key):
                overrides.setdefault((key, value), Override(who, f"{key}={value}"))
    return tuple(overrides.values())


def _assigned(session: Session) -> frozenset[TopicPartition]:
    """The partitions that this node is a replica of, by name. Assignments too old for verdicts count too: evidence that
    makes a finding worse needs less proof than evidence that makes it better."""
    image, node_id = session.assignments.shown, session.log_dirs.cluster.node_id
    if image is None or node_id is None or image.cluster_id != session.log_dirs.cluster.cluster_id:
        return frozenset()
    return frozenset(
        TopicPartition(name, number)
        for name, topic in image.by_name.items()
        for number, partition in topic.partitions.items()
        if node_id in partition.replicas
    )


def _names_taken(session: Session, missing: Missing) -> dict[str, tuple[str, bool]]:
    """What has the name of a directory that a start would make, by path: what it is, and whether it is in the way for
    certain, since the partition is assigned to that log dir."""
    wanted = {str(w): w.directory_id for w in missing.here} | _behind_links(session)
    log_dirs = {path: d for path, d in session.log_dirs.online().items() if path not in session.log_dirs.quarantine}
    found: dict[str, tuple[str, bool]] = {}
    for path, log_dir in log_dirs.items() if wanted else ():
        with suppress(LogAgentError), log_dir.acting("read"):
            here = read_meta_file(log_dir.fd).directory_id
            for name, directory_id in wanted.items():
                what = in_place_of_directory(log_dir.fd, name)
                if what is not None:
                    found[f"{path}/{name}"] = what, len(log_dirs) == 1 or (here is not None and here == directory_id)
    return found


def _set_aside(session: Session, seen: Iterable[StartLogDirFacts]) -> frozenset[DirKey]:
    """Mount points that are no replica of this node for certain: no verdict is given on what an inventory does not
    read."""
    image, cluster = session.assignments.shown, session.log_dirs.cluster
    known = image if session.assignments.shown_is_sure and image is not None and image.complete else None
    if known is not None and (known.cluster_id != cluster.cluster_id or known.incomplete_because is not None):
        known = None
    ids = {s.path: {name: id_ for name, id_ in s.followed_ids.items() if name in s.mounted} for s in seen}
    found = set()
    for d in session.of_kind(Kind.CURRENT):
        if d.name not in ids.get(d.log_dir, {}):
            continue
        topic_id = ids[d.log_dir][d.name]
        ours = None if known is None or topic_id is None else known.partition(topic_id, d.partition or 0)
        elsewhere = known is not None and (ours is None or cluster.node_id not in ours.replicas)
        if topic_id is None or elsewhere:
            found.add(d.key)
    return frozenset(found)


def _behind_links(session: Session) -> dict[str, str | None]:
    """The partitions of this broker of which there is a link and no directory, with the log dir that they are assigned
    to: an inventory follows no link, so they are not known to be missing."""
    image, node_id, assigned = session.assignments.shown, session.log_dirs.cluster.node_id, _assigned(session)
    current = session.of_kind(Kind.CURRENT)
    there = {d.name for d in current if d.error != SYMLINK_ERROR}
    links = {d.name: TopicPartition(d.topic or "", d.partition or 0) for d in current if d.error == SYMLINK_ERROR}
    if image is None or node_id is None:
        return {}
    return {
        name: image.by_name[p.topic].partitions[p.partition].directory_of(node_id)
        for name, p in links.items()
        if p in assigned and name not in there
    }


def _homeless(
    session: Session, seen: Iterable[StartLogDirFacts], last_copies: Mapping[DirKey, bool | None]
) -> frozenset[DirKey]:
    """Of these directories, the ones that may be the only copy, and are assigned to the id of no log dir here."""
    image, node_id = session.assignments.shown, session.log_dirs.cluster.node_id
    if image is None or node_id is None:
        return frozenset()
    ids = {s.meta.directory_id for s in seen}
    found = set()
    for d in session.of_kind(Kind.CURRENT):
        topic = image.by_name.get(d.topic or "") if last_copies.get(d.key, False) is not False else None
        partition = topic.partitions.get(-1 if d.partition is None else d.partition) if topic is not None else None
        if partition is not None and partition.directory_of(node_id) not in (None, *ids):
            found.add(d.key)
    return frozenset(found)


def _health(s: StartLogDirFacts, probes: Mapping[str, ProbeResult]) -> CheckedLogDir:
    probe = probes.get(s.path)
    health = Health.OFFLINE if s.problem is not None else s.health
    ms = round(probe.ms, 3) if probe is not None else None
    return CheckedLogDir(s.path, health, s.detail, ms, probe.limited if probe is not None else None)


def _unopened(seen: StartLogDirFacts, problem: PathProblem, detail: str, user: User | None) -> StartLogDirFacts:
    """A directory that could not be opened. If it is closed to us, is it to the broker's user?"""
    denied = () if user is None or problem is not PathProblem.CLOSED else tuple(denied_at(seen.path, user))
    return replace(seen, problem=problem, detail=detail, denied=denied)


class LogDirInspector:
    """Inspects the log dirs of one session, one after the other."""

    def __init__(
        self,
        session: Session,
        facts: Facts,
        probes: Mapping[str, ProbeResult],
        user: User | None,
        deep: bool,
        hurried: bool = False,
    ) -> None:
        self._session = session
        self._facts = facts
        self._probes = probes
        self._user = user
        self._deep = deep
        self._hurried = hurried
        server = session.target.server
        configured = session.target.config is not None and bool(server.process_roles)
        self._metadata_dir = os.path.realpath(server.metadata_log_dir) if configured else None
        self._broker = _the_broker(facts.log_dirs.values())
        log_dirs = {path: f for path, f in facts.log_dirs.items() if not f.quarantine}
        # A controller locks none but its metadata log dir.
        try:
            self._mounts = mounts()
        except OSError:
            self._mounts = []
        self._mount_points = {mount.point for mount in self._mounts}
        self._lost = (
            {} if server.controller_only else given_up({path: lock_facts(f.holder) for path, f in log_dirs.items()})
        )

    def all_log_dirs(self) -> tuple[StartLogDirFacts, ...]:
        by_path: dict[str, StartLogDirFacts] = {}
        for path, f in self._facts.log_dirs.items():
            if f.quarantine:  # no broker ever opens it
                continue
            first = by_path.get(self._session.log_dirs.second_paths.get(path, path))
            by_path[path] = replace(first, path=path) if first is not None else self._one(path, f)
        return tuple(by_path.values())

    def _one(self, path: str, f: LogDirFacts) -> StartLogDirFacts:
        log_dir = self._session.log_dirs.online().get(path)
        canonical = os.path.realpath(path)
        holds_metadata = canonical == self._metadata_dir
        seen = StartLogDirFacts(
            path,
            canonical,
            holds_metadata=holds_metadata,
            metadata_only=holds_metadata and self._session.target.server.controller_only,
            holder=f.holder,
            detail=f.health_reason,
            mount_point=mount.point if (mount := mount_of(canonical, self._mounts)) is not None else None,
            file_system=mount.kind if mount is not None else None,
        )
        if log_dir is None:
            problem = path_problem(path) if path not in self._probes else None
            if problem is not None:
                return replace(_unopened(seen, *problem, self._user), health=Health.OFFLINE)
            return replace(seen, health=Health.OFFLINE)
        health, detail = self._health(path, f)
        try:
            with log_dir.acting("read"):
                seen = replace(self._inside(log_dir, seen), health=health, detail=detail)
                seen = seen if self._hurried else _tried(log_dir.fd, seen)
        except LogAgentError as e:
            return replace(seen, health=Health.OFFLINE, detail=str(e))
        given_up = self._given_up(path)
        if given_up is not None:
            reason = f"the running broker (process {given_up}) gave it up"
            return replace(seen, given_up_by=given_up, health=Health.OFFLINE, detail=reason)
        return replace(seen, holder_is_broker=self._is_the_broker(f.holder))

    def _inside(self, log_dir: OpenLogDir, seen: StartLogDirFacts) -> StartLogDirFacts:
        links, leftovers = links_and_leftovers(log_dir.fd)
        if self._user is None:
            return seen
        partitions = PartitionDirs(log_dir, self._user)
        partitions.denied += denied_in_log_dir(log_dir, self._user)
        names = list(self._names(log_dir.path, links))
        if self._deep:
            partitions.inspect(names)
        if seen.holds_metadata:
            partitions.inspect([METADATA_DIR])
        return replace(
            seen,
            meta=read_meta_file(log_dir.fd),
            room=room_of(log_dir.fd),
            levels=self._levels(log_dir, seen),
            checkpoints=broken_checkpoints(log_dir.fd),
            # 70 µs a partition: of the two seconds that `prestart` has, only where a power failure may have left zeros.
            broken_epochs={} if self._hurried and log_dir.has(CLEAN_SHUTDOWN) else broken_epochs(log_dir.fd, names),
            metadata_log=has_metadata_log(log_dir.fd),
            metadata_faults=metadata_faults(log_dir.fd, self._session.target.server.quorum_voters)
            if seen.holds_metadata
            else (),
            dir_links=links,
            followed_ids=followed_topic_ids(log_dir.fd, self._unread_ids(log_dir.path, links)),
            places=places_of(log_dir.fd, self._unread_ids(log_dir.path, links)),
            mounted=frozenset(name for name in names if f"{seen.canonical}/{name}" in self._mount_points),
            odd_files=tuple(partitions.odd_files),
            load_faults=(*places_of_files(log_dir.fd, metadata_only=seen.metadata_only), *partitions.load_faults),
            denied=tuple(partitions.denied),
            # A start changes nothing in a stray.
            fixed=fixed_in(log_dir, () if self._hurried else (n for n in names if not n.endswith(STRAY_SUFFIX))),
            not_seen=tuple(partitions.not_seen),
            leftovers=tuple(leftovers),
        )

    def _levels(self, log_dir: OpenLogDir, seen: StartLogDirFacts) -> StartLevels | None:
        """Without a configuration, a metadata log is taken for the node's own."""
        unplaced = self._session.target.config is None and has_metadata_log(log_dir.fd)
        return read_start_levels(log_dir.fd) if seen.holds_metadata or unplaced else None

    def _names(self, path: str, links: Mapping[str, str]) -> Iterator[str]:
        """The directories that a broker loads. A symlink whose name ends in `-delete` is a finding by itself."""
        for d in self._session.dirs:
            followed = d.name in links and d.kind is not Kind.DELETE
            if d.log_dir == path and d.kind in LOADED_KINDS and (d.error != SYMLINK_ERROR or followed):
                yield d.name

    def _unread_ids(self, path: str, links: Mapping[str, str]) -> Iterator[str]:
        """The directories that a broker loads and whose topic id the inventory did not read."""
        unread = {d.name for d in self._session.dirs if d.log_dir == path and id_unread(d)}
        return (name for name in self._names(path, links) if name in unread)

    def _health(self, path: str, f: LogDirFacts) -> tuple[Health, str | None]:
        probed = self._probes.get(path)
        if probed is not None and probed.outcome is not ProbeOutcome.GOOD:
            return STATES[probed.outcome], probed.reason
        if f.health is Health.OFFLINE and f.identity is not None:
            # It answers, but another log dir is held, which is reason enough for the guards to leave it alone. The code
            # below finds out whether the broker gave it up, has not locked it yet, or another process holds the other
            # one.
            return Health.ONLINE, None
        return f.health, f.health_reason

    def _given_up(self, path: str) -> int | None:
        """The PID of the running broker if it has certainly given up this log dir."""
        lost, broker = self._lost.get(path), self._broker
        if lost is None or broker is None or broker.pid != lost.pid or not lost.is_settled(self._facts.now_ms):
            return None
        return lost.pid

    def _is_the_broker(self, holder: Holder) -> bool | None:
        if not holder.state.is_broker:
            return None
        return self._broker is not None and holder.pid == self._broker.pid


def _the_broker(log_dirs: Iterable[LogDirFacts]) -> Holder | None:
    """The only holder that is shown to be a Kafka broker, by its process or by its own answer (another PID namespace);
    None if there are several or none."""
    holders = {f.holder.pid: f.holder for f in log_dirs if f.holder.state.is_broker}
    if len(holders) != 1:
        return None
    (holder,) = holders.values()
    shown = holder.state is HolderState.HELD if holder.pid is None else is_kafka(holder.pid)
    return holder if shown else None


def _tried(dir_fd: int, seen: StartLogDirFacts) -> StartLogDirFacts:
    """With a trial of its file system, where that is not of a kind that is known to do: only where nobody holds the log
    dir, since whoever does may have it listed."""
    free = seen.holder.state is HolderState.FREE and seen.health is Health.ONLINE
    return replace(seen, cannot=broken_steps(dir_fd)) if free and seen.file_system not in FIT else seen


class MetadataDir:
    """`metadata.log.dir` if it is not one of the log dirs: a KRaft broker needs it just as much."""

    def __init__(
        self,
        session: Session,
        log_dirs: Sequence[StartLogDirFacts],
        timeout: float,
        user: User | None,
        *,
        hurried: bool = False,
    ) -> None:
        server = session.target.server
        self._path = server.metadata_log_dir if server.process_roles and session.target.config is not None else None
        self._voters = server.quorum_voters
        self._log_dirs = log_dirs
        self._timeout = timeout
        self._user = user
        self._hurried = hurried

    def inspect(self) -> tuple[StartLogDirFacts, ...]:
        """The metadata log dir as one more entry, or nothing."""
        path = self._path
        if path is None or any(s.canonical == os.path.realpath(path) for s in self._log_dirs):
            return ()
        real = os.path.realpath(path)
        seen = StartLogDirFacts(path, real, holds_logs=False, holds_metadata=True, metadata_only=True)
        with suppress(OSError):
            mount = mount_of(real, mounts())
            seen = replace(seen, file_system=mount.kind if mount is not None else None)
        problem = path_problem(path)
        if problem is not None:
            return (_unopened(seen, *problem, self._user),)
        try:
            with OpenLogDir(path, LogDirFailures()) as opened, opened.acting("read"):
                return (self._inside(opened, seen),)
        except LogAgentError as e:
            return (replace(seen, problem=PathProblem.UNREADABLE, detail=str(e)),)

    def _inside(self, opened: OpenLogDir, seen: StartLogDirFacts) -> StartLogDirFacts:
        probed = probe(opened, self._timeout)
        health = STATES.get(probed.outcome, Health.ONLINE)
        if health is Health.OFFLINE:
            return replace(seen, health=health, detail=probed.reason)
        try:
            holder = holder_of(opened.fd, opened.path, scan_open_files([opened]))
        except OSError:
            holder = holder_of(opened.fd, opened.path, OpenFiles())
        brokers = {s.holder.pid for s in self._log_dirs if s.holder_is_broker}
        is_broker = holder.pid in brokers if holder.state.is_broker else None
        denied, odd, faults = [], [], []
        if self._user is not None:
            log = PartitionDirs(opened, self._user)
            log.inspect([METADATA_DIR])
            denied, odd = [*denied_in_log_dir(opened, self._user), *log.denied], log.odd_files
            faults = log.load_faults
        seen = replace(seen, health=health, holder=holder)
        return replace(
            seen if self._hurried else _tried(opened.fd, seen),
            detail=probed.reason,
            holder_is_broker=is_broker,
            meta=read_meta_file(opened.fd),
            metadata_log=has_metadata_log(opened.fd),
            metadata_faults=metadata_faults(opened.fd, self._voters),
            levels=read_start_levels(opened.fd),
            room=room_of(opened.fd),
            odd_files=tuple(odd),
            load_faults=(*places_of_files(opened.fd, metadata_only=True), *faults),
            denied=tuple(denied),
        )


_CHECK_WORDS: dict[Severity, Literal["fatal", "warning", "info"]] = {
    Severity.FATAL: "fatal",
    Severity.WARNING: "warning",
    Severity.INFO: "info",
}


def finding_row(finding: Finding) -> FindingDoc:
    """One finding of `check` and `prestart`."""
    return {
        "severity": _CHECK_WORDS[finding.severity],
        "code": finding.why.code,
        "path": finding.path,
        "kafka_versions": str(finding.releases),
        "says": finding.why.fact,
        "hint": finding.why.hint,
    }
