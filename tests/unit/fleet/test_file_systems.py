"""Log dirs that share a file system: its size, its used and its free bytes count once."""

from __future__ import annotations

from typing import Any

from logagent.fleet.report.replicas import counted_twice, moved
from logagent.fleet.report.usage import total
from logagent.fleet.tables.choice import Choice, Row
from logagent.fleet.tables.store import by_file_system


def log_dir(name: str, device: int | None, own: int, node: int = 1) -> dict[str, Any]:
    """One on a disk of 1000 with 700 used, of which `own` are known to be its own."""
    ledger = {"size": 1000, "used": 700, "free": 300, "current": own, "unexplained": 700 - own}
    return {"cluster_id": "c", "node_id": node, "log_dir": name, "device": device, **ledger}


def sums(rows: list[dict[str, Any]]) -> list[int | None]:
    return [total(rows, name) for name in ("size", "used", "free", "current", "unexplained")]


def test_two_log_dirs_on_one_disk_are_one_disk() -> None:
    rows = by_file_system([log_dir("/a", 5, 400), log_dir("/b", 5, 200)])
    assert sums(rows) == [1000, 700, 300, 600, 100]
    assert [row.get("shares_with") for row in rows] == [None, "/a"]


def test_what_agents_call_unexplained_of_the_file_system_is_that() -> None:
    rows = [log_dir(name, 5, own) | {"unexplained": 100} for name, own in (("/a", 400), ("/b", 200))]
    assert sums(by_file_system(rows)) == [1000, 700, 300, 600, 100]


def test_the_same_device_number_on_two_hosts_is_two_disks() -> None:
    assert sums(by_file_system([log_dir("/a", 5, 400), log_dir("/a", 5, 400, node=2)])) == [2000, 1400, 600, 800, 600]


def test_without_a_device_every_log_dir_counts() -> None:
    assert sums(by_file_system([log_dir("/a", None, 400), log_dir("/b", None, 200)]))[:2] == [2000, 1400]


def test_an_offline_log_dir_shares_nothing() -> None:
    gone = log_dir("/b", 5, 0) | dict.fromkeys(("size", "used", "free", "current", "unexplained"))
    assert sums(by_file_system([gone, log_dir("/a", 5, 400)])) == [1000, 700, 300, 400, 300]


def test_brokers_of_one_machine_on_one_file_system_are_counted() -> None:
    """Its size, used and free bytes are in the figures of each: that is said."""

    def host(node: int, boot: str | None) -> Row:
        return {"cluster_id": "c", "node_id": node, "counts": True, "boot_id": boot}

    def place(node: int, device: int | None, used: int | None = 1) -> Row:
        return {"cluster_id": "c", "node_id": node, "log_dir": f"/d{node}", "device": device, "used": used}

    def shared(*places: Row, boots: tuple[str | None, ...] = ("a", "a")) -> int:
        return counted_twice(Choice([host(n + 1, boot) for n, boot in enumerate(boots)], []), places)

    assert shared(place(1, 7), place(2, 7)) == 1
    assert shared(place(1, 7), place(1, 7)) == 0, "of one node: it counts once"
    assert shared(place(1, 7), place(2, 8)) == shared(place(1, 7), place(2, 7, None)) == 0
    assert shared(place(1, 7), place(2, 7), boots=("a", "b")) == 0, "another machine has another device 7"
    assert shared(place(1, 7), place(2, 7), boots=(None, None)) == 0


def test_a_log_dir_under_two_nodes_is_said() -> None:
    """A disk and its copy, or a host that was moved an hour ago: both count."""

    def host(cluster: str, node: int, at: int, *ids: str, counts: bool = True) -> Row:
        whose = {"cluster_id": cluster, "node_id": node, "counts": counts, "cause": None, "why": None}
        return whose | {"at": at, "received_at": at, "directory_ids": list(ids)}

    assert moved(Choice([host("a", 1, 5, "x", "y"), host("a", 2, 5, "z"), host("b", 1, 5)], [])) == []
    assert moved(Choice([host("a", 1, 5, "x"), host("b", 1, 6, "x", counts=False)], [])) == []
    (says,) = moved(Choice([host("b", 7, 6, "x", "y"), host("a", 1, 5, "x", "y")], []))
    assert says.startswith("log dirs under two nodes: 2 ") and "node 1 of cluster a and node 7 of b" in says
