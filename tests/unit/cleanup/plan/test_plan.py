"""Plans: their identity, which proposals get in, and what an approval lets through."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.records import ActionKind, DirKey, Reason
from logagent.cleanup.plan.assemble import BlastRadius, assemble, keep_pairs
from logagent.cleanup.plan.guards import GUARDS
from logagent.cleanup.plan.plan import Plan, Proposal, Refusal, action_id, first_of_plan, plan_id
from logagent.verdict.facts import Facts
from tests.hosts import HEX, LOG_DIR, directory, facts, proposal

WIDE = BlastRadius(1_000_000, 1.0)
NARROW = BlastRadius(1, 0.0)


def remove(number: int, due: int | None = None, **fields: object) -> Proposal:
    found = directory(f"orders-{number}.{HEX}-delete", inode=1000 + number)
    return proposal(ActionKind.REMOVE, replace(found, **fields), due_at_ms=due)  # type: ignore[arg-type]


def plan_of(*proposals: Proposal, limits: BlastRadius = WIDE, approve: str | None = None) -> Plan:
    return assemble(proposals, [], facts(), GUARDS, limits, approve=approve)


NUMBERS = st.lists(st.integers(0, 50), unique=True, max_size=12)


@given(NUMBERS, st.randoms(use_true_random=False))
def test_the_same_actions_have_the_same_id_in_any_order(numbers: list[int], rng: random.Random) -> None:
    proposals = [remove(n) for n in numbers]
    shuffled = rng.sample(proposals, len(proposals))
    assert plan_id(shuffled) == plan_id(proposals)


@given(NUMBERS, st.integers(0, 12))
def test_a_plan_is_found_among_the_first_of_what_can_be_done(numbers: list[int], count: int) -> None:
    proposals = [remove(n) for n in numbers]
    some = proposals[:count]
    assert first_of_plan(proposals, plan_id(some)) == (len(some) or None)
    assert first_of_plan(proposals, plan_id(map(remove, [*numbers, 99]))) is None


def test_a_plan_is_found_among_thousands() -> None:
    proposals = [remove(n) for n in range(3000)]
    random.Random(1).shuffle(proposals)
    for count in (1, 511, 512, 513, 2047, 2999, 3000):
        assert first_of_plan(proposals, plan_id(proposals[:count])) == count
    assert first_of_plan(proposals, "0123456789abcdef") is None


@given(NUMBERS, NUMBERS)
def test_other_actions_have_another_id(one: list[int], other: list[int]) -> None:
    same = set(one) == set(other)
    assert (plan_id(map(remove, one)) == plan_id(map(remove, other))) is same


@pytest.mark.parametrize(
    "other",
    [
        replace(remove(1), action=ActionKind.RESTORE),
        replace(remove(1), then_removed=True),
        replace(remove(1), duplicate=True),
        remove(1, log_dir="/data/d2"),
        remove(1, name="orders-2.x-delete"),
        remove(1, device=1),
        remove(1, inode=1),
        remove(1, topic_id=None),
    ],
)
def test_what_identifies_an_action(other: Proposal) -> None:
    assert plan_id([other]) != plan_id([remove(1)])
    assert action_id(other) != action_id(remove(1))


def test_what_does_not_identify_an_action() -> None:
    other = replace(remove(1, bytes=7, newest_mtime_ns=7), new_name="x", due_at_ms=7, sightings=7, reason="other")
    assert plan_id([other]) == plan_id([remove(1)])


def test_names_that_are_no_utf8_have_ids_too() -> None:
    assert len(plan_id([remove(1, name="\udcff-1.x-delete")])) == 16
    assert len(action_id(remove(1, name="\udcff-1.x-delete"))) == 12


def test_parts_cannot_be_confused_with_each_other() -> None:
    assert plan_id([remove(1, log_dir="/a", name="b")]) != plan_id([remove(1, log_dir="/", name="ab")])


# Approval


@given(st.integers(1, 8), st.integers(0, 5))
def test_an_approval_runs_exactly_those_items_and_leaves_out_what_fell_due_later(approved: int, later: int) -> None:
    then = [remove(n, due=n) for n in range(approved)]
    now = [*(remove(n, due=approved + n) for n in range(approved, approved + later)), *then]
    plan = plan_of(*now, limits=NARROW, approve=plan_id(then))
    assert plan.needs_approval is None
    assert list(plan.actions) == [replace(p, approved=True) for p in then]
    assert plan.plan_id == plan_id(then)


@pytest.mark.parametrize(
    "now",
    [
        [remove(0, due=0)],
        [remove(0, due=0), remove(1, due=1, inode=9)],
        [remove(0, due=0), remove(1, due=1, error="symlink")],
        [],
    ],
    ids=["one is gone", "one is another", "one is refused now", "all are gone"],
)
def test_an_approval_is_void_when_anything_in_it_changed(now: list[Proposal]) -> None:
    approve = plan_id([remove(0, due=0), remove(1, due=1)])
    plan = plan_of(*now, approve=approve)
    assert plan.needs_approval is not None
    assert plan.needs_approval in plan.refusals
    assert approve in plan.needs_approval.why.fact
    assert (plan.plan_id if now else "nothing is left") in plan.needs_approval.why.hint
    assert (plan.plan_id in plan.needs_approval.why.hint) is bool(now), "the empty plan is none to approve"
    assert [p for p in plan.actions if p.approved] == []


def test_the_first_refusal_of_each_is_told_and_the_others_go_on() -> None:
    plan = plan_of(remove(0), remove(1, error="symlink", device=7), remove(2))
    assert [p.dir.name[:8] for p in plan.actions] == ["orders-0", "orders-2"]
    (refusal,) = plan.refusals
    assert (refusal.why.code, refusal.key.name[:8]) == ("inside", "orders-1")


def test_refusals_from_before_are_kept() -> None:
    before = Refusal(Reason("fact", "hint", "policy"), DirKey(LOG_DIR, "x"))
    assert assemble([], [], facts(), GUARDS, WIDE, refusals=[before]).refusals == (before,)


def test_without_any_guard_everything_is_let_through() -> None:
    """So that the refusals above are the guards' doing."""
    assert len(assemble([remove(1, error="symlink")], [], facts(), [], WIDE).actions) == 1


# Pairs


def pair() -> tuple[Proposal, Proposal]:
    stray = directory(f"orders-0.{HEX}-stray", inode=7)
    coming = proposal(ActionKind.RESTORE, stray, new_name="orders-0")
    away = proposal(
        ActionKind.QUARANTINE,
        directory("orders-0", inode=8),
        new_name=f"orders-0.{HEX[::-1]}-stray",
        makes_room_for=stray.key,
    )
    return away, coming


@pytest.mark.parametrize("refused", [0, 1])
def test_neither_half_of_a_pair_goes_alone(refused: int) -> None:
    halves = pair()
    names = {halves[refused].dir.name}

    def guard(p: Proposal, _: Facts) -> Reason | None:
        return Reason("open", "close it", "in-use") if p.dir.name in names else None

    plan = assemble([*halves, remove(5)], [], facts(), [guard], WIDE)
    assert [p.dir.name for p in plan.actions] == [remove(5).dir.name]
    assert [(r.why.code, r.key.name) for r in plan.refusals] == [
        ("in-use", halves[refused].dir.name),
        ("policy", halves[1 - refused].dir.name),
    ]


def test_a_whole_pair_stays() -> None:
    halves = list(pair())
    assert keep_pairs(halves, halves) == (halves, [])
