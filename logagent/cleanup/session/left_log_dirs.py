"""What a start would make anew: partitions of this broker without a directory in the log dirs that `log.dirs` names.

A broker whose configuration has lost a log dir starts, and makes what was in it anew, empty, in the others. So whatever
knows of such a log dir counts: the running broker, the state dir, the journal, the ids in the assignments, and what is
on its disk.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from logagent.base.dir_names import PARTITION_METADATA, classify
from logagent.base.errors import KafkaStorageError, UnreadableError
from logagent.base.files import safe_open as limits
from logagent.base.files.safe_open import read_regular
from logagent.base.records import Kind, PartitionDir
from logagent.cleanup.session.open_host import STAT_SECONDS, LogDirs, is_here, locked_by_broker
from logagent.disk.log_dir import OPEN_DIRECTORY
from logagent.kafka.files.properties import parse_partition_metadata, read_meta_file
from logagent.kafka.identity import ClusterFacts
from logagent.kafka.image import AssignmentImage
from logagent.verdict.evidence.version_seen import read_log_dirs_seen
from logagent.verdict.facts import Facts, LogDirFacts, unseen_log_dirs
from logagent.verdict.without_directory import (
    Missing,
    NamedLogDirs,
    OtherLogDir,
    Partition,
    sort_missing,
    without_directory,
)

if TYPE_CHECKING:
    from logagent.cleanup.session.session import Session


NOT_ALL_LISTED = "not all directories were listed"


def missing(session: Session, facts: Facts) -> Missing:
    """What a start would make anew, and where it is or may be. Assignments too old for verdicts count too: nothing is
    done because of it."""
    read, whole = session.assignments, session.inventory.whole
    image, unread = (read.shown, "; ".join(read.problems) or None) if whole else (None, NOT_ALL_LISTED)
    return inspect_missing(
        session.log_dirs,
        facts.log_dirs,
        image,
        read.shown_is_sure,
        session.dirs,
        session.journal.log_dirs() if session.journal_problem is None else (),
        session.state_dir,
        unread=unread,
        described=session.brokers.described if session.brokers is not None else dict,
    )


def inspect_missing(
    log_dirs: LogDirs,
    looked: Mapping[str, LogDirFacts],
    image: AssignmentImage | None,
    sure: bool,
    dirs: Sequence[PartitionDir],
    journal_dirs: Collection[str],
    state_dir: str | None,
    *,
    unread: str | None = None,
    described: Callable[[], Mapping[str, Collection[Partition]]] = dict,
) -> Missing:
    """What has no directory in the log dirs that a start would use, and where that is or may be.

    `image`: the assignments that are shown, None: there are none of this cluster; `sure`: no start knows better ones;
    `unread`: why there are none, or better ones. `dirs`: all directories of the log dirs that could be read.
    `journal_dirs`: the log dirs that the journal has entries about. `described`: asks the running broker what it has in
    which log dir."""
    target, cluster = log_dirs.target, log_dirs.cluster
    if image is not None and (cluster.cluster_id is None or image.cluster_id != cluster.cluster_id):
        image, unread = None, "the assignments that were read are not known to be of this cluster"
    # With partitions on the disk, assignments of nothing are no cluster's.
    sure = sure and not (image is not None and not image.topic_count and any(d.kind is Kind.CURRENT for d in dirs))
    used = {path: f for path, f in looked.items() if not f.quarantine and path not in target.unconfigured}
    missing = None
    if image is not None:
        missing = without_directory(image, cluster.node_id, (d for d in dirs if d.log_dir in used))
    seen = read_log_dirs_seen(state_dir, cluster.cluster_id, cluster.node_id)
    doubt = f"{seen.file}, which says which log dirs this broker has, {seen.unread}" if seen.unread else None
    named = NamedLogDirs(
        {path: f.directory_id for path, f in used.items() if f.directory_id is not None},
        (*unseen_log_dirs(used.values()), *target.left_out),
        target.config is not None,
        sure,
        doubt,
        unread,
    )
    if target.config is None or (sure and missing is not None and not missing):
        return sort_missing(missing, (), named)
    ids = {path: id_ for path, id_ in seen.dirs.items() if id_ is None or id_ not in named.ids.values()}
    served, running = _in_use(log_dirs, looked, described)
    known_by = dict.fromkeys(sorted(journal_dirs), "the journal")
    known_by |= dict.fromkeys(target.unconfigured, "--log-dir") | dict.fromkeys(ids, seen.file or "the state dir")
    known_by |= running
    for path in [*used, *target.left_out, *target.spared, *(p for p in seen.dirs if p not in ids)]:
        known_by.pop(path, None)
    wanted = {(w.topic, w.partition) for w in missing or ()}
    absent = {p: who for p, who in known_by.items() if p in target.unconfigured or not is_here(log_dirs, p)}
    ids = dict.fromkeys(running) | ids
    others = [_inspect(log_dirs, path, who, ids, wanted) for path, who in absent.items()]
    found = [replace(o, serves=served.get(o.path, ())) for o in others if o is not None]
    return sort_missing(missing, found, named)


def _in_use(
    log_dirs: LogDirs, looked: Mapping[str, LogDirFacts], described: Callable[[], Mapping[str, Collection[Partition]]]
) -> tuple[Mapping[str, Collection[Partition]], dict[str, str]]:
    """What the running broker has in which log dir, where it had to be asked, and who says that it has that log dir:
    its locks, or its own answer where those cannot be followed from here."""
    locked = locked_by_broker(log_dirs, looked)
    if locked is not None:
        return {}, locked
    named = {posixpath.normpath(path) for path in log_dirs.target.server.log_dirs}
    served = {path: partitions for path, partitions in described().items() if posixpath.normpath(path) not in named}
    return served, dict.fromkeys(served, "the running broker")


def _inspect(
    log_dirs: LogDirs, path: str, known_by: str, ids: Mapping[str, str | None], wanted: Collection[Partition]
) -> OtherLogDir | None:
    """The log dir at `path`, which no configuration names; None if it is another broker's by now. `ids`: the directory
    ids of those that are known to have been this broker's."""
    reading = partial(_read, path, log_dirs.cluster, wanted)
    unread = OtherLogDir(path, known_by, ids.get(path), None, path in ids)
    try:
        directory_id, holds, ours = log_dirs.calls.ask(
            f"the inspection of {path}", reading, of=tuple(log_dirs.online()), limit=STAT_SECONDS
        )
    except (OSError, ValueError, KafkaStorageError):
        return unread
    if not ours:
        return None if path not in ids else unread
    return OtherLogDir(path, known_by, directory_id or ids.get(path), holds, path in ids)


def _read(
    path: str, cluster: ClusterFacts, wanted: Collection[Partition]
) -> tuple[str | None, dict[Partition, str | None], bool]:
    """Its directory id, its current partition directories (with the topic ids of those that are `wanted`), and whether
    its `meta.properties` has this broker's ids. Raises OSError."""
    fd = os.open(path, OPEN_DIRECTORY)
    try:
        meta = read_meta_file(fd)
        if meta.node_id is None or meta.node_id != cluster.node_id or meta.cluster_id != cluster.cluster_id:
            return None, {}, False
        parsed = ((name, classify(name)) for name in os.listdir(fd))
        current = {
            (p.topic, p.partition): name
            for name, p in parsed
            if p.kind is Kind.CURRENT and p.topic is not None and p.partition is not None
        }
        ids = {key: _topic_id(fd, name) if key in wanted else None for key, name in current.items()}
        return meta.directory_id, ids, True
    finally:
        os.close(fd)


def _topic_id(fd: int, name: str) -> str | None:
    try:
        content = read_regular(f"{name}/{PARTITION_METADATA}", limits.PARTITION_METADATA, dir_fd=fd, follow=True)
        return parse_partition_metadata(content)
    except (OSError, UnreadableError):
        return None
