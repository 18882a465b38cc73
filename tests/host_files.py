"""The small files of a host, as a broker, its operator and an export leave them: for `tests.host`, and for what lays
out disks that no builder has."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from logagent.base.dir_names import FUTURE_SUFFIX, current_name
from logagent.kafka.files.exported import write_assignments
from logagent.kafka.image import AssignmentImage, Source, Topic, make_image
from tests.metadata_writer import batch

CLUSTER_ID = "abcdefghijklmnopqrstuv"
DIRECTORY_IDS = ("FirstDirFirstDirFirstA", "SecondDirSecondDirSecA")
# Of a topic that lives nowhere.
GONE_ID = "GoneGoneGoneGoneGoneGA"
NO_FILES: Mapping[str, bytes] = {}


def write_properties(file: Path, properties: Mapping[str, object]) -> Path:
    """A Java properties file, such as `meta.properties` and `server.properties`."""
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="latin-1")
    return file


def write_toml(file: Path, settings: Mapping[str, object]) -> Path:
    """A configuration, from `section.key` to value."""
    file.write_text(toml(settings))
    return file


def toml(settings: Mapping[str, object]) -> str:
    sections: dict[str, list[str]] = {}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, []).append(f"{name} = {json.dumps(value)}")
    return "".join(f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items())


def format_log_dir(
    path: Path, directory_id: str = DIRECTORY_IDS[0], *, node_id: int = 3, cluster_id: str = CLUSTER_ID
) -> Path:
    """A log dir as a broker would leave it, without a partition."""
    path.mkdir(parents=True, exist_ok=True)
    known = {"version": 1, "cluster.id": cluster_id, "node.id": node_id, "directory.id": directory_id}
    write_properties(path / "meta.properties", known)
    return path


def write_topic_id(directory: Path, topic_id: str) -> Path:
    """`partition.metadata`; returns the directory."""
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    return directory


def future_name(topic: str, partition: int, uuid_hex: str) -> str:
    """`LocalLog.logFutureDirName`: a broker makes such a directory, logagent never does. Not capped, as in Kafka."""
    return f"{current_name(topic, partition)}.{uuid_hex}{FUTURE_SUFFIX}"


def write_epochs(directory: Path, *epochs: tuple[int, int]) -> None:
    """`leader-epoch-checkpoint`: each epoch, and the offset at which it starts."""
    lines = ["0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs)]
    (directory / "leader-epoch-checkpoint").write_text("\n".join([*lines, ""]))


def write_partition(
    path: Path,
    logs: Mapping[int, bytes],
    *,
    beside: Mapping[str, bytes] = NO_FILES,
    epochs: Sequence[tuple[int, int]] | None = None,
    topic_id: str | None = None,
) -> Path:
    """A partition directory with a segment for each base offset of `logs`, and `beside` each of them (by suffix) its
    indexes. Without epochs and topic id, unless they are named."""
    path.mkdir()
    for base, content in logs.items():
        for suffix, data in {".log": content, **beside}.items():
            (path / f"{base:020d}{suffix}").write_bytes(data)
    if epochs is not None:
        write_epochs(path, *epochs)
    return path if topic_id is None else write_topic_id(path, topic_id)


def whole_partition(path: Path, topic_id: str) -> Path:
    """Two segments of ten records each, with all that a broker writes beside them."""
    name = path.name.encode()
    # A log start offset comes back only to a log that is seen to reach it.
    logs = records((0, 100), n=10, value=name)
    indexes = {".index": b"", ".timeindex": b"times" + name}
    return write_partition(path, logs, beside=indexes, epochs=[(0, 0)], topic_id=topic_id)


def bulk_partition(log_dir: Path, name: str, segments: int = 1, size: int = 1000) -> Path:
    """So many segments of `size` bytes, none of which is a record; a stray is of a topic id that lives nowhere."""
    logs = {number * 100: b"r" * size for number in range(segments)}
    topic_id = GONE_ID if name.endswith("-stray") else None
    return write_partition(log_dir / name, logs, beside={".index": b"i" * 8}, topic_id=topic_id)


def records(bases: Sequence[int], *, n: int = 100, at_ms: int = 0, value: bytes = b"record") -> dict[int, bytes]:
    """Logs of `n` records each, in one batch of epoch 0 that can be read."""
    return {base: batch(base, [value] * n, at_ms, epoch=0) for base in bases}


def age(path: Path, written: float) -> None:
    """What a partition directory has, and the directory itself, were last written then (seconds since the epoch)."""
    for each in (*path.iterdir(), path):
        os.utime(each, (written, written))


def image_of(
    *topics: Topic, at_ms: int | None = None, cluster_id: str | None = CLUSTER_ID, **more: Any
) -> AssignmentImage:
    """The assignments of a cluster with exactly these topics: complete, and of now unless `at_ms` says another time."""
    at_ms = time.time_ns() // 1_000_000 if at_ms is None else at_ms
    known = {"source": Source.KRAFT_LOG, "complete": True, "metadata_version": 21, **more}
    return make_image(topics, AssignmentImage(cluster_id=cluster_id, at_ms=at_ms, known_until_ms=at_ms, **known))


def write_export(file: Path, *topics: Topic, **more: Any) -> Path:
    """The same as `logagent assignments export` writes it."""
    write_assignments(str(file), image_of(*topics, **more))
    return file
