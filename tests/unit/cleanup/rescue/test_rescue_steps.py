"""Which steps a rescue takes, in which order, up to what, and what it needs approval for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.claims import Claim, Held, Witness
from logagent.base.dir_names import stray_name
from logagent.base.records import ActionKind, DirKey, Reason, Verdict
from logagent.cleanup.plan.guards import assigned
from logagent.cleanup.plan.plan import Flags, Plan, Proposal, plan_id
from logagent.cleanup.rescue.rules import Offer, Step, approved, in_order, kept, removal_of, up_to, with_approval
from logagent.verdict.copies import Duplicates
from logagent.verdict.facts import Ruling, StrayRuling
from tests.hosts import HEX, LOG_DIR, NOW, directory, facts, proposal

STEPS = list(Step)


def offer(n: int, step: Step, gives_back: int = 100, shortens: str | None = None, started: bool = False) -> Offer:
    found = directory(stray_name(f"t{n}", 0, HEX), inode=100 + n)
    removal = Proposal(ActionKind.REMOVE, found, "test", due_at_ms=NOW - n, removal_started=started)
    return Offer(step, removal, gives_back, shortens)


offers = st.lists(
    st.builds(
        lambda step, gives, early, started: (step, gives, "a wait" if early else None, started),
        st.sampled_from(STEPS), st.integers(0, 3).map(lambda n: 300 * n), st.booleans(), st.booleans(),
    ),
    max_size=12,
).map(lambda rows: [offer(n, *row) for n, row in enumerate(rows)])  # fmt: skip


@given(offers, st.integers(0, 4000))
def test_it_goes_from_safest_to_least_safe_and_stops_when_it_is_enough(found: list[Offer], need: int) -> None:
    ordered = in_order(found)
    assert [STEPS.index(o.step) for o in ordered] == sorted(STEPS.index(o.step) for o in found)
    chosen = up_to(ordered, need)
    helpful = [o for o in ordered if o.gives_back or o.proposal.removal_started]
    assert chosen == helpful[: len(chosen)], "what gives nothing back is left, or finished where it has begun"
    assert sum(o.gives_back for o in chosen[:-1]) < need or not chosen
    assert sum(o.gives_back for o in chosen) >= need or chosen == helpful
    assert up_to(ordered, None) == ordered


@given(offers, st.data())
def test_an_approval_is_of_exactly_one_plan(found: list[Offer], data: st.DataObject) -> None:
    ordered = in_order(found)
    count = data.draw(st.integers(0, len(ordered)))
    some = approved(ordered, plan_id(o.proposal for o in ordered[:count]))
    if count == 0:
        assert some is None
    else:
        assert some is not None and [o.key for o in some] == [o.key for o in ordered[:count]]
        assert [o for o in some if not o.proposal.approved] == []
    needed = up_to(ordered, data.draw(st.integers(0, 4000)))
    again = approved(ordered, plan_id(o.proposal for o in needed))
    assert not needed or (again is not None and [o.key for o in again] == [o.key for o in needed])
    assert approved(ordered, "0123456789abcdef") is None


def test_what_goes_before_its_time_needs_approval() -> None:
    due, early = offer(1, Step.MARKED), offer(2, Step.ORPHAN, shortens="cleanup.min_age")
    for chosen, needs in ([due], False), ([due, early], True):
        plan = Plan("p", NOW, tuple(o.proposal for o in chosen), ())
        by_key = {o.key: o for o in chosen}
        stop = with_approval(plan, by_key, None).needs_approval
        assert (stop is not None) is needs
        assert stop is None or ("cleanup.min_age" in stop.why.fact and "--approve p" in stop.why.hint)
        all_early = all(o.shortens is not None for o in by_key.values())
        assert stop is None or ("--execute alone removes only what is due" in stop.why.hint) is not all_early
        assert with_approval(plan, by_key, "p").needs_approval is None


def test_everything_that_is_not_offered_is_said_with_its_reason() -> None:
    dirs = [directory(name, inode=n, allocated=n) for n, name in enumerate(["a-0", "b-0", "c-0", "d-0", "e-0"])]
    rulings = {
        DirKey(LOG_DIR, "a-0"): Ruling(Verdict.ASSIGNED, last_copy=True),
        DirKey(LOG_DIR, "b-0"): Ruling(Verdict.ASSIGNED, last_copy=False),
        DirKey(LOG_DIR, "d-0"): Ruling(Verdict.UNKNOWN, "reassigning"),
    }
    known = facts(rulings=rulings)
    assert [(k.name, k.reason) for k in kept(dirs, [], known, [DirKey(LOG_DIR, "e-0")], Duplicates([], {}))] == [
        ("d-0", "unknown: reassigning"),
        ("c-0", "unknown: no-assignments"),
        ("b-0", "assigned"),
        ("a-0", "assigned: the only live copy"),
    ]
    # Not the only one: what it covers is on this host.
    pair = Duplicates([], {}, {DirKey(LOG_DIR, "a-0"): "a duplicate"})
    found = kept(dirs[:1], [], known, [], pair)
    assert [(k.reason, k.detail) for k in found] == [("assigned", "a duplicate")]


def test_what_is_no_partition_is_kept_and_said_too() -> None:
    names = ["bad", "remote-log-index-cache", "__cluster_metadata-0", stray_name("t", 0, HEX), "a-0"]
    dirs = [directory(name, inode=n, allocated=9 - n) for n, name in enumerate(names)]
    dirs[0].error = "it has no '-'"
    files = [(DirKey(LOG_DIR, "core.1234"), 100)]
    found = kept(dirs, files, facts(), [], Duplicates([], {DirKey(LOG_DIR, "a-0"): "a duplicate"}))
    assert [(k.name, k.bytes, k.detail) for k in found] == [
        ("core.1234", 100, None),
        ("bad", 9, "it has no '-'"),
        ("remote-log-index-cache", 8, None),
        ("__cluster_metadata-0", 7, None),
        ("a-0", 5, "a duplicate"),
    ]
    assert [k for k in found if not k.reason] == []


def test_what_does_not_help_is_kept_and_said() -> None:
    """It is concerned, and of a kind that is never kept otherwise."""
    started, nothing, some = (
        offer(1, Step.MARKED, 0, started=True),
        offer(2, Step.STRAY_PAST_RETENTION, 0),
        offer(3, Step.ORPHAN),
    )
    assert [o.helps for o in (started, nothing, some)] == [True, False, True]
    stray = nothing.proposal.dir
    (found,) = kept([stray], [], facts(), [nothing.key], Duplicates([], {}), [stray])
    assert (found.name, found.bytes) == (stray.name, stray.allocated) and "frees nothing now" in found.reason


def test_what_it_costs_to_remove_a_marked_directory_before_its_delay_is_over() -> None:
    early, due = offer(1, Step.MARKED, shortens="file.delete.delay.ms"), offer(1, Step.MARKED)
    assert "can no longer be restored" in early.cost and due.cost.startswith("none")
    started = replace(early, proposal=replace(early.proposal, removal_started=True))
    assert started.cost == due.cost
    assert [step for step in Step if not offer(1, step).cost] == []


COVERED = Held(Claim.COVERED, Witness.OTHER_LOG_DIR, NOW)


def test_a_double_is_set_aside_only_as_long_as_the_other_copy_has_all_of_it() -> None:
    found = directory("orders-0")
    away = replace(proposal(ActionKind.QUARANTINE, found, new_name=stray_name("orders", 0, HEX)), duplicate=True)
    living = facts(rulings={DirKey(LOG_DIR, "orders-0"): Ruling(Verdict.ASSIGNED)})
    refusal = assigned(away, living)
    assert refusal is not None and "was not checked" in refusal.fact
    no = replace(living, duplicates={DirKey(LOG_DIR, "orders-0"): StrayRuling(False, Reason("it ends later"))})
    refusal = assigned(away, no)
    assert refusal is not None and refusal.fact == "it ends later"
    yes = replace(
        living, duplicates={DirKey(LOG_DIR, "orders-0"): StrayRuling(True, Reason("covered"), proof=(COVERED,))}
    )
    assert assigned(away, yes) is None
    # It permits nothing else.
    assert assigned(replace(away, action=ActionKind.MARK), yes) is not None
    assert assigned(replace(away, duplicate=False), yes) is not None


@pytest.mark.parametrize("agreed", [True, False])
def test_what_was_set_aside_is_removed_by_the_same_word(agreed: bool) -> None:
    before = replace(
        proposal(ActionKind.QUARANTINE, directory("orders-0")),
        approved=agreed,
        full_topic="orders",
        flags=Flags(include_internal=agreed),
    )
    after = removal_of(directory(stray_name("orders", 0, HEX)), before)
    assert (after.action, after.approved, after.full_topic, after.flags) == (
        ActionKind.REMOVE, agreed, "orders", before.flags
    )  # fmt: skip
