"""Opens the log dirs of one broker and gathers the facts about them that the guards decide on."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from logagent.agent.clock import Clock
from logagent.agent.target import Target
from logagent.broker.lock import LOCK_FILE
from logagent.broker.meta_properties import META_PROPERTIES, parse_meta_properties
from logagent.errors import KafkaStorageError, LogAgentError, UnreadableError
from logagent.host.disk import LogDirFailures, OpenLogDir
from logagent.host.processes import OpenFiles, holder_of, scan_open_files
from logagent.model.cluster import ClusterView, MetaSeen, agree
from logagent.model.facts import Facts, LogDirFacts
from logagent.model.records import Health, Holder, HolderState

_MOST_META_BYTES = 1 << 20


class HostSight:
    """The log dirs of one broker, held open for one session; a context manager.

    One that cannot be opened is offline with its reason; that never stops the others.
    """

    def __init__(
        self,
        target: Target,
        clock: Clock,
        failures: LogDirFailures | None = None,
        quarantine_dirs: Sequence[str] = (),
    ) -> None:
        self.target = target
        self.clock = clock
        self.failures = failures if failures is not None else LogDirFailures()
        self.log_dirs: dict[str, OpenLogDir] = {}
        self._quarantine_dirs = quarantine_dirs
        self.quarantine: dict[str, OpenLogDir] = {}
        self.cluster = ClusterView(None, None)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for path in self.target.log_dirs:
            try:
                self.log_dirs[path] = self._stack.enter_context(OpenLogDir(path, self.failures))
            except KafkaStorageError:
                continue
            except LogAgentError as e:
                self.failures.mark_offline(path, str(e))
        for path in self._quarantine_dirs:
            if is_usable_quarantine(path, self.target.log_dirs):
                with suppress(LogAgentError):
                    self.quarantine[path] = self._stack.enter_context(OpenLogDir(path, self.failures))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def online(self) -> dict[str, OpenLogDir]:
        """The open log dirs that have not failed since."""
        return {path: d for path, d in self.log_dirs.items() if self.failures.reason(path) is None}

    def opened(self) -> dict[str, OpenLogDir]:
        """Log dirs and quarantine directories that are open and have not failed since."""
        quarantine = {path: d for path, d in self.quarantine.items() if self.failures.reason(path) is None}
        return self.online() | quarantine

    def quarantine_by_log_dir(self) -> dict[str, str]:
        """For each log dir the quarantine directory on its file system, where there is one."""
        return {
            path: directory
            for directory, opened in reversed(self.quarantine.items())
            for path, log_dir in self.online().items()
            if log_dir.identity.device == opened.identity.device
        }

    def read_cluster(self) -> dict[str, MetaSeen]:
        """`meta.properties` of every online log dir; `cluster` is what they agree on. Looks at no process."""
        metas: dict[str, MetaSeen] = {}
        for path, log_dir in self.online().items():
            try:
                metas[path] = read_meta(log_dir)
            except LogAgentError:
                continue
        self.cluster = agree(metas, self.target.server.node_id)
        return metas

    def log_dir_facts(self) -> dict[str, LogDirFacts]:
        """Health, holder, ids and open files of every log dir, looked at now."""
        metas = self.read_cluster()
        online = self.online()
        open_files, unreadable = self._open_files(list(self.opened().values()))
        found = {
            path: self._one(path, online.get(path), metas.get(path), open_files, unreadable)
            for path in self.target.log_dirs
        }
        found = without_given_up(found)
        for path, directory in self.quarantine.items():
            children = open_files.dir_pids.get(path, {})
            found[path] = LogDirFacts(
                path,
                directory.identity,
                Health.ONLINE,
                None,
                Holder(HolderState.FREE),
                open_by={name: tuple(sorted(pids)) for name, pids in children.items()},
                open_files_unreadable=unreadable,
                quarantine=True,
            )
        return found

    def _one(
        self,
        path: str,
        log_dir: OpenLogDir | None,
        meta: MetaSeen | None,
        open_files: OpenFiles,
        unreadable: str | None,
    ) -> LogDirFacts:
        if log_dir is None or meta is None:
            why = self.failures.reason(path) or "it could not be read"
            return LogDirFacts(path, None, Health.OFFLINE, why, Holder(HolderState.UNREADABLE))
        try:
            health, reason = _health(log_dir, meta)
        except LogAgentError as e:
            return LogDirFacts(path, None, Health.OFFLINE, str(e), Holder(HolderState.UNREADABLE))
        holder = holder_of(log_dir.fd, path, open_files)
        children = open_files.dir_pids.get(path, {})
        return LogDirFacts(
            path=path,
            identity=log_dir.identity,
            health=health,
            health_reason=reason,
            holder=holder,
            cluster_id=meta.cluster_id,
            node_id=meta.node_id,
            directory_id=meta.directory_id,
            open_by={name: tuple(sorted(pids)) for name, pids in children.items()},
            open_files_unreadable=unreadable or _doubt(holder, open_files, path),
            open_removed_bytes=open_files.removed_bytes.get(path, 0),
        )

    def _open_files(self, log_dirs: Sequence[OpenLogDir]) -> tuple[OpenFiles, str | None]:
        try:
            return scan_open_files(log_dirs), None
        except OSError as e:
            return OpenFiles(), f"the open files of processes cannot be read: {e}"

    def facts(self, log_dirs: Mapping[str, LogDirFacts] | None = None) -> Facts:
        """The facts of this moment, without what only an inventory, the journal or assignments can add."""
        seen = log_dirs if log_dirs is not None else self.log_dir_facts()
        return Facts(
            now_ms=self.clock.now_ms(),
            log_dirs=seen,
            cluster_problems=self.cluster.problems,
            delete_topic_enable=self.target.server.delete_topic_enable,
            kafka_version=self.target.kafka_version,
            left_out=self.target.left_out,
        )


def without_given_up(log_dirs: Mapping[str, LogDirFacts]) -> dict[str, LogDirFacts]:
    """A log dir that nobody holds, while a broker holds another one of the same node, is offline: the broker gave it up
    (`LogManager.handleLogDirFailure`) and is not stopped. One that starts takes its locks one after the other; for that
    moment it looks the same, and is left alone just as well."""
    holders = [f.holder for f in log_dirs.values() if f.holder.state in (HolderState.HELD, HolderState.STARTING)]
    if not holders:
        return dict(log_dirs)
    who = "the running broker" if holders[0].pid is None else f"the running broker (process {holders[0].pid})"
    reason = f"{who} holds other log dirs but not this one: it gave it up"
    not_held = (HolderState.FREE, HolderState.HIDDEN)
    return {
        path: replace(f, health=Health.OFFLINE, health_reason=reason)
        if f.holder.state in not_held and f.health is not Health.OFFLINE
        else f
        for path, f in log_dirs.items()
    }


def is_usable_quarantine(path: str, log_dirs: Sequence[str]) -> bool:
    """An existing directory of ours that neither lies in a log dir nor has one in it, and that is no log dir of any
    broker (that it is on the same file system is seen later)."""
    try:
        real, found = os.path.realpath(path), os.stat(path)
    except OSError:
        return False
    here = real.rstrip("/") + "/"
    others = [os.path.realpath(d).rstrip("/") + "/" for d in log_dirs]
    apart = not any(here.startswith(d) or d.startswith(here) for d in others)
    formatted = os.path.lexists(os.path.join(real, META_PROPERTIES)) or os.path.lexists(os.path.join(real, LOCK_FILE))
    return apart and not formatted and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _doubt(holder: Holder, open_files: OpenFiles, path: str) -> str | None:
    holds = holder.state in (HolderState.HELD, HolderState.STARTING)
    if holds and holder.pid is not None and not open_files.could_read(holder.pid):
        return f"the open files of process {holder.pid}, which holds the log dir, cannot be read"
    doubtful = open_files.doubtful.get(path, frozenset())
    if doubtful:
        return f"the open files of process {min(doubtful)}, which may be a broker, cannot be read"
    return None


def _health(log_dir: OpenLogDir, meta: MetaSeen) -> tuple[Health, str | None]:
    """State of an open log dir as far as one look tells; probes that write are the daemon's and `check`'s.

    Raises KafkaStorageError if the disk fails.
    """
    with log_dir.acting("statvfs"):
        room = os.statvfs(log_dir.fd)
    if room.f_flag & os.ST_RDONLY:
        return Health.READ_ONLY, "its file system is mounted read-only"
    if meta.missing:
        return Health.UNFORMATTED, f"there is no {META_PROPERTIES}"
    if room.f_bavail == 0:
        return Health.FULL, "its file system has no free block"
    return Health.ONLINE, None


def read_meta(log_dir: OpenLogDir) -> MetaSeen:
    """`meta.properties` of an open log dir. Raises KafkaStorageError if the disk fails."""
    with log_dir.acting("read", META_PROPERTIES):
        try:
            fd = os.open(META_PROPERTIES, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=log_dir.fd)
        except FileNotFoundError:
            return MetaSeen(missing=True)
        except OSError as e:
            if e.errno in (errno.EACCES, errno.EPERM, errno.ELOOP):
                return MetaSeen(error=e.strerror)
            raise
        try:
            content = os.read(fd, _MOST_META_BYTES)
            meta = parse_meta_properties(content)
        except (UnreadableError, IsADirectoryError) as e:
            return MetaSeen(error=str(e))
        finally:
            os.close(fd)
    return MetaSeen(cluster_id=meta.cluster_id, node_id=meta.node_id, directory_id=meta.directory_id)
