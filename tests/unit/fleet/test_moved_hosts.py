"""Log dirs that went to another node, or whose cluster got another id: they count once, where they are now."""

from __future__ import annotations

from collections import defaultdict
from datetime import date, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from logagent.fleet.report.replicas import moved
from logagent.fleet.tables.choice import Choice, ReportScope, choose

HOUR = 3_600_000
DAY = date(1970, 1, 2)
SCOPE = ReportScope(DAY, 24 * HOUR, timedelta(hours=26))
Row = dict[str, Any]
Node = tuple[str, int]


def snapshot(node: Node, hour: float, *ids: str, host: str | None = None) -> Row:
    """`hour`: by the host's clock, and by the file's time of modification, which it sets too where it owns the file."""
    at, (cluster, number) = round(hour * HOUR), node
    row = {"kind": "snapshot", "cluster_id": cluster, "node_id": number, "host": host or f"{cluster}-{number}"}
    row |= {"at": at, "received_at": at + 2000, "snapshot_id": f"{at}-{number}", "file": f"{node}/{at}", "sha256": "0"}
    row |= {"status": "superseded", "boot_id": None, "directory_ids": list(ids), "reason": None, "detail": None}
    return row


def chosen(snapshots: list[Row]) -> Choice:
    """The newest of each node is taken, as at ingest."""
    newest: dict[Node, Row] = {}
    for row in sorted(snapshots, key=lambda each: int(each["at"])):
        newest[row["cluster_id"], row["node_id"]] = row
    for row in newest.values():
        row["status"] = "taken"
    return choose(SCOPE, {DAY: snapshots}, {})


def counting(*snapshots: Row) -> set[Node]:
    return {(host["cluster_id"], host["node_id"]) for host in chosen(list(snapshots)).counting}


A1, A2, B1 = ("a", 1), ("a", 2), ("b", 1)


def test_a_host_that_moved_counts_where_it_is_now_and_that_is_said() -> None:
    choice = chosen([snapshot(A1, 10, "x"), snapshot(A1, 11, "x"), snapshot(A2, 12, "x"), snapshot(A2, 23, "x")])
    (gone,) = (host for host in choice.hosts if not host["counts"])
    assert (gone["node_id"], gone["cause"]) == (1, "moved")
    assert gone["why"] == "its log dir x (directory.id) is on node 2, whose snapshot is newer and counts"
    (says,) = moved(choice)
    assert says.startswith("hosts whose log dirs moved, which count once: 1, such as node 1 of cluster a: its log dir")


def test_a_cluster_with_a_new_id_counts_once() -> None:
    choice = chosen([snapshot((c, n), h, f"x{n}") for n in range(3) for c, h in (("a", 10), ("b", 20))])
    assert {host["cluster_id"] for host in choice.counting} == {"b"}
    assert "is on node 0 of cluster b" in choice.hosts[0]["why"]
    assert moved(choice)[0].endswith("of cluster a no host counts: it may have a new id")


def test_who_lives_is_not_silenced_by_who_claims_its_log_dirs() -> None:
    """Neither in turns with it, nor by one snapshot right before the report."""
    assert counting(*(snapshot(A1, h, "x") for h in (1, 2, 3)), snapshot(B1, 2.5, "x"), snapshot(B1, 9, "x")) == {
        A1,
        B1,
    }
    assert counting(snapshot(A1, 22, "x"), snapshot(B1, 23.5, "x")) == {A1, B1}
    assert counting(snapshot(A1, 22, "x"), snapshot(B1, 24, "x")) == {B1}
    assert counting(snapshot(A1, 1), snapshot(B1, 20)) == {A1, B1}, "agents that name no log dir"


def test_a_snapshot_from_the_future_is_no_newer_than_the_report() -> None:
    """Else a host of which all was heard up to now would be silent "since", before the one that claims its log dirs."""
    assert counting(snapshot(A1, 23.5, "x"), snapshot(B1, 26, "x")) == {A1, B1}
    assert counting(snapshot(A1, 23.5, "x"), *(snapshot(B1, h, "x") for h in (200, 300))) == {A1, B1}
    assert counting(snapshot(A1, 21.5, "x"), snapshot(B1, 26, "x")) == {B1}, "silent for two hours"


def test_a_disk_that_went_on_its_own_leaves_its_former_host_unknown_until_it_publishes_again() -> None:
    before = [snapshot(A1, 10, "x", "y"), snapshot(A2, 10, "z"), snapshot(A2, 20, "z", "y")]
    assert counting(*before) == {A2}
    assert counting(*before, snapshot(A1, 21, "x")) == {A1, A2}


NODES = [(cluster, number) for cluster in "ab" for number in range(3)]


@given(st.lists(st.tuples(st.integers(0, 23), st.sampled_from("wxyz"), st.sampled_from(NODES)), max_size=8))
def test_every_disk_counts_once_where_it_was_seen_last(moves: list[tuple[int, str, Node]]) -> None:
    """A fleet that is played hour by hour, disks going from node to node; each node that has any publishes each hour.
    The reference asks the disks, not the snapshots."""
    place: dict[str, Node] = dict(zip("wxyz", NODES, strict=False))
    snapshots: list[Row] = []
    alone_since: dict[str, int] = {}
    for hour in range(24):
        for _, disk, target in (each for each in sorted(moves) if each[0] == hour):
            if place[disk] != target:
                place[disk], alone_since[disk] = target, hour
        here: dict[Node, list[str]] = defaultdict(list)
        for disk, node in place.items():
            here[node].append(disk)
        snapshots += [snapshot(node, hour, *disks) for node, disks in here.items()]
    choice = chosen(snapshots)
    counted = [
        (id_, (host["cluster_id"], host["node_id"])) for host in choice.counting for id_ in host["directory_ids"]
    ]
    assert {disk: node for disk, node in counted if node == place[disk]} == place, "none is lost"
    for disk in place:
        twice = [node for id_, node in counted if id_ == disk and node != place[disk]]
        last = {node: max(s["at"] for s in snapshots if (s["cluster_id"], s["node_id"]) == node) for node in twice}
        # Where it was counts too only while its former host may still publish, or where the disk has come back.
        returned = sum(each[1] == disk for each in moves) > 1
        assert returned or all(at > 21 * HOUR for at in last.values())
