"""Requests for directories on a real broker's disk: identified, under every guard, never twice."""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logagent.cleanup.plan.plan import Plan
from logagent.cleanup.session.session import Session
from logagent.deletion.store.requests import Approval
from logagent.kafka.files.log_extent import read_log_extent
from tests.disk.deletion.agent.requested_host import ASSIGNED, ORPHAN, STRAY, RequestedHost

ALL: tuple[Approval, ...] = ("only-copy", "limit", "no-retention")
RECREATED = ("carts", "", 0)


@pytest.fixture
def host(tmp_path: Path) -> RequestedHost:
    return RequestedHost(tmp_path)


def test_an_orphan_is_quarantined_and_the_same_list_twice_does_nothing_twice(host: RequestedHost) -> None:
    row = host.row(ORPHAN)
    first, second = host.request(row), host.request(row)
    host.minute()
    assert len(host.runs) == 1, "the inventory shows no longer what is there"
    host.minute()
    assert host.results(first) == host.results(second) == [("done", "quarantined")] and host.is_quarantined()
    said = host.said(first)
    assert [said.new_name] == host.host.find("returns-2.", "-stray") and said.bytes
    assert any(other in (host.said(number).fact or "") for number, other in ((first, second), (second, first))), (
        (first, second),
        (second, first),
    )
    assert f"request {first}" in host.host.run("history", "--json").out
    host.minute(restart=True)
    assert not host.runs


def test_what_a_killed_agent_did_not_remember_is_answered_as_done(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    host.minute(read=False)  # so that the memory knows nothing of it
    memory = (host.host.state / "requests.json").read_bytes()
    host.minute()
    (host.host.state / "requests.json").write_bytes(memory)
    host.minute(restart=True)
    assert host.results(number) == [("done", "quarantined")] and not host.runs


def test_what_was_quarantined_once_for_a_request_is_never_touched_again_by_it(host: RequestedHost) -> None:
    """Not even where somebody moved it back by hand, of which no journal knows."""
    number = host.request(host.row(ORPHAN), host.row(ASSIGNED))
    host.minute()
    (name,) = host.host.find("returns-2.", "-stray")
    (host.host.d2 / name).rename(host.host.d2 / "returns-2")
    host.minute(restart=True)
    assert "returns-2" in host.host.find("returns-2") and ("done", "quarantined") in host.results(number)


def test_a_restore_voids_the_request(host: RequestedHost) -> None:
    number, same = host.request(host.row(ORPHAN)), host.row(ORPHAN)
    host.minute()
    host.restore()
    again = host.request(same)
    host.minute(restart=True)
    host.cycle()
    host.minute()
    assert host.results(number) == host.results(again) == [("refused", "restored")]
    assert "returns-2" in host.host.find("returns-2")


def test_what_is_assigned_stays_whatever_was_approved(host: RequestedHost) -> None:
    number = host.request(host.row(ASSIGNED, only_copy=True), approvals=ALL)
    host.minute()
    said = host.said(number)
    assert (said.state, said.claim) == ("refused", "assigned") and host.host.find("ledger-0") == ["ledger-0"]
    assert said.next_try_at is not None and "logagent scan" in (said.hint or "")


@pytest.mark.parametrize(
    "other",
    [{"inode": 1}, {"topic_id": "B" * 22}, {"partition": 1}, {"directory_id": "B" * 22}, {"end_offset": 1 << 40},
     {"log_dir": "/elsewhere"}, {"kind": "stray"}],
)  # fmt: skip
def test_another_directory_than_the_one_asked_for_stays(host: RequestedHost, other: dict[str, Any]) -> None:
    number = host.request(replace(host.row(ORPHAN), **other), approvals=ALL)
    host.minute()
    said = host.said(number)
    assert (said.state, said.claim) == ("refused", "identity") and said.hint, said
    assert "returns-2" in host.host.find("returns-2")


def grow(path: Path) -> None:
    """Append the log's own first batch once more, as of its end."""
    segment = max(path.glob("*.log"))
    data, end = segment.read_bytes(), end_of(path)
    assert end is not None
    batch = data[: 12 + struct.unpack(">i", data[8:12])[0]]
    with segment.open("ab") as file:
        file.write(struct.pack(">q", end) + batch[8:])


def end_of(path: Path) -> int | None:
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_log_extent(fd).log_end
    finally:
        os.close(fd)


def test_what_was_written_to_between_plan_and_act_is_another_directory(
    host: RequestedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies may be read for hours in between."""
    number, plan, path = host.request(host.row(ORPHAN)), Session.plan, host.host.d2 / "returns-2"
    before = end_of(path)

    def planned(session: Session, *given: Any, **more: Any) -> Plan:
        made = plan(session, *given, **more)
        grow(path)
        return made

    monkeypatch.setattr(Session, "plan", planned)
    host.minute()
    assert end_of(path) not in (before, None), "the test's own batch is whole"
    said = host.said(number)
    assert (said.state, said.claim) == ("refused", "identity") and f"is {end_of(path)}" in (said.fact or ""), said
    assert path.exists()


def test_under_a_stray_name_it_is_the_same_only_if_it_ends_where_it_did(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    stray = host.host.d2 / f"returns-2.{'a' * 32}-stray"
    (host.host.d2 / "returns-2").rename(stray)
    grow(stray)
    host.minute()
    assert host.results(number) == [("refused", "identity")]
    host.configure(**{"cleanup.stray_retention": "1ms"})
    host.cycle()
    assert stray.exists()


def test_another_node_s_rows_are_left_to_it(host: RequestedHost) -> None:
    host.request(host.row(ORPHAN, node_id=4))
    host.minute()
    assert not host.runs and "returns-2" in host.host.find("returns-2")


def test_an_orphan_that_the_broker_s_start_renamed_is_not_removed_by_the_request(host: RequestedHost) -> None:
    """Which may remove only under the name that it gave itself, or that was listed."""
    number = host.request(host.row(ORPHAN))
    stray = host.host.d2 / f"returns-2.{'a' * 32}-stray"
    (host.host.d2 / "returns-2").rename(stray)
    host.minute()
    said = host.said(number)
    assert (said.result, said.new_name) == ("quarantined", stray.name) and "started" in (said.fact or "")
    host.cycle()
    assert stray.exists()
    host.configure(**{"cleanup.stray_retention": "1ms"})
    others = host.host.find("", "-stray")
    host.cycle()
    assert host.host.find("", "-stray") == others, "report mode"
    listed = host.request(host.row(ORPHAN, kind="stray", only_copy=True), approvals=ALL)
    host.minute()
    assert host.results(listed) == [("done", "removed")] and not stray.exists()


def in_report_mode_after_retention(host: RequestedHost) -> list[str]:
    """What two cleanup cycles leave of the orphan, retention being over."""
    host.configure(**{"cleanup.stray_retention": "1ms"})
    host.cycle()
    host.cycle()
    return host.host.find("returns-2")


def quarantined(host: RequestedHost) -> Path:
    (name,) = host.host.find("returns-2.", "-stray")
    return host.host.d2 / name


def test_what_a_request_quarantined_goes_after_retention_in_report_mode(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    host.minute()
    others = set(host.host.find("", "-stray")) - {quarantined(host).name}
    assert in_report_mode_after_retention(host) == []
    assert set(host.host.find("", "-stray")) == others, "report mode takes nothing else"
    host.minute()
    assert host.results(number) == [("done", "removed")]


def test_it_goes_also_where_the_agent_was_killed_before_it_remembered(host: RequestedHost) -> None:
    """The permission stands in the intent of the rename."""
    host.request(host.row(ORPHAN))
    host.minute(read=False)
    memory = (host.host.state / "requests.json").read_bytes()
    host.minute()
    (host.host.state / "requests.json").write_bytes(memory)
    with sqlite3.connect(host.host.state / "journal.db") as db:
        db.execute("UPDATE actions SET outcome=NULL")
    assert in_report_mode_after_retention(host) == []


@pytest.mark.parametrize("back_by", ["restore", "hand"])
@pytest.mark.parametrize("then", ["a broker's start", "the same name", "a new directory of the old inode"])
@pytest.mark.parametrize("seen", [True, False])
def test_what_it_quarantined_once_permits_nothing_once_it_has_another_name(
    host: RequestedHost, back_by: str, then: str, seen: bool
) -> None:
    """`restore`d, and made a stray by the next start of the broker: it was removed after retention, in report mode."""
    host.request(host.row(ORPHAN))
    host.minute()
    aside, current = quarantined(host), host.host.d2 / "returns-2"
    if back_by == "restore":
        host.restore()
    else:
        aside.rename(current)
    if seen or (back_by, then) == ("hand", "the same name"):
        host.cycle()
    if then == "a new directory of the old inode":
        for path in current.glob("*.log"):
            grow(path.parent)
    left = aside if then == "the same name" else host.host.d2 / f"returns-2.{'a' * 32}-stray"
    current.rename(left)
    assert in_report_mode_after_retention(host) == [left.name]


def test_a_copy_of_what_it_quarantined_stays(host: RequestedHost) -> None:
    host.request(host.row(ORPHAN))
    host.minute()
    aside = quarantined(host)
    shutil.copytree(aside, aside.with_name("copy"))
    shutil.rmtree(aside)
    aside.with_name("copy").rename(aside)
    assert in_report_mode_after_retention(host) == [aside.name]


def test_a_listed_stray_goes_under_its_listed_name_only(host: RequestedHost) -> None:
    host.configure(topics_gone=True, **{"cleanup.stray_retention": "1ms"})
    number = host.request(host.row(STRAY))
    (name,) = host.host.find("invoices-1.", "-stray")
    (path,) = (d / name for d in (host.host.d1, host.host.d2) if (d / name).exists())
    path.rename(path.with_name(f"invoices-1.{'b' * 32}-stray"))
    host.minute()
    assert host.results(number) == [("refused", "identity")] and host.host.find("invoices-1.", "-stray")


def test_what_was_quarantined_goes_after_retention_in_report_mode_unless_cancelled_since(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN))
    host.minute()
    host.configure(**{"cleanup.stray_retention": "1ms"})
    host.decide(number, "cancelled")
    host.minute()
    host.cycle()
    assert host.is_quarantined()


def test_a_stray_is_kept_for_its_retention(host: RequestedHost) -> None:
    host.configure(topics_gone=True)
    number = host.request(host.row(STRAY))
    host.minute()
    said = host.said(number)
    assert said.state == "waits" and said.next_try_at is not None and host.host.find("invoices-1.", "-stray")
    host.configure(topics_gone=True, **{"cleanup.stray_retention": "1ms"})
    host.minute()
    assert host.results(number) == [("done", "removed")] and not host.host.find("invoices-1.", "-stray")


def test_what_no_copy_covers_stays_unless_it_was_approved_as_an_only_copy(host: RequestedHost) -> None:
    host.configure(**{"cleanup.stray_retention": "1ms"})
    row = host.row(STRAY)
    plain = host.request(row, approvals=("limit", "no-retention"))
    shown = host.request(replace(row, only_copy=True))
    host.minute()
    assert host.results(plain) == [("refused", "assigned")] and "only copy" in (host.said(plain).hint or "")
    assert host.results(shown) == [("refused", "only-copy")] and host.host.find("invoices-1.", "-stray")
    approved = host.request(replace(row, only_copy=True), approvals=("only-copy",))
    host.minute()
    assert host.results(approved) == [("done", "removed")] and not host.host.find("invoices-1.", "-stray")


def test_an_only_copy_never_goes_at_once(host: RequestedHost) -> None:
    number = host.request(host.row(STRAY, only_copy=True), approvals=ALL)
    host.minute()
    assert host.said(number).state == "waits" and host.host.find("invoices-1.", "-stray")


def test_an_unapproved_request_beyond_the_limits_refuses_only_itself(host: RequestedHost) -> None:
    host.configure(**{"cleanup.max_dirs": 1})
    many = [host.row((t, "", p)) for t, p in (("carts", 0), ("visits", 2))]
    many = [replace(row, topic_id=topic_id(Path(row.log_dir, row.name))) for row in many]
    beyond, one = host.request(*many), host.request(host.row(ORPHAN))
    host.minute()
    assert host.results(beyond) == [("refused", "blast-radius")] * 2 and host.results(one) == [("done", "quarantined")]
    assert "approve the limit" in (host.answer(beyond).directories[0].hint or "")
    approved = host.request(*many, approvals=("limit",))
    host.minute()
    assert host.results(approved) == [("done", "quarantined")] * 2


def topic_id(path: Path) -> str:
    lines = (path / "partition.metadata").read_text().splitlines()
    return next(line.partition(": ")[2] for line in lines if line.startswith("topic_id"))


def test_a_live_broker_makes_an_orphan_wait_for_its_next_stop_and_prestart_takes_it(host: RequestedHost) -> None:
    from tests.command_line import LOCKER, process

    number = host.request(host.row(ORPHAN))
    with process(LOCKER, host.host.d1, host.host.d2):
        host.minute()
        said = host.said(number)
        assert (said.state, said.claim, said.next_try_at) == ("waits", "window", None) and "next stop" in (
            said.fact or ""
        )
    ran = host.host.run("prestart", "--budget", "60s")
    assert f"quarantined for request {number}" in ran.err and host.is_quarantined(), ran.err
    host.minute(restart=True)
    assert host.results(number) == [("done", "quarantined")]


def test_prestart_leaves_it_for_the_next_time_if_the_store_is_away(host: RequestedHost) -> None:
    host.request(host.row(ORPHAN))
    host.minute(read=False)
    os.rename(host.store, f"{host.store}-away")
    ran = host.host.run("prestart", "--budget", "60s")
    assert "not read in time" in ran.err and "returns-2" in host.host.find("returns-2")


def test_no_request_takes_the_last_directories_of_a_host(host: RequestedHost) -> None:
    number = host.request(host.row(ORPHAN), approvals=ALL)
    for log_dir in (host.host.d1, host.host.d2):
        for path in log_dir.iterdir():
            if (path / "partition.metadata").exists() and path.name != "returns-2":
                shutil.rmtree(path)
    host.minute()
    said = host.said(number)
    assert (said.state, said.claim) == ("refused", "blast-radius") and "without any assigned" in (said.fact or ""), said
