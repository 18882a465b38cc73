"""Which files of a date are intact, and which of them count: all that the driver does before Spark sees one.

A file is read in this order, and the first thing that is wrong is the reason: its place, its manifest, its size, then
its content. While a file is read once, SHA-256, unpacked bytes and lines are counted; rows that are not directories (or
assigned partitions) are parsed here, and what the fleet uses of them (`_KEPT`) is kept; the others are for Spark. A
file with an invalid gzip end, one that unpacks to too much, or one with a line of a megabyte or more gets no further.

The newest intact file of each host counts. Older ones are not read.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from logagent.base.errors import UnreadableError
from logagent.base.files.safe_open import parse_json
from logagent.base.units import FIRST_MS, LAST_MS
from logagent.fleet.ingest.landing import (
    LARGEST_MANIFEST,
    LARGEST_PACKED,
    Landed,
    Landing,
    Listing,
    ParsedManifest,
    Problem,
    Skipped,
    first_of,
    millis,
    parsed,
    problem_of,
)
from logagent.fleet.job_options import write_package
from logagent.fleet.spark_session import cause
from logagent.fleet.tables.choice import Row, happened, newest_first, worth_reading
from logagent.fleet.tables.files import BucketFiles
from logagent.fleet.tables.frames import ACT_NEEDS, ACT_STARTS, TEXTS, is_removal
from logagent.fleet.tables.store import Run
from logagent.store.contract import ASSIGNMENTS, LEDGER, MANIFEST, OF_FILE_SYSTEM, publisher_of
from logagent.store.snapshots import ACT_FIELDS, MOST_ACTS, base_named, snapshot_lines, why_too_old

ASIDE = ".aside"
BAD_ROWS_KEPT = 100
"""Bad rows listed per file; the file's own entry has their total."""
_FIELDS = (
    "kind", "cluster_id", "node_id", "host", "snapshot_id", "file", "at", "received_at", "bytes", "rows", "sha256",
    "status", "reason", "detail", "agent_version", "kafka_version", "boot_id", "source", "offset", "image_at", "dirs",
    "log_dirs", "partitions", "topics", "received_manifest", "uncommitted", "metadata_version", "base", "began",
    "images", "absent", "acts", "earlier", "booted_at", "directory_ids", "mode", "accepts", "unread_processes",
)  # fmt: skip
"""Fields of a row of `files`. `status` is taken, superseded, waiting (no manifest yet) or rejected; times are
milliseconds since 1970. `earlier`: of superseded assignments, whether the table `earlier` has them."""


@dataclass
class Checked:
    """The files of a date. `entries`: one row each (`_FIELDS` and what is only needed here; `read_from`: what Spark
    reads)."""

    aside: str
    """Where whole snapshots are written for Spark, which their agents have published as changes."""
    day: date
    entries: list[Row]
    skipped: list[Skipped] = field(default_factory=list)
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


FEW_HOSTS = 32
"""So many hosts are read by the driver: executors need a second to start Python."""


def check(
    run: Run,
    landing: Landing,
    listing: Listing,
    day: date,
    pinned: frozenset[int] | None,
    say: Callable[[str], None] = lambda _: None,
) -> Checked:
    """Reads every manifest, and unpacks the newest intact file of each host: on the executors, where there are many
    hosts on a mounted store or in S3. What cannot be read there is read here, by the same function."""
    places: dict[tuple[str, str], list[Landed]] = {}
    for each in listing.landed.get(day, []):
        places.setdefault((each.cluster_id, each.place), []).append(each)
    hosts = [landed for (_, place), landed in places.items() if place != ASSIGNMENTS]
    checked = Checked(f"{run.uri}/{ASIDE}", day, [], [s for s in listing.skipped if s.day in (None, day)])
    found: list[Checked] | None = None
    files = None if landing.is_mounted else run.store.files.of_executors(run.store.uri)
    if len(hosts) > FEW_HOSTS and (landing.is_mounted or files is not None):
        try:
            found = on_executors(run, files, checked.aside, day, hosts)
        except (PySparkException, Py4JError) as error:
            say(f"{day}: the executors cannot read {len(hosts)} hosts, so the driver does: {cause(error)}")
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        here = partial(read_host, landing, checked.aside, day)
        of_hosts = pool.map(here, hosts) if found is None else iter(_what_executors_could_not(found, hosts, here, say))
        for (_, place), landed in places.items():
            if place == ASSIGNMENTS:
                checked.entries += pool.map(partial(_entry, landing), landed)
                continue
            host = next(of_hosts)
            checked.entries += host.entries
            checked.records += host.records
            checked.log_dirs |= host.log_dirs
        checked.entries += [_of_skipped(s) for s in checked.skipped if s.node_id is not None]
        reject_implausible(checked.entries, pinned)
        list(pool.map(partial(choose, landing, checked), groups(checked.entries)))
        list(pool.map(partial(_read_earlier, landing, checked), _earlier(checked)))
    return checked


def read_host(landing: Landing, aside: str, day: date, landed: list[Landed]) -> Checked:
    """The files of one host, of which the newest intact one is taken."""
    found = Checked(aside, day, [_entry(landing, each) for each in landed])
    for group in groups(found.entries):
        choose(landing, found, group)
    return found


def _what_executors_could_not(
    found: list[Checked], hosts: list[list[Landed]], read: Callable[[list[Landed]], Checked], say: Callable[[str], None]
) -> list[Checked]:
    """Hosts with a file that an executor could not read, read by the driver: it may have what a worker lacks (a mount,
    another user). What it says then is what counts."""
    barred = {n: [entry for entry in host.entries if "barred" in entry] for n, host in enumerate(found)}
    barred = {n: entries for n, entries in barred.items() if entries}
    if barred:
        first = next(iter(barred.values()))[0]
        what = f"of {len(barred)} of {len(hosts)} hosts executors cannot read a file, so the driver reads them"
        say(f"{found[0].day}: {what}; {first['file']}: {first['barred']}")
    return [read(hosts[n]) if n in barred else host for n, host in enumerate(found)]


def on_executors(
    run: Run, files: BucketFiles | None, aside: str, day: date, hosts: list[list[Landed]]
) -> list[Checked]:
    """`read_host` of many, in their order. `files`: of an object store. Raises Py4JError and PySparkException: then
    nothing counts."""
    context = run.store.spark.sparkContext
    if not re.fullmatch(r"local(\[.*\])?", str(context.master)) and Path(__file__).is_file():
        archive = Path(context._temp_dir, "executors")
        if not archive.exists():
            context.addPyFile(str(write_package(archive)))
    task = partial(read_hosts, run.store.uri, files, aside, day)
    slices = min(len(hosts), 2 * context.defaultParallelism)
    return context.parallelize(hosts, slices).mapPartitions(task).collect()


def read_hosts(
    store: str, files: BucketFiles | None, aside: str, day: date, hosts: Iterable[list[Landed]]
) -> Iterator[Checked]:
    with Landing(store, files) as landing:
        for landed in hosts:
            yield read_host(landing, aside, day, landed)


def _earlier(checked: Checked) -> list[Row]:
    """Assignments that are read although newer ones count: for hosts that have read none themselves."""
    found: list[Row] = []
    for newest in checked.chosen(ASSIGNMENTS):
        of_cluster = [e for e in checked.entries if e["cluster_id"] == newest["cluster_id"]]
        snapshots = [e for e in of_cluster if e["kind"] == "snapshot" and e["status"] == "taken"]
        others = [e for e in of_cluster if e["kind"] == ASSIGNMENTS and e["status"] == "superseded"]
        found += worth_reading(snapshots, newest, others)
    return found


def _read_earlier(landing: Landing, checked: Checked, entry: Row) -> None:
    """Marks it as `earlier` if its content is intact."""
    try:
        with landing.opened(entry["landed"]) as file:
            seen = unpack(file, "partition", entry["landed"].data.bytes)
    except (OSError, Py4JError) as error:
        reject(entry, "unreadable", f"the file cannot be read: {_words(error)}")
        return
    if (problem := inside(entry["landed"], entry["manifest"], seen)) is not None:
        checked.records += records(entry, bad_rows(seen))
        reject(entry, *problem)
        return
    head = header(seen)
    entry.update({name: value for name, value in head.items() if value is not None})
    entry.update(earlier=True, rows=seen.rows, counted=seen.counted, odd=seen.odd)


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
            reject(entry, *_barred(entry, f"the file cannot be read: {_words(error)}"))
            continue
        problem = inside(landed, manifest, seen)
        if problem is None and manifest.base is not None:
            problem = _make_whole(landing, checked, entry, seen)
        checked.records += records(entry, bad_rows(seen))
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
        return _barred(entry, f"its base {name} cannot be read: {_words(error)}")
    entry["read_from"] = f"{checked.aside}/{landed.file}"
    landing.write(entry["read_from"], packed)
    seen.rows, seen.counted, seen.odd = whole.rows, whole.counted, whole.odd
    return None


def _barred(entry: Row, says: str) -> Problem:
    """That the file system does not give us the file, whatever is in it: somebody else may get it."""
    entry["barred"] = says
    return "unreadable", says


def _take(checked: Checked, entry: Row, seen: Unpacked) -> None:
    entry.update({name: value for name, value in header(seen).items() if value is not None})
    entry.update(status="taken", rows=seen.rows, counted=seen.counted, odd=seen.odd)
    if entry["kind"] == ASSIGNMENTS:
        entry["partitions"] = seen.counted
        entry["uncommitted"] = uncommitted(seen)
        checked.brokers[entry["file"]] = sorted({r["node_id"] for r in seen.others if r["row"] == "broker"})
    else:
        checked.log_dirs[entry["file"]] = log_dirs(entry["landed"], seen)
        entry.update(dirs=seen.counted, log_dirs=len(checked.log_dirs[entry["file"]]))


AHEAD_MS = 3_600_000


def reject_implausible(entries: list[Row], pinned: frozenset[int] | None) -> None:
    """Rejects assignments that decide nothing: from a publisher that is not pinned, or more than an hour newer than
    every snapshot of their cluster unless another node has published some within that hour."""
    snapshots: dict[str, int] = {}
    for entry in entries:
        if entry["kind"] == "snapshot" and entry.get("vouched"):
            cluster = entry["cluster_id"]
            snapshots[cluster] = max(snapshots.get(cluster, 0), happened(entry))
    images = [e for e in entries if e["kind"] == "assignments" and e["status"] == "whole"]
    for entry in images:
        publisher = publisher_of(entry["stem"])
        if pinned is not None and publisher not in pinned:
            reject(entry, "not-a-publisher", f"node {publisher} is not one of --assignments-from")
            continue
        limit = int(snapshots.get(entry["cluster_id"]) or entry["received_at"]) + AHEAD_MS
        if entry["at"] > limit:
            others = (
                e
                for e in images
                if e["cluster_id"] == entry["cluster_id"]
                and publisher_of(e["stem"]) != publisher
                and abs(e["at"] - entry["at"]) <= AHEAD_MS
            )
            if next(others, None) is None:
                reject(entry, "from-the-future", "over 1 h newer than every snapshot, and no other source confirms it")


def reject(entry: Row, reason: str, detail: str) -> None:
    entry.update(status="rejected", reason=reason, detail=detail)


def _entry(landing: Landing, landed: Landed) -> Row:
    manifest: ParsedManifest | None = None
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
        "boot_id": manifest.boot_id if manifest else None,
        "booted_at": manifest.booted_at_ms if manifest else None,
        "directory_ids": list(manifest.directory_ids) if manifest else [],
        "status": status,
        "vouched": status == "whole",
        "reason": problem[0] if problem else None,
        "detail": problem[1] if problem else None,
        "received_manifest": landed.manifest is not None,
        "landed": landed,
        "read_from": f"{landing.uri}/{landed.file}",
        "base": manifest.base.snapshot_id if manifest and manifest.base else None,
        "manifest": manifest,
        **({"barred": problem[1]} if problem is not None and wrong is not None else {}),
    }


def _of_skipped(skipped: Skipped) -> Row:
    """An entry for a host with something that could not even be listed."""
    whose = {"kind": "snapshot", "cluster_id": skipped.cluster_id, "node_id": skipped.node_id, "file": skipped.path}
    why = {"status": "rejected", "reason": skipped.reason, "detail": skipped.detail}
    return {**whose, "snapshot_id": None, "received_at": None, **why}


LARGEST_UNPACKED = 2 << 30
LARGEST_RATIO = 100
SMALLEST_LIMIT = 64 << 20
"""Small files may unpack to this much whatever their ratio, because one host's rows are repetitive."""
LONGEST_LINE = 1 << 20
MOST_OTHER_ROWS = 50_000
"""Rows of a file that the driver parses: header, log dirs, brokers, and kinds of later versions."""
MOST_ABSENT = 1_000_000
"""Replicas that a host says it does not have: no broker is assigned more."""
MOST_ACTS_READ = 20 * MOST_ACTS
MOST_KEPT = 16 << 20
"""Characters of them that are kept: no host says so much of its log dirs."""
_LEDGER = dict.fromkeys(LEDGER)
_HEADER = dict.fromkeys(("schema", "cluster_id", "at", "agent_version", "kafka_version", "source", "offset", "boot_id"))
_KEPT: dict[str, dict[str, Any]] = {
    "snapshot": _HEADER
    | {"node_id": None, "snapshot_id": None, "host": None, "assignments": {"at": None}}
    | {"base": {"snapshot_id": None, "sha256": None}, "began": None, "absent": None, "mode": None, "accepts": None}
    | {"unread_processes": None}
    | {"acts": dict.fromkeys(("since", "rows", "left_out", "last_id"))}
    | {"images": dict.fromkeys(("before", "after"), dict.fromkeys(("source", "at", "offset")))},
    "changes": {},
    "assignments": _HEADER | dict.fromkeys(("host", "known_until", "metadata_version")),
    "broker": {"node_id": None},
    "uncommitted": {"topic_id": None, "partition": None},
    "log_dir": dict.fromkeys(("path", "health", "directory_id", "reason", "device")) | {"ledger": _LEDGER},
}
"""What is kept of a row that the driver parses, by kind: a few kilobytes packed may be gigabytes of objects."""
_READ = 1 << 18
_PIECE = 1 << 20
_LINES_A_BLOCK = 4096
# A byte of a name that is not UTF-8 arrives as the escape of a lone low surrogate, which Java cannot encode in UTF-8.
_SURROGATE = re.compile(rb"\\u[dD][cCdDeEfF]")


@dataclass(slots=True)
class Unpacked:
    """The content of a file. `counted`: the rows for Spark; `absent`, `acts`: those of replicas that are not there, and
    of what was done, which Spark reads, too; `done`: the bytes of the latter; `odd`: it has escapes that only the slow
    reader keeps. `others`: what is kept of the rows of other kinds, `kept` characters; `parsed`: how many of these
    there are, unknown kinds too."""

    sha256: str = ""
    rows: int = 0
    counted: int = 0
    parsed: int = 0
    kept: int = 0
    absent: int = 0
    acts: int = 0
    done: int = 0
    others: list[dict[str, Any]] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    odd: bool = False
    problem: tuple[str, str] | None = None


def limit_of(packed: int) -> int:
    """The number of bytes that a file with `packed` compressed bytes may unpack to."""
    return min(LARGEST_UNPACKED, max(SMALLEST_LIMIT, LARGEST_RATIO * packed))


def unpack(file: IO[bytes], counted: str, packed: int) -> Unpacked:
    """Reads `file` to its end or to the first thing that is wrong with it. `counted`: the kind of row Spark reads.

    Raises OSError.
    """
    seen, kind = Unpacked(), f"of kind {counted}"
    digest = hashlib.sha256()
    prefixes = tuple(f'{{"row":{space}"{counted}"'.encode() for space in ("", " "))
    limit, total, carry = limit_of(packed), 0, b""
    try:
        for piece in _pieces(file, digest):
            total += len(piece)
            if total > limit:
                seen.problem = ("too-large", f"it unpacks to more than {limit} bytes from {packed}")
                return seen
            block = carry + piece
            end = block.rfind(b"\n") + 1
            carry = block[end:]
            if len(carry) > LONGEST_LINE or block.find(b"\n") > LONGEST_LINE:
                seen.problem = ("line-too-long", f"line {seen.rows + 1} has more than {LONGEST_LINE} bytes")
                return seen
            _count(seen, block[:end], prefixes, counted)
            # Rows that Spark does not read are held in memory.
            much = (
                (seen.parsed > MOST_OTHER_ROWS, "too-many-rows", f"more than {MOST_OTHER_ROWS} rows are not {kind}"),
                (seen.absent > MOST_ABSENT, "too-many-rows", f"more than {MOST_ABSENT} replicas are absent"),
                (seen.acts > MOST_ACTS_READ, "too-many-rows", f"more than {MOST_ACTS_READ} rows of what was done"),
                (seen.kept > MOST_KEPT, "too-large", f"its rows that are not {kind} have over {MOST_KEPT} characters"),
            )
            seen.problem = first_of(much)
            if seen.problem is not None:
                return seen
    except (zlib.error, EOFError) as error:
        seen.problem = ("unreadable", f"not complete gzip: {error}")
        while rest := file.read(_READ):
            digest.update(rest)
        seen.sha256 = digest.hexdigest()
        return seen
    if carry:
        _count(seen, carry + b"\n", prefixes, counted)
    seen.sha256 = digest.hexdigest()
    return seen


def made_whole(read: Callable[[str], bytes], stem: str) -> tuple[Unpacked, bytes]:
    """A delta with the rows of its base: what is in it, and a file that Spark can read. Raises UnreadableError, and
    what `read` does."""
    seen, sink = Unpacked(), io.BytesIO()
    with gzip.GzipFile(fileobj=sink, mode="wb", compresslevel=1, mtime=0) as file:
        lines = snapshot_lines(read, stem)
        while held := list(islice(lines, _LINES_A_BLOCK)):
            block = b"\n".join(held) + b"\n"
            _count(seen, block, (b'{"row":"dir"',), "dir")
            file.write(block)
    return seen, sink.getvalue()


def _pieces(file: IO[bytes], digest: Any) -> Iterator[bytes]:
    """The unpacked content in pieces of at most 1 MiB, through every member. Raises zlib.error, EOFError."""
    member = zlib.decompressobj(31)
    started = False
    while packed := file.read(_READ):
        digest.update(packed)
        while packed:
            if member.eof:
                member = zlib.decompressobj(31)
            started = True
            piece = member.decompress(packed, _PIECE)
            yield piece
            packed = member.unused_data if member.eof else member.unconsumed_tail
            while not member.eof and not packed and len(piece) == _PIECE:
                piece = member.decompress(b"", _PIECE)
                yield piece
    if not started or not member.eof:
        raise EOFError("it ends abruptly")


def _count(seen: Unpacked, block: bytes, prefixes: tuple[bytes, ...], counted: str) -> None:
    """Adds a block of whole lines."""
    lines = block.count(b"\n")
    plain = sum(block.count(b"\n" + prefix) + block.startswith(prefix) for prefix in prefixes)
    seen.odd = seen.odd or (b"\\u" in block and _SURROGATE.search(block) is not None)
    seen.rows += lines
    seen.counted += plain
    if plain == lines:
        return
    for line in block[:-1].split(b"\n"):
        if line.startswith(prefixes):
            continue
        try:
            row = parse_json(line)
            if not isinstance(row["row"], str):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            seen.bad.append(line[:200].decode(errors="backslashreplace"))
            seen.parsed += 1
            continue
        kind = row["row"]
        if kind in ("absent", "act") and counted == "dir":
            if _is_good(row) and (kind != "act" or line.startswith(ACT_STARTS)):
                seen.absent += kind == "absent"
                seen.acts += kind == "act"
                seen.done += max(row.get(name) or 0 for name in ("bytes", "allocated")) if kind == "act" else 0
            else:
                seen.bad.append(line[:200].decode(errors="backslashreplace"))
            continue
        seen.counted += kind == counted
        seen.parsed += kind != counted
        if kind in _KEPT and kind != counted:
            seen.others.append({"row": kind, **_only(row, _KEPT[kind])})
            seen.kept += len(str(seen.others[-1]))


def _only(row: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """The fields of a row that are kept. A list or an object where a plain value belongs is emptied: it stays wrong."""
    found: dict[str, Any] = {}
    for name, inner in kept.items():
        value = row.get(name)
        if isinstance(value, dict) and inner is not None:
            found[name] = _only(value, inner)
        elif name in row:
            found[name] = type(value)() if isinstance(value, list | dict) else value
    return found


LARGEST_SIZE = 1 << 53
"""The most bytes that a directory, a file system or all of a host can have; more is false, and sums would overflow."""
TOO_MANY_BYTES = "too-many-bytes"
MOST_NODES = 20_000
TOO_MANY_NODES = "too-many-nodes"
"""No cluster has more: each is a host that the report would list as missing."""
MOST_LOG_DIRS = 1_000
"""No host has more; each is a row that the driver and every report keep."""
TOO_MANY_LOG_DIRS = "too-many-log-dirs"


def inside(landed: Landed, manifest: ParsedManifest, seen: Unpacked) -> Problem | None:
    """The first contradiction between a file and its manifest or its place."""
    kind = "snapshot" if landed.node_id is not None else "assignments"
    heads = [row for row in seen.others if row["row"] == kind]
    bad = len(seen.bad) + sum(not _is_good(row) for row in seen.others)
    brokers = sum(row["row"] == "broker" for row in seen.others)
    if seen.sha256 and seen.sha256 != manifest.sha256:
        return "sha256-differs", f"SHA-256 is {seen.sha256}, its manifest says {manifest.sha256}"
    wrong = (
        (seen.rows != manifest.rows, "rows-differ", f"{seen.rows} rows, its manifest says {manifest.rows}"),
        (bad > 0, "bad-rows", f"{bad} of {seen.rows} rows"),
        (brokers > MOST_NODES, TOO_MANY_NODES, f"{brokers} brokers"),
        (len(heads) != 1, "header-differs", f"{len(heads)} header rows"),
    )
    return seen.problem or first_of(wrong) or first_of(_in_head(landed, manifest, seen, heads[0]))


def _in_head(landed: Landed, manifest: ParsedManifest, seen: Unpacked, head: Row) -> Iterator[tuple[bool, str, str]]:
    yield head["cluster_id"] != landed.cluster_id, "wrong-cluster", f"its header says {head['cluster_id']}"
    if head["row"] != "snapshot":
        return
    yield (why := why_too_old(head)) is not None, "old-schema", why or ""
    yield head["node_id"] != landed.node_id, "wrong-host", f"its header says node {head['node_id']}"
    yield head["snapshot_id"] != manifest.snapshot_id, "wrong-snapshot", f"its header says {head['snapshot_id']}"
    # Read as a whole one, a delta would be a host that has lost most of its directories.
    has_changes = any(row["row"] == "changes" for row in seen.others)
    differs = base_named(head) != manifest.base or (has_changes and manifest.base is None)
    yield differs, "wrong-base", f"its header names another base than its manifest: {head.get('base')}"
    absent = head.get("absent")
    differs = seen.absent != (absent if _is_int(absent) else 0)
    yield differs, "header-differs", f"{seen.absent} rows of absent replicas, its header says {absent}"
    acts = head.get("acts")
    said = acts.get("rows") if isinstance(acts, dict) else None
    differs = seen.acts != (said if _is_int(said) else 0) or (_acts(acts) is None and seen.acts > 0)
    yield differs, "header-differs", f"{seen.acts} rows of what was done, its header says {acts}"
    yield seen.done > LARGEST_SIZE, TOO_MANY_BYTES, f"what was done adds up to more than {LARGEST_SIZE} bytes"
    paths = [row["path"] for row in seen.others if row["row"] == "log_dir"]
    many = len(paths) > MOST_LOG_DIRS
    yield many, TOO_MANY_LOG_DIRS, f"it lists {len(paths)} log dirs, more than {MOST_LOG_DIRS}"
    for name in [name for name in LEDGER if name not in OF_FILE_SYSTEM]:
        much = sum(abs((row.get("ledger") or {}).get(name) or 0) for row in seen.others) > LARGEST_SIZE
        yield much, TOO_MANY_BYTES, f"`{name}` of its log dirs adds up to more than {LARGEST_SIZE} bytes"
    yield len(set(paths)) != len(paths), "log-dir-twice", "it lists a log dir twice"


def bad_rows(seen: Unpacked) -> list[tuple[str, str]]:
    """(what is wrong, the row) for the bad rows that the driver found."""
    found = [("not JSON, or not a row", text) for text in seen.bad]
    wrong = [row for row in seen.others if not _is_good(row)]
    return found + [(f"{row['row']}: a required field is missing or bad", str(row)[:200]) for row in wrong]


def _is_good(row: Row) -> bool:
    """Whether a row has what it needs; one of a kind of a newer schema does."""
    try:
        return row["row"] not in _GOOD or _GOOD[row["row"]](row)
    except (KeyError, TypeError, ValueError):
        return False


def _is_head(row: Row, kind: str) -> bool:
    known = str(row["schema"]).startswith(f"logagent.{kind}/") and isinstance(row["cluster_id"], str)
    return known and millis(row["at"]) is not None


def _is_int(value: object, least: int = 0, most: int = (1 << 31) - 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_ledger(ledger: Row) -> bool:
    sizes = {name: ledger.get(name) for name in LEDGER}
    least = {"unexplained": -LARGEST_SIZE}
    return all(size is None or _is_int(size, least.get(name, 0), LARGEST_SIZE) for name, size in sizes.items())


_OF_ACT: dict[str, Callable[[Any], bool]] = {
    "bool": lambda value: isinstance(value, bool),
    "int": _is_int,
    "long": lambda value: _is_int(value, most=(1 << 63) - 1),
    "time": lambda value: isinstance(value, int) and FIRST_MS <= value <= LAST_MS,
}


def _is_of_act(name: str, value: Any) -> bool:
    """Whether a field of an `act` row is what Spark reads there; those of later agents are not read."""
    kind = ACT_FIELDS.get(name)
    if value is None or kind is None:
        return True
    if kind in _OF_ACT:
        return _OF_ACT[kind](value)
    return isinstance(value, str) and len(value.encode("utf-8", "backslashreplace")) <= TEXTS[kind]


_GOOD: dict[str, Callable[[Row], bool]] = {
    "snapshot": lambda row: (
        _is_head(row, "snapshot")
        and _is_int(row["node_id"])
        and isinstance(row["snapshot_id"], str)
        and (base_named(row) is not None or row.get("base") is None)
    ),
    "absent": lambda row: (
        isinstance(row["topic"], str)
        and len(row["topic"]) <= 249
        and _is_int(row["partition"])
        and (row.get("topic_id") is None or is_removal(row["topic_id"], None))
    ),
    "act": lambda row: all(row[name] is not None for name in ACT_NEEDS) and all(map(_is_of_act, row, row.values())),
    "assignments": lambda row: _is_head(row, "assignments"),
    "broker": lambda row: _is_int(row["node_id"]),
    "uncommitted": lambda row: is_removal(row["topic_id"], row.get("partition")),
    "log_dir": lambda row: (
        isinstance(row["path"], str)
        and isinstance(row["health"], str)
        and (row.get("ledger") is None or (isinstance(row["ledger"], dict) and _is_ledger(row["ledger"])))
    ),
}


def header(seen: Unpacked) -> Row:
    """The fields of the header that the store keeps. `image_at`: how recent the agent's own assignments were; of
    assignments, until when their source is known to be complete, which may be before they were read."""
    head = next(row for row in seen.others if row["row"] in ("snapshot", "assignments"))
    image = head.get("assignments")
    image = image if isinstance(image, dict) else {}
    named = ("agent_version", "kafka_version", "source", "boot_id", "mode", "accepts")
    texts = {name: _text(head.get(name)) for name in named}
    numbers = {name: head.get(name) for name in ("offset", "metadata_version")}
    return {
        **texts,
        "host": _text(head.get("host")),
        **{name: n if isinstance(n, int) and abs(n) < 1 << 62 else None for name, n in numbers.items()},
        "image_at": millis(head.get("known_until") if head["row"] == "assignments" else image.get("at")),
        "began": millis(head.get("began")),
        "images": _images(head.get("images")),
        **{name: head.get(name) if _is_int(head.get(name)) else None for name in ("absent", "unread_processes")},
        "acts": _acts(head.get("acts")),
    }


def _acts(said: object) -> Row | None:
    """What a snapshot says of its `act` rows; None where it is not known what was done."""
    if not isinstance(said, dict) or (since := millis(said.get("since"))) is None:
        return None
    counts = {name: said.get(name) for name in ("rows", "left_out", "last_id")}
    return {"since": since, **counts} if all(_is_int(n, most=1 << 62) for n in counts.values()) else None


def _images(said: object) -> Row | None:
    """Between which images a snapshot lies; None where they do not say what is needed of them."""
    found: Row = {}
    for name in ("before", "after"):
        image = said.get(name) if isinstance(said, dict) else None
        at = millis(image.get("at")) if isinstance(image, dict) else None
        if not isinstance(image, dict) or at is None or not isinstance(image.get("source"), str):
            return None
        offset = image.get("offset")
        found[name] = {"source": image["source"], "at": at, "offset": offset if _is_int(offset, most=1 << 62) else None}
    return found


def uncommitted(seen: Unpacked) -> list[list[Any]]:
    """Removals in the metadata log that were not committed: `[topic id, partition or null]` each."""
    rows = [row for row in seen.others if row["row"] == "uncommitted"]
    return [[row["topic_id"], row.get("partition")] for row in rows]


def log_dirs(landed: Landed, seen: Unpacked) -> list[Row]:
    """Log dir rows for the store; a ledger that the agent could not compute is null throughout."""
    rows = []
    for row in seen.others:
        if row["row"] == "log_dir":
            ledger = row.get("ledger") or {}
            rows.append(
                {
                    "cluster_id": landed.cluster_id,
                    "node_id": landed.node_id,
                    # As Spark has it in the rows of its directories: else it would be two log dirs.
                    "log_dir": row["path"].encode("utf-8", "backslashreplace").decode(),
                    "directory_id": _text(row.get("directory_id")),
                    "health": row["health"],
                    "reason": _text(row.get("reason")),
                    "device": row["device"] if _is_int(row.get("device"), 1, 1 << 62) else None,
                    **{name: ledger.get(name) for name in LEDGER},
                }
            )
    return rows


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def records(entry: Row, bad: list[tuple[str, str]]) -> list[Row]:
    whose = {name: entry[name] for name in ("cluster_id", "node_id", "kind", "file")} | {"reason": "bad-row"}
    return [{**whose, "detail": detail, "record": record} for detail, record in bad[:BAD_ROWS_KEPT]]


def quarantine(checked: Checked) -> list[Row]:
    """Rows of `quarantined_input`: every file that was rejected, and its bad rows."""
    names = ("cluster_id", "node_id", "kind", "file", "reason", "detail", "record")
    wrong = [entry for entry in checked.entries if entry["status"] in ("rejected", "waiting")]
    others = [_of_skipped(s) | {"kind": None} for s in checked.skipped if s.node_id is None]
    found = [{name: each.get(name) for name in names} for each in (*wrong, *others, *checked.records)]
    return sorted(found, key=lambda r: tuple(str(r[n]) for n in ("file", "reason", "record")))


def _words(error: BaseException) -> str:
    with suppress(AttributeError):
        if error.strerror:  # type: ignore[attr-defined]
            return str(error.strerror)  # type: ignore[attr-defined]
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
