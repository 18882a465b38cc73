"""What controller and agents tell each other about deletions: requests, epochs, orders, answers.

Plain values with their forms (checked by pydantic when one is read from a file). `orders.py` reads and writes the
files, `signing.py` signs them. Times are RFC 3339 in UTC with milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

EPOCH_SCHEMA = "logagent.epoch/1"
REQUEST_SCHEMA = "logagent.request/1"
ORDER_SCHEMA = "logagent.order/1"
ANSWER_SCHEMA = "logagent.answer/1"
CLOSED_SCHEMA = "logagent.request-closed/1"

ClusterId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
TopicId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{22}$")]
TopicName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
RequestId = Annotated[str, Field(pattern=r"^[0-9a-z][0-9a-z-]{7,47}$")]
OrderId = Annotated[str, Field(pattern=r"^[0-9]{10}-[0-9]{10}$")]
AgentId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Nonce = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
PlanId = Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")]
Time = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]
Path = Annotated[str, Field(min_length=1, max_length=4096)]
DirName = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^/\x00]+$")]
Count = Annotated[int, Field(ge=0, le=(1 << 63) - 1)]
Node = Annotated[int, Field(ge=0, le=(1 << 31) - 1)]
Epoch = Annotated[int, Field(ge=1, le=9_999_999_999)]
Words = Annotated[str, Field(max_length=2000)]

Kind = Literal["topics", "directories"]
Action = Literal["stop", "delete"]
ResultName = Literal["renamed", "removed", "absent", "waiting", "refused", "failed", "offline"]

SUCCESSES: frozenset[str] = frozenset({"renamed", "removed", "absent"})


@dataclass(frozen=True, slots=True)
class Identity:
    """One directory, by all that tells it from another one.

    `end_offset` is the log's end where it can be told; `boot_id` says in which boot of the host `device` holds.
    """

    log_dir: Path
    name: DirName
    inode: Count
    device: Count
    directory_id: TopicId | None = None
    boot_id: Annotated[str, Field(max_length=64)] | None = None
    bytes: Count = 0
    end_offset: Count | None = None

    def difference(self, found: Identity) -> str | None:
        """What makes `found` another directory than this one; None if they are the same. Bytes only inform, and a
        device number means something only within one boot."""
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
    """A topic of a `topics` request with its replicas as of the request: later they are known nowhere else."""

    topic: TopicName
    topic_id: TopicId
    partitions: tuple[RequestedPartition, ...]


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
    """What an operator asked for: immutable, signed. Only `kind` topics ever leads to DeleteTopics."""

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
    """A request is done, cancelled or resumed; `outcome` says which."""

    request_id: RequestId
    cluster_id: ClusterId
    epoch: Annotated[int, Field(ge=0)]
    outcome: Literal["done", "cancelled", "resumed"]
    by: Words
    at: Time


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
    """One replica in an order. `asked_log_dir` and `asked_name` are those of a `directories` request; `directory` is
    what an order `delete` repeats of the answer to the order `stop`."""

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
    """What one node is told in one round (StopReplica): `stop` = look and answer, `delete` = set aside or remove."""

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
    """The answer for one ordered partition. `waiting` to an order `stop` = the directory is there (`directory`)."""

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
    """What an agent says to one order; of several of one agent, the highest `seq` counts."""

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
    """Why the order could not even be read (a schema that is not known)."""
