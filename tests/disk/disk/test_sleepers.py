"""A disk hangs in the middle of an action, the session ends, and the disk comes back: nothing more happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from logagent.base.errors import KafkaStorageError
from logagent.base.records import Health, Outcome
from logagent.cleanup.execute.renames import PlanJournal, RenameBatch
from logagent.cleanup.plan.proposals import rename_away
from logagent.cleanup.state.journal import Journal
from logagent.disk.bounded_calls import BoundedCalls
from logagent.disk.calls import Stop, StoppableInterlock, never
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.scan import scan_log_dir
from tests.disk.conftest import LoopFs
from tests.disk.failing import HangingFs, frozen, hanging_fs, open_below
from tests.disk.sessions import HANGS, FailingHost, outcomes
from tests.disk.sleeper import HANG_AFTER
from tests.host_files import DIRECTORY_IDS, bulk_partition, format_log_dir
from tests.hosts import facts
from tests.needs import need_command
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
MARKED = "orders-0." + "a" * 32 + "-delete"
# Of these nobody thinks that they could be the source of a move to a log dir that is offline now.
STRAY = "other-0." + "b" * 32 + "-stray"
# What changes a log dir.
CHANGES = "unlink,unlinkat,rmdir,rename,renameat,renameat2,ftruncate,truncate,mkdir,mkdirat,linkat,symlinkat"


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[HangingFs]:
    with hanging_fs(tmp_path / "fuse") as made:
        format_log_dir(made.source)
        yield made


def test_one_log_dir_hangs_in_the_middle_of_a_removal_and_the_other_is_served(
    hanging: HangingFs, tmp_path: Path
) -> None:
    good = format_log_dir(tmp_path / "good", DIRECTORY_IDS[1])
    victim = bulk_partition(hanging.source, MARKED, segments=400)
    bulk_partition(good, STRAY, segments=400)
    host = FailingHost(tmp_path / "state", hanging.point, good, settings=HANGS)
    removed_there = 0

    def progress(files: int, size: int) -> None:
        nonlocal removed_there
        if str(hanging.point) in threading.current_thread().name:
            removed_there += files
            if removed_there == HANG_AFTER:
                hanging.hang()

    with host.probing():
        execution = host.clean(progress)
    assert outcomes(execution) == ["done", "failed"]
    assert not list(good.glob("*-stray"))
    (failed,) = [r for r in execution.results.values() if r.outcome is Outcome.FAILED]
    assert failed.error is not None and str(hanging.point) in failed.error
    with Journal.open_read_only(str(host.state)) as journal:
        assert [e.intent.name for e in journal.unsettled()] == [MARKED], "the intent stays open"
    left = set(os.listdir(victim))
    assert len(left) <= 800 - HANG_AFTER

    # Another cycle meanwhile concerns the other log dir alone, and asks nothing of this one.
    bulk_partition(good, STRAY)
    assert outcomes(host.clean()) == ["done"]
    assert host.round() == {str(hanging.point): Health.OFFLINE, str(good): Health.ONLINE}

    hanging.wake()
    wait_until(lambda: not host.calls.hanging(str(hanging.point)), "the sleeper returns")
    assert len(left - set(os.listdir(victim))) <= 1, "only the call that was under way came to its end"
    wait_until(lambda: not open_below(hanging.point), "its descriptors are closed")

    # Back after good probes and a scan; the intent is settled, and the removal goes on where it was.
    host.rounds_until(hanging.point, Health.ONLINE)
    assert outcomes(host.clean()) == ["done"]
    assert not victim.exists()
    with Journal.open_read_only(str(host.state)) as journal:
        entries = [e for e in journal.history() if e.intent.name == MARKED]
        assert [e.outcome for e in entries] == [Outcome.YIELDED, Outcome.DONE]
        assert not journal.unsettled()


def test_after_the_session_no_call_that_changes_anything_begins(hanging: HangingFs, tmp_path: Path) -> None:
    """Told by strace: of all threads, and whatever directory it may concern."""
    need_command("strace")
    victim = bulk_partition(hanging.source, MARKED, segments=400)
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={CHANGES},write", sys.executable, "-m"]
    command += ["tests.disk.sleeper", str(tmp_path / "state"), str(hanging.point), str(hanging.server_pid)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=180)
    assert ran.stdout == "session ended\nsleeper returned\n", ran.stderr
    lines = trace.read_text().splitlines()
    (end,) = [n for n, line in enumerate(lines) if 'write(1, "session ended' in line]
    started = re.compile(rf"\s({CHANGES.replace(',', '|')})\(")
    changes = [line for line in lines[:end] if started.search(line) and ".log" in line]
    assert len(changes) >= HANG_AFTER // 2, "the trace shows removals"
    assert [line for line in lines[end + 1 :] if started.search(line)] == []
    assert len(os.listdir(victim)) >= 800 - HANG_AFTER - 1


def test_renames_that_froze_end_with_the_one_in_the_kernel_and_recovery_understands_them(
    loop_fs: LoopFs, tmp_path: Path
) -> None:
    point = format_log_dir(loop_fs("ext4"))
    for number in range(3):
        bulk_partition(point, f"orders-{number}")
    host = FailingHost(tmp_path / "state", point)
    with host.session():
        pass
    failures = LogDirFailures()
    calls = BoundedCalls(failures, 1.0)
    journal = Journal.open(str(host.state))
    log_dir = OpenLogDir(str(point), failures).__enter__()
    found = [d for d in scan_log_dir(log_dir).dirs if d.topic == "orders"]
    proposals = [rename_away(d, is_stray=True, reason="test", new_uuid=lambda: "c" * 32) for d in found]

    def rename(stop: Stop) -> object:
        watch = StoppableInterlock(log_dir.fd, str(point), stop)
        batch = RenameBatch(
            log_dir, log_dir, log_dir, PlanJournal(journal, lambda: 1, "plan", "test"), watch, never, facts()
        )
        return batch.run(proposals)

    with frozen(point) as thaw:
        threading.Timer(0.5, failures.mark_offline, (str(point), "the prober says so")).start()
        assert isinstance(calls.work({str(point): rename})[str(point)], KafkaStorageError)
        calls.close((str(point),), log_dir.close)
        # The session ends; the sleeper wakes up to a journal that is closed.
        journal.close()
        thaw()
        wait_until(lambda: not calls.hanging(str(point)), "the sleeper returns")
    names = sorted(path.name for path in point.iterdir() if path.name.startswith("orders"))
    assert [name.endswith("-stray") for name in names].count(True) <= 1
    with host.session() as session:
        assert not session.journal.unsettled()
        settled = [e.outcome for e in session.journal.history()]
    assert sorted(str(o) for o in settled) in (["done", "skipped", "skipped"], ["skipped"] * 3)
    assert settled.count(Outcome.DONE) == len([n for n in names if n.endswith("-stray")])
