"""Requests, orders, answers and closings in the control folder: how they are named, written and believed.

What is signed counts only if it is validly signed **and** says of itself what its name and folder say: a copy under
another name, node or cluster is nobody's. Files are written once; a name that was read needs no second look.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from logagent.errors import LogAgentError
from logagent.store.control import Control
from logagent.store.deletion import (
    ANSWER_SCHEMA,
    CLOSED_SCHEMA,
    ORDER_SCHEMA,
    REQUEST_SCHEMA,
    Answer,
    Closed,
    Order,
    Request,
)
from logagent.store.signing import NotSigned, PrivateKey, PublicKey, verify

T = TypeVar("T")

REQUESTS = "requests"
REQUEST_NAME = re.compile(r"([0-9a-z][0-9a-z-]{7,47})\.json")
ORDER_NAME = re.compile(r"(([0-9]{10})-[0-9]{10})\.json")
ANSWER_NAME = re.compile(r"([0-9]{10}-[0-9]{10})\.([0-9a-f]{32})\.([0-9]{1,10})\.json")
CLOSED_NAME = re.compile(r"([0-9]{10})-(done|cancelled|resumed)\.json")
PARTITIONS_PER_ORDER = 20_000


class UnknownSchema(LogAgentError):
    """A validly signed file of a schema that this version does not know."""

    slug = "schema"


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def encode(value: object) -> bytes:
    """The payload of a record."""
    return _adapter(type(value)).dump_json(value, exclude_defaults=True)


def decode(kind: type[T], payload: bytes) -> T:
    """A record from its payload. Raises NotSigned for anything of another form."""
    try:
        read: T = _adapter(kind).validate_json(payload, strict=True)
    except ValidationError as error:
        raise NotSigned(f"it is not a {kind.__name__.lower()} of ours ({error.error_count()} errors)") from error
    return read


def moment(text: str) -> datetime:
    """A time of a record; its form was checked when it was read. Raises ValueError for a day that is none."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def believed(content: bytes, kind: type[T], schema: str, keys: tuple[PublicKey, ...], cluster_id: str) -> T:
    """A signed record. Raises NotSigned, and UnknownSchema for a newer one that a trusted key signed."""
    found, payload = verify(content, keys, cluster_id)
    if found != schema:
        if found.partition("/")[0] == schema.partition("/")[0]:
            raise UnknownSchema(f"its schema is {found}, this version knows {schema}")
        raise NotSigned(f"it is a {found}, not a {schema}")
    return decode(kind, payload)


def order_id(epoch: int, seq: int) -> str:
    return f"{epoch:010d}-{seq:010d}"


@dataclass(slots=True)
class Ignored:
    """What was not believed in one round: how many files, and one of them with the reason."""

    count: int = 0
    example: str | None = None

    def add(self, name: str, why: str) -> None:
        self.count += 1
        self.example = self.example or f"{name}: {why}"


@dataclass(slots=True)
class Requests:
    """The requests of a cluster, each with how it was closed; reads only what is new. Junk is read once."""

    control: Control
    keys: tuple[PublicKey, ...]
    requests: dict[str, Request] = field(default_factory=dict)
    closed: dict[str, dict[str, Closed]] = field(default_factory=dict)
    ignored: Ignored = field(default_factory=Ignored)
    _seen: set[str] = field(default_factory=set)

    def refresh(self) -> None:
        """Read what appeared since the last time. Raises ServiceUnreachable."""
        names = self.control.names(REQUESTS)
        folders = set(names)
        for name in names:
            match = REQUEST_NAME.fullmatch(name)
            if match is None:
                continue
            if name not in self._seen:
                self._seen.add(name)
                request = self._believe(REQUESTS, name, Request, REQUEST_SCHEMA)
                if request is not None and request.request_id == match[1]:
                    self.requests[request.request_id] = request
            if match[1] in self.requests and match[1] in folders:
                self._read_closings(match[1])

    def _read_closings(self, request_id: str) -> None:
        folder = f"{REQUESTS}/{request_id}"
        for name in self.control.names(folder):
            match = CLOSED_NAME.fullmatch(name)
            if match is None or f"{folder}/{name}" in self._seen:
                continue
            self._seen.add(f"{folder}/{name}")
            closed = self._believe(folder, name, Closed, CLOSED_SCHEMA)
            if closed is None or (closed.request_id, closed.outcome) != (request_id, match[2]):
                continue
            self.closed.setdefault(request_id, {})[closed.outcome] = closed

    def _believe(self, folder: str, name: str, kind: type[T], schema: str) -> T | None:
        try:
            content = self.control.read(folder, name)
            if content is None:
                return None
            read = believed(content, kind, schema, self.keys, self.control.cluster_id)
            if getattr(read, "cluster_id", None) != self.control.cluster_id:
                raise NotSigned("it is another cluster's")
        except LogAgentError as error:
            if error.slug == "unreachable":
                raise
            self.ignored.add(f"{folder}/{name}", str(error))
            return None
        return read


def write_request(control: Control, request: Request, key: PrivateKey) -> bool:
    """Make a request durable; False if its id is taken."""
    return control.create(REQUESTS, f"{request.request_id}.json", key.sign(REQUEST_SCHEMA, encode(request)))


def closings_folder(request_id: str) -> str:
    return f"{REQUESTS}/{request_id}"


def believed_closed(content: bytes, request_id: str, keys: tuple[PublicKey, ...], cluster_id: str) -> Closed:
    """A closing entry of this request. Raises NotSigned for anything else."""
    try:
        closed = believed(content, Closed, CLOSED_SCHEMA, keys, cluster_id)
    except UnknownSchema as error:
        raise NotSigned(str(error)) from error
    if (closed.request_id, closed.cluster_id) != (request_id, cluster_id):
        raise NotSigned("it is another request's")
    return closed


def write_closed(control: Control, closed: Closed, key: PrivateKey) -> bool:
    """Say that a request is done, cancelled or resumed; False if it was said in this epoch already."""
    folder, name = closings_folder(closed.request_id), f"{closed.epoch:010d}-{closed.outcome}.json"
    return control.create(folder, name, key.sign(CLOSED_SCHEMA, encode(closed)))


def orders_folder(node_id: int) -> str:
    return f"orders/{node_id}"


def answers_folder(node_id: int) -> str:
    return f"answers/{node_id}"


def write_order(control: Control, order: Order, key: PrivateKey) -> bool:
    """Give a node an order; False if the name is taken: another controller has our epoch."""
    content = key.sign(ORDER_SCHEMA, encode(order))
    return control.create(orders_folder(order.node_id), f"{order.order_id}.json", content)


def read_order(content: bytes, name: str, node_id: int, keys: tuple[PublicKey, ...], cluster_id: str) -> Order:
    """An order for this node under its own name. Raises NotSigned and UnknownSchema.

    An order that a trusted key signed for another cluster or node is given back as it is: the agent refuses it.
    """
    match = ORDER_NAME.fullmatch(name)
    order = believed(content, Order, ORDER_SCHEMA, keys, cluster_id)
    if match is None or order.order_id != match[1] or order.epoch != int(match[2]):
        raise NotSigned("it lies under a name that is not its own")
    return order


def write_answer(control: Control, answer: Answer) -> bool:
    """Publish an answer (not signed: agents have no key); False if this very answer is there already."""
    name = f"{answer.order_id}.{answer.agent}.{answer.seq}.json"
    content = b'{"schema":"%s",' % ANSWER_SCHEMA.encode() + encode(answer)[1:]
    return control.create(answers_folder(answer.node_id), name, content)


def read_answer(content: bytes, name: str, node_id: int, cluster_id: str) -> Answer:
    """An answer of a node's agent under its own name. Raises NotSigned for anything else."""
    match = ANSWER_NAME.fullmatch(name)
    answer = decode(Answer, content)
    if match is None or (answer.order_id, answer.agent, str(answer.seq)) != match.groups():
        raise NotSigned("it lies under a name that is not its own")
    if (answer.node_id, answer.cluster_id) != (node_id, cluster_id):
        raise NotSigned("it is another node's")
    return answer


def answer_names(control: Control, node_id: int) -> dict[tuple[str, str], tuple[int, str]]:
    """(order, agent) → the highest seq and its file's name: only that one counts."""
    newest: dict[tuple[str, str], tuple[int, str]] = {}
    for name in control.names(answers_folder(node_id)):
        match = ANSWER_NAME.fullmatch(name)
        if match is None:
            continue
        key, seq = (match[1], match[2]), int(match[3])
        if key not in newest or newest[key][0] < seq:
            newest[key] = (seq, name)
    return newest
