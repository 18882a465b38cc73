"""`meta.properties`: are the log dirs formatted, and of one node? (`MetaPropertiesEnsemble`.)"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from logagent.model.check.facts import LogDirSeen, MetaState, Mode, StartFacts
from logagent.model.finding import ALL, Finding, Releases, Severity

_FILE = "meta.properties"
# KIP-858.
DIRECTORY_IDS: tuple[int, ...] = (3, 7, 0)


def check_meta(facts: StartFacts) -> Iterator[Finding]:
    """Findings about formatting, cluster id, node id and directory ids of log dirs and metadata log dir together."""
    present = [s for s in facts.log_dirs if s.answers]
    for s in present:
        yield from _state(s, facts, present)
    read = [s for s in present if s.meta.state is MetaState.READ]
    yield from _differing(read)
    yield from _configured(read, facts)
    yield from _same_directory_id(read, facts)


def _state(s: LogDirSeen, facts: StartFacts, present: list[LogDirSeen]) -> Iterator[Finding]:
    path = f"{s.path}/{_FILE}"
    match s.meta.state:
        case MetaState.MISSING:
            yield _unformatted(s, facts, present)
        case MetaState.MALFORMED:
            yield Finding(
                Severity.FATAL,
                "meta-properties-malformed",
                path,
                ALL,
                f"{s.meta.error}: the broker does not start, or takes the log dir offline",
                "put it back from another log dir of this broker, with a directory.id of its own",
            )
        case MetaState.UNREADABLE:
            yield Finding(
                Severity.WARNING,
                "not-verified",
                path,
                ALL,
                f"it could not be read from here: {s.meta.error}",
                "run check as root or as the broker's user",
            )
        case MetaState.READ if facts.server.mode is Mode.KRAFT and (
            s.meta.cluster_id is None or s.meta.node_id is None
        ):
            what = "cluster.id" if s.meta.cluster_id is None else "node.id"
            yield Finding(
                Severity.FATAL,
                "meta-properties-malformed",
                path,
                ALL,
                f"it has no {what}: a KRaft broker does not start",
                "put it back from another log dir of this broker, with a directory.id of its own",
            )
        case _:
            return


def _unformatted(s: LogDirSeen, facts: StartFacts, present: list[LogDirSeen]) -> Finding:
    others = any(o.meta.state is MetaState.READ for o in present)
    unmounted = " Is its disk mounted?" if others else ""
    if facts.server.mode is Mode.ZOOKEEPER:
        return Finding(
            Severity.WARNING if others else Severity.INFO,
            "unformatted",
            s.path,
            ALL,
            f"there is no {_FILE}: the broker takes it for a new, empty log dir.{unmounted}",
            "make sure that the right disk is mounted there",
        )
    return Finding(
        Severity.FATAL if facts.server.mode is Mode.KRAFT else Severity.WARNING,
        "unformatted",
        s.path,
        ALL,
        f"there is no {_FILE}: a KRaft broker does not start with an unformatted log dir.{unmounted}",
        "mount its disk; a new log dir is made usable with kafka-storage.sh format --ignore-formatted",
    )


def _differing(read: list[LogDirSeen]) -> Iterator[Finding]:
    """Log dirs of more than one cluster or node, each kind once."""
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
        # The one that most log dirs have is taken for the right one; where there is none, the first.
        usual = max(values, key=lambda v: len(values[v]))
        for value, paths in values.items():
            if value == usual:
                continue
            for path in paths:
                yield Finding(
                    Severity.FATAL,
                    code,
                    f"{path}/{_FILE}",
                    ALL,
                    f"its {key} is {value}, that of {values[usual][0]} is {usual}: the broker does not start",
                    "find out whose disk this is; never edit the id to make it fit",
                )


def _configured(read: list[LogDirSeen], facts: StartFacts) -> Iterator[Finding]:
    node_id = facts.server.node_id
    if node_id is None:
        return
    others = [s for s in read if s.meta.node_id is not None and s.meta.node_id != node_id]
    if others and len({s.meta.node_id for s in others}) == 1 and len(others) == len(read):
        s = others[0]
        yield Finding(
            Severity.FATAL,
            "foreign-node",
            f"{s.path}/{_FILE}",
            ALL,
            f"it is of node {s.meta.node_id}, the configuration is of node {node_id}: the broker does not start",
            "use the configuration of the broker whose disks these are",
        )


def _same_directory_id(read: list[LogDirSeen], facts: StartFacts) -> Iterator[Finding]:
    if facts.server.mode is Mode.ZOOKEEPER:
        return
    first: dict[str, LogDirSeen] = {}
    for s in read:
        if s.meta.directory_id is None:
            continue
        other = first.setdefault(s.meta.directory_id, s)
        if other is not s and other.canonical != s.canonical:
            yield Finding(
                Severity.FATAL,
                "duplicate-directory-id",
                f"{s.path}/{_FILE}",
                Releases(since=DIRECTORY_IDS),
                f"its directory.id {s.meta.directory_id} is that of {other.path} too: the broker does not start",
                "if the log dir was copied: remove the directory.id line from the copy, a new one is drawn",
            )
