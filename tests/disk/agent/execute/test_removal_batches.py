"""Small directories have their intents written together; one that was not reached is as if it had never been begun."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.agent.planning.plan_cleanup import plan_cleanup
from logagent.agent.session.session import Session
from logagent.host.log_dir.calls import DirectCalls
from logagent.host.state.journal import Journal
from logagent.model.facts import Facts
from logagent.model.naming.dir_names import delete_name
from logagent.model.planning.guards import GUARDS
from logagent.model.planning.plan import Execution, Plan, Proposal, Refusal
from logagent.model.records import Outcome
from tests.disk.failing import format_log_dir, partition
from tests.disk.sessions import Host
from tests.hosts import HEX

NAMES = [delete_name("gone", number, HEX) for number in range(5)]
Progress = Callable[[int, int], None]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    log_dir = format_log_dir(tmp_path / "d1")
    for name in NAMES:
        partition(log_dir, name)
    return Host(tmp_path / "state", log_dir)


@contextmanager
def planned(host: Host) -> Iterator[tuple[Session, Plan]]:
    with host.session() as session:
        session.take_inventory()
        plan = plan_cleanup(session, session.facts())
        assert [p.dir.name for p in plan.actions] == NAMES
        yield session, plan


def remove(
    session: Session, plan: Plan, *, on_progress: Progress | None = None, stop: Callable[[], bool] = lambda: False
) -> Execution:
    manager = session.log_manager(on_progress=on_progress, stop=stop)
    return replace(manager, calls=DirectCalls()).execute(plan)


def on_disk(host: Host) -> list[str]:
    return sorted(d.name for d in Path(host.paths[0]).iterdir() if d.is_dir())


def outcomes(journal: Journal) -> list[tuple[str, Outcome | None]]:
    return [(e.intent.name, e.outcome) for e in journal.history()]


def test_all_intents_of_a_batch_are_durable_before_its_first_file_goes(host: Host) -> None:
    seen: list[list[str]] = []

    def look(files: int, size: int) -> None:
        with Journal.open_read_only(str(host.state)) as journal:
            seen.append([e.intent.name for e in journal.unsettled()])

    with planned(host) as (session, plan):
        remove(session, plan, on_progress=look)
        assert outcomes(session.journal) == [(name, Outcome.DONE) for name in NAMES]
    assert seen and all(names == NAMES for names in seen)
    assert on_disk(host) == []


def test_what_a_stop_left_has_no_entry(host: Host) -> None:
    removed: list[int] = []
    with planned(host) as (session, plan):
        remove(session, plan, on_progress=lambda *_: removed.append(1), stop=lambda: len(on_disk(host)) < 5)
        assert removed
        assert outcomes(session.journal) == [(NAMES[0], Outcome.DONE)]
    assert on_disk(host) == NAMES[1:]


def test_what_a_guard_refuses_amid_a_batch_has_no_entry(host: Host) -> None:
    def third(p: Proposal, facts: Facts) -> Refusal | None:
        return Refusal(p.dir.log_dir, p.dir.name, "policy", "not now", "wait", 0) if p.dir.name == NAMES[2] else None

    with planned(host) as (session, plan):
        manager = replace(session.log_manager(), calls=DirectCalls(), guards=(*GUARDS, third))
        assert [r.name for r in manager.execute(plan).refusals] == [NAMES[2]]
        assert outcomes(session.journal) == [(name, Outcome.DONE) for name in NAMES if name != NAMES[2]]
    assert on_disk(host) == [NAMES[2]]


def test_after_a_kill_only_what_was_begun_counts_as_begun(host: Host) -> None:
    """Otherwise an operator who stops a removal with `kill -9` could not get back what it had not touched."""

    def kill_in_the_second(files: int, size: int) -> None:
        if len(on_disk(host)) < 5:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            with planned(host) as (session, plan):
                remove(session, plan, on_progress=kill_in_the_second)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with host.session() as session:
        session.take_inventory()
        assert {name for _, name in session.removals_started()} == {NAMES[1]}
        assert [d.name for d in session.dirs if d.removal_started] == [NAMES[1]]
        assert outcomes(session.journal) == [
            (NAMES[0], Outcome.DONE),
            (NAMES[1], Outcome.YIELDED),
            *((name, Outcome.SKIPPED) for name in NAMES[2:]),
        ]
