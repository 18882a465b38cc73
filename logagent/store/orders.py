"""Requests, orders and closings in the control folder: how they are named, written and verified.

A signed file counts only if its signature is valid **and** its content matches its name and folder: a copy under
another name, node or cluster is ignored. Files are written once, so no name is read twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from logagent.errors import LogAgentError
from logagent.files.safe_open import KIB, MIB
from logagent.model.times import instant as instant
from logagent.store.control import UNREADABLE, Control, FolderUnreadable
from logagent.store.deletion import (
    CLOSED_SCHEMA,
    ORDER_SCHEMA,
    REQUEST_SCHEMA,
    WAITS_SCHEMA,
    Closed,
    Order,
    OrderedPartition,
    Request,
    RequestedTopic,
    Waits,
)
from logagent.store.signing import NotSigned, PrivateKey, PublicKey, verify

T = TypeVar("T")

REQUESTS = "requests"
REQUEST_NAME = re.compile(r"([0-9a-z][0-9a-z-]{7,47})\.json")
ORDER_NAME = re.compile(r"(([0-9]{10})-[0-9]{10})\.json")
CLOSED_NAME = re.compile(r"([0-9]{10})-(done|cancelled|resumed|dropped)(?:-[0-9a-f]{16})?\.json")
WAITS_NAME = re.compile(r"([0-9]{10})-([0-9]{10})-waits\.json")
PARTITIONS_PER_ORDER = 20_000
BYTES_PER_ORDER = 11 * MIB
"""The most bytes of an order's partitions, with `ADDED_BY_ANSWER` for each: the order in base64 stays below the limit
of a file, and so does its answer."""
ADDED_BY_ANSWER = KIB
"""Room for what an answer adds to a partition: new name, guard, fact and hint, or the identity of a directory."""


class UnknownSchema(LogAgentError):
    """A file with a valid signature and a schema that this version does not know."""

    slug = "schema"


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def encode(value: object) -> bytes:
    """Serialize a record as a payload."""
    return _adapter(type(value)).dump_json(value, exclude_defaults=True)


def decode(kind: type[T], payload: bytes) -> T:
    """Parse a record from its payload. Raises NotSigned for anything else."""
    try:
        read: T = _adapter(kind).validate_json(payload, strict=True)
    except ValidationError as error:
        raise NotSigned(f"it is not one of our {kind.__name__.lower()}s ({error.error_count()} errors)") from error
    return read


def checked(kind: type[T], values: Mapping[str, object]) -> T:
    """A part of a record from its fields, checked as when it is read. Raises ValueError, which names the first wrong
    field."""
    try:
        part: T = _adapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return part


def moment(text: str) -> datetime:
    """Parse a time of a record, which was checked when it was read."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def verified(
    content: bytes, kind: type[T], schema: str, keys: tuple[PublicKey, ...], cluster_id: str, *, retired: bool = False
) -> T:
    """Verify and parse a signed record. Raises NotSigned, and UnknownSchema for another version of `schema` that a
    trusted key signed. `retired`: as for `verify`."""
    found, payload = verify(content, keys, cluster_id, retired=retired)
    if found != schema:
        if found.partition("/")[0] == schema.partition("/")[0]:
            raise UnknownSchema(f"its schema is {found}, this version knows {schema}")
        raise NotSigned(f"it is a {found}, not a {schema}")
    return decode(kind, payload)


def order_id(epoch: int, seq: int) -> str:
    return f"{epoch:010d}-{seq:010d}"


@dataclass(slots=True)
class Ignored:
    """The files that were not accepted: how many, and one example with the reason."""

    count: int = 0
    example: str | None = None

    def add(self, name: str, why: str, *, foremost: bool = False) -> None:
        self.count += 1
        self.example = f"{name}: {why}" if foremost else self.example or f"{name}: {why}"


@dataclass(slots=True)
class Requests:
    """The requests of a cluster, how each was closed and what it waits for. Every file is read once, valid or not."""

    control: Control
    keys: tuple[PublicKey, ...]
    requests: dict[str, Request] = field(default_factory=dict)
    closed: dict[str, dict[str, Closed]] = field(default_factory=dict)
    dropped: dict[str, dict[str, str]] = field(default_factory=dict)
    """The topics of each request that are dropped, by topic id, and why."""
    closed_at: dict[str, datetime] = field(default_factory=dict)
    """When each request was last said to be done, cancelled or dropped: by its controller's clock or by the store's,
    whichever is later. A controller's clock may be behind, and what agents did until then must not seem to be older."""
    waits: dict[str, Waits] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    """Why it cannot be known whether a request was closed: somebody put something else in the place of its closings."""
    ignored: Ignored = field(default_factory=Ignored)
    _seen: set[str] = field(default_factory=set)

    def refresh(self) -> None:
        """Read what is new since the last call. Raises ServiceUnreachable."""
        names = self.control.names(REQUESTS)
        folders = set(names)
        self.unreadable.clear()
        for name in names:
            match = REQUEST_NAME.fullmatch(name)
            if match is None:
                continue
            request = self._read_signed(REQUESTS, name, Request, REQUEST_SCHEMA)
            if request is not None and request.request_id == match[1]:
                self.requests[request.request_id] = request
            if match[1] in self.requests and match[1] in folders:
                try:
                    self._read_closings(match[1])
                except UNREADABLE as error:
                    self.unreadable[match[1]] = f"whether it was cancelled cannot be read: {error}"

    def topics_of(self, request_id: str) -> tuple[RequestedTopic, ...]:
        """The topics of a request that are not dropped."""
        dropped = self.dropped.get(request_id, {})
        return tuple(t for t in self.requests[request_id].topics if t.topic_id not in dropped)

    def collect(self, request_id: str) -> None:
        """Remove a closed request, then its closings; in the opposite order a kill would reopen it."""
        self.control.remove(REQUESTS, f"{request_id}.json")
        for name in self.control.names(closings_folder(request_id)):
            if CLOSED_NAME.fullmatch(name) or WAITS_NAME.fullmatch(name):
                self.control.remove(closings_folder(request_id), name)
        self.requests.pop(request_id, None)
        self.closed.pop(request_id, None)
        self.dropped.pop(request_id, None)
        self.closed_at.pop(request_id, None)
        self.waits.pop(request_id, None)

    def _read_closings(self, request_id: str) -> None:
        folder = f"{REQUESTS}/{request_id}"
        for name in self.control.names(folder):
            match = CLOSED_NAME.fullmatch(name)
            if WAITS_NAME.fullmatch(name):
                self._read_waits(request_id, name)
            if match is None or f"{folder}/{name}" in self._seen:
                continue
            written = self.control.modified(folder, name)
            closed = self._read_signed(folder, name, Closed, CLOSED_SCHEMA, retired=match[2] != "resumed")
            if closed is None or (closed.request_id, closed.outcome) != (request_id, match[2]):
                continue
            if closed.outcome != "resumed":
                self._note_closed(closed, written)
            if closed.outcome == "dropped":
                self.dropped.setdefault(request_id, {}).update(closed.topics)
            before = self.closed.setdefault(request_id, {}).get(closed.outcome)
            if before is None or (before.epoch, before.at) < (closed.epoch, closed.at):
                self.closed[request_id][closed.outcome] = closed

    def _note_closed(self, closed: Closed, written: datetime | None) -> None:
        at = moment(closed.at)
        times = (at, written or at, self.closed_at.get(closed.request_id, at))
        self.closed_at[closed.request_id] = max(times)

    def _read_waits(self, request_id: str, name: str) -> None:
        waits = self._read_signed(closings_folder(request_id), name, Waits, WAITS_SCHEMA)
        if waits is None or waits.request_id != request_id or name != waits_name(waits):
            return
        before = self.waits.get(request_id)
        if before is None or (before.epoch, before.seq) < (waits.epoch, waits.seq):
            self.waits[request_id] = waits

    def _read_signed(self, folder: str, name: str, kind: type[T], schema: str, *, retired: bool = False) -> T | None:
        """A record that was not read before; None if there is nothing new or valid. Raises ServiceUnreachable, and then
        reads it again next time."""
        path, read = f"{folder}/{name}", None
        if path in self._seen:
            return None
        try:
            content = self.control.read(folder, name)
            if content is None:
                return None
            found = verified(content, kind, schema, self.keys, self.control.cluster_id, retired=retired)
            if getattr(found, "cluster_id", None) != self.control.cluster_id:
                raise NotSigned("it belongs to another cluster")
            read = found
        except LogAgentError as error:
            if error.slug == "unreachable" and (kind is Closed or not isinstance(error, FolderUnreadable)):
                raise
            # An operator's cancellation that is not believed would be the worst to miss.
            self.ignored.add(path, str(error), foremost="-cancelled" in name)
        self._seen.add(path)
        return read


def write_request(control: Control, request: Request, key: PrivateKey) -> bool:
    """Sign and write a request; False if its id is taken."""
    return control.create(REQUESTS, f"{request.request_id}.json", key.sign(REQUEST_SCHEMA, encode(request)))


def closings_folder(request_id: str) -> str:
    return f"{REQUESTS}/{request_id}"


def believed_closed(content: bytes, request_id: str, keys: tuple[PublicKey, ...], cluster_id: str) -> Closed:
    """Verify and parse an entry that cancels this request or says that it is done, also with a retired key. Raises
    NotSigned for anything else."""
    try:
        closed = verified(content, Closed, CLOSED_SCHEMA, keys, cluster_id, retired=True)
    except UnknownSchema as error:
        raise NotSigned(str(error)) from error
    if (closed.request_id, closed.cluster_id) != (request_id, cluster_id):
        raise NotSigned("it belongs to another request")
    return closed


def write_closed(control: Control, closed: Closed, key: PrivateKey, nonce: str = "") -> bool:
    """Record what became of a request; False if this epoch has recorded it already, or somebody else has taken the
    name: a `nonce` makes another one."""
    name = f"{closed.epoch:010d}-{closed.outcome}{nonce and f'-{nonce}'}.json"
    return control.create(closings_folder(closed.request_id), name, key.sign(CLOSED_SCHEMA, encode(closed)))


def waits_name(waits: Waits) -> str:
    return f"{order_id(waits.epoch, waits.seq)}-waits.json"


def write_waits(control: Control, waits: Waits, key: PrivateKey) -> bool:
    """Record what a request waits for; False if the name is taken."""
    content = key.sign(WAITS_SCHEMA, encode(waits))
    return control.create(closings_folder(waits.request_id), waits_name(waits), content)


def orders_folder(node_id: int) -> str:
    return f"orders/{node_id}"


def portions(groups: Iterable[list[OrderedPartition]]) -> Iterator[list[OrderedPartition]]:
    """Divide partitions into orders that, like the answers to them, fit into a file; a group stays together."""
    portion: list[OrderedPartition] = []
    size = 0
    for group in groups:
        more = sum(len(encode(p)) + ADDED_BY_ANSWER for p in group)
        if portion and (size + more > BYTES_PER_ORDER or len(portion) + len(group) > PARTITIONS_PER_ORDER):
            yield portion
            portion, size = [], 0
        portion += group
        size += more
    if portion:
        yield portion


def write_order(control: Control, order: Order, key: PrivateKey) -> bool:
    """Sign and write an order; False if its name is taken."""
    content = key.sign(ORDER_SCHEMA, encode(order))
    return control.create(orders_folder(order.node_id), f"{order.order_id}.json", content)


def read_order(content: bytes, name: str, node_id: int, keys: tuple[PublicKey, ...], cluster_id: str) -> Order:
    """Verify and parse the order in file `name`. Raises NotSigned and UnknownSchema.

    An order that a trusted key signed for another cluster or node is returned as it is: the agent refuses it.
    """
    match = ORDER_NAME.fullmatch(name)
    order = verified(content, Order, ORDER_SCHEMA, keys, cluster_id)
    if match is None or order.order_id != match[1] or order.epoch != int(match[2]):
        raise NotSigned("its file name does not match its content")
    return order
