"""Writes the rows of files into a table of a run, until each file in it has as many good rows as the driver counted.

Rows that Spark cannot parse show as a difference: that file is rejected with its bad rows, the host's next older file
takes its place, and no other rows are parsed again. So is a file whose sums or nodes are absurd. Whose files are wrong
again and again (`MAX_TRIES`) is given up, and nobody else.

Which files of a date are intact, and which of them count: the driver's half of an ingest.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.errors import UnreadableError
from logagent.fleet.ingest import rows
from logagent.fleet.ingest.landing import (
    LARGEST_MANIFEST,
    LARGEST_PACKED,
    Landed,
    Landing,
    Listing,
    Manifest,
    Problem,
    Skipped,
    Unpacked,
    made_whole,
    parsed,
    problem_of,
    unpack,
)
from logagent.fleet.tables.frames import STORE, local_frame, newest_first, reject, reject_implausible, shaped, together
from logagent.fleet.tables.store import Run
from logagent.store.names import ASSIGNMENTS, MANIFEST, publisher_of
from logagent.store.snapshots import SNAPSHOT_SCHEMA

Row = dict[str, Any]
_WITH_NUMBERS = ("logagent.snapshot/2", SNAPSHOT_SCHEMA)
BAD_ROWS_KEPT = 100
"""Bad rows listed per file; the file's own entry has their total."""
_FIELDS = (
    "kind", "cluster_id", "node_id", "host", "snapshot_id", "file", "at", "received_at", "bytes", "rows", "sha256",
    "status", "reason", "detail", "agent_version", "kafka_version", "boot_id", "source", "offset", "image_at", "dirs",
    "log_dirs", "partitions", "topics", "received_manifest", "uncommitted", "metadata_version", "base",
)  # fmt: skip
"""Fields of a row of `files`. `status` is taken, superseded, waiting (no manifest yet) or rejected; times are
milliseconds since 1970."""


@dataclass
class Checked:
    """The files of a date. `entries`: one row each (`_FIELDS` and what is only needed here; `read_from`: what Spark
    reads)."""

    run: Run
    day: date
    entries: list[Row]
    skipped: list[Skipped]
    records: list[Row] = field(default_factory=list)
    log_dirs: dict[str, list[Row]] = field(default_factory=dict)
    brokers: dict[str, list[int]] = field(default_factory=dict)

    @cached_property
    def stems(self) -> set[tuple[str, int | None, str]]:
        """The files that are there, by host and name."""
        return {(e["cluster_id"], e["node_id"], e["stem"]) for e in self.entries if e.get("bytes")}

    def chosen(self, kind: str) -> list[Row]:
        """Entries that count so far, in the order of their paths."""
        found = [e for e in self.entries if e["kind"] == kind and e["status"] == "taken"]
        return sorted(found, key=lambda e: str(e["file"]))

    def files(self) -> list[Row]:
        return [{name: entry.get(name) for name in _FIELDS} for entry in self.entries]


def check(run: Run, landing: Landing, listing: Listing, day: date, pinned: frozenset[int] | None) -> Checked:
    """Reads every manifest, and unpacks the newest intact file of each host."""
    landed = listing.landed.get(day, [])
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        entries = list(pool.map(lambda each: _entry(landing, each), landed))
        skipped = [s for s in listing.skipped if s.day in (None, day)]
        unlisted = [_of_skipped(s) for s in skipped if s.node_id is not None]
        checked = Checked(run, day, [*entries, *unlisted], skipped)
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
    """Takes the first of a group whose content is intact too; the rest are superseded, and not read."""
    taken = False
    for entry in group:
        landed, manifest = entry["landed"], entry["manifest"]
        if taken:
            entry["status"] = "superseded"
            continue
        counted = "partition" if entry["kind"] == ASSIGNMENTS else "dir"
        try:
            with landing.opened(landed) as file:
                seen = unpack(file, counted, landed.data.bytes)
        except (OSError, Py4JError) as error:
            reject(entry, "unreadable", f"the file cannot be read: {_words(error)}")
            continue
        problem = rows.inside(landed, manifest, seen)
        if problem is None and manifest.base is not None:
            problem = _make_whole(landing, checked, entry, seen)
        checked.records += _records(entry, rows.bad_rows(seen))
        if problem is not None:
            reject(entry, *problem)
            continue
        taken = True
        _take(checked, entry, seen)


def _make_whole(landing: Landing, checked: Checked, entry: Row, seen: Unpacked) -> Problem | None:
    """Writes a delta with the rows of its base for Spark, and counts them; what is wrong with either. A delta that
    cannot be read is no host without directories."""
    landed, name = entry["landed"], entry["base"]
    if (landed.cluster_id, landed.node_id, name) not in checked.stems:
        return "no-base", f"its base {name} is not in landing"

    def read(stem: str) -> bytes:
        with landing.opened(replace(landed, stem=stem)) as file:
            return file.read(LARGEST_PACKED)

    try:
        whole, packed = made_whole(read, landed.stem)
    except UnreadableError as error:
        return "base-differs", str(error)
    except (OSError, Py4JError) as error:
        return "unreadable", f"its base {name} cannot be read: {_words(error)}"
    entry["read_from"] = f"{checked.run.uri}/{ASIDE}/{landed.file}"
    checked.run.store.files.write(entry["read_from"], packed, durable=False)
    seen.rows, seen.counted, seen.odd = whole.rows, whole.counted, whole.odd
    return None


def _take(checked: Checked, entry: Row, seen: Unpacked) -> None:
    head = rows.header(seen)
    schema = head.pop("schema") or ""
    entry.update({name: value for name, value in head.items() if value is not None})
    entry.update(status="taken", rows=seen.rows, counted=seen.counted)
    # Times in other schema versions may be text: use the reader that accepts both.
    entry["odd"] = seen.odd or (entry["kind"] == "snapshot" and schema not in _WITH_NUMBERS)
    if entry["kind"] == ASSIGNMENTS:
        entry["partitions"] = seen.counted
        entry["uncommitted"] = rows.uncommitted(seen)
        checked.brokers[entry["file"]] = sorted({r["node_id"] for r in seen.others if r["row"] == "broker"})
    else:
        log_dirs = rows.log_dirs(entry["landed"], seen)
        entry.update(dirs=seen.counted, log_dirs=len(log_dirs))
        checked.log_dirs[entry["file"]] = log_dirs


def _entry(landing: Landing, landed: Landed) -> Row:
    manifest: Manifest | None = None
    wrong: str | None = None
    if landed.manifest is not None:
        try:
            with landing.opened(landed, MANIFEST) as file:
                content = file.read(LARGEST_MANIFEST + 1)
            manifest = parsed(content) if len(content) <= LARGEST_MANIFEST else None
        except (OSError, Py4JError) as error:
            wrong = _words(error)
    problem = problem_of(landed, manifest)
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
        "read_from": f"{landing.uri}/{landed.file}",
        "base": manifest.base.snapshot_id if manifest and manifest.base else None,
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


def quarantine(checked: Checked) -> list[Row]:
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
    return sorted(
        [*wrong, *others, *checked.records], key=lambda r: tuple(str(r[n]) for n in ("file", "reason", "record"))
    )


def _words(error: BaseException) -> str:
    with suppress(AttributeError):
        if error.strerror:  # type: ignore[attr-defined]
            return str(error.strerror)  # type: ignore[attr-defined]
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


ROWS_PER_FILE = 2_000_000
"""Approximate number of partition dirs per Parquet file of the store: what one task reads in a second or two."""
MAX_TRIES = 3
"""How many files of a host (of assignments: of a publisher) are tried that turn out to be broken inside: each costs the
others a rewrite of what is written."""
MAX_ROUNDS = 20
"""How often a table is rewritten for broken files: then every host or cluster that still has one is given up."""
ASIDE = ".aside"
DIR_ORDER = ("cluster_id", "topic", "topic_id", "partition", "node_id", "log_dir", "name")

Key = tuple[str, int | None]


def settle(run: Run, found: Checked, landing: Landing, table: str, frame: DataFrame) -> list[Row]:
    """Writes `table` until every file in it has as many good rows as the driver counted; returns sums by log dir, or
    the replicas of each node.

    A file that has fewer is rejected, and the host's next older file is tried: the others' rows are not parsed again.
    """
    kind = "snapshot" if table == "dirs" else "assignments"
    rounds = 0
    while True:
        written = run.write(table, _compacted(frame, table, rows_of(found.chosen(kind))))
        hosts = len(found.chosen(kind))
        counts, absurd, sums = _counted_dirs(written, hosts) if table == "dirs" else _counted_partitions(written)
        wrong = {
            key_of(e): _bad_rows(e, counts.get(key_of(e), 0))
            for e in found.chosen(kind)
            if counts.get(key_of(e), 0) != e["counted"]
        }
        wrong = absurd | wrong
        if not wrong:
            return sums
        rounds += 1
        broken = [e for e in found.chosen(kind) if key_of(e) in wrong]
        again = _reject_bad(run, found, landing, broken, wrong, last=rounds >= MAX_ROUNDS)
        frame = without(run, table, broken).unionByName(frame_of(run, again, table))


def _bad_rows(entry: Row, good: int) -> Problem:
    return "bad-rows", f"{entry['counted'] - good} of {entry['rows']} rows"


def without(run: Run, table: str, entries: list[Row]) -> DataFrame:
    """What was written of `table`, without the rows of some files; copied elsewhere, because `table` is rewritten from
    it."""
    keys = [{"c": e["cluster_id"], "n": e["node_id"]} for e in entries]
    same = fn.col("cluster_id") == fn.col("c")
    if table == "dirs":
        same = same & (fn.col("node_id") == fn.col("n"))
    gone = fn.broadcast(local_frame(run.store.spark, keys, "c string, n int"))
    aside = Run(run.store, f"{run.name}/{ASIDE}/{uuid4().hex}")
    return aside.write(table, run.read(table).join(gone, same, how="left_anti"))


def key_of(entry: Row) -> Key:
    return entry["cluster_id"], entry["node_id"]


def rows_of(entries: list[Row]) -> int:
    return sum(e["counted"] for e in entries)


def frame_of(run: Run, entries: list[Row], table: str) -> DataFrame:
    """Good rows of files, as the table has them."""
    clean = [e["read_from"] for e in entries if not e["odd"]]
    odd = [e["read_from"] for e in entries if e["odd"]]
    if table == "dirs":
        frames = [rows.dirs(f) for f in rows.of_files(run.store.spark, clean, odd, "dir")]
    else:
        frames = [rows.partitions(f) for f in rows.of_files(run.store.spark, clean, odd, "partition")]
    if not frames:
        return local_frame(run.store.spark, [], STORE[table])
    return together(shaped(each, STORE[table]) for each in frames)


def _compacted(frame: DataFrame, table: str, count: int) -> DataFrame:
    """`frame` in sorted files whose number follows from the rows alone. Copies of one partition are stored together,
    whatever host they are from.

    Rows are placed by a hash of topic and partition block, so that one topic with a million partitions spreads over all
    files.
    """
    number = max(1, -(-count // ROWS_PER_FILE))
    block = fn.floor(fn.coalesce(fn.col("partition"), fn.lit(0)) / 64)
    placed = frame.repartition(number, "cluster_id", "topic", block)
    if table == "dirs":
        return placed.sortWithinPartitions(*DIR_ORDER)
    # One row per partition: the grouping needs no further shuffle.
    return rows.merged(placed).sortWithinPartitions("cluster_id", "topic", "topic_id", "partition")


def _counted_partitions(written: DataFrame) -> tuple[dict[Key, int], dict[Key, Problem], list[Row]]:
    """Rows of each cluster in the written table, what is wrong with a cluster as a whole, and the replicas that each of
    its nodes has."""
    said = written.groupBy("cluster_id").agg(fn.sum("said").alias("said")).collect()
    nodes = (
        written.select("cluster_id", fn.explode("replicas").alias("node_id")).groupBy("cluster_id", "node_id").count()
    )
    most = rows.MOST_NODES * len(said)
    found = [row.asDict() for row in nodes.limit(most + 1).collect()]
    per_cluster = Counter(row["cluster_id"] for row in found)
    if len(found) > most:
        per_cluster = Counter(
            {row["cluster_id"]: row["count"] for row in nodes.groupBy("cluster_id").count().collect()}
        )
    absurd: dict[Key, Problem] = {
        (cluster, None): (rows.TOO_MANY_NODES, f"it names {count} nodes, more than {rows.MOST_NODES}")
        for cluster, count in per_cluster.items()
        if count > rows.MOST_NODES
    }
    return {(row["cluster_id"], None): row["said"] for row in said}, absurd, found


def _counted_dirs(written: DataFrame, hosts: int) -> tuple[dict[Key, int], dict[Key, Problem], list[Row]]:
    """Rows of each of the hosts in the written table, what is wrong with a host as a whole, and sums by log dir."""
    sums = [fn.try_sum(name).alias(name) for name in ("bytes", "allocated")]
    by = written.groupBy("cluster_id", "node_id", "log_dir").agg(fn.count("*").alias("dirs"), *sums)
    most = rows.MOST_LOG_DIRS * hosts
    found = [row.asDict() for row in by.limit(most + 1).collect()]
    if len(found) > most:
        # Names that one host made up: nothing of it is kept, so only the number is needed.
        of_host = by.groupBy("cluster_id", "node_id").agg(fn.sum("dirs").alias("dirs"), fn.count("*").alias("log_dirs"))
        each = of_host.collect()
        many = {(r["cluster_id"], r["node_id"]): r["log_dirs"] for r in each if r["log_dirs"] > rows.MOST_LOG_DIRS}
        return {(r["cluster_id"], r["node_id"]): r["dirs"] for r in each}, _many_log_dirs(many), []
    many = Counter((row["cluster_id"], row["node_id"]) for row in found)
    counts: Counter[Key] = Counter()
    bytes_of: Counter[tuple[Key, str]] = Counter()
    for row in found:
        key = row["cluster_id"], row["node_id"]
        counts[key] += row["dirs"]
        for name in ("bytes", "allocated"):
            # Null: the sum of the log dir alone is too much.
            bytes_of[key, name] += rows.LARGEST_SIZE + 1 if row[name] is None else row[name]
    says = f"its directories add up to more than {rows.LARGEST_SIZE} bytes"
    absurd = {key: (rows.TOO_MANY_BYTES, says) for (key, _), size in bytes_of.items() if size > rows.LARGEST_SIZE}
    return dict(counts), absurd | _many_log_dirs(many), found


def _many_log_dirs(log_dirs: Mapping[Key, int]) -> dict[Key, Problem]:
    return {
        key: (rows.TOO_MANY_LOG_DIRS, f"its directories are in {count} log dirs, more than {rows.MOST_LOG_DIRS}")
        for key, count in log_dirs.items()
        if count > rows.MOST_LOG_DIRS
    }


def _reject_bad(
    run: Run, found: Checked, landing: Landing, broken: list[Row], wrong: dict[Key, Problem], *, last: bool
) -> list[Row]:
    """Rejects files for what is wrong with them, lists their bad rows, and takes the next older files, which it
    returns; none if this is the last round."""
    kind = broken[0]["kind"]
    row_kind, good = ("dir", rows.is_good_dir()) if kind == "snapshot" else ("partition", rows.is_good_partition())
    paths = [e["read_from"] for e in broken]
    by_key: dict[Key, list[tuple[str, str]]] = {}
    for frame in rows.of_files(run.store.spark, [], paths, row_kind):
        bad = rows.rejected_rows(frame, good, row_kind).orderBy("cluster_id", "node_id", "record", "detail")
        for row in bad.limit(BAD_ROWS_KEPT * 100).collect():
            by_key.setdefault((row.cluster_id, row.node_id), []).append((row.detail, row.record))
    for entry in broken:
        found.records += _records(entry, by_key.get(key_of(entry), []))
        reject(entry, *wrong[key_of(entry)])
    # Only a file that was taken has been counted.
    tried = Counter(_sender(e) for e in found.entries if e["status"] == "rejected" and "counted" in e)
    again: list[Row] = []
    for entry in broken:
        group = [
            e for e in found.entries if key_of(e) == key_of(entry) and e["kind"] == kind and e["status"] == "superseded"
        ]
        for each in group:
            each["status"] = "whole"
            if last or tried[_sender(each)] >= MAX_TRIES:
                sender = "host" if kind == "snapshot" else "publisher"
                why = f"{tried[_sender(each)]} newer files of this {sender} are broken inside"
                reject(each, "not-tried", "too many files were broken inside" if last else why)
        for candidates in groups(group):
            choose(landing, found, candidates)
        again += [e for e in group if e["status"] == "taken"]
    return again


def _sender(entry: Row) -> tuple[str, str, int | None]:
    """Who is answerable for a file: the host, of assignments the node that published them."""
    node = publisher_of(entry["stem"]) if entry["kind"] == ASSIGNMENTS else entry["node_id"]
    return entry["kind"], entry["cluster_id"], node
