"""The start-up linter: what would keep this broker from starting, or cost it a log dir or records. Without I/O.

All codes, as observed on real nodes (tests/broker/check: what each release makes of more than 140 damaged files and
layouts). Codes are stable. A node that is a controller only loads no partition directory, so there are no findings
about them.

==========================  ========  ===========  ==========================================================
code                        severity  releases     condition
==========================  ========  ===========  ==========================================================
unparsable-name             fatal     all          a directory whose name is not a partition's (`bar`, `.trash`, `-0`)
lost-and-found              fatal     all          `lost+found`: the log dir is the root of a file system
stray-unsupported           fatal     < 3.6.1      a `-stray` directory
cache-unsupported           fatal     < 3.5.0      `remote-log-index-cache` (2.5.1 fails, 3.5.2 does not)
duplicate-partition         fatal     all [1]      two current directories of one partition, here or in two log dirs
duplicate-future            fatal     all [1]      two `-future` directories of one partition
future-beside-current       fatal     all          a `-future` directory in the log dir of its own current one
future-without-current      fatal     all          only a `-future` directory of an assigned partition: truncated [13]
delete-through-link         fatal     all          a symlink named `-delete`: the segments it leads to are deleted
broken-partition-metadata   fatal     >= 2.8.0     a `partition.metadata` that Kafka cannot read, or an empty one
no-topic-id                 fatal     3.7.0        no `partition.metadata` (KRaft)
no-topic-id                 warning   >= 3.7.1     the same: set aside; fatal if assigned: recreated empty (KRaft)
odd-segment-file            fatal     all          `backup.log`: named like a segment file, but without an offset [4]
mounted-partition           warning   all          a partition directory that is a mount point
mounted-partition           fatal     all          a `-delete` directory that is a mount point
mounted-partition           fatal     >= 3.7.1     a mount point that is not this broker's: not set aside (KRaft)
too-long-to-delete          warning   < 2.2.2      a name too long to be marked for deletion (KAFKA-4893)
too-long-to-delete          fatal     < 2.2.2      the same, and the deletion was tried: offline again at each start
future-name-too-long        info      all          a name too long for `-future` to be added
linked-partition            info      all          a partition directory that is a symlink
linked-partition            fatal     all          two assigned partitions in one directory: their records are mixed
linked-partition            warning   all          the same, not all known to be assigned; fatal before 3.7.0 (KRaft)
undecodable-name            info      all          a name that is not UTF-8
wrong-directory             info      all          the cluster expects the partition in another log dir
wrong-directory             warning   all          the same, none here has its id: perhaps no leader after a start
duplicate-log-dir           fatal     all [2]      one directory listed twice, by name or through a symlink
nested-log-dir              fatal     all          a log dir or `metadata.log.dir` inside a log dir
stray-metadata-log          fatal     all          `__cluster_metadata-0` outside `metadata.log.dir` (KRaft) [5]
broken-metadata-log         fatal     all          a file of the metadata log that Kafka cannot read (KRaft) [6]
feature-unsupported         fatal     all          a feature level that the release does not support (KRaft) [7]
format-ignored              warning   < 4.4.0      formatted by 4.4 or later, and never started (KRaft)
features-not-compared       warning   all          features, or a release, of which that is not known (KRaft)
setting-refused             fatal     all          a number that the release does not accept (`segment.bytes`) [11]
settings-not-compared       warning   >= 4.1.0     the settings of topics could not be read (KRaft)
other-directory-id          fatal     >= 3.9.0     the only voter of a dynamic quorum has another `directory.id` (KRaft)
no-quorum                   fatal     all          no `controller.quorum.bootstrap.servers` and no voters (KRaft)
broken-segment              fatal     all          no batch where a start reads one, or more than 2 GiB [9]
not-a-file                  fatal     all          a directory, FIFO or dangling symlink where a start needs a file [10]
broken-epochs               fatal     all          a partition's `leader-epoch-checkpoint` that Kafka cannot read
reserved-broker-id          fatal     < 4.0.0      `broker.id` above `reserved.broker.max.id` (ZooKeeper)
no-broker-id                fatal     < 4.0.0      no `broker.id`, and none is generated (ZooKeeper)
lost-broker-id              fatal     < 4.0.0      no log dir knows the generated id: a new one is taken (ZooKeeper)
empty-log-dirs-item         fatal     >= 4.2.0     `log.dirs=/a,,/b`
no-process-roles            fatal     >= 4.0.0     a ZooKeeper-mode configuration
relative-log-dir            warning   all          a relative path
log-dir-missing             fatal     all          no such directory (ZooKeeper mode: a warning, the broker creates it)
log-dir-not-a-directory     fatal     all          not a directory
log-dir-failed              fatal     all          disk errors, or no answer
read-only                   fatal     all          mounted read-only
full                        fatal     all          no free block or inode
low-space, low-inodes       warning   all          less than 2 % free
temporary-log-dir           warning   all          below `/tmp` or `/var/tmp`, and not on a mount there
log-dir-on-root             warning   all          on the root file system
unfit-file-system           fatal     all          it cannot lock, map, rename or sync files as a broker needs [14]
unfit-file-system           warning   all          of a kind that may not (9p, CIFS, FUSE, NFS …), and it was not tried
foreign-path                warning   all          a path of Windows (`C:\\kafka`) in `log.dirs`
unformatted                 fatal     all          no `meta.properties` (ZooKeeper mode: a warning)
meta-properties-malformed   fatal     all          a `meta.properties` that Kafka cannot read, or not in this mode
foreign-cluster             fatal     all          log dirs of two clusters
foreign-node                fatal     all          log dirs of two nodes, or not of the configured one
reserved-directory-id       fatal     >= 3.7.0     a `directory.id` that is one of Kafka's first 100
duplicate-directory-id      fatal     >= 3.7.0     two log dirs with the same `directory.id`
access-denied               fatal     all          owner, mode or an attribute (`chattr +i`) keep the broker's user out
lock-held                   fatal     all          another process holds the lock
hidden-holder               warning   all          a process without the lock has files open here
given-up                    warning   all          the running broker took this log dir offline
broken-checkpoint           fatal     all          an offset checkpoint that Kafka cannot read
broken-checkpoint           warning   >= 3.5.0     the same with an out-of-range number [3]
deleted-at-start            warning   2.8 to 3.6   a current directory that is not assigned to this broker (KRaft)
name-taken                  fatal     all          a file has the name of an assigned partition without a directory [12]
no-directory                warning   all          assigned here without a directory: a start makes it anew, empty
assignments-not-compared    warning   all          no assignments were read: what has no directory here is unknown
log-dir-forgotten           fatal     all          a log dir with partitions of this broker left `log.dirs` [8]
stale-cordon                fatal     >= 4.3.0     `cordoned.log.dirs` in the file names what `log.dirs` lacks
stale-cordon                warning   >= 4.3.0     the same, as a dynamic setting
log-emptied                 warning   all          a log that ends below its checkpointed log start offset
stray-emptied               warning   all          a stray below the log start offset of the partition of its name
open-exchange               warning   all          `restore --replace` was cut short: one dir has another's name
leftover-temp-file          info      all          a temporary file of logagent's
broker-overrides            warning   all          `--override` on the command line of the broker or its unit
config-changed              warning   all          `server.properties` changed after the broker started, or may have
version-contradicted        warning   all          `kafka.version`, what runs or ran last, and the jars differ
broker-running              info      all          this broker is running; the rest is about its next start
not-verified                warning   all          could not be inspected from here
==========================  ========  ===========  ==========================================================

[1] From 3.7.1 on, a KRaft broker first sets aside what is not its own by topic id; different topic ids are then info.
[2] The same spelling twice in `log.dirs` is fatal only before 4.2.
[3] Fatal for the replication checkpoint (the partitions of that log dir are not served), and before 3.5.0. A warning
in all releases: a FIFO for that of the log cleaner.
[4] `backup.swap` from 2.6.0 on: 2.5.1 ignores it.
[5] Also the node's own one, if `metadata.log.dir` spells the log dir otherwise than `log.dirs` does.
[6] `quorum-state` from 3.8.0 on: earlier releases begin a new one, unless it is a FIFO. A cut off snapshot at offset 0
before 4.3.0. A snapshot that is a symlink to nowhere, where the log has all of it, before 4.2.0 (then a warning).
[7] A warning where only a record that was taken back is unsupported, of a node that is no controller.
[8] A warning where it is only possible, and where every one of them has another replica in sync.
[9] From 4.4.0 on also a `.txnindex` with an entry of a version that Kafka does not write.
[10] A warning where only a later moment needs it, a roll say; and an empty directory for `.kafka_cleanshutdown`.
[11] Of `server.properties`, and of any topic of the cluster; by setting, the releases differ.
[12] A warning where the broker may make it in another log dir.
[13] From 3.7.1 on not in the log dir that it is assigned to. A warning where another replica is in sync, where it is
not known to which log dir it is assigned, where the current one may be in a log dir that is missing, and while the
broker runs.

If the version is unknown, what is fatal for only some releases is a warning.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import quote

from logagent.advice.check.rules.log_dirs import check_broker_id, check_log_dirs, check_meta, check_paths
from logagent.advice.check.rules.releases import (
    check_limits,
    check_long_names,
    check_metadata,
    check_releases,
    in_metadata_log,
    odd_file,
)
from logagent.advice.check.rules.start_facts import (
    CHANGED_HINT,
    CheckpointFault,
    LoadFault,
    LoadFile,
    Mode,
    StartFacts,
    StartLogDirFacts,
)
from logagent.advice.finding import ALL, Finding, Releases, Severity, concerning, fatal, finding, info, warning
from logagent.base.dir_names import FUTURE_SUFFIX, MAX_NAME, PARTITION_METADATA
from logagent.base.kafka_version import CORDONS_SINCE, KRAFT_SINCE, SETS_ASIDE_SINCE, STRAY_SINCE, Version
from logagent.base.records import LIVE_KINDS, LOADED_KINDS, Identity, Kind, PartitionDir, TopicPartition, id_unread
from logagent.kafka.retention.settings import CORDONED_LOG_DIRS
from logagent.verdict.without_directory import LeftLogDir, in_words, named

# Values of `PartitionDir.error` that an inventory sets.
SYMLINK = "symlink"
MOUNT_POINT = "mount point"
_BROKEN_METADATA = f"{PARTITION_METADATA}: "

# Observed: 2.5.1 fails on it and 3.5.2 does not; the releases in between were not tried.
CACHE_KNOWN: tuple[int, ...] = (3, 5, 0)
TOPIC_IDS: tuple[int, ...] = (2, 8, 0)
SETS_ASIDE_WITHOUT_ID: tuple[int, ...] = (3, 7, 1)
# Observed: 4.4.0 compares the version of each entry of a .txnindex, 4.3.1 does not.
ABORTED_VERSIONS: tuple[int, ...] = (4, 4, 0)
_MARK_LENGTH = 1 + 32 + len(FUTURE_SUFFIX)


def check_names(facts: StartFacts) -> Iterator[Finding]:
    """Findings about every directory that the broker would load or fail on."""
    # A duplicate log dir has its own finding; its directories are not reported twice.
    first = {s.canonical or s.path: s for s in reversed(facts.log_dirs)}
    seen = {s.path: s for s in first.values()}
    loaded: list[PartitionDir] = []
    places: dict[Identity, list[PartitionDir]] = defaultdict(list)
    for d in facts.dirs:
        where = seen.get(d.log_dir)
        if where is None or (d.error == SYMLINK and d.name not in where.dir_links):
            continue  # a symlink that does not lead to a directory is ignored, as regular files are
        if not _is_utf8(d.name):
            yield info(
                "undecodable-name",
                _path(d),
                "its name is not UTF-8: Java cannot open it, so the broker ignores it",
                "find out what it is; no broker will ever free its space",
            )
            continue
        if d.kind is Kind.INVALID:
            markers = {fault.name for fault in where.load_faults if fault.file is LoadFile.MARKER}
            if not _is_or_holds_log_dir(d, where, facts.log_dirs) and d.name not in markers:
                yield _unparsable(d)
        elif d.kind is Kind.CACHE:
            yield fatal(
                "cache-unsupported",
                _path(d),
                "old releases do not know the index cache of tiered storage: they take it for a partition and do not"
                " start",
                "remove it before an older broker starts; a newer one recreates it",
                releases=Releases(before=CACHE_KNOWN),
            )
        elif d.kind in LOADED_KINDS:
            loaded.append(_as_a_broker_reads_it(d, where))
            places[where.places.get(d.name, d.identity)].append(d)
            yield from _one(d, where, facts)
    yield from _without_topic_ids(loaded, facts)
    yield from _duplicates(loaded, facts)
    yield from _shared(places, facts)
    yield from _futures_beside_currents(loaded, facts)
    yield from _futures_without_currents(facts)
    yield from _future_names(loaded, facts)
    for where in facts.log_dirs:
        yield from (odd_file(where.path, name) for name in where.odd_files if not in_metadata_log(name))
        faults = where.load_faults if not where.metadata_only else ()
        yield from (_load_fault(where.path, fault) for fault in faults if not in_metadata_log(fault.name))
        for name, (fault, error) in where.broken_epochs.items():
            consequence = "takes the log dir offline" if fault is CheckpointFault.MALFORMED else "does not start"
            yield fatal(
                "broken-epochs",
                f"{where.path}/{name}/leader-epoch-checkpoint",
                f"{error}: the broker {consequence}",
                "with the broker stopped, empty the file (truncate -s 0): it continues with the next leader epoch",
            )


def _one(d: PartitionDir, where: StartLogDirFacts, facts: StartFacts) -> Iterator[Finding]:
    if d.kind is Kind.STRAY:
        yield fatal(
            "stray-unsupported",
            _path(d),
            "releases before 3.6.1 do not know -stray: they parse the suffix as a partition number and do not start",
            "upgrade the broker, or move the directory out of the log dir before an older broker starts",
            releases=Releases(before=STRAY_SINCE),
        )
    yield from _not_as_a_broker_writes_it(d, where, facts)
    if d.kind is Kind.CURRENT and d.key in facts.gone and facts.server.mode is not Mode.ZOOKEEPER:
        yield warning(
            "deleted-at-start",
            _path(d),
            "it is not assigned to this broker: before 3.7 a KRaft broker deletes such a directory when it starts",
            "copy it first if you need its records",
            releases=Releases(KRAFT_SINCE, SETS_ASIDE_SINCE),
        )
    wrong = facts.wrong_directory.get(d.key)
    if wrong is not None and d.key in facts.homeless:
        # Observed on 3.7.0, 3.9.1, 4.3.1 and 4.4.0, on some starts only: the partition gets no leader when the broker
        # is unfenced, and its report of where the directory is comes too late for that. The next start elects one.
        yield warning(
            "wrong-directory",
            _path(d),
            f"no log dir here has the directory.id that the cluster expects this partition in ({wrong}), and no other"
            " replica is known to be in sync: after a start it may have no leader until the broker is restarted once"
            " more",
            "if a directory.id was changed or a log dir left log.dirs by mistake, put it back; otherwise see after"
            " the start (kafka-topics.sh --describe --unavailable-partitions), and restart the broker if it is listed",
        )
    elif wrong is not None:
        yield info(
            "wrong-directory",
            _path(d),
            f"the cluster expects this partition in another log dir ({wrong})",
            "nothing to do: the broker reports where the log is when it starts; logagent never acts on it",
        )


def _not_as_a_broker_writes_it(d: PartitionDir, where: StartLogDirFacts, facts: StartFacts) -> Iterator[Finding]:
    if d.error == SYMLINK:
        yield _linked(d, where.dir_links[d.name])
    elif d.error == MOUNT_POINT and d.key in facts.set_aside and facts.server.mode is not Mode.ZOOKEEPER:
        yield fatal(
            "mounted-partition",
            _path(d),
            "a mount point, and not this broker's: it renames it to -stray when it starts, which takes the log dir"
            " offline",
            "unmount it before the broker starts, and remove the empty directory (rmdir)",
            releases=Releases(since=SETS_ASIDE_WITHOUT_ID),
        )
    elif d.error == MOUNT_POINT:
        yield finding(
            # A -delete directory is removed soon after the start (seen on 4.3.1), the others when their topic is.
            Severity.FATAL if d.kind is Kind.DELETE else Severity.WARNING,
            "mounted-partition",
            _path(d),
            "a mount point: the broker cannot rename or remove it, and deleting its topic takes the log dir offline",
            "move its content into a regular directory of the log dir",
        )
    elif d.error is not None and d.error.startswith(_BROKEN_METADATA):
        yield fatal(
            "broken-partition-metadata",
            _path(d),
            f"{d.error}: the broker takes the log dir offline or does not start",
            "restore the file from another replica of the partition, or move the directory out of the log dir"
            " if other replicas have its records",
            releases=Releases(since=TOPIC_IDS),
        )


def _as_a_broker_reads_it(d: PartitionDir, where: StartLogDirFacts) -> PartitionDir:
    """With the topic id that it reads through a link or a mount; what is wrong with the directory has been said."""
    return replace(d, topic_id=where.followed_ids[d.name], error=None) if d.name in where.followed_ids else d


def _without_topic_ids(loaded: Iterable[PartitionDir], facts: StartFacts) -> Iterator[Finding]:
    if facts.server.mode is Mode.ZOOKEEPER:
        return
    current = [d for d in loaded if d.kind is Kind.CURRENT]
    has_another = {(d.topic, d.partition) for d in current if d.topic_id is not None}
    for d in current:
        if d.topic_id is None and d.error is None:
            yield from _without_topic_id(d, facts, made_anew=(d.topic, d.partition) not in has_another)


def _without_topic_id(d: PartitionDir, facts: StartFacts, *, made_anew: bool) -> Iterator[Finding]:
    """Observed: 3.7.0 stops with an exception; later releases rename it and recreate an assigned partition empty."""
    hint = (
        "if the partition is live, restore partition.metadata from another replica; otherwise move the directory away"
    )
    yield fatal(
        "no-topic-id",
        _path(d),
        "no partition.metadata: a KRaft broker of this release does not start",
        hint,
        releases=Releases(SETS_ASIDE_SINCE, SETS_ASIDE_WITHOUT_ID),
    )
    assigned = TopicPartition(d.topic or "", -1 if d.partition is None else d.partition) in facts.assigned
    what = "no partition.metadata: a KRaft broker renames it to -stray when it starts"
    if assigned and made_anew:
        what += ", and recreates the partition, which is assigned to it, EMPTY"
    yield finding(
        Severity.FATAL if assigned and made_anew else Severity.WARNING,
        "no-topic-id",
        _path(d),
        what,
        hint,
        releases=Releases(since=SETS_ASIDE_WITHOUT_ID),
    )


def _linked(d: PartitionDir, target: str) -> Finding:
    if d.kind is Kind.DELETE:
        return fatal(
            "delete-through-link",
            _path(d),
            f"a symlink to {target}: the broker deletes the segments there, then the link",
            "remove the symlink (rm, without a trailing slash) before the broker starts",
        )
    return info(
        "linked-partition",
        _path(d),
        f"a symlink to {target}: the broker follows it, logagent never touches it",
        "nothing to do; the supported way is a separate log dir on that disk",
    )


def _unparsable(d: PartitionDir) -> Finding:
    if d.name == "lost+found":
        return fatal(
            "lost-and-found",
            _path(d),
            "the log dir is the root of a file system: no broker starts with lost+found in a log dir",
            "use a subdirectory of the mount point as the log dir, or remove lost+found (rmdir; fsck recreates it)",
        )
    return fatal(
        "unparsable-name",
        _path(d),
        f"{d.error or 'not the name of a partition directory'}: no broker starts with it in a log dir",
        "find out what it is (logagent explain NAME) and move it out of the log dir",
    )


_MOVE_OUT = "with the broker stopped, move it out of the log dir"


def _load_fault(log_dir: str, fault: LoadFault) -> Finding:
    path = f"{log_dir}/{fault.name}"
    base = path[: path.rfind(".")]
    match fault.file:
        case LoadFile.TAIL:
            hint = (
                f"with the broker stopped, remove {log_dir}/.kafka_cleanshutdown: at its start it then recovers every"
            )
            hint += " log of this log dir, and cuts off what is no batch"
            return fatal("broken-segment", path, f"{fault.error}: the broker does not start", hint)
        case LoadFile.ABORTED:
            says = f"{fault.error}, which this release does not know: the broker does not start"
            hint = (
                f"with the broker stopped, move it and {base}.index out of the directory: the broker makes both again"
            )
            return fatal("broken-segment", path, says, hint, releases=Releases(since=ABORTED_VERSIONS))
        case LoadFile.LARGE:
            hint = "with the broker stopped, move an index out of the directory (the broker makes it again); of a"
            hint += " segment, keep what kafka-dump-log.sh reads, or move the partition away if a replica has it all"
            return fatal("broken-segment", path, f"{fault.error}: the broker does not start", hint)
        case LoadFile.SWAP | LoadFile.TORN_SWAP | LoadFile.EMPTY_SWAP:
            says = f"{fault.error}, and the broker puts it in the place of the segments from here on: it does not"
            says += " start, or their records are lost"
            kind = warning if fault.file is LoadFile.EMPTY_SWAP else fatal
            return kind("broken-segment", path, says, _MOVE_OUT)
        case LoadFile.PLACE:
            says = f"{fault.error}, and the broker needs a file there: it takes the log dir offline, or waits for ever"
            return fatal("not-a-file", path, says, _MOVE_OUT)
        case LoadFile.AHEAD:
            says = f"{fault.error} with the name of a file of the broker's: once it needs that, the log dir is offline"
            return warning("not-a-file", path, says, _MOVE_OUT)
        case LoadFile.MARKER:
            says = f"{fault.error}, and the broker takes it for its marker of a clean stop, recovers no log, and"
            hint = "if the broker was not stopped cleanly, remove it (rmdir) before it starts"
            return warning("not-a-file", path, f"{says} removes it", hint)


def _duplicates(loaded: Iterable[PartitionDir], facts: StartFacts) -> Iterator[Finding]:
    """Several current or several future directories of one partition, in the same or in different log dirs.

    From 3.7.1 on, a KRaft broker first sets aside what is not its own by topic id, and fails on duplicates that remain.
    """
    groups: dict[tuple[Kind, str, int], list[PartitionDir]] = defaultdict(list)
    for d in loaded:
        if d.kind in LIVE_KINDS and d.topic is not None and d.partition is not None:
            groups[d.kind, d.topic, d.partition].append(d)
    for (kind, topic, partition), dirs in groups.items():
        if len(dirs) < 2:
            continue
        code = "duplicate-partition" if kind is Kind.CURRENT else "duplicate-future"
        places = " and ".join(f"{d.log_dir}/{d.name}" for d in dirs)
        hint = (
            "find out which one is live (topic id, newest records), and move the others out of the"
            " log dirs before the broker starts"
        )
        says = f"{places} are all partition {partition} of {topic}: the broker does not start"
        remain = _some_survive_together(dirs, facts)
        fatal_for = ALL if remain else Releases(before=SETS_ASIDE_WITHOUT_ID)
        yield fatal(code, _path(dirs[0]), says, hint, releases=fatal_for)
        since = Releases(since=SETS_ASIDE_WITHOUT_ID)
        if remain is None:
            unread = next(_path(d) for d in dirs if id_unread(d))
            says = f"{places} are all partition {partition} of {topic}, and the topic id of {unread} could not be read:"
            yield warning(
                code, _path(dirs[0]), f"{says} if it is the same, the broker does not start", hint, releases=since
            )
        elif not remain:
            yield info(
                code,
                _path(dirs[0]),
                f"{places} are all partition {partition} of {topic}, with different topic ids or none: the broker"
                " renames those that are not its own to -stray",
                "nothing to do",
                releases=since,
            )


def _shared(places: Mapping[Identity, list[PartitionDir]], facts: StartFacts) -> Iterator[Finding]:
    """Two names of one directory are two logs to a broker, which write into the same files. Two of one partition are
    duplicates, which has been said."""
    for place, dirs in places.items():
        # Inode 0: what may be listed, not seen.
        if place.inode != 0 and len(_partitions(dirs)) > 1:
            yield from _one_for_several(dirs, facts)


def _one_for_several(dirs: Sequence[PartitionDir], facts: StartFacts) -> Iterator[Finding]:
    """Seen on 4.3.1: of 100 records written to each of two assigned partitions the log has the bytes of 100. What is
    not assigned is not written; by the topic id that it leads to and its own number, 4.3.1 sets it aside or leaves it,
    and 3.6.0 marks it for deletion or leaves it."""
    path = next((_path(d) for d in dirs if d.error is not None), _path(dirs[0]))
    says = f"{' and '.join(map(_path, dirs))} are one directory, and the broker starts with it"
    hint = "with the broker stopped, unmount or remove (rm) what leads to another partition"
    if len(_partitions(dirs) & facts.assigned) > 1:
        says += ": it writes several logs into the same files, so that records of one overwrite those of the other"
        yield fatal("linked-partition", path, says, hint)
        return
    topics, numbers = {p.topic for p in _partitions(dirs)}, {p.partition for p in _partitions(dirs)}
    deleted = [n for n in numbers if not any(TopicPartition(t, n) in facts.assigned for t in topics)]
    if facts.assigned and deleted and facts.server.mode is not Mode.ZOOKEEPER:
        deletes = f"{says}: before 3.7 it deletes what is not assigned to it, and so the files of the other partition"
        yield fatal("linked-partition", path, deletes, hint, releases=Releases(KRAFT_SINCE, SETS_ASIDE_SINCE))
    says += ": if it is to serve more than one of them, records of one overwrite those of the other"
    yield warning("linked-partition", path, says, hint)


def _partitions(dirs: Iterable[PartitionDir]) -> set[TopicPartition]:
    return {TopicPartition(d.topic or "", -1 if d.partition is None else d.partition) for d in dirs}


def _some_survive_together(dirs: list[PartitionDir], facts: StartFacts) -> bool | None:
    """Whether duplicates would remain after a KRaft broker has set aside those that are not its own; None if an id that
    could not be read decides."""
    if facts.server.mode is Mode.ZOOKEEPER:
        return True
    gone = {d.topic_id for d in dirs if d.key in facts.gone}
    own = Counter(d.topic_id for d in dirs if d.topic_id is not None and d.topic_id not in gone)
    if any(count > 1 for count in own.values()):
        return True
    unread = sum(map(id_unread, dirs))
    return None if unread and unread + bool(own) > 1 else False


def _futures_beside_currents(loaded: Iterable[PartitionDir], facts: StartFacts) -> Iterator[Finding]:
    """The broker renames the `-future` directory to the current one's name, which is taken. Observed: up to 3.7.0 it
    takes the log dir offline once the copy has caught up; later ones do not start (they finish abandoned moves,
    KAFKA-16082)."""
    current = {(d.log_dir, d.topic, d.partition): d for d in loaded if d.kind is Kind.CURRENT}
    for d in loaded:
        beside = current.get((d.log_dir, d.topic, d.partition)) if d.kind is Kind.FUTURE else None
        if beside is None or d.key in facts.gone:
            continue
        says = f"{beside.name} is in the same log dir: the broker tries to rename this one to it, and fails"
        hint = "move the -future directory out of the log dir"
        if id_unread(d) or id_unread(beside):
            says += ", if both have the same topic id, which could not be read"
            yield warning("future-beside-current", _path(d), says, hint)
        elif beside.topic_id == d.topic_id:
            yield fatal("future-beside-current", _path(d), says, hint)


def _futures_without_currents(facts: StartFacts) -> Iterator[Finding]:
    """Observed on 3.5.2 and 4.3.1: the broker makes a current directory, empty, copies the `-future` one from it, which
    truncates it to offset 0, and puts it in the place of the other. From 3.7.1 on it renames one that is where it is
    assigned to (KAFKA-16082)."""
    missing = facts.missing
    for w in (*missing.here, *missing.promoted):
        if w.future is None:
            continue
        promoted, unknown = w in missing.promoted, w.directory_id is None
        known = facts.missing_sure and w.only_copy and not promoted and not unknown
        path = f"{w.future.log_dir}/{w.future.name}"
        yield finding(
            Severity.FATAL if known else Severity.WARNING,
            "future-without-current",
            path,
            f"{w} is assigned to this broker and has no other directory: a start makes it anew, empty, and truncates"
            f" this one to it{', unless it takes this one for it' if promoted or unknown else ''}",
            f"with the broker stopped: mv -nT {quote(path)} {quote(f'{w.future.log_dir}/{w}')}",
            releases=Releases(before=SETS_ASIDE_WITHOUT_ID) if promoted else ALL,
        )
    elsewhere = [(w, ", ".join(missing.unseen) or "a log dir that was not named") for w in missing.hidden]
    elsewhere += [(w, left.name) for left in missing.left for w in left.partitions]
    for w, where in elsewhere:
        if w.future is not None:
            yield warning(
                "future-without-current",
                f"{w.future.log_dir}/{w.future.name}",
                f"the current directory of {w} may be in {where}, and this one may lack records that are only there",
                f"leave this one as it is, and put {where} back; only if that is lost for good, start with another"
                " replica that is in sync, or rename this one as its partition",
            )


def _future_names(loaded: Iterable[PartitionDir], facts: StartFacts) -> Iterator[Finding]:
    """`-future` names are not capped, so some partitions cannot be moved to another log dir, if there is one. Observed
    from 2.5.1 to 4.3.1: the broker refuses the move, and no log dir goes offline."""
    if sum(1 for s in facts.log_dirs if s.holds_logs) < 2:
        return
    for d in loaded:
        if d.kind is Kind.CURRENT and len(d.name) + _MARK_LENGTH > MAX_NAME:
            yield info(
                "future-name-too-long",
                _path(d),
                f"with -future its name would have {len(d.name) + _MARK_LENGTH} characters: the broker refuses to move"
                " it to another log dir (InvalidTopicException)",
                "nothing to do; to move it, reassign it to another broker",
            )


def _is_or_holds_log_dir(d: PartitionDir, where: StartLogDirFacts, log_dirs: Iterable[StartLogDirFacts]) -> bool:
    """Whether it is or contains another log dir; such a directory is reported as nested-log-dir."""
    path = f"{where.canonical or where.path}/{d.name}"
    others = (s.canonical or s.path for s in log_dirs if s is not where)
    return any(other == path or other.startswith(f"{path}/") for other in others)


def _is_utf8(name: str) -> bool:
    return name.isascii() or not any("\udc80" <= c <= "\udcff" for c in name)


def _path(d: PartitionDir) -> str:
    return f"{d.log_dir}/{d.name}"


SHOWN_ALIKE = 20
"""How many findings of one code in one directory are listed; one more says how many are left out."""


def check(facts: StartFacts, version: Version | None, *, at_least: Version | None = None) -> list[Finding]:
    """Every finding that concerns `version` (None: any release from `at_least` on), the worst first."""
    findings = [*check_paths(facts), *check_log_dirs(facts), *check_meta(facts), *check_broker_id(facts)]
    findings += [*check_metadata(facts), *_check_version(facts), *_check_overrides(facts), *_check_exchanges(facts)]
    findings += [*_check_cordons(facts), *check_releases(facts, version), *check_limits(facts, version)]
    if not facts.server.controller_only:  # a controller never reads partition directories
        findings += [*check_names(facts), *_check_emptied(facts), *check_long_names(facts), *_check_missing(facts)]
    return _without_repetition(concerning(findings, version, at_least=at_least))


def _check_version(facts: StartFacts) -> Iterator[Finding]:
    doubt = facts.kafka_version.doubt()
    if doubt is not None:
        yield warning("version-contradicted", facts.server.config or "", doubt.fact, doubt.hint)


def _check_overrides(facts: StartFacts) -> Iterator[Finding]:
    if facts.config_doubt is not None and not facts.about_to_start:
        yield warning("config-changed", facts.server.config or "", facts.config_doubt, CHANGED_HINT)
    for o in facts.overrides:
        yield warning(
            "broker-overrides",
            facts.server.config or "",
            f"{o.who} has --override {o.setting}: this setting is in force, whatever the file says, and check read only"
            " the file",
            "put the setting into the file and start the broker without the override; until then, read the findings"
            " about log dirs with that in mind",
        )


def _check_cordons(facts: StartFacts) -> Iterator[Finding]:
    """With one in the file a broker ends, with a dynamic one it starts. A controller passes it over, but for an empty
    item. Seen on 4.4.0, and by the `KafkaConfig` of 4.3.1 and 4.4.0."""
    text = (facts.settings.file or {}).get(CORDONED_LOG_DIRS, "").strip()
    cordoned = [item.strip() for item in text.split(",")] if text not in ("", "*") else []
    # `KafkaConfig.validateCordonedLogDirs` compares the spelling, a slash at the end too.
    known = {item.strip() for item in (facts.server.log_dirs_text or "").split(",")} - {""}
    stale = sorted({*cordoned} & {""} if facts.server.controller_only else {*cordoned} - known)
    for item in stale:
        why = "it has to stand alone" if item == "*" else "log.dirs does not name it so"
        yield fatal(
            "stale-cordon",
            facts.server.config or CORDONED_LOG_DIRS,
            f"cordoned.log.dirs has {item or 'an empty item'}, and {why}: the node does not start",
            "take it out of cordoned.log.dirs, or spell it as log.dirs does",
            releases=Releases(since=CORDONS_SINCE),
        )
    for path, hint in facts.stale_cordons.items():
        yield warning(
            "stale-cordon",
            path,
            "cordoned.log.dirs names it and log.dirs does not: a broker that starts so applies none of its own dynamic"
            " settings, and refuses to change one",
            hint,
            releases=Releases(since=CORDONS_SINCE),
        )


def _check_exchanges(facts: StartFacts) -> Iterator[Finding]:
    for path, name in facts.open_exchanges.items():
        yield warning(
            "open-exchange",
            path,
            f"logagent restore --replace was cut short: {name} is restored, and the directory it displaced still"
            " has the stray name of the restored one",
            "do not restore or remove it by that name; the next logagent command with --execute (or the daemon in"
            " enforce mode) gives it its own name while the broker is stopped",
        )


def _check_emptied(facts: StartFacts) -> Iterator[Finding]:
    for e in facts.emptied:
        if e.current:
            # `LogLoader.recoverLog`: after a power failure the log may end below what was deleted before, and nothing
            # is lost; with the checkpoint of another log dir or time it is.
            yield warning(
                "log-emptied",
                e.path,
                f"the checkpointed log start offset is {e.log_start_offset}, and its log ends at {e.log_end}: the"
                " broker deletes all its segments when it loads it",
                "if records up to there were deleted (kafka-delete-records.sh), nothing to do; if"
                " log-start-offset-checkpoint is another log dir's, or from another time, move it away before the"
                " broker starts",
            )
            continue
        end = f"its log ends at {e.log_end}" if e.log_end is not None else "the end of its log is unknown"
        yield warning(
            "stray-emptied",
            e.path,
            f"the checkpointed log start offset for its name is {e.log_start_offset}, and {end}: the broker deletes its"
            " segments when it next loads it",
            "if its records matter, move it out of the log dir before the next start (or logagent restore it)",
        )


def _check_missing(facts: StartFacts) -> Iterator[Finding]:
    missing = facts.missing
    for left in missing.left:
        yield forgotten_log_dir(left, facts.server.config or "")
    if missing.doubt is not None:
        says = f"{missing.doubt}: whether log.dirs has lost one of them is unknown"
        yield warning(
            "not-verified", facts.server.config or "", says, "logagent doctor says what to do about that file"
        )
    if missing.unknown is not None:
        says = f"what is assigned to this broker is unknown ({missing.unknown}): whether a start would make a partition"
        says += " anew, empty, could not be compared"
        hint = "set kafka.bootstrap_servers, or name an export of another node (logagent assignments export) with"
        yield warning("assignments-not-compared", facts.server.config or "", says, f"{hint} --assignments FILE")
    if missing.hidden:
        where = ", ".join(missing.unseen) or "a log dir that was not named"
        alone = sum(w.only_copy is not False for w in missing.hidden)
        says = f"{named(missing.hidden)} assigned to this broker, and may be in {where}, which could not be inspected;"
        says += f" {alone or 'none'} of them may be the only copies"
        yield warning("no-directory", where, says, "repair or name that log dir, then run check again")
    for path, (what, certain) in facts.taken.items():
        says = f"it is {what}, and a partition of that name is assigned to this broker and has no directory: where the"
        says += " broker makes one here, the log dir goes offline"
        severity = Severity.FATAL if certain else Severity.WARNING
        yield finding(severity, "name-taken", path, says, "move it away; see other findings about the partition")
    for w in (w for w in missing.here if w.future is None):
        what = "and no other replica is in sync" if w.only_copy else "and copies it from its leader"
        if w.only_copy is None:
            what = "and whether another replica has its records is unknown here"
        hint = f"{w.aside} is of it: logagent restore" if w.aside is not None else "if it was removed by hand: logagent"
        if w.aside is None:
            hint += " rescue shows what a process still has open of it; stop or restart nothing before"
        says = f"{w} is assigned to this broker and has no directory here: a start makes it anew, empty, {what}"
        yield warning("no-directory", str(w), says, hint)


def forgotten_log_dir(left: LeftLogDir, config: str) -> Finding:
    """Fatal where records are known to be gone at a start. Where every partition has another replica in sync, that is
    how a dead disk is left out: the broker starts, and copies them again."""
    why = in_words(left)
    severity = Severity.FATAL if left.known and left.only_copies else Severity.WARNING
    return Finding(severity, left.path or config, replace(why, code="log-dir-forgotten"))


def _without_repetition(findings: list[Finding]) -> list[Finding]:
    """Keep the first 20 findings of a kind in each log dir, and say how many more there are."""
    keys = [(f.severity, f.why.code, f.path.rpartition("/")[0]) for f in findings]
    counts = Counter(keys)
    shown: dict[tuple[Severity, str, str], int] = defaultdict(int)
    kept = []
    for key, f in zip(keys, findings, strict=True):
        shown[key] += 1
        if shown[key] <= SHOWN_ALIKE:
            kept.append(f)
        elif shown[key] == SHOWN_ALIKE + 1:
            rest = counts[key] - SHOWN_ALIKE
            why = replace(f.why, fact=f"and {rest} more like the {SHOWN_ALIKE} above")
            kept.append(replace(f, path=key[2], why=why))
    return kept
