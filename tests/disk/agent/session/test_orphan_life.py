"""The life of an orphan on a real disk: seen, seen again, set aside, kept, removed; and the pre-start window."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli_host import NO_LIMITS, CliHost
from tests.kafka_disks import expected

NOW = {"cleanup.min_age": "0s", "cleanup.sightings": 1}
ORPHAN_REASONS = ("topic-absent", "topic-recreated", "not-a-replica")


@pytest.fixture
def host(tmp_path: Path) -> CliHost:
    return CliHost(tmp_path)


def quarantined(host: CliHost, *arguments: str) -> dict[str, str]:
    ran = host.run("cleanup", "--json", *arguments)
    assert ran.status in (0, 4), ran.err
    return {a["name"]: a["reason"] for a in ran.json["actions"] if a["action"] == "quarantine"}


def test_exactly_the_proven_orphans_are_set_aside(host: CliHost) -> None:
    host.with_assignments(**NOW, **NO_LIMITS)
    document = host.run("scan", "--json").json
    orphans = {(d["log_dir"], d["name"]): d["reason"] for d in document["dirs"] if d["verdict"] == "orphan"}
    made = {
        str(host.disk / o["dir"]): o["cause"]
        for o in expected("3.9.1/node3-dir-returned")["orphans"]
        if o["reason"] in (*ORPHAN_REASONS, "future") and o["cause"] in ORPHAN_REASONS
    }
    assert {f"{d}/{n}": reason for (d, n), reason in orphans.items()} == made
    assert quarantined(host, "--execute") == {name: reason for (_, name), reason in orphans.items()}
    after = host.run("scan", "--json").json
    assert not [d["name"] for d in after["dirs"] if d["verdict"] == "orphan"]


def test_an_orphan_has_to_be_seen_so_often_and_only_acting_sessions_count(host: CliHost) -> None:
    host.with_assignments(**{**NOW, "cleanup.sightings": 3}, **NO_LIMITS)
    assert quarantined(host) == quarantined(host) == {}, "looking counts nothing"
    assert quarantined(host, "--execute") == {}
    assert quarantined(host, "--execute") == {}
    waiting = host.run("cleanup", "--json").json["waiting"]
    assert {w["sightings"] for w in waiting if w["action"] == "quarantine"} == {2}
    assert quarantined(host, "--execute") != {}


def test_an_orphan_has_to_be_so_old_over_restarts(host: CliHost) -> None:
    host.with_assignments(**{**NOW, "cleanup.min_age": "24h"}, **NO_LIMITS)
    assert quarantined(host, "--execute") == {}
    host.with_assignments(**{**NOW, "cleanup.min_age": "24h"}, **NO_LIMITS)
    assert quarantined(host, "--execute") == {}
    with sqlite3.connect(host.state / "journal.db") as journal:
        # A day later, as far as the journal remembers.
        journal.execute("UPDATE sightings SET first_ms = first_ms - 86400000")
    journal.close()
    assert quarantined(host, "--execute") != {}


def test_an_orphan_that_changes_starts_over(host: CliHost) -> None:
    host.with_assignments(**{**NOW, "cleanup.sightings": 2}, **NO_LIMITS)
    assert quarantined(host, "--execute") == {}
    changed = next(d for d in host.run("scan", "--json").json["dirs"] if d["verdict"] == "orphan" and d["segments"])
    segment = next(Path(changed["log_dir"], changed["name"]).glob("*.log"))
    stat = segment.stat()
    os.utime(segment, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000_000))
    second = quarantined(host, "--execute")
    assert second
    assert changed["name"] not in second


def test_without_fresh_assignments_nothing_counts_and_nothing_goes(host: CliHost) -> None:
    host.with_assignments(**{**NOW, "cleanup.sightings": 2}, **NO_LIMITS)
    host.run("cleanup", "--execute")
    host.configure(**{**NOW, "cleanup.sightings": 2}, **NO_LIMITS)
    stale = host.run("scan", "--json").json
    assert {d["reason"] for d in stale["dirs"] if d["verdict"]} == {"stale-assignments"}
    assert quarantined(host, "--execute") == {}


def test_a_clock_that_was_set_makes_nothing_due(host: CliHost) -> None:
    host.configure(**{"cleanup.sightings": 100})
    host.run("cleanup", "--execute")
    with sqlite3.connect(host.state / "journal.db") as journal:
        journal.execute("UPDATE last_cycle SET wall_ms = wall_ms - 7200000")
    journal.close()
    host.with_assignments(**NOW, **{"delete.file_delete_delay_ms": 0, "cleanup.leftover_grace": "0s"}, **NO_LIMITS)
    document = host.run("cleanup", "--execute", "--json").json
    assert document["actions"] == []
    assert any("clock was set" in w["reason"] for w in document["waiting"])


def test_prestart_sets_due_orphans_aside_and_marks_old_strays(host: CliHost) -> None:
    host.with_assignments(**{**NOW, "cleanup.sightings": 2, "cleanup.stray_retention": "30d"}, **NO_LIMITS)
    host.run("cleanup", "--execute")
    host.with_assignments(**NOW, **{"cleanup.stray_retention": "0s"}, **NO_LIMITS)
    before = host.find("", "-stray")
    document = host.run("prestart", "--json", "--budget", "30s").json
    done = {(a["action"], a["outcome"]) for a in document["plan"]["actions"]}
    assert done <= {("quarantine", "done"), ("mark", "done"), ("drop-checkpoint-entry", "done")}
    assert not [a for a in document["plan"]["actions"] if a["action"] == "remove"], "it only renames"
    marked = [a["name"] for a in document["plan"]["actions"] if a["action"] == "mark"]
    assert sorted(marked) == before
    assert document["skipped"] is None
    assert document["spent_ms"] < document["budget_ms"]


def test_prestart_spends_no_more_than_its_budget_and_then_does_nothing(host: CliHost) -> None:
    host.with_assignments(**NOW, **{"cleanup.stray_retention": "0s"}, **NO_LIMITS)
    before = host.partitions()
    document = host.run("prestart", "--json", "--budget", "1ms").json
    assert "budget" in document["skipped"]
    assert host.partitions() == before


def test_prestart_does_nothing_while_somebody_holds_the_log_dirs(host: CliHost) -> None:
    host.with_assignments(**NOW, **{"cleanup.stray_retention": "0s"}, **NO_LIMITS)
    locks = [host.d1 / ".lock", host.d2 / ".lock"]
    for lock in locks:
        lock.touch()
    before = host.partitions()
    hold = (
        "import fcntl, sys; files = [open(p, 'a') for p in sys.argv[1:]];"
        " [fcntl.lockf(f, fcntl.LOCK_EX) for f in files];"
        " print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, *locks], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        ran = host.run("prestart", "--json", "--budget", "30s")
        holder.stdin.close()
    document = json.loads(ran.out)
    assert [a for a in document["plan"]["actions"] if a["outcome"] == "done"] == []
    assert {r["guard"] for r in document["plan"]["refusals"]} <= {"window"}
    assert host.partitions() == before
