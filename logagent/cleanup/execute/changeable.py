"""Whether the kernel would let us do what a plan is about to: modes and owners, immutable and append-only files, sticky
directories, read-only mounts, lower layers of an overlay. Changes nothing.

Asked as the user who acts: a dry run of root has become that user. What each act needs is what its system calls need: a
rename of a directory `vfs_rename`, a removal (`disk.remove`) the mark on the directory, an unlink of each file,
and the truncation of what is large. Only the kernel itself can say for certain, at the act: what changes in between, or
a security module that forbids it, fails there, with nothing lost.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from logagent.base.dir_names import CLEANER, LOG_START_OFFSET
from logagent.base.errors import ItemFailed, LogAgentError, NotAsPlanned, UnreadableError
from logagent.base.files.safe_open import MIB
from logagent.base.linux.access import READ, SEARCH, WRITE, may_as_any_owner, user_name
from logagent.base.linux.kernel import Attributes, attributes, kind_of, mounts, on_lower_layer
from logagent.base.records import ActionKind, DirKey, Reason
from logagent.cleanup.execute.renames import ENTRY_FILES, entries_to_drop, may_have_entries
from logagent.cleanup.plan.plan import Proposal, action_id
from logagent.disk.calls import DiskCalls, Stop, refuse_if
from logagent.disk.log_dir import OPEN_CHILD, OpenLogDir
from logagent.disk.scan import is_started
from logagent.disk.unlink import MAX_CHUNK
from logagent.kafka.files.checkpoint_files import read_checkpoint
from logagent.kafka.files.segment_files import indexes_to_rebuild, read_segment_files

# Kafka makes no directories in a partition's. What is deeper fails at the act, if it does.
_MOST_LEVELS = 16
# File systems whose rename takes no flags, by Linux's sources (`nfs_rename`, `ceph_rename`, `v9fs_vfs_rename`, …). A
# list, because nothing can be tried: before the file system is asked, the kernel answers that there is no such name
# (ENOENT) or that it is taken (EEXIST), and a name of our own in a log dir is more than a dry run may write. ext4, xfs,
# btrfs, tmpfs, overlay, CIFS and SMB take RENAME_NOREPLACE; virtiofs hands it to the host's file system.
_PLAIN_RENAMES = frozenset(
    {"nfs", "nfs4", "ceph", "9p", "ocfs2", "orangefs", "afs", "coda", "ecryptfs", "vboxsf", "fuse", "fuseblk"}
)
# In user space it is up to each program (sshfs, bindfs and ntfs-3g refuse), and that shows only at the act: a doubt
# refuses.
_IN_USER_SPACE = "fuse."
_ZFS_VERSION, _ZFS_SINCE = "/sys/module/zfs/version", (2, 2)
_CHATTR = {"immutable": "i", "append-only": "a"}


class Actor(NamedTuple):
    """Who acts. `owns_all`: it may do what a file's owner may (CAP_FOWNER)."""

    uid: int
    owns_all: bool

    def may_as_owner(self, *uids: int) -> bool:
        return self.owns_all or self.uid in uids

    def __str__(self) -> str:
        return f"user {user_name(self.uid)}"


def who_acts() -> Actor:
    return Actor(os.geteuid(), may_as_any_owner())


class Ways:
    """What `actor` may do with directories in the open `source`, which stay there or go to `target`."""

    def __init__(self, source: OpenLogDir, target: OpenLogDir, actor: Actor) -> None:
        self.source = source
        self.target = target
        self.actor = actor
        self._above: Attributes | None = None
        self._kind: str | None = None
        self._closed: Reason | None = None

    def why_not(self, p: Proposal) -> Reason | None:
        """Why the kernel would not permit `p`; None if nothing is known against it. Raises KafkaStorageError or
        ItemFailed if it cannot be looked at."""
        with self.source.acting("read", p.dir.name):
            try:
                fd = self.source.open_child(p.dir.name, p.dir.identity)
            except NotAsPlanned:
                return None  # the act says what it is by then
            except PermissionError:
                return self._forbidden(p.dir.name, READ | SEARCH)
            try:
                return next(self._found(p, fd), None)
            finally:
                os.close(fd)

    def _found(self, p: Proposal, fd: int) -> Iterator[Reason]:
        path, own = f"{self.source.path}/{p.dir.name}", attributes(fd)
        if p.action is not ActionKind.REMOVE_LEFTOVERS:
            yield from self._leaves(path, own)
        if p.new_name is not None:
            yield from self._renamed(path, fd)
        if p.action is ActionKind.REMOVE or p.then_removed:
            if not is_started(own.mode) and not self.actor.may_as_owner(own.uid):
                yield _not_its_owner(self.actor, path, own)
            yield from self._emptied(path, fd, own)
        elif p.action is ActionKind.RESTORE or p.on_the_way_back:
            if not self.actor.may_as_owner(own.uid):
                yield _not_its_owner(self.actor, path, own)
            rebuilt = indexes_to_rebuild(read_segment_files(fd), every_segment=p.rebuild_all or p.on_the_way_back)
            yield from self._unlinked(path, fd, own, rebuilt.unlink)
        elif p.action is ActionKind.REMOVE_LEFTOVERS:
            yield from self._unlinked(path, fd, own, p.leftovers)

    def _leaves(self, path: str, own: Attributes) -> Iterator[Reason]:
        """Its name may be taken from the directory that it is in, and given to it in the other one."""
        yield from _fixed(path, own.fixed)
        if self._above is None:
            self._above = attributes(self.source.fd)
            self._closed = next(self._places(), None)
        if self._closed is not None:
            yield self._closed
        if self._above.mode & stat.S_ISVTX and not self.actor.may_as_owner(own.uid, self._above.uid):
            yield _sticky(self.actor, self.source.path, path, own)

    def _places(self) -> Iterator[Reason]:
        for place in dict.fromkeys((self.source, self.target)):
            there = attributes(place.fd)
            if os.statvfs(place.fd).f_flag & os.ST_RDONLY:
                where = f"the file system of {place.path} is mounted read-only"
                yield Reason(where, "find out why (dmesg), and mount it for writing")
            yield from _fixed(place.path, there.fixed)
            if not _may(place.fd, ".", WRITE | SEARCH):
                yield _no_permission(self.actor, place.path, there)

    def _renamed(self, path: str, fd: int) -> Iterator[Reason]:
        if self.target is not self.source:
            if self.target.mount_id != self.source.mount_id:
                fact = f"{self.target.path} is on another mount than {self.source.path}, and nothing is ever copied"
                yield Reason(fact, "name a quarantine directory that is reached through the same mount")
            if not _may(fd, ".", WRITE):
                yield _no_permission(self.actor, path, attributes(fd))
        kind = self._kind = kind_of(fd) if self._kind is None else self._kind
        if not takes_noreplace(kind, _zfs_version):
            yield Reason(
                f"{path} is on {kind}, where names cannot be changed without replacing others (RENAME_NOREPLACE)",
                "use a local file system, or run it where this one is local; what is marked or stray already can be"
                " removed here",
            )
        if on_lower_layer(fd) and not _overlay_moves(fd):
            fact = f"{path} is in a lower layer of an overlay file system, which renames no directory from there"
            yield Reason(
                fact,
                "no broker can rename it either: give log.dirs a volume of their own, or mount the overlay with "
                "redirect_dir=on",
            )

    def _emptied(self, path: str, fd: int, own: Attributes, levels: int = _MOST_LEVELS) -> Iterator[Reason]:
        """Everything in the open directory may be removed."""
        if not _may(fd, ".", READ | WRITE | SEARCH):
            yield _no_permission(self.actor, path, own)
            return
        yield from self._unlinked(path, fd, own, os.listdir(fd), levels)

    def _unlinked(
        self, path: str, fd: int, own: Attributes, names: Sequence[str], levels: int = _MOST_LEVELS
    ) -> Iterator[Reason]:
        """These entries of the open directory may be removed."""
        if names and not _may(fd, ".", WRITE | SEARCH):
            yield _no_permission(self.actor, path, own)
        sticky = own.mode & stat.S_ISVTX and not self.actor.may_as_owner(own.uid)
        for name in names:
            try:
                found = attributes(fd, name)
            except FileNotFoundError:
                continue
            if found.fixed is not None:
                yield from _fixed(f"{path}/{name}", found.fixed)
            if sticky and found.uid != self.actor.uid:
                yield _sticky(self.actor, path, f"{path}/{name}", found)
            if stat.S_ISDIR(found.mode):
                yield from self._below(f"{path}/{name}", fd, name, levels)
            elif found.size > MAX_CHUNK and _is_shortened(found) and not _may(fd, name, WRITE):
                yield _no_permission(self.actor, f"{path}/{name}", found)

    def _below(self, path: str, fd: int, name: str, levels: int) -> Iterator[Reason]:
        if levels == 0:
            return
        try:
            below = os.open(name, OPEN_CHILD, dir_fd=fd)
        except PermissionError:
            yield _no_permission(self.actor, path, attributes(fd, name))
            return
        except OSError:
            return  # it has become something else by now
        try:
            yield from self._emptied(path, below, attributes(below), levels - 1)
        finally:
            os.close(below)

    def _forbidden(self, name: str, wants: int) -> Reason | None:
        with suppress(FileNotFoundError):
            if not _may(self.source.fd, name, wants):
                return _no_permission(self.actor, f"{self.source.path}/{name}", attributes(self.source.fd, name))
        return None


def why_not_replaced(log_dir: OpenLogDir, file: str, actor: Actor) -> Reason | None:
    """Why a checkpoint of the log dir cannot be replaced by one of the same owner and mode; None if it can be, or is
    not there. Raises KafkaStorageError or ItemFailed."""
    path = f"{log_dir.path}/{file}"
    with log_dir.acting("read", file):
        try:
            found = attributes(log_dir.fd, file)
        except FileNotFoundError:
            return None
    # Its owner is kept, which only root can give away (`replacement`).
    if actor.uid not in (found.uid, 0):
        return _not_its_owner(actor, path, found)
    return next(_fixed(path, found.fixed), None)


def why_not_read(log_dir: OpenLogDir, file: str) -> Reason | None:
    """Why the entries of a checkpoint of the log dir cannot be read; None if they can be, or it is not there. Raises
    KafkaStorageError."""
    try:
        with log_dir.acting("read", file):
            read_checkpoint(log_dir.fd, file)
    except UnreadableError as e:
        path = shlex.quote(f"{log_dir.path}/{file}")
        hint = f"ls -l {path}: while the broker is stopped, mend it or move it away (a broker starts without it)"
        return Reason(f"in {log_dir.path}, {e}", e.hint or hint)
    except ItemFailed as e:
        return Reason(str(e), e.hint or "run as the user that owns it (or as root)")
    return None


def takes_noreplace(kind: str, zfs_version: Callable[[], str]) -> bool:
    """Whether a rename on this kind of file system can refuse to replace what has the new name (RENAME_NOREPLACE). ZFS
    since 2.2; `zfs_version` is that of the module that runs, empty if it does not say, which refuses."""
    if kind == "zfs":
        found = re.match(r"(\d+)\.(\d+)", zfs_version())
        return found is not None and (int(found[1]), int(found[2])) >= _ZFS_SINCE
    return kind not in _PLAIN_RENAMES and not kind.startswith(_IN_USER_SPACE)


def _zfs_version() -> str:
    with suppress(OSError), open(_ZFS_VERSION, encoding="ascii", errors="replace") as file:
        return file.read().strip()
    return ""


def _may(fd: int, name: str, wants: int) -> bool:
    """The kernel's own answer: access control lists, capabilities and mounts count."""
    return os.access(name, wants, dir_fd=fd, effective_ids=True)


def _is_shortened(found: Attributes) -> bool:
    """Whether a large file is truncated before it is unlinked (`unlink.Shortener`)."""
    large = found.size > MAX_CHUNK and found.blocks * 512 > MIB
    return large and stat.S_ISREG(found.mode) and found.links == 1


def _overlay_moves(fd: int) -> bool:
    """Whether the overlay that the directory is on moves directories of its lower layers (`redirect_dir`)."""
    device = os.fstat(fd).st_dev
    options = next((m.device_options for m in reversed(mounts()) if m.device == device), frozenset())
    set_here = [option for option in options if option.startswith("redirect_dir=")]
    if set_here:
        return "redirect_dir=on" in set_here
    with suppress(OSError), open("/sys/module/overlay/parameters/redirect_dir", encoding="ascii") as file:
        return file.read().strip() == "Y"
    return False


def _fixed(path: str, how: str | None) -> Iterator[Reason]:
    if how is not None:
        hint = f"somebody made it so: if it may go after all, chattr -{_CHATTR[how]} {shlex.quote(path)}"
        yield Reason(f"{path} is {how}", hint)


def _no_permission(actor: Actor, path: str, found: Attributes) -> Reason:
    fact = f"{actor} may not change {path} ({_owner_and_mode(found)})"
    return Reason(fact, "give it to the broker's user, or run as the user that owns it (or as root)")


def _not_its_owner(actor: Actor, path: str, found: Attributes) -> Reason:
    fact = f"{actor} may not set the mode or times of {path} ({_owner_and_mode(found)}): only its owner may"
    return Reason(fact, f"chown {actor.uid} {shlex.quote(path)}, or run as the user that owns it")


def _sticky(actor: Actor, directory: str, path: str, found: Attributes) -> Reason:
    fact = f"{directory} is sticky, and {path} does not belong to {actor} ({_owner_and_mode(found)})"
    return Reason(fact, f"chown {actor.uid} {shlex.quote(path)}, or chmod -t {shlex.quote(directory)}")


def _owner_and_mode(found: Attributes) -> str:
    return f"owner {user_name(found.uid)}, mode {stat.S_IMODE(found.mode):04o}"


# Of a whole plan

Found = dict[DirKey, Reason]


def look_whether_changeable(opened: Mapping[str, OpenLogDir], calls: DiskCalls, actions: Sequence[Proposal]) -> Found:
    """Of these actions, those that the kernel would not permit. A log dir that cannot be looked at fails at the act."""
    actor = who_acts()
    by_log_dir: dict[str, list[Proposal]] = {}
    for p in actions:
        by_log_dir.setdefault(p.dir.log_dir, []).append(p)
    jobs = {
        path: partial(_look, opened[path], opened, here, actor) for path, here in by_log_dir.items() if path in opened
    }
    looked = calls.work(jobs).values()
    found = {key: why for each in looked if not isinstance(each, LogAgentError) for key, why in each.items()}
    # A marked directory is restored under the name under which it is set aside first.
    for p in actions:
        if p.on_the_way_back and p.key in found:
            found[DirKey(p.new_dir or p.dir.log_dir, p.new_name or "")] = found[p.key]
    return found


def _look(
    source: OpenLogDir, opened: Mapping[str, OpenLogDir], actions: Sequence[Proposal], actor: Actor, stop: Stop
) -> Found:
    found = _with_entries(source, actions, actor) | _coming_back(source, opened, actions)
    ways: dict[str, Ways] = {}
    for p in actions:
        refuse_if(stop, source.path)
        target = p.new_dir or source.path
        if target not in ways:
            ways[target] = Ways(source, opened.get(target, source), actor)
        why = ways[target].why_not(p)
        if why is not None:
            found[p.key] = why
    return found


def _with_entries(log_dir: OpenLogDir, actions: Sequence[Proposal], actor: Actor) -> Found:
    """What is renamed only once the checkpoints have been read, and its entries are out of them."""
    renames = [p for p in actions if p.action in (ActionKind.MARK, ActionKind.QUARANTINE)]
    if (unread := _unread(log_dir)) is not None:
        return {p.key: unread for _, p in may_have_entries(log_dir, renames)}
    found: Found = {}
    for file in (LOG_START_OFFSET, CLEANER):
        why = why_not_replaced(log_dir, file, actor)
        if why is None:
            continue
        entries = entries_to_drop(log_dir, renames)
        found |= {p.key: why for p in renames if any(e.file == file for e in entries.get(action_id(p), ()))}
    return found


def _coming_back(source: OpenLogDir, opened: Mapping[str, OpenLogDir], actions: Sequence[Proposal]) -> Found:
    """What is restored where the checkpoints cannot be read: entries of a former log go first, its own are put back."""
    restored = [p for p in actions if p.action is ActionKind.RESTORE]
    homes = {p.new_dir or source.path for p in restored}
    unread = {path: _unread(opened.get(path, source)) for path in homes}
    return {p.key: why for p in restored if (why := unread[p.new_dir or source.path]) is not None}


def _unread(log_dir: OpenLogDir) -> Reason | None:
    """Why a checkpoint of the log dir that has entries of partitions cannot be read; None if all can be."""
    return next(filter(None, (why_not_read(log_dir, file) for file in ENTRY_FILES)), None)
