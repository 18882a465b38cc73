"""What an operator asks first: where the bytes are, what can be reclaimed, what is at risk, what to do next.

Pure: rows in, the section `answers` of `report.json` out. Every figure covers all rows of its table, not only those
shown on the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from logagent.fleet.report.usage import total
from logagent.fleet.tables.choice import Choice, Row
from logagent.store.contract import WINDOWS

BINS = 20
"""Log dirs are counted by fullness in steps of five per cent."""
NEARLY_FULL = 0.95
SOON, LATER = 7, 30
"""In days."""
STEPS = 6


def disks(by_log_dir: Iterable[Row]) -> Row:
    """Where the bytes are. `fullness[n]`: log dirs that are from 5n % to 5(n+1) % full; the last one includes full
    ones."""
    rows = list(by_log_dir)
    bins = [0] * BINS
    for row in rows:
        if row["used_share"] is not None:
            bins[min(int(row["used_share"] * BINS), BINS - 1)] += 1
    sums = {name: total(rows, name) or 0 for name in ("size", "used", "free")}
    nearly = sum(row["used_share"] is not None and row["used_share"] >= NEARLY_FULL for row in rows)
    return {**sums, "log_dirs": len(rows), "fullness": bins, "nearly_full": nearly, "unread": len(rows) - sum(bins)}


def reclaimable(
    by_log_dir: Iterable[Row], places: Mapping[tuple[str, int, str], Mapping[str, int]], next_due: str | None
) -> Row:
    """What can be reclaimed, by window: directories, bytes, and on how many hosts; and what is not counted in it."""
    found: Row = {}
    for window in WINDOWS:
        hosts = {key[:2] for key, sums in places.items() if sums[f"dirs_{window}"]}
        dirs, size = (sum(sums[f"{kind}_{window}"] for sums in places.values()) for kind in ("dirs", "reclaim"))
        able = sum(sums[f"requestable_{window}"] for sums in places.values())
        found[window] = {"dirs": dirs, "bytes": size, "hosts": len(hosts), "requestable": able}
    rows = list(by_log_dir)
    overdue = sum(sums["overdue"] for sums in places.values())
    marked = max(0, (total(rows, "delete") or 0) - overdue)
    hidden = {name: max(0, total(rows, name) or 0) for name in ("open_removed", "unexplained")}
    barred = sum(sums["barred"] for sums in places.values())
    return found | {"next_due": next_due, "barred": barred, "marked": marked, **hidden}


def risks(
    choice: Choice, by_log_dir: Iterable[Row], growth: Iterable[Row], lost: int, elsewhere: int, only: tuple[int, int]
) -> Row:
    """What is at risk. `lost`: partitions without a copy; `elsewhere`: replicas missing that have one."""
    ahead = sorted(row["days_to_full"] for row in growth if row["days_to_full"] is not None)
    health = Counter(row["health"] for row in by_log_dir)
    causes = Counter(host["cause"] for host in choice.hosts if not host["counts"])
    return {
        "no_copy": lost,
        "missing_elsewhere": elsewhere,
        "only_copies": {"dirs": only[0], "bytes": only[1]},
        "full_soon": sum(days <= SOON for days in ahead),
        "full_later": sum(days <= LATER for days in ahead),
        "next_full_days": ahead[0] if ahead else None,
        "offline": health["offline"],
        "read_only": health["read-only"],
        "full": health["full"],
        "unknown": [{"cause": cause, "hosts": hosts} for cause, hosts in causes.most_common()],
    }


def steps(by_log_dir: list[Row], growth: Iterable[Row], topics: Iterable[Row], risk: Mapping[str, Any]) -> list[Row]:
    """The few things to do next, most urgent first: log dirs that are filling up and have something to reclaim, then
    the hosts and topics with the most to reclaim, then what is offline."""
    ahead = {
        (row["cluster_id"], row["node_id"], row["log_dir"]): row["days_to_full"]
        for row in growth
        if row["days_to_full"] is not None and row["days_to_full"] <= LATER
    }
    urgent, hosts = [], Counter[tuple[str, int]]()
    names: dict[tuple[str, int], Row] = {}
    for row in by_log_dir:
        key = (row["cluster_id"], row["node_id"], row["log_dir"])
        names[key[:2]] = row
        hosts[key[:2]] += row["reclaim_now"]
        days = 0.0 if (row["used_share"] or 0) >= NEARLY_FULL else ahead.get(key)
        window = _sooner(row)
        if days is not None and row[f"reclaim_{window}"]:
            urgent.append(_step("log-dir", row, row[f"reclaim_{window}"], window, days=days))
    urgent.sort(key=lambda step: (step["days"], -step["bytes"]))
    found = urgent[:2]
    seen = {(step["cluster_id"], step["node_id"]) for step in found}
    largest = [key for key, gives in hosts.most_common(STEPS) if gives and key not in seen]
    found += [_step("host", names[key], hosts[key], "now") for key in largest[:1]]
    for row in list(topics)[:2]:
        window = _sooner(row)
        found.append(_step("topic", row, row[f"reclaim_{window}"], window, hosts=row["nodes"]))
    if risk["offline"]:
        found.append(_step("offline", {}, 0, None, hosts=risk["offline"]))
    return found[:STEPS]


def _sooner(row: Row) -> str:
    """The window that gives back more: the figure beside it is of this window alone."""
    return "now" if row["reclaim_now"] >= row["reclaim_restart"] else "restart"


def _step(
    what: str, row: Mapping[str, Any], gives: int, window: str | None, *, days: float | None = None, hosts: int = 1
) -> Row:
    named = {name: row.get(name) for name in ("cluster_id", "node_id", "host", "topic")}
    log_dir = row.get("log_dir") if what == "log-dir" else None
    able = row["requestable_now"] + row["requestable_restart"] if what == "topic" else None
    made = {"what": what, **named, "log_dir": log_dir, "bytes": gives, "window": window, "days": days, "hosts": hosts}
    return made | {"requestable": able}
