"""What several dates of a landing come to: growth, what agents did, and what has changed (`published.py`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

from tests.fleets.of_directories import Directories, added, grouped
from tests.fleets.of_hosts import Hosts, total
from tests.fleets.of_replicas import UNREADABLE, Replicas
from tests.fleets.published import DAY, MINUTE, File, Fleet, Node, Row, ms_of

TOPIC_DAYS = (0, 1, 7, 30, 90)
CLEARS = ("remove", "restore")


def slope(series: list[tuple[date, int]]) -> Fraction:
    """Of the line with the least squares through two days or more."""
    days = [day.toordinal() for day, _ in series]
    mean_x, mean_y = (Fraction(sum(each), len(series)) for each in (days, [value for _, value in series]))
    above = sum((x - mean_x) * (y - mean_y) for x, (_, y) in zip(days, series, strict=True))
    return Fraction(above, sum((x - mean_x) ** 2 for x in days))


class Time:
    def __init__(self, fleet: Fleet, directories: Directories, replicas: Replicas, hosts: Hosts) -> None:
        self.fleet, self.directories, self.replicas, self.hosts = fleet, directories, replicas, hosts
        self.taken = {day: fleet.taken(day) for day in fleet.dates}

    # Growth

    def growth(self) -> list[Row]:
        return [*self._log_dirs(), *self._topics()]

    def _log_dirs(self) -> Iterator[Row]:
        for row in self.hosts.usage_log_dirs:
            node = Node(row["cluster_id"], row["node_id"])
            series = [
                (day, each["used"])
                for day, hosts in self.hosts.by_date.items()
                for each in hosts.get(node, ())
                if each["log_dir"] == row["log_dir"] and each["used"] is not None
            ]
            if len(series) > 1:
                named = {name: row[name] for name in ("cluster_id", "node_id", "host", "log_dir", "free")}
                made = _line(series)
                pace = slope(series)
                days = round(float(row["free"] / pace), 2) if pace > 0 and row["free"] is not None else None
                yield named | made | {"scope": "log_dir", "days_to_full": days}

    def _topics(self) -> Iterator[Row]:
        """Over the hosts that reported on each of the dates on which half of those of today did, or more."""
        days = [day for day in self.fleet.dates if (self.fleet.day - day).days in TOPIC_DAYS]
        for cluster in self.fleet.clusters:
            on = {day: {n for n in self.taken[day] if n.cluster == cluster} & self._counted(day) for day in days}
            today = on[self.fleet.day]
            days_of = [day for day in days if len(on[day] & today) >= max(1, len(today) / 2)]
            shared = today.intersection(*(on[day] for day in days_of))
            series: dict[tuple[Any, ...], list[tuple[date, int]]] = defaultdict(list)
            for day in days_of if shared and len(days_of) > 1 else ():
                rows = (row for node in shared for row in self.taken[day][node].dirs if row["topic"] is not None)
                for key, each in grouped(rows, "topic", "topic_id").items():
                    series[key].append((day, added(each)["allocated"]))
            for (topic, id_), sizes in series.items():
                if len(sizes) > 1:
                    named = {"scope": "topic", "cluster_id": cluster, "topic": topic, "topic_id": id_}
                    yield named | _line(sizes) | {"hosts": len(shared)}

    def _counted(self, day: date) -> set[Node]:
        """Hosts of a date, but those that have moved or that two machines claim to be."""
        return {n for n in self.taken[day] if self.fleet.unknown.get(n, ("",))[0] not in ("moved", "contradiction")}

    def chart_growth(self) -> list[Row]:
        found = []
        for cluster in self.fleet.clusters:
            by_date = {
                day: {(node, row["log_dir"]): row for node, rows in hosts.items() for row in rows}
                for day, every in self.hosts.by_date.items()
                if (hosts := {node: rows for node, rows in every.items() if node.cluster == cluster})
            }
            if not by_date:
                continue
            last = by_date[max(by_date)]
            latest = {key: row for _, rows in sorted(by_date.items()) for key, row in rows.items()}
            for day, rows in by_date.items():
                both = [k for k, r in rows.items() if k in last and latest[k]["shares_with"] is None
                        and r["used"] is not None and last[k]["used"] is not None]  # fmt: skip
                one: Row = {name: total(rows.values(), name) or 0 for name in ("bytes", "used", "size")}
                one |= {"cluster_id": cluster, "date": day, "hosts": len({node for node, _ in rows})}
                one |= {"log_dirs": len(both), "was": sum(rows[k]["used"] for k in both)}
                found.append(one | {"now": sum(last[k]["used"] for k in both)})
        return found

    # What agents did, and what has changed

    @cached_property
    def compared(self) -> list[date]:
        past = [day for day in self.fleet.dates if day < self.fleet.day]
        weeks = [day for day in past if (self.fleet.day - day).days >= 7]
        return sorted({*past[-1:], *weeks[-1:]}, reverse=True)

    @cached_property
    def audit(self) -> list[Row]:
        """Each act once, however many snapshots repeat it."""
        found: dict[tuple[Any, ...], Row] = {}
        for hosts in self.taken.values():
            for node, file in hosts.items():
                for act in file.rows["act"]:
                    if act["finished_at"] < self.fleet.as_of - 90 * DAY:
                        continue
                    row = act | {"act_id": act["id"], "began_at": act["at"], "since": self._since(node, act)}
                    key = (*node, *(act[name] for name in ("id", "at", "action", "log_dir", "name")))
                    whose = {name: self.fleet.whose(node, file)[name] for name in ("cluster_id", "node_id", "host")}
                    found[key] = row | whose
        return list(found.values())

    def _since(self, node: Node, act: Row) -> date | None:
        if node not in self.fleet.hosts or act["finished_at"] > self.fleet.as_of + 5 * MINUTE:
            return None
        looks = {day: self.taken[day][node].at for day in self.compared if node in self.taken[day]}
        return max((day for day, at in looks.items() if at < act["finished_at"]), default=None)

    def changes(self) -> list[Row]:
        return [self._change(day) for day in self.compared]

    def _change(self, then: date) -> Row:
        before = {node: file for node, file in self.taken[then].items() if node in self.fleet.hosts}
        old_disks = {(n, row["log_dir"]): row for n in before for row in self.hosts.by_date[then][n]}
        disks = {(Node(r["cluster_id"], r["node_id"]), r["log_dir"]): r for r in self.hosts.usage_log_dirs}
        both = [
            k for k in disks if k in old_disks and disks[k]["used"] is not None and old_disks[k]["used"] is not None
        ]
        used = sum(disks[k]["used"] - old_disks[k]["used"] for k in both if disks[k]["shares_with"] is None)
        ill = [k for k, r in disks.items() if k in old_disks and r["health"] == "offline" != old_disks[k]["health"]]
        unread = {k for every in (disks, old_disks) for k, row in every.items() if row["health"] in UNREADABLE}

        old, now = ({place: rows for place, rows in self._waste(hosts).items() if place[:2] not in unread}
                    for hosts in (before, {node: self.fleet.hosts[node] for node in before}))  # fmt: skip
        new = {k: rows for k, rows in now.items() if k not in old and any(map(_is_orphan, rows))}
        gone = {k: rows for k, rows in old.items() if k not in now}
        done = [row for row in self.audit if row["outcome"] == "done" and row["since"] and row["since"] >= then]
        acts = {_place(Node(r["cluster_id"], r["node_id"]), r) for r in done if r["action"] in CLEARS}
        otherwise = {k: rows for k, rows in gone.items() if k not in acts}
        removed = [row for row in done if row["action"] == "remove"]
        unknown = [node for node, file in before.items() if not self._told_since(node, file)]
        left = sum((self.fleet.hosts[node].head.get("acts") or {}).get("left_out", 0) for node in unknown)
        by_agents = {"dirs": len(removed), "bytes": sum(row["allocated"] for row in removed)}
        by_agents |= {"otherwise": len(otherwise), "otherwise_bytes": _largest(otherwise)}
        by_agents |= {"unknown_hosts": len(unknown), "left_out": left}
        return {
            "date": then.isoformat(), "days": (self.fleet.day - then).days, "log_dirs": len(both), "used": used,
            "offline": len(ill), "orphans": len(new), "orphan_bytes": _largest(new), "cleared": len(gone),
            "cleared_bytes": _largest(gone), "by_agents": by_agents, "no_copy": self._newly_lost(then),
        }  # fmt: skip

    @staticmethod
    def _waste(hosts: dict[Node, File]) -> dict[tuple[Any, ...], list[Row]]:
        """What its own agent calls an orphan, was set aside or is marked, by its place under whatever name."""
        found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for node, file in hosts.items():
            for row in file.dirs:
                if _is_orphan(row) or row["kind"] in ("stray", "delete"):
                    found[_place(node, row)].append(row)
        return found

    def _told_since(self, node: Node, file: File) -> bool:
        """Whether the host's snapshots from `file` on have all that its agent did since then."""
        looks = [self.taken[day][node] for day in self.fleet.dates if node in self.taken[day]]
        after = [each.head["acts"] for each in looks if each.at > file.at and each.head.get("acts") is not None]
        last = self.fleet.hosts[node].head.get("acts")
        if last is None or any(one["last_id"] > two["last_id"] for one, two in pairwise(after)):
            return False
        return min(ms_of(acts["since"]) for acts in after) <= file.at

    def _newly_lost(self, then: date) -> int:
        had = {
            (node.cluster, row["topic_id"], row["partition"])
            for node, file in self.taken[then].items()
            for row in file.dirs
            if row["kind"] == "current"
        }
        return sum((cluster, id_, number) in had for cluster, _, id_, number in self.replicas.lost("missing"))


def _line(series: list[tuple[date, int]]) -> Row:
    pace = slope(series)
    found: Row = {"first_date": series[0][0], "last_date": series[-1][0], "dates": len(series), "bytes": series[-1][1]}
    return found | {"bytes_per_day": round(pace) if pace > 0 else None}


def _is_orphan(row: Row) -> bool:
    return row["kind"] in ("current", "future") and row["verdict"] == "orphan"


def _place(node: Node, row: Row) -> tuple[Any, ...]:
    return node, row["log_dir"], row["topic_id"] or f"/{row['topic']}", row["partition"]


def _largest(places: dict[tuple[Any, ...], list[Row]]) -> int:
    return sum(max(row["allocated"] for row in rows) for rows in places.values())
