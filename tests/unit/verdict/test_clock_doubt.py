"""Whether ages can be trusted, until when not, and how old things are after a jump that was accepted."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from logagent.verdict.clock_doubt import (
    MOST_DRIFT_MS,
    ClockJump,
    Clocks,
    accepted,
    clock_doubt,
    corrected,
    reaching_back,
)
from tests.hosts import NOW

HOUR, DAY = 3_600_000, 86_400_000
LAST = Clocks("boot-1", NOW, 1_000_000)


def later(ms: int, *, drift: int = 0) -> Clocks:
    return Clocks("boot-1", NOW + ms + drift, 1_000_000 + ms)


def test_a_drift_of_more_than_an_hour_is_a_doubt() -> None:
    assert clock_doubt(None, None, LAST) is None
    assert clock_doubt(LAST, None, later(5 * HOUR)) is None
    assert clock_doubt(LAST, None, later(0, drift=MOST_DRIFT_MS)) is None
    for drift in (MOST_DRIFT_MS + 60_000, -MOST_DRIFT_MS - 60_000):
        doubt = clock_doubt(LAST, None, later(7, drift=drift))
        assert doubt is not None and (doubt.drift_ms, doubt.until_ms) == (drift, NOW + 7)
        assert f"was set by {drift // 60_000} minutes" in doubt.why


def test_it_lasts_until_the_drift_is_gone() -> None:
    """One pause only hid it: the next cycle removed strays of seconds as if they were eight days old."""
    for cycle in range(1, 50):
        assert clock_doubt(LAST, None, later(cycle * HOUR, drift=8 * DAY)) is not None
    assert clock_doubt(LAST, None, later(50 * HOUR)) is None


def test_over_a_restart() -> None:
    reboot = Clocks("boot-2", NOW + 8 * DAY + HOUR, 5_000)
    doubt = clock_doubt(LAST, None, later(HOUR, drift=8 * DAY))
    # There is nothing to compare with: a host may well be down for eight days. But a doubt stays.
    assert clock_doubt(LAST, None, reboot) is None
    still = clock_doubt(LAST, doubt, reboot)
    assert still is not None and still.drift_ms == 8 * DAY and "before the host was restarted" in still.why
    assert "behind the last cycle" in str(clock_doubt(LAST, None, replace(reboot, wall_ms=NOW - 2 * HOUR)))
    unsynchronised = clock_doubt(LAST, None, reboot, synchronised=False)
    assert unsynchronised is not None and accepted(unsynchronised) is None
    # Within one boot the two clocks are compared, whatever the kernel says.
    assert clock_doubt(LAST, None, later(HOUR), synchronised=False) is None


def test_a_sandbox_that_shows_another_boot_id_is_no_restart() -> None:
    """The daemon's in a container of systemd-nspawn: every command of a shell would have looked like a reboot."""
    elsewhere = replace(later(HOUR), boot_id="of the host")
    assert clock_doubt(LAST, None, elsewhere, synchronised=False) is None
    assert clock_doubt(LAST, None, replace(elsewhere, boottime_ms=5_000), synchronised=False) is not None


def test_without_a_last_cycle_the_disk_is_asked() -> None:
    """A new or lost state dir beside a clock that was wrong at boot: seconds passed for days."""
    booted = Clocks("boot-2", NOW, 10 * 60_000)
    at_boot = NOW - booted.boottime_ms
    for synchronised in (False, None):

        def doubt(*changed: int, synchronised: bool | None = synchronised) -> str:
            found = clock_doubt(None, None, booted, synchronised=synchronised, changed_ms=lambda: changed)
            return "" if found is None else found.why

        assert doubt() == "" and doubt(at_boot + 1, NOW) == ""
        assert doubt(at_boot - 8 * DAY, at_boot - HOUR, NOW) == "", "the host was off for an hour at most"
        assert "off for 11520 minutes" in doubt(at_boot - 8 * DAY, NOW)
        assert doubt(NOW + 60_000) == "" and "2 minutes in the future" in doubt(at_boot - 1, NOW + 2 * 60_000)
    assert clock_doubt(None, None, booted, synchronised=True, changed_ms=lambda: [NOW + DAY]) is None


def test_where_the_kernel_cannot_be_asked_the_last_cycle_tells_how_long_the_host_was_off() -> None:
    def doubt(off_ms: int, *changed: int) -> bool:
        reboot = Clocks("boot-2", NOW + off_ms, 0)
        return clock_doubt(LAST, None, reboot, synchronised=None, changed_ms=lambda: changed) is not None

    assert not doubt(HOUR) and doubt(8 * DAY)
    assert not doubt(8 * DAY, NOW + 8 * DAY - HOUR)


@given(st.integers(0, 30 * DAY), st.integers(MOST_DRIFT_MS + 1, 400 * DAY), st.integers(0, 30 * DAY))
def test_what_was_written_down_before_an_accepted_jump_is_as_old_as_the_clock_since_boot_says(
    ago: int, drift: int, since: int
) -> None:
    doubt = clock_doubt(LAST, None, later(since, drift=drift))
    jump = accepted(doubt) if doubt is not None else None
    assert jump is not None
    now = NOW + since + drift
    assert now - corrected(NOW - ago, [jump]) == ago + since
    # And what is written down from now on is left as it is.
    assert corrected(now + 1, [jump]) == now + 1


def test_a_jump_backward_makes_nothing_older() -> None:
    doubt = clock_doubt(LAST, None, later(HOUR, drift=-8 * DAY))
    assert doubt is not None and accepted(doubt) is None


@given(st.lists(st.tuples(st.integers(0, 100 * DAY), st.integers(1, 50 * DAY)), max_size=4), st.integers(0, 200 * DAY))
def test_the_last_day_reaches_back_over_every_jump_in_it(pairs: list[tuple[int, int]], at: int) -> None:
    wall, jumps = 0, []
    for step, delta in pairs:
        wall += step
        jumps.append(ClockJump(wall, delta))
        wall += delta
    now = wall + HOUR
    if corrected(at, jumps) >= now - DAY:
        assert at >= reaching_back(now - DAY, jumps)
