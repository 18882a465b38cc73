"""Which files of a date are intact, and which of them count: the driver's half of an ingest."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from py4j.protocol import Py4JError

from logagent.fleet.ingest import headers, manifests
from logagent.fleet.ingest.landing import Landed, Landing, Listing, Skipped
from logagent.fleet.ingest.manifests import LARGEST_MANIFEST, Manifest
from logagent.fleet.ingest.unpack import Unpacked, sha256_of, unpack
from logagent.fleet.tables.plausible import newest_first, reject_implausible
from logagent.store.contract import SNAPSHOT_SCHEMA
from logagent.store.names import ASSIGNMENTS, MANIFEST

Row = dict[str, Any]
BAD_ROWS_KEPT = 100
"""Bad rows listed per file; the file's own entry has their total."""
_FIELDS = (
    "kind", "cluster_id", "node_id", "host", "snapshot_id", "file", "at", "received_at", "bytes", "rows", "sha256",
    "status", "reason", "detail", "agent_version", "kafka_version", "boot_id", "source", "offset", "image_at", "dirs",
    "log_dirs", "partitions", "topics", "received_manifest", "uncommitted",
)  # fmt: skip
"""Fields of a row of `files`. `status` is taken, superseded, waiting (no manifest yet) or rejected; times are
milliseconds since 1970."""


@dataclass
class Checked:
    """The files of a date. `entries`: one row each (`_FIELDS` and what is only needed here)."""

    day: date
    entries: list[Row]
    skipped: list[Skipped]
    records: list[Row] = field(default_factory=list)
    log_dirs: dict[str, list[Row]] = field(default_factory=dict)
    brokers: dict[str, list[int]] = field(default_factory=dict)

    def chosen(self, kind: str) -> list[Row]:
        """Entries that count so far, in the order of their paths."""
        found = [e for e in self.entries if e["kind"] == kind and e["status"] == "taken"]
        return sorted(found, key=lambda e: str(e["file"]))

    def files(self) -> list[Row]:
        return [{name: entry.get(name) for name in _FIELDS} for entry in self.entries]


def check(landing: Landing, listing: Listing, day: date, pinned: frozenset[int] | None) -> Checked:
    """Reads every manifest, computes every file's digest, and unpacks the newest intact file of each host."""
    landed = listing.landed.get(day, [])
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        entries = list(pool.map(lambda each: _entry(landing, each), landed))
        skipped = [s for s in listing.skipped if s.day in (None, day)]
        checked = Checked(day, [*entries, *map(_of_skipped, (s for s in skipped if s.node_id is not None))], skipped)
        reject_implausible(checked.entries, pinned)
        list(pool.map(lambda group: choose(landing, checked, group), groups(checked.entries)))
    return checked


def groups(entries: Iterable[Row]) -> list[list[Row]]:
    """Intact files of each host, and of each cluster's assignments, newest first."""
    found: dict[tuple[str, str, int | None], list[Row]] = defaultdict(list)
    for entry in entries:
        if entry["status"] == "whole":
            found[entry["kind"], entry["cluster_id"], entry["node_id"]].append(entry)
    return [newest_first(group) for group in found.values()]


def choose(landing: Landing, checked: Checked, group: list[Row]) -> None:
    """Takes the first of a group whose content is intact too; the rest are superseded (or rejected if the digest
    differs)."""
    taken = False
    for entry in group:
        landed, manifest = entry["landed"], entry["manifest"]
        if taken:
            _supersede(landing, entry)
            continue
        counted = "partition" if entry["kind"] == ASSIGNMENTS else "dir"
        try:
            with landing.opened(landed) as file:
                seen = unpack(file, counted, landed.data.bytes)
        except (OSError, Py4JError) as error:
            reject(entry, "unreadable", f"the file cannot be read: {_words(error)}")
            continue
        problem = headers.inside(landed, manifest, seen)
        checked.records += _records(entry, headers.bad_rows(seen))
        if problem is not None:
            reject(entry, *problem)
            continue
        taken = True
        _take(checked, entry, seen)


def _take(checked: Checked, entry: Row, seen: Unpacked) -> None:
    head = headers.header(seen)
    schema = head.pop("schema") or ""
    entry.update({name: value for name, value in head.items() if value is not None})
    entry.update(status="taken", rows=seen.rows, counted=seen.counted)
    # Times in other schema versions may be text: use the reader that accepts both.
    entry["odd"] = seen.odd or (entry["kind"] == "snapshot" and schema != SNAPSHOT_SCHEMA)
    if entry["kind"] == ASSIGNMENTS:
        entry["partitions"] = seen.counted
        entry["uncommitted"] = headers.uncommitted(seen)
        checked.brokers[entry["file"]] = sorted({r["node_id"] for r in seen.others if r["row"] == "broker"})
    else:
        rows = headers.log_dirs(entry["landed"], seen)
        entry.update(dirs=seen.counted, log_dirs=len(rows))
        checked.log_dirs[entry["file"]] = rows


def reject(entry: Row, reason: str, detail: str) -> None:
    entry.update(status="rejected", reason=reason, detail=detail)


def _supersede(landing: Landing, entry: Row) -> None:
    entry["status"] = "superseded"
    try:
        with landing.opened(entry["landed"]) as file:
            digest = sha256_of(file)
    except (OSError, Py4JError) as error:
        reject(entry, "unreadable", f"the file cannot be read: {_words(error)}")
        return
    if digest != entry["manifest"].sha256:
        reject(entry, "sha256-differs", f"SHA-256 is {digest}, its manifest says {entry['manifest'].sha256}")


def _entry(landing: Landing, landed: Landed) -> Row:
    manifest: Manifest | None = None
    wrong: str | None = None
    if landed.manifest is not None:
        try:
            with landing.opened(landed, MANIFEST) as file:
                content = file.read(LARGEST_MANIFEST + 1)
            manifest = manifests.parsed(content) if len(content) <= LARGEST_MANIFEST else None
        except (OSError, Py4JError) as error:
            wrong = _words(error)
    problem = manifests.problem_of(landed, manifest)
    if wrong is not None:
        problem = ("unreadable", f"the manifest cannot be read: {wrong}")
    received = landed.data or landed.manifest
    status = "whole" if problem is None else "waiting" if problem[0] == "no-manifest" else "rejected"
    return {
        "kind": ASSIGNMENTS if landed.place == ASSIGNMENTS else "snapshot",
        "cluster_id": landed.cluster_id,
        "node_id": landed.node_id,
        "host": manifest.host if manifest else None,
        "snapshot_id": manifest.snapshot_id if manifest else landed.stem,
        "file": landed.file,
        "stem": landed.stem,
        "at": manifest.at_ms if manifest else None,
        "received_at": received.modified_ms if received else None,
        "bytes": landed.data.bytes if landed.data else None,
        "sha256": manifest.sha256 if manifest else None,
        "status": status,
        "reason": problem[0] if problem else None,
        "detail": problem[1] if problem else None,
        "received_manifest": landed.manifest is not None,
        "landed": landed,
        "manifest": manifest,
    }


def _of_skipped(skipped: Skipped) -> Row:
    """An entry for a host with something that could not even be listed."""
    return {
        "kind": "snapshot",
        "cluster_id": skipped.cluster_id,
        "node_id": skipped.node_id,
        "file": skipped.path,
        "snapshot_id": None,
        "received_at": None,
        "status": "rejected",
        "reason": skipped.reason,
        "detail": skipped.detail,
    }


def _records(entry: Row, bad: list[tuple[str, str]]) -> list[Row]:
    return [_record(entry, detail, record) for detail, record in bad[:BAD_ROWS_KEPT]]


def _record(entry: Row, detail: str, record: str) -> Row:
    whose = {name: entry[name] for name in ("cluster_id", "node_id", "kind", "file")}
    return {**whose, "reason": "bad-row", "detail": detail, "record": record}


def quarantine(checked: Checked, listed: Callable[[], Iterable[Row]] = tuple) -> list[Row]:
    """Rows of `quarantined_input`: every file that was rejected, and its bad rows."""
    names = ("cluster_id", "node_id", "kind", "file", "reason", "detail")
    wrong = [
        {name: entry.get(name) for name in names} | {"record": None}
        for entry in checked.entries
        if entry["status"] in ("rejected", "waiting")
    ]
    others = [
        {"cluster_id": s.cluster_id, "node_id": None, "kind": None, "file": s.path, "reason": s.reason}
        | {"detail": s.detail, "record": None}
        for s in checked.skipped
        if s.node_id is None
    ]
    rows = [*wrong, *others, *checked.records, *listed()]
    return sorted(rows, key=lambda r: tuple(str(r[n]) for n in ("file", "reason", "record")))


def _words(error: BaseException) -> str:
    with suppress(AttributeError):
        if error.strerror:  # type: ignore[attr-defined]
            return str(error.strerror)  # type: ignore[attr-defined]
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
