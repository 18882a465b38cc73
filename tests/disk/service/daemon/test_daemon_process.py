"""`logagent run` as a process: systemd, signals, one at a time, and beside the commands."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from logagent.base.errors import Exit
from logagent.cleanup.state.journal import Journal
from tests.command_line import run_here
from tests.daemon_process import notify_socket, status_of
from tests.documents import assert_promised
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host, delete
from tests.waiting import holds, wait_until

ENFORCED = {"cleanup.mode": "enforce", **NO_LIMITS}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    found = Host.from_disk(tmp_path / "h")
    found.with_assignments(**ENFORCED)
    return found


def test_from_start_to_end_systemd_hears_of_it_and_nothing_is_left(host: Host) -> None:
    with notify_socket() as systemd, host.daemon(NOTIFY_SOCKET=systemd.path) as daemon:
        systemd.wait_for("READY")
        daemon.wait_for("cycle", job="cleanup")
        document = status_of(host.state)
        assert_promised(document, "status")
        assert document["pid"] == daemon.pid and document["mode"] == "enforce"
        assert [d["path"] for d in document["log_dirs"]] == [str(host.d1), str(host.d2)]
        assert oct((host.state / "status.sock").stat().st_mode & 0o777) == "0o600"
        shown = host.run("status")
        assert shown.status == 0 and str(host.d1) in shown.out and str(daemon.pid) in shown.err
        assert daemon.stop() == 0
        messages = systemd.wait_for("STOPPING")
        assert [next(iter(m)) for m in messages if "WATCHDOG" not in m] == ["READY", "STOPPING"]
    assert not (host.state / "status.sock").exists()
    gone = host.run("status")
    assert gone.status == Exit.UNREACHABLE and "logagent run" in gone.err


def test_doctor_does_not_call_a_daemon_working_whose_cycles_fail(host: Host) -> None:
    """It runs and answers; nothing is done all the same."""
    host.state.mkdir()
    (host.state / "journal.db").write_bytes(b"SQLite format 3\0" + bytes(5000))
    with host.daemon() as daemon:
        daemon.wait_for("cycle-failed", job="queue")
        said = {f["code"]: f for f in host.run("doctor", "--json").json["findings"]}
        assert daemon.stop() == 0
    found = said["daemon-failing"]
    assert found["state"] == "warning" and "its last queue failed: the journal" in found["says"], found
    assert said["journal-damaged"]["state"] == "fails"


def test_report_mode_changes_nothing_and_counts_what_it_sees(tmp_path: Path) -> None:
    host = Host.from_disk(tmp_path / "h")
    host.with_assignments(**{**ALL_DUE, **NO_LIMITS, "cleanup.mode": "report", "cleanup.min_age": "0s",
                             "cleanup.sightings": 1})  # fmt: skip
    before = host.snapshot()
    with host.daemon() as daemon:
        daemon.wait_for("cycle", job="cleanup")
        daemon.stop()
        would = daemon.events("would-act")
        assert {e["action"] for e in would} == {"quarantine", "remove"}
        assert len({(e["log_dir"], e["name"]) for e in would}) == len(would), "nothing is said twice"
        assert daemon.events("action") == []
    # Looking sets no time that we keep.
    assert host.snapshot() == before
    with Journal.open_read_only(str(host.state)) as journal:
        assert journal.history() == [] and len(journal.sightings()) > 3


def test_in_enforce_mode_it_acts_and_says_each_act_with_plan_and_action(tmp_path: Path) -> None:
    host = Host.from_disk(tmp_path / "h")
    host.with_assignments(**{**ALL_DUE, **ENFORCED, "cleanup.min_age": "0s", "cleanup.sightings": 1})
    with host.daemon() as daemon:
        daemon.wait_for("cycle", job="cleanup")
        daemon.stop()
        acted = daemon.events("action", outcome="done")
    assert acted
    assert [e for e in acted if not (len(e["plan"]) == 16 and len(e["id"]) == 12)] == []
    assert host.find("", "-delete") == []
    with Journal.open_read_only(str(host.state)) as journal:
        assert journal.unsettled() == [] and {e.intent.actor for e in journal.history()} == {"daemon"}


def test_what_only_the_configuration_needs_is_not_kept_in_memory(host: Host) -> None:
    """pydantic, a sixth of what the daemon of a usual host takes."""
    with host.daemon() as daemon:
        daemon.wait_for("cycle", job="cleanup")
        mapped = Path(f"/proc/{daemon.pid}/maps").read_text()
    assert "_sqlite3" in mapped and "pydantic" not in mapped


def test_a_second_one_is_refused_and_names_the_first(host: Host) -> None:
    with host.daemon() as daemon:
        status_of(host.state)
        second = host.spawn("run")
        assert second.status == 75
        assert f"process {daemon.pid}" in second.err and "hint" in second.err
        assert status_of(host.state)["pid"] == daemon.pid, "the first one's socket is still there"


def test_what_a_command_marks_goes_when_it_is_due_without_a_cleanup_tick(host: Host) -> None:
    host.with_assignments(**ENFORCED, **{"cleanup.interval": "1d", "delete.file_delete_delay_ms": 2000})
    with host.daemon() as daemon:
        daemon.wait_for("cycle", job="cleanup")
        wait_until(lambda: all(d["watch"] == "inotify" for d in status_of(host.state)["log_dirs"]), "inotify")
        marked = delete(host, "--partition", "orders-1", *FREELY)
        assert marked.status == 0, marked.err
        gone = daemon.wait_for("action", action="remove", outcome="done")
        assert gone["name"].startswith("orders-1.") and gone["topic"] == "orders"
        assert status_of(host.state)["next"]["cleanup"] is not None
        assert host.find("orders-1.") == []


def test_a_torn_server_properties_is_refused_until_a_restart_takes_it(host: Host) -> None:
    with host.daemon() as daemon:
        daemon.wait_for("cycle", job="cleanup")
        good = host.properties.read_text(encoding="latin-1")
        for torn in ("", f"{good}\nlog.dirs={host.d1}\n"):
            host.properties.write_text(torn, encoding="latin-1")
            # What `systemctl reload` runs first says it, and the reload fails.
            checked = run_here("config", "check", "--config", str(host.toml), "--state-dir", str(host.state))
            assert checked.status == 78 and "does not name the log dir" in checked.err, checked
            assert "hint: if that is meant" in checked.err
            daemon.process.send_signal(signal.SIGHUP)
            said = daemon.wait_for("reload-failed", count=1 if torn == "" else 2)["problems"]
            assert "does not name the log dir" in said
        # Of one log dir that is named there is nothing that a reload could lose.
        one = run_here(
            "config", "check", "--config", str(host.toml), "--state-dir", str(host.state), "--log-dir", str(host.d1)
        )
        assert one.status == 0, one
        document = status_of(host.state)
        assert_promised(document, "status")
        assert document["reload_failed"]["error"] == said
        assert [d["path"] for d in document["log_dirs"]] == [str(host.d1), str(host.d2)]
        assert "it runs with its configuration of before" in host.run("status").err
        codes = {f["code"] for f in host.run("doctor", "--json").json["findings"]}
        assert {"reload-failed", "log-dir-forgotten"} <= codes
        # What acts beside it does not forget it either.
        assert str(host.d2) in host.run("delete", "--partition", "orders-1", *FREELY, "--execute").err
        host.properties.write_text(good, encoding="latin-1")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for("reloaded")
        assert status_of(host.state)["reload_failed"] is None
        assert run_here("config", "check", "--config", str(host.toml), "--state-dir", str(host.state)).status == 0
        assert daemon.stop() == 0
    host.set_property(f"log.dirs={host.d1}")
    with host.daemon() as daemon:
        assert daemon.wait_for("log-dirs-forgotten")["log_dirs"] == str(host.d2)
        daemon.wait_for("cycle", job="cleanup")
        assert daemon.stop() == 0
    # Nothing waits for it any more; what a start without it does to the partitions assigned to it stays to be said.
    (left,) = (f for f in host.run("doctor", "--json").json["findings"] if f["code"] == "log-dir-forgotten")
    assert (left["area"], left["path"]) == ("log dirs", str(host.d2)) and "are assigned to it" in left["says"]


def test_reloading_takes_up_what_is_valid_and_keeps_what_runs_otherwise(host: Host) -> None:
    with notify_socket() as systemd, host.daemon(NOTIFY_SOCKET=systemd.path) as daemon:
        systemd.wait_for("READY")
        host.toml.write_text(host.toml.read_text().replace('"enforce"', '"report"'))
        daemon.process.send_signal(signal.SIGHUP)
        assert daemon.wait_for("reloaded")["changed"] == "cleanup.mode"
        assert status_of(host.state)["mode"] == "report"
        good = host.toml.read_text()
        host.toml.write_text(good + '\n[health]\nprobe_interval = "never"\n[guard]\nsettle = 5\n')
        daemon.process.send_signal(signal.SIGHUP)
        failed = daemon.wait_for("reload-failed")
        assert "probe_interval" in failed["problems"] and "guard.settle" in failed["problems"]
        assert status_of(host.state)["mode"] == "report"
        messages = systemd.wait_for("READY", count=3)
        reloading = [m for m in messages if "RELOADING" in m]
        assert len(reloading) == 2
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        assert [m for m in reloading if not (0 < now - int(m["MONOTONIC_USEC"]) < 600_000_000)] == []
        assert daemon.stop() == 0


def test_the_watchdog_is_fed_while_the_loops_work(host: Host) -> None:
    environment = {"WATCHDOG_USEC": "1000000"}
    with notify_socket() as systemd, host.daemon(NOTIFY_SOCKET=systemd.path, **environment) as daemon:
        systemd.wait_for("WATCHDOG", count=5)
        assert daemon.events("loop-stalled") == []
        assert daemon.stop() == 0


HANGS = """
import sys, threading
from logagent.service.daemon.host_jobs import HostJobs
HostJobs.cycle = lambda self, job: threading.Event().wait()
from logagent.cli import main
main(sys.argv[1:])
"""


def test_a_hung_loop_is_not_pinged_for(host: Host) -> None:
    command = (sys.executable, "-c", HANGS, "run", "--log-format", "json")
    with notify_socket() as systemd:
        environment = {"NOTIFY_SOCKET": systemd.path, "WATCHDOG_USEC": "400000"}
        with host.daemon(command, **environment) as daemon:
            systemd.wait_for("WATCHDOG", count=2)
            assert daemon.wait_for("loop-stalled")["loops"] == "act"
            fed = len(systemd.read())
            holds(lambda: len(systemd.read()) == fed, 2, "five pings are missing: systemd would have acted")
            assert daemon.stop() == 0


def test_commands_act_beside_it(host: Host) -> None:
    with host.daemon() as daemon:
        daemon.wait_for("cycle", job="cleanup")
        for partition in ("orders-1", "orders-2"):
            assert delete(host, "--partition", partition, *FREELY).status == 0
        assert host.run("cleanup", "--execute", "--json").status in (0, 3)
        assert daemon.process.poll() is None
        assert daemon.events("internal-error") == []


def test_once_does_what_is_due_and_exits(host: Host) -> None:
    host.with_assignments(**ENFORCED, **ALL_DUE)
    assert delete(host, "--partition", "orders-1", *FREELY).status == 0
    done = host.spawn("run", "--once", LOGAGENT_METRICS__LISTEN="")
    assert done.status == 0, done.err
    assert host.find("orders-1.") == [] and "event=action" in done.err
    assert not (host.state / "status.sock").exists()


def test_a_plan_that_is_too_large_waits_for_exactly_its_approval(tmp_path: Path) -> None:
    host = Host.from_disk(tmp_path / "h")
    host.with_assignments(**{**ALL_DUE, "cleanup.mode": "enforce", "cleanup.interval": "1s"})
    with host.daemon() as daemon:
        asked = daemon.wait_for("needs-approval")
        cycles = status_of(host.state)["cycles"][0]["started_at"]
        wait_until(lambda: status_of(host.state)["cycles"][0]["started_at"] > cycles, "another cycle")
        assert len(daemon.events("needs-approval")) == 1, "it is said once"
        assert daemon.events("action") == []
        assert asked["plan"] in asked["hint"]
        approved = host.run("cleanup", "--execute", "--approve", asked["plan"], "--json")
        assert approved.status in (0, 3), approved.err
        assert approved.json["plan_id"] == asked["plan"]
        assert [a for a in approved.deeds if a["outcome"] == "done"]


def test_killed_it_leaves_nothing_in_the_way_of_the_next_one(host: Host) -> None:
    with host.daemon() as daemon:
        status_of(host.state)
        daemon.process.kill()
        daemon.process.wait(30)
    assert (host.state / "status.sock").exists()
    assert host.run("status").status == Exit.UNREACHABLE
    with host.daemon() as daemon:
        assert wait_until(lambda: status_of(host.state)["pid"] == daemon.pid, "its own answer")
        assert daemon.stop() == 0


def test_descriptors_and_threads_do_not_grow_from_cycle_to_cycle(host: Host) -> None:
    host.with_assignments(**ENFORCED, **{"cleanup.interval": "1s", "health.probe_interval": "1s"})
    with host.daemon() as daemon:

        def began() -> str:
            return str(status_of(host.state)["cycles"][0]["started_at"])

        def another_than(seen: str) -> None:
            wait_until(lambda: began() > seen, "another cycle")

        def cycles(count: int) -> None:
            for _ in range(count):
                another_than(began())

        def counts() -> tuple[int, int]:
            return len(os.listdir(f"/proc/{daemon.pid}/fd")), len(os.listdir(f"/proc/{daemon.pid}/task"))

        daemon.wait_for("cycle", job="cleanup")
        cycles(2)
        lows = [counts() for _ in range(20)]
        cycles(4)
        # A cycle that is under way holds some; at their lowest they are what they were.
        later = [counts() for _ in range(60)]
        assert min(f for f, _ in later) <= min(f for f, _ in lows) + 2
        assert min(t for _, t in later) <= min(t for _, t in lows) + 1
