"""Start-up problems of the configured paths: the text of `log.dirs`, missing, duplicate and nested directories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logagent.model.check.start_facts import Mode, PathProblem, StartFacts, StartLogDirLook
from logagent.model.finding import Finding, Releases, Severity, fatal, warning

# KIP-1161: a list may not have empty items; duplicate items are dropped with a warning.
STRICT_LISTS: tuple[int, ...] = (4, 2, 0)
WITHOUT_ZOOKEEPER: tuple[int, ...] = (4, 0, 0)


def check_paths(facts: StartFacts) -> Iterator[Finding]:
    """Findings about the configuration, about each configured path, and about pairs of paths."""
    yield from _configured_text(facts)
    yield from _pairs(facts.log_dirs)
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
    for item in dict.fromkeys(item for item in items if item and items.count(item) > 1):
        yield fatal(
            "duplicate-log-dir",
            where,
            f"log.dirs lists {item} twice: the broker does not start",
            "list each log dir once",
            releases=Releases(before=STRICT_LISTS),
        )
    for item in dict.fromkeys(items):
        if item and not item.startswith("/"):
            yield warning(
                "relative-log-dir",
                where,
                f"log.dirs: {item} is relative to the working directory of whoever starts the broker",
                "make it an absolute path",
            )


def _pairs(log_dirs: Sequence[StartLogDirLook]) -> Iterator[Finding]:
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
                )
            else:
                yield from _nested(s, other)
                yield from _nested(other, s)


def _nested(inner: StartLogDirLook, outer: StartLogDirLook) -> Iterator[Finding]:
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


def _path_problem(s: StartLogDirLook, facts: StartFacts) -> Finding | None:
    mode = facts.server.mode
    match s.problem:
        case PathProblem.MISSING if mode is Mode.ZOOKEEPER:
            return warning(
                "log-dir-missing",
                s.path,
                "no such directory: the broker creates it, empty. Is its disk mounted?",
                "mount its disk, or remove it from log.dirs",
            )
        case PathProblem.MISSING | PathProblem.DANGLING:
            return Finding(
                Severity.FATAL if mode is not None or s.problem is PathProblem.DANGLING else Severity.WARNING,
                "log-dir-missing",
                s.path,
                f"{s.detail or 'no such directory'}: the broker does not start, or takes the log dir offline."
                " Is its disk mounted?",
                "mount its disk, or remove it from log.dirs (its replicas are then fetched from other brokers)",
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
