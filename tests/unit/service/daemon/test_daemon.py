"""The daemon's decisions with a clock and a scheduler of the test's own: hours and days in milliseconds, no threads."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logagent.base.config.settings import CleanupSettings, HealthSettings, PublishSettings, Settings
from logagent.base.errors import ConfigError, Exit
from logagent.base.records import Health
from logagent.cleanup.plan.queue import backoff_ms
from logagent.kafka.files.properties import parse_server_properties
from logagent.kafka.processes.target import Target
from logagent.service.daemon.cycles import CycleAborted
from logagent.service.daemon.daemon import BUSY_RETRY_MS, ERROR_RETRY_MS, Daemon, Notifier
from logagent.service.daemon.scheduling import POLL_MS, LoopControl, RunConfig
from logagent.service.events import Events, LogLines
from logagent.service.summary import CycleSummary, HealthSummary, LogDirSummary, PublishSummary
from tests.fake_time import DAY_MS, HOUR_MS, START_MS, FakeClock, FakeScheduler

MINUTE_MS = 60_000
D1, D2 = "/data/d1", "/data/d2"


def config(**sections: Any) -> RunConfig:
    target = Target("/etc/kafka/server.properties", parse_server_properties(b"", "test"), (D1, D2), (3, 9, 1))
    return RunConfig(replace(Settings(), **sections), target, "/etc/logagent/logagent.toml")


@dataclass
class FakeWork:
    """A host whose delete queue holds due times (ms); what falls due is removed, or fails and waits for its backoff."""

    clock: FakeClock
    queued: dict[str, int] = field(default_factory=dict)
    failing: dict[str, int] = field(default_factory=dict)
    watched: bool = True
    error: tuple[str, str] | None = None
    offline: set[str] = field(default_factory=set)
    done: list[tuple[int, str]] = field(default_factory=list)
    ran: list[tuple[int, str]] = field(default_factory=list)
    configured: list[RunConfig] = field(default_factory=list)
    refuse: ConfigError | None = None
    has_store: bool = False
    seconds: float = 0.0
    back: list[str] = field(default_factory=list)
    publish_error: str | None = None
    to_do: Literal["new", "open"] | None = None
    during: Callable[[str], None] = lambda job: None

    def cycle(self, job: str) -> CycleSummary:
        now = self.clock.now_ms()
        self.ran.append((now, job))
        self.during(job)
        if self.error is not None:
            return CycleSummary(job=job, mode="enforce", started_ms=now, seconds=0, error_slug=self.error[0],
                                error=self.error[1])  # fmt: skip
        for name in [name for name, due in self.queued.items() if due <= now]:
            if name in self.failing:
                self.failing[name] += 1
                self.queued[name] = now + backoff_ms(self.failing[name])
            else:
                del self.queued[name]
            self.done.append((now, name))
        later = min(self.queued.values(), default=None)
        return CycleSummary(job=job, mode="enforce", started_ms=now, seconds=self.seconds, next_due_ms=later)

    def takes_requests(self) -> bool:
        return self.to_do is not None

    def requests(self) -> Literal["new", "open"] | None:
        to_do = self.to_do
        self.to_do = "open" if to_do == "new" else to_do
        return to_do

    def health(self) -> HealthSummary:
        now = self.clock.now_ms()
        self.ran.append((now, "health"))
        states = [
            LogDirSummary(
                path=path,
                health=Health.OFFLINE if path in self.offline else Health.ONLINE,
                reason="it died" if path in self.offline else None,
                since_ms=now,
                probe_ms=1.0,
                wrote=True,
                limited=None,
                good_probes=0,
            )
            for path in (D1, D2)
        ]
        return HealthSummary(at_ms=now, seconds=0, log_dirs=tuple(states))

    def publish(self) -> PublishSummary | None:
        self.ran.append((self.clock.now_ms(), "publish"))
        return PublishSummary(at_ms=self.clock.now_ms(), seconds=0, waiting=1, error=self.publish_error)

    def configure(self, config: RunConfig) -> None:
        self.configured.append(config)

    def reload_failed(self) -> None:
        self.configured.append(config())

    def want_snapshot(self) -> bool:
        return self.has_store

    def recovered_log_dirs(self, paths: Collection[str]) -> None:
        self.back += paths

    def unwatched(self) -> Mapping[str, str]:
        return {} if self.watched else {D1: "the limit is reached"}

    def close(self) -> None:
        pass

    def times(self, job: str) -> list[int]:
        return [at for at, name in self.ran if name == job]


class Life:
    """A daemon that lives in one thread, on a clock of its own."""

    def __init__(self, first: RunConfig | None = None, load: Callable[[], RunConfig] = config, **work: Any) -> None:
        self.clock = FakeClock()
        self.scheduler = FakeScheduler(self.clock, self.work_off)
        self.work = FakeWork(self.clock, **work)
        self.control = LoopControl()
        self.out = io.StringIO()
        self.daemon = Daemon(
            first or config(),
            load=load,
            jobs=self.work,
            control=self.control,
            clock=self.clock,
            scheduler=self.scheduler,
            lines=LogLines(Events(self.out, self.clock.now_ms, "json")),
            notifier=Notifier({}),
        )

    def start(self) -> None:
        self.daemon.schedule(first=True)
        self.scheduler.start()
        self.work_off()

    def work_off(self) -> None:
        # Twice: what one loop does can post to another one.
        for loop in 2 * [*self.daemon.loops.values()]:
            loop.run(wait=False)

    def run(self, ms: int) -> None:
        self.scheduler.run_until(self.clock.now_ms() + ms)

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.out.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]


def test_new_requests_are_carried_out_at_once_and_open_ones_for_a_twentieth_of_the_time() -> None:
    life = Life(to_do="new", seconds=9.0)
    life.start()
    life.run(60 * 60_000)
    times = life.work.times("requests")
    assert len(times) == pytest.approx(20, abs=1) and life.said("internal-error") == []


def test_a_quiet_day_is_its_intervals_and_nothing_else() -> None:
    life = Life()
    life.start()
    life.run(DAY_MS)
    assert len(life.work.times("cleanup")) == 1 + 24 * 6
    assert len(life.work.times("health")) == 1 + 24 * 60 * 2
    assert len(life.work.times("queue")) == 1, "an empty queue is not polled while inotify tells"
    assert life.work.times("inventory") == life.work.times("publish") == []
    assert len(life.out.getvalue().splitlines()) < 10, "a day without news is a short log"


def test_what_is_marked_goes_when_it_is_due_though_no_cleanup_tick_falls_then() -> None:
    life = Life()
    life.start()
    life.run(5 * MINUTE_MS)
    due = life.clock.now_ms() + 90_000
    life.work.queued["a"] = due
    life.daemon.hint(D1, "t-0.0123456789abcdef0123456789abcdef-delete")
    life.run(3 * MINUTE_MS)
    assert life.work.done == [(due, "a")]


def test_a_burst_of_hints_is_one_queue_cycle() -> None:
    life = Life()
    life.start()
    before = len(life.work.times("queue"))
    for number in range(4000):
        life.daemon.hint(D1, f"t-{number}.0123456789abcdef0123456789abcdef-delete")
    life.run(5_000)
    assert len(life.work.times("queue")) == before + 1
    life.daemon.hint(D1, "t-0")
    life.run(5_000)
    assert len(life.work.times("queue")) == before + 1, "only marked directories concern the queue"


def test_where_a_queue_cycle_takes_long_a_broker_that_deletes_all_day_costs_little() -> None:
    life = Life(seconds=0.4)
    life.start()
    before = len(life.work.times("queue"))
    for _ in range(3600):
        life.daemon.hint(D1, "t-0.0123456789abcdef0123456789abcdef-delete")
        life.run(1_000)
    assert 60 < len(life.work.times("queue")) - before <= 3600 / 8 + 1


@settings(max_examples=30)  # A tenth of a second each.
@given(
    marks=st.lists(st.tuples(st.integers(0, 12 * HOUR_MS), st.integers(0, 2 * HOUR_MS)), max_size=25),
    failing=st.integers(0, 25),
)
def test_over_half_a_day_everything_goes_at_its_moment(marks: list[tuple[int, int]], failing: int) -> None:
    """Whenever something is marked (and hinted at), it goes within the debounce of the moment it is due: failed ones
    at their backoffs, and never in a busy loop."""
    life = Life()
    life.start()
    names = {}
    for number, (at, delay) in enumerate(sorted(marks)):
        life.scheduler.run_until(START_MS + at)
        names[f"m{number}"] = due = life.clock.now_ms() + delay
        life.work.queued[f"m{number}"] = due
        if number >= failing:
            life.work.failing[f"m{number}"] = 0
        life.daemon.hint(D1, "x-0.0123456789abcdef0123456789abcdef-delete")
    life.scheduler.run_until(START_MS + 16 * HOUR_MS, most=20_000)
    first: dict[str, int] = {}
    for at, name in life.work.done:
        first.setdefault(name, at)
    assert first.keys() == names.keys()
    # Within the time that a hint is held back for, where it was due sooner than that.
    assert [n for n in names if not (names[n] <= first[n] <= names[n] + 1_000)] == []
    assert set(life.work.queued) == set(life.work.failing)
    for name in life.work.failing:
        attempts = [at for at, n in life.work.done if n == name]
        assert [(sooner, later) for sooner, later in pairwise(attempts) if later - sooner < 1_000] == []


def test_without_inotify_the_queue_is_read_now_and_then() -> None:
    life = Life(watched=False)
    life.start()
    life.run(HOUR_MS)
    assert len(life.work.times("queue")) in range(HOUR_MS // POLL_MS - 8, HOUR_MS // POLL_MS + 8)
    life.work.queued["a"] = life.clock.now_ms()
    life.run(POLL_MS)
    assert [name for _, name in life.work.done] == ["a"]


def test_a_delay_of_zero_and_an_empty_queue_do_not_spin() -> None:
    life = Life(watched=False)
    life.work.queued["a"] = START_MS
    life.start()
    life.run(10_000)
    assert len(life.scheduler.ticks) < 5
    assert [(sooner, later) for sooner, later in pairwise(life.work.times("queue")) if later <= sooner] == []


def test_an_error_is_logged_once_and_tried_again_until_it_is_over() -> None:
    life = Life(error=("journal", "the journal cannot be used: disk full"))
    life.start()
    life.run(HOUR_MS)
    assert len(life.said("cycle-failed")) == 1
    assert len(life.work.times("cleanup")) >= HOUR_MS // ERROR_RETRY_MS
    life.work.error = None
    life.run(2 * ERROR_RETRY_MS)
    assert len(life.said("cycle-recovered")) == 1
    life.work.error = ("journal", "the journal cannot be used: disk full")
    life.run(HOUR_MS)
    assert len(life.said("cycle-failed")) == 2, "it is news again"


def test_numbers_in_an_error_are_no_news() -> None:
    life = Life()
    life.start()
    for number in range(5):
        life.work.error = ("failed", f"it is {number} s old")
        life.run(11 * MINUTE_MS)
    assert len(life.said("cycle-failed")) == 1


def test_a_command_that_acts_is_waited_for() -> None:
    life = Life(error=("busy", "another logagent is acting"))
    life.start()
    life.run(3 * BUSY_RETRY_MS)
    assert len(life.work.times("cleanup")) == 4
    assert [line["level"] for line in life.said("cycle-deferred")] == ["info"]


def test_a_log_dir_that_dies_and_recovers_is_logged_once_each_and_scanned_anew() -> None:
    life = Life()
    life.start()
    life.run(5 * MINUTE_MS)
    life.work.offline = {D2}
    life.run(5 * MINUTE_MS)
    before = len(life.work.times("cleanup"))
    life.work.offline = set()
    life.run(30_000)
    assert len(life.work.times("cleanup")) == before + 1
    assert life.work.back == [D2]
    life.run(3 * MINUTE_MS)
    told = [(line["log_dir"], line["health"]) for line in life.said("log-dir")]
    assert told == [(D1, "online"), (D2, "online"), (D2, "offline"), (D2, "online")]


@pytest.mark.parametrize("policy", ["stay", "halt"])
def test_all_log_dirs_offline(policy: Any) -> None:
    life = Life(config(health=HealthSettings(on_all_offline=policy)))
    life.start()
    life.work.offline = {D1}
    life.run(5 * MINUTE_MS)
    assert life.daemon.status_code is None
    life.work.offline = {D1, D2}
    life.run(MINUTE_MS)
    assert life.daemon.status_code is (Exit.HALTED if policy == "halt" else None)
    assert life.control.stopping is (policy == "halt")


def test_a_bug_in_a_cycle_is_logged_once_with_its_place_and_does_not_end_the_loop() -> None:
    life = Life()

    def fail(job: str) -> None:
        raise ZeroDivisionError("a bug")

    life.work.during = fail
    life.start()
    life.run(HOUR_MS)
    assert len(life.work.times("cleanup")) == 7
    said = life.said("internal-error")
    assert {line["job"] for line in said} == {"queue", "cleanup"} and len(said) == 2
    assert "ZeroDivisionError" in said[0]["traceback"] and "\n" not in life.out.getvalue().splitlines()[0]
    assert {job: why for job, (_, why) in life.daemon.failed.items()} == dict.fromkeys(
        ("queue", "cleanup"), "ZeroDivisionError('a bug')"
    )
    # Until it ends well; the next time it is said again.
    life.work.during = lambda job: None
    life.run(HOUR_MS)
    assert life.daemon.failed == {}
    life.work.during = fail
    life.run(HOUR_MS)
    assert len(life.said("internal-error")) > 2 and life.daemon.failed


def test_a_cycle_that_is_aborted_leaves_no_trace() -> None:
    life = Life()

    def abort(job: str) -> None:
        raise CycleAborted

    life.work.during = abort
    life.start()
    assert life.daemon.last == {} and life.said("internal-error") == []


def test_publishing_takes_an_inventory_and_is_tried_again_while_the_store_is_away() -> None:
    life = Life(config(publish=PublishSettings(store="/mnt/store", interval=HOUR_MS)), has_store=True)
    life.start()
    life.run(3 * HOUR_MS)
    assert len(life.work.times("inventory")) == 3
    life.work.publish_error = "the store is away"
    life.daemon.post("publish")
    life.work_off()
    count = len(life.work.times("publish"))
    life.run(30 * MINUTE_MS)
    assert len(life.work.times("publish")) == count + 6
    assert len(life.said("publish-failed")) == 1


# Reload


def test_a_reload_moves_the_intervals_and_says_what_changed() -> None:
    new = config(cleanup=CleanupSettings(interval=HOUR_MS), health=HealthSettings(probe_interval=5_000))
    life = Life(load=lambda: new)
    life.start()
    life.run(MINUTE_MS)
    life.daemon.reload_now()
    assert life.said("reloaded")[0]["changed"] == "cleanup.interval, health.probe_interval"
    health, cleanup = len(life.work.times("health")), len(life.work.times("cleanup"))
    life.run(3 * HOUR_MS)
    assert len(life.work.times("health")) - health >= 3 * HOUR_MS // 5_000 - 1
    assert len(life.work.times("cleanup")) - cleanup in (3, 4)
    assert life.work.configured == [new] and life.daemon.config is new


@pytest.mark.parametrize("log_dirs", [("/tmp/kafka-logs",), (D1,), (D1, D2, "/data/new")])
def test_a_reload_forgets_no_log_dir(log_dirs: tuple[str, ...]) -> None:
    """A server.properties that is being written is empty, or cut, and valid all the same."""
    life = Life(load=lambda: replace(config(), target=replace(config().target, log_dirs=log_dirs)))
    life.daemon.reload_now()
    if D2 in log_dirs:
        assert life.daemon.config.target.log_dirs == log_dirs
    else:
        assert life.daemon.config.target.log_dirs == (D1, D2)
        assert "restart logagent" in life.said("reload-failed")[0]["problems"]


def test_an_invalid_configuration_leaves_the_old_one_running_and_says_every_problem() -> None:
    def load() -> RunConfig:
        raise ConfigError("the configuration is wrong", problems=("a.toml: cleanup.mode: x", "a.toml: y: z"))

    life = Life(load=load)
    before = life.daemon.config
    life.start()
    life.daemon.reload_now()
    assert life.daemon.config is before
    said = life.said("reload-failed")
    assert len(said) == 1 and "cleanup.mode: x" in said[0]["problems"] and "y: z" in said[0]["problems"]
    life.run(HOUR_MS)
    assert len(life.work.times("cleanup")) == 7


def test_a_reload_amid_a_removal_ends_it_at_the_present_file_and_takes_it_up_by_the_new_rules() -> None:
    life = Life(config(cleanup=CleanupSettings(mode="enforce")), load=config)
    stops: list[tuple[bool, bool]] = []

    def during(job: str) -> None:
        if job == "cleanup" and not stops:
            life.daemon.reload_now()
            stops.append((life.control.stop(), life.control.aborting()))

    life.work.during = during
    life.start()
    assert stops == [(True, False)], "the removal is told to stop, the daemon is not"
    assert len(life.work.times("cleanup")) == 2
    assert life.control.stop() is False


def test_a_reload_without_a_change_disturbs_nothing() -> None:
    life = Life()
    life.start()
    ran = len(life.work.ran)
    life.daemon.reload_now()
    life.work_off()
    assert len(life.work.ran) == ran
    assert life.said("reloaded")[0]["changed"] == "nothing"


# Clocks


@pytest.mark.parametrize("by", [-6 * HOUR_MS, 6 * HOUR_MS])
def test_a_clock_that_was_set_stops_nothing(by: int) -> None:
    life = Life()
    life.start()
    life.run(HOUR_MS)
    life.clock.set_wall(life.clock.now_ms() + by)
    life.scheduler.clock_was_set()
    before = len(life.work.times("health"))
    life.run(10 * MINUTE_MS)
    assert len(life.work.times("health")) - before in range(19, 24)


# Signs of life


def test_a_loop_that_has_nothing_to_do_is_alive_and_one_that_hangs_is_not() -> None:
    life = Life()
    life.start()
    life.clock.elapsed_ms += MINUTE_MS
    assert life.daemon.is_alive(60)

    def hang(job: str) -> None:
        assert life.daemon.is_alive(60)
        life.clock.elapsed_ms += 50_000
        assert life.daemon.is_alive(60)
        life.control.stop()
        life.clock.elapsed_ms += 50_000
        assert life.daemon.is_alive(60), "who asks whether to stop gives a sign of life"
        life.clock.elapsed_ms += 50_000
        assert not life.daemon.is_alive(60)

    life.work.during = hang
    life.daemon.post("cleanup")
    life.work_off()
    life.daemon.post("health")
    life.work_off()
    assert life.daemon.is_alive(60)


def test_a_job_that_waits_for_a_dead_thread_is_silence_too() -> None:
    """A loop that died, or never took its job, must not be pinged for."""
    life = Life()
    life.daemon.post("cleanup")
    life.clock.elapsed_ms += 61_000
    assert not life.daemon.is_alive(60)


def test_a_fleet_store_that_hangs_is_not_silence() -> None:
    life = Life()
    life.daemon.post("publish")
    life.clock.elapsed_ms += DAY_MS
    life.daemon.post("health")
    life.daemon.loops["health"].run(wait=False)
    assert life.daemon.is_alive(60)


def test_the_end_comes_with_the_first_status() -> None:
    life = Life()
    life.start()
    life.daemon.end(Exit.HALTED)
    life.daemon.end()
    assert life.daemon.status_code is Exit.HALTED
    assert life.daemon.finish(1.0)
    life.run(DAY_MS)
    assert not life.scheduler.running


def test_where_inotify_fails_is_logged_once_and_so_is_its_return() -> None:
    life = Life()
    life.start()
    for watched in (False, False, True, True):
        life.work.watched = watched
        life.daemon.watch_changed()
    assert [(line["log_dir"], line["by"]) for line in life.said("watch")] == [(D1, "polling"), (D1, "inotify")]
    life.work.watched = False
    life.daemon.watch_changed()
    life.run(2 * POLL_MS)
    assert len(life.work.times("queue")) == 3
