"""A store that is lost, rolled back, forged, hung or full, wrong clocks, hosts that lie: nothing is revived."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from logagent.store.records import instant
from logagent.store.requests import Outcome, write_outcome
from tests.disk.agent.requests.requested_host import CLUSTER, KEY, ORPHAN, STRANGER, STRAY, RequestedHost


@pytest.fixture
def host(tmp_path: Path) -> RequestedHost:
    return RequestedHost(tmp_path)


def untouched(host: RequestedHost) -> bool:
    return "returns-2" in host.host.find("returns-2")


def test_a_cancellation_that_was_removed_or_rolled_back_revives_nothing(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    backup = host.store.parent / "yesterday"
    shutil.copytree(host.store, backup)
    host.decide(number, "cancelled")
    host.minute()
    assert host.results(number) == [("refused", "request")]
    shutil.rmtree(host.store)
    backup.rename(host.store)
    host.minute(restart=True)
    assert untouched(host) and number in (seen := host.answers.seen(3).decisions), seen  # type: ignore[union-attr]


def test_what_an_agent_has_said_that_it_saw_it_knows_after_the_store_lost_it(host: RequestedHost) -> None:
    """`topics cancel` says "in force" once a seen file carries it: also while the host's own work keeps the executor
    lock, and nothing is remembered yet."""
    number = host.request(host.row(ORPHAN))
    assert host.box is not None
    host.box.read()
    host.decide(number, "cancelled")

    def said() -> bool:
        seen = host.answers.seen(3)
        return seen is not None and number in seen.decisions

    host.box.read()
    host.box.send()
    assert not said(), "nothing is remembered yet"
    host.minute()
    assert said()
    host.place(number, "decision.json").unlink()
    host.minute(restart=True)
    assert said() and untouched(host)


@pytest.mark.parametrize("what", ["cancelled", "dropped", "expired", "delete"])
def test_a_decided_request_is_not_carried_out(host: RequestedHost, what: str) -> None:
    number = host.request(host.row(ORPHAN))
    host.decide(number, what)  # type: ignore[arg-type]
    host.minute()
    assert host.results(number) == [("refused", "request")] and untouched(host)


def test_a_decision_right_before_the_act_counts(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    assert host.box is not None
    host.box.read()
    host.box.send()
    host.decide(number, "cancelled")
    host.minute(read=False)
    assert untouched(host)


def test_what_we_have_not_said_that_we_saw_is_not_carried_out(host: RequestedHost) -> None:
    """Others could not tell of it if the store lost it. The loop that looks does not wait for the one that acts."""
    number = host.request(host.row(ORPHAN))
    assert host.box is not None
    host.box.read()
    host.minute(read=False)
    assert untouched(host) and not host.runs
    host.minute()
    assert host.results(number) == [("done", "quarantined")]


def test_what_stood_at_the_first_look_is_not_carried_out_and_newer_requests_are(tmp_path: Path) -> None:
    host = RequestedHost(tmp_path, born=False)
    old = host.request(host.row(ORPHAN))
    host.minute()
    assert untouched(host) and host.results(old) == [("refused", "request")]
    new = host.request(host.row(ORPHAN))
    host.minute()
    assert host.results(new) == [("done", "quarantined")]


def test_a_lost_memory_obeys_nothing_that_stood(host: RequestedHost) -> None:
    host.request(host.row(ORPHAN))
    (host.host.state / "requests.json").unlink()
    host.minute(restart=True)
    host.minute()
    assert untouched(host)


def test_a_memory_that_cannot_be_read_does_nothing(host: RequestedHost) -> None:
    host.request(host.row(ORPHAN))
    (host.host.state / "requests.json").write_bytes(b'{"agent":"x"}')
    with pytest.raises(Exception, match=r"requests\.json cannot be read"):
        host.minute(restart=True)
    assert untouched(host)
    host.cycle()  # the host's own work goes on


def test_a_clock_ahead_at_the_first_start_obeys_nothing_and_recovers(tmp_path: Path) -> None:
    host = RequestedHost(tmp_path, born=False)
    host.clock.off_ms = 365 * 86_400_000
    old = host.request(host.row(ORPHAN))
    host.minute()
    assert untouched(host) and "the store's" in host.answers.seen(3).refuses  # type: ignore[union-attr]
    host.clock.off_ms = 0
    host.minute(restart=True)
    new = host.request(host.row(ORPHAN))
    host.minute()
    assert host.results(old) == [("refused", "request")] and host.results(new) == [("done", "quarantined")]


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_clock_that_differs_from_the_store_s_carries_nothing_out(host: RequestedHost, minutes: int) -> None:
    host.clock.off_ms = minutes * 60_000
    at = datetime.now(UTC) + timedelta(minutes=min(minutes, 0))
    host.request(host.row(ORPHAN), at=instant(at), expires_at=instant(at + timedelta(days=1)))
    host.minute(restart=True)
    assert untouched(host)


def test_requests_of_wrong_times_are_refused(host: RequestedHost) -> None:
    now, day = datetime.now(UTC), timedelta(days=1)
    for at, until in ((now, now + timedelta(seconds=0)), (now + day, now + 2 * day)):
        number = host.request(host.row(ORPHAN), at=instant(at), expires_at=instant(until))
        host.minute()
        assert untouched(host) and host.said(number).state == "refused"


def forged(host: RequestedHost) -> None:
    host.request(host.row(ORPHAN), key=STRANGER)


def renamed(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    host.place(number, "").rename(host.place("f" * 64, ""))


def altered(host: RequestedHost) -> None:
    place = host.place(host.request(host.row(ORPHAN)), "request.json")
    place.write_bytes(place.read_bytes().replace(b'"payload": "e', b'"payload": "f'))


def a_fifo(host: RequestedHost) -> None:
    place = host.place(host.request(host.row(ORPHAN)), "request.json")
    place.unlink()
    os.mkfifo(place)


def junk_decision(host: RequestedHost) -> None:
    host.place(host.request(host.row(ORPHAN)), "decision.json").write_bytes(b"\xff")


def foreign_cancellation(host: RequestedHost) -> None:
    """Of a stranger, under a name beside: it is not believed, and in doubt nothing is done."""
    number = host.request(host.row(ORPHAN))
    host.place(number, f"decision-{'0' * 32}.json").write_bytes(host.signed(number, "cancelled", STRANGER))


def a_folder(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    shutil.rmtree(host.place(number, ""))
    host.place(number, "").symlink_to(host.host.d2)


@pytest.mark.parametrize("attack", [forged, renamed, altered, a_fifo, junk_decision, foreign_cancellation, a_folder])
def test_what_is_forged_or_altered_holds_one_request_and_no_other(
    host: RequestedHost, attack: Callable[[RequestedHost], None]
) -> None:
    attack(host)
    host.minute()
    assert untouched(host)
    good = host.request(host.row(ORPHAN))
    host.minute()
    assert host.results(good) == [("done", "quarantined")]


def test_a_stray_goes_at_once_only_after_another_host_has_said_that_nothing_was_decided(host: RequestedHost) -> None:
    host.configure(topics_gone=True)
    host.minute()
    number = host.request(host.row(STRAY), approvals=("no-retention",))
    host.witness(4, number)  # written before our look began
    host.witness(5, number, at=instant(datetime.now(UTC) - timedelta(hours=3)))
    host.minute()
    host.minute()
    fact = host.said(number).fact or ""
    assert host.said(number).state == "waits" and "node 4 (kafka4) (silent: node 5 (kafka5))" in fact, fact
    host.witness(4)  # it does not know the request
    host.minute()
    assert "lists this request" in (host.said(number).fact or "")
    host.witness(4, number, born_at=instant(datetime.now(UTC)))  # its memory is newer than the request
    host.minute()
    assert host.host.find("invoices-1.", "-stray")
    host.witness(4, number)
    host.minute()
    assert host.results(number) == [("done", "removed")] and not host.host.find("invoices-1.", "-stray")


@pytest.mark.parametrize("approvals", [("no-retention",), ("no-retention", "no-witness")])
def test_a_decision_that_only_another_host_still_knows_is_obeyed(
    host: RequestedHost, approvals: tuple[str, ...]
) -> None:
    host.configure(topics_gone=True)
    host.minute()
    number = host.request(host.row(STRAY), approvals=approvals)
    host.witness(4, number, known={number: [b"junk", host.signed(number, "cancelled")]})
    host.witness(5, number)
    host.minute()
    host.witness(5, number)
    host.minute()
    assert host.host.find("invoices-1.", "-stray") and host.results(number) == [("refused", "request")]
    assert number in host.answers.seen(3).decisions  # type: ignore[union-attr]


def test_a_cluster_without_other_agents_needs_the_approval_for_it(host: RequestedHost) -> None:
    host.configure(topics_gone=True)
    host.minute()
    row = host.row(STRAY)
    alone = host.request(row, approvals=("no-retention",))
    host.minute()
    host.minute()
    assert host.said(alone).state == "waits"
    approved = host.request(row, approvals=("no-retention", "no-witness"))
    host.minute()
    assert host.results(approved) == [("done", "removed")]


def test_one_lying_host_stops_nothing_and_permits_nothing(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    host.witness(4, known={number: [host.signed(number, "cancelled", STRANGER)]})
    (host.store / "answers" / CLUSTER / "5").mkdir()
    os.mkfifo(host.store / "answers" / CLUSTER / "5" / "seen.json")
    host.minute()
    assert host.results(number) == [("done", "quarantined")]


def test_fifty_thousand_junk_files_delay_nothing_for_long(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    requests, nodes = host.place(number, "").parent, host.store / "answers" / CLUSTER
    for n in range(25_000):
        (requests / f"{n:064x}").write_bytes(b"")
        (nodes / str(100_000 + n)).write_bytes(b"")
    began = time.monotonic()
    host.minute()
    assert host.results(number) == [("done", "quarantined")]
    assert time.monotonic() - began < 60


def test_a_full_store_carries_nothing_out_and_the_host_s_own_cycle_goes_on(host: RequestedHost) -> None:
    host.request(host.row(ORPHAN))
    shutil.rmtree(host.store / "answers")
    (host.store / "answers").write_bytes(b"")  # nothing can be written below it
    with pytest.raises(Exception, match="answers"):
        host.minute(restart=True)
    host.box = None
    host.cycle()
    assert untouched(host)


def test_a_store_that_hangs_delays_the_host_s_own_work_once_and_for_seconds_only(
    host: RequestedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logagent.agent.requests import box

    row = host.row(ORPHAN)
    for _ in range(3):
        host.request(row)
    assert host.box is not None
    host.box.read()
    hung = threading.Event()

    class Hung:
        def names(self, folder: str) -> list[str]:
            hung.wait(600)
            return []

    host.box.folder.control = Hung()  # type: ignore[assignment]
    monkeypatch.setattr(box, "OPEN_SECONDS", 1.0)
    began = time.monotonic()
    try:
        host.minute(read=False)
    finally:
        hung.set()
    assert untouched(host) and time.monotonic() - began < 30


def test_the_outcome_closes_a_request_for_good(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    write_outcome(host.control, Outcome(number, CLUSTER, "ops", instant(datetime.now(UTC))), KEY)
    host.minute()
    host.place(number, "outcome.json").unlink()
    host.minute(restart=True)
    assert untouched(host)


def test_a_clock_that_was_days_ahead_refuses_nothing_for_good(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    host.clock.off_ms = 9 * 86_400_000
    host.minute(restart=True)
    assert untouched(host)
    host.clock.off_ms = 0
    host.host.set_clock(seconds=0)
    host.minute(restart=True)
    host.minute()
    assert host.results(number) == [("done", "quarantined")]
