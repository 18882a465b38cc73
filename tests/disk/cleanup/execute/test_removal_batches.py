"""Small directories have their intents written together; one that was not reached is as if it had never been begun."""

from __future__ import annotations

import errno
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.base.dir_names import delete_name
from logagent.base.records import Outcome, Reason
from logagent.base.units import DAY_MS
from logagent.cleanup.commands.cleanup import plan_cleanup
from logagent.cleanup.execute.log_manager import BATCH_DIRS, FACTS_VALID_SECONDS
from logagent.cleanup.plan.guards import GUARDS
from logagent.cleanup.plan.plan import Execution, Plan, Proposal
from logagent.cleanup.session.session import Session
from logagent.cleanup.state.journal import Journal
from logagent.disk.calls import DirectCalls
from logagent.verdict.facts import Facts
from tests.disk.killed import SCENARIOS, under_strace
from tests.disk.messes import lock_held
from tests.disk.sessions import SETTINGS, FailingHost
from tests.disk.verdict.evidence.test_strays_asked import assign
from tests.fake_time import HurriedClock
from tests.host_files import GONE_ID, bulk_partition, format_log_dir, write_topic_id
from tests.hosts import HEX

NAMES = [delete_name("gone", number, HEX) for number in range(5)]
Progress = Callable[[int, int], None]


@pytest.fixture
def host(tmp_path: Path) -> FailingHost:
    log_dir = format_log_dir(tmp_path / "d1")
    for name in NAMES:
        bulk_partition(log_dir, name)
    return FailingHost(tmp_path / "state", log_dir)


@contextmanager
def planned(host: FailingHost) -> Iterator[tuple[Session, Plan]]:
    with host.session() as session:
        session.take_inventory()
        plan = plan_cleanup(session, session.facts())
        assert sorted(p.dir.name for p in plan.actions) == on_disk(host)
        yield session, plan


def remove(
    session: Session, plan: Plan, *, on_progress: Progress | None = None, stop: Callable[[], bool] = lambda: False
) -> Execution:
    manager = session.log_manager(on_progress=on_progress, stop=stop)
    return replace(manager, calls=DirectCalls()).execute(plan)


def on_disk(host: FailingHost) -> list[str]:
    return sorted(d.name for d in Path(host.paths[0]).iterdir() if d.is_dir())


def outcomes(journal: Journal) -> list[tuple[str, Outcome | None]]:
    return [(e.intent.name, e.outcome) for e in journal.history()]


def test_all_intents_of_a_batch_are_durable_before_its_first_file_goes(host: FailingHost) -> None:
    seen: list[list[str]] = []

    def look(files: int, size: int) -> None:
        with Journal.open_read_only(str(host.state)) as journal:
            seen.append([e.intent.name for e in journal.unsettled()])

    with planned(host) as (session, plan):
        remove(session, plan, on_progress=look)
        assert outcomes(session.journal) == [(name, Outcome.DONE) for name in NAMES]
    assert seen
    assert [names for names in seen if names != NAMES] == []
    assert on_disk(host) == []


def test_what_a_stop_left_has_no_entry(host: FailingHost) -> None:
    removed: list[int] = []
    with planned(host) as (session, plan):
        remove(session, plan, on_progress=lambda *_: removed.append(1), stop=lambda: len(on_disk(host)) < 5)
        assert removed
        assert outcomes(session.journal) == [(NAMES[0], Outcome.DONE)]
    assert on_disk(host) == NAMES[1:]


def test_what_a_guard_refuses_amid_a_batch_has_no_entry(host: FailingHost) -> None:
    def third(p: Proposal, facts: Facts) -> Reason | None:
        return Reason("not now", "wait", "policy") if p.dir.name == NAMES[2] else None

    with planned(host) as (session, plan):
        manager = replace(session.log_manager(), calls=DirectCalls(), guards=(*GUARDS, third))
        assert [r.key.name for r in manager.execute(plan).refusals] == [NAMES[2]]
        assert outcomes(session.journal) == [(name, Outcome.DONE) for name in NAMES if name != NAMES[2]]
    assert on_disk(host) == [NAMES[2]]


def test_facts_that_expire_within_a_batch_cost_a_few_intents_in_vain(host: FailingHost) -> None:
    """On a slow disk every directory may need facts of its own; 64 new intents for each would cost more than it."""
    for number in range(5, 40):
        bulk_partition(Path(host.paths[0]), delete_name("gone", number, HEX))
    with host.session() as session:
        session.take_inventory()
        plan = plan_cleanup(session, session.facts())
        hurried = HurriedClock(session.clock, 2 * FACTS_VALID_SECONDS)
        manager = replace(session.log_manager(), calls=DirectCalls(), clock=hurried)
        execution = manager.execute(plan)
        assert execution.refusals == []
        assert {r.outcome for r in execution.results.values()} == {Outcome.DONE}
        ids = [e.id for e in session.journal.history()]
    assert len(ids) == 40 and ids[-1] <= 64 + 2 * 40


def test_each_outcome_is_written_once_with_the_next_batch(host: FailingHost) -> None:
    for number in range(5, BATCH_DIRS + 2):
        bulk_partition(Path(host.paths[0]), delete_name("gone", number, HEX))
    with planned(host) as (session, plan):
        clock, times = HurriedClock(session.clock, 0.0), itertools.count(1)
        clock.now_ms = lambda: next(times)
        replace(session.log_manager(), calls=DirectCalls(), clock=clock).execute(plan)
        entries = session.journal.history()
    finished = [e.finished_at_ms for e in entries]
    assert len(finished) == BATCH_DIRS + 2 and len(set(finished[:BATCH_DIRS])) == 1
    assert finished[0] is not None and finished[-1] is not None and finished[0] < finished[-1]


def killed(host: FailingHost, in_number: int) -> None:
    """A cleanup that is killed in the middle of the removal with this number."""

    def kill(files: int, size: int) -> None:
        if files and len(on_disk(host)) == len(NAMES) - in_number:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            with planned(host) as (session, plan):
                remove(session, plan, on_progress=kill)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def test_after_a_kill_only_what_was_begun_counts_as_begun(host: FailingHost) -> None:
    """Otherwise an operator who stops a removal with `kill -9` could not get back what it had not touched."""
    killed(host, 1)
    with host.session() as session:
        session.take_inventory()
        assert {name for _, name in session.recall().removal_intents} == {NAMES[1]}
        assert [d.name for d in session.dirs if d.removal_started] == [NAMES[1]]
        assert outcomes(session.journal) == [(NAMES[0], Outcome.DONE), (NAMES[1], Outcome.YIELDED)]


@pytest.mark.parametrize("settled", [True, False])
def test_what_a_killed_run_did_not_reach_waits_as_long_as_before(
    host: FailingHost, tmp_path: Path, settled: bool
) -> None:
    """Also where its intents cannot be settled yet: here because the log dir has another path now."""
    strays = [name.replace("-delete", "-stray") for name in NAMES]
    for name, stray in zip(NAMES, strays, strict=True):
        write_topic_id((tmp_path / "d1" / name).rename(tmp_path / "d1" / stray), GONE_ID)
    killed(host, 0)
    if not settled:
        (tmp_path / "d1").rename(tmp_path / "d9")
    week = replace(SETTINGS, cleanup=replace(SETTINGS.cleanup, stray_retention=7 * DAY_MS))
    later = FailingHost(host.state, tmp_path / ("d1" if settled else "d9"), settings=week)
    with later.session() as session:
        session.take_inventory()
        assert (session.journal.unsettled() == []) is settled
        assert [p.dir.name for p in plan_cleanup(session, session.facts()).actions] == strays[:1]


def test_what_a_broker_drops_when_it_loads_a_stray_is_not_taken_for_our_removal(
    host: FailingHost, tmp_path: Path
) -> None:
    """It finds the marks of a killed batch, and drops `.deleted` files and snapshots (seen on 3.9.1: 17 files became
    10): missing files do not show that a removal has begun. And in the meantime, the partition lives here again."""
    strays = [name.replace("-delete", "-stray") for name in NAMES]
    for name, stray in zip(NAMES, strays, strict=True):
        made = write_topic_id((tmp_path / "d1" / name).rename(tmp_path / "d1" / stray), GONE_ID)
        (made / f"{50:020d}.log.deleted").write_bytes(b"r" * 1000)
    killed(host, 0)
    with lock_held(Path(host.paths[0])):
        with host.session() as session:
            session.take_inventory()
        for stray in strays:
            (tmp_path / "d1" / stray / f"{50:020d}.log.deleted").unlink(missing_ok=True)
    with host.session() as session:
        assign(host, session, "gone", partitions=len(NAMES))
        session.take_inventory()
        assert sorted(d.name for d in session.dirs if d.removal_started) == strays
        plan = plan_cleanup(session, session.facts())
        # The first one has lost a segment.
        assert [p.dir.name for p in plan.actions] == strays[:1]
        assert sorted((r.key.name, r.why.code) for r in plan.refusals) == [(name, "assigned") for name in strays[1:]]
        assert "no copy is known to cover it" in plan.refusals[0].why.fact


def test_the_marks_of_a_batch_are_on_the_disk_before_its_first_file_goes(tmp_path: Path) -> None:
    """And no directory is synced after that: on ext4 each such sync writes out what the removal before it did."""
    own, log = SCENARIOS["batch"].prepare(tmp_path / "host"), tmp_path / "trace"
    done = under_strace(tmp_path / "host", own, "-y", "-s", "300", "-o", str(log), "-e", "trace=fchmod,fsync,unlinkat")
    assert done.returncode == 0, done.stderr
    names = [f"audit-{number}.{HEX}-delete" for number in range(3)]
    lines = log.read_text().splitlines()
    calls = [
        (call, name)
        for line in lines
        for call in ("fchmod", "fsync", "unlinkat")
        for name in names
        if f" {call}(" in line and f"{name}>" in line
    ]
    synced = len(calls) - sum(call == "unlinkat" for call, _ in calls)
    assert calls[:synced] == [*(("fchmod", name) for name in names), *(("fsync", name) for name in names)]
    assert len(calls) > synced


def test_a_mark_that_the_batch_could_not_sync_is_synced_by_its_removal(
    host: FailingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses the first sync of all; no file goes before a sync of its own directory has succeeded."""
    happened: list[tuple[str, str]] = []
    fsync, unlink = os.fsync, os.unlink

    def refusing(fd: int) -> None:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        happened.append(("sync", name))
        if happened.count(("sync", NAMES[0])) == 1 and name == NAMES[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(fd)

    def noting(path: str, *, dir_fd: int | None = None) -> None:
        happened.append(("unlink", os.path.basename(os.readlink(f"/proc/self/fd/{dir_fd}")) if dir_fd else path))
        unlink(path, dir_fd=dir_fd)

    with planned(host) as (session, plan):
        monkeypatch.setattr(os, "fsync", refusing)
        monkeypatch.setattr(os, "unlink", noting)
        execution = remove(session, plan)
        monkeypatch.undo()
    assert {r.outcome for r in execution.results.values()} == {Outcome.DONE}
    before = [happened[: happened.index(("unlink", name))].count(("sync", name)) for name in NAMES]
    assert before == [2, 1, 1, 1, 1]
