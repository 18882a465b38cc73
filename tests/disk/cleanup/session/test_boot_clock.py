"""A clock that may be wrong since boot, beside a state dir that knows of no cycle: disk and kernel are asked."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from logagent.base.units import DAY_MS
from logagent.cleanup.commands.cleanup import plan_cleanup
from logagent.cleanup.session import recall
from logagent.kafka.image import PartitionAssignment, Topic
from logagent.service.prestart.command import plan_prestart
from logagent.verdict.facts import LogDirFacts
from tests.disk.sessions import SETTINGS, FailingHost, in_a_moment
from tests.fake_time import SetClock
from tests.host_files import GONE_ID, bulk_partition, format_log_dir, write_export, write_topic_id
from tests.hosts import TOPIC_ID
from tests.needs import need_command

STRAY = "gone-0.0123456789abcdef0123456789abcdef-stray"
KEEP = replace(SETTINGS, cleanup=replace(SETTINGS.cleanup, stray_retention=7 * DAY_MS))
ASK_KERNEL = "from logagent.cleanup.session.recall import is_synchronised; print(is_synchronised())"


class JustBooted(SetClock):
    """A host that has just started, with a clock that is so far ahead."""

    def boottime(self) -> float:
        return 5.0


@pytest.mark.parametrize(("synchronised", "due"), [(True, True), (False, False), (None, False)])
def test_a_new_state_dir_beside_a_clock_eight_days_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synchronised: bool | None, due: bool
) -> None:
    """A stray of seconds looked eight days old, and `prestart` marked it at once. (Where the kernel vouches for the
    clock, the host was off for eight days.)"""
    monkeypatch.setattr(recall, "is_synchronised", lambda: synchronised)
    log_dir = format_log_dir(tmp_path / "d1")
    bulk_partition(log_dir, STRAY)
    host = FailingHost(tmp_path / "state", log_dir, settings=KEEP)
    with host.session(clock=JustBooted(8 * DAY_MS), inventory=True) as opened:
        facts = opened.facts()
        for plan in (plan_prestart(opened, facts).plan, plan_cleanup(opened, facts)):
            assert [p.dir.name for p in plan.actions] == ([STRAY] if due else [])
            assert due or "its wall clock is wrong" in next(w.why.fact for w in plan.waiting if w.dir.name == STRAY)
        if not due:
            # The operator's word, for this boot.
            assert [p.dir.name for p in plan_cleanup(opened, facts, trust_clock=True).actions] == [STRAY]
    with host.session(clock=JustBooted(8 * DAY_MS), inventory=True) as opened:
        assert [p.dir.name for p in plan_cleanup(opened, opened.facts()).actions] == [STRAY]


def test_a_clock_that_is_set_while_evidence_is_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was marked a moment ago looked eight days old: ages were counted to a moment after the look at the clock."""
    log_dir, clock = format_log_dir(tmp_path / "d1"), SetClock()
    marked = bulk_partition(log_dir, "gone-0.0123456789abcdef0123456789abcdef-delete")
    late = replace(SETTINGS, delete=replace(SETTINGS.delete, file_delete_delay_ms=DAY_MS))
    host = FailingHost(tmp_path / "state", log_dir, settings=late)
    with host.session(clock=clock, inventory=True) as opened:
        assert not plan_cleanup(opened, opened.facts()).actions  # A trustworthy cycle.
    with host.session(clock=clock, inventory=True) as opened:
        look = opened.log_dirs.log_dir_facts

        def look_and_set(how: Literal["now", "held", "no"] = "now") -> dict[str, LogDirFacts]:
            clock.ahead_ms = 8 * DAY_MS
            return look(how)

        monkeypatch.setattr(opened.log_dirs, "log_dir_facts", look_and_set)
        plan = plan_cleanup(opened, opened.facts())
        assert not plan.actions and "the wall clock was set by" in plan.waiting[0].why.fact
    assert marked.is_dir()


@pytest.mark.parametrize("days", [-8, 8])
def test_a_clock_that_is_set_between_plan_and_act(tmp_path: Path, days: int) -> None:
    """Set aside by a clock eight days behind, it looked past its retention as soon as the clock was right again."""
    log_dir, clock = format_log_dir(tmp_path / "d1"), SetClock()
    write_topic_id(gone := bulk_partition(log_dir, "orders-0"), GONE_ID)
    bulk_partition(log_dir, "kept-0")
    now_due = replace(SETTINGS, cleanup=replace(SETTINGS.cleanup, sightings=1, min_age=0))
    host = FailingHost(tmp_path / "state", log_dir, settings=now_due)
    kept = Topic("kept", TOPIC_ID, {0: PartitionAssignment((3,), (3,))})
    write_export(host.assignments, kept, at_ms=in_a_moment(clock.now_ms()))
    with host.session(clock=clock) as opened:
        opened.read_assignments()
        opened.take_inventory()
        plan = plan_cleanup(opened, opened.facts())
        assert [(p.dir.name, p.reason) for p in plan.actions] == [("orders-0", "topic-absent")]
        clock.ahead_ms = days * DAY_MS
        (refusal,) = opened.log_manager().execute(plan).refusals
        assert refusal.why.code == "clock"
        clock.ahead_ms = 0
        assert not opened.log_manager().execute(plan).refusals
    assert not gone.exists()


def test_a_clock_behind_what_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "is_synchronised", lambda: None)
    log_dir = format_log_dir(tmp_path / "d1")
    host = FailingHost(tmp_path / "state", log_dir, settings=KEEP)
    with host.session(clock=JustBooted(-DAY_MS), inventory=True) as opened:
        doubt = opened.clock_watch.doubt()
        assert doubt is not None and "in the future" in doubt.why


def test_a_kernel_that_may_not_be_asked_says_nothing() -> None:
    """EPERM, as under `ProtectClock=` and in containers, was read as "synchronised"."""
    need_command("strace")
    inject = "inject=adjtimex,clock_adjtime:error=EPERM"
    command = ["strace", "-qq", "-o", os.devnull, "-e", "trace=adjtimex,clock_adjtime", "-e", inject]
    asked = subprocess.run([*command, sys.executable, "-c", ASK_KERNEL], capture_output=True, text=True, check=True)
    said = "True" if os.path.exists("/run/systemd/timesync/synchronized") else "None"
    assert asked.stdout.strip() == said
