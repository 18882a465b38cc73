"""Fleet reports of any size for the page's tests, in the form of `logagent.store.contract`; no Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from logagent.fleet.report import answers
from logagent.fleet.report.answers import SUMS
from logagent.fleet.report.columns import CHARTS, TABLES
from logagent.fleet.tables.choice import Choice
from logagent.store.contract import PAGE_ROWS, REPLICA_COUNTS, WINDOWS, PageTable
from tests.page import findings
from tests.page.fleet import AS_OF, GIB, TIB, Fleet, Row

WAYS: dict[str, Any] = {"host": "ops-1", "store": "/srv/fleet", "key": None, "bootstrap": {}}


def table(name: str, rows: Sequence[Row], total: int | None = None) -> PageTable:
    """`rows` with the columns of the contract (absent ones null), cut as the job cuts them."""
    columns = (TABLES.get(name) or CHARTS[name]).names
    cut = [{column: row.get(column) for column in columns} for row in rows[:PAGE_ROWS]]
    return {"columns": columns, "rows": cut, "total": len(rows) if total is None else total}


def tables(fleet: Fleet) -> dict[str, PageTable]:
    by_bytes = sorted(fleet.hosts, key=lambda row: -row["allocated"])
    by_share = sorted(fleet.log_dirs, key=lambda row: -row.get("used_share", -1))
    clusters = [fleet.cluster(cluster) for cluster in fleet.clusters]
    place = [fleet.place(number) for number in (3, 5, 8)]
    return {
        "usage_clusters": table("usage_clusters", clusters),
        "usage_hosts": table("usage_hosts", by_bytes, fleet.host_count),
        "usage_log_dirs": table("usage_log_dirs", by_share, 3 * fleet.host_count),
        "usage_topics": table("usage_topics", sorted(fleet.topics, key=lambda row: -row["allocated"])),
        "orphans": table("orphans", findings.orphans(fleet), fleet.orphan_count),
        "missing_replicas": table(
            "missing_replicas",
            [
                {
                    **place[n % 3],
                    **fleet.topics[n],
                    "partition": n,
                    "in_isr": n % 4 == 0,
                    "adding": False,
                    "copies_elsewhere": n % 3,
                }
                for n in range(12)
            ],
        ),
        "undecided_replicas": table(
            "undecided_replicas",
            [
                {
                    **place[n % 3],
                    **fleet.topics[20 + n],
                    "partition": n,
                    "state": "unproven",
                    "reason": "no-younger-assignments",
                    "in_isr": True,
                    "adding": False,
                    "copies_elsewhere": n // 2,
                    "snapshot_at": AS_OF,
                }
                for n in range(5)
            ],
        ),
        "leftovers": table("leftovers", findings.leftovers(fleet)),
        "undecided": table("undecided", findings.undecided(fleet)),
        "duplicates": table(
            "duplicates",
            [
                {
                    **place[0],
                    **fleet.topics[9],
                    "partition": 3,
                    "copies": 2,
                    "log_dirs": "/var/lib/kafka/data-1, /var/lib/kafka/data-3",
                    "bytes": 9 * GIB,
                    "allocated": 9 * GIB,
                }
            ],
        ),
        "log_dir_health": table("log_dir_health", findings.health(fleet)),
        "growth": table("growth", findings.growth(fleet)),
        "deletion_progress": table(
            "deletion_progress",
            [
                {
                    **fleet.topics[n],
                    "marked": 144,
                    "removed": n * 36,
                    "remaining": 144 - n * 36,
                    "marked_bytes": 4 * TIB,
                    "removed_bytes": n * TIB,
                    "hosts": 12,
                    "hosts_done": 3 * n,
                    "since": "2026-11-18",
                    "done_share": n / 4,
                }
                for n in range(4)
            ],
        ),
        "audit": table("audit", findings.audit(fleet)),
        "quarantined_input": table(
            "quarantined_input",
            [
                {
                    "cluster_id": fleet.clusters[0],
                    "node_id": 5000,
                    "landing_date": "2026-11-20",
                    "kind": "file",
                    "file": "landing/x/2026-11-20/5000/ab12.jsonl.gz",
                    "reason": "truncated",
                    "detail": "4,113 of 9,870 rows",
                    "record": None,
                }
            ],
        ),
        "chart_growth": table("chart_growth", findings.growth_chart(fleet)),
    }


def with_reclaim(made: dict[str, PageTable]) -> dict[str, PageTable]:
    """The tables of usage with the sums of what can be reclaimed there, as the job has them."""
    leftovers = (row for row in made["leftovers"]["rows"] if row["why"] != "abandoned")
    rows = [*made["orphans"]["rows"], *leftovers]
    place = ("cluster_id", "node_id", "log_dir")
    for name, key in (("usage_clusters", place[:1]), ("usage_hosts", place[:2]), ("usage_log_dirs", place)):
        sums: Counter[tuple[Any, ...]] = Counter()
        for row in rows:
            sums[(row["window"], *(row[column] for column in key))] += row["allocated"]
        for row in made[name]["rows"]:
            row |= {f"reclaim_{one}": sums[(one, *(row[column] for column in key))] for one in WINDOWS}
    return made


def report(fleet: Fleet, tables: dict[str, PageTable]) -> dict[str, Any]:
    sums = {
        key: sum(row[key] for row in fleet.hosts)
        for key in ("bytes", "allocated", "current", "future", "stray", "delete", "other")
    }
    return {
        "schema": "logagent.fleet-report/1",
        "place": "/srv/reports/2026-11-20-7f3a91",
        "commands": dict(WAYS),
        "answers": answered(fleet, tables),
        "run_id": "2026-11-20-7f3a91",
        "at": "2026-11-20T06:02:44.310Z",
        "as_of": AS_OF,
        "date": "2026-11-20",
        "clusters": [
            {
                "cluster_id": cluster,
                "name": f"prod-{number}" if number else None,
                "hosts": 12,
                "unknown_hosts": 1,
                "verdicts": "decided",
                "why": None,
                "replicas": dict.fromkeys(REPLICA_COUNTS, 0),
                "assignments": {
                    "source": "kraft-log",
                    "at": AS_OF,
                    "age_seconds": 212.4,
                    "topics": 400,
                    "partitions": 9000,
                },
            }
            for number, cluster in enumerate(fleet.clusters)
        ],
        "hosts": {
            "reporting": fleet.host_count,
            "unknown": fleet.unknown()[:1000],
            "unknown_total": fleet.unknown_count,
            "enforcing": sum(host["mode"] == "enforce" for host in tables["usage_hosts"]["rows"]),
            "accepting": sum(host["accepts"] != "none" for host in tables["usage_hosts"]["rows"]),
            "refusing": sum(host["accepts"] == "none" for host in tables["usage_hosts"]["rows"]),
            "acts_unknown": 2,
        },
        "totals": {
            **sums,
            "orphans": fleet.orphan_count,
            "orphan_bytes": sum(row["allocated"] for row in tables["orphans"]["rows"]),
            "missing_replicas": tables["missing_replicas"]["total"],
            "duplicates": 1,
            "leftovers": tables["leftovers"]["total"],
        },
        "tables": {
            name: {
                "rows": made["total"],
                "csv": f"{name}.csv",
                "parquet": f"{name}.parquet",
                "shown": len(made["rows"]),
            }
            for name, made in tables.items()
            if name in TABLES
        },
        "warnings": ["kafka-b-1012.prod.example.net: the agent's verdicts differ from this report's on 3 directories"],
    }


def is_asked(row: Row) -> bool:
    """Whether `topics purge` plans it without another option."""
    return row["id"] is not None and row["inode"] is not None and not row["topic"].startswith("_")


def places_of(tables: dict[str, PageTable]) -> dict[tuple[str, int, str], dict[str, int]]:
    """What can be reclaimed in each log dir, as the job sums it."""
    places: dict[tuple[str, int, str], dict[str, int]] = {}
    for name in ("orphans", "leftovers"):
        for row in tables[name]["rows"]:
            if row.get("why") != "abandoned":
                sums = places.setdefault((row["cluster_id"], row["node_id"], row["log_dir"]), dict.fromkeys(SUMS, 0))
                sums[f"dirs_{row['window']}"] += 1
                sums[f"reclaim_{row['window']}"] += row["allocated"]
                if is_asked(row):
                    sums[f"requestable_{row['window']}"] += 1
                    sums[f"asked_{row['window']}"] += row["allocated"]
    return places


def replicas_of(tables: dict[str, PageTable]) -> dict[str, Any]:
    """The section `answers.replicas`: 9,000 replicas, and those of the tables."""
    missing, undecided = (tables[name]["rows"] for name in ("missing_replicas", "undecided_replicas"))
    total = dict.fromkeys(REPLICA_COUNTS, 0) | {"found": 9000, "missing": len(missing), "unproven": len(undecided)}
    total["expected"] = sum(total.values())
    hosts = len({(row["cluster_id"], row["node_id"]) for row in undecided})
    one = {"state": "unproven", "reason": "no-younger-assignments", "replicas": len(undecided), "hosts": hosts}
    alone = {(row["topic_id"], row["partition"]) for row in undecided if not row["copies_elsewhere"]}
    return {"total": total, "not_compared": [one] if undecided else [], "no_copy": len(alone)}


def answered(fleet: Fleet, tables: dict[str, PageTable]) -> dict[str, Any]:
    """The section `answers`, made as the job makes it from rows of the driver."""
    places = places_of(tables)
    log_dirs = [
        {**row, "reclaim_now": sums.get("reclaim_now", 0), "reclaim_restart": sums.get("reclaim_restart", 0)}
        for row in tables["usage_log_dirs"]["rows"]
        for sums in [places.get((row["cluster_id"], row["node_id"], row["log_dir"]), {})]
    ]
    missing = tables["missing_replicas"]["rows"]
    lost = {(row["topic_id"], row["partition"]) for row in missing if not row["copies_elsewhere"]}
    only = [row["allocated"] for row in tables["orphans"]["rows"] if row["only_copy"]]
    growing = [row for row in tables["growth"]["rows"] if row["scope"] == "log_dir"]
    unknown = [{"counts": False, "cause": row["cause"]} for row in fleet.unknown()]
    elsewhere = sum(bool(row["copies_elsewhere"]) for row in missing)
    gone = len(lost), sum(not row["copies_elsewhere"] for row in missing)
    risk = answers.risks(Choice(unknown, []), log_dirs, growing, gone, elsewhere, (len(only), sum(only)))
    topics = [
        {
            **row,
            **{f"{kind}_now": 0 for kind in ("reclaim", "requestable", "asked", "nodes")},
            "reclaim_restart": row["orphan_bytes"],
            "asked_restart": row["orphan_bytes"] if row["orphans"] else 0,
            "nodes_restart": 7,
            "requestable_restart": row["orphans"],
        }
        for row in tables["usage_topics"]["rows"]
        if row["orphan_bytes"]
    ]
    change = {"log_dirs": 3 * fleet.host_count, "offline": 1, "orphans": 64, "orphan_bytes": 3 * TIB}
    change |= {"cleared": 12, "cleared_bytes": TIB, "no_copy": 2}
    return {
        "disks": answers.disks(log_dirs),
        "reclaim": answers.reclaimable(log_dirs, places, "2026-11-23T11:00:00.000Z", tables["usage_hosts"]["rows"]),
        "risk": risk,
        "replicas": replicas_of(tables),
        "steps": answers.steps(log_dirs, growing, topics, risk),
        "changes": [
            {"date": date, "days": days, "used": used, **change, "by_agents": findings.by_agents(tables["audit"], date)}
            for date, days, used in (("2026-11-19", 1, 5 * TIB), ("2026-11-13", 7, -2 * TIB))
        ],
    }


def empty() -> tuple[dict[str, Any], dict[str, PageTable]]:
    """A fleet of which nothing is known: no cluster, no host, no row."""
    tables = {name: table(name, []) for name in (*TABLES, *CHARTS) if name != "usage_partitions"}
    totals = dict.fromkeys(
        [
            "bytes",
            "allocated",
            "current",
            "future",
            "stray",
            "delete",
            "other",
            "orphans",
            "orphan_bytes",
            "missing_replicas",
            "duplicates",
            "leftovers",
        ],
        0,
    )
    report = {
        "schema": "logagent.fleet-report/1",
        "run_id": "r",
        "at": AS_OF,
        "as_of": AS_OF,
        "date": "2026-11-20",
        "clusters": [],
        "hosts": {
            "reporting": 0,
            "unknown": [],
            "unknown_total": 0,
            "enforcing": 0,
            "accepting": 0,
            "refusing": 0,
            "acts_unknown": 0,
        },
        "totals": totals,
        "tables": {},
        "warnings": [],
        "place": "/srv/reports/r",
        "commands": dict(WAYS),
        "answers": {
            "disks": answers.disks([]),
            "reclaim": answers.reclaimable([], {}, None, []),
            "risk": answers.risks(Choice([], []), [], [], (0, 0), 0, (0, 0)),
            "replicas": {"total": dict.fromkeys(REPLICA_COUNTS, 0), "not_compared": [], "no_copy": 0},
            "steps": [],
            "changes": [],
        },
    }
    return report, tables


def sample(**size: int) -> tuple[dict[str, Any], dict[str, PageTable]]:
    """Report and tables of a made-up fleet."""
    fleet = Fleet(**size)
    made = with_reclaim(tables(fleet))
    return report(fleet, made), made
