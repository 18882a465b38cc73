"""Assignments in a file: what `logagent assignments export` writes and `--assignments FILE` reads.

Two forms of `logagent.assignments/1`: one JSON document for hosts, and JSON lines for the fleet store. The document
ends with `"sha256"`, the SHA-256 of every byte before the comma in front of it: a file that was truncated, edited or
damaged in transit is refused, and never taken for a cluster with fewer topics.

Each member is checked by hand and not by pydantic, although there is a schema for other programs: with models, 100,000
partitions take ten times the memory and start-up a second longer, and every message here says where the document is
wrong.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar

from logagent.base.errors import UnreadableError
from logagent.base.files.safe_open import EXPORTED_ASSIGNMENTS, PART, parse_json, read_regular, whole_file
from logagent.base.records import canonical_id
from logagent.base.units import rfc3339
from logagent.kafka.image import AssignmentImage, BrokerRegistration, PartitionAssignment, Source, Topic, make_image

T = TypeVar("T")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_NODE = 2**31 - 1


class _Wrong(Exception):
    """What is wrong in the document, and where."""


def parse_document(data: bytes, *, origin: str, schema: str) -> AssignmentImage:
    """The image of a document with a correct checksum; `UnreadableError` names the first place that is wrong.

    Each topic is converted as soon as the JSON parser has finished it, so that a large document is never in memory as
    dicts.
    """
    try:
        document = parse_json(data, object_hook=lambda found: _topic(found) if "partitions" in found else found)
        if not isinstance(document, dict):
            raise _Wrong("it is not a JSON object")
        return _image(document, origin, schema)
    except _Wrong as wrong:
        raise UnreadableError(f"{origin}: {wrong}") from wrong
    except ValueError as error:
        raise UnreadableError(f"{origin}: it is not a JSON document: {error}") from error


def _image(document: dict[str, Any], origin: str, schema: str) -> AssignmentImage:
    if document.get("schema") != schema:
        raise _Wrong(f"its schema is {document.get('schema')!r}, expected {schema!r}")
    source = _member(document, "source", str)
    if source not in (Source.KRAFT_LOG, Source.ADMIN):
        raise _Wrong(f"source: {source!r} is neither {Source.KRAFT_LOG} nor {Source.ADMIN}")
    topics = _member(document, "topics", list)
    for index, topic in enumerate(topics):
        if not isinstance(topic, Topic):
            raise _Wrong(f"topics[{index}]: it is not a topic with its partitions")
    at_ms = _time(_member(document, "at", str))
    known = _optional(document, "known_until", str)  # versions before this one did not write it
    return make_image(
        topics,
        AssignmentImage(
            source=Source.FILE,
            cluster_id=_member(document, "cluster_id", str),
            at_ms=at_ms,
            known_until_ms=at_ms if known is None else min(at_ms, _time(known, "known_until")),
            complete=source == Source.KRAFT_LOG,
            offset=_optional(document, "offset", int),
            metadata_version=_optional(document, "metadata_version", int),
            brokers={broker.node_id: broker for broker in _list(document, "brokers", _broker)},
            uncommitted=frozenset(_list(document, "uncommitted", _removal)),
            origin=origin,
            exported_from=Source(source),
        ),
    )


def _member(container: dict[str, Any], key: str, kind: type[T]) -> T:
    value = container.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _Wrong(f"{key}: {value!r:.60} is not a {kind.__name__}")
    return value


def _optional(container: dict[str, Any], key: str, kind: type[T]) -> T | None:
    return None if container.get(key) is None else _member(container, key, kind)


def _list(container: dict[str, Any], key: str, parse: Callable[[dict[str, Any]], T]) -> list[T]:
    parsed = []
    for index, item in enumerate(_member(container, key, list)):
        try:
            if not isinstance(item, dict):
                raise _Wrong("it is not a JSON object")
            parsed.append(parse(item))
        except _Wrong as wrong:
            raise _Wrong(f"{key}[{index}]: {wrong}") from wrong
    return parsed


def _time(text: str, key: str = "at") -> int:
    try:
        if _TIME.fullmatch(text) is None:
            raise ValueError
        moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    except ValueError:
        raise _Wrong(f"{key}: {text!r:.60} is not an RFC 3339 time in UTC with milliseconds") from None
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _id(container: dict[str, Any], key: str) -> str:
    return _canonical(_member(container, key, str), key)


def _canonical(text: str, key: str) -> str:
    try:
        return _shared_id(text)
    except ValueError as error:
        raise _Wrong(f"{key}: {error}") from error


# A few different ids and replica lists occur very often: check and keep each only once.
_shared_id = lru_cache(maxsize=65_536)(canonical_id)


@lru_cache(maxsize=65_536)
def _node_ids(numbers: tuple[int, ...]) -> tuple[int, ...]:
    for number in numbers:
        if not 0 <= number <= _MAX_NODE:
            raise _Wrong(f"{number!r:.60} is not a node id")
    if len(set(numbers)) != len(numbers):
        raise _Wrong("a node is listed twice")
    return numbers


def _nodes(container: dict[str, Any], key: str) -> tuple[int, ...]:
    numbers = _member(container, key, list)
    for number in numbers:
        if type(number) is not int:
            raise _Wrong(f"{key}: {number!r:.60} is not a node id")
    try:
        return _node_ids(tuple(numbers))
    except _Wrong as wrong:
        raise _Wrong(f"{key}: {wrong}") from wrong


def _directories(container: dict[str, Any], key: str) -> tuple[str, ...]:
    listed = _member(container, key, list)
    for one in listed:
        if not isinstance(one, str):
            raise _Wrong(f"{key}: {one!r:.60} is not an id")
    return tuple([_canonical(one, key) for one in listed])


def _partition(row: dict[str, Any]) -> tuple[int, PartitionAssignment]:
    number = _member(row, "partition", int)
    if not 0 <= number <= _MAX_NODE:
        raise _Wrong(f"partition: {number} is not a partition")
    replicas, directories = _nodes(row, "replicas"), _directories(row, "directories")
    if directories and len(directories) != len(replicas):
        raise _Wrong(f"directories: {len(directories)} for {len(replicas)} replicas")
    return number, PartitionAssignment(
        replicas, _nodes(row, "isr"), _nodes(row, "adding"), _nodes(row, "removing"), directories
    )


def _topic(row: dict[str, Any]) -> Topic:
    name = _member(row, "topic", str)
    try:
        topic_id = None if row.get("topic_id") is None else _id(row, "topic_id")
        partitions = _list(row, "partitions", _partition)
        numbered = dict(partitions)
        if len(numbered) != len(partitions):
            raise _Wrong("a partition is listed twice")
    except _Wrong as wrong:
        raise _Wrong(f"topic {name}: {wrong}") from wrong
    return Topic(name, topic_id, numbered)


def _broker(row: dict[str, Any]) -> BrokerRegistration:
    fenced = row.get("fenced")
    if not (fenced is None or isinstance(fenced, bool)):
        raise _Wrong(f"fenced: {fenced!r:.60} is not a boolean")
    return BrokerRegistration(_member(row, "node_id", int), _directories(row, "directory_ids"), fenced)


def _removal(row: dict[str, Any]) -> str | tuple[str, int]:
    topic_id = _id(row, "topic_id")
    partition = _optional(row, "partition", int)
    return topic_id if partition is None else (topic_id, partition)


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
    """Write the document as a whole, durably. Raises `OSError`."""
    # Two exports to one file may run at once: each has a temporary file of its own.
    with whole_file(path, temp=f".{os.path.basename(path)}.{os.getpid()}{PART}") as file:
        file.writelines(document_pieces(image))


def read_assignments(path: str) -> AssignmentImage:
    """Read an exported document; `logagent.verdict.rules` checks its age and cluster.

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
            yield _line({**names, **_partition_row(number, partition)})


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
        partitions = [_partition_row(number, one) for number, one in sorted(topic.partitions.items())]
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
        "metadata_version": image.highest_metadata_version,
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


def _partition_row(number: int, partition: PartitionAssignment) -> dict[str, Any]:
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
