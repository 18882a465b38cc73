"""What next is in order of need: room that runs out, what is ill or lost, then room to gain."""

from __future__ import annotations

from typing import Any

from logagent.fleet.report.answers import steps

NONE = {"offline": 0, "read_only": 0, "no_copy": 0}


def log_dir(node: int, share: float, now: int = 0, restart: int = 0, **fields: Any) -> dict[str, Any]:
    row = {"cluster_id": "c", "node_id": node, "host": f"h{node}", "log_dir": "/d", "used_share": share}
    return row | {"reclaim_now": now, "reclaim_restart": restart, "health": "online"} | fields


def growing(node: int, days: float) -> dict[str, Any]:
    return {"cluster_id": "c", "node_id": node, "log_dir": "/d", "days_to_full": days}


def topic(name: str, **fields: int) -> dict[str, Any]:
    none = {f"{kind}_{w}": 0 for kind in ("reclaim", "requestable", "asked", "nodes") for w in ("now", "restart")}
    return {"cluster_id": "c", "topic": name} | none | fields


def order(*rows: dict[str, Any], growth: tuple[dict[str, Any], ...] = ()) -> list[tuple[Any, ...]]:
    found = steps(list(rows), growth, [], NONE)
    return [(step["node_id"], step["days"]) for step in found if step["what"] == "log-dir"]


def test_hours_left_come_before_bytes() -> None:
    """All of 95 % and more were 0.0 days, and the one with most to reclaim came first."""
    rows = [log_dir(1, 0.96, now=500), log_dir(2, 0.97, now=1), log_dir(3, 0.90, now=9)]
    assert order(*rows, growth=(growing(1, 5.0), growing(2, 0.4), growing(3, 20.0))) == [(2, 0.4), (1, 5.0)]


def test_what_is_full_comes_first_even_with_nothing_to_reclaim() -> None:
    assert order(log_dir(1, 0.99, now=5), log_dir(2, 1.0, health="full"), growth=(growing(1, 0.1),)) == [
        (2, 0.0), (1, 0.1)
    ]  # fmt: skip


def test_of_unknown_pace_it_comes_after_less_than_a_day() -> None:
    rows = [log_dir(1, 0.98), log_dir(2, 0.96), log_dir(3, 0.95, now=9)]
    assert order(*rows, growth=(growing(2, 0.9), growing(3, 1.1))) == [(2, 0.9), (1, None)]


def test_a_file_system_is_one_step() -> None:
    assert order(log_dir(1, 0.99), log_dir(1, 0.99, log_dir="/e", shares_with="/d")) == [(1, None)]


def test_what_fills_slowly_with_nothing_to_reclaim_is_no_step() -> None:
    assert order(log_dir(1, 0.5), growth=(growing(1, 3.0),)) == []


def test_risks_stand_between_full_and_room() -> None:
    rows = [log_dir(1, 0.99), log_dir(2, 0.3, now=700)]
    risk = {"offline": 3, "read_only": 1, "no_copy": 2}
    found = steps(rows, [], [topic("t", reclaim_now=9, asked_now=9, requestable_now=1, nodes_now=1)], risk)
    said = [(step["what"], step["hosts"]) for step in found]
    assert said == [("log-dir", 1), ("offline", 3), ("read-only", 1), ("no-copy", 2), ("host", 1), ("topic", 1)]


def test_a_topic_has_its_place_however_much_is_urgent() -> None:
    rows = [log_dir(node, 0.99) for node in (1, 2)] + [log_dir(3, 0.3, now=700)]
    risk = {"offline": 3, "read_only": 1, "no_copy": 2}
    found = steps(rows, [], [topic("t", reclaim_now=9, asked_now=9, requestable_now=1, nodes_now=1)] * 2, risk)
    assert [step["what"] for step in found] == ["log-dir", "log-dir", "offline", "read-only", "no-copy", "topic"]


def test_a_topics_figure_is_what_its_command_plans() -> None:
    row = topic("t", reclaim_now=50, reclaim_restart=90, asked_now=40, requestable_now=4, nodes_now=2)
    (step,) = steps([], [], [row], NONE)
    assert (step["window"], step["bytes"], step["requestable"], step["hosts"]) == ("now", 40, 4, 2)
    (step,) = steps([], [], [topic("t", reclaim_restart=90)], NONE)
    assert (step["window"], step["bytes"], step["requestable"]) == ("restart", 90, 0)
