"""Where the expected replicas are: nothing that was lost is passed over in silence, and all of it adds up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from logagent.base.units import counted
from logagent.store.contract import UNDECIDED
from tests.fleets.night import NODES, Night
from tests.fleets.of_directories import Directories
from tests.fleets.of_replicas import STATES, Replicas
from tests.fleets.published import Fleet
from tests.long_form import FULL
from tests.spark.conftest import Told, Zoo
from tests.spark.hand_made import AT, NOW, Kafka
from tests.spark.planting import planted

SEEDS = range(1, 21) if FULL else range(1, 11)


Replica = tuple[str, int, int]


@dataclass
class Decided:
    """The state of each replica of a cluster, and the reason."""

    states: dict[Replica, tuple[str, str | None]]
    counts: dict[str, int]

    def of(self, *states: str) -> set[Replica]:
        return {replica for replica, (state, _) in self.states.items() if state in states}


@dataclass
class Nights:
    told: Told
    nights: dict[str, Night]
    decided: dict[str, Decided]

    def rows(self, table: str, cluster: str) -> list[dict[str, Any]]:
        return [row for row in self.told.rows(table) if row["cluster_id"] == cluster]


@planted
def many_nights(store: Path) -> tuple[dict[str, Night], dict[str, Decided]]:
    """Each a cluster, whose truth is read from the files before the job sees them."""
    made = {(night := Night(seed)).write(store).cluster_id: night for seed in SEEDS}
    fleet = Fleet(store / "landing", NOW, made)
    replicas = Replicas(fleet, Directories(fleet))
    decided: dict[str, Decided] = {}
    for cluster in made:
        rows = [row for row in replicas.states if row["cluster_id"] == cluster]
        states = {_replica(row): (row["state"], row["reason"]) for row in rows}
        decided[cluster] = Decided(states, replicas.counts[cluster])
    return made, decided


@pytest.fixture(scope="module")
def nights(zoo: Zoo) -> Nights:
    return Nights(zoo.told, *zoo.planted["many_nights"])


def _replica(row: dict[str, Any]) -> Replica:
    return row["topic_id"], row["partition"], row["node_id"]


def test_every_state_is_shown(nights: Nights) -> None:
    """A comparison of zeros would prove nothing."""
    assert {state for each in nights.decided.values() for state, _ in each.states.values()} == {*STATES}
    assert {shape for night in nights.nights.values() for shape in night.formats.values()} == {
        "own", "old", "none", "silent",
    }  # fmt: skip


def test_it_is_what_the_landing_says(nights: Nights) -> None:
    missing, undecided = nights.told.rows("missing_replicas"), nights.told.rows("undecided_replicas")
    for cluster, truth in nights.decided.items():
        seed = nights.nights[cluster].seed
        assert {_replica(r) for r in missing if r["cluster_id"] == cluster} == truth.of("missing"), seed
        told = {_replica(r): (r["state"], r["reason"]) for r in undecided if r["cluster_id"] == cluster}
        assert told == {key: why for key, why in truth.states.items() if why[0] in UNDECIDED}, seed


def test_nothing_that_was_lost_is_passed_over(nights: Nights) -> None:
    """Against what has really happened: what is called missing was lost, and what was lost is missing or counted."""
    for cluster, night in nights.nights.items():
        truth = nights.decided[cluster]
        assert truth.of("missing") <= night.lost, night.seed
        assert not truth.of("found") & night.lost, night.seed
        newest = {(id_, number, node) for node in NODES for _, id_, number in night.assigned(night.published[-1], node)}
        told = truth.of("missing", "not_yet", "unproven", "gone", "not_heard", "not_read")
        assert night.lost & newest <= told, night.seed


def test_expected_replicas_add_up(nights: Nights) -> None:
    of_clusters = {c["cluster_id"]: c["replicas"] for c in nights.told.content["clusters"]}
    table = {row["cluster_id"]: row for row in nights.told.rows("usage_clusters")}
    for cluster, truth in nights.decided.items():
        counts = truth.counts
        assert of_clusters[cluster] == counts, nights.nights[cluster].seed
        assert {name: table[cluster][name] for name in counts} == counts
        assert counts["expected"] == sum(counts.values()) - counts["expected"] > 0
    answer = nights.told.content["answers"]["replicas"]
    total = {name: sum(each[name] for each in of_clusters.values() if each) for name in answer["total"]}
    assert answer["total"] == total
    assert total["expected"] == sum(total.values()) - total["expected"]
    by_state = {state: sum(r["replicas"] for r in answer["not_compared"] if r["state"] == state) for state in UNDECIDED}
    assert by_state == {state: total[state] for state in UNDECIDED}
    undecided = nights.told.rows("undecided_replicas")
    for row in answer["not_compared"]:
        mine = [r for r in undecided if (r["state"], r["reason"]) == (row["state"], row["reason"])]
        assert (len(mine), len({(r["cluster_id"], r["node_id"]) for r in mine})) == (row["replicas"], row["hosts"])
        warned = f"{counted(row['replicas'], 'replica')} on {counted(row['hosts'], 'host')} could not be compared"
        assert any(warned in warning for warning in nights.told.content["warnings"]), nights.told.content["warnings"]
    assert [warning for warning in nights.told.content["warnings"] if "do not add up" in warning] == []


def test_partitions_without_any_copy(nights: Nights) -> None:
    """Three of each cluster were lost whole: those of hosts that report are counted on one side or the other."""
    risk, answer = nights.told.content["answers"]["risk"], nights.told.content["answers"]["replicas"]
    # Before topic ids the name alone tells two topics apart: drawn clusters (`test_reference.py`) have lost such ones.
    copies: dict[tuple[str, str, str | None, int], int] = {}
    of_table: dict[str, set[tuple[str, str, str | None, int]]] = {}
    for table in ("missing_replicas", "undecided_replicas"):
        for row in nights.told.rows(table):
            key = row["cluster_id"], row["topic"], row["topic_id"], row["partition"]
            copies[key] = row["copies_elsewhere"]
            of_table.setdefault(table, set()).add(key)
    lost, left = ({key for key in keys if not copies[key]} for keys in of_table.values())
    assert risk["no_copy"] == len(lost) > 0
    assert answer["no_copy"] == len(left - lost) > 0
    for cluster, night in nights.nights.items():
        lost_whole = night.topics[0]
        for partition, nodes in enumerate(lost_whole.replicas[:3]):
            if any(night.formats[node] != "silent" for node in nodes):
                assert (cluster, lost_whole.name, lost_whole.id, partition) in copies, night.seed


IMAGES = {"no-younger-assignments": -25, "no-older-assignments": 5}
"""Why nothing is compared, by the minutes from the snapshots to the only assignments: no host has read any itself."""


@planted
def lost_unseen(store: Path) -> dict[str, str]:
    """The cluster of each of `IMAGES`: three partitions without any copy."""
    made = {}
    for name, minutes in IMAGES.items():
        kafka = Kafka(store, name)
        kafka.topic("stays", [1, 2, 3])
        kafka.topic("lost", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        kafka.assignments(at=AT + timedelta(minutes=minutes))
        for node in (1, 2, 3):
            kafka.snapshot(node, [row for row in kafka.replicas_of(node) if row["topic"] == "stays"])
        made[name] = kafka.cluster_id
    return made


@pytest.mark.parametrize("name", IMAGES)
def test_what_was_lost_unseen_is_not_compared_and_listed(zoo: Zoo, name: str) -> None:
    """Half an hour after the last assignments were published "nothing needs you" was all that a page said of them. What
    a page says of such replicas: `tests/page/test_first_screen.py` and, in brief, `test_brief.py`."""
    cluster = zoo.planted["lost_unseen"][name]
    (counts,) = [c["replicas"] for c in zoo.told.content["clusters"] if c["cluster_id"] == cluster]
    assert (counts["expected"], counts["found"], counts["missing"]) == (12, 3, 0)
    rows = [row for row in zoo.told.rows("undecided_replicas") if row["cluster_id"] == cluster]
    assert {(row["topic"], row["partition"], row["node_id"]) for row in rows} == {
        ("lost", number, node) for number in range(3) for node in (1, 2, 3)
    }
    assert {row["reason"] for row in rows} == {name}
    assert {row["copies_elsewhere"] for row in rows} == {0}
    said = {(row["state"], row["reason"]) for row in zoo.told.content["answers"]["replicas"]["not_compared"]}
    assert {(row["state"], row["reason"]) for row in rows} <= said
