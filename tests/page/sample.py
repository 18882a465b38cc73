"""Fleet reports of any size for the page's tests: by a seed, no Spark, in the form of `logagent.fleet.contract`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from logagent.fleet.contract import CHARTS, PAGE_ROWS, TABLES, PageTable

GIB, TIB = 2**30, 2**40
Row = dict[str, Any]
AS_OF = "2026-11-20T06:00:00.000Z"
WORDS = (
    "orders payments clicks sessions ledger invoices audit metrics traces shipments stock prices quotes users logins "
    "emails sms fraud risk ads carts returns search recommendations telemetry sensors vehicles trips billing refunds"
).split()


def table(name: str, rows: Sequence[Row], total: int | None = None) -> PageTable:
    """`rows` with the columns of the contract (absent ones null), cut as the job cuts them."""
    columns = (TABLES.get(name) or CHARTS[name]).names
    cut = [{column: row.get(column) for column in columns} for row in rows[:PAGE_ROWS]]
    return {"columns": columns, "rows": cut, "total": len(rows) if total is None else total}


class Fleet:
    """A made-up fleet. `hosts` over `clusters`; tables say that there are more rows where `hosts` exceeds them."""

    def __init__(
        self, seed: int = 1, *, clusters: int = 3, hosts: int = 36, orphans: int = 140, dates: int = 21
    ) -> None:
        self.random = random.Random(seed)
        names = ("MkU3OEVBNTcwNTJENDM2Qk", "q8nXh2tPTfW3m0cVbL5RyA", "Zr7eK1dQSJ-uw9GvT4oXpg", "b5YcNf6aQ0mHs8DjPzEktw")
        self.clusters = list(names[:clusters])
        self.host_count, self.orphan_count, self.dates = hosts, orphans, dates
        self.log_dirs = [row for number in range(min(hosts, 1200)) for row in self._log_dirs_of(number)]
        self.hosts = [self._host(number) for number in range(min(hosts, 1200))]
        self.topics = [self._topic(number) for number in range(400)]

    def _place(self, number: int) -> Row:
        cluster = self.clusters[number % len(self.clusters)]
        zone = "abc"[number // len(self.clusters) % 3]
        return {
            "cluster_id": cluster,
            "node_id": 1001 + number,
            "host": f"kafka-{zone}-{1001 + number}.prod.example.net",
        }

    def _ledger(self, size: int, fullness: float) -> Row:
        used = int(size * fullness)
        stray = int(used * self.random.choice((0, 0, 0.01, 0.06)))
        delete = int(used * self.random.choice((0, 0.002, 0.03)))
        future = int(used * self.random.choice((0, 0, 0, 0.05)))
        other = int(used * 0.004)
        open_removed = int(used * self.random.choice((0, 0, 0, 0.02)))
        unexplained = int(used * self.random.choice((0.001, 0.002, 0.04)))
        current = used - stray - delete - future - other - open_removed - unexplained
        return {
            "size": size, "used": used, "free": size - used, "current": current, "future": future, "stray": stray,
            "delete": delete, "other": other, "open_removed": open_removed, "unexplained": unexplained,
            "bytes": current + future + stray + delete, "allocated": int((current + future + stray + delete) * 1.002),
            "used_share": used / size,
        }  # fmt: skip

    def _log_dirs_of(self, number: int) -> list[Row]:
        rows = []
        for disk in range(1, 4):
            offline = number == 7 and disk == 2
            place = {**self._place(number), "log_dir": f"/var/lib/kafka/data-{disk}"}
            size = self.random.choice((2, 4)) * TIB
            ledger = {} if offline else self._ledger(size, min(self.random.betavariate(6, 4), 0.985))
            rows.append({
                **place, **ledger, "health": "offline" if offline else "online",
                "reason": "EIO on /var/lib/kafka/data-2: Input/output error" if offline else None,
                "dirs": self.random.randrange(200, 1400), "orphans": self.random.choice((0, 0, 2)),
                "orphan_bytes": self.random.choice((0, GIB)), "skew": self.random.uniform(0.7, 1.5),
            })  # fmt: skip
        return rows

    def _host(self, number: int) -> Row:
        mine = [row for row in self.log_dirs if row["node_id"] == 1001 + number]
        summed = ("size", "used", "free", "current", "future", "stray", "delete", "other", "open_removed")
        sums = {
            key: sum(row.get(key, 0) for row in mine)
            for key in (*summed, "unexplained", "bytes", "allocated", "dirs", "orphans", "orphan_bytes")
        }
        return {
            **self._place(number), **sums, "used_share": sums["used"] / sums["size"], "log_dirs": len(mine),
            "offline_log_dirs": sum(row["health"] == "offline" for row in mine), "agent_version": "0.1.0",
            "kafka_version": self.random.choice(("3.9.1", "3.9.1", "4.0.0")), "snapshot_id": f"{number:08x}",
            "snapshot_at": "2026-11-20T05:31:12.408Z", "snapshot_age_seconds": 1727.6, "clock_skew_seconds": 0.4,
            "skew": self.random.uniform(0.6, 1.6), "log_dir_skew": self.random.uniform(1, 1.5),
        }  # fmt: skip

    def _topic(self, number: int) -> Row:
        name = (
            f"{self.random.choice(WORDS)}.{self.random.choice(WORDS)}-{number}"
            if number % 5
            else f"{self.random.choice(WORDS)}-{number}"
        )
        size = int(self.random.paretovariate(0.75) * 6 * GIB) % (9 * TIB)
        return {
            "cluster_id": self.random.choice(self.clusters), "topic": name, "topic_id": f"T{number:021d}",
            "partitions": self.random.choice((1, 6, 12, 48, 96)), "copies": 36, "bytes": size, "allocated": size,
            "current": size, "future": 0, "stray": 0, "delete": 0, "largest_partition": size // 10,
            "skew": self.random.uniform(1, 4), "orphans": 0, "orphan_bytes": self.random.choice((0, 0, size // 8)),
        }  # fmt: skip

    def orphans(self) -> list[Row]:
        rows = []
        for number in range(min(self.orphan_count, PAGE_ROWS)):
            host = self.random.choice(self.log_dirs)
            topic, elsewhere = self.random.choice(self.topics), self.random.choice((0, 1, 2, 2))
            partition = self.random.randrange(48)
            rows.append({
                **{key: host[key] for key in ("cluster_id", "node_id", "host", "log_dir")},
                "name": f"{topic['topic']}-{partition}", "topic": topic["topic"], "topic_id": topic["topic_id"],
                "partition": partition, "reason": self.random.choice(("topic-absent", "topic-absent", "topic-recreated", "not-a-replica")),
                "bytes": (size := int(self.random.paretovariate(0.6) * GIB) % TIB), "allocated": size + 4096,
                "age_seconds": self.random.uniform(3600, 90 * 86400), "sightings": self.random.randrange(1, 400),
                "copies_elsewhere": elsewhere, "only_copy": elsewhere == 0,
                "longest_copy": self.random.choice((True, False, None)), "last_segment_offset": 10**6,
                "newest_mtime": "2026-10-02T11:05:09.000Z", "kind": "current",
                "agent_verdict": self.random.choice(("orphan", "orphan", "unknown")), "agent_reason": "stale-assignments" if number % 3 else "topic-absent",
            })  # fmt: skip
        return sorted(rows, key=lambda row: -row["bytes"])

    def leftovers(self) -> list[Row]:
        rows = []
        for number in range(60):
            host = self.random.choice(self.log_dirs)
            topic, kind = self.random.choice(self.topics), self.random.choice(("stray", "stray", "delete", "future"))
            rows.append({
                **{key: host[key] for key in ("cluster_id", "node_id", "host", "log_dir")},
                "name": f"{topic['topic']}-{number % 24}.{self.random.getrandbits(128):032x}-{kind}", "kind": kind,
                "topic": topic["topic"], "partition": number % 24, "topic_id": topic["topic_id"],
                "bytes": (size := self.random.randrange(300 * GIB)), "allocated": size,
                "age_seconds": self.random.uniform(3600, 40 * 86400), "marked_at": "2026-11-09T22:14:07.120Z" if kind == "delete" else None,
                "why": {"stray": "set aside", "delete": "overdue", "future": "abandoned"}[kind],
            })  # fmt: skip
        return sorted(rows, key=lambda row: -row["bytes"])

    def growth(self) -> list[Row]:
        if self.dates < 2:
            return []
        last = date(2026, 11, 20)
        span = {"first_date": str(last - timedelta(days=self.dates - 1)), "last_date": str(last), "dates": self.dates}
        rows: list[Row] = []
        for row in self.log_dirs[:60]:
            pace = self.random.choice((-2, 0, 5, 20, 60)) * GIB
            free = row.get("free")
            ahead = free / pace if free is not None and pace > 0 else None
            rows.append({**row, **span, "scope": "log_dir", "bytes_per_day": pace, "days_to_full": ahead})
        for topic in self.topics[:40]:
            rows.append({**topic, **span, "scope": "topic", "bytes_per_day": self.random.randrange(-5, 50) * GIB})
        return sorted(rows, key=lambda row: (row.get("days_to_full") is None, row.get("days_to_full") or 0))

    def growth_chart(self) -> list[Row]:
        rows = []
        for cluster in self.clusters:
            mine = [row for row in self.hosts if row["cluster_id"] == cluster]
            size = sum(row["size"] for row in mine)
            level = sum(row["bytes"] for row in mine)
            for back in range(self.dates - 1, -1, -1):
                silent = 2 if back in (6, 7) and cluster == self.clusters[0] else 0
                share = (1 - back * 0.011) * (len(mine) - silent) / len(mine) * self.random.uniform(0.995, 1.005)
                rows.append({"cluster_id": cluster, "date": str(date(2026, 11, 20) - timedelta(days=back)),
                             "hosts": len(mine) - silent, "bytes": int(level * share), "used": int(level * share * 1.02), "size": size})  # fmt: skip
        return rows

    def topics_chart(self) -> list[Row]:
        ranked = sorted(self.topics, key=lambda row: -row["bytes"])
        rest = {"topic": None, "bytes": sum(row["bytes"] for row in ranked[80:]), "topics": len(ranked) - 80}
        return [{**row, "topics": 1} for row in ranked[:80]] + [rest]

    def health(self) -> list[Row]:
        rows = [
            {**row, "finding": "offline", "detail": row["reason"], "snapshot_at": AS_OF}
            for row in self.log_dirs
            if row["health"] == "offline"
        ]
        rows.append(
            {
                **self._place(4),
                "log_dir": "/var/lib/kafka/data-1",
                "finding": "full",
                "detail": "0 B free",
                "snapshot_at": AS_OF,
            }
        )
        rows.append(
            {
                **self._place(11),
                "finding": "clock-skew",
                "detail": "the host's clock is 7 min ahead",
                "snapshot_at": AS_OF,
            }
        )
        return rows + [{**row, "finding": "unknown-host", "detail": row["why"]} for row in self.unknown()]

    def unknown(self) -> list[Row]:
        why = (
            "no snapshot since 2026-11-18T22:10:41.000Z",
            "the newest file is shorter than its manifest says",
            "sha256 differs from the manifest",
        )
        return [
            {"cluster_id": self._place(n)["cluster_id"], "node_id": 5000 + n, "why": why[n % 3]}
            for n in range(self.unknown_count)
        ]

    @property
    def unknown_count(self) -> int:
        return max(self.host_count // 12, 1)

    def tables(self) -> dict[str, PageTable]:
        by_bytes = sorted(self.hosts, key=lambda row: -row["bytes"])
        by_share = sorted(self.log_dirs, key=lambda row: -row.get("used_share", -1))
        clusters = [self._cluster(cluster) for cluster in self.clusters]
        place = [self._place(number) for number in (3, 5, 8)]
        made = {
            "usage_clusters": table("usage_clusters", clusters),
            "usage_hosts": table("usage_hosts", by_bytes, self.host_count),
            "usage_log_dirs": table("usage_log_dirs", by_share, 3 * self.host_count),
            "usage_topics": table("usage_topics", sorted(self.topics, key=lambda row: -row["bytes"])),
            "orphans": table("orphans", self.orphans(), self.orphan_count),
            "missing_replicas": table("missing_replicas", [
                {**place[n % 3], **self.topics[n], "partition": n, "in_isr": n % 4 == 0, "adding": False, "copies_elsewhere": n % 3} for n in range(12)
            ]),
            "leftovers": table("leftovers", self.leftovers()),
            "duplicates": table("duplicates", [{**place[0], **self.topics[9], "partition": 3, "copies": 2, "log_dirs": "/var/lib/kafka/data-1, /var/lib/kafka/data-3", "bytes": 9 * GIB, "allocated": 9 * GIB}]),
            "log_dir_health": table("log_dir_health", self.health()),
            "growth": table("growth", self.growth()),
            "deletion_progress": table("deletion_progress", [
                {**self.topics[n], "marked": 144, "removed": n * 36, "remaining": 144 - n * 36, "marked_bytes": (5 - n) * TIB, "removed_bytes": n * TIB,
                 "hosts": 12, "hosts_done": 3 * n, "since": "2026-11-18", "done_share": n / 4} for n in range(4)
            ]),
            "quarantined_input": table("quarantined_input", [
                {"cluster_id": self.clusters[0], "node_id": 5000, "date": "2026-11-20", "kind": "file", "file": "landing/x/2026-11-20/5000/ab12.jsonl.gz",
                 "reason": "truncated", "detail": "4,113 of 9,870 rows", "record": None}
            ]),
            "chart_topics": table("chart_topics", self.topics_chart()),
            "chart_growth": table("chart_growth", self.growth_chart()),
        }  # fmt: skip
        return made

    def _cluster(self, cluster: str) -> Row:
        mine = [row for row in self.hosts if row["cluster_id"] == cluster]
        keys = [key for key, value in mine[0].items() if isinstance(value, int) and key != "node_id"]
        return {**{key: sum(row[key] for row in mine) for key in keys}, "cluster_id": cluster, "hosts": len(mine), "unknown_hosts": 1,
                "host_skew": 1.31, "used_share": 0.6}  # fmt: skip

    def report(self, tables: dict[str, PageTable]) -> dict[str, Any]:
        sums = {
            key: sum(row[key] for row in self.hosts)
            for key in ("bytes", "allocated", "current", "future", "stray", "delete", "other")
        }
        return {
            "schema": "logagent.fleet-report/1", "run_id": "2026-11-20-7f3a91", "at": "2026-11-20T06:02:44.310Z", "as_of": AS_OF, "date": "2026-11-20",
            "clusters": [{"cluster_id": cluster, "hosts": 12, "unknown_hosts": 1, "verdicts": "decided", "why": None,
                          "assignments": {"source": "kraft-log", "at": AS_OF, "age_seconds": 212.4, "topics": 400, "partitions": 9000}}
                         for cluster in self.clusters],
            "hosts": {"reporting": self.host_count, "unknown": self.unknown()[:1000], "unknown_total": self.unknown_count},
            "totals": {**sums, "orphans": self.orphan_count, "orphan_bytes": sum(row["bytes"] for row in tables["orphans"]["rows"]),
                       "missing_replicas": tables["missing_replicas"]["total"], "duplicates": 1, "leftovers": tables["leftovers"]["total"]},
            "tables": {name: {"rows": made["total"], "csv": f"{name}.csv", "parquet": f"{name}.parquet", "shown": len(made["rows"])}
                       for name, made in tables.items() if name in TABLES},
            "warnings": ["kafka-b-1012.prod.example.net: the agent's verdicts differ from this report's on 3 directories"],
        }  # fmt: skip


def empty() -> tuple[dict[str, Any], dict[str, PageTable]]:
    """A fleet of which nothing is known: no cluster, no host, no row."""
    tables = {name: table(name, []) for name in (*TABLES, *CHARTS) if name != "usage_partitions"}
    totals = dict.fromkeys(
        "bytes allocated current future stray delete other orphans orphan_bytes missing_replicas duplicates leftovers".split(),
        0,
    )
    report = {
        "schema": "logagent.fleet-report/1", "run_id": "r", "at": AS_OF, "as_of": AS_OF, "date": "2026-11-20", "clusters": [],
        "hosts": {"reporting": 0, "unknown": [], "unknown_total": 0}, "totals": totals, "tables": {}, "warnings": [],
    }  # fmt: skip
    return report, tables


def sample(**size: int) -> tuple[dict[str, Any], dict[str, PageTable]]:
    """Report and tables of a made-up fleet."""
    fleet = Fleet(**size)
    tables = fleet.tables()
    return fleet.report(tables), tables
