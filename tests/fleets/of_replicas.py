"""What the replicas of a landing come to (`published.py`): found, missing, or not decided and why.

One replica is decided after another.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any

from tests.fleets.of_directories import Directories
from tests.fleets.published import MINUTE, File, Fleet, Node, Row, ms_of

STATES = ("found", "missing", "not_yet", "unproven", "gone", "not_heard", "not_read")
UNDECIDED = ("not_yet", "unproven", "not_read")
UNREADABLE = ("offline", "unformatted")


class Replicas:
    def __init__(self, fleet: Fleet, directories: Directories) -> None:
        self.fleet, self.directories = fleet, directories
        self.here: dict[tuple[Any, ...], set[str]] = {}
        for row in directories.rows:
            key = row["cluster_id"], row["node_id"], row["topic_id"] or row["topic"], row["partition"]
            self.here.setdefault(key, set()).add(row["kind"])
        images = [file for file in fleet.every if file.kind == "assignments" and file.is_whole]
        self.assigned = {c: [(f, _replicas(f)) for f in images if f.cluster == c] for c in fleet.decided}
        self.states = [row for cluster in fleet.decided for row in self._of(cluster)]

    def _of(self, cluster: str) -> list[Row]:
        newest = self.fleet.images[cluster]
        assert newest is not None
        found = []
        for row in newest.rows["partition"]:
            for node in row["replicas"]:
                found.append(self._row(cluster, node, row, self._state(newest, Node(cluster, node), row)))
        expected = _replicas(newest)
        for (_, node), host in ((n, f) for n, f in self.fleet.hosts.items() if n.cluster == cluster):
            for row in host.rows["absent"]:
                if (row["topic_id"], row["partition"], node) in expected:
                    continue
                # Made after the newest image, unless that is younger, and it was deleted.
                place = self._place(newest, host)
                if place == "older":
                    found.append(self._row(cluster, node, row, ("missing", None)))
                elif place is None:
                    found.append(self._row(cluster, node, row, ("unproven", "assignments-between")))
        return found

    def _row(self, cluster: str, node: int, row: Row, state: tuple[str, str | None]) -> Row:
        whose = {"cluster_id": cluster, "node_id": node, **{n: row[n] for n in ("topic", "topic_id", "partition")}}
        kinds = self._kinds(Node(cluster, node), row)
        copies = self.directories.copies.get((cluster, row["topic_id"] or f"/{row['topic']}", row["partition"]), [])
        told = whose | {"state": state[0], "reason": state[1], "copies_elsewhere": len(copies)}
        told |= {"left": "stray" if "stray" in kinds else None}
        told |= {"in_isr": node in row["isr"] if row.get("isr") else None}
        told |= {"adding": node in row["adding"] if "adding" in row else None}
        host = self.fleet.hosts.get(Node(cluster, node))
        return told if host is None else told | self.fleet.whose(Node(cluster, node), host)

    def _kinds(self, node: Node, row: Row) -> set[str]:
        keys = {row["topic_id"] or row["topic"], row["topic"]}
        return set().union(*(self.here.get((*node, key, row["partition"]), set()) for key in keys))

    def _state(self, newest: File, node: Node, row: Row) -> tuple[str, str | None]:
        host, kinds = self.fleet.hosts.get(node), self._kinds(node, row)
        if host is None:
            return "not_heard", None
        if kinds & {"current", "future"}:
            return "found", None
        healthy = {each["directory_id"] for each in host.rows["log_dir"] if each["health"] not in UNREADABLE}
        if any(each["health"] in UNREADABLE for each in host.rows["log_dir"]):
            place = row["directories"][row["replicas"].index(node.node)] if row["directories"] else None
            if place is None or place not in healthy:
                return "not_read", "log-dir-not-read"
        if "delete" in kinds and "stray" not in kinds:
            return "unproven", "marked"
        if host.head.get("images") is not None and host.head.get("absent") is not None:
            if any((r["topic_id"], r["partition"]) == (row["topic_id"], row["partition"]) for r in host.rows["absent"]):
                return "missing", None
            place = self._place(newest, host)
            if place == "older":
                return "gone", None
            return ("not_yet", "assigned-since") if place == "younger" else ("unproven", "assignments-between")
        if newest.at < host.at:
            return "unproven", "no-younger-assignments"
        known = [host.head.get("began"), (host.head.get("assignments") or {}).get("at")]
        first = min((ms_of(at) for at in known if at is not None), default=host.at - 5 * MINUTE)
        older = [(file.at, replicas) for file, replicas in self.assigned[node.cluster] if file.at <= first]
        if not older:
            return "not_yet", "no-older-assignments"
        has = (row["topic_id"], row["partition"], node.node) in max(older, key=lambda each: each[0])[1]
        return ("missing", None) if has else ("not_yet", "assigned-since")

    @staticmethod
    def _place(newest: File, host: File) -> str | None:
        """Where the newest image stands to what a host has read itself, before it looked and afterwards."""
        before, after = (host.head["images"][name]["offset"] for name in ("before", "after"))
        at = newest.head["offset"]
        older, younger = at <= before, after <= at
        return None if older == younger else "older" if older else "younger"

    def rows(self, *states: str) -> list[Row]:
        return [row for row in self.states if row["state"] in states]

    @cached_property
    def counts(self) -> dict[str, Row]:
        """By cluster; null in one without verdicts."""
        found: dict[str, Row] = {c: dict.fromkeys(("expected", *STATES)) for c in self.fleet.clusters}
        for cluster in self.fleet.decided:
            of = Counter(row["state"] for row in self.states if row["cluster_id"] == cluster)
            found[cluster] = {"expected": sum(of.values()), **{state: of[state] for state in STATES}}
        return found

    def lost(self, *states: str) -> set[tuple[Any, ...]]:
        """Partitions of which there is no copy, with a replica in one of these states."""
        names = ("cluster_id", "topic", "topic_id", "partition")
        return {tuple(row[name] for name in names) for row in self.rows(*states) if not row["copies_elsewhere"]}


def _replicas(image: File) -> set[tuple[str | None, int, int]]:
    return {(r["topic_id"], r["partition"], node) for r in image.rows["partition"] for node in r["replicas"]}
