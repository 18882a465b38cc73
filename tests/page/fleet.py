"""A made-up fleet for the page's tests: hosts, log dirs and topics, by a seed."""

from __future__ import annotations

import random
from typing import Any

from logagent import __version__

GIB, TIB = 2**30, 2**40
Row = dict[str, Any]
CAUSES = ("silent", "broken file", "never heard")
AS_OF = "2026-11-20T06:00:00.000Z"
WORDS = [
    "orders",
    "payments",
    "clicks",
    "sessions",
    "ledger",
    "invoices",
    "audit",
    "metrics",
    "traces",
    "shipments",
    "stock",
    "prices",
    "quotes",
    "users",
    "logins",
    "emails",
    "sms",
    "fraud",
    "risk",
    "ads",
    "carts",
    "returns",
    "search",
    "recommendations",
    "telemetry",
    "sensors",
    "vehicles",
    "trips",
    "billing",
    "refunds",
]


class Fleet:
    """A made-up fleet. `hosts` over `clusters`; tables say that there are more rows where `hosts` exceeds them."""

    def __init__(
        self, seed: int = 1, *, clusters: int = 3, hosts: int = 36, orphans: int = 140, dates: int = 21
    ) -> None:
        self.random = random.Random(seed)
        names = ("MkU3OEVBNTcwNTJENDM2Qk", "q8nXh2tPTfW3m0cVbL5RyA", "Zr7eK1dQSJ-uw9GvT4oXpg", "b5YcNf6aQ0mHs8DjPzEktw")
        more = (f"{number:03d}{'MkU3OEVBNTcwNTJENDM2Qk'[3:]}" for number in range(clusters - len(names)))
        self.clusters = [*names[:clusters], *more]
        self.host_count, self.orphan_count, self.dates = hosts, orphans, dates
        self.unknown_hosts: int | None = None
        by_host = [self._log_dirs_of(number) for number in range(hosts)]
        self.log_dirs = [row for rows in by_host for row in rows]
        self.hosts = [self._host(number, rows) for number, rows in enumerate(by_host)]
        self.topics = [self._topic(number) for number in range(400)]

    def place(self, number: int) -> Row:
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
            "size": size,
            "used": used,
            "free": size - used,
            "current": current,
            "future": future,
            "stray": stray,
            "delete": delete,
            "other": other,
            "open_removed": open_removed,
            "unexplained": unexplained,
            "open_unread": unexplained,
            "bytes": current + future + stray + delete,
            "allocated": int((current + future + stray + delete) * 1.002),
            "used_share": used / size,
        }

    def _log_dirs_of(self, number: int) -> list[Row]:
        rows = []
        for disk in range(1, 4):
            offline = number == 7 and disk == 2
            place = {**self.place(number), "log_dir": f"/var/lib/kafka/data-{disk}"}
            size = self.random.choice((2, 4)) * TIB
            ledger = {} if offline else self._ledger(size, min(self.random.betavariate(6, 4), 0.985))
            rows.append(
                {
                    **place,
                    **ledger,
                    "health": "offline" if offline else "online",
                    "reason": "EIO on /var/lib/kafka/data-2: Input/output error" if offline else None,
                    "dirs": self.random.randrange(200, 1400),
                    "orphans": self.random.choice((0, 0, 2)),
                    "orphan_bytes": self.random.choice((0, GIB)),
                    "skew": self.random.uniform(0.7, 1.5),
                }
            )
        return rows

    def _host(self, number: int, mine: list[Row]) -> Row:
        summed = ("size", "used", "free", "current", "future", "stray", "delete", "other", "open_removed")
        sums = {
            key: sum(row.get(key, 0) for row in mine)
            for key in (*summed, "unexplained", "open_unread", "bytes", "allocated", "dirs", "orphans", "orphan_bytes")
        }
        return {
            **self.place(number),
            **sums,
            "used_share": sums["used"] / sums["size"],
            "log_dirs": len(mine),
            "offline_log_dirs": sum(row["health"] == "offline" for row in mine),
            "agent_version": __version__,
            "mode": "enforce" if number % 3 else "report",
            "accepts": "ops" if number % 4 else "none",
            "unread_processes": number % 3 and 130,
            "kafka_version": self.random.choice(("3.9.1", "3.9.1", "4.0.0")),
            "snapshot_id": f"{number:08x}",
            "snapshot_at": "2026-11-20T05:31:12.408Z",
            "snapshot_age_seconds": 1727.6,
            "clock_skew_seconds": 0.4,
            "skew": self.random.uniform(0.6, 1.6),
            "log_dir_skew": self.random.uniform(1, 1.5),
        }

    def _topic(self, number: int) -> Row:
        name = (
            f"{self.random.choice(WORDS)}.{self.random.choice(WORDS)}-{number}"
            if number % 5
            else f"{self.random.choice(WORDS)}-{number}"
        )
        size = int(self.random.paretovariate(0.75) * 6 * GIB) % (9 * TIB)
        return {
            "cluster_id": self.random.choice(self.clusters),
            "topic": name,
            "topic_id": f"T{number:021d}",
            "partitions": self.random.choice((1, 6, 12, 48, 96)),
            "copies": 36,
            "bytes": size,
            "allocated": size,
            "current": size,
            "future": 0,
            "stray": 0,
            "delete": 0,
            "largest_partition": size // 10,
            "skew": self.random.uniform(1, 4),
            "orphans": 0,
            "orphan_bytes": self.random.choice((0, 0, size // 8)),
        }

    def unknown(self) -> list[Row]:
        why = (
            "no snapshot since 2026-11-18T22:10:41.000Z",
            "the newest file is shorter than its manifest says",
            "it has sent no complete snapshot",
        )
        return [
            {"cluster_id": self.place(n)["cluster_id"], "node_id": 5000 + n, "why": why[n % 3], "cause": CAUSES[n % 3]}
            for n in range(self.unknown_count)
        ]

    @property
    def unknown_count(self) -> int:
        return max(self.host_count // 12, 1) if self.unknown_hosts is None else self.unknown_hosts

    def cluster(self, cluster: str) -> Row:
        mine = [row for row in self.hosts if row["cluster_id"] == cluster]
        keys = [key for key, value in mine[0].items() if isinstance(value, int) and key != "node_id"]
        return {
            **{key: sum(row[key] for row in mine) for key in keys},
            "cluster_id": cluster,
            "hosts": len(mine),
            "unknown_hosts": 1,
            "host_skew": 1.31,
            "used_share": 0.6,
        }
