"""Gathers what was seen of each log dir for `check`: what the session knows, and what a starting broker will find."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from logagent.agent.session.session import Session
from logagent.broker.files.metadata_dir_files import metadata_faults
from logagent.errors import LogAgentError
from logagent.host.brokers.holders import OpenFiles, holder_of, scan_open_files
from logagent.host.inventory.scan import SYMLINK_ERROR
from logagent.host.linux.access import User
from logagent.host.linux.proc import is_kafka
from logagent.host.log_dir.log_dir import CLEAN_SHUTDOWN, LogDirFailures, OpenLogDir
from logagent.host.log_dir.probe import probe
from logagent.host.log_dir.start_looks import (
    PartitionDirs,
    broken_checkpoints,
    broken_epochs,
    denied_in_log_dir,
    has_metadata_log,
    links_and_leftovers,
    path_problem,
    read_meta_file,
    room_of,
)
from logagent.model.check.metadata_dir import METADATA_LOG
from logagent.model.check.start_facts import PathProblem, StartLogDirLook
from logagent.model.facts import Facts, LogDirFacts
from logagent.model.health.states import ProbeOutcome, ProbeResult, given_up, lock_facts
from logagent.model.records import Health, Holder, HolderState, Kind

_LOADED = (Kind.CURRENT, Kind.FUTURE, Kind.STRAY, Kind.DELETE)
HELD = (HolderState.HELD, HolderState.STARTING)
# A broker locks its log dirs one after the other: only an older broker can be said to have left one out.
STATES = {
    ProbeOutcome.FAILED: Health.OFFLINE,
    ProbeOutcome.HUNG: Health.OFFLINE,
    ProbeOutcome.READ_ONLY: Health.READ_ONLY,
    ProbeOutcome.FULL: Health.FULL,
}


class Looker:
    """Looks at the log dirs of one session, one after the other."""

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
        self._lost = (
            {} if server.controller_only else given_up({path: lock_facts(f.holder) for path, f in log_dirs.items()})
        )

    def all_log_dirs(self) -> tuple[StartLogDirLook, ...]:
        by_path: dict[str, StartLogDirLook] = {}
        for path, f in self._facts.log_dirs.items():
            if f.quarantine:  # no broker ever opens it
                continue
            first = by_path.get(self._session.log_dirs.second_paths.get(path, path))
            by_path[path] = replace(first, path=path) if first is not None else self._one(path, f)
        return tuple(by_path.values())

    def _one(self, path: str, f: LogDirFacts) -> StartLogDirLook:
        log_dir = self._session.log_dirs.online().get(path)
        canonical = os.path.realpath(path)
        holds_metadata = canonical == self._metadata_dir
        seen = StartLogDirLook(
            path,
            canonical,
            holds_metadata=holds_metadata,
            metadata_only=holds_metadata and self._session.target.server.controller_only,
            holder=f.holder,
            detail=f.health_reason,
        )
        if log_dir is None:
            problem = path_problem(path) if path not in self._probes else None
            if problem is not None:
                return replace(seen, problem=problem[0], detail=problem[1], health=Health.OFFLINE)
            return replace(seen, health=Health.OFFLINE)
        health, detail = self._health(path, f)
        try:
            with log_dir.acting("look"):
                seen = replace(self._inside(log_dir, seen), health=health, detail=detail)
        except LogAgentError as e:
            return replace(seen, health=Health.OFFLINE, detail=str(e))
        given_up = self._given_up(path)
        if given_up is not None:
            reason = f"the running broker (process {given_up}) gave it up"
            return replace(seen, given_up_by=given_up, health=Health.OFFLINE, detail=reason)
        return replace(seen, holder_is_broker=self._is_the_broker(f.holder))

    def _inside(self, log_dir: OpenLogDir, seen: StartLogDirLook) -> StartLogDirLook:
        links, leftovers = links_and_leftovers(log_dir.fd)
        if self._user is None:
            return seen
        partitions = PartitionDirs(log_dir, self._user)
        partitions.denied += denied_in_log_dir(log_dir, self._user)
        names = list(self._names(log_dir.path, links))
        if self._deep:
            partitions.look(names)
        if seen.holds_metadata:
            partitions.look([METADATA_LOG])
        return replace(
            seen,
            meta=read_meta_file(log_dir.fd),
            room=room_of(log_dir.fd),
            checkpoints=broken_checkpoints(log_dir.fd),
            # 70 µs a partition: of the two seconds that `prestart` has, only where a power failure may have left zeros.
            broken_epochs={} if self._hurried and log_dir.has(CLEAN_SHUTDOWN) else broken_epochs(log_dir.fd, names),
            metadata_log=has_metadata_log(log_dir.fd),
            metadata_faults=metadata_faults(log_dir.fd, self._session.target.server.quorum_voters)
            if seen.holds_metadata
            else (),
            dir_links=links,
            odd_files=tuple(partitions.odd_files),
            denied=tuple(partitions.denied),
            not_seen=tuple(partitions.not_seen),
            leftovers=tuple(leftovers),
        )

    def _names(self, path: str, links: Mapping[str, str]) -> Iterator[str]:
        """The directories that a broker loads. A symlink whose name ends in `-delete` is a finding by itself."""
        for d in self._session.dirs:
            followed = d.name in links and d.kind is not Kind.DELETE
            if d.log_dir == path and d.kind in _LOADED and (d.error != SYMLINK_ERROR or followed):
                yield d.name

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
        if holder.state not in HELD:
            return None
        return self._broker is not None and holder.pid == self._broker.pid


def _the_broker(log_dirs: Iterable[LogDirFacts]) -> Holder | None:
    """The only holder that is a Kafka broker, or whose PID is unknown (another PID namespace); None if there are
    several or none."""
    holders = {f.holder.pid: f.holder for f in log_dirs if f.holder.state in HELD}
    if len(holders) != 1:
        return None
    (holder,) = holders.values()
    return holder if holder.pid is None or is_kafka(holder.pid) else None


class MetadataDir:
    """`metadata.log.dir` if it is not one of the log dirs: a KRaft broker needs it just as much."""

    def __init__(
        self, session: Session, log_dirs: Sequence[StartLogDirLook], timeout: float, user: User | None
    ) -> None:
        server = session.target.server
        self._path = server.metadata_log_dir if server.process_roles and session.target.config is not None else None
        self._voters = server.quorum_voters
        self._log_dirs = log_dirs
        self._timeout = timeout
        self._user = user

    def look(self) -> tuple[StartLogDirLook, ...]:
        """The metadata log dir as one more entry, or nothing."""
        path = self._path
        if path is None or any(s.canonical == os.path.realpath(path) for s in self._log_dirs):
            return ()
        seen = StartLogDirLook(path, os.path.realpath(path), holds_logs=False, holds_metadata=True, metadata_only=True)
        problem = path_problem(path)
        if problem is not None:
            return (replace(seen, problem=problem[0], detail=problem[1]),)
        try:
            with OpenLogDir(path, LogDirFailures()) as opened, opened.acting("look"):
                return (self._inside(opened, seen),)
        except LogAgentError as e:
            return (replace(seen, problem=PathProblem.UNREADABLE, detail=str(e)),)

    def _inside(self, opened: OpenLogDir, seen: StartLogDirLook) -> StartLogDirLook:
        probed = probe(opened, self._timeout)
        health = STATES.get(probed.outcome, Health.ONLINE)
        if health is Health.OFFLINE:
            return replace(seen, health=health, detail=probed.reason)
        try:
            holder = holder_of(opened.fd, opened.path, scan_open_files([opened]))
        except OSError:
            holder = holder_of(opened.fd, opened.path, OpenFiles())
        brokers = {s.holder.pid for s in self._log_dirs if s.holder_is_broker}
        is_broker = holder.pid in brokers if holder.state in HELD else None
        denied, odd = [], []
        if self._user is not None:
            log = PartitionDirs(opened, self._user)
            log.look([METADATA_LOG])
            denied, odd = [*denied_in_log_dir(opened, self._user), *log.denied], log.odd_files
        return replace(
            seen,
            health=health,
            detail=probed.reason,
            holder=holder,
            holder_is_broker=is_broker,
            meta=read_meta_file(opened.fd),
            metadata_log=has_metadata_log(opened.fd),
            metadata_faults=metadata_faults(opened.fd, self._voters),
            room=room_of(opened.fd),
            odd_files=tuple(odd),
            denied=tuple(denied),
        )
