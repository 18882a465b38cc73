"""What a daemon publishes is what the fleet takes: nothing rejected, nothing lost.

What `topics purge` reads of a daemon's snapshot in a report: `tests/spark/test_pasted_commands.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

from logagent.fleet.ingest.dates import ingest_dates
from logagent.fleet.tables.store import Store
from logagent.store.shared import init_store
from tests.host import Host

STRAY = f"orders-0.{'0123456789abcdef' * 2}-stray"


def test_a_daemons_snapshot_is_ingested_without_a_rejected_row(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.mkdir()
    init_store(str(path))
    host = Host.from_disk(tmp_path)
    # What a snapshot seldom has: names that are not UTF-8 and no partition's, a truncated name, an empty directory.
    os.mkdir(os.fsencode(host.d1) + b"/caf\xe9-0")
    (host.d1 / f"{'long' * 50}-7.{'0123456789abcdef' * 2}-delete").mkdir()
    (host.d2 / "not a partition").mkdir()
    (host.d2 / "empty-0").mkdir()
    (host.d2 / STRAY).mkdir()
    host.with_assignments(**{"publish.store": str(path), "metrics.listen": "", "assignments.max_age": "1h"})
    ran = host.spawn("run", "--once")
    assert ran.status == 0, ran.err

    store = Store.open(spark, str(path))
    (done,) = ingest_dates(store, None)
    assert (done.taken, done.waiting, done.rejected, done.superseded) == (2, 0, 0, 0)
    (day,) = store.dates()
    commit = store.commit_of(day)
    assert commit is not None
    assert store.small("quarantine", commit) == []
    scan = host.run("scan", "--json").json
    dirs = store.read("dirs", [commit]).collect()
    assert {(r.log_dir, r.name, r.kind, r.bytes, r.topic_id) for r in dirs} == {
        (d["log_dir"], _as_stored(d["name"]), d["kind"], d["bytes"], d["topic_id"]) for d in scan["dirs"]
    }
    (stray,) = (r for r in dirs if r.name == STRAY)
    # Nobody knows whose it is: no date stands beside that.
    assert (stray.window, stray.due_at, stray.covered) == (None, None, None)
    assert (stray.obstacle, stray.obstacle_detail[:21]) == ("no-topic-id", "its owner is unknown ")
    assert [r for r in dirs if r.kind == "current" and r.files if r.newest_mtime is None] == []
    log_dirs = store.small("log_dirs", commit)
    assert {(r["log_dir"], r["health"], r["size"]) for r in log_dirs} == {
        (d["path"], d["health"], d["ledger"]["size"]) for d in scan["log_dirs"]
    }
    assert store.read("assignments", [commit]).count() == scan["assignments"]["partitions"]
    (snapshot,) = (row for row in store.small("files", commit) if row["kind"] == "snapshot")
    said = (snapshot["status"], snapshot["cluster_id"], snapshot["node_id"])
    assert said == ("taken", scan["cluster_id"], scan["node_id"])
    assert snapshot["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert snapshot["rows"] == 1 + len(scan["log_dirs"]) + len(scan["dirs"])


def _as_stored(name: str) -> str:
    """Bytes that are not UTF-8 are kept as the text of their escape."""
    return name.encode("utf-8", "backslashreplace").decode()
