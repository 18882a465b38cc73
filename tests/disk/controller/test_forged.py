"""Who can write the store and has no key: what was made up counts for nothing, and stops nobody."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from logagent.agent.orders.inbox import Inbox
from logagent.store.deletion import CLOSED_SCHEMA, EPOCH_SCHEMA, ORDER_SCHEMA, Closed, Order
from logagent.store.epochs import EpochLost
from logagent.store.orders import REQUESTS, closings_folder, encode, instant, orders_folder, write_closed
from logagent.store.signing import PrivateKey, public_key
from tests.disk.controller.small_fleet import CLUSTER, KEY, TOPIC_ID, SmallFleet
from tests.needs import need_root

STRANGER = PrivateKey("ops", b"\x02" * 32)
OLD = PrivateKey("old", b"\x03" * 32)


def folder(fleet: SmallFleet) -> Path:
    return fleet.store / "control" / CLUSTER


@contextmanager
def nobody(fleet: SmallFleet, unreadable: Collection[Path] = (), closed: Path | None = None) -> Iterator[None]:
    """Somebody else, who may write there: to root every file may be read."""
    for path in (fleet.store, *fleet.store.rglob("*")):
        if path.is_dir() and not path.is_symlink() and path.stat().st_mode & 0o777:
            path.chmod(0o777)
    for path in unreadable:
        path.chmod(0)
    if closed is not None:
        closed.chmod(0o755)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def fleet() -> Iterator[SmallFleet]:
    with tempfile.TemporaryDirectory() as store:
        Path(store).chmod(0o777)
        fleet = SmallFleet(Path(store)).everywhere()
        fleet.request(topics=(fleet.topic(),))
        yield fleet


def cancelled(fleet: SmallFleet, request: str = "request-1", cluster: str = CLUSTER, epoch: int = 1) -> Closed:
    return Closed(request, cluster, epoch, "cancelled", "ops", instant(fleet.now))


def plant(fleet: SmallFleet, content: bytes, name: str = "0000000001-cancelled.json") -> None:
    assert fleet.control.create(closings_folder("request-1"), name, content)


def _altered(fleet: SmallFleet) -> bytes:
    signed = json.loads(KEY.sign(CLOSED_SCHEMA, encode(cancelled(fleet, "request-2"))))
    signed["payload"] = json.loads(STRANGER.sign(CLOSED_SCHEMA, encode(cancelled(fleet))))["payload"]
    return json.dumps(signed).encode()


def _resumed(fleet: SmallFleet) -> bytes:
    closed = Closed("request-1", CLUSTER, 1, "resumed", "ops", instant(fleet.now))
    return KEY.sign(CLOSED_SCHEMA, encode(closed))


FORGED: dict[str, Callable[[SmallFleet], bytes]] = {
    "unsigned": lambda fleet: encode(cancelled(fleet)),
    "another key": lambda fleet: STRANGER.sign(CLOSED_SCHEMA, encode(cancelled(fleet))),
    "of another request": lambda fleet: KEY.sign(CLOSED_SCHEMA, encode(cancelled(fleet, "request-2"))),
    "of another cluster": lambda fleet: KEY.sign(CLOSED_SCHEMA, encode(cancelled(fleet, cluster="another"))),
    "of another schema": lambda fleet: KEY.sign(EPOCH_SCHEMA, encode(cancelled(fleet))),
    "another payload": _altered,
    "a resumption under its name": _resumed,
    "junk": lambda fleet: b"\xff" * 5000,
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_cancellation_stops_no_deletion(fleet: SmallFleet, how: str) -> None:
    plant(fleet, FORGED[how](fleet))
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert controller.states.of("request-1") == "done" and fleet.admin.asked == [TOPIC_ID]
    assert all(not host.disk for host in fleet.hosts.values())


def test_a_cancellation_whose_name_is_taken_gets_another(fleet: SmallFleet) -> None:
    """Who knows the next epochs may take the names of what operators will say in them."""
    for epoch in range(1, 50):
        for outcome in ("cancelled", "done"):
            plant(fleet, b"junk", f"{epoch:010d}-{outcome}.json")
    controller = fleet.controller()
    controller.start()
    controller.close("request-1", "cancelled")
    fleet.rounds(controller)
    assert controller.states.of("request-1") == "cancelled" and fleet.admin.asked == []
    assert Inbox(fleet.control, 1, fleet.keys, True).cancelled(["request-1"]) == {"request-1"}


def _unreadable(path: Path) -> None:
    path.mkdir()
    path.chmod(0)


@pytest.mark.parametrize("make", [lambda p: p.write_text("x"), lambda p: p.symlink_to("/etc"), _unreadable])
def test_where_no_cancellation_can_be_read_that_request_is_held(
    fleet: SmallFleet, make: Callable[[Path], object]
) -> None:
    """An operator could not cancel it. The others go on."""
    need_root()
    fleet.request(number=2, topics=(fleet.topic(topic_id="B" * 22),))
    make(folder(fleet) / REQUESTS / "request-1")
    with nobody(fleet):
        controller = fleet.controller()
        controller.start()
        fleet.rounds(controller)
        assert fleet.admin.asked == ["B" * 22] and controller.states.of("request-2") == "done"
        assert "whether it was cancelled cannot be read" in controller.states.on_hold["request-1"]
        assert Inbox(fleet.control, 1, fleet.keys, True).cancelled(["request-1", "request-2"]) == {"request-1"}


def test_where_no_cancellation_can_be_read_any_more_nothing_is_sent(fleet: SmallFleet) -> None:
    controller = fleet.controller()
    controller.start()
    fleet.admin.between = lambda: os.mkfifo(folder(fleet) / REQUESTS / "request-1")
    controller.round()
    assert fleet.admin.asked == []


def test_files_that_nobody_else_may_read_stop_nobody(fleet: SmallFleet) -> None:
    need_root()
    fleet.controller().start()
    fleet.request(number=2, topics=(fleet.topic(topic_id="B" * 22),))
    junk = [folder(fleet) / path for path in (
        "requests/request-3.json", "requests/request-2/0000000001-cancelled.json",
        "orders/1/0000000001-0000000009.json", f"answers/1/0000000001-0000000001.{'a' * 32}.0.json",
    )]  # fmt: skip
    for path in junk:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"junk")
    with nobody(fleet, unreadable=junk):
        inbox = Inbox(fleet.control, 1, fleet.keys, True)
        controller = fleet.controller()
        controller.start()
        fleet.rounds(controller)
        assert controller.states.of("request-1") == "done", controller.states.on_hold
        assert controller.states.of("request-2") == "on-hold"
        assert inbox.poll(0, fleet.now) and inbox.cancelled(["request-1", "request-2"]) == {"request-2"}
        fleet.controller().look()


def test_a_host_that_cannot_be_told_stops_no_other(fleet: SmallFleet) -> None:
    (folder(fleet) / "orders").mkdir()
    (folder(fleet) / "orders" / "1").write_text("x")
    controller = fleet.controller()
    controller.start()
    for _ in range(6):
        controller.round()
        for node in (2, 3):
            fleet.agent(node)
    assert fleet.hosts[1].disk and not fleet.hosts[2].disk and not fleet.hosts[3].disk
    assert any("no order can be written for node 1: orders/1" in line for line in fleet.warnings)
    fleet.controller().start()
    fleet.controller().look()


def test_what_may_not_be_removed_stops_no_takeover(fleet: SmallFleet) -> None:
    """As somebody else's files in a store of mode 1777."""
    need_root()
    old = folder(fleet) / "orders" / "1" / "0000000001-0000000009.json"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"junk")
    fleet.controller().start()
    with nobody(fleet, closed=old.parent):
        assert fleet.controller().start().epoch == 2
    assert any("orders and answers of node 1" in line for line in fleet.warnings)


def test_names_of_orders_and_epochs_that_are_taken_by_junk_stop_nobody(fleet: SmallFleet) -> None:
    for number in range(1, 1500):
        fleet.control.create("epoch", f"{number}.json", b"junk")
    for number in range(1, 30):
        fleet.control.create(orders_folder(1), f"0000001500-{number:010d}.json", b"junk")
    (fleet.store / "control" / CLUSTER / orders_folder(1) / "0000001500-0000000030.json").mkdir()
    controller = fleet.controller()
    assert controller.start().epoch == 1500
    for _ in range(6):
        controller.round()
    names = [name for name in fleet.control.names(orders_folder(1)) if name > "0000001500-0000000030.json"]
    assert len(names) == 1


@pytest.mark.parametrize("folder", [orders_folder(1), closings_folder("request-1")])
def test_a_folder_in_the_place_of_an_old_file_stops_no_later_controller(fleet: SmallFleet, folder: str) -> None:
    """Old orders, and what is said of requests that were closed a month ago, are removed at a start."""
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    for name in ("0000000001-0000000077.json", "0000000077-resumed.json"):
        (fleet.store / "control" / CLUSTER / folder / name).mkdir(parents=True)
    fleet.now += timedelta(days=31)
    later = fleet.controller()
    later.start()
    left = [name for name in fleet.control.names(orders_folder(1)) if "77" not in name]
    assert left == [] and later.requests.requests == {}


def test_a_request_that_is_a_folder_or_a_link_is_nobodys(fleet: SmallFleet) -> None:
    folder = fleet.store / "control" / CLUSTER / REQUESTS
    (folder / "request-7.json").mkdir()
    (folder / "request-8.json").symlink_to("request-1.json")
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert controller.states.of("request-1") == "done" and set(controller.requests.requests) == {"request-1"}


def test_a_signed_file_of_another_cluster_is_nobodys(fleet: SmallFleet) -> None:
    """One key, two clusters, one store: what was said in the one is copied into the other."""
    other = SmallFleet(fleet.store)
    other.control.cluster_id = "another"
    closed = cancelled(fleet, cluster="another")
    write_closed(other.control, closed, KEY)
    elsewhere = fleet.store / "control" / "another" / closings_folder("request-1") / "0000000001-cancelled.json"
    plant(fleet, elsewhere.read_bytes())
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert controller.states.of("request-1") == "done"


def retire(fleet: SmallFleet, key: PrivateKey) -> None:
    fleet.keys = (*fleet.keys, public_key(key.public() + ":retired"))


def test_what_was_cancelled_with_a_retired_key_stays_cancelled(fleet: SmallFleet) -> None:
    plant(fleet, OLD.sign(CLOSED_SCHEMA, encode(cancelled(fleet))))
    retire(fleet, OLD)
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert controller.states.of("request-1") == "cancelled" and fleet.admin.asked == []


def test_nothing_is_asked_for_or_resumed_with_a_retired_key(fleet: SmallFleet) -> None:
    fleet.request(number=2, topics=(fleet.topic(),), key=OLD)
    resumed = Closed("request-1", CLUSTER, 1, "resumed", "ops", instant(fleet.now))
    plant(fleet, OLD.sign(CLOSED_SCHEMA, encode(resumed)), "0000000001-resumed.json")
    retire(fleet, OLD)
    look = fleet.controller()
    look.look()
    assert set(look.requests.requests) == {"request-1"} and look.requests.closed == {}
    assert "signed with key old, which is not in orders.keys, or retired" in (look.requests.ignored.example or "")


def test_a_cancellation_with_an_unknown_key_is_named_before_other_junk(fleet: SmallFleet) -> None:
    fleet.control.create(REQUESTS, "request-0.json", b"junk")
    plant(fleet, OLD.sign(CLOSED_SCHEMA, encode(cancelled(fleet))))
    look = fleet.controller()
    look.look()
    name, _, why = (look.requests.ignored.example or "").partition(": ")
    assert name == "requests/request-1/0000000001-cancelled.json" and "key old" in why


def _order(fleet: SmallFleet) -> Order:
    return Order("0000000001-0000000001", 1, CLUSTER, 1, "stop", instant(fleet.now), instant(fleet.now), ())


def _signed_order(fleet: SmallFleet, **more: Any) -> bytes:
    return KEY.sign(ORDER_SCHEMA, encode(replace(_order(fleet), **more)))


SIGNED: dict[str, Callable[[SmallFleet], bytes]] = {
    "a request": lambda fleet: (folder(fleet) / REQUESTS / "request-1.json").read_bytes(),
    "an order to another node": lambda fleet: _signed_order(fleet, node_id=2),
    "an order of another name": lambda fleet: _signed_order(fleet, order_id="0000000001-0000000999"),
    "an order to another cluster": lambda fleet: _signed_order(fleet, cluster_id="another"),
}


@pytest.mark.parametrize("what", SIGNED)
def test_a_signed_file_in_the_place_of_an_order_stops_nobody(fleet: SmallFleet, what: str) -> None:
    fleet.control.create(orders_folder(1), "0000000001-0000000001.json", SIGNED[what](fleet))
    controller = fleet.controller()
    controller.start()
    for _ in range(6):
        controller.round()
        for node in (2, 3):
            fleet.agent(node)
    assert not fleet.hosts[2].disk and not fleet.hosts[3].disk
    assert "0000000001-0000000002.json" in fleet.control.names(orders_folder(1))


@pytest.mark.parametrize("schema", [ORDER_SCHEMA, "logagent.order/2"])
def test_an_order_in_its_own_place_is_another_controllers(fleet: SmallFleet, schema: str) -> None:
    fleet.control.create(orders_folder(1), "0000000001-0000000001.json", KEY.sign(schema, encode(_order(fleet))))
    controller = fleet.controller()
    controller.start()
    with pytest.raises(EpochLost):
        controller.round()


def test_a_node_whose_orders_have_no_name_left_stops_no_other(fleet: SmallFleet) -> None:
    for number in range(1, 500):
        fleet.control.create(orders_folder(1), f"0000000001-{number:010d}.json", b"junk")
    controller = fleet.controller()
    controller.start()
    for _ in range(6):
        controller.round()
        for node in (2, 3):
            fleet.agent(node)
    assert not fleet.hosts[2].disk and not fleet.hosts[3].disk
    assert any("no order can be written for node 1: other files" in line for line in fleet.warnings)
