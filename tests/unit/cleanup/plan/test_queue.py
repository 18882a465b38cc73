"""The delete queue: order, delay, backoff, and never a busy loop."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from logagent.base.records import DirKey, Health, Holder, HolderState, PartitionDir
from logagent.cleanup.plan.planner import removals
from logagent.cleanup.plan.queue import (
    BACKOFF_MOST_MS,
    NO_REMOVALS,
    Attempts,
    QueueEntry,
    RemovalIntent,
    RemovalIntents,
    backoff_ms,
    build_queue,
    full_topic,
    marked_at_ms,
    why_not_whole,
)
from logagent.verdict.marks import Contents, Mark
from tests.hosts import HEX, LOG_DIR, NOW, directory, log_dir

DELAY, GRACE = 60_000, 3_600_000
NAME = f"orders-0.{HEX}-delete"
KEY = DirKey(LOG_DIR, NAME)


def queue(
    *marked: PartitionDir,
    marks: dict[DirKey, Mark] | None = None,
    failures: dict[DirKey, Attempts] | None = None,
    removal_intents: RemovalIntents = NO_REMOVALS,
    delay_ms: int = DELAY,
) -> list[QueueEntry]:
    return build_queue(marked, marks or {}, failures or {}, removal_intents, delay_ms=delay_ms, leftover_grace_ms=GRACE)


def at(ms: int, name: str = NAME) -> PartitionDir:
    return directory(name, ctime_ns=ms * 1_000_000 + 999_999)


def test_ours_is_due_after_the_delay_and_the_brokers_after_a_grace_beyond() -> None:
    (ours,) = queue(at(NOW - 5), marks={KEY: Mark(NOW, "orders")})
    assert (ours.owner, ours.marked_at_ms, ours.due_at_ms) == ("logagent", NOW, NOW + DELAY)
    (brokers,) = queue(at(NOW))
    assert (brokers.owner, brokers.marked_at_ms, brokers.due_at_ms) == ("broker", NOW, NOW + DELAY + GRACE)


def test_the_journal_knows_better_than_the_directory() -> None:
    found = directory("t" * 213 + f"-0.{HEX}-delete", truncated=True)
    assert marked_at_ms(found, None) == NOW
    assert marked_at_ms(found, Mark(17, None)) == 17
    assert full_topic(found, None) is None
    assert full_topic(found, Mark(17, "t" * 249)) == "t" * 249
    assert full_topic(directory(NAME), None) == "orders"
    assert full_topic(directory(NAME), Mark(17, None)) == "orders"


def test_a_removal_that_was_begun_waits_only_for_its_backoff() -> None:
    started = {KEY: [RemovalIntent(files=5, bytes=1000)]}
    part = replace(at(NOW), removal_started=True)  # four files are left
    (entry,) = queue(part, removal_intents=started, delay_ms=DELAY)
    assert entry.due_at_ms == NOW and entry.removal_started
    (entry,) = queue(part, removal_intents=started, delay_ms=DELAY, failures={KEY: Attempts(3, NOW, "EACCES")})
    assert entry.due_at_ms == NOW + 4000
    # `chmod -R ug+s` sets the mark everywhere, and an intent may have come to nothing.
    for whole, said in ((at(NOW), started), (part, NO_REMOVALS), (part, {KEY: [RemovalIntent(files=4, bytes=1000)]})):
        (entry,) = queue(whole, removal_intents=said, delay_ms=DELAY, marks={KEY: Mark(NOW, "orders")})
        assert entry.due_at_ms == NOW + DELAY and not entry.removal_started


def test_backoff_doubles_up_to_an_hour() -> None:
    assert [backoff_ms(n) for n in range(5)] == [0, 1000, 2000, 4000, 8000]
    assert backoff_ms(10**9) == BACKOFF_MOST_MS


@given(st.integers(1, 10**6))
def test_backoff_never_shrinks(attempts: int) -> None:
    assert 1000 <= backoff_ms(attempts) <= backoff_ms(attempts + 1) <= BACKOFF_MOST_MS


def test_a_mark_in_the_future_is_not_due() -> None:
    """A clock was set back: with delay 0 the due time alone would say now."""
    entries = queue(at(NOW + 1), marks={KEY: Mark(NOW + 1, None)}, delay_ms=0)
    assert removals(entries, NOW).due == []
    assert [p.dir for p in removals(entries, NOW + 1).due] == [e.dir for e in entries]


MARKED = st.lists(
    st.tuples(st.integers(NOW - 10**7, NOW + 10**7), st.booleans(), st.integers(0, 12), st.booleans()), max_size=8
)


@given(MARKED, st.integers(0, 10**7), st.integers(NOW - 10**7, NOW + 10**7))
def test_the_queue_is_in_order_and_complete(marked: list[tuple[int, bool, int, bool]], delay: int, now: int) -> None:
    names = [f"orders-{n}.{HEX}-delete" for n in range(len(marked))]
    found = [at(ms, name) for name, (ms, _, _, _) in zip(names, marked, strict=True)]
    cases = list(zip(names, marked, strict=True))
    marks = {DirKey(LOG_DIR, n): Mark(ms, "orders") for n, (ms, ours, _, _) in cases if ours}
    failures = {DirKey(LOG_DIR, n): Attempts(count, ms, "EACCES") for n, (ms, _, count, _) in cases if count}
    started = {DirKey(LOG_DIR, n): [RemovalIntent(9, 0)] for n, (_, _, _, b) in cases if b}
    entries = queue(*found, marks=marks, failures=failures, removal_intents=started, delay_ms=delay)
    assert sorted(e.dir.name for e in entries) == sorted(names)
    assert [e.due_at_ms for e in entries] == sorted(e.due_at_ms for e in entries)
    ready = {p.key for p in removals(entries, now).due}
    assert ready == {e.dir.key for e in entries if e.due_at_ms <= now and e.marked_at_ms <= now}
    for e in entries:
        assert DirKey(LOG_DIR, e.dir.name) in started or e.due_at_ms >= e.marked_at_ms + delay


def test_why_it_is_not_whole_is_said_in_numbers() -> None:
    found = directory(NAME, files=4, segments=1, bytes=900, removal_started=True)
    several = [RemovalIntent(files=7, bytes=1000, segments=2), RemovalIntent(files=9, bytes=1000, segments=3)]
    begun = why_not_whole(found, {found.key: several}, None)
    assert begun is not None and begun.fact == "its removal has started: 4 of 9 files are left"
    had = Mark(NOW, "orders", had=Contents(files=9, bytes=2000, segments=2, log_bytes=1900))
    short = why_not_whole(found, NO_REMOVALS, had)
    assert short is not None
    assert short.fact == "it had 2 segments with 1900 bytes when it was set aside, and has 1 with 900: some was removed"


def test_beside_a_running_broker_its_own_delay_counts_from_the_later_of_mark_and_start() -> None:
    (entry,) = queue(directory(NAME, ctime_ns=NOW * 1_000_000))
    assert entry.due_at_ms == entry.marked_at_ms + DELAY + GRACE
    for state in (HolderState.HELD, HolderState.STARTING):
        for started, since in ((entry.marked_at_ms - 1, entry.marked_at_ms), (entry.marked_at_ms + 5_000,) * 2):
            there = log_dir(holder=Holder(state, 4711, started))
            assert entry.goes_at_ms(there) == since + DELAY
            assert entry.goes_at_ms(replace(there, health=Health.OFFLINE)) == entry.due_at_ms, "it gave the log dir up"
    assert entry.goes_at_ms(log_dir()) == entry.goes_at_ms(None) == entry.due_at_ms


def test_what_a_running_broker_removes_waits_for_it_and_is_not_ours_any_sooner() -> None:
    (entry,) = queue(directory(NAME, ctime_ns=NOW * 1_000_000))
    there = {LOG_DIR: log_dir(holder=Holder(HolderState.HELD, 4711, 0))}
    early = removals([entry], entry.marked_at_ms + DELAY, there)
    assert early.due == [] and [w.why.until_ms for w in early.waiting] == [entry.marked_at_ms + DELAY]
    assert [w.why.until_ms for w in removals([entry], entry.marked_at_ms + DELAY).waiting] == [entry.due_at_ms]
    (soon,), (overdue,) = (removals([entry], entry.marked_at_ms + at, there).waiting for at in (DELAY - 1, DELAY))
    assert soon.why.fact == "the running broker removes it" and "should have removed it by then" in overdue.why.fact
    # Also where ours is over sooner: nothing is refused that the broker does by itself.
    shorter = replace(entry, due_at_ms=entry.marked_at_ms)
    before, after = (removals([shorter], shorter.marked_at_ms + at, there) for at in (DELAY - 1, DELAY))
    assert before.due == [] and [w.why.until_ms for w in before.waiting] == [entry.marked_at_ms + DELAY]
    assert [p.dir for p in after.due] == [entry.dir]
    failed = replace(entry, attempts=Attempts(2, entry.marked_at_ms + DELAY, "EIO"), due_at_ms=entry.due_at_ms + 2_000)
    (again,) = removals([failed], failed.marked_at_ms + DELAY, there).waiting
    assert "EIO" in again.why.fact and "should have removed it" in again.why.fact, again
