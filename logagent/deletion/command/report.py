"""The orphans and strays of a fleet report, as `topics purge` chooses from them."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal

from logagent.base.dir_names import classify
from logagent.base.errors import LogAgentError, UnreadableError, UsageError
from logagent.base.files.safe_open import MARKER, REPORT_TABLE, open_regular, read_regular
from logagent.deletion.store.requests import RequestedDirectory, checked

MAX_ROWS = 10_000_000
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")


def directory_id_of(row: Mapping[str, str]) -> str:
    """The stable id of a report's row, as `--id` takes it: the report's own if it has one."""
    if row.get("id"):
        return row["id"]
    parts = [row.get(name) or "" for name in ("cluster_id", "node_id", "log_dir", "name", "topic_id")]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rows to take: every given condition must hold."""

    topic: re.Pattern[str] | None = None
    cluster: str | None = None
    hosts: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    larger: int = 0
    kinds: tuple[str, ...] = ("orphan", "stray")
    ids: tuple[str, ...] = ()
    window: str | None = None

    def takes(self, row: Mapping[str, str], kind: str) -> bool:
        return (
            kind in self.kinds
            and (not self.ids or directory_id_of(row) in self.ids)
            and (self.cluster is None or row["cluster_id"] == self.cluster)
            and (not self.hosts or row["host"] in self.hosts or row["node_id"] in self.hosts)
            and (self.window is None or row.get("window") == self.window)
            and (not self.reasons or row.get("reason") in self.reasons)
            and int(row["allocated"] or 0) > self.larger - 1
            and (self.topic is None or (bool(row["topic"]) and self.topic.fullmatch(row["topic"]) is not None))
        )


@dataclass(slots=True)
class Chosen:
    """The rows chosen from a report; `unusable` lists those that cannot be requested, and why."""

    directories: dict[str, list[RequestedDirectory]] = field(default_factory=dict)
    """By cluster id."""
    clusters: set[str] = field(default_factory=set)
    unusable: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """What was named and is not chosen, and why."""
    known_ids: set[str] = field(default_factory=set)
    """The ids of all rows that `--id` takes, chosen or not."""
    found_ids: set[str] = field(default_factory=set)
    dirs_on_host: dict[tuple[str, int], int] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    """Every cluster, host and node id that the report names."""


def choose(report: Path, choice: Choice) -> Chosen:
    """Read a report's `orphans` and `leftovers`. Raises UsageError if `report` is not a report, or names no such
    host, cluster or row; UnreadableError for an invalid table (which never counts as empty)."""
    folder = _folder(report)
    chosen = Chosen()
    kinds: tuple[tuple[str, Literal["orphan", "stray"]], ...] = (("orphans", "orphan"), ("leftovers", "stray"))
    for table, kind in kinds:
        with _sound(folder / f"{table}.csv") as rows:
            for row in rows:
                chosen.named |= {row["cluster_id"], row.get("host") or "", row["node_id"]}
                if table == "leftovers" and row.get("kind") != "stray":
                    continue
                if choice.ids:
                    chosen.known_ids.add(directory_id_of(row))
                if choice.takes(row, kind):
                    _take(row, kind, chosen)
    with _sound(folder / "usage_hosts.csv") as rows:
        for row in rows:
            chosen.named |= {row["cluster_id"], row.get("host") or "", row["node_id"]}
            if row["cluster_id"] in chosen.clusters:
                chosen.dirs_on_host[row["cluster_id"], int(row["node_id"])] = int(row["dirs"] or 0)
    for option, names in (("--host", choice.hosts), ("--cluster", (choice.cluster,) if choice.cluster else ())):
        unknown = [name for name in names if name not in chosen.named]
        if unknown:
            raise UsageError(f"{option} {', '.join(unknown)}: the report does not name it", hint="see its usage_hosts")
    unknown_ids = sorted(set(choice.ids) - chosen.known_ids)
    if unknown_ids:
        raise UsageError(
            f"--id {', '.join(unknown_ids)}: the report has no such row that can be requested",
            hint="it may be of another report: copy the command again from the newest page",
        )
    missing = sorted(set(choice.ids) - chosen.found_ids)
    chosen.left_out += [(f"--id {one}", "another option excludes it") for one in missing]
    return chosen


def _take(row: Mapping[str, str], kind: Literal["orphan", "stray"], chosen: Chosen) -> None:
    chosen.clusters.add(row["cluster_id"])
    chosen.found_ids.add(directory_id_of(row))
    where = f"{row['log_dir']}/{row['name']} of node {row['node_id']}"
    unusable = chosen.unusable.setdefault(row["cluster_id"], [])
    topic = row["topic"] or classify(row["name"]).topic
    if not _TOPIC_ID.fullmatch(row["topic_id"] or ""):
        unusable.append((where, "it has no topic id: only its host can decide on it (logagent cleanup)"))
    elif not topic or not row["partition"]:
        unusable.append((where, "its name does not tell its topic"))
    elif not row.get("inode"):
        why = "the report does not carry its inode: it, or the agent there, is of an earlier version"
        unusable.append((where, why))
    else:
        numbers = {"node_id": row["node_id"], "partition": row["partition"], "bytes": row["allocated"] or 0,
                   "inode": row["inode"]}  # fmt: skip
        if row.get("end_offset"):
            numbers["end_offset"] = row["end_offset"]
        names = {name: row[name] for name in ("log_dir", "name", "topic_id")}
        if row.get("directory_id"):
            names["directory_id"] = row["directory_id"]
        try:
            values = {**names, "topic": topic, "kind": kind, **{name: int(text) for name, text in numbers.items()}}
            chosen.directories.setdefault(row["cluster_id"], []).append(checked(RequestedDirectory, values))
        except ValueError as error:
            unusable.append((where, f"the report's row cannot be used: {error}"))


def _folder(report: Path) -> Path:
    for folder in (report, report / "latest"):
        if (folder / "report.json").is_file():
            return folder
    with suppress(OSError, LogAgentError, UnicodeError):
        run = read_regular(report / "latest", MARKER).decode("utf-8").strip()
        if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", run) and (report / run / "report.json").is_file():
            return report / run
    raise UsageError(f"{report} has no fleet report", hint="create one with logagent fleet report --out DIR")


@contextmanager
def _sound(path: Path) -> Iterator[Iterator[dict[str, str]]]:
    """The rows of a table. Raises UnreadableError if the file or one of its rows is invalid."""
    try:
        with open(open_regular(path, REPORT_TABLE), newline="", encoding="utf-8", errors="surrogateescape") as file:
            yield islice(csv.DictReader(file), MAX_ROWS)
            if next(file, None) is not None:
                raise UnreadableError(f"{path} has more than {MAX_ROWS} rows")
    except (OSError, csv.Error, UnicodeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableError(f"{path} cannot be read: {error or type(error).__name__}") from error
