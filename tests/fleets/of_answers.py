"""The sections of `report.json`, from the tables that the landing comes to."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import Any

from tests.fleets.of_directories import WINDOWS, Directories, grouped
from tests.fleets.of_hosts import Hosts, Says, total
from tests.fleets.of_replicas import STATES, UNDECIDED, Replicas
from tests.fleets.of_time import Time
from tests.fleets.published import Fleet, Node, Row

PLACE = ("cluster_id", "node_id", "log_dir")
STEP = ("cluster_id", "node_id", "host", "log_dir", "topic")


def text_of(at: int | None) -> str | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Answers:
    def __init__(self, fleet: Fleet, directories: Directories, replicas: Replicas, hosts: Hosts, time: Time) -> None:
        self.fleet, self.directories, self.replicas, self.hosts_, self.time = fleet, directories, replicas, hosts, time
        order = (lambda r: r["log_dir"], lambda r: r["node_id"], lambda r: r["cluster_id"], lambda r: -r["allocated"])
        self.places = list(hosts.usage_log_dirs)
        for key in (*order, lambda r: (r["used_share"] is None, -(r["used_share"] or 0))):
            self.places.sort(key=key)
        self.paces = {tuple(r[n] for n in PLACE): r["days_to_full"] for r in time.growth() if r["scope"] == "log_dir"}

    def clusters(self) -> list[Row]:
        found = []
        for row in self.hosts_.usage_clusters:
            cluster = row["cluster_id"]
            image, one = (
                self.fleet.images[cluster],
                {name: row[name] for name in ("cluster_id", "hosts", "unknown_hosts")},
            )
            one |= {"name": None, "verdicts": "unknown", "why": Says(["no complete assignments"])}
            one |= {"assignments": None, "replicas": None}
            if image is not None:
                topics = {(each["topic"], each["topic_id"]) for each in image.rows["partition"]}
                said: Row = {"source": image.head["source"], "at": text_of(image.at), "topics": len(topics)}
                said |= {"partitions": len(image.rows["partition"])}
                said |= {"age_seconds": (self.fleet.as_of - image.happened) / 1000}
                one |= {"assignments": said, "replicas": self.replicas.counts[cluster]}
                one |= {"verdicts": "decided", "why": None}
            found.append(one)
        return found

    def hosts(self) -> Row:
        rows = self.hosts_.usage_hosts
        silent = [
            {"cluster_id": node.cluster, "node_id": node.node, "why": Says(self.hosts_._why(node))}
            for node in sorted(self.fleet.unknown)
        ]
        return {
            "reporting": len(rows),
            "unknown": silent,
            "unknown_total": len(silent),
            "enforcing": sum(row["mode"] == "enforce" for row in rows),
            "accepting": sum(row["accepts"] not in (None, "none") for row in rows),
            "refusing": sum(row["accepts"] == "none" for row in rows),
            "acts_unknown": sum(file.head.get("acts") is None for file in self.fleet.hosts.values()),
        }

    def totals(self) -> Row:
        rows = self.hosts_.usage_clusters
        names = ("bytes", "allocated", "current", "future", "stray", "delete", "other", "orphans", "orphan_bytes")
        counts = {"missing_replicas": self.replicas.rows("missing"), "leftovers": self.directories.leftovers}
        counts["duplicates"] = self.directories.duplicates()
        return {n: sum(r[n] or 0 for r in rows) for n in names} | {n: len(each) for n, each in counts.items()}

    def answers(self) -> Row:
        return {
            "disks": self._disks(), "reclaim": self._reclaim(), "risk": self._risk(), "replicas": self._replicas(),
            "steps": self._steps(), "changes": self.time.changes(),
        }  # fmt: skip

    def _disks(self) -> Row:
        known = [row["used_share"] for row in self.places if row["used_share"] is not None]
        bins = Counter(min(int(share * 20), 19) for share in known)
        found: Row = {name: total(self.places, name) or 0 for name in ("size", "used", "free")}
        found |= {"log_dirs": len(self.places), "fullness": [bins[n] for n in range(20)]}
        nearly = sum(round(share, 4) >= 0.95 for share in known)
        return found | {"nearly_full": nearly, "unread": len(self.places) - len(known)}

    def _reclaim(self) -> Row:
        waste, found = self.directories.waste, {}
        for window in WINDOWS:
            rows = [row for row in waste if row["window"] == window]
            asked = [row for row in rows if _can_be_asked(row)]
            found[window] = {
                "dirs": len(rows), "bytes": _bytes(rows), "hosts": len(grouped(rows, *PLACE[:2])),
                "requestable": len(asked), "asked_bytes": _bytes(asked),
            }  # fmt: skip
        dues = [row["due_at"] for row in waste if row["window"] == "later" and row["due_at"] is not None]
        sums = {
            name: total(self.places, name) or 0 for name in ("delete", "open_removed", "open_unread", "unexplained")
        }
        overdue = _bytes([row for row in waste if row["kind"] == "delete"])
        more = {
            "next_due": text_of(min(dues, default=None)),
            "barred": _bytes([row for row in waste if row["window"] is None]),
        }
        more |= {"marked": max(0, sums.pop("delete") - overdue)}
        more |= {"unread_hosts": sum(row["unread_processes"] != 0 for row in self.hosts_.usage_hosts)}
        return {**found, **more, **{name: max(0, value) for name, value in sums.items()}}

    def _risk(self) -> Row:
        lost = self.replicas.lost("missing")
        missing = self.replicas.rows("missing")
        alone = [row for row in missing if not row["copies_elsewhere"]]
        only = [row for row in self.directories.orphans if row["only_copy"]]
        ahead = sorted(days for days in self.paces.values() if days is not None)
        health = Counter(row["health"] for row in self.places)
        causes = Counter(self.fleet.unknown[node][0] for node in sorted(self.fleet.unknown))
        return {
            "no_copy": len(lost), "no_copy_replicas": len(alone), "missing_elsewhere": len(missing) - len(alone),
            "only_copies": {"dirs": len(only), "bytes": _bytes(only)},
            "full_soon": sum(days <= 7 for days in ahead), "full_later": sum(days <= 30 for days in ahead),
            "next_full_days": ahead[0] if ahead else None,
            "pace_unknown": sum(tuple(row[n] for n in PLACE) not in self.paces for row in self.places),
            "offline": health["offline"], "read_only": health["read-only"], "full": health["full"],
            "unknown": [{"cause": cause, "hosts": hosts} for cause, hosts in causes.most_common()],
        }  # fmt: skip

    def _replicas(self) -> Row:
        known = [counts for counts in self.replicas.counts.values() if counts["expected"] is not None]
        rows = self.replicas.rows(*UNDECIDED)
        compared = [
            {"state": state, "reason": why, "replicas": len(each), "hosts": len(grouped(each, *PLACE[:2]))}
            for (state, why), each in sorted(grouped(rows, "state", "reason").items())
        ]
        total_ = {name: sum(each[name] for each in known) for name in ("expected", *STATES)}
        some = self.replicas.lost(*UNDECIDED) - self.replicas.lost("missing")
        return {"total": total_, "not_compared": compared, "no_copy": len(some)}

    def _steps(self) -> list[Row]:
        """Log dirs by the time that is left, two at most; what fails; then what gives back most: a host, and topics."""
        risk, found = self._risk(), [step for _, step in sorted(self._filling(), key=lambda each: each[0])[:2]]
        for what, name in (("offline", "offline"), ("read-only", "read_only"), ("no-copy", "no_copy")):
            if risk[name]:
                found.append(_step(what, {}, 0, None, hosts=risk[name]))
        seen = {Node(step["cluster_id"], step["node_id"]) for step in found}
        hosts: Counter[Node] = Counter()
        for row in self.places:
            hosts[Node(row["cluster_id"], row["node_id"])] += row["reclaim_now"]
        names = {Node(row["cluster_id"], row["node_id"]): row for row in self.places}
        for node, gives in hosts.most_common(6):
            if gives and node not in seen:
                found.append(_step("host", names[node] | {"log_dir": None}, gives, "now"))
                break
        topics = self._topics()
        return [*found[: 6 - bool(topics)], *topics][:6]

    def _filling(self) -> list[tuple[Any, Row]]:
        found = []
        for row in self.places:
            full, share = row["health"] == "full", row["used_share"] or 0
            days = self.paces.get(tuple(row[name] for name in PLACE))
            days = 0.0 if full else days if days is not None and days <= 30 else None
            window = "now" if row["reclaim_now"] >= row["reclaim_restart"] else "restart"
            gives = row[f"reclaim_{window}"]
            if row["shares_with"] is None and (full or round(share, 4) >= 0.95 or (days is not None and gives)):
                order = 1.0 if days is None else days, -share, -gives
                found.append((order, _step("log-dir", row, gives, window if gives else None, days=days)))
        return found

    def _topics(self) -> list[Row]:
        found = []
        sooner = [row for row in self.directories.waste if row["window"] in ("now", "restart") and row["topic"]]
        for (cluster, topic), rows in grouped(sooner, "cluster_id", "topic").items():
            asked: dict[str, list[Row]] = defaultdict(list)
            for row in filter(_can_be_asked, rows):
                asked[row["window"]].append(row)
            in_ = {window: _bytes([row for row in rows if row["window"] == window]) for window in ("now", "restart")}
            window = max(in_, key=lambda each: (_bytes(asked[each]), in_[each]))
            able = len(asked[window])
            gives = _bytes(asked[window]) if able else in_[window]
            step = _step("topic", {"cluster_id": cluster, "topic": topic}, gives, window,
                         hosts=len({row["node_id"] for row in asked[window]}))  # fmt: skip
            found.append(((-_bytes(rows), cluster, topic), step | {"requestable": able}))
        return [step for order, step in sorted(found, key=lambda each: each[0])[:2] if order[0]]


def _bytes(rows: list[Row]) -> int:
    return sum(row["allocated"] for row in rows)


def _can_be_asked(row: Row) -> bool:
    """Whether `topics purge` can name it: not by a name that is not UTF-8, nor of a topic of Kafka's own."""
    return row["id"] is not None and row["inode"] is not None and not row["topic"].startswith("_")


def _step(what: str, row: Row, gives: int, window: str | None, *, days: float | None = None, hosts: int = 1) -> Row:
    named = {name: row.get(name) for name in STEP}
    return {"what": what, **named, "bytes": gives, "window": window, "days": days, "hosts": hosts, "requestable": None}
