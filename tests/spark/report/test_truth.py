"""What was planted is what is reported: twenty seeds, each a cluster, and every scenario."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from tests.spark.conftest import SEEDS, Zoo
from tests.spark.scenarios import SCENARIOS


@pytest.fixture(scope="module")
def tables(zoo: Zoo) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Rows by table and cluster."""
    names = (
        "orphans",
        "missing_replicas",
        "duplicates",
        "leftovers",
        "log_dir_health",
        "quarantined_input",
        "usage_clusters",
    )
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name in names:
        found[name] = defaultdict(list)
        for row in zoo.told.rows(name):
            found[name][row["cluster_id"]].append(row)
    return found


Tables = dict[str, dict[str, list[dict[str, Any]]]]


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_planted_truth(zoo: Zoo, tables: Tables, number: int) -> None:
    truth = zoo.truths[number]
    cluster = truth.cluster_id

    def place(row: dict[str, Any]) -> str:
        return f"{row['node_id']}|{row['log_dir']}|{row['name']}"

    def replica(row: dict[str, Any]) -> str:
        return f"{row['node_id']}|{row['topic_id']}|{row['partition']}"

    orphans = {
        place(r): (r["reason"], r["copies_elsewhere"], r["longest_copy"], r["bytes"], r["only_copy"])
        for r in tables["orphans"][cluster]
    }
    assert orphans == {
        key: (o.reason, o.copies_elsewhere, o.longest, o.bytes, o.copies_elsewhere == 0)
        for key, o in truth.orphans.items()
    }
    assert sorted(map(replica, tables["missing_replicas"][cluster])) == sorted(truth.missing)
    assert sorted(map(replica, tables["duplicates"][cluster])) == truth.duplicates
    assert {place(r): r["why"] for r in tables["leftovers"][cluster]} == truth.leftovers
    health = tables["log_dir_health"][cluster]
    assert {r["node_id"] for r in health if r["finding"] == "unknown-host"} == set(truth.unknown_hosts)
    sick = {f"{r['node_id']}|{r['log_dir']}": r["finding"] for r in health if r["log_dir"] is not None}
    assert sick == truth.health
    usage = tables["usage_clusters"][cluster]
    assert [(r["bytes"], r["dirs"], r["orphans"]) for r in usage] == [(truth.bytes, truth.dirs, len(truth.orphans))]


def test_the_seeds_show_everything(zoo: Zoo) -> None:
    """A comparison of empty lists would prove nothing."""
    reasons = {o.reason for t in zoo.truths for o in t.orphans.values()}
    assert reasons == {"topic-absent", "topic-recreated", "not-a-replica"}
    assert {len(t.unknown_hosts) > 0 for t in zoo.truths} == {True, False}
    for name in ("missing", "duplicates", "leftovers", "health"):
        assert sum(len(getattr(t, name)) for t in zoo.truths) > 5, name
    assert {o.longest for t in zoo.truths for o in t.orphans.values()} == {True, False}
    assert len({h for t in zoo.truths for h in t.unknown_hosts.values()}) >= 7


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_scenario(zoo: Zoo, tables: Tables, name: str) -> None:
    expected = zoo.expected[name]
    cluster = expected.cluster_id
    orphans = {f"{r['node_id']}|{r['name']}": r["reason"] for r in tables["orphans"][cluster]}
    assert orphans == expected.orphans

    def replica(row: dict[str, Any]) -> str:
        return f"{row['node_id']}|{row['topic']}-{row['partition']}"

    assert set(map(replica, tables["missing_replicas"][cluster])) == expected.missing
    assert set(map(replica, tables["duplicates"][cluster])) == expected.duplicates
    unknown = {r["node_id"] for r in tables["log_dir_health"][cluster] if r["finding"] == "unknown-host"}
    assert unknown == expected.unknown
    files = {r["reason"] for r in tables["quarantined_input"][cluster]} - {"bad-row"}
    assert files == expected.rejected
    entry = next(c for c in zoo.told.content["clusters"] if c["cluster_id"] == cluster)
    assert (entry["verdicts"] == "decided") == expected.decided
    assert (entry["why"] is None) == expected.decided


def test_what_was_marked_at_an_unknown_time_is_listed_with_unknown_age(zoo: Zoo, tables: Tables) -> None:
    """Not as of age 0, nor as due in the year 9999."""
    rows = tables["leftovers"][zoo.expected["marked_at_an_unknown_time"].cluster_id]
    told = {(r["kind"], r["why"], r["window"], r["age_seconds"], r["marked_at"], r["due_at"]) for r in rows}
    assert told == {("delete", "overdue", "restart", None, None, None), ("stray", "stray", "later", None, None, None)}


def test_every_bad_row_is_listed(zoo: Zoo, tables: Tables) -> None:
    """The file is listed with its count, and each bad row with what it was."""
    cluster = zoo.expected["corrupted_bad_row"].cluster_id
    rows = tables["quarantined_input"][cluster]
    assert {r["reason"] for r in rows} == {"bad-rows", "bad-row"}
    bad = next(r for r in rows if r["reason"] == "bad-row")
    assert bad["record"] == '{"row":"dir","log_dir":"/d'
    assert bad["file"].startswith(f"{cluster}/2025-03-10/2/")


def test_warnings_name_what_is_doubted(zoo: Zoo) -> None:
    warnings = "\n".join(zoo.told.content["warnings"])
    absurd = zoo.expected["absurd_share"].cluster_id
    assert f"cluster {absurd}: 300 of" in warnings
    assert f"cluster {zoo.expected['empty_assignments'].cluster_id}: no verdicts: its newest" in warnings
    assert f"cluster {zoo.expected['no_assignments'].cluster_id}: no verdicts: no complete assignments" in warnings
    assert "hosts are unknown" in warnings


def test_every_unknown_host_says_why(zoo: Zoo) -> None:
    unknown = zoo.told.content["hosts"]["unknown"]
    assert len(unknown) == zoo.told.content["hosts"]["unknown_total"]
    assert [entry for entry in unknown if not entry["why"]] == []
    silent = zoo.expected["silent_hosts"].cluster_id
    why = {entry["node_id"]: entry["why"] for entry in unknown if entry["cluster_id"] == silent}
    assert why[2] == "it has sent no complete snapshot"
    assert why[3].startswith("its newest complete snapshot is 30.")


def test_clock_skew_is_flagged(zoo: Zoo, tables: Tables) -> None:
    cluster = zoo.expected["clock_behind"].cluster_id
    skewed = [r for r in tables["log_dir_health"][cluster] if r["finding"] == "clock-skew"]
    assert [(r["node_id"], r["detail"]) for r in skewed] == [
        (2, "received 3300 s after its own time: a slow clock, or delivered late")
    ]


def test_totals_are_the_sums_of_the_tables(zoo: Zoo) -> None:
    totals = zoo.told.content["totals"]
    hosts, dirs = zoo.told.rows("usage_hosts"), zoo.told.rows("usage_log_dirs")
    assert totals["bytes"] == sum(r["bytes"] for r in hosts) == sum(r["bytes"] for r in dirs)
    assert totals["orphan_bytes"] == sum(r["allocated"] for r in zoo.told.rows("orphans"))
    assert totals["orphans"] == len(zoo.told.rows("orphans")) == sum(r["orphans"] for r in dirs)
    topics = zoo.told.rows("usage_topics")
    named = sum(r["bytes"] for r in topics)
    assert totals["bytes"] - named == _nameless(zoo)
    assert sum(r["orphans"] for r in topics) == totals["orphans"]


def _nameless(zoo: Zoo) -> int:
    """Bytes of directories that belong to no topic."""
    dirs = zoo.told.stored("dirs").where("topic is null")
    return int(dirs.groupBy().sum("bytes").head()[0] or 0)  # type: ignore[index]
