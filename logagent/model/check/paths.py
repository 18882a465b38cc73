"""What the configured paths mean for a start: the text of `log.dirs`, what is not there, what is there twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logagent.model.check.facts import LogDirSeen, Mode, PathProblem, StartFacts
from logagent.model.finding import ALL, Finding, Releases, Severity

# KIP-1161: lists in the configuration may not have empty items; spelled alike, items are dropped with a warning.
STRICT_LISTS: tuple[int, ...] = (4, 2, 0)
WITHOUT_ZOOKEEPER: tuple[int, ...] = (4, 0, 0)


def check_paths(facts: StartFacts) -> Iterator[Finding]:
    """Findings about the configuration, each configured path, and pairs of them."""
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
        yield Finding(
            Severity.FATAL,
            "no-process-roles",
            where,
            Releases(since=WITHOUT_ZOOKEEPER),
            "process.roles is not set: from 4.0 on there is no ZooKeeper mode, and the broker does not start",
            "migrate the cluster to KRaft before the upgrade",
        )
    if text is None:
        return
    items = [item.strip() for item in text.split(",")]
    if "" in items:
        yield Finding(
            Severity.FATAL,
            "empty-log-dirs-item",
            where,
            Releases(since=STRICT_LISTS),
            f"log.dirs={text} has an empty item: the broker does not start",
            "remove the comma too many",
        )
    for item in dict.fromkeys(item for item in items if item and items.count(item) > 1):
        yield Finding(
            Severity.FATAL,
            "duplicate-log-dir",
            where,
            Releases(before=STRICT_LISTS),
            f"log.dirs names {item} twice: the broker does not start",
            "name each log dir once",
        )
    for item in dict.fromkeys(items):
        if item and not item.startswith("/"):
            yield Finding(
                Severity.WARNING,
                "relative-log-dir",
                where,
                ALL,
                f"log.dirs: {item} is relative to the working directory of whoever starts the broker",
                "write it as an absolute path",
            )


def _pairs(log_dirs: Sequence[LogDirSeen]) -> Iterator[Finding]:
    for number, s in enumerate(log_dirs):
        for other in log_dirs[:number]:
            if s.canonical is None or other.canonical is None:
                continue
            if s.canonical == other.canonical:
                yield Finding(
                    Severity.FATAL,
                    "duplicate-log-dir",
                    s.path,
                    ALL,
                    f"it is the same directory as {other.path}: the broker does not start",
                    "name each directory once in log.dirs",
                )
            else:
                yield from _nested(s, other)
                yield from _nested(other, s)


def _nested(inner: LogDirSeen, outer: LogDirSeen) -> Iterator[Finding]:
    assert inner.canonical is not None and outer.canonical is not None
    below = outer.canonical.rstrip("/") + "/"
    if not outer.holds_logs or not inner.canonical.startswith(below):
        return
    child = inner.canonical[len(below) :].partition("/")[0]
    yield Finding(
        Severity.FATAL,
        "nested-log-dir",
        inner.path,
        ALL,
        f"it lies inside the log dir {outer.path}, where the broker takes {child} for a partition directory:"
        " it does not start, or loads, renames and deletes your data under that name",
        "put log dirs and metadata.log.dir beside each other",
    )


def _path_problem(s: LogDirSeen, facts: StartFacts) -> Finding | None:
    mode = facts.server.mode
    match s.problem:
        case PathProblem.MISSING if mode is Mode.ZOOKEEPER:
            return Finding(
                Severity.WARNING,
                "log-dir-missing",
                s.path,
                ALL,
                "there is no such directory: the broker makes it, empty. Is its disk mounted?",
                "mount its disk, or take it out of log.dirs",
            )
        case PathProblem.MISSING | PathProblem.DANGLING:
            return Finding(
                Severity.FATAL if mode is not None or s.problem is PathProblem.DANGLING else Severity.WARNING,
                "log-dir-missing",
                s.path,
                ALL,
                f"{s.detail or 'there is no such directory'}: the broker does not start, or takes the log dir offline."
                " Is its disk mounted?",
                "mount its disk, or take it out of log.dirs (its replicas then come back from other brokers)",
            )
        case PathProblem.NOT_A_DIRECTORY:
            return Finding(
                Severity.FATAL,
                "log-dir-not-a-directory",
                s.path,
                ALL,
                "it is no directory: the broker takes the log dir offline",
                "correct log.dirs, or move away what stands there",
            )
        case _:
            return None
