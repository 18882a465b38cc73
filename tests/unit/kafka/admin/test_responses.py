"""What a broker's answers mean, and which of them are no answer."""

from __future__ import annotations

import base64
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from logagent.base.errors import UnreadableError
from logagent.base.records import TopicPartition, id_to_text
from logagent.kafka.admin.responses import (
    HeldLog,
    HeldLogDir,
    IdAnswer,
    held_log_dir,
    id_answer,
    log_dir_of,
    topic_of,
    transactions_of,
)
from logagent.kafka.image import PartitionAssignment
from logagent.kafka.retention.reasons import OpenTransaction
from tests.kafka_answers import rows

ID = uuid.UUID("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")


def partition(index: int, **changes: Any) -> SimpleNamespace:
    fields = {"error_code": 0, "partition_index": index, "leader_id": 1, "replica_nodes": [1, 2], "isr_nodes": [1]}
    return SimpleNamespace(**{**fields, **changes})


def topic(*partitions: SimpleNamespace, **changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"error_code": 0, "name": "orders", "topic_id": ID, "partitions": partitions, **changes})


def test_a_topic_is_read_with_its_partitions() -> None:
    read = topic_of(topic(partition(1), partition(0, leader_id=-1, error_code=5)), {})
    assert (read.name, read.topic_id) == ("orders", id_to_text(ID.bytes))
    assert read.partitions == {
        0: PartitionAssignment((1, 2), (1,), leader=-1),
        1: PartitionAssignment((1, 2), (1,), leader=1),
    }


@pytest.mark.parametrize("topic_id", [None, uuid.UUID(int=0)])
def test_brokers_before_topic_ids(topic_id: uuid.UUID | None) -> None:
    assert topic_of(topic(partition(0), topic_id=topic_id), {}).topic_id is None


def test_whoever_is_in_either_answer_is_a_replica() -> None:
    moving = SimpleNamespace(adding_replicas=[3], removing_replicas=[2])
    read = topic_of(topic(partition(0, replica_nodes=[1, 2])), {("orders", 0): moving}).partitions[0]
    assert (read.replicas, read.adding, read.removing) == ((1, 2, 3), (3,), (2,))


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(topic(partition(0), error_code=3), id="topic error"),
        pytest.param(topic(partition(0), name=None), id="no name"),
        pytest.param(topic(), id="no partitions"),
        pytest.param(topic(partition(1)), id="first partition missing"),
        pytest.param(topic(partition(0), partition(2)), id="gap"),
        pytest.param(topic(partition(0), partition(0)), id="twice"),
        pytest.param(topic(partition(0, error_code=56)), id="partition error"),
        pytest.param(topic(partition(0, replica_nodes=[])), id="no replicas"),
    ],
)
def test_a_partial_answer_is_none(answer: SimpleNamespace) -> None:
    with pytest.raises(UnreadableError, match="a partial answer"):
        topic_of(answer, {})


@pytest.mark.parametrize("code", range(-1, 140))
def test_only_one_code_says_gone(code: int) -> None:
    expected = {0: IdAnswer.KNOWN, 3: IdAnswer.NO_TOPIC, 29: IdAnswer.NOT_AUTHORISED, 100: IdAnswer.UNKNOWN}
    assert id_answer(code) is expected.get(code, IdAnswer.CANNOT_TELL)


@pytest.mark.parametrize(("code", "expected"), [(0, frozenset({("orders", 3)})), (56, None)])
def test_a_log_dir_has_its_current_partitions_while_it_is_served(
    code: int, expected: frozenset[tuple[str, int]] | None
) -> None:
    logs = [SimpleNamespace(partition_index=n, is_future_key=future) for n, future in ((3, False), (4, True))]
    topics = [SimpleNamespace(name="orders", partitions=logs)]
    read = log_dir_of(SimpleNamespace(log_dir="/d1", error_code=code, topics=topics))
    assert (read.path, read.error_code, read.partitions) == ("/d1", code, expected)


def decoded(row: dict[str, Any]) -> Any:
    import kafka.protocol.admin as messages

    return getattr(messages, row["name"]).decode(base64.b64decode(row["b64"]), version=row["version"])


@pytest.mark.parametrize("row", [r for r in rows("responses") if "LogDirs" in r["name"]], ids=lambda r: r["version"])
def test_what_a_broker_says_of_its_logs(row: dict[str, Any]) -> None:
    """By each version of its answer."""
    found = {result.log_dir: held_log_dir(result) for result in decoded(row).results}
    orders = {TopicPartition("orders", 0): HeldLog(1 << 33, 0), TopicPartition("orders", 1): HeldLog(5, 2)}
    moving = TopicPartition("moving", 7)
    assert found == {
        "/d1": HeldLogDir(0, {**orders, moving: HeldLog(70, 0)}, {}),
        "/d2/": HeldLogDir(0, {}, {moving: HeldLog(3, 1 << 40)}),
        "/d3": HeldLogDir(56, {}, {}),
    }


def test_the_oldest_open_transaction_of_each_partition() -> None:
    """What was refused is no answer: neither "none is open" nor one."""
    (row,) = (r for r in rows("responses") if "Producers" in r["name"])
    found, refused = transactions_of(decoded(row))
    assert found == {
        TopicPartition("orders", 0): OpenTransaction(15, 9, 1_900_000_000_000),
        TopicPartition("orders", 1): None,
        TopicPartition("orders", 2): None,
    }
    assert refused == {6: [TopicPartition("orders", 3)], 29: [TopicPartition("secret", 0)]}
