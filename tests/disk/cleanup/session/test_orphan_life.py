"""The life of an orphan on a real disk: seen, seen again, set aside, kept, removed; and the pre-start window."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.cleanup.state.journal import Journal
from tests.host import ALL_DUE, NO_LIMITS, Host
from tests.kafka_disks import expected

NOW = {"cleanup.min_age": "0s", "cleanup.sightings": 1}
ORPHAN_REASONS = ("topic-absent", "topic-recreated", "not-a-replica")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


def quarantined(host: Host, *arguments: str) -> dict[str, str]:
    ran = host.run("cleanup", "--json", *arguments)
    assert ran.status in (0, 3, 4), ran.err  # 3: the disk has strays of topics that live here
    return {a["name"]: a["reason"] for a in ran.json["actions"] if a["action"] == "quarantine"}


def test_exactly_the_proven_orphans_are_set_aside(host: Host) -> None:
    host.with_assignments(**NOW, **NO_LIMITS)
    document = host.run("scan", "--json").json
    # Strays have a verdict too; they are set aside already.
    found = [d for d in document["dirs"] if d["verdict"] == "orphan" and d["kind"] != "stray"]
    orphans = {(d["log_dir"], d["name"]): d["reason"] for d in found}
    made = {
        str(host.disk / o["dir"]): o["cause"]
        for o in expected("3.9.1/node3-dir-returned")["orphans"]
        if o["reason"] in (*ORPHAN_REASONS, "future") and o["cause"] in ORPHAN_REASONS
    }
    assert {f"{d}/{n}": reason for (d, n), reason in orphans.items()} == made
    assert quarantined(host, "--execute") == {name: reason for (_, name), reason in orphans.items()}
    after = host.run("scan", "--json").json
    assert not [d["name"] for d in after["dirs"] if d["verdict"] == "orphan" and d["kind"] != "stray"]


def test_an_orphan_has_to_be_seen_so_often_and_only_acting_sessions_remember(host: Host) -> None:
    host.with_assignments(**{**NOW, "cleanup.sightings": 3}, **NO_LIMITS)
    assert quarantined(host) == quarantined(host) == quarantined(host) == {}, "looking is not remembered"
    assert quarantined(host, "--execute") == {}
    waiting = host.run("cleanup", "--json").json["waiting"]
    assert {w["reason"].partition(": ")[2] for w in waiting if w["action"] == "quarantine"} == {"seen 2 of 3 times"}
    assert quarantined(host, "--execute") == {}
    assert quarantined(host, "--execute") != {}


@pytest.mark.parametrize("sightings", [1, 2])
def test_a_dry_run_shows_exactly_what_execute_does(host: Host, sightings: int) -> None:
    """`--execute` counted its own look and acted on what the dry run had shown as waiting."""
    host.with_assignments(**{**NOW, "cleanup.sightings": sightings}, **ALL_DUE, **NO_LIMITS)
    for _ in range(sightings):
        shown = host.run("cleanup", "--json").json
        done = host.run("cleanup", "--json", "--execute").json
        assert [a["id"] for a in shown["actions"]] == [a["id"] for a in done["actions"]]
        assert shown["plan_id"] == done["plan_id"]
        assert [(w["name"], w["reason"]) for w in shown["waiting"]] == [
            (w["name"], w["reason"]) for w in done["waiting"]
        ]
    assert "quarantine" in {a["action"] for a in done["actions"]}


def test_an_orphan_has_to_be_so_old_over_restarts(host: Host) -> None:
    host.with_assignments(**{**NOW, "cleanup.min_age": "24h"}, **NO_LIMITS)
    assert quarantined(host, "--execute") == {}
    host.with_assignments(**{**NOW, "cleanup.min_age": "24h"}, **NO_LIMITS)
    assert quarantined(host, "--execute") == {}
    with sqlite3.connect(host.state / "journal.db") as journal:
        # A day later, as far as the journal remembers.
        journal.execute("UPDATE sightings SET first_ms = first_ms - 86400000")
    journal.close()
    assert quarantined(host, "--execute") != {}


def test_an_orphan_that_changes_starts_over(host: Host) -> None:
    host.with_assignments(**{**NOW, "cleanup.sightings": 2}, **NO_LIMITS)
    assert quarantined(host, "--execute") == {}
    changed = next(d for d in host.run("scan", "--json").json["dirs"] if d["verdict"] == "orphan" and d["segments"])
    segment = next(Path(changed["log_dir"], changed["name"]).glob("*.log"))
    stat = segment.stat()
    os.utime(segment, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000_000))
    second = quarantined(host, "--execute")
    assert second
    assert changed["name"] not in second


def restored(host: Host) -> None:
    assert host.run("restore", "returns-2", "--execute", "--broker-will-delete").status == 0


def with_another_journal(host: Host) -> None:
    state, host.state = host.state, host.root / "other"
    assert host.run("restore", host.find("returns-2.")[0], "--execute", "--broker-will-delete").status == 0
    host.state = state


def by_hand(host: Host) -> None:
    (name,) = host.find("returns-2.")
    where = next(d for d in (host.d1, host.d2) if (d / name).is_dir())
    (where / name).rename(where / "returns-2")


def cut_short(host: Host) -> None:
    """Killed after its rename: the next command that acts settles it."""
    restored(host)
    with sqlite3.connect(host.state / "journal.db") as journal:
        journal.execute("UPDATE actions SET outcome = NULL, finished_at_ms = NULL WHERE action = 'restore'")
    journal.close()


def by_a_clock_behind(host: Host) -> None:
    """What was seen is dated after it."""
    restored(host)
    with sqlite3.connect(host.state / "journal.db") as journal:
        journal.execute("UPDATE actions SET at_ms = at_ms - 864000000 WHERE action = 'restore'")
    journal.close()


def cut_short_by_a_clock_behind(host: Host) -> None:
    """Killed before it was recorded that it was done, and with that what was seen before forgotten."""
    with sqlite3.connect(host.state / "journal.db") as journal:
        seen = journal.execute("SELECT * FROM sightings").fetchall()
        by_a_clock_behind(host)
        journal.execute("DELETE FROM sightings")
        journal.executemany("INSERT INTO sightings VALUES (?,?,?,?,?,?,?,?,?,?)", seen)
        journal.execute("UPDATE actions SET outcome = NULL, finished_at_ms = NULL WHERE action = 'restore'")
    journal.close()


@pytest.mark.parametrize("sightings", [1, 2])
@pytest.mark.parametrize(
    "back", [restored, with_another_journal, by_hand, cut_short, by_a_clock_behind, cut_short_by_a_clock_behind]
)
def test_what_was_brought_back_is_counted_anew(host: Host, sightings: int, back: Callable[[Host], None]) -> None:
    """It had its sightings still, and the next pass set it aside again: an enforcing service undid every restore."""
    host.with_assignments(**{**NOW, "cleanup.sightings": sightings}, **NO_LIMITS)
    done = [quarantined(host, "--execute") for _ in range(sightings)][-1]
    assert "returns-2" in done
    back(host)
    assert "returns-2" not in quarantined(host), "the dry run"
    assert host.run("prestart", "--json", "--budget", "30s").json["plan"]["actions"] == []
    assert "returns-2" not in quarantined(host, "--execute"), "the next pass"
    assert "returns-2" in host.find("returns-2")
    assert "returns-2" in quarantined(host, "--execute"), "seen twice since"


def test_a_restore_starts_the_age_anew(host: Host) -> None:
    ages = {**NOW, "cleanup.min_age": "24h"}
    host.with_assignments(**ages, **NO_LIMITS)
    assert quarantined(host, "--execute") == {}
    with sqlite3.connect(host.state / "journal.db") as journal:
        journal.execute("UPDATE sightings SET first_ms = first_ms - 86400000, count = 9")
    journal.close()
    assert "returns-2" in quarantined(host, "--execute")
    assert host.run("restore", "returns-2", "--execute", "--broker-will-delete").status == 0
    for _ in range(3):
        assert "returns-2" not in quarantined(host, "--execute")


def test_without_fresh_assignments_nothing_counts_and_nothing_goes(host: Host) -> None:
    host.with_assignments(**{**NOW, "cleanup.sightings": 2}, **NO_LIMITS)
    host.run("cleanup", "--execute")
    host.configure(**{**NOW, "cleanup.sightings": 2}, **NO_LIMITS)
    stale = host.run("scan", "--json").json
    assert {d["reason"] for d in stale["dirs"] if d["verdict"]} == {"stale-assignments"}
    assert quarantined(host, "--execute") == {}


def test_a_clock_that_was_set_makes_nothing_due_until_the_drift_is_gone(host: Host) -> None:
    """One cycle paused, and the next one removed strays of seconds as if they were eight days old."""
    host.configure(**{"cleanup.sightings": 100})
    host.run("cleanup", "--execute")
    host.with_assignments(**NOW, **ALL_DUE, **NO_LIMITS)
    host.set_clock(days=8)
    before = host.partitions()
    for arguments in (("--execute",), ("--execute",), (), ("--execute",)):
        document = host.run("cleanup", "--json", *arguments).json
        assert document["actions"] == []
        assert any("clock was set" in w["reason"] and "--trust-clock" in w["reason"] for w in document["waiting"]), (
            document["waiting"]
        )
    assert host.run("prestart", "--json", "--budget", "30s").json["plan"]["actions"] == []
    assert host.partitions() == before
    host.set_clock(days=-8)
    assert host.run("cleanup", "--json", "--execute").json["actions"]


def test_the_operators_word_for_the_clock_makes_nothing_older(host: Host) -> None:
    host.configure(**{"cleanup.sightings": 100})
    host.run("cleanup", "--execute")
    strays = host.find("", "-stray")
    assert strays
    ages = {**NOW, **ALL_DUE, **NO_LIMITS, "cleanup.stray_retention": "7d", "cleanup.min_age": "1s"}
    host.with_assignments(**ages)
    host.set_clock(days=8)
    host.run("cleanup", "--execute")
    shown = host.run("cleanup", "--json", "--trust-clock").json
    assert host.run("cleanup", "--json", "--execute").json["actions"] == [], "a dry run is not the operator's word"
    done = host.run("cleanup", "--json", "--execute", "--trust-clock").json
    assert shown["plan_id"] == done["plan_id"]
    with Journal.open_read_only(str(host.state)) as seen:
        (jump,) = seen.clock_jumps()
    assert abs(jump.delta_ms - 8 * 86_400_000) < 60_000
    assert [w for w in host.run("cleanup", "--json").json["waiting"] if "clock" in w["reason"]] == []


def test_the_operators_word_for_the_clock_forgets_nothing_that_was_taken_today(host: Host) -> None:
    """`--trust-clock` came after the facts, and those began 24 hours ago by the clock that had jumped by days."""
    ages = {**NOW, **ALL_DUE, **NO_LIMITS, "cleanup.stray_retention": "0s"}
    host.with_assignments(**ages)
    taken = host.run("cleanup", "--json", "--execute").json["actions"]
    (left,) = [{a["name"] for a in host.run("cleanup", "--json").json["actions"]}]
    assert 0 < len(left) < len({a["name"] for a in taken if a["action"] != "drop-checkpoint-entry"})
    host.with_assignments(**{**ages, "cleanup.max_dirs": len(left)})
    host.set_clock(days=8)
    with sqlite3.connect(host.state / "journal.db") as journal:
        journal.execute("UPDATE actions SET at_ms = at_ms - ?", (8 * 86_400_000,))
    journal.close()
    ran = host.run("cleanup", "--json", "--execute", "--trust-clock")
    assert ran.status == 4, ran.err
    assert any("within 24 hours" in r["fact"] for r in ran.json["refusals"]), ran.json["refusals"]


def test_prestart_sets_due_orphans_aside_and_marks_old_strays(host: Host) -> None:
    host.with_assignments(**{**NOW, "cleanup.sightings": 2, "cleanup.stray_retention": "30d"}, **NO_LIMITS)
    host.run("cleanup", "--execute")
    host.with_assignments(**NOW, **{"cleanup.stray_retention": "0s"}, **NO_LIMITS)
    before = host.find("", "-stray")
    document = host.run("prestart", "--json", "--budget", "30s").json
    done = {(a["action"], a["outcome"]) for a in document["plan"]["actions"]}
    assert done <= {("quarantine", "done"), ("mark", "done"), ("drop-checkpoint-entry", "done")}
    assert not [a for a in document["plan"]["actions"] if a["action"] == "remove"], "it only renames"
    marked = [a["name"] for a in document["plan"]["actions"] if a["action"] == "mark"]
    # Where another node has the partition now, its leader is asked first: not before a start.
    moved = {r["name"]: r for r in document["plan"]["refusals"] if r["fact"].startswith("not-a-replica")}
    assert moved and sorted([*marked, *moved]) == before
    assert [
        r for r in moved.values() if "logagent cleanup asks the leader once the broker is up" not in r["hint"]
    ] == []
    assert document["skipped"] is None
    assert document["spent_ms"] < document["budget_ms"]


def test_prestart_spends_no_more_than_its_budget_and_then_does_nothing(host: Host) -> None:
    host.with_assignments(**NOW, **{"cleanup.stray_retention": "0s"}, **NO_LIMITS)
    before = host.partitions()
    document = host.run("prestart", "--json", "--budget", "1ms").json
    assert "budget" in document["skipped"]
    assert host.partitions() == before


def test_prestart_does_nothing_while_somebody_holds_the_log_dirs(host: Host) -> None:
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
