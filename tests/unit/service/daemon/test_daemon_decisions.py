"""Attacks on the daemon's decisions: what was lost without a word, and what looked alive and was not."""

from __future__ import annotations

import io
import threading
from dataclasses import replace

import pytest

from logagent.base.config.config import load
from logagent.base.config.settings import CleanupSettings
from logagent.base.errors import ConfigError
from logagent.base.records import ActionKind
from logagent.cleanup.plan.plan import Plan, Proposal
from logagent.cleanup.plan.queue import KEEP_MS, SettledAction, forgettable
from logagent.service.daemon.daemon import ERROR_RETRY_MS
from logagent.service.daemon.scheduling import RunConfig
from logagent.service.events import MOST_APART, MOST_LINES, Events, LogLines
from logagent.service.summary import CycleSummary
from tests.fake_time import DAY_MS, HOUR_MS
from tests.hosts import HEX, directory
from tests.unit.service.daemon.test_daemon import MINUTE_MS, Life, config
from tests.waiting import wait_until


def test_a_reload_that_is_asked_for_during_another_one_is_not_lost() -> None:
    """Two edits, two signals: the first reload had read its file already, and the second edit never came into force."""
    reading, go_on = threading.Event(), threading.Event()
    hours = iter((1, 2))

    def read() -> RunConfig:
        found = config(cleanup=CleanupSettings(interval=next(hours) * HOUR_MS))
        reading.set()
        assert go_on.wait(60)
        return found

    life = Life(load=read)
    life.daemon.reload()
    assert reading.wait(60)
    for _ in range(3):
        life.daemon.reload()
    go_on.set()
    wait_until(lambda: life.daemon.config.settings.cleanup.interval == 2 * HOUR_MS, "the second edit is in force")
    wait_until(lambda: len(life.said("reloaded")) == 2, "both are logged")
    assert len(life.said("reload-queued")) == 1


def test_a_bug_in_a_reload_is_logged_and_the_next_reload_works() -> None:
    answers = iter((lambda: 1 / 0, config))
    life = Life(load=lambda: next(answers)())  # type: ignore[arg-type,return-value]
    life.daemon.reload()
    wait_until(lambda: life.said("internal-error"), "the bug is logged")
    wait_until(lambda: not life.daemon.reloading, "the reload ends")
    life.daemon.reload()
    wait_until(lambda: life.said("reloaded"), "the next one works")


def test_a_scheduler_that_died_is_silence() -> None:
    """Nothing waits for anybody then, and every loop looks healthy."""
    life = Life()
    life.start()
    assert life.daemon.is_alive(60)
    life.clock.elapsed_ms += 91_000
    assert not life.daemon.is_alive(60)
    life.daemon.post("health")
    life.work_off()
    assert life.daemon.is_alive(60)


def test_a_hint_comes_through_after_the_clock_was_set_back() -> None:
    life = Life()
    life.start()
    life.daemon.hint("/data/d1", "a-0.x-delete")
    life.clock.set_wall(life.clock.now_ms() - DAY_MS)
    life.daemon.clock_was_set()
    life.work_off()
    before = len(life.work.times("queue"))
    life.daemon.hint("/data/d1", "b-0.x-delete")
    life.scheduler.run_until(life.clock.now_ms() + MINUTE_MS)
    assert len(life.work.times("queue")) == before + 1


def test_a_cycle_that_meets_a_bug_is_tried_again_soon() -> None:
    life = Life()
    life.start()

    def bug(job: str) -> None:
        raise ZeroDivisionError

    life.work.during = bug
    life.daemon.post("cleanup")
    life.work_off()
    life.work.during = lambda job: None
    at = life.clock.now_ms()
    life.scheduler.run_until(at + ERROR_RETRY_MS)
    assert at + ERROR_RETRY_MS in life.work.times("queue")


@pytest.mark.parametrize(
    "key",
    ["CLEANUP__INTERVAL", "HEALTH__PROBE_INTERVAL", "HEALTH__PROBE_TIMEOUT", "PUBLISH__INTERVAL"],
)
@pytest.mark.parametrize("value", ["0s", "99ms", "36526d", "99999999999999999999d"])
def test_what_is_no_pause_or_beyond_every_calendar_is_refused(key: str, value: str) -> None:
    """A pause of 0 is a busy loop; a limit of 0 takes every log dir offline; the scheduler died of the others."""
    with pytest.raises(ConfigError) as refused:
        load(None, {f"LOGAGENT_{key}": value})
    (problem,) = refused.value.problems
    assert key in problem
    assert "100ms" in problem or "100 years" in problem


def test_the_shortest_pauses_are_taken() -> None:
    settings = load(None, {"LOGAGENT_CLEANUP__INTERVAL": "100ms", "LOGAGENT_GUARD__SETTLE": "0s"}).settings
    assert (settings.cleanup.interval, settings.guard.settle) == (100, 0)
    assert replace(settings.cleanup, interval=100) == settings.cleanup


def test_of_a_removal_that_fails_every_hour_for_ever_the_journal_keeps_a_day_and_two() -> None:
    """Rows on a directory that is there were all kept: 24 a day for each that cannot be removed. The first says what
    it had before anything was removed."""
    now = 2 * KEEP_MS
    tries = [SettledAction(n, n * HOUR_MS, ("/d1",), 7, "a-0.x-delete") for n in range(now // HOUR_MS)]
    mark = SettledAction(10**6, HOUR_MS, ("/d1",), 7)
    other = SettledAction(10**6 + 1, HOUR_MS, ("/d1",), 8, "a-0.x-delete")
    gone = set(forgettable([mark, other, *tries], {7, 8}, {"/d1"}, now))
    kept = [r for r in (mark, other, *tries) if r.id not in gone]
    assert kept[:2] == [mark, other]
    assert [r.at_ms for r in kept[2:]] == [0, *(now - h * HOUR_MS for h in range(25, 0, -1))]


@pytest.mark.parametrize("many", [10, MOST_APART, 3 * MOST_APART])
def test_what_would_be_done_is_logged_once_however_much_it_is(many: int) -> None:
    """Beyond 50,000 all was said again in every cycle, and with it what had been said of other things."""
    out = io.StringIO()
    events = Events(out, lambda: 0, "json")
    log = LogLines(events)
    assert events.changed(("health", "/d1"), "online")
    proposals = tuple(
        Proposal(ActionKind.REMOVE, directory(f"orders-{n}.{HEX}-delete"), "stray-retention") for n in range(many)
    )
    plan = Plan("p", 0, proposals, ())
    for _ in range(3):
        log.planned("cleanup", plan, False)
    lines = out.getvalue().splitlines()
    assert len(lines) == min(many, MOST_LINES) + (many > MOST_LINES)
    assert not events.changed(("health", "/d1"), "online")
    log.planned("cleanup", replace(plan, actions=proposals[:-1]), False)
    assert len(out.getvalue().splitlines()) - len(lines) == (MOST_LINES + 1 if many > MOST_APART + 1 else 0)


def test_who_does_nothing_because_of_the_clock_says_so_once() -> None:
    out = io.StringIO()
    lines = LogLines(Events(out, lambda: 0, "json"))
    for minutes in (61, 62, None):
        doubt = None if minutes is None else f"the wall clock is {minutes} minutes behind the last cycle"
        lines.cycle(CycleSummary(job="cleanup", mode="enforce", started_ms=0, seconds=0, clock_doubt=doubt))
    said = [line for line in out.getvalue().splitlines() if '"clock-' in line]
    assert len(said) == 2 and "61 minutes behind" in said[0] and "--trust-clock" in said[0]
    assert "clock-trusted" in said[1]
