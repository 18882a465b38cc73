"""DeleteTopics by topic id, for the controller of fleet-wide deletions.

A topic is never deleted by name: the name may belong to another topic by now. Brokers that do not support ids in
DeleteTopics (below version 6, Kafka 2.8) are refused.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeVar

from logagent.base.errors import ServiceUnreachable, UnreadableError
from logagent.base.records import id_from_text
from logagent.kafka.admin.client import AdminClient, cluster_request, retried
from logagent.kafka.admin.responses import topic_id_of

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", r"(read|open)_text is deprecated", DeprecationWarning)
    import kafka.errors as kafka_errors
    from kafka.protocol.admin import (
        DeleteTopicsRequest,
        DescribeQuorumRequest,
        ListPartitionReassignmentsRequest,
    )

CHUNK = 500
BY_ID_VERSION = 6
SERVER_MILLISECONDS = 5000
PATIENCE_SECONDS, RETRY_SECONDS = 20.0, 0.5

T = TypeVar("T")
Outcome = Literal["deleted", "again", "disabled", "refused"]
_GONE = 100  # UNKNOWN_TOPIC_ID: the id existed when the deletion was requested
_STILL_DELETING = 3  # UNKNOWN_TOPIC_OR_PARTITION, of an id that existed: Kafka with ZooKeeper has not finished
_DISABLED = 73
_REFUSED = (29, 35, 42)  # not authorised, unsupported version, invalid request


@dataclass(frozen=True, slots=True)
class DeletionAnswer:
    """The cluster's answer for one topic id: `deleted` is acknowledged, `again` means ask later."""

    outcome: Outcome
    why: str = ""


class TopicDeletions:
    """Deletes topics in one cluster. An answer from a cluster other than `cluster_id` is refused."""

    def __init__(self, client: Callable[[], AdminClient], cluster_id: str) -> None:
        self._client = client
        self._cluster_id = cluster_id

    def delete(self, topic_ids: Collection[str]) -> dict[str, DeletionAnswer]:
        """The answers by topic id, for those that got one. Raises ServiceUnreachable, UnreadableError."""
        return with_retries(lambda: self._delete(topic_ids))

    def _delete(self, topic_ids: Collection[str]) -> dict[str, DeletionAnswer]:
        answers: dict[str, DeletionAnswer] = {}
        with self._client() as client:
            node = self._controller(client)
            if client.request_version(DeleteTopicsRequest, node) < BY_ID_VERSION:
                why = (
                    "its brokers do not support topic ids in DeleteTopics (before 2.8); logagent never "
                    "deletes a topic by name"
                )
                return dict.fromkeys(topic_ids, DeletionAnswer("refused", why))
            for chunk in _chunks(topic_ids, CHUNK):
                response = client.send(lambda chunk=chunk: _request(chunk), node)  # type: ignore[misc]
                for answer in response.responses:
                    topic_id = topic_id_of(answer)
                    if topic_id is not None:
                        answers[topic_id] = answer_of(answer.error_code, getattr(answer, "error_message", None))
        return answers

    def reassigning(self, topics: Mapping[str, str]) -> frozenset[str]:
        """Which of these (id → name) have a partition under reassignment, if that holds up deletions: only in
        ZooKeeper-based Kafka. Raises ServiceUnreachable, UnreadableError."""
        return with_retries(lambda: self._reassigning(topics))

    def _reassigning(self, topics: Mapping[str, str]) -> frozenset[str]:
        with self._client() as client:
            node = self._controller(client)
            if client.request_version(DescribeQuorumRequest, node) >= 0:
                return frozenset()
            response = client.send(lambda: ListPartitionReassignmentsRequest(timeout_ms=5000, topics=None), node)
            if response.error_code != 0:
                raise UnreadableError(f"reassignments cannot be listed: {_name_of(response.error_code)}")
            moving = {topic.name for topic in response.topics}
        return frozenset(topic_id for topic_id, name in topics.items() if name in moving)

    def _controller(self, client: AdminClient) -> int:
        """The controller's node id (in KRaft that of a broker, which forwards). Not cached, because it can change."""
        response = client.send(cluster_request)
        if response.cluster_id != self._cluster_id:
            raise UnreadableError(
                f"the cluster at {client.bootstrap_servers} is {response.cluster_id}, not {self._cluster_id}",
                hint="check kafka.bootstrap_servers",
            )
        if response.controller_id < 0:
            raise ServiceUnreachable(f"the cluster at {client.bootstrap_servers} has no controller now")
        return int(response.controller_id)


def with_retries(ask: Callable[[], T]) -> T:
    """Retry for at most 20 s while nobody answers: in KRaft, the "controller" in the metadata is any broker, and for a
    while one that has just died."""
    return retried(ask, PATIENCE_SECONDS, RETRY_SECONDS)


def answer_of(error_code: int, message: str | None = None) -> DeletionAnswer:
    """What an error code of DeleteTopics means for a topic that existed when the request was made."""
    if error_code == 0:
        return DeletionAnswer("deleted")
    if error_code == _GONE:
        return DeletionAnswer("deleted", "the cluster no longer knows it")
    why = _name_of(error_code) + (f": {message}" if message else "")
    if error_code == _STILL_DELETING:
        return DeletionAnswer("again", f"the cluster is still deleting it ({_name_of(error_code)})")
    if error_code == _DISABLED:
        return DeletionAnswer("disabled", why)
    return DeletionAnswer("refused" if error_code in _REFUSED else "again", why)


def _request(topic_ids: Iterable[str]) -> Any:
    states = [
        DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=uuid.UUID(bytes=id_from_text(text)))
        for text in topic_ids
    ]
    return DeleteTopicsRequest(topics=states, timeout_ms=SERVER_MILLISECONDS)


def _chunks(items: Iterable[str], size: int) -> Iterator[list[str]]:
    left = iter(items)
    while chunk := list(islice(left, size)):
        yield chunk


def _name_of(error_code: int) -> str:
    error = kafka_errors.for_code(error_code)
    return str(getattr(error, "message", error.__name__))
