"""The orphans and strays of a fleet report, as `topics purge` chooses from them."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from logagent.errors import UnreadableError, UsageError
from logagent.model.naming.names import classify
from logagent.store.deletion import RequestedDirectory

MAX_ROWS = 10_000_000
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")


def directory_id_of(row: Mapping[str, str]) -> str:
    """The stable id of a report's row: what `--id` takes. The report's own where it has one."""
    if row.get("id"):
        return row["id"]
    parts = [row.get(name) or "" for name in ("cluster_id", "node_id", "log_dir", "name", "topic_id")]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rows: every condition that is given must hold."""

    topic: re.Pattern[str] | None = None
    cluster: str | None = None
    hosts: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    larger: int = 0
    kinds: tuple[str, ...] = ("orphan", "stray")
    ids: tuple[str, ...] = ()

    def takes(self, row: Mapping[str, str], kind: str) -> bool:
        return (
            kind in self.kinds
            and (not self.ids or directory_id_of(row) in self.ids)
            and (self.cluster is None or row["cluster_id"] == self.cluster)
            and (not self.hosts or row["host"] in self.hosts or row["node_id"] in self.hosts)
            and (not self.reasons or row.get("reason") in self.reasons)
            and int(row["bytes"] or 0) > self.larger - 1
            and (self.topic is None or self.topic.fullmatch(row["topic"] or "") is not None)
        )


@dataclass(slots=True)
class Chosen:
    """What a choice took of a report; `unusable` says what cannot be asked for, and why."""

    directories: list[RequestedDirectory] = field(default_factory=list)
    clusters: set[str] = field(default_factory=set)
    unusable: list[tuple[str, str]] = field(default_factory=list)
    found_ids: set[str] = field(default_factory=set)
    dirs_on_host: dict[int, int] = field(default_factory=dict)


def choose(report: Path, choice: Choice) -> Chosen:
    """Read a report's `orphans` and `leftovers`. Raises UsageError where `report` is none, UnreadableError for a table
    that is not what it should be (never taken as an empty one)."""
    folder = _folder(report)
    chosen = Chosen()
    kinds: tuple[tuple[str, Literal["orphan", "stray"]], ...] = (("orphans", "orphan"), ("leftovers", "stray"))
    for table, kind in kinds:
        for row in _rows(folder / f"{table}.csv"):
            if table == "leftovers" and row.get("kind") != "stray":
                continue
            if choice.takes(row, kind):
                _take(row, kind, chosen)
    for row in _rows(folder / "usage_hosts.csv"):
        if row["cluster_id"] in chosen.clusters:
            chosen.dirs_on_host[int(row["node_id"])] = int(row["dirs"] or 0)
    missing = set(choice.ids) - chosen.found_ids
    chosen.unusable += [
        (f"--id {one}", "the report has no such row, or another option excludes it") for one in sorted(missing)
    ]
    return chosen


def only_cluster(chosen: Chosen) -> str:
    """The one cluster that the chosen rows belong to. Raises UsageError where there are several."""
    if len(chosen.clusters) > 1:
        names = ", ".join(sorted(chosen.clusters))
        raise UsageError(f"the chosen rows belong to {len(chosen.clusters)} clusters: {names}", hint="add --cluster ID")
    return next(iter(chosen.clusters))


def _take(row: Mapping[str, str], kind: Literal["orphan", "stray"], chosen: Chosen) -> None:
    chosen.clusters.add(row["cluster_id"])
    chosen.found_ids.add(directory_id_of(row))
    where = f"{row['log_dir']}/{row['name']} of node {row['node_id']}"
    parsed = classify(row["name"])
    topic = row["topic"] or parsed.topic
    if not _TOPIC_ID.fullmatch(row["topic_id"] or ""):
        chosen.unusable.append((where, "it has no topic id: it is decided on its host only (logagent cleanup)"))
    elif not topic or not row["partition"]:
        chosen.unusable.append((where, "its topic cannot be told from its name"))
    else:
        chosen.directories.append(
            RequestedDirectory(
                int(row["node_id"]), row["log_dir"], row["name"], topic, row["topic_id"], int(row["partition"]), kind,
                int(row["bytes"] or 0),
            )
        )  # fmt: skip


def _folder(report: Path) -> Path:
    for folder in (report, report / "latest"):
        if (folder / "report.json").is_file():
            return folder
    latest = report / "latest"
    if latest.is_file():
        run = latest.read_text(encoding="utf-8").strip()
        if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", run) and (report / run / "report.json").is_file():
            return report / run
    raise UsageError(f"{report} holds no fleet report", hint="logagent fleet report --out DIR makes one")


def _rows(path: Path) -> Iterator[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            for number, row in enumerate(csv.DictReader(file)):
                if number >= MAX_ROWS:
                    raise UnreadableError(f"{path} has more than {MAX_ROWS} rows")
                yield row
    except (OSError, csv.Error, UnicodeError) as error:
        raise UnreadableError(f"{path} cannot be read: {error}") from error
