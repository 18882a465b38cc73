"""The disks of real brokers in `tests/fixtures/disks`, extracted and listed for tests."""

from __future__ import annotations

import json
import os
import tarfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from logagent.base.dir_names import classify
from logagent.base.records import Kind, PartitionDir
from logagent.kafka.files.properties import parse_partition_metadata

DISKS = Path(__file__).parent / "fixtures" / "disks"
KRAFT = [f"3.9.1/{path.name.split('.')[0]}" for path in sorted((DISKS / "3.9.1").glob("*.tar.xz"))]
ZOOKEEPER = [
    f"{version}/{name}"
    for version in ("2.5.1-zookeeper", "3.5.2-zookeeper")
    for name in ("broker-clean", "broker-killed")
]


def expected(name: str) -> dict[str, Any]:
    """What Kafka's admin API said about the disk `name`, and what the scenario left on it."""
    found = json.loads((DISKS / f"{name}.expected.json").read_text())
    assert isinstance(found, dict)
    return found


class _Entry(NamedTuple):
    """A directory (without content) or a file; what lies behind the content up to `size` is a hole."""

    path: str
    mtime: float
    mode: int | None
    size: int
    content: bytes | None


@cache
def _entries(name: str) -> list[_Entry]:
    """Unpacking an archive costs ten times as much as writing what was in it."""
    found = []
    with tarfile.open(DISKS / f"{name}.tar.xz") as archive:
        for packed in archive:
            member, content = tarfile.data_filter(packed, "/"), None
            if (file := archive.extractfile(packed)) is not None:
                content = file.read()
                content = content.rstrip(b"\0") if member.issparse() else content
            found.append(_Entry(member.name, member.mtime, member.mode, member.size, content))
    return found


def extract(name: str, folder: Path) -> Path:
    """Extract the disk `name` with its modification times; returns the folder."""
    folders = []
    for path, mtime, mode, size, content in _entries(name):
        where = os.path.join(folder, path)
        if content is None:
            os.makedirs(where, exist_ok=True)
            folders.append((where, mtime))
            continue
        fd = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.write(fd, content)
            if len(content) < size:
                os.ftruncate(fd, size)
            if mode is not None:
                os.fchmod(fd, mode)
            os.utime(fd, (mtime, mtime))
        finally:
            os.close(fd)
    for where, mtime in reversed(folders):
        os.utime(where, (mtime, mtime))
    return folder


def metadata_dir(disk: Path) -> Path:
    return next(disk.glob("*/__cluster_metadata-0"))


def partition_dirs(disk: Path) -> list[PartitionDir]:
    """Every directory in `d1` and `d2` that parses, with its topic id.

    Extraction sets ctime to now, where it once was no younger than the disk's last moment: mtime stands for both.
    """
    found = []
    for log_dir in (disk / "d1", disk / "d2"):
        for entry in sorted(os.scandir(log_dir), key=lambda e: e.name):
            parsed = classify(entry.name)
            if not entry.is_dir() or parsed.kind in (Kind.METADATA, Kind.CACHE, Kind.INVALID):
                continue
            stat = entry.stat()
            metadata = Path(entry.path) / "partition.metadata"
            found.append(
                PartitionDir(
                    log_dir=str(log_dir),
                    name=entry.name,
                    kind=parsed.kind,
                    topic=parsed.topic,
                    partition=parsed.partition,
                    uuid=parsed.uuid,
                    truncated=parsed.truncated,
                    device=stat.st_dev,
                    inode=stat.st_ino,
                    ctime_ns=stat.st_mtime_ns,
                    mtime_ns=stat.st_mtime_ns,
                    topic_id=parse_partition_metadata(metadata.read_bytes()) if metadata.exists() else None,
                )
            )
    return found
