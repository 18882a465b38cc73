"""Start-up problems of the log dirs: how they are configured, what they are, and whether a node can use them.

Of the configuration: the text of `log.dirs`, missing, duplicate and nested directories. `meta.properties`: whether the
log dirs are formatted and belong to one node (`MetaPropertiesEnsemble`). Of each by itself: disk, lock, owners and
modes, checkpoints.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from shlex import quote

from logagent.advice.check.rules.start_facts import (
    CheckpointFault,
    MetaState,
    Mode,
    PathProblem,
    StartFacts,
    StartLogDirFacts,
)
from logagent.advice.finding import ALL, Finding, Releases, Severity, fatal, finding, info, warning
from logagent.base.dir_names import CLEANER, LOG_START_OFFSET, REPLICATION
from logagent.base.records import Denied, Health, HolderState, Kind
from logagent.base.units import counted
from logagent.disk.health import REMOVE_OPEN, SYNC_FOLDER, TRIAL_PREFIX
from logagent.kafka.image import RESERVED_DIRECTORY_IDS

# KIP-1161: a list may not have empty items; duplicate items are dropped with a warning.
STRICT_LISTS: tuple[int, ...] = (4, 2, 0)
WITHOUT_ZOOKEEPER: tuple[int, ...] = (4, 0, 0)
# KAFKA-3968, `Utils.flushDir`: 2.5.1 has none, 3.5.2 has.
SYNCS_FOLDERS: tuple[int, ...] = (3, 0, 0)


def check_paths(facts: StartFacts) -> Iterator[Finding]:
    """Findings about the configuration, about each configured path, and about pairs of paths."""
    yield from _configured_text(facts)
    yield from _pairs(facts.log_dirs, facts.server.controller_only)
    for s in facts.log_dirs:
        problem = _path_problem(s, facts)
        if problem is not None:
            yield problem


def _configured_text(facts: StartFacts) -> Iterator[Finding]:
    text = facts.server.log_dirs_text
    where = facts.server.config or "log.dirs"
    if facts.server.config is not None and facts.server.mode is Mode.ZOOKEEPER:
        yield fatal(
            "no-process-roles",
            where,
            "process.roles is not set: Kafka 4.0 removed ZooKeeper mode, and the broker does not start",
            "migrate the cluster to KRaft before the upgrade",
            releases=Releases(since=WITHOUT_ZOOKEEPER),
        )
    if text is None:
        return
    items = [item.strip() for item in text.split(",")]
    if "" in items:
        yield fatal(
            "empty-log-dirs-item",
            where,
            f"log.dirs={text} has an empty item: the broker does not start",
            "remove the extra comma",
            releases=Releases(since=STRICT_LISTS),
        )
    # A controller locks none of its log dirs, and reads each spelling once.
    twice = [] if facts.server.controller_only else [item for item in items if item and items.count(item) > 1]
    for item in dict.fromkeys(twice):
        yield fatal(
            "duplicate-log-dir",
            where,
            f"log.dirs lists {item} twice: the broker does not start",
            "list each log dir once",
            releases=Releases(before=STRICT_LISTS),
        )
    for item, others in _spellings(items).items():
        if len(others) > 1:
            yield fatal(
                "duplicate-log-dir",
                where,
                f"log.dirs lists {item} as {' and as '.join(others)}: the broker does not start",
                "list each log dir once",
                # For a controller only the directory id matters.
                releases=Releases(since=DIRECTORY_IDS) if facts.server.controller_only else ALL,
            )
    for item in dict.fromkeys(items):
        if re.match("[A-Za-z]:", item) or ("\\" in item and item[0] != "/"):
            eaten = "" if re.match(r".:[/\\]", item) else ", and in this file a \\ only escapes what follows it"
            yield warning(
                "foreign-path",
                where,
                f"log.dirs has {ascii(item)[1:-1]}: that is a path of Windows{eaten}; here it is a folder of that name"
                " below wherever the broker is started",
                "name a path of this host, such as /var/lib/kafka (a drive of Windows is below /mnt in WSL, but brokers"
                " fail on it)",
            )
        elif item and not item.startswith("/"):
            yield warning(
                "relative-log-dir",
                where,
                f"log.dirs: {item} is relative to the working directory of whoever starts the broker",
                "make it an absolute path",
            )


def _spellings(items: Iterable[str]) -> dict[str, list[str]]:
    """By path as Java reads it (`File` drops repeated slashes and one at the end), how it is spelled."""
    found: dict[str, list[str]] = defaultdict(list)
    for item in dict.fromkeys(item for item in items if item):
        found[re.sub("/+", "/", item).rstrip("/") or "/"].append(item)
    return found


def _pairs(log_dirs: Sequence[StartLogDirFacts], controller_only: bool) -> Iterator[Finding]:
    for number, s in enumerate(log_dirs):
        for other in log_dirs[:number]:
            if s.canonical is None or other.canonical is None:
                continue
            if s.canonical == other.canonical:
                yield fatal(
                    "duplicate-log-dir",
                    s.path,
                    f"it is the same directory as {other.path}: the broker does not start",
                    "list each directory once in log.dirs",
                    # For a controller only the directory id matters.
                    releases=Releases(since=DIRECTORY_IDS) if controller_only else ALL,
                )
            elif not controller_only:
                yield from _nested(s, other)
                yield from _nested(other, s)


def _nested(inner: StartLogDirFacts, outer: StartLogDirFacts) -> Iterator[Finding]:
    assert inner.canonical is not None and outer.canonical is not None
    below = outer.canonical.rstrip("/") + "/"
    if not outer.holds_logs or not inner.canonical.startswith(below):
        return
    child = inner.canonical[len(below) :].partition("/")[0]
    yield fatal(
        "nested-log-dir",
        inner.path,
        f"it is inside the log dir {outer.path}, where the broker treats {child} as a partition directory:"
        " it does not start, or loads, renames and deletes your data under that name",
        "put log dirs and metadata.log.dir side by side",
    )


_MOUNT_IT = "mount its disk; once every partition in it has another replica in sync, it can be taken out of log.dirs"


def _path_problem(s: StartLogDirFacts, facts: StartFacts) -> Finding | None:
    mode = facts.server.mode
    match s.problem:
        case PathProblem.MISSING if mode is Mode.ZOOKEEPER:
            return warning(
                "log-dir-missing",
                s.path,
                "no such directory: the broker creates it, empty. Is its disk mounted?",
                _MOUNT_IT,
            )
        case PathProblem.MISSING | PathProblem.DANGLING:
            return finding(
                Severity.FATAL if mode is not None or s.problem is PathProblem.DANGLING else Severity.WARNING,
                "log-dir-missing",
                s.path,
                f"{s.detail or 'no such directory'}: the broker does not start, or takes the log dir offline."
                " Is its disk mounted?",
                _MOUNT_IT,
            )
        case PathProblem.NOT_A_DIRECTORY if not facts.needs(s):
            return warning(
                "log-dir-not-a-directory",
                s.path,
                "not a directory: a controller runs without it",
                "correct log.dirs, or move the file away",
            )
        case PathProblem.NOT_A_DIRECTORY:
            return fatal(
                "log-dir-not-a-directory",
                s.path,
                "not a directory: the broker takes the log dir offline",
                "correct log.dirs, or move the file away",
            )
        case _:
            return None


_FILE = "meta.properties"
_RESTORE_META = "restore it from another log dir of this broker, with a directory.id of its own"
# KIP-858.
DIRECTORY_IDS: tuple[int, ...] = (3, 7, 0)


def check_meta(facts: StartFacts) -> Iterator[Finding]:
    """Findings about formatting, cluster id, node id and directory ids across the log dirs and the metadata log dir."""
    present = [s for s in facts.log_dirs if s.answers]
    for s in present:
        yield from _state(s, facts, present)
    read = [s for s in present if s.meta.state is MetaState.READ]
    yield from _differing(read)
    yield from _configured(read, facts)
    yield from _reserved_directory_id(read)
    yield from _same_directory_id(read, facts)


def _state(s: StartLogDirFacts, facts: StartFacts, present: list[StartLogDirFacts]) -> Iterator[Finding]:
    path = f"{s.path}/{_FILE}"
    match s.meta.state:
        case MetaState.MISSING if lost_broker_id(facts):
            return  # that is worse, and a finding of its own
        case MetaState.MISSING:
            yield _unformatted(s, facts, present)
        case MetaState.MALFORMED:
            yield from _malformed(s, path, needed=facts.needs(s))
        case MetaState.UNREADABLE:
            yield warning(
                "not-verified",
                path,
                f"could not be read from here: {s.meta.error}",
                "run check as root or as the broker's user",
            )
        case MetaState.READ if facts.server.mode is Mode.KRAFT and (
            s.meta.cluster_id is None or s.meta.node_id is None
        ):
            what = "cluster.id" if s.meta.cluster_id is None else "node.id"
            yield fatal(
                "meta-properties-malformed",
                path,
                f"it has no {what}: a KRaft broker does not start",
                _RESTORE_META,
            )
        case MetaState.READ if facts.server.mode is Mode.ZOOKEEPER and s.meta.version == 1:
            yield _of_kraft(path, may_migrate=facts.server.may_migrate)
        case _:
            return


def _of_kraft(path: str, *, may_migrate: bool) -> Finding:
    """Seen on 3.5.2; from 3.7 on a broker that migrates takes both versions (`VerificationFlag.REQUIRE_V0`)."""
    return fatal(
        "meta-properties-malformed",
        path,
        "it is of version 1, as KRaft writes it: a ZooKeeper-mode broker does not start",
        "if this is a KRaft node, set process.roles; if its cluster went back to ZooKeeper, write version=0 and"
        " broker.id=ID in place of version=1 and node.id=ID",
        releases=Releases(before=DIRECTORY_IDS if may_migrate else WITHOUT_ZOOKEEPER),
    )


def _malformed(s: StartLogDirFacts, path: str, *, needed: bool) -> Iterator[Finding]:
    says = f"{s.meta.error}: the broker does not start, or takes the log dir offline"
    releases = ALL if needed else Releases(before=DIRECTORY_IDS)
    yield fatal("meta-properties-malformed", path, says, _RESTORE_META, releases=releases)
    if not needed:
        says = f"{s.meta.error}: a controller runs without this log dir"
        since = Releases(since=DIRECTORY_IDS)
        yield warning("meta-properties-malformed", path, says, _RESTORE_META, releases=since)


def check_broker_id(facts: StartFacts) -> Iterator[Finding]:
    """In ZooKeeper mode: an id that is not permitted, or a generated one that only `meta.properties` knew
    (`KafkaConfig.validateValues`, `KafkaServer.getOrGenerateBrokerId`)."""
    server = facts.server
    if server.mode is not Mode.ZOOKEEPER or server.config is None:
        return
    if server.node_id is not None:
        if server.generates_id and server.node_id > server.reserved_max_id:
            yield fatal(
                "reserved-broker-id",
                server.config,
                f"broker.id={server.node_id} is above reserved.broker.max.id, {server.reserved_max_id}, where ids are"
                " generated: the broker does not start",
                "if it is the broker's id (see meta.properties), set broker.id.generation.enable=false, or raise"
                " reserved.broker.max.id; otherwise correct broker.id",
                releases=Releases(before=WITHOUT_ZOOKEEPER),
            )
        return
    if not server.generates_id:
        yield fatal(
            "no-broker-id",
            server.config,
            "broker.id is not set, and broker.id.generation.enable=false: the broker does not start",
            "set broker.id to the one in meta.properties",
            releases=Releases(before=WITHOUT_ZOOKEEPER),
        )
    elif lost_broker_id(facts):
        s = facts.log_dirs[0]
        yield fatal(
            "lost-broker-id",
            f"{s.path}/{_FILE}",
            f"broker.id is not set, and no log dir has a {_FILE} with the one that was generated: the broker takes a"
            " new id, and every partition here stays with the old one",
            f"restore {_FILE} in every log dir, or write it again (version=0 and broker.id=ID, a line each); the old ID"
            " is the replica that is missing in kafka-topics.sh --describe",
            releases=Releases(before=WITHOUT_ZOOKEEPER),
        )


def lost_broker_id(facts: StartFacts) -> bool:
    """Whether a ZooKeeper-mode broker with partitions would generate an id. One whose `meta.properties` cannot be read
    from here may have its id there."""
    server = facts.server
    if server.mode is not Mode.ZOOKEEPER or server.node_id is not None or not server.generates_id:
        return False
    metas = [s.meta for s in facts.log_dirs if s.answers]
    if any(m.node_id is not None or m.state is MetaState.UNREADABLE for m in metas):
        return False
    return any(d.kind is Kind.CURRENT for d in facts.dirs)


def _unformatted(s: StartLogDirFacts, facts: StartFacts, present: list[StartLogDirFacts]) -> Finding:
    others = any(o.meta.state is MetaState.READ for o in present)
    unmounted = " Is its disk mounted?" if others else ""
    if facts.server.mode is Mode.ZOOKEEPER:
        return finding(
            Severity.WARNING if others else Severity.INFO,
            "unformatted",
            s.path,
            f"no {_FILE}: the broker treats it as a new, empty log dir.{unmounted}",
            "make sure the right disk is mounted there",
        )
    return finding(
        Severity.FATAL if facts.server.mode is Mode.KRAFT else Severity.WARNING,
        "unformatted",
        s.path,
        f"no {_FILE}: a KRaft broker does not start with an unformatted log dir.{unmounted}",
        "mount its disk; format a new log dir with kafka-storage.sh format --ignore-formatted",
    )


def _differing(read: list[StartLogDirFacts]) -> Iterator[Finding]:
    """Log dirs of different clusters or nodes."""
    for attribute, code, key in (
        ("cluster_id", "foreign-cluster", "cluster.id"),
        ("node_id", "foreign-node", "node.id or broker.id"),
    ):
        values: dict[object, list[str]] = defaultdict(list)
        for s in read:
            value = getattr(s.meta, attribute)
            if value is not None:
                values[value].append(s.path)
        if len(values) < 2:
            continue
        # The value of most log dirs is taken to be right; in a tie, the first one.
        usual = max(values, key=lambda v: len(values[v]))
        for value, paths in values.items():
            if value == usual:
                continue
            for path in paths:
                yield fatal(
                    code,
                    f"{path}/{_FILE}",
                    f"its {key} is {value}, but {values[usual][0]} has {usual}: the broker does not start",
                    "find out which broker this disk belongs to; never edit the id to make it fit",
                )


def _configured(read: list[StartLogDirFacts], facts: StartFacts) -> Iterator[Finding]:
    node_id = facts.server.node_id
    if node_id is None:
        return
    others = [s for s in read if s.meta.node_id is not None and s.meta.node_id != node_id]
    if others and len({s.meta.node_id for s in others}) == 1 and len(others) == len(read):
        s = others[0]
        yield fatal(
            "foreign-node",
            f"{s.path}/{_FILE}",
            f"it belongs to node {s.meta.node_id}, the configuration to node {node_id}: the broker does not start",
            "use the configuration of the broker that owns these disks",
        )


def _reserved_directory_id(read: list[StartLogDirFacts]) -> Iterator[Finding]:
    """`MetaPropertiesEnsemble.verify`."""
    for s in read:
        if s.meta.directory_id in RESERVED_DIRECTORY_IDS:
            yield fatal(
                "reserved-directory-id",
                f"{s.path}/{_FILE}",
                f"its directory.id, {s.meta.directory_id}, is one of the first 100, which Kafka reserves: the node does"
                " not start",
                "put back the directory.id that it had (log-dirs-seen.json in logagent's state dir has it); only if"
                " nobody knows it, remove the line: the node generates a new one",
                releases=Releases(since=DIRECTORY_IDS),
            )


def _same_directory_id(read: list[StartLogDirFacts], facts: StartFacts) -> Iterator[Finding]:
    if facts.server.mode is Mode.ZOOKEEPER:
        return
    first: dict[str, StartLogDirFacts] = {}
    for s in read:
        if s.meta.directory_id is None:
            continue
        other = first.setdefault(s.meta.directory_id, s)
        if other is not s and other.canonical != s.canonical:
            yield fatal(
                "duplicate-directory-id",
                f"{s.path}/{_FILE}",
                f"{other.path} has the same directory.id, {s.meta.directory_id}: the broker does not start",
                "if the log dir was copied, remove the directory.id line from the copy; the broker generates a new one",
                releases=Releases(since=DIRECTORY_IDS),
            )


SPACE_CODES = frozenset({"full", "low-space", "low-inodes"})
"""What a removal can settle."""
LOW_FRACTION = 0.02
"""Below this fraction of free blocks or inodes there is a warning."""

_SHOWN_DENIED = 3
# Observed: 2.5.1 takes a log dir offline for an out-of-range number in a checkpoint, 3.5.2 does not.
NUMBERS_PASSED_OVER = (3, 5, 0)


def check_log_dirs(facts: StartFacts) -> Iterator[Finding]:
    """Findings about each log dir by itself."""
    yield from _running(facts)
    for s in facts.log_dirs:
        if not facts.needs(s):
            continue
        if s.problem is None and not facts.about_to_start:
            yield from _place(s, facts)
            yield from _file_system(s)
        if s.problem is PathProblem.UNREADABLE:
            yield _failed(s)
        elif s.problem is PathProblem.CLOSED:
            yield from _access(s, facts) if s.denied else [_closed(s)]
        elif s.problem is None:
            yield from check_disk(s)
        if not s.answers:
            continue
        yield from _lock(s, facts)
        yield from _access(s, facts)
        yield from _not_seen(s)
        yield from _checkpoints(s)
        for name in s.leftovers:
            says = "logagent was killed while rewriting a checkpoint; the checkpoint itself is intact"
            hint = "nothing to do: the broker ignores it and the next rewrite removes it"
            if name.startswith(TRIAL_PREFIX):
                says, hint = "logagent was killed while it tried the file system", "remove it; the broker ignores it"
            yield info("leftover-temp-file", f"{s.path}/{name}", says, hint)


# `systemd-tmpfiles` removes what is older than 10 and 30 days there, unless a host's own settings say otherwise. It
# leaves alone what is mounted below.
_TEMPORARY = ("/tmp/", "/var/tmp/")
ROOT = "/"


def _place(s: StartLogDirFacts, facts: StartFacts) -> Iterator[Finding]:
    """Where a log dir should not be. No broker fails to start for it, so before a start it is no finding."""
    path = f"{s.canonical or s.path}/"
    mounted = s.mount_point or ROOT
    temporary = next((t.rstrip("/") for t in _TEMPORARY if path.startswith(t) and not mounted.startswith(t)), None)
    if temporary is not None:
        default = " (Kafka's default, where log.dirs is not set)" if facts.server.log_dirs_text is None else ""
        yield warning(
            "temporary-log-dir",
            s.path,
            f"it is below {temporary}{default}, from which files are removed by age, or at each boot: segments may be"
            " removed under the broker",
            "stop the broker, move the log dir to a file system of its own, and set log.dirs",
        )
    elif s.mount_point == ROOT and s.holds_logs:
        yield warning(
            "log-dir-on-root",
            s.path,
            "it is on the root file system: whatever else fills that takes the log dir offline, and what the broker"
            " writes may leave no room for the system",
            "put log dirs on file systems of their own",
        )


# On these a broker can do all that it has to; on others it is tried, where that can be.
FIT = frozenset(["ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "bcachefs", "tmpfs", "ramfs", "overlay"])


def _file_system(s: StartLogDirFacts) -> Iterator[Finding]:
    """Whether a broker can do there what it does at its start and at each roll and deletion. 9p and drvfs of WSL, CIFS
    and some of FUSE cannot, and NFS only with some servers and options."""
    if s.file_system in FIT or s.cannot == {}:
        return
    kind = s.file_system or "of unknown kind"
    hint = "put the log dir on a local file system (ext4, XFS)"
    if s.cannot is None:
        if s.answers:
            says = f"its file system is {kind}, and whether it can lock, map, rename and sync as a broker needs it was"
            says += " not tried: that takes a stopped broker, free space, and a user who may write here"
            yield warning("unfit-file-system", s.path, says, f"{hint}, or check again as the broker's user")
        return
    what = "; ".join(f"{step} ({error})" for step, error in s.cannot.items())
    says = f"its file system ({kind}) cannot {what}: the broker takes the log dir offline when it starts, rolls or"
    says += " deletes a segment"
    releases = Releases(since=SYNCS_FOLDERS) if {*s.cannot} == {SYNC_FOLDER} else ALL
    kind_of = warning if {*s.cannot} == {REMOVE_OPEN} else fatal
    yield kind_of("unfit-file-system", s.path, says, hint, releases=releases)


def _failed(s: StartLogDirFacts) -> Finding:
    return fatal(
        "log-dir-failed",
        s.path,
        f"{s.detail or 'it cannot be read'}: the broker takes the log dir offline, or does not start",
        "check the kernel log (dmesg) and repair or replace the disk; once every partition in it has another replica in"
        " sync, the broker can start without it: remove it from log.dirs",
    )


def _closed(s: StartLogDirFacts) -> Finding:
    """Rights are no fault of a disk: nobody replaces one for them."""
    return warning(
        "not-verified",
        s.path,
        f"{s.detail or 'it cannot be opened'}: what is in it, and whether its disk works, is unknown",
        "run check as root or as the broker's user",
    )


_ROOM = "free some space: logagent rescue shows what can be removed"
# A rescue finds nothing here, and what is removed by hand keeps the node from starting.
_METADATA_ROOM = (
    "free space that something else takes on this file system, or enlarge it; metadata.max.retention.bytes and"
    " metadata.max.retention.ms bound what the metadata log and its snapshots take: lower them in server.properties;"
    " never remove files of __cluster_metadata-0 by hand"
)


def check_disk(s: StartLogDirFacts) -> Iterator[Finding]:
    match s.health:
        case Health.OFFLINE if s.given_up_by is None:
            yield _failed(s)
        case Health.READ_ONLY:
            yield fatal(
                "read-only",
                s.path,
                f"{s.detail or 'its file system is read-only'}: the broker takes the log dir offline",
                "find out why (check dmesg: the kernel remounts a damaged file system read-only), then remount it",
            )
        case Health.FULL:
            yield fatal(
                "full",
                s.path,
                f"{s.detail or 'its file system is full'}: the broker takes the log dir offline on its first write, or"
                " does not start",
                _METADATA_ROOM if s.metadata_only else _ROOM,
            )
        case _:
            yield from _low_room(s)


def _low_room(s: StartLogDirFacts) -> Iterator[Finding]:
    if s.room is None:
        return
    for what, free, total in (
        ("space", s.room.free, s.room.size),
        ("inodes", s.room.inodes_free, s.room.inodes),
    ):
        if total > 0 and free < total * LOW_FRACTION:
            unit = "bytes" if what == "space" else "inodes"
            yield warning(
                f"low-{what}",
                s.path,
                f"{free} of {total} {unit} free; when none are left, the broker takes the log dir offline",
                _METADATA_ROOM if s.metadata_only else _ROOM,
            )


def _running(facts: StartFacts) -> Iterator[Finding]:
    """One finding if the broker in question is running."""
    held = [s for s in facts.log_dirs if s.holder_is_broker]
    if held and not facts.about_to_start:
        yield info(
            "broker-running",
            held[0].path,
            f"this broker is running (process {held[0].holder.pid}) and holds its log dirs; these findings are about"
            " its next start",
            "nothing to do",
        )


def _lock(s: StartLogDirFacts, facts: StartFacts) -> Iterator[Finding]:
    holder = s.holder
    if holder.shared_lock is not None:
        yield fatal(
            "lock-held",
            f"{s.path}/.lock",
            f"{holder.shared_lock} has a shared lock on it, which is no broker's: a broker started now exits at once",
            "stop that process; let only the broker's user read the log dir (chmod 0750) if it comes back",
        )
    if s.given_up_by is not None:
        yield warning(
            "given-up",
            s.path,
            f"the running broker (process {s.given_up_by}) does not hold the lock: it took this log dir offline",
            "see its server.log for the reason; only a restart brings the log dir back",
        )
    elif holder.state.is_broker:
        if facts.about_to_start or not s.holder_is_broker:
            yield fatal(
                "lock-held",
                f"{s.path}/.lock",
                holder.in_words,
                "stop that process, or wait for it to exit",
            )
    elif holder.state is HolderState.HIDDEN:
        yield finding(
            Severity.FATAL if facts.about_to_start else Severity.WARNING,
            "hidden-holder",
            s.path,
            f"{holder.detail or 'a process has files open here'}: a broker started now would share its files with it",
            "stop that process before the broker starts",
        )
    elif holder.state is HolderState.UNREADABLE:
        yield warning(
            "not-verified",
            f"{s.path}/.lock",
            f"cannot determine who holds the log dir: {holder.detail or 'unreadable'}",
            "run check as root or as the broker's user",
        )


def _access(s: StartLogDirFacts, facts: StartFacts) -> Iterator[Finding]:
    """One finding per log dir, since the owner is rarely wrong for a single file."""
    if s.fixed:
        path, how = min(s.fixed.items())
        more = f", and {len(s.fixed) - 1} more in it" if len(s.fixed) > 1 else ""
        says = f"it is {how} (lsattr -d){more}: no file there can be renamed or removed, and the broker takes the log"
        says += " dir offline when it starts"
        yield fatal("access-denied", path, says, f"as root: chattr -ia {quote(path)}")
    if not s.denied:
        return
    shown = "; ".join(_in_words(d) for d in s.denied[:_SHOWN_DENIED])
    more = f"; and {len(s.denied) - _SHOWN_DENIED} more" if len(s.denied) > _SHOWN_DENIED else ""
    yield fatal(
        "access-denied",
        s.denied[0].path,
        f"{facts.user} lacks access: {shown}{more}: the broker takes the log dir offline, or does not start",
        f"give the files named back to their owner (chown -R to {facts.user})",
    )


def _not_seen(s: StartLogDirFacts) -> Iterator[Finding]:
    if s.not_seen:
        yield warning(
            "not-verified",
            f"{s.path}/{s.not_seen[0]}",
            f"{counted(len(s.not_seen), 'partition directory')} could not be inspected from here",
            "run check as root or as the broker's user",
        )


def _in_words(d: Denied) -> str:
    return f"{d.path} ({d.wants}; owner {d.owner}:{d.group}, mode {d.mode & 0o7777:o})"


def _checkpoints(s: StartLogDirFacts) -> Iterator[Finding]:
    for name, (fault, error) in s.checkpoints.items():
        if fault is CheckpointFault.FIFO and name == CLEANER:
            says = f"{error}: the broker starts, its log cleaner waits there for ever: nothing is compacted, and a"
            says += " stop may not end"
            yield warning("broken-checkpoint", f"{s.path}/{name}", says, _AWAY)
        elif fault is not CheckpointFault.NUMBER:
            consequence = "waits there for ever" if fault is CheckpointFault.FIFO else "takes the log dir offline"
            yield _unreadable_checkpoint(s, name, f"{error}: the broker {consequence}", ALL)
        else:
            says = f"{error}: the broker takes the log dir offline"
            yield _unreadable_checkpoint(s, name, says, Releases(before=NUMBERS_PASSED_OVER))
            yield _number_out_of_range(s, name, error)


_AWAY = "move the file away while the broker is stopped; the broker recreates it"


def _unreadable_checkpoint(s: StartLogDirFacts, name: str, says: str, releases: Releases) -> Finding:
    hint = "move the file away; the broker recreates it (logs are then recovered from their start)"
    if name == LOG_START_OFFSET:
        hint = "move the file away; records deleted by deleteRecords then come back"
    return fatal("broken-checkpoint", f"{s.path}/{name}", says, hint, releases=releases)


def _number_out_of_range(s: StartLogDirFacts, name: str, error: str) -> Finding:
    severity = Severity.WARNING
    consequence = "the broker treats it as empty, recovers every log and may bring deleted records back"
    if name == CLEANER:
        consequence = "the log cleaner stops, and nothing is compacted until the next start"
    elif name == REPLICATION:
        severity, consequence = Severity.FATAL, "the broker does not serve the partitions of this log dir"
    return finding(
        severity,
        "broken-checkpoint",
        f"{s.path}/{name}",
        f"{error}: {consequence}",
        _AWAY,
        releases=Releases(since=NUMBERS_PASSED_OVER),
    )
