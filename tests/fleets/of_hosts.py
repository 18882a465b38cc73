"""Usage by log dir, host and cluster, what needs a look, and what was rejected (`published.py`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, timedelta
from functools import cached_property

from tests.fleets.of_directories import WINDOWS, Directories, added, grouped, shares
from tests.fleets.of_replicas import Replicas
from tests.fleets.published import MINUTE, SHOWN, File, Fleet, Node, Row, ids

OWN = ("current", "future", "stray", "delete", "other", "open_removed")
LEDGER = ("size", "used", "free", *OWN, "unexplained")
COMMON = ("size", "used", "free")
OF_HEAD = ("agent_version", "mode", "accepts", "kafka_version", "snapshot_id", "unread_processes")
WASTE = ("orphans", "orphan_bytes", *(f"reclaim_{window}" for window in WINDOWS))


class Says(tuple[str, ...]):
    """A sentence for a person, by the facts that it has to name."""


def ledgers(file: File) -> list[Row]:
    """The log dirs of a snapshot. Of those on one file system the first has what is unexplained there, and the others
    say where they count."""
    found, firsts = [], dict[int, Row]()
    for said in file.rows["log_dir"]:
        row: Row = dict.fromkeys(LEDGER) | (said["ledger"] or {}) | {"shares_with": None, "log_dir": said["path"]}
        row |= {name: said.get(name) for name in ("health", "reason", "directory_id")}
        row |= added(mine := [each for each in file.dirs if each["log_dir"] == said["path"]]) | {"dirs": len(mine)}
        found.append(row)
        device = said.get("device")
        if device is None or row["used"] is None:
            continue
        first = firsts.setdefault(device, row)
        if first is row:
            row["unexplained"] = row["used"]
        else:
            row |= {"unexplained": 0, "shares_with": first["log_dir"]}
        first["unexplained"] -= sum(row[name] for name in OWN)
    return found


def total(rows: Iterable[Row], name: str) -> int | None:
    """Of a file system once; unknown if no row knows it."""
    known = [r[name] for r in rows if r[name] is not None and not (name in COMMON and r["shares_with"] is not None)]
    return sum(known) if known else None


class Hosts:
    def __init__(self, fleet: Fleet, directories: Directories, replicas: Replicas) -> None:
        self.fleet, self.directories, self.replicas = fleet, directories, replicas
        self.by_date = {day: {node: ledgers(file) for node, file in fleet.taken(day).items()} for day in fleet.dates}
        """Of every host that reported on a date, whether it counts or not."""

    @cached_property
    def usage_log_dirs(self) -> list[Row]:
        names = ("cluster_id", "node_id", "log_dir")
        wasted, found = self.directories.wasted(*names), []
        for node, file in self.fleet.hosts.items():
            rows = ledgers(file)
            skews = shares({r["log_dir"]: None if r["health"] == "offline" else r["allocated"] for r in rows})
            for row in rows:
                one = row | self.fleet.whose(node, file) | {"skew": skews[row["log_dir"]]}
                # What unread processes hold open is used, and explained by nothing.
                doubtful = file.head.get("unread_processes") != 0
                one["open_unread"] = max(0, one["unexplained"] or 0) if doubtful else 0
                one["used_share"] = round(one["used"] / one["size"], 6) if one["size"] else None
                found.append(one | wasted((*node, row["log_dir"])))
        return found

    @cached_property
    def usage_hosts(self) -> list[Row]:
        places, found = grouped(self.usage_log_dirs, "cluster_id", "node_id"), {}
        for node, file in self.fleet.hosts.items():
            rows, head = places[node], file.head
            one = self._sums(rows) | self.fleet.whose(node, file) | {"log_dirs": len(rows)}
            one |= {name: head.get(name) for name in OF_HEAD}
            one |= {"snapshot_age_seconds": (self.fleet.as_of - file.happened) / 1000}
            one |= {"clock_skew_seconds": (file.at - file.got) / 1000}
            one |= {"offline_log_dirs": sum(row["health"] == "offline" for row in rows)}
            one |= {"used_share": round(one["used"] / one["size"], 6) if one["size"] else None}
            one |= {"log_dir_skew": max((r["skew"] for r in rows if r["skew"] is not None), default=None)}
            found[node] = one
        for cluster in self.fleet.clusters:
            skews = shares({node: one["allocated"] for node, one in found.items() if node.cluster == cluster})
            for node, skew in skews.items():
                found[node]["skew"] = skew
        return list(found.values())

    @cached_property
    def usage_clusters(self) -> list[Row]:
        hosts, found = grouped(self.usage_hosts, "cluster_id"), []
        for cluster in self.fleet.clusters:
            rows = hosts[cluster,]
            places = [row for row in self.usage_log_dirs if row["cluster_id"] == cluster]
            one = self._sums(places) | {"cluster_id": cluster, "hosts": len(rows), "log_dirs": len(places)}
            one |= {"unknown_hosts": sum(node.cluster == cluster for node in self.fleet.unknown)}
            one |= {"host_skew": max((r["skew"] for r in rows if r["skew"] is not None), default=None)}
            found.append(one | self.replicas.counts[cluster])
        return found

    @staticmethod
    def _sums(rows: list[Row]) -> Row:
        sums = {name: total(rows, name) for name in LEDGER}
        return sums | {
            name: sum(row[name] for row in rows) for name in ("dirs", "bytes", "allocated", "open_unread", *WASTE)
        }

    # What needs a look

    def log_dir_health(self, newest_agent: str) -> list[Row]:
        found = []
        for row in self.usage_log_dirs:
            if row["health"] != "online":
                node = Node(row["cluster_id"], row["node_id"])
                since = self._since(node, row["log_dir"], row["health"])
                found.append(row | {"finding": row["health"], "detail": row["reason"], "since": since})
        for node, (cause, file) in self.fleet.unknown.items():
            names = [sent.manifest["host"] for sent in self.fleet.sent.get(node, ()) if "host" in sent.manifest]
            whose = {"cluster_id": node.cluster, "node_id": node.node, "host": max(names, default=None)}
            one = whose | (self.fleet.whose(node, file) if file is not None else {})
            found.append(one | {"finding": "unknown-host", "cause": cause, "detail": Says(self._why(node))})
        differ = self.directories.differ()
        for node, file in self.fleet.hosts.items():
            for finding, detail in self._of_host(node, file, newest_agent, differ):
                found.append(self.fleet.whose(node, file) | {"finding": finding, "detail": Says(detail)})
        return found

    def _of_host(
        self, node: Node, file: File, newest_agent: str, differ: dict[Node, list[str]]
    ) -> Iterable[tuple[str, tuple[str, ...]]]:
        agent = file.head["agent_version"]
        if _version(agent) < _version(newest_agent):
            yield "old-agent", (agent, newest_agent)
        apart = file.at - file.got
        if abs(apart) > 5 * MINUTE:
            yield "clock-skew", (f"{abs(apart) / 1000:.0f} s", "ahead" if apart > 0 else "slow")
        if node in self.fleet.perhaps_two:
            yield "perhaps-two-machines", ("two boots",)
        names = differ.get(node)
        if names:
            yield "verdicts-differ", (str(len(names)), min(names))

    def _since(self, node: Node, log_dir: str, health: str) -> date | None:
        """The first of the dates in a row on which it was found so; dates without a word of it are passed over."""
        first = None
        for day in reversed(self.fleet.dates):
            said = [row["health"] for row in self.by_date[day].get(node, ()) if row["log_dir"] == log_dir]
            if said and said != [health]:
                return first
            first = day if said else first
        return first

    def _why(self, node: Node) -> tuple[str, ...]:
        cause, file = self.fleet.unknown[node]
        if cause == "moved":
            assert file is not None
            there = {one: host for host in self.fleet.hosts for one in ids(self.fleet.hosts[host])}
            one = next(id_ for id_ in ids(file) if id_ in there)
            other = there[one].cluster
            return one, f"node {there[one].node}", *([other] if other != node.cluster else [])
        if cause == "contradiction":
            hosts = sorted({sent.manifest["host"] for sent in self.fleet.sent[node]})
            return tuple(hosts) if len(hosts) > 1 else ("two machines", "boot")
        says: tuple[str, ...] = ("no complete snapshot",)
        if file is not None:
            hours = (self.fleet.as_of - file.happened) / 3_600_000
            says = (f"{hours:.1f} h" if hours < 72 else f"{hours / 24:.1f} days",)
        broken = [sent for sent in self.fleet.sent.get(node, ()) if not sent.is_whole]
        return (*says, *(max(broken, key=lambda sent: (sent.got, sent.name)).problem if broken else ()))

    def quarantined_input(self) -> list[Row]:
        found = []
        for file in self.fleet.every:
            if file.is_whole or file.day < self.fleet.day - timedelta(days=SHOWN):
                continue
            reason, *facts = file.problem
            one: Row = {"cluster_id": file.cluster, "node_id": file.node, "landing_date": file.day, "file": file.name}
            one |= {"kind": file.kind}
            found.append(one | {"reason": reason, "detail": Says(facts), "record": None})
            found += [one | {"reason": "bad-row", "detail": Says(), "record": line[:200]} for line in file.bad]
        return found


def _version(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)[:3]]
