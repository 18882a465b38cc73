"""A store that is lost, rolled back, forged, hung or full, wrong clocks, hosts that lie: nothing is revived."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from logagent.base.units import instant
from logagent.deletion.agent.memory import RequestMemory
from logagent.deletion.store.requests import RequestOutcome, write_outcome
from tests.disk.deletion.agent.requested_host import ASSIGNED, CLUSTER, KEY, ORPHAN, STRANGER, STRAY, RequestedHost
from tests.waiting import within


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
    assert untouched(host) and number in (seen := host.answers.seen(3).ended), seen  # type: ignore[union-attr]


def test_a_cancellation_that_is_gone_before_we_see_it_permits_no_more_than_was_asked(host: RequestedHost) -> None:
    """Where everybody can remove files of the store: what is listed, on our own proof, and nothing for good."""
    number = host.request(host.row(ORPHAN), host.row(ASSIGNED, kind="orphan"), approvals=("only-copy", "limit"))
    host.decide(number, "cancelled")
    host.place(number, "decision.json").unlink()
    others = host.host.find("invoices"), host.host.find("ledger")
    host.minute()
    assert sorted(host.results(number)) == [("done", "quarantined"), ("refused", "assigned")] and host.is_quarantined()
    assert (host.host.find("invoices"), host.host.find("ledger")) == others
    host.decide(number, "cancelled")
    host.minute()
    host.restore()
    host.minute()
    assert untouched(host)


@pytest.mark.parametrize("what", ["cancelled", "dropped", "expired", "delete"])
def test_a_decided_request_is_not_carried_out(host: RequestedHost, what: str) -> None:
    number = host.request(host.row(ORPHAN))
    host.decide(number, what)  # type: ignore[arg-type]
    host.minute()
    assert host.results(number) == [("refused", "request")] and untouched(host)


def test_a_decision_right_before_the_act_counts(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    assert host.node_requests is not None
    host.node_requests.read()
    host.node_requests.send()
    host.decide(number, "cancelled")
    host.minute(read=False)
    assert untouched(host)


def test_what_we_have_not_said_that_we_saw_is_not_carried_out(host: RequestedHost) -> None:
    """Others could not tell of it if the store lost it. The loop that looks does not wait for the one that acts."""
    number = host.request(host.row(ORPHAN))
    assert host.node_requests is not None
    host.node_requests.read()
    host.minute(read=False)
    assert untouched(host) and not host.runs
    host.minute()
    assert host.results(number) == [("done", "quarantined")]


def test_what_stood_at_the_first_look_is_not_carried_out_and_newer_requests_are(tmp_path: Path) -> None:
    host = RequestedHost(tmp_path, born=False)
    old = host.request(host.row(ORPHAN))
    host.minute()
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
    host.clock.ahead_ms = 365 * 86_400_000
    old = host.request(host.row(ORPHAN))
    host.minute()
    assert untouched(host) and "the store's" in host.answers.seen(3).refuses  # type: ignore[union-attr]
    host.clock.ahead_ms = 0
    host.minute(restart=True)
    new = host.request(host.row(ORPHAN))
    host.minute()
    assert host.results(old) == [("refused", "request")] and host.results(new) == [("done", "quarantined")]


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_clock_that_differs_from_the_store_s_carries_nothing_out(host: RequestedHost, minutes: int) -> None:
    host.clock.ahead_ms = minutes * 60_000
    at = datetime.now(UTC) + timedelta(minutes=min(minutes, 0))
    host.request(host.row(ORPHAN), at=instant(at), expires_at=instant(at + timedelta(days=1)))
    host.minute(restart=True)
    assert untouched(host)


def test_after_one_look_the_clock_is_no_reason_any_more(tmp_path: Path) -> None:
    """What an agent that ends after its first look leaves in the store: it has compared its clock by then."""
    host = RequestedHost(tmp_path, born=False)
    host.request(host.row(ORPHAN), key=STRANGER)
    ran = host.host.run("run", "--once")
    seen = host.answers.seen(3)
    assert seen is not None and (seen.refuses, seen.open) == ("", ()), ran.err


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


def test_one_lying_host_stops_nothing_and_permits_nothing(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    host.other_agent(4, ended=(number,))
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
    with within(60, "the host's own work waits behind it"):
        host.minute()
        assert host.results(number) == [("done", "quarantined")]


def test_a_full_store_carries_nothing_out_and_the_host_s_own_cycle_goes_on(host: RequestedHost) -> None:
    host.request(host.row(ORPHAN))
    shutil.rmtree(host.store / "answers")
    (host.store / "answers").write_bytes(b"")  # nothing can be written below it
    with pytest.raises(Exception, match="answers"):
        host.minute(restart=True)
    host.node_requests = None
    host.cycle()
    assert untouched(host)


def test_a_store_that_hangs_delays_the_host_s_own_work_once_and_for_seconds_only(
    host: RequestedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logagent.deletion.agent import node_requests

    row = host.row(ORPHAN)
    for _ in range(3):
        host.request(row)
    assert host.node_requests is not None
    host.node_requests.read()
    hung = threading.Event()

    class Hung:
        def names(self, folder: str) -> list[str]:
            hung.wait(600)
            return []

    host.node_requests.folder.control = Hung()  # type: ignore[assignment]
    monkeypatch.setattr(node_requests, "OPEN_SECONDS", 1.0)
    try:
        with within(30, "the host's own work waits behind it"):
            host.minute(read=False)
    finally:
        hung.set()
    assert untouched(host)


def test_the_outcome_closes_a_request_for_good(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    write_outcome(host.control, RequestOutcome(number, CLUSTER, "ops", instant(datetime.now(UTC))), KEY)
    host.minute()
    host.place(number, "outcome.json").unlink()
    host.minute(restart=True)
    assert untouched(host)


def test_a_clock_that_was_days_ahead_refuses_nothing_for_good(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    host.clock.ahead_ms = 9 * 86_400_000
    host.minute(restart=True)
    assert untouched(host)
    host.clock.ahead_ms = 0
    host.host.set_clock(seconds=0)
    host.minute(restart=True)
    host.minute()
    assert host.results(number) == [("done", "quarantined")]


@pytest.mark.parametrize(("minutes", "goes"), [(59, True), (61, False)])
def test_no_retention_counts_for_an_hour_and_then_the_stray_is_kept_like_any_other(
    host: RequestedHost, minutes: int, goes: bool
) -> None:
    """A cancellation that a store from yesterday forgot brings back no removal at once."""
    host.configure(topics_gone=True)
    at = datetime.now(UTC) - timedelta(minutes=minutes)
    memory = RequestMemory.load(str(host.host.state), 0)
    memory.born_ms = round((at - timedelta(days=1)).timestamp() * 1000)
    memory.save(str(host.host.state))
    number = host.request(host.row(STRAY), approvals=("no-retention",), at=instant(at))
    host.minute()
    assert bool(host.host.find("invoices-1.", "-stray")) is not goes
    if not goes:
        assert "kept until" in (host.said(number).fact or "") and host.said(number).next_try_at, host.said(number)


def test_the_first_look_is_remembered_before_anything_is_said(tmp_path: Path) -> None:
    """An agent that stopped between its first look and its first act was deaf for good to what came between."""
    host = RequestedHost(tmp_path, born=False)
    host.minute(look_only=True)
    assert host.node_requests is not None
    host.node_requests.send()
    number = host.request(host.row(ORPHAN))
    host.minute(restart=True)
    assert host.results(number) == [("done", "quarantined")]


def test_the_first_look_is_remembered_only_while_nobody_else_writes_the_memory(tmp_path: Path) -> None:
    """A `prestart` at the same instant loses no row; until the memory is on disk, no seen file is written."""
    host = RequestedHost(tmp_path, born=False)
    state = str(host.host.state)
    host.minute(look_only=True)  # this process acts meanwhile
    assert (
        host.node_requests is not None and RequestMemory.load(state, 0).stood is None and host.answers.seen(3) is None
    )
    host.node_requests.send()
    assert RequestMemory.load(state, 0).stood == () and host.answers.seen(3) is not None


def test_what_is_not_verified_at_the_first_look_is_not_remembered(tmp_path: Path) -> None:
    host = RequestedHost(tmp_path, born=False)
    known, junk = host.request(host.row(ORPHAN)), "f" * 64
    host.place(junk, "request.json").parent.mkdir()
    host.place(junk, "request.json").write_bytes(b"{}")
    host.minute()
    assert RequestMemory.load(str(host.host.state), 0).stood == (known,)


def test_a_seen_file_carries_nothing_that_others_wrote(host: RequestedHost) -> None:
    """9 MiB of junk around one decision crowded a cancellation out of another's."""
    numbers = [host.request(host.row(ORPHAN)) for _ in range(3)]
    for number in numbers:
        host.decide(number, "cancelled")
        host.place(number, f"decision-{'0' * 32}.json").write_bytes(b"x" * (9 << 20))
    host.place("f" * 64, "request.json").parent.mkdir()
    host.minute()
    seen = host.answers.seen(3)
    assert seen is not None and set(seen.ended) == set(numbers) and "f" * 64 not in seen.open
    assert (host.store / "answers" / CLUSTER / "3" / "seen.json").stat().st_size < 4096
    memory = (host.host.state / "requests.json").read_bytes()
    assert len(memory) < 65536 and b"f" * 64 not in memory
