"""What a host has of an ordered partition; it is absent only where everything that could hold it was looked at."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logagent.agent.orders.lookup import Lookup
from logagent.agent.session.session import Session
from logagent.model.facts import Facts, Ruling
from logagent.model.records import ActionKind, DirKey, Health, Identity, PartitionDir, Verdict
from logagent.store.deletion import Order, OrderedPartition
from logagent.store.orders import instant
from tests.hosts import DEVICE, HEX, LOG_DIR, NOW, TOPIC_ID, directory, facts, log_dir

HERE, NOT_HERE = "A" * 22, "B" * 22
ORDERED = OrderedPartition("request-1", "orders", TOPIC_ID, 0)
SEEN = replace(facts(), log_dirs={LOG_DIR: replace(log_dir(), directory_id=HERE)})


def answer(
    known: Facts, *registered: str, whole: bool = True, ordered: OrderedPartition = ORDERED, **more: Any
) -> tuple[str, str]:
    session = SimpleNamespace(dirs=more.pop("dirs", []), whole=whole, **more)
    known = replace(known, directory_ids=lambda: frozenset(registered))
    result = Lookup(cast(Session, session), known).not_there(ordered)
    return result.result, result.fact or ""


def test_what_every_registered_log_dir_lacks_is_absent() -> None:
    assert answer(SEEN, HERE) == ("absent", "")
    assert answer(SEEN) == ("absent", "")  # ZooKeeper mode, or before directory ids


@pytest.mark.parametrize(
    ("known", "registered", "whole", "why"),
    [
        (SEEN, (HERE, NOT_HERE), True, f"directory.id {NOT_HERE}"),
        (replace(SEEN, left_out=("/data/d2",)), (HERE,), True, "/data/d2 was not looked at"),
        (SEEN, (HERE,), False, "not every directory"),
        (replace(SEEN, log_dirs={LOG_DIR: log_dir(health=Health.OFFLINE)}), (), True, LOG_DIR),
    ],
)
def test_while_one_was_not_looked_at_it_is_not(
    known: Facts, registered: tuple[str, ...], whole: bool, why: str
) -> None:
    result, fact = answer(known, *registered, whole=whole)
    assert result == "offline" and why in fact


ROW = replace(ORDERED, asked_log_dir="/data/d2", asked_name="orders-0")
STRAY = f"orders-0.{HEX}-stray"
TWO = replace(SEEN, log_dirs={**SEEN.log_dirs, "/data/d2": log_dir("/data/d2")})


def test_a_row_is_absent_from_a_log_dir_of_this_host_only() -> None:
    assert answer(SEEN, ordered=ROW) == ("refused", "this host has no log dir /data/d2")
    assert answer(TWO, ordered=ROW)[0] == answer(TWO, ordered=replace(ROW, asked_log_dir="/data//d2/"))[0] == "absent"
    left_out = replace(SEEN, left_out=("/data/d2",))
    assert answer(left_out, ordered=ROW) == ("offline", "log dir /data/d2 was not looked at")


@pytest.mark.parametrize("known", [SEEN, TWO])
@pytest.mark.parametrize(
    ("asked", "there", "is_it"),
    [
        ("orders-0", directory("orders-0"), True),
        ("orders-0", directory(f"orders-0.{HEX}-future"), True),
        ("orders-0", directory("orders-0", topic_id=None), True),
        (STRAY, directory(STRAY), True),
        ("orders-0", directory(STRAY), False),
        (STRAY, directory("orders-0"), False),
        ("orders-0", directory("payments-0", topic_id="E" * 22), False),
    ],
)
def test_a_row_whose_disk_has_another_path_now_is_not_absent(
    known: Facts, asked: str, there: PartitionDir, is_it: bool
) -> None:
    result, fact = answer(known, ordered=replace(ROW, asked_name=asked), dirs=[there])
    gone = ("absent", "") if known is TWO else ("refused", "this host has no log dir /data/d2")
    assert (result, fact) == (("refused", f"it is {LOG_DIR}/{there.name} now") if is_it else gone)


def test_what_is_assigned_elsewhere_is_not_the_orphan_of_the_row() -> None:
    known = replace(TWO, rulings={DirKey(LOG_DIR, "orders-0"): Ruling(Verdict.ASSIGNED)})
    assert answer(known, ordered=ROW, dirs=[directory("orders-0")]) == ("absent", "")


# What an order is about

HEX2 = HEX[::-1]
WITH_ID = {
    "current": directory("orders-0"),
    "future": directory(f"orders-0.{HEX}-future"),
    "stray": directory(f"orders-0.{HEX}-stray"),
    "marked": directory(f"orders-0.{HEX}-delete"),
    "elsewhere": directory(f"orders-0.{HEX2}-future", log_dir="/data/d2"),
    "other partition": directory("orders-1"),
    "other id": directory("payments-0", topic_id="E" * 22),
}
WITHOUT_ID = {
    "current": directory("orders-0", log_dir="/data/d3", topic_id=None),
    "stray": directory(f"orders-0.{HEX2}-stray", log_dir="/data/d3", topic_id=None),
    "other topic": directory("payments-0", log_dir="/data/d3", topic_id=None),
}


def sought(ordered: OrderedPartition) -> set[DirKey]:
    dirs = [*WITH_ID.values(), *WITHOUT_ID.values()]
    return {d.key for d in Lookup(cast(Session, SimpleNamespace(dirs=dirs)), SEEN).sought(ordered)}


def keys(*dirs: PartitionDir) -> set[DirKey]:
    return {d.key for d in dirs}


def test_a_whole_topic_is_its_current_and_future_directories_and_those_that_may_be_its_own() -> None:
    live = (WITH_ID["current"], WITH_ID["future"], WITH_ID["elsewhere"])
    assert sought(ORDERED) == keys(*live, WITHOUT_ID["current"])


@pytest.mark.parametrize("which", ["current", "future", "stray", "marked"])
def test_a_row_of_a_report_is_that_directory(which: str) -> None:
    row = replace(ORDERED, asked_log_dir=LOG_DIR, asked_name=WITH_ID[which].name)
    assert sought(row) == keys(WITH_ID[which])


def test_a_row_without_a_topic_id_is_found_by_its_name() -> None:
    row = replace(ORDERED, asked_log_dir="/data/d3", asked_name=WITHOUT_ID["stray"].name)
    assert sought(row) == keys(WITHOUT_ID["stray"])


def test_what_was_renamed_since_is_what_has_its_place_now_in_that_log_dir_only() -> None:
    gone = f"orders-0.{'e' * 32}-future"
    assert sought(replace(ORDERED, asked_log_dir=LOG_DIR, asked_name=gone)) == keys(WITH_ID["future"])
    assert sought(replace(ORDERED, asked_log_dir=f"{LOG_DIR}/", asked_name=gone)) == keys(WITH_ID["future"])
    assert sought(replace(ORDERED, asked_log_dir="/data/d3", asked_name=gone)) == set()
    # Another stray is not the stray of the row.
    assert sought(replace(ORDERED, asked_log_dir=LOG_DIR, asked_name=f"orders-0.{'e' * 32}-stray")) == set()


# What a restore voids

AT = datetime.fromtimestamp(NOW / 1000, UTC)


def voided(
    *, action: ActionKind = ActionKind.RESTORE, inode: int = 100, minutes: float, asked: str | None = instant(AT),
    issued: datetime = AT,
) -> bool:  # fmt: skip
    """Whether a request and an order of NOW are voided by a rename of the directory so many minutes later."""
    intent = SimpleNamespace(action=action, identity=Identity(DEVICE, inode))
    entry = SimpleNamespace(intent=intent, at_ms=NOW + round(minutes * 60_000))
    journal = SimpleNamespace(renames=lambda: {("orders-0", inode): entry})
    lookup = Lookup(cast(Session, SimpleNamespace(dirs=[], journal=journal)), SEEN)
    until = instant(issued + timedelta(days=1))
    p = replace(ORDERED, requested_at=asked)
    order = Order("0000000001-0000000001", 1, "c", 1, "delete", instant(issued), until, (p,))
    return lookup.restored(order, p, directory("orders-0")) is not None


def test_a_restore_voids_what_was_not_certainly_requested_after_it() -> None:
    assert voided(minutes=1) and voided(minutes=-4) and not voided(minutes=-6)
    assert voided(minutes=-6, asked=None)
    assert not voided(minutes=1, action=ActionKind.QUARANTINE)
    assert not voided(minutes=1, inode=101)


def test_a_request_is_no_later_than_its_order() -> None:
    day = timedelta(days=1)
    # Ahead by less than clocks may be apart: the order's time counts.
    ahead = instant(AT + timedelta(minutes=4))
    assert voided(minutes=-4, asked=ahead) and not voided(minutes=-6, asked=ahead)
    # By more: the clock was wrong, and when the request was made is not known.
    assert voided(minutes=1, asked=instant(AT + day)) and voided(minutes=-6, asked=instant(AT + day))
    # It is asked again and again.
    assert voided(minutes=60, issued=AT + day) and not voided(minutes=-6, issued=AT + day)


@pytest.mark.parametrize("asked", ["0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"])
def test_a_request_of_the_first_or_last_year_is_voided_as_any_other(asked: str) -> None:
    assert voided(minutes=1, asked=asked)
