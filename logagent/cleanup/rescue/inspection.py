"""What a rescue reads besides inventory and facts: what each directory would free, what came back, doubles, ages of
segments."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from logagent.base.dir_names import REMOTE_LOG_METADATA, classify, leftovers
from logagent.base.errors import LogAgentError
from logagent.base.linux.mounts import kind_of
from logagent.base.records import DirKey, HolderState, Kind, PartitionDir, Verdict
from logagent.base.sizes import Space
from logagent.cleanup.execute.log_manager import TRUNCATES_HELD_SINCE
from logagent.cleanup.rescue.retention_advice import LARGEST_TOPICS, Expired, RetentionAdvice, advise, loaded
from logagent.cleanup.session.session import Session
from logagent.disk.log_dir import BROKER_FILES, OpenLogDir
from logagent.disk.unlink import gives_back
from logagent.kafka.files.checkpoint_files import TEMP_PREFIX
from logagent.kafka.files.meta_properties import META_PROPERTIES
from logagent.kafka.files.segment_files import segment_times
from logagent.kafka.retention.topic_retention import LOCAL_RETENTION, RETENTION, SegmentAge, TopicConfigs
from logagent.verdict.facts import Facts

T = TypeVar("T")
# With what `kafka-storage.sh format` writes.
_KAFKAS_FILES = frozenset({*BROKER_FILES, "bootstrap.checkpoint"})
# Free inodes of a file system that creates them on demand (btrfs).
UNCOUNTED = 1 << 31


def inspect_each(
    session: Session, dirs: Iterable[PartitionDir], read: Callable[[int, PartitionDir], T]
) -> dict[DirKey, T]:
    """`read(fd, dir)` for those that still exist and can be opened, log dir by log dir."""
    by_log_dir: dict[str, list[PartitionDir]] = {}
    for d in dirs:
        by_log_dir.setdefault(d.log_dir, []).append(d)
    opened = session.log_dirs.opened()
    jobs = {path: partial(_inspect_each, opened[path], ds, read) for path, ds in by_log_dir.items() if path in opened}
    found: dict[DirKey, T] = {}
    for looked in session.calls.call_each(jobs).values():
        if not isinstance(looked, LogAgentError):
            found |= looked
    return found


def _inspect_each(
    log_dir: OpenLogDir, dirs: Sequence[PartitionDir], read: Callable[[int, PartitionDir], T]
) -> dict[DirKey, T]:
    found: dict[DirKey, T] = {}
    for d in dirs:
        try:
            with log_dir.acting("read", d.name):
                fd = log_dir.open_child(d.name, d.identity)
                try:
                    found[d.key] = read(fd, d)
                finally:
                    os.close(fd)
        except LogAgentError:
            if log_dir.offline() is not None:
                raise
    return found


def room_given_back(session: Session, facts: Facts, dirs: Iterable[PartitionDir]) -> dict[DirKey, Space]:
    """By directory, what its file system gets back if it is removed now."""
    truncates = facts.kafka_version is not None and facts.kafka_version >= TRUNCATES_HELD_SINCE

    def read(fd: int, d: PartitionDir) -> Space:
        where = facts.log_dirs[d.log_dir]
        held = where.holder.state is HolderState.HELD and bool(where.open_by.get(d.name))
        return gives_back(fd, held=held, truncates_held=truncates)

    return inspect_each(session, dirs, read)


def leftover_files(session: Session, facts: Facts) -> list[tuple[PartitionDir, tuple[list[str], int]]]:
    """Of assigned directories on log dirs that no broker uses now: the files that a start would drop, and the bytes
    that their file system gets back."""

    def read(fd: int, d: PartitionDir) -> tuple[list[str], int]:
        names = leftovers(os.listdir(fd))
        size = 0
        for name in names:
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                size += found.st_blocks * 512
        return names, size

    free = {p for p, where in facts.log_dirs.items() if where.holder.state is HolderState.FREE and not where.quarantine}
    loaded = [
        d
        for d in session.of_kind(Kind.CURRENT, Kind.FUTURE)
        if d.log_dir in free and facts.ruling(d).verdict is Verdict.ASSIGNED
    ]
    seen = inspect_each(session, loaded, read)
    return [(d, seen[d.key]) for d in loaded if d.key in seen and seen[d.key][0]]


@dataclass(frozen=True, slots=True)
class BrokersPart:
    """What only a running broker can free, of the largest topics. `local_retention`: of tiered ones. `compacted`:
    (topic, bytes, `cleanup.policy`) of those of which retention frees nothing; `no_retention`: (topic, bytes, why) of
    those for which none may be advised."""

    retention: Sequence[RetentionAdvice] = ()
    local_retention: Sequence[RetentionAdvice] = ()
    expired: Sequence[Expired] = ()
    compacted: Sequence[tuple[str, int, str]] = ()
    no_retention: Sequence[tuple[str, int, str]] = ()


def brokers_part(session: Session, facts: Facts, planned: Container[DirKey], need: int | None) -> BrokersPart:
    """`planned`: what the plan removes or could remove; `need`: the bytes that are needed beyond that."""
    if need is not None and need <= 0:
        return BrokersPart()
    configs = _with_signs(session.assignments.topic_configs, session.dirs)
    spared = session.spared
    current = loaded((d for d in session.dirs if d.log_dir not in spared), facts, planned)
    sizes: dict[str, int] = {}
    for d in current:
        sizes[d.topic or ""] = sizes.get(d.topic or "", 0) + d.allocated
    ordered = sorted(sizes, key=lambda topic: (-sizes[topic], topic))
    compacted = [(topic, sizes[topic], configs.policy_of(topic) or "") for topic in ordered if configs.keeps_all(topic)]
    ordered = [topic for topic in ordered if not configs.keeps_all(topic)]
    left_out = [(topic, sizes[topic], why) for topic in ordered if (why := configs.why_no_setting(topic)) is not None]
    largest = [topic for topic in ordered if configs.setting_of(topic) is not None][:LARGEST_TOPICS]
    wanted = [d for d in current if d.topic in largest]
    ages = inspect_each(session, wanted, lambda fd, d: segment_times(fd))
    by_topic: dict[str, list[list[SegmentAge]]] = {}
    for d in wanted:
        by_topic.setdefault(d.topic or "", []).append(ages.get(d.key, []))
    advice, expired = advise(by_topic, sizes, facts.now_ms, need, configs)
    return BrokersPart(
        [a for a in advice if a.setting == RETENTION],
        [a for a in advice if a.setting == LOCAL_RETENTION],
        expired,
        compacted[:LARGEST_TOPICS],
        left_out[:LARGEST_TOPICS],
    )


def _with_signs(configs: TopicConfigs, dirs: Iterable[PartitionDir]) -> TopicConfigs:
    """`configs`, with what a broker that has remote storage leaves in its log dirs, whatever `server.properties` says:
    its cache of remote indexes (`RemoteIndexCache`), or the topic of its remote metadata."""
    if not any(d.kind is Kind.CACHE or d.topic == REMOTE_LOG_METADATA for d in dirs):
        return configs
    return replace(configs, tiering=replace(configs.tiering, on_broker=True))


def plain_files(session: Session) -> list[tuple[DirKey, int]]:
    """The files in the log dirs that are acted on and that Kafka did not write, with their bytes on disk."""

    def read(log_dir: OpenLogDir) -> list[tuple[DirKey, int]]:
        with log_dir.acting("look"), os.scandir(log_dir.fd) as entries:
            files: list[tuple[DirKey, int]] = []
            for e in entries:
                # Also what Kafka and we write before it gets its name.
                name = e.name.removeprefix(TEMP_PREFIX).removesuffix(".tmp")
                if name not in _KAFKAS_FILES and e.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        files.append((DirKey(log_dir.path, e.name), e.stat(follow_symlinks=False).st_blocks * 512))
            return files

    online = session.log_dirs.online()
    jobs = {path: partial(read, d) for path, d in online.items() if path not in session.spared}
    looked = session.calls.call_each(jobs).values()
    return [file for files in looked if not isinstance(files, LogAgentError) for file in files]


def free_room(session: Session) -> Mapping[str, Space]:
    """By log dir, what is free for users other than root (a large number if inodes are not counted)."""

    def read(log_dir: OpenLogDir) -> Space:
        with log_dir.acting("statvfs"):
            room = os.fstatvfs(log_dir.fd)
        return Space(room.f_bavail * room.f_frsize, room.f_favail if room.f_files else UNCOUNTED)

    jobs = {path: partial(read, log_dir) for path, log_dir in session.log_dirs.online().items()}
    return {
        path: found for path, found in session.calls.call_each(jobs).items() if not isinstance(found, LogAgentError)
    }


# File systems on which files can share blocks: a copy by `cp --reflink`, or a snapshot, keeps what is removed.
_SHARES_BLOCKS = frozenset({"xfs", "btrfs", "zfs", "bcachefs", "ocfs2"})
# What is removed comes back with the next transaction there: by default within 30 s (btrfs), 5 s (zfs).
_COMES_LATE = frozenset({"btrfs", "zfs", "bcachefs"})
_QUIET_SECONDS, _LATE_SECONDS, _POLL_SECONDS = 2.0, 35.0, 0.05


@dataclass(frozen=True, slots=True)
class Room:
    """Free bytes of one file system: for users other than root, and for root, whose reserve is among them."""

    users: int
    root: int
    kind: str


def free_by_device(session: Session) -> dict[int, Room]:
    """Of each file system that a log dir is on which answers."""

    def read(log_dir: OpenLogDir) -> tuple[int, Room]:
        with log_dir.acting("statvfs"):
            room, kind = os.fstatvfs(log_dir.fd), kind_of(log_dir.fd)
        return log_dir.identity.device, Room(room.f_bavail * room.f_frsize, room.f_bfree * room.f_frsize, kind)

    jobs = {path: partial(read, log_dir) for path, log_dir in session.log_dirs.online().items()}
    return dict(r for r in session.calls.call_each(jobs).values() if not isinstance(r, LogAgentError))


@dataclass(frozen=True, slots=True)
class CameBack:
    """By how many bytes more is free now than before. `reserved`: what root's reserve took of it. `shares_blocks`:
    kinds of file systems that may keep blocks for other files. `unread`: how many did not answer before or now; nothing
    is known to have come there."""

    bytes: int
    reserved: int
    shares_blocks: tuple[str, ...]
    unread: int


def what_came(session: Session, before: Mapping[int, Room | None], wanted: int, stop: Callable[[], bool]) -> CameBack:
    """Waits until `wanted` bytes came back, or no more comes: xfs frees what was removed in the background, and btrfs
    with its next transaction. `before`: by device, None if it did not answer."""
    clock = session.clock
    late = any(room is not None and room.kind in _COMES_LATE for room in before.values())
    quiet = _LATE_SECONDS if late else _QUIET_SECONDS
    most, since = -1, clock.monotonic()
    while (came := _came(before, free_by_device(session))).bytes < wanted and not stop():
        if came.bytes > most:
            most, since = came.bytes, clock.monotonic()
        elif clock.monotonic() - since > quiet:
            break
        clock.sleep(_POLL_SECONDS)
    return came


def _came(before: Mapping[int, Room | None], now: Mapping[int, Room]) -> CameBack:
    both = [(room, now[device]) for device, room in before.items() if room is not None and device in now]
    users = sum(max(0, after.users - room.users) for room, after in both)
    root = sum(max(0, after.root - room.root) for room, after in both)
    shares = sorted({room.kind for room, _ in both if room.kind in _SHARES_BLOCKS})
    return CameBack(users, max(0, root - users), tuple(shares), len(before) - len(both))


def file_systems(session: Session) -> list[tuple[list[str], int]]:
    """The log dirs that may be acted on by file system, each with its free bytes, the fullest first. Told apart by
    device, as everywhere: subvolumes that share their space count as several. Log dirs that were never used, such as
    the mount point of a disk that is not mounted, are left out."""
    opened, found = session.log_dirs.online(), dict[int, tuple[list[str], int]]()
    looked = session.calls.call_each({path: partial(_is_unused, log_dir) for path, log_dir in opened.items()})
    for path, room in free_room(session).items():
        if path not in session.spared and looked.get(path) is not True:
            found.setdefault(opened[path].identity.device, ([], room.bytes))[0].append(path)
    return sorted(found.values(), key=lambda where: where[1])


def _is_unused(log_dir: OpenLogDir) -> bool:
    """No `meta.properties`, and nothing that is named like what a broker makes: there is nothing to free."""
    with log_dir.acting("look"), os.scandir(log_dir.fd) as entries:
        return not any(e.name == META_PROPERTIES or classify(e.name).kind is not Kind.INVALID for e in entries)
