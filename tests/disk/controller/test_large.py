"""Deletions of very many directories: no file becomes too large for those who read it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from logagent.store.answers import answer_names, read_answer, write_answer
from logagent.store.deletion import Answer, Identity, RequestedDirectory, Result
from logagent.store.orders import instant
from tests.disk.controller.small_fleet import CLUSTER, TOPIC_ID, SmallFleet

LONG = "x" * 240


def directories(node: int, count: int) -> tuple[RequestedDirectory, ...]:
    return tuple(RequestedDirectory(node, "/var/lib/kafka/data/disk1", f"{LONG}-{n}", LONG, TOPIC_ID, n, "orphan")
                 for n in range(count))  # fmt: skip


def answer(fleet: SmallFleet, results: tuple[Result, ...], order_id: str) -> Answer:
    return Answer(order_id, 1, 1, CLUSTER, 3, "a" * 32, 1, "stop", instant(fleet.now), "1", results)


def test_orders_and_their_answers_stay_below_the_limit(tmp_path: Path) -> None:
    fleet = SmallFleet(tmp_path).everywhere()
    fleet.request("directories", directories=directories(3, 15_000))
    controller = fleet.controller()
    controller.start()
    controller.round()
    orders = fleet.orders(3)
    assert sorted(p.partition for order in orders for p in order.partitions) == list(range(15_000))
    order = max(orders, key=lambda order: len(order.partitions))
    results = []
    for p in order.partitions:
        found = Identity(
            "/var/lib/kafka/data/disk1", p.asked_name or "", 1 << 40, 1 << 40, "D" * 22, "b" * 36, 1 << 40, 1
        )
        results.append(Result(p.request_id, p.topic_id, p.partition, "waiting", "window", "f" * 200, "h" * 200,
                              p.asked_log_dir, p.asked_name, found))  # fmt: skip
    said = answer(fleet, tuple(results), order.order_id)
    assert write_answer(fleet.control, said)
    assert answers(fleet) == [said]


def answers(fleet: SmallFleet) -> list[Answer]:
    found = []
    for _, name in answer_names(fleet.control, 3).values():
        content = fleet.control.read("answers/3", name)
        assert content is not None
        found.append(read_answer(content, name, 3, CLUSTER))
    return found


def test_an_answer_of_many_words_is_clipped(tmp_path: Path) -> None:
    fleet = SmallFleet(tmp_path)
    results = tuple(Result("request-1", TOPIC_ID, n, "refused", "window", "f" * 1900, "h" * 1900) for n in range(5000))
    assert write_answer(fleet.control, answer(fleet, results, "0000000001-0000000001"))
    (said,) = answers(fleet)
    assert [(r.partition, r.fact, r.hint) for r in said.results] == [(n, "f" * 100, None) for n in range(5000)]


def test_a_host_that_claims_too_much_of_one_replica_stops_nobody(tmp_path: Path) -> None:
    """What was answered to `stop` is repeated by the order `delete`, with longer words."""
    fleet = SmallFleet(tmp_path).everywhere()
    fleet.request(topics=(fleet.topic(),))
    controller = fleet.controller()
    controller.start()
    controller.round()
    (stop,) = fleet.orders(3)
    found = Identity("/d1", "x" * 150, 1, 1)
    results = tuple(
        Result("request-1", TOPIC_ID, 0, "waiting", directory=replace(found, inode=n)) for n in range(45_000)
    )
    assert write_answer(fleet.control, answer(fleet, results, stop.order_id))
    fleet.hosts[3].dumb = True
    fleet.rounds(controller)
    assert not fleet.hosts[1].disk and not fleet.hosts[2].disk
    assert any("no order can be written for node 3" in line and "16 MiB" in line for line in fleet.warnings)
    fleet.now += timedelta(minutes=20)
    controller.round()
