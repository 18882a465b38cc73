"""Growth and days until full against the numbers in the landed files themselves."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import Zoo

FIRST, LAST = "2025-03-09", "2025-03-10"


@dataclass
class Day:
    """What the complete snapshots of one cluster said on one date, by node."""

    used: dict[tuple[int, str], int] = field(default_factory=dict)
    free: dict[tuple[int, str], int] = field(default_factory=dict)
    readable: set[tuple[int, str]] = field(default_factory=set)
    topics: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    marked: dict[tuple[int, str, str], dict[str, Any]] = field(default_factory=dict)
    nodes: set[int] = field(default_factory=set)


def _read(store: Path, cluster: str, date: str, nodes: set[int]) -> Day:
    day = Day()
    for node in nodes:
        for data in (store / "landing" / cluster / date / str(node)).glob("*.jsonl.gz"):
            day.nodes.add(node)
            for row in map(json.loads, gzip.decompress(data.read_bytes()).splitlines()):
                _take(day, node, row)
    return day


def _take(day: Day, node: int, row: dict[str, Any]) -> None:
    if row["row"] == "log_dir":
        if row["ledger"]:
            day.used[node, row["path"]] = row["ledger"]["used"]
            day.free[node, row["path"]] = row["ledger"]["free"]
        if row["health"] != "offline":
            day.readable.add((node, row["path"]))
    elif row["row"] == "dir":
        if row["topic"] is not None:
            day.topics[node][row["topic"]] += row["allocated"]
        if row["kind"] == "delete":
            day.marked[node, row["log_dir"], row["name"]] = row


@pytest.fixture(scope="module")
def days(zoo: Zoo) -> dict[str, tuple[Day, Day]]:
    found = {}
    for truth in zoo.truths:
        nodes = set(range(1, 7)) - set(truth.unknown_hosts)
        found[truth.cluster_id] = tuple(_read(zoo.path, truth.cluster_id, date, nodes) for date in (FIRST, LAST))
    return found  # type: ignore[return-value]


def test_growth_of_log_dirs(zoo: Zoo, days: dict[str, tuple[Day, Day]]) -> None:
    reported = {
        (r["cluster_id"], r["node_id"], r["log_dir"]): (r["bytes"], r["bytes_per_day"], r["free"], r["days_to_full"])
        for r in zoo.told.rows("growth")
        if r["scope"] == "log_dir" and r["cluster_id"] in days
    }
    expected = {}
    for cluster, (first, last) in days.items():
        for place in first.used.keys() & last.used.keys():
            growth = last.used[place] - first.used[place]
            grows = growth > 0
            full = round(last.free[place] / growth, 2) if grows else None
            expected[cluster, *place] = (last.used[place], growth if grows else None, last.free[place], full)
    assert reported == expected
    assert len(expected) > 100
    assert {value[1] is None for value in expected.values()} == {True, False}


def test_growth_of_topics_is_that_of_the_hosts_of_both_dates(zoo: Zoo, days: dict[str, tuple[Day, Day]]) -> None:
    reported: dict[str, dict[str, int | None]] = defaultdict(dict)
    hosts: dict[str, set[int]] = defaultdict(set)
    for row in zoo.told.rows("growth"):
        if row["scope"] == "topic" and row["cluster_id"] in days:
            found = reported[row["cluster_id"]]
            found[row["topic"]] = (found.get(row["topic"]) or 0) + (row["bytes_per_day"] or 0)
            hosts[row["cluster_id"]].add(row["hosts"])
    compared = 0
    for cluster, (first, last) in days.items():
        both = first.nodes & last.nodes
        if 2 * len(both) < len(last.nodes):
            assert cluster not in reported
            continue
        compared += 1
        then, now = (Counter[str](), Counter[str]())
        for day, sums in ((first, then), (last, now)):
            for node in both:
                sums.update(day.topics[node])
        single = {t for t in then.keys() & now.keys() if t.startswith("retired")}
        assert single <= reported[cluster].keys() and hosts[cluster] == {len(both)}
        for topic in single:
            assert reported[cluster][topic] == max(0, now[topic] - then[topic])
    assert compared > 5
