"""What a fleet report says of a made-up fleet: orphans, leftovers, findings, growth."""

from __future__ import annotations

from datetime import date, timedelta

from logagent.store.contract import PAGE_ROWS, PageTable
from tests.page.fleet import AS_OF, GIB, TIB, Fleet, Row


def orphans(fleet: Fleet) -> list[Row]:
    rows = []
    for number in range(min(fleet.orphan_count, PAGE_ROWS)):
        host = fleet.random.choice(fleet.log_dirs)
        topic, elsewhere = fleet.random.choice(fleet.topics), fleet.random.choice((0, 1, 2, 2))
        partition = fleet.random.randrange(48)
        rows.append(
            {
                **{key: host[key] for key in ("cluster_id", "node_id", "host", "log_dir")},
                "name": f"{topic['topic']}-{partition}",
                "topic": topic["topic"],
                "topic_id": topic["topic_id"],
                "partition": partition,
                "reason": fleet.random.choice(("topic-absent", "topic-absent", "topic-recreated", "not-a-replica")),
                "bytes": (size := int(fleet.random.paretovariate(0.6) * GIB) % TIB),
                "allocated": size + 4096,
                "age_seconds": fleet.random.uniform(3600, 90 * 86400),
                "sightings": fleet.random.randrange(1, 400),
                "copies_elsewhere": elsewhere,
                "only_copy": elsewhere == 0,
                "longest_copy": fleet.random.choice((True, False, None)),
                "last_segment_offset": 10**6,
                "newest_mtime": "2026-10-02T11:05:09.000Z",
                "kind": "current",
                "agent_verdict": fleet.random.choice(("orphan", "orphan", "unknown")),
                "agent_reason": "stale-assignments" if number % 3 else "topic-absent",
                "window": "approval" if elsewhere == 0 else fleet.random.choice(("restart", "restart", "now")),
                "id": f"{fleet.random.getrandbits(64):016x}",
                # An agent of an earlier version does not say it.
                "inode": None if number % 17 == 5 else 4711 + number,
            }
        )
    return sorted(rows, key=lambda row: -row["allocated"])


def undecided(fleet: Fleet) -> list[Row]:
    """A few of the directories above, of which nothing could be proven."""
    reasons = ("no-topic-id", "sources-disagree", "stale-assignments")
    rows = [{**row, "agent_verdict": "unknown"} for row in orphans(fleet)[:7]]
    return sorted(
        ({**row, "reason": reasons[number % 3]} for number, row in enumerate(rows)),
        key=lambda row: (row["reason"], -row["allocated"]),
    )


def leftovers(fleet: Fleet) -> list[Row]:
    rows = []
    for number in range(60):
        host = fleet.random.choice(fleet.log_dirs)
        topic, kind = fleet.random.choice(fleet.topics), fleet.random.choice(("stray", "stray", "delete", "future"))
        rows.append(
            {
                **{key: host[key] for key in ("cluster_id", "node_id", "host", "log_dir")},
                "name": f"{topic['topic']}-{number % 24}.{fleet.random.getrandbits(128):032x}-{kind}",
                "kind": kind,
                "topic": topic["topic"],
                "partition": number % 24,
                "topic_id": topic["topic_id"],
                "bytes": (size := fleet.random.randrange(300 * GIB)),
                "allocated": size,
                "age_seconds": fleet.random.uniform(3600, 40 * 86400),
                "marked_at": "2026-11-09T22:14:07.120Z" if kind == "delete" else None,
                "window": (window := {"stray": "now" if number % 3 else "later"}.get(kind, "restart")),
                "due_at": "2026-11-23T11:00:00.000Z" if window == "later" else None,
                "why": {"stray": "stray", "delete": "overdue", "future": "abandoned"}[kind],
                "copies_elsewhere": number % 4 if kind == "stray" else None,
                "only_copy": number % 4 == 0 if kind == "stray" else None,
                "longest_copy": number % 4 == 0 if kind == "stray" else None,
                "id": f"{1000 + number:016x}" if kind == "stray" else None,
                "inode": 815 + number,
            }
        )
    return sorted(rows, key=lambda row: -row["allocated"])


def growth(fleet: Fleet) -> list[Row]:
    if fleet.dates < 2:
        return []
    last = date(2026, 11, 20)
    span = {"first_date": str(last - timedelta(days=fleet.dates - 1)), "last_date": str(last), "dates": fleet.dates}
    rows: list[Row] = []
    for row in fleet.log_dirs[:60]:
        pace = fleet.random.choice((-2, 0, 5, 20, 60)) * GIB
        free = row.get("free")
        ahead = free / pace if free is not None and pace > 0 else None
        rows.append({**row, **span, "scope": "log_dir", "bytes_per_day": pace, "days_to_full": ahead})
    for topic in fleet.topics[:40]:
        rows.append({**topic, **span, "scope": "topic", "bytes_per_day": fleet.random.randrange(-5, 50) * GIB})
    return sorted(rows, key=lambda row: (row.get("days_to_full") is None, row.get("days_to_full") or 0))


def growth_chart(fleet: Fleet) -> list[Row]:
    rows = []
    for cluster in fleet.clusters:
        mine = [row for row in fleet.hosts if row["cluster_id"] == cluster]
        size = sum(row["size"] for row in mine)
        level = sum(row["allocated"] for row in mine)
        for back in range(fleet.dates - 1, -1, -1):
            silent = 2 if back in (6, 7) and cluster == fleet.clusters[0] else 0
            share = (1 - back * 0.011) * (len(mine) - silent) / len(mine) * fleet.random.uniform(0.995, 1.005)
            rows.append(
                {
                    "cluster_id": cluster,
                    "date": str(date(2026, 11, 20) - timedelta(days=back)),
                    "hosts": len(mine) - silent,
                    "bytes": int(level * share),
                    "used": int(level * share * 1.02),
                    "size": size,
                    "log_dirs": 3 * (len(mine) - silent),
                    "was": int(level * share * 1.02),
                }
            )
        for row in rows[-fleet.dates :]:
            row["now"] = rows[-1]["used"] * row["log_dirs"] // rows[-1]["log_dirs"]
    return rows


def health(fleet: Fleet) -> list[Row]:
    rows = [
        {**row, "finding": "offline", "detail": row["reason"], "snapshot_at": AS_OF, "since": "2026-11-17"}
        for row in fleet.log_dirs
        if row["health"] == "offline"
    ]
    rows.append(
        {
            **fleet.place(4),
            "log_dir": "/var/lib/kafka/data-1",
            "finding": "full",
            "detail": "0 B free",
            "snapshot_at": AS_OF,
        }
    )
    rows.append(
        {
            **fleet.place(11),
            "finding": "clock-skew",
            "detail": "the host's clock is 7 min ahead",
            "snapshot_at": AS_OF,
        }
    )
    return rows + [{**row, "finding": "unknown-host", "detail": row["why"]} for row in fleet.unknown()]


def audit(fleet: Fleet) -> list[Row]:
    """What agents did, newest first: half of it removals, some of which failed."""
    actions = ("remove", "quarantine", "remove", "restore")
    return [
        {
            **fleet.place(n % fleet.host_count),
            **{key: fleet.topics[n][key] for key in ("topic", "topic_id")},
            "finished_at": f"2026-11-{20 - n // 4:02d}T05:{59 - n % 60:02d}:00.000Z",
            "began_at": f"2026-11-{20 - n // 4:02d}T05:{59 - n % 60:02d}:00.000Z",
            "action": actions[n % 4],
            "outcome": "failed" if n % 7 == 6 else "done",
            "error": "Input/output error" if n % 7 == 6 else None,
            "log_dir": f"/var/lib/kafka/data-{1 + n % 3}",
            "name": f"{fleet.topics[n]['topic']}-{n}.{n:032x}-stray",
            "new_name": f"{fleet.topics[n]['topic']}-{n}" if n % 4 == 3 else None,
            "partition": n,
            "bytes": (n + 1) * 977 * GIB // 10,
            "allocated": (n + 1) * 977 * GIB // 11,
            "actor": ("daemon", "cli:anna", "request 7d1c")[n % 3],
            "approved": n % 3 == 1,
            "claim": ("topic-absent", "covered", "given-up")[n % 3],
            "witness": ("kraft-log", "leader", "operator")[n % 3],
            "as_of": "2026-11-20T05:00:00.000Z",
            "claims": "online by probe, stopped by lock, topic-absent by kraft-log",
            "plan_id": f"{n:012x}",
            "act_id": 100 - n,
            "since": "2026-11-19" if n < 4 else "2026-11-13" if n < 28 else None,
        }
        for n in range(40)
    ]


def by_agents(made: PageTable, since: str) -> Row:
    """What the first screen says of these rows."""
    removed = [
        row
        for row in made["rows"]
        if (row["action"], row["outcome"]) == ("remove", "done") and (row["since"] or "") >= since
    ]
    sums = {"dirs": len(removed), "bytes": sum(row["allocated"] for row in removed)}
    return {**sums, "otherwise": 3, "otherwise_bytes": TIB, "unknown_hosts": 2, "left_out": 0}
