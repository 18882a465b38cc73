"""Start-up problems of the directories in log dirs: names, duplicates, topic ids, symlinks, odd segment files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from logagent.model.check.metadata_dir import in_metadata_log, odd_file
from logagent.model.check.start_facts import CheckpointFault, Mode, StartFacts, StartLogDirFacts
from logagent.model.finding import ALL, Finding, Releases, Severity, fatal, info, warning
from logagent.model.kafka_version import KRAFT_SINCE, SETS_ASIDE_SINCE, STRAY_SINCE
from logagent.model.naming.dir_names import FUTURE_SUFFIX, MAX_NAME
from logagent.model.records import Kind, PartitionDir, TopicPartition

# Values of `PartitionDir.error` that an inventory sets.
SYMLINK = "symlink"
MOUNT_POINT = "mount point"
_BROKEN_METADATA = "partition.metadata: "

# Observed: 2.5.1 fails on it and 3.5.2 does not; the releases in between were not tried.
CACHE_KNOWN: tuple[int, ...] = (3, 5, 0)
TOPIC_IDS: tuple[int, ...] = (2, 8, 0)
SETS_ASIDE_WITHOUT_ID: tuple[int, ...] = (3, 7, 1)
_LOADED = (Kind.CURRENT, Kind.FUTURE, Kind.STRAY, Kind.DELETE)
_MARK_LENGTH = 1 + 32 + len(FUTURE_SUFFIX)


def check_names(facts: StartFacts) -> Iterator[Finding]:
    """Findings about every directory that the broker would load or fail on."""
    # A duplicate log dir has its own finding; its directories are not reported twice.
    first = {s.canonical or s.path: s for s in reversed(facts.log_dirs)}
    seen = {s.path: s for s in first.values()}
    loaded: list[PartitionDir] = []
    for d in facts.dirs:
        where = seen.get(d.log_dir)
        if where is None or (d.error == SYMLINK and d.name not in where.dir_links):
            continue  # a symlink that does not lead to a directory is ignored, as regular files are
        if not _is_utf8(d.name):
            yield _undecodable(d)
            continue
        if d.kind is Kind.INVALID:
            if not _is_or_holds_log_dir(d, where, facts.log_dirs):
                yield _unparsable(d)
        elif d.kind is Kind.CACHE:
            yield _cache(d)
        elif d.kind in _LOADED:
            loaded.append(d)
            yield from _one(d, where, facts)
    yield from _duplicates(loaded, facts)
    yield from _futures_beside_currents(loaded, facts)
    yield from _future_names(loaded, facts)
    for where in facts.log_dirs:
        yield from (odd_file(where.path, name) for name in where.odd_files if not in_metadata_log(name))
        for name, (fault, error) in where.broken_epochs.items():
            yield _broken_epochs(f"{where.path}/{name}", fault, error)


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
    if wrong is not None:
        yield info(
            "wrong-directory",
            _path(d),
            f"the cluster expects this partition in another log dir ({wrong})",
            "nothing to do: the broker reports where the log is when it starts; logagent never acts on it",
        )


def _not_as_a_broker_writes_it(d: PartitionDir, where: StartLogDirFacts, facts: StartFacts) -> Iterator[Finding]:
    if d.error == SYMLINK:
        yield _linked(d, where.dir_links[d.name])
    elif d.error == MOUNT_POINT:
        yield warning(
            "mounted-partition",
            _path(d),
            "a mount point: the broker cannot rename it, and deleting its topic takes the log dir offline",
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
    elif d.kind is Kind.CURRENT and d.topic_id is None and d.error is None and facts.server.mode is not Mode.ZOOKEEPER:
        yield from _without_topic_id(d, facts)


def _without_topic_id(d: PartitionDir, facts: StartFacts) -> Iterator[Finding]:
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
    if assigned:
        what += ", and recreates the partition, which is assigned to it, EMPTY"
    yield Finding(
        Severity.FATAL if assigned else Severity.WARNING,
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


def _cache(d: PartitionDir) -> Finding:
    return fatal(
        "cache-unsupported",
        _path(d),
        "old releases do not know the index cache of tiered storage: they take it for a partition and do not start",
        "remove it before an older broker starts; a newer one recreates it",
        releases=Releases(before=CACHE_KNOWN),
    )


def _undecodable(d: PartitionDir) -> Finding:
    return info(
        "undecodable-name",
        _path(d),
        "its name is not UTF-8: Java cannot open it, so the broker ignores it",
        "find out what it is; no broker will ever free its space",
    )


def _broken_epochs(path: str, fault: CheckpointFault, error: str) -> Finding:
    offline = fault is CheckpointFault.MALFORMED
    return fatal(
        "broken-epochs",
        f"{path}/leader-epoch-checkpoint",
        f"{error}: the broker {'takes the log dir offline' if offline else 'does not start'}",
        "with the broker stopped, empty the file (truncate -s 0): the broker goes on with the next leader epoch",
    )


def _duplicates(loaded: Iterable[PartitionDir], facts: StartFacts) -> Iterator[Finding]:
    """Several current or several future directories of one partition, in the same or in different log dirs.

    From 3.7.1 on, a KRaft broker first sets aside what is not its own by topic id, and fails on duplicates that remain.
    """
    groups: dict[tuple[Kind, str, int], list[PartitionDir]] = defaultdict(list)
    for d in loaded:
        if d.kind in (Kind.CURRENT, Kind.FUTURE) and d.topic is not None and d.partition is not None:
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
        fatal_for = ALL if _some_survive_together(dirs, facts) else Releases(before=SETS_ASIDE_WITHOUT_ID)
        yield fatal(code, f"{dirs[0].log_dir}/{dirs[0].name}", says, hint, releases=fatal_for)
        if fatal_for is not ALL:
            yield info(
                code,
                f"{dirs[0].log_dir}/{dirs[0].name}",
                f"{places} are all partition {partition} of {topic}, with different topic ids or none: the broker"
                " renames those that are not its own to -stray",
                "nothing to do",
                releases=Releases(since=SETS_ASIDE_WITHOUT_ID),
            )


def _some_survive_together(dirs: list[PartitionDir], facts: StartFacts) -> bool:
    """Whether duplicates would remain after a KRaft broker has set aside those that are not its own."""
    if facts.server.mode is Mode.ZOOKEEPER:
        return True
    own: dict[str, int] = defaultdict(int)
    for d in dirs:
        if d.topic_id is not None and d.key not in facts.gone:
            own[d.topic_id] += 1
    return any(count > 1 for count in own.values())


def _futures_beside_currents(loaded: Iterable[PartitionDir], facts: StartFacts) -> Iterator[Finding]:
    """The broker renames the `-future` directory to the current one's name, which is taken. Observed: up to 3.7.0 it
    takes the log dir offline once the copy has caught up; later ones do not start (they finish abandoned moves,
    KAFKA-16082)."""
    current = {(d.log_dir, d.topic, d.partition): d for d in loaded if d.kind is Kind.CURRENT}
    for d in loaded:
        beside = current.get((d.log_dir, d.topic, d.partition)) if d.kind is Kind.FUTURE else None
        if beside is not None and beside.topic_id == d.topic_id and d.key not in facts.gone:
            yield fatal(
                "future-beside-current",
                _path(d),
                f"{beside.name} is in the same log dir: the broker tries to rename this one to it, and fails",
                "move the -future directory out of the log dir",
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
