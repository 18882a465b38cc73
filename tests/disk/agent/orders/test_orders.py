"""Orders of the fleet on a real broker's disk: obeyed under every guard, refused with the reason, never believed."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from logagent.agent.clock import SystemClock
from logagent.agent.config import load
from logagent.agent.daemon.cycles import Cycles
from logagent.agent.daemon.log_lines import LogLines
from logagent.agent.events import Events
from logagent.agent.orders.box import OrderBox, box_of
from logagent.agent.orders.inbox import MAX_FILES
from logagent.agent.orders.memory import NAME
from logagent.agent.orders.order_execution import OrderExecution
from logagent.agent.orders.seen import NAME as SEEN_NAME
from logagent.agent.session.open_session import open_session
from logagent.agent.target import resolve_target
from logagent.model.planning.plan import Flags
from logagent.model.records import ActionKind
from logagent.store import epochs as epoch_store
from logagent.store.answers import answer_names, answers_folder, read_answer
from logagent.store.control import Control
from logagent.store.deletion import CLOSED_SCHEMA, Answer, Closed, Identity, Order, OrderedPartition
from logagent.store.epochs import MAX_READ, Epochs
from logagent.store.orders import closings_folder, encode, instant, orders_folder, write_closed
from logagent.store.shared import init_store
from logagent.store.signing import PrivateKey, public_key
from tests.cli_host import CliHost

KEY = PrivateKey("ops", b"\x01" * 32)
STRANGER = PrivateKey("ops", b"\x02" * 32)
ORPHAN = ("returns", "bwNdQY5qTvafpK2nnv5ySQ", 2)
ASSIGNED = ("ledger", "GV0qzMDvT22hnez0WEhd5g", 0)
STRAY = ("invoices", "SKeC3pLWQPidJvA42PZhhw", 1)


class OrderedHost:
    """A stopped broker's host whose agent takes orders from a store of its own."""

    def __init__(self, root: Path, uri: str | None = None) -> None:
        self.host = CliHost(root)
        self.store = root / "store"
        self.store.mkdir()
        place = uri or str(self.store)
        init_store(place)
        self.settings: dict[str, Any] = {
            "cleanup.max_fraction": 1.0, "publish.store": place,
            "orders.accept": True, "orders.keys": [KEY.public()],
        }  # fmt: skip
        self.configure()
        self.cluster, self.node = "8o3B_-jNSz218yyfPu-6Pg", 3
        self.control = Control(place, self.cluster)
        self.seq = 0
        self.box: OrderBox | None = None
        self.obeyed: list[OrderExecution] = []
        self.epoch = self.take_epoch()
        self.obey()  # the agent is born

    def configure(self, *, topics_gone: object = False, **more: Any) -> None:
        self.host.with_assignments(topics_gone=topics_gone, **{**self.settings, **more})

    def take_epoch(self) -> int:
        keys = (public_key(KEY.public()),)
        taken = epoch_store.take(self.control, Epochs(self.control, keys), KEY, above=0, by="ops", host="shell",
                                 now=lambda: datetime.now(UTC))  # fmt: skip
        return taken.epoch

    def order(self, action: Any, *partitions: OrderedPartition, key: PrivateKey = KEY, **more: Any) -> Order:
        self.seq += 1
        now = datetime.now(UTC) + timedelta(seconds=1)
        order = Order(f"{self.epoch:010d}-{self.seq:010d}", self.epoch, self.cluster, self.node, action, instant(now),
                      instant(now + timedelta(days=1)), partitions)  # fmt: skip
        order = replace(order, **more)
        self.control.create(
            orders_folder(self.node), f"{order.order_id}.json", key.sign("logagent.order/1", encode(order))
        )
        return order

    def obey(self, *, restart: bool = False, look: bool = True) -> None:
        """What the daemon does: look, obey, send the answers."""
        settings, clock = load(str(self.host.toml)).settings, SystemClock()
        with open_session(
            resolve_target(settings, ()), settings, clock, state_dir=str(self.host.state), act=True, actor="daemon"
        ) as session:
            session.read_assignments()
            session.take_inventory()
            facts = session.facts()
            if self.box is None or restart or self.box.settings != settings:
                self.box = box_of(settings, str(self.host.state), clock, session)
            assert self.box is not None
            if look:
                self.box.receive()
            self.obeyed = self.box.obey(session, facts, lambda: False)
        self.box.send()

    def cycle(self) -> None:
        """What the daemon does at a cleanup tick."""
        settings = load(str(self.host.toml)).settings
        lines = LogLines(Events(io.StringIO(), SystemClock().now_ms))
        cycles = Cycles(resolve_target(settings, ()), settings, SystemClock(), str(self.host.state), lines,
                        lambda: False, lambda: False)  # fmt: skip
        summary = cycles.cleanup()
        assert summary.error is None, summary.error

    def restore(self) -> None:
        name = self.host.find("returns-2.", "-stray")[0]
        ran = self.host.run("restore", name, "--execute", "--json")
        assert ran.status == 0 and "returns-2" in self.host.find("returns-2"), ran.out + ran.err

    def answer(self, order: Order) -> Answer | None:
        found = {o: name for (o, _), (_, name) in answer_names(self.control, self.node).items()}
        if order.order_id not in found:
            return None
        content = self.control.read(answers_folder(self.node), found[order.order_id])
        assert content is not None
        return read_answer(content, found[order.order_id], self.node, self.cluster)

    def results(self, order: Order) -> list[tuple[str, str | None]]:
        answer = self.answer(order)
        assert answer is not None, "it was not answered"
        return [(r.result, r.guard) for r in answer.results]

    def identity(self, which: tuple[str, str, int], **more: Any) -> OrderedPartition:
        """What an order `delete` says after the answer to `stop`."""
        stop = self.order("stop", part(which, **more))
        self.obey()
        answer = self.answer(stop)
        assert answer is not None and answer.results[0].result == "waiting", answer
        return part(which, directory=answer.results[0].directory, **more)


def part(which: tuple[str, str, int], **more: Any) -> OrderedPartition:
    topic, topic_id, partition = which
    return OrderedPartition("request-1", topic, topic_id, partition, requested_at=instant(datetime.now(UTC)), **more)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[OrderedHost]:
    yield OrderedHost(tmp_path)


def test_stop_answers_what_is_there_and_delete_sets_it_aside(host: OrderedHost) -> None:
    ordered = host.identity(ORPHAN)
    assert ordered.directory is not None and ordered.directory.name == "returns-2"
    assert ordered.directory.end_offset is not None
    assert host.host.find("returns-2") == ["returns-2"]
    order = host.order("delete", ordered)
    host.obey()
    assert host.results(order) == [("renamed", None)]
    assert len(host.host.find("returns-2.", "-stray")) == 1 and host.host.find("returns-2", "returns-2") == []
    history = host.host.run("history", "--json").out
    assert f"order {order.order_id}" in history
    host.restore()


def test_the_same_order_again_is_answered_from_memory(host: OrderedHost) -> None:
    order = host.order("delete", host.identity(ORPHAN))
    host.obey()
    answer = host.answer(order)
    host.obey(restart=True)
    assert host.answer(order) == answer and len(host.host.find("returns-2.", "-stray")) == 1


def test_what_was_set_aside_before_the_answer_was_remembered_is_answered_renamed(host: OrderedHost) -> None:
    """The agent was killed between the two."""
    order = host.order("delete", host.identity(ORPHAN))
    memory = (host.host.state / NAME).read_bytes()
    host.obey()
    first = host.answer(order)
    (host.host.state / NAME).write_bytes(memory)
    for path in (host.store / "control" / host.cluster / "answers" / str(host.node)).glob(f"{order.order_id}*"):
        path.unlink()
    host.obey(restart=True)
    again = host.answer(order)
    assert first is not None and again is not None and host.results(order) == [("renamed", None)], again
    assert again.results == first.results


@pytest.mark.parametrize("other", [{"topic_id": "B" * 22}, {"partition": 1}, {"device": 1}])
def test_what_was_set_aside_of_another_partition_is_not_answered_renamed(
    host: OrderedHost, other: dict[str, Any]
) -> None:
    ordered = host.identity(ORPHAN)
    assert ordered.directory is not None
    host.order("delete", ordered)
    host.obey()
    device = {"directory": replace(ordered.directory, **other)} if "device" in other else other
    order = host.order("delete", replace(ordered, request_id="request-2", **device))
    host.obey(restart=True)
    assert host.results(order) == [("absent", None)]


def test_a_restore_voids_the_order(host: OrderedHost) -> None:
    ordered = host.identity(ORPHAN)
    host.order("delete", ordered)
    host.obey()
    host.restore()
    again = host.order("delete", ordered)
    look = host.order("stop", replace(ordered, directory=None))
    host.obey(restart=True)
    assert host.results(again) == [("refused", "restored")] == host.results(look)
    assert "returns-2" in host.host.find("returns-2")


def test_what_is_assigned_stays_whatever_an_order_says(host: OrderedHost) -> None:
    order = host.order("delete", host.identity(ASSIGNED, approved_plan="a" * 16))
    host.obey()
    assert host.results(order) == [("refused", "assigned")] and host.host.find("ledger-0") == ["ledger-0"]


@pytest.mark.parametrize("approved", [None, "a" * 16])
@pytest.mark.parametrize("no_retention", [False, True])
@pytest.mark.parametrize("which", [ORPHAN, ASSIGNED, STRAY])
def test_no_order_however_approved_goes_around_the_guards_of_assigned_and_last_copies(
    host: OrderedHost, which: tuple[str, str, int], no_retention: bool, approved: str | None
) -> None:
    """An approval in the fleet lifts limits and retention. What needs a leader's cover, or `--allow-assigned` and
    `--even-last-copy`, needs it on the host as well: an order has no such flag."""
    more: dict[str, Any] = {"no_retention": no_retention, "approved_plan": approved}
    if which is STRAY:
        host.configure(topics_gone=True, **{"cleanup.stray_retention": "1ms"})
        name = host.host.find("invoices-1.", "-stray")[0]
        more |= {"kind": "directories", "asked_log_dir": str(host.host.d1), "asked_name": name}
    order = host.order("delete", host.identity(which, **more))
    host.obey()
    (execution,) = host.obeyed
    assert execution.plan is not None and {p.flags for p in execution.plan.actions} <= {Flags()}
    if which is ASSIGNED:
        assert host.results(order) == [("refused", "assigned")] and host.host.find("ledger-0") == ["ledger-0"]
    else:
        (action,) = execution.plan.actions
        marked = ActionKind.MARK if no_retention else ActionKind.QUARANTINE
        assert action.action is (ActionKind.REMOVE if which is STRAY else marked)


def test_what_is_unknown_stays_whatever_an_order_says(host: OrderedHost) -> None:
    ordered = host.identity(ORPHAN)
    host.configure(**{"assignments.sources": [], "assignments.file": ""})
    host.configure(**{"assignments.sources": ["kraft-log"]})
    order = host.order("delete", ordered)
    host.obey()
    assert host.results(order) == [("refused", "assigned")] and host.host.find("returns-2") == ["returns-2"]


@pytest.mark.parametrize(
    ("what", "value"),
    [("name", "returns-1"), ("inode", 1), ("end_offset", 10**6), ("directory_id", "A" * 22), ("log_dir", "/elsewhere"),
     ("device", 1)],
)  # fmt: skip
def test_another_identity_is_refused(host: OrderedHost, what: str, value: Any) -> None:
    ordered = host.identity(ORPHAN)
    assert ordered.directory is not None
    order = host.order("delete", replace(ordered, directory=replace(ordered.directory, **{what: value})))
    host.obey()
    assert host.results(order) == [("refused", "identity")] and host.host.find("returns-2") == ["returns-2"]


def test_a_topic_that_is_not_there_is_absent_only_if_every_log_dir_was_seen(host: OrderedHost) -> None:
    nowhere = part(("gone", "B" * 22, 0))
    order = host.order("stop", nowhere)
    host.obey()
    assert host.results(order) == [("absent", None)]
    (host.host.d1 / "meta.properties").rename(host.host.root / "away")
    again = host.order("stop", nowhere)
    host.obey(restart=True)
    assert host.results(again) == [("offline", None)]


@pytest.mark.parametrize("row_of_a_report", [True, False])
def test_a_directory_without_a_topic_id_is_refused_not_called_absent(host: OrderedHost, row_of_a_report: bool) -> None:
    (path,) = [d / "returns-2" for d in (host.host.d1, host.host.d2) if (d / "returns-2").is_dir()]
    (path / "partition.metadata").unlink()
    asked = {"kind": "directories", "asked_log_dir": str(path.parent), "asked_name": path.name}
    order = host.order("stop", part(ORPHAN, **asked if row_of_a_report else {}))
    host.obey()
    answer = host.answer(order)
    assert answer is not None and host.results(order) == [("refused", "identity")], answer
    assert "has no topic id" in (answer.results[0].fact or "") and path.is_dir()


def test_a_stray_is_kept_for_its_retention_unless_the_order_carries_an_approval(host: OrderedHost) -> None:
    """The broker set it aside a moment ago; the order's only hurry is that of an approval."""
    host.configure(topics_gone=True)
    name = host.host.find("invoices-1.", "-stray")[0]
    ordered = host.identity(STRAY, kind="directories", asked_log_dir=str(host.host.d1), asked_name=name)
    order = host.order("delete", ordered)
    host.obey()
    answer = host.answer(order)
    assert answer is not None and host.results(order) == [("waiting", "retention")]
    assert "cleanup.stray_retention" in (answer.results[0].fact or "") and (host.host.d1 / name).exists()
    ran = host.host.run("prestart", "--budget", "60s")
    assert ran.status == 0 and (host.host.d1 / name).exists(), "marked before its retention was over"
    approved = host.order("delete", replace(ordered, approved_plan="a" * 16))
    host.obey()
    assert host.results(approved) == [("removed", None)] and not (host.host.d1 / name).exists()


@pytest.mark.parametrize("asked_name", [None, "invoices-1"])
def test_an_order_takes_only_a_directory_that_its_request_is_about(host: OrderedHost, asked_name: str | None) -> None:
    """Answers are not signed: whoever can write one puts a stray of the partition into the next order, which an
    approval would remove before its retention is over."""
    host.configure(topics_gone=True)
    name = host.host.find("invoices-1.", "-stray")[0]
    row = {"kind": "directories", "asked_log_dir": str(host.host.d1)}
    stray = host.identity(STRAY, **row, asked_name=name).directory
    asked = {} if asked_name is None else {**row, "asked_name": asked_name}
    order = host.order("delete", part(STRAY, directory=stray, approved_plan="a" * 16, **asked))
    host.obey()
    assert host.results(order) == [("refused", "identity")] and host.host.find(name) == [name], host.answer(order)


def test_a_stray_past_its_retention_is_removed_by_the_order_that_stands(host: OrderedHost) -> None:
    host.configure(topics_gone=True)
    name = host.host.find("invoices-1.", "-stray")[0]
    ordered = host.identity(STRAY, kind="directories", asked_log_dir=str(host.host.d1), asked_name=name)
    order = host.order("delete", ordered)
    host.obey()
    assert host.results(order) == [("waiting", "retention")]
    host.configure(topics_gone=True, **{"cleanup.stray_retention": "1ms"})
    host.obey()
    assert host.results(order) == [("removed", None)] and not (host.host.d1 / name).exists()


def test_a_stray_whose_topic_lives_here_stays_whatever_the_order_carries(host: OrderedHost) -> None:
    log_dir = next(d for d in (host.host.d1, host.host.d2) if (d / "ledger-0").is_dir())
    stray = (log_dir / "ledger-0").rename(log_dir / f"ledger-0.{'a' * 32}-stray")
    asked = {"kind": "directories", "asked_log_dir": str(log_dir), "asked_name": stray.name}
    order = host.order("delete", host.identity(ASSIGNED, approved_plan="a" * 16, **asked))
    host.obey()
    assert [result for result, _ in host.results(order)] == ["refused"] and stray.exists(), host.results(order)


def test_what_an_order_set_aside_is_removed_after_its_retention_in_report_mode_too(host: OrderedHost) -> None:
    host.configure(**{"cleanup.mode": "report"})
    order = host.order("delete", host.identity(ORPHAN))
    host.obey()
    (ours,) = host.host.find("returns-2.", "-stray")
    others = [name for name in host.host.find("", "-stray") if name != ours]
    host.cycle()
    assert host.results(order) == [("renamed", None)] and host.host.find("returns-2.", "-stray") == [ours]
    host.configure(**{"cleanup.mode": "report", "cleanup.stray_retention": "1ms", "orders.accept": False})
    host.cycle()
    assert host.host.find("returns-2.", "-stray") == [ours], "orders are not accepted any more"
    host.configure(**{"cleanup.mode": "report", "cleanup.stray_retention": "1ms"})
    host.cycle()
    assert host.host.find("returns-2.", "-stray") == []
    assert others and [n for n in host.host.find("", "-stray") if n != ours] == others, (
        "report mode removes nothing else"
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [({"cluster_id": "another"}, "for cluster"), ({"node_id": 4}, "for node"), ({"days": -1}, "expired"),
     ({"days": 8}, "longer than 7 days"), ({"ahead": 6}, "in the future")],
)  # fmt: skip
def test_an_order_is_refused_with_the_reason(host: OrderedHost, change: dict[str, Any], why: str) -> None:
    now = datetime.now(UTC)
    if "days" in change:
        change = {"issued_at": instant(now), "expires_at": instant(now + timedelta(days=change["days"]))}
    elif "ahead" in change:
        issued = now + timedelta(minutes=change["ahead"])
        change = {"issued_at": instant(issued), "expires_at": instant(issued + timedelta(days=1))}
    order = host.order("delete", host.identity(ORPHAN), **change)
    host.obey()
    answer = host.answer(order)
    assert answer is not None and answer.results[0].result == "refused" and why in (answer.results[0].fact or "")
    assert host.host.find("returns-2") == ["returns-2"]


def test_without_orders_accept_the_answer_is_refused_and_nothing_happens(host: OrderedHost) -> None:
    ordered = host.identity(ORPHAN)
    host.configure(**{"orders.accept": False})
    order = host.order("delete", ordered)
    host.obey()
    assert host.results(order) == [("refused", "order")] and host.host.find("returns-2") == ["returns-2"]


def test_an_epoch_that_is_over_is_refused_also_when_the_store_forgot_the_newer_one(host: OrderedHost) -> None:
    ordered = host.identity(ORPHAN)
    order = host.order("delete", ordered)
    host.take_epoch()
    host.obey()
    assert host.results(order) == [("refused", "order")]
    (host.store / "control" / host.cluster / "epoch" / "2.json").unlink()
    again = host.order("delete", ordered)
    host.obey(restart=True)
    answer = host.answer(again)
    assert answer is not None and answer.highest_epoch == 2 and host.host.find("returns-2") == ["returns-2"]


def test_what_is_not_validly_signed_is_neither_answered_nor_remembered(host: OrderedHost) -> None:
    ordered = host.identity(ORPHAN)
    memory = (host.host.state / NAME).read_bytes()
    forged = host.order("delete", ordered, key=STRANGER)
    folder = host.store / "control" / host.cluster / "orders" / str(host.node)
    (folder / f"{host.epoch:010d}-0000009999.json").write_bytes((folder / f"{forged.order_id}.json").read_bytes())
    (folder / f"{host.epoch:010d}-0000009998.json").write_bytes(encode(forged))
    host.obey()
    assert host.box is not None and host.box.inbox.ignored.count == 3
    assert host.answer(forged) is None and (host.host.state / NAME).read_bytes() == memory
    assert host.host.find("returns-2") == ["returns-2"]


@pytest.mark.parametrize("when", ["issued_at", "expires_at"])
def test_a_date_that_does_not_exist_in_a_signed_order_stops_no_other_order(host: OrderedHost, when: str) -> None:
    ordered = host.identity(ORPHAN)
    change: dict[str, Any] = {when: "2027-02-30T00:00:00.000Z"}
    bad = host.order("delete", ordered, **change)
    good = host.order("delete", ordered)
    host.obey()
    assert host.box is not None and host.box.inbox.ignored.count == 1
    assert host.answer(bad) is None and host.results(good) == [("renamed", None)]


@pytest.mark.parametrize("how", ["forged", "another outcome", "junk"])
def test_only_a_signed_cancellation_cancels(host: OrderedHost, how: str) -> None:
    order = host.order("delete", host.identity(ORPHAN))
    outcome: Any = "done" if how == "another outcome" else "cancelled"
    closed = Closed("request-1", host.cluster, host.epoch, outcome, "ops", instant(datetime.now(UTC)))
    content = (STRANGER if how == "forged" else KEY).sign(CLOSED_SCHEMA, encode(closed))
    name = f"{host.epoch:010d}-cancelled.json"
    host.control.create(closings_folder("request-1"), name, b"{}" if how == "junk" else content)
    host.obey()
    assert host.results(order) == [("renamed", None)]


def test_what_was_cancelled_with_a_retired_key_stays_cancelled(host: OrderedHost) -> None:
    host.configure(**{"orders.keys": [KEY.public(), STRANGER.public() + ":retired"]})
    order = host.order("delete", host.identity(ORPHAN))
    closed = Closed("request-1", host.cluster, host.epoch, "cancelled", "ops", instant(datetime.now(UTC)))
    write_closed(host.control, closed, STRANGER)
    host.obey()
    assert host.results(order) == [("waiting", None)] and host.host.find("returns-2") == ["returns-2"]


def test_junk_in_thousands_does_not_slow_an_agent(host: OrderedHost) -> None:
    ordered = host.identity(ORPHAN)
    folder = host.store / "control" / host.cluster / "orders" / str(host.node)
    for n in range(3_000):
        (folder / f"9999999999-{n:010d}.json").write_bytes(b"junk")
    order = host.order("delete", ordered)
    assert host.box is not None
    began = time.process_time()
    host.box.receive()
    assert time.process_time() - began < 1.0
    # No more than so many files at a time, and first those of the epoch that counts.
    assert next(s.order for s in host.box.standing) == order and host.box.inbox.ignored.count < MAX_FILES
    host.obey()
    assert host.results(order) == [("renamed", None)]


@pytest.mark.parametrize("make", [os.mkfifo, lambda p: p.mkdir(), lambda p: p.symlink_to("/etc/passwd"),
                                  lambda p: p.write_bytes(bytes(17 << 20))])  # fmt: skip
def test_what_cannot_be_a_cancellation_stops_no_order(host: OrderedHost, make: Callable[[Path], object]) -> None:
    order = host.order("delete", host.identity(ORPHAN))
    folder = host.store / "control" / host.cluster / closings_folder("request-1")
    folder.mkdir(parents=True)
    make(folder / f"{host.epoch:010d}-cancelled.json")
    host.obey()
    assert host.results(order) == [("renamed", None)]


def test_where_no_cancellation_can_be_read_only_that_request_waits(host: OrderedHost) -> None:
    ordered = host.identity(ORPHAN)
    order = host.order("delete", ordered)
    host.control.create("requests", "request-1", b"x")
    host.obey()
    assert host.results(order) == [("waiting", None)] and host.host.find("returns-2") == ["returns-2"]
    assert host.box is not None and "cancelled cannot be read" in (host.box.inbox.ignored.example or "")
    other = host.order("delete", replace(ordered, request_id="request-2"))
    host.obey()
    assert host.results(other) == [("renamed", None)]


def test_a_newer_schema_is_refused_by_name(host: OrderedHost) -> None:
    order_id = f"{host.epoch:010d}-0000000777"
    host.control.create(orders_folder(host.node), f"{order_id}.json", KEY.sign("logagent.order/2", b"{}"))
    host.obey()
    answers = {o: name for (o, _), (_, name) in answer_names(host.control, host.node).items()}
    content = host.control.read(answers_folder(host.node), answers[order_id])
    assert content is not None
    assert "schema" in (read_answer(content, answers[order_id], host.node, host.cluster).refused or "")


@pytest.mark.parametrize("how", ["gone", "cancelled", "outdated"])
def test_an_order_that_no_longer_stands_stops_right_before_the_act(host: OrderedHost, how: str) -> None:
    order = host.order("delete", host.identity(ORPHAN))
    assert host.box is not None
    host.box.receive()
    if how == "gone":
        host.control.remove(orders_folder(host.node), f"{order.order_id}.json")
    elif how == "cancelled":
        closed = Closed("request-1", host.cluster, host.epoch, "cancelled", "ops", instant(datetime.now(UTC)))
        write_closed(host.control, closed, KEY)
    else:
        host.take_epoch()
    host.obey(look=False)
    assert host.host.find("returns-2") == ["returns-2"]


def test_a_lost_memory_obeys_no_older_order(host: OrderedHost) -> None:
    order = host.order("delete", host.identity(ORPHAN))
    (host.host.state / NAME).unlink()
    time.sleep(1.1)
    host.obey(restart=True)
    answer = host.answer(order)
    assert answer is not None and "newer than the order" in (answer.results[0].fact or "")
    assert host.host.find("returns-2") == ["returns-2"]


def test_a_hosts_limit_is_lifted_only_by_an_approval(host: OrderedHost) -> None:
    several = [("visits", "nfsJWLkFR4m7utdIHqeHhg", n) for n in (0, 1, 2)]
    ordered = [host.identity(which) for which in several]
    host.configure(**{"cleanup.max_dirs": 2})
    order = host.order("delete", *ordered)
    host.obey()
    assert host.results(order) == [("refused", "blast-radius")] * 3
    approved = host.order("delete", *[replace(p, approved_plan="a" * 16) for p in ordered])
    host.obey()
    assert host.results(approved) == [("renamed", None)] * 3


def test_prestart_obeys_what_it_reads_or_what_the_daemon_saw(host: OrderedHost) -> None:
    order = host.order("delete", host.identity(ORPHAN))
    assert host.box is not None
    host.box.receive()
    seen = host.host.state / SEEN_NAME
    host.store.rename(host.host.root / "away")
    os.utime(seen, (time.time() - 601, time.time() - 601))
    ran = host.host.run("prestart", "--budget", "60s")
    assert ran.status == 0 and "not read in time" in ran.err and host.host.find("returns-2") == ["returns-2"]
    os.utime(seen)
    ran = host.host.run("prestart", "--budget", "60s")
    assert f"order {order.order_id}" in ran.err, ran.err
    assert len(host.host.find("returns-2.", "-stray")) == 1
    (host.host.root / "away").rename(host.store)
    host.box.send()
    assert host.results(order) == [("renamed", None)]


def test_what_the_daemon_saw_is_verified_again(host: OrderedHost) -> None:
    """Whoever can write the state dir, or a daemon before it, is no key."""
    order = host.order("delete", host.identity(ORPHAN))
    assert host.box is not None
    host.box.receive()
    seen = host.host.state / SEEN_NAME
    host.store.rename(host.host.root / "away")
    forged = base64.b64encode(STRANGER.sign("logagent.order/1", encode(order))).decode()
    for content in ({order.order_id: forged}, [base64.b64encode(encode(order)).decode()], {order.order_id: ""}):
        seen.write_text(json.dumps(content))
        ran = host.host.run("prestart", "--budget", "60s")
        assert ran.status == 0 and host.host.find("returns-2") == ["returns-2"], content


def test_an_order_of_a_cancelled_request_is_not_kept_for_prestart(host: OrderedHost) -> None:
    host.order("delete", host.identity(ORPHAN))
    assert host.box is not None
    host.box.receive()
    closed = Closed("request-1", host.cluster, host.epoch, "cancelled", "ops", instant(datetime.now(UTC)))
    write_closed(host.control, closed, KEY)
    host.box.receive()
    host.store.rename(host.host.root / "away")
    ran = host.host.run("prestart", "--budget", "60s")
    assert ran.status == 0 and "not read in time" in ran.err and host.host.find("returns-2") == ["returns-2"]


def test_a_restore_is_believed_though_the_operators_clock_is_ahead(host: OrderedHost) -> None:
    ordered = host.identity(ORPHAN)
    host.order("delete", ordered)
    host.obey()
    host.restore()
    for minutes in (4, 6, 180):
        asked = instant(datetime.now(UTC) + timedelta(minutes=minutes))
        again = host.order("delete", replace(ordered, requested_at=asked))
        host.obey(restart=True)
        assert host.results(again) == [("refused", "restored")], minutes
    assert host.host.find("returns-2") == ["returns-2"]


def test_a_request_of_after_the_restore_counts(host: OrderedHost) -> None:
    ordered = host.identity(ORPHAN)
    host.order("delete", ordered)
    host.obey()
    host.restore()
    with sqlite3.connect(host.host.state / "journal.db") as journal:
        journal.execute("UPDATE actions SET at_ms = at_ms - 360000, finished_at_ms = finished_at_ms - 360000")
    journal.close()
    again = host.order("delete", replace(ordered, requested_at=instant(datetime.now(UTC))))
    host.obey(restart=True)
    assert host.results(again) == [("renamed", None)]


def test_a_lost_memory_obeys_no_older_order_though_the_controllers_clock_is_ahead(host: OrderedHost) -> None:
    ahead = datetime.now(UTC) + timedelta(minutes=4)
    order = host.order("delete", host.identity(ORPHAN), issued_at=instant(ahead))
    (host.host.state / NAME).unlink()
    host.obey(restart=True)
    answer = host.answer(order)
    assert answer is not None and "newer than the order" in (answer.results[0].fact or "")
    later = host.order("delete", host.identity(ORPHAN))
    host.obey()
    assert host.results(later) == [("renamed", None)]


def test_the_first_order_of_an_agents_life_is_obeyed(host: OrderedHost) -> None:
    """A daemon looks for orders before there are any, and works on none until one comes."""
    ordered = host.identity(ORPHAN)
    assert host.box is not None
    (host.host.state / NAME).unlink()
    folder = host.store / "control" / host.cluster / "orders" / str(host.node)
    for path in folder.iterdir():
        path.unlink()
    settings, clock = load(str(host.host.toml)).settings, SystemClock()
    target = resolve_target(settings, ())
    with open_session(target, settings, clock, state_dir=str(host.host.state), act=True, actor="daemon") as session:
        host.box = box_of(settings, str(host.host.state), clock, session)
    assert host.box is not None and host.box.receive(), "a new memory has to be told what stood before it"
    order = host.order("delete", ordered)
    host.obey()
    assert host.results(order) == [("renamed", None)]


def test_a_symlink_among_the_orders_stops_no_other_order(host: OrderedHost) -> None:
    order = host.order("delete", host.identity(ORPHAN))
    folder = host.store / "control" / host.cluster / "orders" / str(host.node)
    (folder / f"{host.epoch:010d}-0000008888.json").symlink_to("/etc/passwd")
    os.mkfifo(folder / f"{host.epoch:010d}-0000008889.json")
    host.obey()
    assert host.results(order) == [("renamed", None)]


def test_identities_differ_by_device_only_within_one_boot() -> None:
    one = Identity("/d1", "t-0", 1, 1, boot_id="a", end_offset=5)
    assert one.difference(replace(one, device=2)) is not None
    assert one.difference(replace(one, device=2, boot_id="b")) is None
    assert one.difference(replace(one, bytes=99)) is None


def test_many_small_orders_are_one_plan_to_the_limits(tmp_path: Path) -> None:
    """What one order of a cycle took counts against the next one's `cleanup.max_dirs`."""
    host = OrderedHost(tmp_path)
    several = [("visits", "nfsJWLkFR4m7utdIHqeHhg", n) for n in (0, 1, 2)]
    ordered = [host.identity(which) for which in several]
    host.configure(**{"cleanup.max_dirs": 2})
    orders = [host.order("delete", o) for o in ordered]
    host.obey()
    results = [result for order in orders for result, _ in host.results(order)]
    assert results.count("renamed") == 2


def test_an_agent_that_a_timer_starts_obeys_too(host: OrderedHost) -> None:
    """`logagent run --once`, in report mode."""
    host.configure(**{"cleanup.mode": "report", "metrics.listen": ""})
    stop = host.order("stop", part(ORPHAN))
    ran = host.host.run("run", "--once")
    answer = host.answer(stop)
    assert ran.status == 0 and answer is not None and answer.results[0].directory is not None, ran.out + ran.err
    order = host.order("delete", part(ORPHAN, directory=answer.results[0].directory))
    ran = host.host.run("run", "--once")
    assert ran.status == 0 and host.results(order) == [("renamed", None)], ran.out + ran.err
    assert len(host.host.find("returns-2.", "-stray")) == 1


def test_nothing_is_done_by_order_while_the_clock_is_in_doubt(host: OrderedHost) -> None:
    host.cycle()
    order = host.order("delete", host.identity(ORPHAN))
    host.host.set_clock(days=8)
    host.obey()
    answer = host.answer(order)
    assert answer is not None and answer.results[0].result == "waiting", answer
    assert "clock was set" in (answer.results[0].fact or "") and host.host.find("returns-2") == ["returns-2"]


def test_no_order_however_approved_leaves_only_orphans_on_a_host(host: OrderedHost) -> None:
    host.configure(topics_gone=True)
    for path in host.host.disk.glob("d?/__*"):  # What is not decided counts as assigned.
        shutil.rmtree(path)
    order = host.order("delete", replace(host.identity(ORPHAN), approved_plan="a" * 16))
    host.obey()
    assert host.results(order) == [("refused", "blast-radius")] and host.host.find("returns-2") == ["returns-2"]


def test_prestart_only_marks_the_stray_of_an_approved_order(host: OrderedHost) -> None:
    host.configure(topics_gone=True)
    name = host.host.find("invoices-1.", "-stray")[0]
    inode = (host.host.d1 / name).stat().st_ino
    ordered = host.identity(STRAY, kind="directories", asked_log_dir=str(host.host.d1), asked_name=name)
    host.order("delete", replace(ordered, approved_plan="a" * 16))
    ran = host.host.run("prestart", "--budget", "60s")
    assert ran.status == 0 and not (host.host.d1 / name).exists(), ran.err
    assert inode in {(host.host.d1 / each).stat().st_ino for each in host.host.find("invoices-1.", "-delete")}


def test_while_it_is_uncertain_which_epoch_is_the_highest_no_order_counts(host: OrderedHost) -> None:
    """The epoch that ended ours stands behind more junk than is read at once."""
    order = host.order("delete", host.identity(ORPHAN))
    host.take_epoch()
    for n in range(MAX_READ + 10):
        host.control.create("epoch", f"{10_000 + n}.json", b"junk")
    host.obey(restart=True)
    assert host.answer(order) is None and host.host.find("returns-2") == ["returns-2"]
    host.obey()
    assert host.answer(order) is None or host.results(order) == [("refused", "order")]
    assert host.host.find("returns-2") == ["returns-2"]


def test_a_directory_whose_name_is_not_utf8_is_refused_and_stops_no_other_order(host: OrderedHost) -> None:
    (path,) = [d / "returns-2" for d in (host.host.d1, host.host.d2) if (d / "returns-2").is_dir()]
    os.rename(path, os.fsencode(path.parent) + b"/\xff-2")
    order = host.order("stop", part(ORPHAN))
    other = host.order("stop", part(ASSIGNED))
    host.obey()
    answer = host.answer(order)
    assert answer is not None and host.results(order) == [("refused", "identity")], answer
    assert "\\udcff-2 is not UTF-8" in (answer.results[0].fact or "")
    assert host.results(other) == [("waiting", None)]


def test_an_end_that_is_no_offset_of_kafkas_is_unknown(host: OrderedHost) -> None:
    """A segment's name has room for larger numbers than an offset, and an answer, has."""
    (path,) = [d / "returns-2" for d in (host.host.d1, host.host.d2) if (d / "returns-2").is_dir()]
    (path / f"{'9' * 20}.log").touch()
    ordered = host.identity(ORPHAN)
    assert ordered.directory is not None and ordered.directory.end_offset is None


@pytest.mark.parametrize(("fact", "times"), [("x" * 2001, 1), ("x" * 200, 80_000)], ids=["a fact", "all of it"])
def test_an_answer_that_cannot_be_sent_holds_up_neither_other_answers_nor_orders(
    host: OrderedHost, fact: str, times: int
) -> None:
    """Too long by itself, or in all."""
    host.configure(**{"metrics.listen": ""})
    first = host.order("stop", part(ORPHAN))
    settings, clock = load(str(host.host.toml)).settings, SystemClock()
    target = resolve_target(settings, ())
    with open_session(target, settings, clock, state_dir=str(host.host.state), act=True, actor="daemon") as session:
        session.read_assignments()
        session.take_inventory()
        assert host.box is not None
        host.box.receive()
        host.box.obey(session, session.facts(), lambda: False)
    memory = json.loads((host.host.state / NAME).read_text())
    bad = f"{host.epoch:010d}-0000000000"
    results = [{**memory["answers"][first.order_id]["results"][0], "fact": fact}] * times
    memory["answers"][bad] = {**memory["answers"][first.order_id], "order_id": bad, "results": results}
    (host.host.state / NAME).write_text(json.dumps(memory))
    second = host.order("stop", part(ASSIGNED))
    ran = host.host.run("run", "--once")
    assert host.results(first) == [("waiting", None)] == host.results(second), ran.out + ran.err
    said = [line for line in (ran.out + ran.err).splitlines() if "answers-not-sent" in line]
    assert len(said) == 1 and bad in said[0], ran.out + ran.err
