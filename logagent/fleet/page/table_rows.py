"""The rows of the page's tables, made from those of the report: what is read together is put together."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from logagent.fleet.page.units import LONG_AHEAD
from logagent.store.contract import PageTable

Row = dict[str, Any]
Tables = Mapping[str, PageTable]


def page_rows(report: Mapping[str, Any], tables: Tables) -> dict[str, tuple[list[Row], int]]:
    """Rows of every table of the page, and how many there are in all."""
    plain = ("usage_hosts", "usage_log_dirs", "usage_topics", "log_dir_health", "missing_replicas", "duplicates")
    made = {name: (tables[name]["rows"], tables[name]["total"]) for name in (*plain, "deletion_progress")}
    made["usage_clusters"] = _clusters(report, tables["usage_clusters"])
    made["directories"] = _directories(tables)
    made["growth"] = (
        [
            {**row, "what": row["topic"] if row["scope"] == "topic" else row["log_dir"], "full_on": full_on(row)}
            for row in tables["growth"]["rows"]
        ],
        tables["growth"]["total"],
    )
    made["quarantined_input"] = (tables["quarantined_input"]["rows"], tables["quarantined_input"]["total"])
    return made


def full_on(row: Mapping[str, Any]) -> str | None:
    """The date on which a row of `growth` is full at its pace; none if that is far off, or no date is known."""
    ahead = row.get("days_to_full")
    if ahead is None or ahead > LONG_AHEAD:
        return None
    try:
        return (date.fromisoformat(str(row.get("last_date"))) + timedelta(days=round(ahead))).isoformat()
    except ValueError:
        return None


def _clusters(report: Mapping[str, Any], table: PageTable) -> tuple[list[Row], int]:
    """The table of clusters, with what the report says about their assignments and their fullness."""
    known = {cluster["cluster_id"]: cluster for cluster in report["clusters"]}
    rows = []
    for row in table["rows"]:
        cluster = known.get(row.get("cluster_id"), {})
        used, size = row.get("used"), row.get("size")
        share = used / size if isinstance(used, int) and size else None
        age = (cluster.get("assignments") or {}).get("age_seconds")
        rows.append({**row, "verdicts": cluster.get("verdicts"), "assignments_age": age, "used_share": share})
    return rows, table["total"]


def _directories(tables: Tables) -> tuple[list[Row], int]:
    """Orphans, leftovers and undecided ones in one table; an abandoned move is an orphan, and is listed once."""
    rows = [{**row, "list": "orphan", "standing": _standing(row)} for row in tables["orphans"]["rows"]]
    leftovers = tables["leftovers"]["rows"]
    others = [row for row in leftovers if row.get("why") != "abandoned"]
    rows += [{**row, "list": "leftover", "reason": row.get("why")} for row in others]
    rows += [{**row, "list": "undecided"} for row in tables["undecided"]["rows"]]
    rows.sort(key=lambda row: -(row.get("bytes") or 0))
    total = sum(tables[name]["total"] for name in ("orphans", "leftovers", "undecided"))
    return rows, total - (len(leftovers) - len(others))


def _standing(row: Mapping[str, Any]) -> str:
    """What would be lost with this copy: the first thing to know before anybody deletes it."""
    if row.get("only_copy"):
        return "only copy"
    longest = row.get("longest_copy")
    if longest:
        return "longest copy"
    return "shorter copy" if longest is False else "length unknown"
