"""The order memory keeps within its bounds, and no order that it has answered is ever obeyed again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from logagent.agent.orders import memory as order_memory
from logagent.agent.orders.memory import LIMIT, MAX_BYTES, NAME, OrderMemory
from logagent.agent.orders.results import result_of
from logagent.store.deletion import Order, OrderedPartition
from logagent.store.orders import instant, order_id
from tests.disk.agent.orders.test_orders import ORPHAN, OrderedHost, part

NOW = datetime(2026, 11, 23, tzinfo=UTC)
NODE = ("c" * 22, 3)


def order(seq: int, partitions: int = 1) -> Order:
    ordered = tuple(OrderedPartition("request-1", "orders", "A" * 22, n) for n in range(partitions))
    return Order(order_id(1, seq), 1, *NODE, "delete", instant(NOW), instant(NOW + timedelta(days=1)), ordered)


def answered(memory: OrderMemory, one: Order, fact: str = "busy") -> None:
    memory.remember(one, NODE, [result_of(p, "waiting", fact=fact) for p in one.partitions], NOW)


@pytest.mark.parametrize("bound", ["MAX_BYTES", "MAX_ORDERS"])
def test_the_newest_answers_are_kept_and_the_ids_of_all(
    tmp_path: Path, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_memory, bound, 20_000 if bound == "MAX_BYTES" else 10)
    memory = OrderMemory("a" * 32, 0, born_above="")
    orders = [order(seq) for seq in range(100)]
    for one in orders:
        answered(memory, one)
        memory.save(str(tmp_path))
    again = OrderMemory.load(str(tmp_path), 0)
    kept = sorted(again.answers)
    assert 5 < len(kept) < 90 and kept == [o.order_id for o in orders[-len(kept) :]]
    assert all(again.has_answered(o.order_id) for o in orders)
    assert [again.is_settled(o, refused=False) for o in orders] == [o.order_id not in kept for o in orders]


def test_the_file_stays_far_below_what_is_read_of_it(tmp_path: Path) -> None:
    """Four answers of the size that an order with 20,000 partitions can have."""
    memory = OrderMemory("a" * 32, 0, born_above="")
    for seq in range(4):
        answered(memory, order(seq, 20_000), "x" * 1_000)
        memory.save(str(tmp_path))
        assert (tmp_path / NAME).stat().st_size <= MAX_BYTES < LIMIT.max_bytes
    assert OrderMemory.load(str(tmp_path), 0).has_answered(order_id(1, 0))


def test_orders_before_those_whose_ids_are_kept_count_as_older_than_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_memory, "MAX_ORDERS", 1)
    monkeypatch.setattr(order_memory, "MAX_IDS", 10)
    memory = OrderMemory("a" * 32, 0, born_above="")
    orders = [order(seq) for seq in range(20)]
    for one in orders:
        answered(memory, one)
        memory.save(str(tmp_path))
    again = OrderMemory.load(str(tmp_path), 0)
    assert len(again.settled) == 10
    assert all(again.has_answered(o.order_id) != again.is_younger_than(o) for o in orders)
    assert not again.is_younger_than(order(20))


def test_an_order_of_which_only_the_id_is_kept_is_not_obeyed_again(tmp_path: Path) -> None:
    host = OrderedHost(tmp_path)
    done = host.order("delete", host.identity(ORPHAN))
    host.obey()
    answer = host.answer(done)
    host.restore()
    # So that nothing but the memory keeps it from being obeyed.
    for path in host.host.state.glob("journal.db*"):
        path.unlink()
    memory = OrderMemory.load(str(host.host.state), 0)
    memory.settle_sent({(i, raw["seq"]) for i, raw in memory.answers.items()})
    assert memory.has_answered(done.order_id) and memory.answers
    memory.highest_epoch += 1
    memory.settle_sent({(i, raw["seq"]) for i, raw in memory.answers.items()})
    assert not memory.answers and not memory.done
    memory.highest_epoch -= 1
    memory.save(str(host.host.state))
    host.obey(restart=True)
    assert host.answer(done) == answer and host.host.find("returns-2") == ["returns-2"]


def test_answers_of_an_epoch_that_is_over_are_forgotten_once_they_are_sent(tmp_path: Path) -> None:
    host = OrderedHost(tmp_path)
    late = host.order("stop", part(ORPHAN))
    host.epoch = host.take_epoch()
    host.obey()
    assert host.results(late) == [("refused", "order")]
    host.obey()
    memory = json.loads((host.host.state / NAME).read_text())
    assert late.order_id in memory["settled"] and not memory["answers"]
    answers = host.control.names(f"answers/{host.node}")
    assert host.box is not None and not host.box.receive(), "it is answered again and again"
    host.obey()
    host.obey(restart=True)
    assert host.control.names(f"answers/{host.node}") == answers
