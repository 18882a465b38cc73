"""`report.json`: totals, what is unknown and why, and warnings as sentences. Pure: rows in, a document out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from logagent.base.times import rfc3339
from logagent.fleet.report.replicas import Counted
from logagent.fleet.report.scope import Scope
from logagent.fleet.tables.choice import Choice, Row, happened
from logagent.store.contract import NOT_COMPARED, REPLICA_COUNTS, REPORT_SCHEMA, SHOWN_UNKNOWN_HOSTS

SHOWN_CLUSTERS = 10_000
NAMED_IN_WARNINGS = 5
_SUMS = ("bytes", "allocated", "current", "future", "stray", "delete", "other", "orphans", "orphan_bytes")


def totals(by_cluster: list[Row], tables: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """The totals of `report.json`, from the tables that were written."""
    found = {name: sum(row[name] or 0 for row in by_cluster) for name in _SUMS}
    return found | {name: int(tables[name]["rows"]) for name in ("missing_replicas", "duplicates", "leftovers")}


def document(
    now: datetime, run: str, scope: Scope, by_cluster: list[Row], tables: dict[str, Any], warnings: list[str]
) -> dict[str, Any]:
    """`report.json`, as the contract defines it."""
    unknown = [h for h in scope.choice.hosts if not h["counts"]]
    shown = [{name: h[name] for name in ("cluster_id", "node_id", "why")} for h in unknown[:SHOWN_UNKNOWN_HOSTS]]
    commit = scope.commit
    return {
        "schema": REPORT_SCHEMA,
        "run_id": run,
        "at": rfc3339(round(now.timestamp() * 1000)),
        "as_of": rfc3339(scope.asked.as_of_ms),
        "date": scope.asked.day.isoformat(),
        "ingested": {"run": commit.run, "commit": commit.number, "at": commit.at},
        "clusters": _clusters(scope.choice, by_cluster),
        "hosts": {
            "reporting": len(counting := scope.choice.counting),
            "unknown": shown,
            "unknown_total": len(unknown),
            "enforcing": sum(host.get("mode") == "enforce" for host in counting),
            "accepting": sum(host.get("accepts") not in (None, "none") for host in counting),
            "refusing": sum(host.get("accepts") == "none" for host in counting),
        },
        "totals": totals(by_cluster, tables),
        "tables": tables,
        "warnings": warnings,
    }


def _clusters(choice: Choice, by_cluster: list[Row]) -> list[dict[str, Any]]:
    usage = {row["cluster_id"]: row for row in by_cluster}
    return [
        {
            "cluster_id": row["cluster_id"],
            "hosts": usage[row["cluster_id"]]["hosts"],
            "unknown_hosts": usage[row["cluster_id"]]["unknown_hosts"],
            "assignments": None
            if row["at"] is None
            else {
                "source": row["source"],
                "at": rfc3339(row["at"]),
                "age_seconds": round(row["age_seconds"], 3),
                "topics": int(row["topics"] or 0),
                "partitions": int(row["partitions"] or 0),
            },
            "replicas": {name: usage[row["cluster_id"]][name] for name in REPLICA_COUNTS} if row["decided"] else None,
            "verdicts": "decided" if row["decided"] else "unknown",
            "why": row["why"],
        }
        for row in choice.clusters[:SHOWN_CLUSTERS]
    ]


def _disagreements(differ: Sequence[Row]) -> Iterator[str]:
    for row in differ[:NAMED_IN_WARNINGS]:
        says = f"{row['n']} directories, e.g. {row['example']}: the agent and the fleet disagree"
        yield f"node {row['node_id']} of {row['cluster_id']}: {says}"
    if len(differ) > NAMED_IN_WARNINGS:
        yield f"{len(differ)} hosts in all: the agent and the fleet disagree"


def _not_compared(replicas: Counted) -> Iterator[str]:
    for row in replicas.undecided:
        many = f"{row['replicas']} replicas on {row['hosts']} hosts could not be compared"
        yield f"{many}, and are not called missing: {NOT_COMPARED[row['reason']]}"
    if replicas.no_copy:
        yield f"of {replicas.no_copy} partitions with such replicas no copy was found: see undecided_replicas"
    for cluster_id, row in replicas.clusters.items():
        rest = row["expected"] - sum(row[name] for name in REPLICA_COUNTS if name != "expected")
        if rest:
            yield f"cluster {cluster_id}: its replicas do not add up: {rest} of {row['expected']} are counted nowhere"


def warnings_of(
    scope: Scope,
    doubted: Mapping[str, tuple[int, int]],
    undecided: Mapping[str, int],
    differ: list[Row],
    tables: Mapping[str, Mapping[str, Any]],
    replicas: Counted,
    *,
    unread: int,
    large: bool,
) -> list[str]:
    """What an operator must know before trusting the numbers; the first few are named, all are counted."""
    choice = scope.choice
    found = _unknown(choice)
    found += [
        f"cluster {row['cluster_id']}: no verdicts: {row['why']}" for row in choice.clusters if not row["decided"]
    ][:100]
    for cluster_id, (count, dirs) in sorted(doubted.items()):
        found.append(
            f"cluster {cluster_id}: {count} of {dirs} directories would be orphans:"
            " its assignments are in doubt, so none of its directories is called an orphan"
        )
    if large:
        found.append(
            "more than a million partitions are not where the assignments place them: are the assignments complete?"
        )
    if undecided:
        counted = ", ".join(f"{why}: {count}" for why, count in sorted(undecided.items()))
        found.append(f"directories that could not be decided: {counted}")
    if unread:
        found.append(
            f"{unread} directories could not be read whole by their agents (logagent scan there says why):"
            " what they hold may be more than is counted"
        )
    offline = sum(row.get("health") == "offline" for row in scope.log_dirs)
    if offline:
        found.append(f"{offline} log dirs are offline: what is on them is not counted, and not called missing")
    if shared := counted_twice(choice, scope.log_dirs):
        found.append(
            f"{shared} file systems are shared by several brokers of one machine: what is used and free there counts"
            " once for each of them"
        )
    found += moved(choice)
    found += _not_compared(replicas)
    found += _disagreements(differ)
    reasons = Counter(row["reason"] for row in scope.quarantine)
    if reasons:
        counts = ", ".join(f"{reason}: {count}" for reason, count in sorted(reasons.items()))
        found.append(f"rejected files or rows: {sum(reasons.values())} ({counts}): see quarantined_input")
    if not tables["growth"]["rows"]:
        found.append("growth needs two dates on which half of the hosts of a cluster, or more, reported")
    return found


def moved(choice: Choice) -> list[str]:
    """Log dirs that stand under two nodes or clusters, by `directory.id`: the sums have them twice, and that is said.
    No host is left out for what another one says of itself."""
    hosts: dict[str, list[Row]] = defaultdict(list)
    for host in choice.counting:
        for one in host.get("directory_ids") or ():
            hosts[one].append(host)
    twice = [sorted(each, key=happened) for each in hosts.values() if len(each) > 1]
    if not twice:
        return []
    old, new = twice[0][0], twice[0][-1]
    says = f"node {old['node_id']} of cluster {old['cluster_id']} and node {new['node_id']} of {new['cluster_id']}"
    return [
        f"log dirs under two nodes: {len(twice)} (by directory.id), such as {says}: a host that was moved, or a cluster"
        " that was renamed, counts twice until its older snapshot is too old"
    ]


def counted_twice(choice: Choice, log_dirs: Iterable[Row]) -> int:
    """How many file systems have log dirs of several nodes: one boot has one device of a number. Within a node they
    count once (`tables.store.by_file_system`)."""
    boots = {(host["cluster_id"], host["node_id"]): host.get("boot_id") for host in choice.counting}
    nodes: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    for row in log_dirs:
        node = row["cluster_id"], row["node_id"]
        boot, device = boots.get(node), row.get("device")
        if boot is not None and device is not None and row.get("used") is not None:
            nodes[boot, device].add(node)
    return sum(len(each) > 1 for each in nodes.values())


def _unknown(choice: Choice) -> list[str]:
    everyone = choice.hosts
    unknown = [h for h in everyone if not h["counts"]]
    if not everyone:
        return ["no host is known: landing had no snapshot and no assignments for these dates"]
    if not unknown:
        return []
    # Hosts are unknown in two ways, each with one example: a list of hundreds would hide the warnings after it.
    named = []
    for never in (False, True):
        hosts = [h for h in unknown if (h["at"] is None) == never]
        if hosts:
            first = hosts[0]
            named.append(
                f"{len(hosts)} without a complete snapshot{'' if never else ' that can be used'}: "
                f"node {first['node_id']} of {first['cluster_id']}{' and others' if len(hosts) > 1 else ''}: "
                f"{first['why']}"
            )
    says = f"{len(unknown)} of {len(everyone)} hosts are unknown and left out: see log_dir_health"
    if len(unknown) == len(everyone):
        says = f"all {len(unknown)} hosts are unknown: nothing can be said about this date"
    return [says, *named]
