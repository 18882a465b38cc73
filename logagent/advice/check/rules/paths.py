"""Start-up problems of the configured paths: the text of `log.dirs`, missing, duplicate and nested directories.

`meta.properties`: whether the log dirs are formatted and belong to one node (`MetaPropertiesEnsemble`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from logagent.advice.check.rules.start_facts import Mode, PathProblem, StartFacts, StartLogDirFacts
from logagent.advice.finding import ALL, Finding, Releases, Severity, fatal, warning
from logagent.base.records import Kind
from logagent.kafka.image import RESERVED_DIRECTORY_IDS
from logagent.kafka.node_files import MetaState

# KIP-1161: a list may not have empty items; duplicate items are dropped with a warning.
STRICT_LISTS: tuple[int, ...] = (4, 2, 0)
WITHOUT_ZOOKEEPER: tuple[int, ...] = (4, 0, 0)


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
        if item and not item.startswith("/"):
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
            return Finding(
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
                "not a directory: a controller goes on without it",
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
        says = f"{s.meta.error}: a controller goes on without this log dir"
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
        return Finding(
            Severity.WARNING if others else Severity.INFO,
            "unformatted",
            s.path,
            f"no {_FILE}: the broker treats it as a new, empty log dir.{unmounted}",
            "make sure the right disk is mounted there",
        )
    return Finding(
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
