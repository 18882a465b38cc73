"""Assignments in a file: what `logagent assignments export` writes and `--assignments FILE` reads.

Two forms of `logagent.assignments/1`: one JSON document for hosts, and JSON lines for the fleet store. The document
ends with `"sha256"`, the SHA-256 of every byte before the comma in front of it: a file that was truncated, edited or
damaged in transit is refused, and never taken for a cluster with fewer topics.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

from logagent.broker.exported.parse import parse_document
from logagent.errors import UnreadableError
from logagent.files.safe_open import EXPORTED_ASSIGNMENTS, read_regular
from logagent.model.assignments.image import AssignmentImage, PartitionAssignment, Source
from logagent.model.times import rfc3339

SCHEMA = "logagent.assignments/1"
_CHECKSUM = b',"sha256":"'
_CHECKSUM_END = b'"}\n'


def document_pieces(image: AssignmentImage) -> Iterator[bytes]:
    """The document as bytes, one topic per line, generated piece by piece; ends with a newline.

    Raises `UnreadableError` for an image that ends within a metadata transaction: readers of the document take
    everything that it does not list for gone.
    """
    _refuse_incomplete(image)
    digest = hashlib.sha256()
    for piece in _body(image):
        digest.update(piece)
        yield piece
    yield _CHECKSUM + digest.hexdigest().encode() + _CHECKSUM_END


def write_assignments(path: str, image: AssignmentImage) -> None:
    """Write the document durably: temp file beside it, fsync, rename, fsync of the directory. Raises `OSError`."""
    directory, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(directory, f".{name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.writelines(document_pieces(image))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_assignments(path: str) -> AssignmentImage:
    """Read an exported document; `logagent.model.assignments.verdict` checks its age and cluster.

    Raises `UnreadableError` for anything but exactly what an export wrote, `OSError` if the file cannot be read.
    """
    return parse_assignments(read_regular(path, EXPORTED_ASSIGNMENTS, follow=True), origin=path)


def parse_assignments(data: bytes, origin: str) -> AssignmentImage:
    """`read_assignments` on bytes; `origin` names the source in messages."""
    at = data.rfind(_CHECKSUM)
    recorded = data[at + len(_CHECKSUM) :]
    if at < 0 or not recorded.endswith(_CHECKSUM_END):
        raise UnreadableError(
            f"{origin}: it does not end with its checksum: it is truncated, or not an export",
            hint="export it again: logagent assignments export",
        )
    digest = hashlib.sha256(memoryview(data)[:at]).hexdigest()
    if recorded[: -len(_CHECKSUM_END)].decode("ascii", "replace") != digest:
        raise UnreadableError(
            f"{origin}: its checksum is {digest}, but it says {recorded[:-3].decode('ascii', 'replace')}",
            hint="it was changed or damaged after the export; export it again",
        )
    return parse_document(data, origin=origin, schema=SCHEMA)


def landing_lines(image: AssignmentImage) -> Iterator[bytes]:
    """The JSON lines of the fleet store: one `assignments` row, then `broker`, `uncommitted` and `partition` rows.

    Raises `UnreadableError` like `document_pieces`.
    """
    _refuse_incomplete(image)
    yield _line({"row": "assignments", **_head(image)})
    for broker in _brokers(image):
        yield _line({"row": "broker", **broker})
    for removal in _uncommitted(image):
        yield _line({"row": "uncommitted", **removal})
    for topic in image.by_name.values():
        for number, partition in sorted(topic.partitions.items()):
            names = {"row": "partition", "topic": topic.name, "topic_id": topic.topic_id}
            yield _line({**names, **_partition(number, partition)})


def landing_stem(image: AssignmentImage) -> str:
    """File name in the store without extension: source and offset, or time if the source has no offset."""
    position = image.offset if image.offset is not None else image.at_ms
    return f"{_source(image)}-{position}"


def _refuse_incomplete(image: AssignmentImage) -> None:
    if image.open_transaction:
        raise UnreadableError(
            f"{image.origin}: a metadata transaction is open at its end, so topics may be missing in it",
            hint="try again in a moment; if it stays open, look at the active controller",
        )


def _body(image: AssignmentImage) -> Iterator[bytes]:
    head = {**_head(image), "brokers": _brokers(image), "uncommitted": _uncommitted(image)}
    yield _json(head)[:-1] + b',"topics":['
    separator = b"\n"
    for topic in image.by_name.values():
        partitions = [_partition(number, one) for number, one in sorted(topic.partitions.items())]
        row = {"topic": topic.name, "topic_id": topic.topic_id, "partitions": partitions}
        yield separator + _json(row)
        separator = b",\n"
    yield b"]"


def _head(image: AssignmentImage) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "cluster_id": image.cluster_id,
        "at": rfc3339(image.at_ms),
        "known_until": rfc3339(min(image.known_until_ms, image.at_ms)),
        "source": str(_source(image)),
        "offset": image.offset,
        "metadata_version": image.metadata_version,
    }


def _source(image: AssignmentImage) -> Source:
    """The original source of the assignments, also if an exported file is exported again."""
    return image.exported_from or image.source


def _brokers(image: AssignmentImage) -> list[dict[str, Any]]:
    return [
        {"node_id": broker.node_id, "directory_ids": list(broker.directory_ids), "fenced": broker.fenced}
        for _, broker in sorted(image.brokers.items())
    ]


def _uncommitted(image: AssignmentImage) -> list[dict[str, Any]]:
    rows = [(what, None) if isinstance(what, str) else what for what in image.uncommitted]
    rows.sort(key=lambda row: (row[0], -1 if row[1] is None else row[1]))
    return [{"topic_id": topic_id, "partition": partition} for topic_id, partition in rows]


def _partition(number: int, partition: PartitionAssignment) -> dict[str, Any]:
    return {
        "partition": number,
        "replicas": partition.replicas,
        "adding": partition.adding,
        "removing": partition.removing,
        "isr": partition.isr,
        "directories": partition.directories,
    }


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _line(row: dict[str, Any]) -> bytes:
    return _json(row) + b"\n"
