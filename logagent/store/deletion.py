"""What controller and agents tell each other about deletions: requests, epochs, orders, answers.

Plain dataclasses; pydantic checks the field formats when one is read from a file. `orders.py` reads and writes the
files, `signing.py` signs them. Times are RFC 3339 in UTC with milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

EPOCH_SCHEMA = "logagent.epoch/1"
REQUEST_SCHEMA = "logagent.request/1"
ORDER_SCHEMA = "logagent.order/1"
ANSWER_SCHEMA = "logagent.answer/1"
CLOSED_SCHEMA = "logagent.request-closed/1"
WAITS_SCHEMA = "logagent.request-waits/1"

SEEN_ORDERS_LAST = timedelta(minutes=10)
"""How long an agent that cannot reach the store may obey what it saw standing there, also if it was cancelled since: at
the start of its broker."""


def _is_a_time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


ClusterId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
TopicId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{22}$")]
TopicName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
RequestId = Annotated[str, Field(pattern=r"^[0-9a-z][0-9a-z-]{7,47}$")]
OrderId = Annotated[str, Field(pattern=r"^[0-9]{10}-[0-9]{10}$")]
AgentId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Nonce = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
PlanId = Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")]
Time = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"), AfterValidator(_is_a_time)]
Path = Annotated[str, Field(min_length=1, max_length=4096)]
DirName = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^/\x00]+$")]
LARGEST_COUNT = (1 << 63) - 1
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Number = Annotated[int, Field(ge=0, le=(1 << 64) - 1)]
"""A device or inode number: unsigned, 64 bits."""
Node = Annotated[int, Field(ge=0, le=(1 << 31) - 1)]
Epoch = Annotated[int, Field(ge=1, le=9_999_999_999)]
LONGEST_WORDS = 2000
Words = Annotated[str, Field(max_length=LONGEST_WORDS)]

Kind = Literal["topics", "directories"]
Action = Literal["stop", "delete"]
ResultName = Literal["renamed", "removed", "absent", "waiting", "refused", "failed", "offline"]

SUCCESSES: frozenset[str] = frozenset({"renamed", "removed", "absent"})


@dataclass(frozen=True, slots=True)
class Identity:
    """One directory, with everything that distinguishes it from any other.

    `end_offset` is the log's end if it is known; `boot_id` is the boot of the host in which `device` is valid.
    """

    log_dir: Path
    name: DirName
    inode: Number
    device: Number
    directory_id: TopicId | None = None
    boot_id: Annotated[str, Field(max_length=64)] | None = None
    bytes: Count = 0
    end_offset: Count | None = None

    def difference(self, found: Identity) -> str | None:
        """How `found` differs from this directory; None if they are the same. `bytes` is not compared, and device
        numbers are compared only within one boot."""
        for what in ("log_dir", "directory_id", "name", "inode", "end_offset"):
            ours, theirs = getattr(self, what), getattr(found, what)
            if ours != theirs:
                return f"{what} is {theirs}, the order says {ours}"
        if self.boot_id is not None and self.boot_id == found.boot_id and self.device != found.device:
            return f"device is {found.device}, the order says {self.device}"
        return None


@dataclass(frozen=True, slots=True)
class RequestedPartition:
    partition: Count
    replicas: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class RequestedTopic:
    """A topic of a `topics` request with its replicas as of the request: nothing else records them later."""

    topic: TopicName
    topic_id: TopicId
    partitions: tuple[RequestedPartition, ...]
    bytes: Count = 0


@dataclass(frozen=True, slots=True)
class RequestedDirectory:
    """A directory of a `directories` request: an orphan or a stray of a fleet report."""

    node_id: Node
    log_dir: Path
    name: DirName
    topic: TopicName
    topic_id: TopicId
    partition: Count
    kind: Literal["orphan", "stray"]
    bytes: Count = 0
    only_copy: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """What an operator asked for: immutable and signed. Only `kind` topics can lead to DeleteTopics."""

    request_id: RequestId
    cluster_id: ClusterId
    kind: Kind
    plan_id: PlanId
    by: Words
    at: Time
    expires_at: Time
    epoch: Annotated[int, Field(ge=0)]
    approved: bool = False
    no_retention: bool = False
    topics: tuple[RequestedTopic, ...] = ()
    directories: tuple[RequestedDirectory, ...] = ()


@dataclass(frozen=True, slots=True)
class Closed:
    """Records that a request is done, cancelled or resumed (`outcome`), or which of its topics are dropped for good."""

    request_id: RequestId
    cluster_id: ClusterId
    epoch: Annotated[int, Field(ge=0)]
    outcome: Literal["done", "cancelled", "resumed", "dropped"]
    by: Words
    at: Time
    topics: dict[TopicId, Words] = field(default_factory=dict)
    """With `dropped`: which topics, and why. Nothing is ever done about them again, whatever is found later."""


@dataclass(frozen=True, slots=True)
class Waits:
    """What the cluster's deletion of a request's topics waits for, by topic id; the highest epoch and `seq` counts."""

    request_id: RequestId
    cluster_id: ClusterId
    epoch: Epoch
    seq: Count
    at: Time
    topics: dict[TopicId, Words]


@dataclass(frozen=True, slots=True)
class ControllerEpoch:
    """Who controls a cluster's deletions: the highest number whose file carries a valid signature."""

    cluster_id: ClusterId
    epoch: Epoch
    nonce: Nonce
    by: Words
    host: Words
    at: Time


@dataclass(frozen=True, slots=True)
class OrderedPartition:
    """One replica in an order. `asked_log_dir` and `asked_name` come from a `directories` request. In a `delete` order,
    `directory` repeats what the answer to the `stop` order said."""

    request_id: RequestId
    topic: TopicName
    topic_id: TopicId
    partition: Count
    approved_plan: PlanId | None = None
    no_retention: bool = False
    kind: Kind = "topics"
    asked_log_dir: Path | None = None
    asked_name: DirName | None = None
    directory: Identity | None = None
    requested_at: Time | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """An order to one node (Kafka's StopReplica): `stop` = look and answer, `delete` = set aside or remove."""

    order_id: OrderId
    epoch: Epoch
    cluster_id: ClusterId
    node_id: Node
    action: Action
    issued_at: Time
    expires_at: Time
    partitions: tuple[OrderedPartition, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """The answer for one ordered partition. To a `stop` order, `waiting` means that `directory` exists."""

    request_id: RequestId
    topic_id: TopicId
    partition: Count
    result: ResultName
    guard: Words | None = None
    fact: Words | None = None
    hint: Words | None = None
    asked_log_dir: Path | None = None
    asked_name: DirName | None = None
    directory: Identity | None = None
    new_name: DirName | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An agent's answer to one order. If an agent answers several times, the highest `seq` counts."""

    order_id: OrderId
    epoch: Epoch
    highest_epoch: Count
    cluster_id: ClusterId
    node_id: Node
    agent: AgentId
    seq: Count
    action: Action
    at: Time
    agent_version: Words
    results: tuple[Result, ...] = field(default=())
    refused: Words | None = None
    """Why the order could not be read at all (an unknown schema)."""
