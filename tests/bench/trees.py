"""Log dirs to measure on."""

from __future__ import annotations

import os
import struct
import subprocess
import time
from pathlib import Path

SUFFIXES = (".log", ".index", ".timeindex")
METADATA = b"version: 0\ntopic_id: 4wW2OVqLT8mWpbVbHZVjbA\n"
HEX = "0123456789abcdef" * 2
# `log.index.size.max.bytes`, which a broker allocates for each index of a segment that it appends to.
PREALLOCATED = 10 << 20


def log_dir(path: Path, partitions: int, segments: int, *, size: int = 0, marked: bool = False) -> Path:
    """A log dir with partition directories of `segments` segments (three files each), as a broker leaves them.

    Everything is on the disk when this returns, and old enough that an inventory relies on the times.
    """
    path.mkdir(parents=True)
    content = b"x" * size
    for number in range(partitions):
        name = f"topic-{number // 50}-{number % 50}" + (f".{HEX}-delete" if marked else "")
        fd = make_dir(path / name)
        for segment in range(segments):
            for suffix in SUFFIXES:
                make_file(fd, f"{segment * 1000:020d}{suffix}", content)
        make_file(fd, "leader-epoch-checkpoint", b"0\n0\n")
        make_file(fd, "partition.metadata", METADATA)
        os.close(fd)
        os.utime(path / name, (1, 1))
    subprocess.run(["sync", "-f", str(path)], check=True)
    return path


def kafka_dirs(path: Path, partitions: int, *, records: int, segments: int = 3) -> Path:
    """A log dir with marked partitions as a broker that was killed leaves them: the indexes of the active segment have
    the 10 MiB that were preallocated for each, hardly a block of which exists, and `records` is the size of each log
    (of which the first 8 KiB exist)."""
    path.mkdir(parents=True)
    for number in range(partitions):
        name = f"topic-{number // 50}-{number % 50}.{HEX}-delete"
        fd = make_dir(path / name)
        for segment in range(segments):
            active = segment == segments - 1
            for suffix, size, content in (
                (".log", records, b"r" * min(records, 8192)),
                (".index", PREALLOCATED if active else 8, b"i" * 8),
                (".timeindex", PREALLOCATED if active else 12, b"t" * 12),
                (".snapshot", 10, b"s" * 10),
            ):
                make_file(fd, f"{segment * 1000:020d}{suffix}", content, size)
        make_file(fd, "leader-epoch-checkpoint", b"0\n0\n")
        make_file(fd, "partition.metadata", METADATA)
        os.close(fd)
        os.utime(path / name, (1, 1))
    subprocess.run(["sync", "-f", str(path)], check=True)
    return path


def served_dirs(path: Path, partitions: int, *, segments: int = 3) -> Path:
    """A log dir with partitions as a broker serves them: in each segment one batch, a day apart, with an entry in each
    index of the closed ones; those of the active one are preallocated."""
    path.mkdir(parents=True)
    now_ms = int(time.time() * 1000)
    for number in range(partitions):
        name = f"topic-{number // 50}-{number % 50}"
        fd = make_dir(path / name)
        for segment in range(segments):
            active, at_ms, base = segment == segments - 1, now_ms - (segments - segment) * 86_400_000, segment * 1000
            preallocated = PREALLOCATED if active else 0
            for suffix, content, size in (
                (".log", _batch(base, 1000, at_ms), 0),
                (".index", b"" if active else struct.pack(">ii", 999, 0), preallocated),
                (".timeindex", b"" if active else struct.pack(">qi", at_ms, 999), preallocated),
                (".snapshot", b"s" * 10, 0),
            ):
                make_file(fd, f"{base:020d}{suffix}", content, size)
        make_file(fd, "leader-epoch-checkpoint", b"0\n1\n0 0\n")
        make_file(fd, "partition.metadata", METADATA)
        os.close(fd)
        os.utime(path / name, (1, 1))
    subprocess.run(["sync", "-f", str(path)], check=True)
    return path


def _batch(base: int, records: int, at_ms: int) -> bytes:
    """`DefaultRecordBatch`: its header, and something for the records."""
    body = b"r" * 200
    head = struct.pack(
        ">qiibIhiqqqhii", base, 49 + len(body), 0, 2, 0, 0, records - 1, at_ms, at_ms, -1, -1, -1, records
    )
    return head + body


def make_dir(path: Path) -> int:
    path.mkdir()
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def make_file(dir_fd: int, name: str, content: bytes, size: int = 0) -> None:
    """`size`: what it is extended to, with a hole."""
    fd = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644, dir_fd=dir_fd)
    if content:
        os.write(fd, content)
    if size > len(content):
        os.ftruncate(fd, size)
    os.close(fd)
