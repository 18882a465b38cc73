"""Start-up problems of a KRaft node's metadata log: where it is, and the files beside it that a start reads.

What each release makes of them was seen on real nodes (tests/damages/metadata.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from logagent.advice.check.rules.start_facts import Mode, StartFacts, StartLogDirFacts
from logagent.advice.finding import ALL, Finding, Releases, fatal, warning
from logagent.base.dir_names import METADATA_DIR
from logagent.kafka.node_files import LoadFault, LoadFile, MetadataFault, MetadataFile

# KIP-853: up to 3.7 a quorum-state that cannot be read is started anew, and its voters must be the configured ones.
QUORUM_STATE_COUNTS = (3, 8, 0)
# Observed: 4.2.2 does not start with a snapshot at offset 0 that is empty or cut off, 4.3.1 and 4.4.0 do.
FIRST_SNAPSHOT_SPARE = (4, 3, 0)
# Observed: 3.7.0, 3.9.1 and 4.1.0 do not start with a link to nowhere for the newest snapshot; 4.3.1 and 4.4.0 do,
# where the log begins at 0.
LOST_SNAPSHOT_SPARE = (4, 2, 0)
# Observed: 3.9.1 does not start with something else in the place of the last snapshot of producers; 4.1.0 does.
PRODUCERS_SPARE = (4, 0, 0)
# Observed: 2.5.1 ignores a swap file without an offset, 3.5.2 does not start with it.
SWAP_NEEDS_OFFSET = (2, 6, 0)


def check_metadata(facts: StartFacts) -> Iterator[Finding]:
    """Findings about metadata logs, of nodes in KRaft mode only."""
    if facts.server.mode is Mode.ZOOKEEPER:
        return
    if facts.server.config is not None and not facts.server.names_quorum:
        yield fatal(
            "no-quorum",
            facts.server.config,
            "neither controller.quorum.bootstrap.servers nor controller.quorum.voters is set: the node does not start",
            "copy the line that the other nodes have",
        )
    for s in facts.log_dirs:
        if s.answers:
            yield from _stray(s, facts)
            for broken in s.metadata_faults:
                yield _broken(s, broken, facts)
                if broken.file is MetadataFile.LOST_SNAPSHOT:
                    yield _lost_snapshot(s, broken)
            yield from (odd_file(s.path, name) for name in s.odd_files if in_metadata_log(name))
            for fault in s.load_faults:
                yield from _load_fault(s, fault, facts) if _is_of_the_node(s, fault) else ()


def _stray(s: StartLogDirFacts, facts: StartFacts) -> Iterator[Finding]:
    """`KafkaRaftServer.initializeLogDirs` compares log dirs with `metadata.log.dir` by how they are spelled."""
    wanted = facts.server.metadata_log_dir
    if not s.metadata_log or not s.holds_logs or wanted is None or _spelled(s, facts) == wanted:
        return
    path = f"{s.path}/{METADATA_DIR}"
    if s.holds_metadata:
        says = f"metadata.log.dir={wanted} is this log dir, but log.dirs spells it {_spelled(s, facts)}: the node takes"
        yield fatal(
            "stray-metadata-log",
            path,
            f"{says} its own metadata log for one in the wrong place, and does not start",
            "spell metadata.log.dir exactly as in log.dirs",
        )
        return
    elsewhere = any(o.holds_metadata and o.metadata_log for o in facts.log_dirs)
    hint = (
        "this is not the one the node uses: move it out of the log dir, and keep it until the node is up"
        if elsewhere
        else f"there is none in {wanted}: move it there while the node is stopped, or set metadata.log.dir={s.path}"
    )
    yield fatal(
        "stray-metadata-log", path, f"a metadata log outside metadata.log.dir ({wanted}): the node does not start", hint
    )


def _spelled(s: StartLogDirFacts, facts: StartFacts) -> str:
    """The log dir as `log.dirs` spells it."""
    items = (item.strip() for item in (facts.server.log_dirs_text or "").split(","))
    return next((item for item in items if (item.rstrip("/") or "/") == s.path), s.path)


def _broken(s: StartLogDirFacts, fault: MetadataFault, facts: StartFacts) -> Finding:
    spare = fault.spare or fault.file is MetadataFile.FIRST_SNAPSHOT
    hint = _HINTS[fault.file] if spare else _whole_log(facts)
    path = f"{s.path}/{fault.name}"
    if fault.file is MetadataFile.DIRECTORY_ID:
        return fatal(
            "other-directory-id", path, f"{fault.error}: the node starts, and no controller is ever elected", hint
        )
    if fault.file is MetadataFile.SNAPSHOT_END:
        says = f"{fault.error}: the node starts with what is there, and misses the topics that are not"
        return warning("broken-metadata-log", path, says, hint)
    releases = ALL
    if fault.file is MetadataFile.FIRST_SNAPSHOT:
        releases = Releases(before=FIRST_SNAPSHOT_SPARE)
    if fault.file is MetadataFile.LOST_SNAPSHOT:
        releases = Releases(before=LOST_SNAPSHOT_SPARE)
    if fault.file is MetadataFile.QUORUM_STATE and not fault.refused:
        releases = Releases(since=QUORUM_STATE_COUNTS)
    elif fault.file in (MetadataFile.VOTERS, MetadataFile.DYNAMIC):
        releases = Releases(before=QUORUM_STATE_COUNTS)
    return fatal(
        "broken-metadata-log",
        path,
        f"{fault.error}: the node does not start{_OR_WORSE if fault.file is MetadataFile.SNAPSHOT else ''}",
        hint,
        releases=releases,
    )


def _lost_snapshot(s: StartLogDirFacts, fault: MetadataFault) -> Finding:
    says = f"{fault.error}: the node goes on without it, and without the log it has nothing else to start from"
    since = Releases(since=LOST_SNAPSHOT_SPARE)
    return warning("broken-metadata-log", f"{s.path}/{fault.name}", says, _HINTS[fault.file], releases=since)


def _is_of_the_node(s: StartLogDirFacts, fault: LoadFault) -> bool:
    """Whether it is in the metadata log, or is the lock of a directory in which the node loads nothing else."""
    return in_metadata_log(fault.name) or (s.metadata_only and fault.name == ".lock")


def _load_fault(s: StartLogDirFacts, fault: LoadFault, facts: StartFacts) -> Iterator[Finding]:
    """A metadata log is loaded as a partition's is, but the node has no other log dir to go on with."""
    path = f"{s.path}/{fault.name}"
    hint = f"{_AWAY}the node makes it again"
    if path.endswith(".log"):
        hint = f"put the file that was there back in its place; without it: {_whole_log(facts)}"
    releases = Releases(before=PRODUCERS_SPARE) if path.endswith(".snapshot") else ALL
    if fault.file is LoadFile.PLACE:
        says = f"{fault.error}, and the node needs a file there: it does not start, or waits for ever"
        yield fatal("not-a-file", path, says, hint, releases=releases)
    if fault.file is LoadFile.AHEAD or releases is not ALL:
        says = f"{fault.error}: once the node needs a file there, it ends"
        since = Releases(since=PRODUCERS_SPARE) if fault.file is LoadFile.PLACE else ALL
        yield warning("not-a-file", path, says, hint, releases=since)
    if fault.file in (LoadFile.PLACE, LoadFile.AHEAD):
        return
    hint = f"{_AWAY}what it should have replaced is still there" if path.endswith(".swap") else _whole_log(facts)
    if fault.file is LoadFile.SWAP:
        yield fatal("broken-segment", path, f"{fault.error}: the node does not start", hint)
    else:
        says = f"{fault.error}: the node may not start, or miss a part of its log"
        yield warning("broken-segment", path, says, hint)


# What is cut off within a batch is passed over, and a broker sets aside the directories of topics that it misses.
_OR_WORSE = ", or starts without some of its topics"
_AWAY = "with the node stopped, move the file out of the directory (keep it): "
_HINTS = {
    MetadataFile.FIRST_SNAPSHOT: f"{_AWAY}the log itself has all that it has",
    MetadataFile.LOST_SNAPSHOT: f"{_AWAY}the log itself has all that it had",
    MetadataFile.QUORUM_STATE: f"{_AWAY}the node begins a new one from its log; of several controllers, start this one"
    " only while a majority of the others runs, since it forgets whom it voted for",
    MetadataFile.EPOCHS: f"{_AWAY}the node writes it again from the records of its log",
    MetadataFile.TOPIC_ID: f"{_AWAY}the node writes it again",
    MetadataFile.SNAPSHOT: f"{_AWAY}an older snapshot or the log itself has all that it has",
    MetadataFile.SNAPSHOT_END: f"{_AWAY}an older snapshot or the log itself has all that it should have",
    MetadataFile.BOOTSTRAP: f"{_AWAY}it only counts while the metadata log is still empty",
    MetadataFile.VOTERS: "correct controller.quorum.voters, which is the same on every node; if the voters were changed"
    f" on purpose: {_AWAY}the node begins a new one",
    MetadataFile.DYNAMIC: "start it with 3.8 or later: earlier releases know no dynamic quorums",
    MetadataFile.DIRECTORY_ID: "write the directory.id of the voter into it again, or put back the one that it had",
    MetadataFile.ODD_NAME: f"{_AWAY}it is not Kafka's",
}


def _whole_log(facts: StartFacts) -> str:
    """What helps where the log cannot be read without the file."""
    if facts.server.mode is None or facts.server.runs_controller:
        return (
            "if a majority of the other controllers runs: with this one stopped, move the whole directory away (keep"
            " it), and it fetches the metadata again; if this is the only controller, restore the directory from a"
            " backup, since without it the cluster has lost its topics"
        )
    return "with the broker stopped, move the whole directory away (keep it): it fetches the metadata from a controller"


def odd_file(log_dir: str, name: str) -> Finding:
    return fatal(
        "odd-segment-file",
        f"{log_dir}/{name}",
        "named like a segment file, but without an offset before the first dot: no broker starts with it"
        " in a partition directory",
        "move it out of the partition directory",
        releases=Releases(since=SWAP_NEEDS_OFFSET) if name.endswith(".swap") else ALL,
    )


def in_metadata_log(name: str) -> bool:
    """Whether an odd file (`DIRECTORY/FILE`) is in a metadata log."""
    return name.startswith(f"{METADATA_DIR}/")
