"""A data file read once, on the driver, before Spark sees it: does it match its manifest, and is it safe to unpack?

Computed while reading: SHA-256, unpacked bytes, lines, the longest line. The few rows that are not directories (or
assigned partitions) are parsed here, and what the fleet uses of them (`_KEPT`) is kept; those that Spark reads are only
counted. A file with an invalid gzip end, one that unpacks to too much, or one with a line of a megabyte or more gets no
further.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from logagent.files.safe_open import parse_json
from logagent.store.contract import LEDGER

LARGEST_PACKED = 256 << 20
LARGEST_UNPACKED = 2 << 30
LARGEST_RATIO = 100
SMALLEST_LIMIT = 64 << 20
"""Small files may unpack to this much whatever their ratio, because one host's rows are repetitive."""
LONGEST_LINE = 1 << 20
MOST_OTHER_ROWS = 50_000
"""Rows of a file that the driver parses: header, log dirs, brokers, and kinds of later versions."""
MOST_KEPT = 16 << 20
"""Characters of them that are kept: no host says so much of its log dirs."""
_LEDGER = dict.fromkeys(LEDGER)
_HEADER = dict.fromkeys(("schema", "cluster_id", "at", "agent_version", "kafka_version", "source", "offset", "boot_id"))
_KEPT: dict[str, dict[str, Any]] = {
    "snapshot": _HEADER | {"node_id": None, "snapshot_id": None, "host": None, "assignments": {"at": None}},
    "assignments": _HEADER | {"host": None, "known_until": None},
    "broker": {"node_id": None},
    "uncommitted": {"topic_id": None, "partition": None},
    "log_dir": dict.fromkeys(("path", "health", "directory_id", "reason")) | {"ledger": _LEDGER},
}
"""What is kept of a row that the driver parses, by kind: a few kilobytes packed may be gigabytes of objects."""
_READ = 1 << 18
_PIECE = 1 << 20
# A byte of a name that is not UTF-8 arrives as the escape of a lone low surrogate, which Java cannot encode in UTF-8.
_SURROGATE = re.compile(rb"\\u[dD][cCdDeEfF]")


@dataclass(slots=True)
class Unpacked:
    """The content of a file. `counted`: the rows for Spark; `odd`: it has escapes that only the slow reader keeps.
    `others`: what is kept of the rows of other kinds, `kept` characters; `parsed`: how many of these there are, unknown
    kinds too."""

    sha256: str = ""
    rows: int = 0
    counted: int = 0
    parsed: int = 0
    kept: int = 0
    others: list[dict[str, Any]] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    odd: bool = False
    problem: tuple[str, str] | None = None


def limit_of(packed: int) -> int:
    """The number of bytes that a file with `packed` compressed bytes may unpack to."""
    return min(LARGEST_UNPACKED, max(SMALLEST_LIMIT, LARGEST_RATIO * packed))


def sha256_of(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while piece := file.read(_READ):
        digest.update(piece)
    return digest.hexdigest()


def unpack(file: IO[bytes], counted: str, packed: int) -> Unpacked:
    """Reads `file` to its end or to the first thing that is wrong with it. `counted`: the kind of row Spark reads.

    Raises OSError.
    """
    seen = Unpacked()
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
            if seen.parsed > MOST_OTHER_ROWS:
                seen.problem = ("too-many-rows", f"more than {MOST_OTHER_ROWS} rows are not of kind {counted}")
                return seen
            if seen.kept > MOST_KEPT:
                seen.problem = (
                    "too-large",
                    f"its rows that are not of kind {counted} have over {MOST_KEPT} characters",
                )
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
