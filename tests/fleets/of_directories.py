"""What each directory of a landing is, and the tables that list and add up directories (`published.py`).

An orphan is a current or future directory that the assignments do not place on its host, if they can know of it.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from tests.fleets.published import DAY, HOUR, MINUTE, Fleet, Node, Row, ms_of

KINDS = ("current", "future", "stray", "delete")
WINDOWS = ("now", "restart", "approval", "later")
INTERNAL = {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
ORPHAN = {"topic-absent", "topic-recreated", "not-a-replica"}
GONE = {"topic-absent", "topic-recreated"}
OVERDUE, KEPT = HOUR + MINUTE, 7 * DAY


def length(row: Row) -> tuple[int, int]:
    offset, written = row["last_segment_offset"], row["newest_mtime"]
    return -1 if offset is None else offset, written or 0


def shares(values: dict[Any, int | None]) -> dict[Any, float | None]:
    """Each relative to the mean of all that are known."""
    known = [value for value in values.values() if value is not None]
    mean = sum(known) / len(known) if known else 0
    return {key: None if value is None or not mean else round(value / mean, 6) for key, value in values.items()}


class Directories:
    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.rows = fleet.dirs
        self.disks = {
            (node.cluster, node.node, row["path"]): row["directory_id"]
            for node, file in fleet.hosts.items()
            for row in file.rows["log_dir"]
        }
        self.copies: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in self.rows:
            if row["kind"] in ("current", "future", "stray") and row["topic"] is not None:
                self.copies[self._whose(row)].append(row)
        self.living: dict[str, dict[str | None, str]] = {
            cluster: {row["topic_id"]: row["topic"] for row in replicas.values()}
            for cluster, replicas in fleet.replicas.items()
        }
        self.judged = [(row, *self._judge(row)) for row in self.rows if row["kind"] in ("current", "future")]

    @staticmethod
    def _whose(row: Row) -> tuple[Any, ...]:
        return row["cluster_id"], row["topic_id"] or f"/{row['topic']}", row["partition"]

    # Verdicts

    def _judge(self, row: Row) -> tuple[str, str | None]:
        """Verdict and reason; nothing of a cluster without assignments, nor of what is no partition."""
        cluster = row["cluster_id"]
        if cluster not in self.fleet.decided or row["topic"] is None:
            return "none", None
        reason = self._placed(row)
        if reason in ORPHAN and (barred := self._barred(row)) is not None:
            reason = barred
        if reason is None and row["verdict"] == "orphan":
            reason = "sources-disagree"
        return "assigned" if reason is None else "orphan" if reason in ORPHAN else "unknown", reason

    def _placed(self, row: Row) -> str | None:
        cluster, id_ = row["cluster_id"], row["topic_id"]
        if Node(cluster, row["node_id"]) not in self.fleet.named:
            return "no-assignments"
        if id_ is None:
            return "no-topic-id"
        names = self.living[cluster]
        if id_ not in names:
            return "topic-recreated" if row["topic"] in names.values() else "topic-absent"
        assert names[id_] == row["topic"], "no fleet has a directory of another name than its topic"
        assigned = self.fleet.replicas[cluster].get((id_, row["partition"]))
        if assigned is None:
            return "no-assignments"
        if row["node_id"] in assigned["replicas"]:
            place = dict(zip(assigned["replicas"], assigned["directories"], strict=False)).get(row["node_id"])
            here = self.disks[cluster, row["node_id"], row["log_dir"]]
            known = place is not None and here is not None and row["kind"] == "current"
            return "wrong-directory" if known and place != here else None
        return "reassigning" if assigned["adding"] or assigned["removing"] else "not-a-replica"

    def _barred(self, row: Row) -> str | None:
        image = self.fleet.images[row["cluster_id"]]
        assert image is not None
        if row["topic"] in INTERNAL:
            return "internal"
        began = (row[name] for name in ("snapshot_at", "first_seen", "newest_mtime"))
        if min(at for at in began if at is not None) > image.at:
            return "stale-assignments"
        head = self.fleet.hosts[Node(row["cluster_id"], row["node_id"])].head
        own = (head.get("assignments") or {}).get("at")
        return "sources-disagree" if row["verdict"] == "assigned" and own and ms_of(own) >= image.at else None

    # What can be reclaimed

    @staticmethod
    def _window(row: Row, held: bool = False) -> str | None:
        """What the agent says, else what follows from kind and age; what its host would not remove by itself (`held`)
        waits for approval, and so does an only copy."""
        stray, window = row["kind"] == "stray", row["window"]
        if window is None and row["obstacle"] is None:
            kept = row["marked_at"] is not None and row["snapshot_at"] - row["marked_at"] >= KEPT
            window = "restart" if not stray else "later" if not kept else "approval" if held else "now"
        return "approval" if not stray and row["only_copy"] and window is not None else window

    @staticmethod
    def _due(row: Row) -> Any:
        if row["due_at"] is not None or row["window"] != "later" or row["marked_at"] is None:
            return row["due_at"]
        return row["marked_at"] + KEPT

    @staticmethod
    def _id(row: Row) -> str | None:
        """What a request names it by: not without a topic id, nor where a name is not UTF-8."""
        plain = row["topic_id"] is not None and "\\udc" not in row["name"] + row["log_dir"]
        names = ("cluster_id", "node_id", "log_dir", "name", "topic_id")
        return hashlib.sha256("\n".join(str(row[name]) for name in names).encode()).hexdigest()[:16] if plain else None

    def _counted(self, row: Row) -> Row:
        """With what else there is of its partition."""
        copies = self.copies.get(self._whose(row)) if row["kind"] != "delete" and row["topic_id"] else None
        known = row["last_segment_offset"] is not None or row["newest_mtime"] is not None
        longest = copies is not None and known and length(row) >= max(map(length, copies))
        told: Row = {"directory_id": self.disks[row["cluster_id"], row["node_id"], row["log_dir"]]}
        told |= {"copies_elsewhere": None if copies is None else len(copies) - 1}
        told |= {"only_copy": None if copies is None else len(copies) == 1}
        return row | told | {"longest_copy": longest if copies is not None and known else None}

    @staticmethod
    def _age(row: Row, since: int | None) -> float | None:
        return None if since is None else max(0.0, (row["snapshot_at"] - since) / 1000)

    @cached_property
    def orphans(self) -> list[Row]:
        found = []
        for row, verdict, reason in self.judged:
            if verdict == "orphan":
                one = self._counted(row) | {"agent_verdict": row["verdict"], "agent_reason": row["reason"]}
                one |= {"reason": reason, "age_seconds": self._age(row, row["first_seen"]), "id": self._id(row)}
                one["window"] = self._window(one)
                found.append(one | {"due_at": self._due(one)})
        return found

    @cached_property
    def leftovers(self) -> list[Row]:
        found = []
        for row in self.rows:
            age = self._age(row, row["marked_at"])
            overdue = row["kind"] == "delete" and (age is None or age * 1000 > OVERDUE)
            if row["kind"] == "stray" or overdue:
                found.append(row | {"why": "overdue" if overdue else "stray", "age_seconds": age})
        for row, verdict, _ in self.judged:
            if verdict == "orphan" and row["kind"] == "future":
                since = row["newest_mtime"] if row["first_seen"] is None else row["first_seen"]
                found.append(row | {"why": "abandoned", "age_seconds": self._age(row, since)})
        return [self._leftover(self._counted(row)) for row in found]

    def _leftover(self, row: Row) -> Row:
        lives = row["topic_id"] in self.living.get(row["cluster_id"], {})
        said = row["verdict"] == "orphan" and row["reason"] in GONE
        gone = said or (row["cluster_id"] in self.fleet.decided and row["topic_id"] is not None)
        row["window"] = self._window(row, not (row["longest_copy"] is False if lives else gone))
        return row | {"due_at": self._due(row), "id": self._id(row) if row["kind"] == "stray" else None}

    def undecided(self) -> list[Row]:
        return [
            row | {"reason": reason, "agent_verdict": row["verdict"], "agent_reason": row["reason"]}
            for row, verdict, reason in self.judged
            if verdict == "unknown"
        ]

    def differ(self) -> dict[Node, list[str]]:
        """By host, the directories of which its agent says another thing."""
        found: dict[Node, list[str]] = defaultdict(list)
        for row, verdict, reason in self.judged:
            known = {row["verdict"], verdict} <= {"assigned", "orphan"}
            if (known and row["verdict"] != verdict) or (row["verdict"], reason) == ("orphan", "sources-disagree"):
                found[Node(row["cluster_id"], row["node_id"])].append(row["name"])
        return found

    def duplicates(self) -> list[Row]:
        names = ("cluster_id", "node_id", "host", "topic", "topic_id", "partition")
        return [
            dict(zip(names, key, strict=True)) | added(rows)
            | {"copies": len(places), "log_dirs": ", ".join(sorted(places))}
            for key, rows in grouped(self.current, *names).items()
            if len(places := {row["log_dir"] for row in rows}) > 1
        ]  # fmt: skip

    # Sums

    @property
    def current(self) -> list[Row]:
        return [row for row in self.rows if row["kind"] == "current" and row["topic"] is not None]

    @cached_property
    def waste(self) -> list[Row]:
        """What can be reclaimed: an abandoned move is in both tables, and counts once."""
        return [*self.orphans, *(row for row in self.leftovers if row["why"] != "abandoned")]

    def wasted(self, *names: str) -> Callable[[tuple[Any, ...]], Row]:
        """The columns of what can be reclaimed, by what `names` have."""
        found: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
        for row in self.waste:
            one = found[tuple(row[name] for name in names)]
            if row["window"] is not None:
                one[f"reclaim_{row['window']}"] += row["allocated"]
        for row in self.orphans:
            found[tuple(row[name] for name in names)].update(orphans=1, orphan_bytes=row["allocated"])
        every = ("orphans", "orphan_bytes", *(f"reclaim_{window}" for window in WINDOWS))
        return lambda key: {name: found[key][name] for name in every}

    def usage_topics(self) -> list[Row]:
        names = ("cluster_id", "topic", "topic_id")
        wasted, found = self.wasted(*names), []
        for key, rows in grouped((r for r in self.rows if r["topic"] is not None), *names).items():
            current = grouped((r for r in rows if r["kind"] == "current"), "partition")
            largest = [max(row["allocated"] for row in each) for each in current.values()]
            one = dict(zip(names, key, strict=True)) | added(rows) | wasted(key)
            one |= {kind: added(r for r in rows if r["kind"] == kind)["allocated"] for kind in KINDS}
            one |= {"partitions": len(current), "copies": len(rows), "largest_partition": max(largest, default=None)}
            mean = sum(largest) / len(largest) if largest else 0
            found.append(one | {"skew": round(max(largest) / mean, 6) if mean else None})
        return found

    def usage_partitions(self) -> list[Row]:
        names = ("cluster_id", "topic", "topic_id", "partition")
        here = grouped(self.current, *names)
        replicas: dict[tuple[Any, ...], list[int]] = {}
        for cluster, each in self.fleet.replicas.items():
            for row in each.values():
                nodes = sorted(n for n in row["replicas"] if Node(cluster, n) in self.fleet.hosts)
                if nodes:
                    replicas[cluster, row["topic"], row["topic_id"], row["partition"]] = nodes
        found = []
        for key in {*here, *replicas}:
            rows, decided = here.get(key, []), key[0] in self.fleet.decided
            same = sorted(row["node_id"] for row in rows) == replicas.get(key, [])
            given = [row["allocated"] for row in rows]
            one = dict(zip(names, key, strict=True)) | added(rows) | {"copies": len(rows)}
            one |= {
                "assigned": len(replicas.get(key, [])) if decided else None,
                "as_assigned": same if decided else None,
            }
            one |= {"smallest_copy": min(given, default=None), "largest_copy": max(given, default=None)}
            found.append(one)
        return found


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return found


def added(rows: Iterable[Row]) -> Row:
    every = list(rows)
    return {name: sum(row[name] for row in every) for name in ("bytes", "allocated")}
