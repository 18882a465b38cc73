"""The pre-start window: a clock that was set, and a network that does not answer."""

from __future__ import annotations

import shutil
import socket
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.base.clock import SystemClock
from logagent.cleanup.session.recall import clocks_now
from logagent.cleanup.state.journal import Journal
from tests.disk.doctor_host import STATE, doctor_host
from tests.disk.failing import hanging_fs
from tests.host import ALL_DUE, NO_LIMITS, Host
from tests.host_files import format_log_dir
from tests.needs import need_command
from tests.waiting import within


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


def cycle_was(host: Host, *, wall_ms_ahead: int) -> None:
    """The journal says that in this boot, at this moment, the wall clock was so much ahead of what it is now."""
    host.state.mkdir(exist_ok=True)
    now = clocks_now(SystemClock())
    with Journal.open(str(host.state)) as journal:
        journal.note_clocks(replace(now, wall_ms=now.wall_ms + wall_ms_ahead))


@pytest.mark.parametrize("hours", [-48, 48])
def test_after_a_clock_was_set_nothing_is_marked(host: Host, hours: int) -> None:
    host.configure(**NO_LIMITS, **ALL_DUE)
    cycle_was(host, wall_ms_ahead=hours * 3_600_000)
    before = host.partitions()
    ran = host.run("prestart", "--budget", "60s", "--json")
    assert host.partitions() == before
    assert ran.json["plan"]["actions"] == []
    assert any("clock" in w["reason"] for w in ran.json["plan"]["waiting"]), ran.json["plan"]["waiting"]


def test_with_true_clocks_strays_past_their_retention_are_marked(host: Host) -> None:
    host.with_assignments(topics_gone=True, **NO_LIMITS, **ALL_DUE)
    cycle_was(host, wall_ms_ahead=0)
    assert host.find("", "-stray")
    host.run("prestart", "--budget", "60s", "--json")
    assert not host.find("", "-stray")


def test_a_stray_whose_removal_failed_waits_here_too(host: Host) -> None:
    """A prestart forgot that: marked, the broker that starts would try what just failed."""
    host.with_assignments(topics_gone=True, **NO_LIMITS, **ALL_DUE)
    cycle_was(host, wall_ms_ahead=0)
    failed, *others = sorted(host.find("", "-stray"))
    with Journal.open(str(host.state)) as journal:
        for _ in range(12):
            for log_dir in (host.d1, host.d2):
                journal.record_failure(str(log_dir), failed, "Input/output error", SystemClock().now_ms())
    ran = host.run("prestart", "--budget", "60s", "--json")
    assert host.find("", "-stray") == [failed] and others
    assert [w["reason"] for w in ran.json["plan"]["waiting"] if w["name"] == failed] == [
        "retry after: Input/output error"
    ]


def test_epoch_files_are_read_after_a_crash_and_take_no_time_after_a_clean_stop(host: Host) -> None:
    """One small read a partition is too much of two seconds where a clean stop has just written them all."""
    host.configure(**NO_LIMITS)
    cycle_was(host, wall_ms_ahead=0)
    name = sorted(n for n in host.find("orders-") if "." not in n)[0]
    where = next(d for d in (host.d1, host.d2) if (d / name).is_dir())
    (where / name / "leader-epoch-checkpoint").write_bytes(bytes(20))

    def codes() -> set[str]:
        return {f["code"] for f in host.run("prestart", "--budget", "60s", "--json").json["findings"]}

    (where / ".kafka_cleanshutdown").unlink(missing_ok=True)
    assert "broken-epochs" in codes()
    (where / ".kafka_cleanshutdown").touch()
    assert "broken-epochs" not in codes()


def until_it_gives_up(silent: socket.socket, seconds: float, why: str) -> None:
    """Answers nothing. Once connected, the client may go on for so long."""
    connection, _ = silent.accept()
    with connection, within(seconds, why):
        while connection.recv(1 << 16):
            pass


def test_a_network_that_does_not_answer_leaves_half_of_the_budget_to_the_disk(host: Host) -> None:
    """The broker waits behind prestart: looking has to end in time whatever is being asked, and what is on the disk is
    looked at all the same. The client gives up after seven seconds, without a limit after ten: what is measured is the
    waiting, not the work on a busy machine."""
    import kafka.net.manager  # noqa: F401

    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        host.configure(**NO_LIMITS, **{"assignments.sources": ["admin"], "kafka.bootstrap_servers": where})
        asked = pool.submit(until_it_gives_up, silent, 9.5, "nothing is left for the disk")
        with within(80, "the broker waits behind it"):
            host.run("prestart", "--budget", "14s", "--json")
        asked.result()
        ran = host.run("prestart", "--budget", "60s", "--json")
    assert ran.json["skipped"] is None and ran.json["plan"] is not None, ran.json["skipped"]


HANGS = ("log dir", "state dir", "journal", "server.properties")


@pytest.mark.parametrize("what", HANGS)
def test_the_parent_leaves_at_the_deadline_whatever_hangs(host: Host, what: str) -> None:
    """A broker's start waits for it. The process itself is measured, with its start-up."""
    host.configure(**NO_LIMITS, **ALL_DUE)
    cycle_was(host, wall_ms_ahead=0)
    before = host.partitions()
    with ExitStack() as stack:
        if what == "journal":
            db = stack.enter_context(closing(sqlite3.connect(host.state / "journal.db", isolation_level=None)))
            db.execute("BEGIN EXCLUSIVE")
        else:
            frozen = stack.enter_context(hanging_fs(host.root / "fuse"))
            if what == "log dir":
                format_log_dir(frozen.point)
                host.set_property(f"log.dirs={host.d1},{frozen.point}")
            elif what == "state dir":
                shutil.copytree(host.state, frozen.point / "state")
                host.state = frozen.point / "state"
            else:
                shutil.copy(host.properties, frozen.point / "server.properties")
                host.configure(**{"kafka.config": str(frozen.point / "server.properties")})
            frozen.hang()
        with within(30, "a broker waits for it"):
            ran = host.spawn("prestart", "--budget", "2s", "--json")
        assert ran.status == 0
        assert "budget" in ran.json["skipped"]
        assert ran.json["spent_ms"] < 20_000
    assert host.partitions() == before


def test_the_state_dir_of_an_instance_is_looked_at_by_the_child_too(tmp_path: Path) -> None:
    """Whether it is there at all is asked of its disk."""
    need_command("bindfs")
    own = f"{STATE}-one"
    with doctor_host(tmp_path / "host") as made:
        made.configure("/etc/logagent/one.toml")
        for place in ("/srv/state", own):
            made.path(place).mkdir()
        made.run("bindfs", "-o", "attr_timeout=0,entry_timeout=0", "/srv/state", own)
        (server,) = made.run("pgrep", "bindfs").stdout.split()
        made.run("kill", "-STOP", server)
        try:
            ran = made.logagent("prestart", "--config", "/etc/logagent/one.toml", "--budget", "1s")
        finally:
            made.run("kill", "-CONT", server)
    assert ran.status == 0 and "the budget of 1s was spent" in ran.err


def test_a_child_that_was_given_up_does_nothing_when_its_disk_comes_back(host: Host) -> None:
    host.configure(**NO_LIMITS, **ALL_DUE)
    before = host.partitions()
    with hanging_fs(host.root / "fuse") as frozen:
        host.set_property(f"log.dirs={host.d1},{frozen.point}")
        frozen.hang()
        assert host.run("prestart", "--budget", "1s", "--json").json["skipped"]
        frozen.wake()
    assert host.partitions() == before
    assert host.run("prestart", "--budget", "60s", "--json").json["skipped"] is None, "nobody holds the executor lock"
