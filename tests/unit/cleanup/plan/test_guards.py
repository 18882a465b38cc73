"""Every guard in the list refuses something that no other one would: taken out, just that comes through."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.claims import Claim, Held, Witness
from logagent.base.dir_names import delete_name, stray_name
from logagent.base.records import ActionKind, DirKey, Health, Holder, HolderState, Kind, PartitionDir, Reason, Verdict
from logagent.cleanup.plan import guards
from logagent.cleanup.plan.assemble import BlastRadius, assemble, blast_radius
from logagent.cleanup.plan.guards import GUARDS
from logagent.cleanup.plan.plan import Flags, Guard, Proposal
from logagent.verdict.facts import Facts, LogDirFacts, Ruling, StrayRuling
from tests.hosts import DEVICE, HEX, LOG_DIR, NOW, directory, facts, log_dir, proposal, serving

WIDE = BlastRadius(1000, 1.0)
ORPHAN = facts(orphans=[DirKey(LOG_DIR, "orders-0")])
STRAY = f"orders-0.{HEX}-stray"
MARKED = f"orders-0.{HEX}-delete"


NEVER = "__remote_log_metadata"


def mark(found: PartitionDir | None = None, flags: Flags | None = None) -> Proposal:
    d = found or directory("orders-0")
    new_name = delete_name(d.topic or "t", d.partition or 0, HEX)
    return proposal(ActionKind.MARK, d, new_name=new_name, flags=flags or Flags())


def quarantine(found: PartitionDir | None = None, new_dir: str | None = None) -> Proposal:
    d = found or directory("orders-0")
    new_name = stray_name(d.topic or "t", d.partition or 0, HEX)
    return proposal(ActionKind.QUARANTINE, d, new_name=new_name, new_dir=new_dir)


def displace() -> Proposal:
    return replace(quarantine(), flags=Flags(allow_assigned=True))


def remove(name: str = MARKED) -> Proposal:
    return proposal(ActionKind.REMOVE, directory(name))


def restore(name: str = STRAY) -> Proposal:
    return proposal(ActionKind.RESTORE, directory(name), new_name="orders-0")


def held(state: HolderState) -> Facts:
    where = log_dir(holder=Holder(state, 4711))
    return facts(where, orphans=[DirKey(LOG_DIR, "orders-0")])


def unhealthy(health: Health) -> Facts:
    return facts(log_dir(health=health, health_reason="seen"), orphans=[DirKey(LOG_DIR, "orders-0")])


def ruled(ruling: Ruling) -> Facts:
    return replace(facts(), rulings={DirKey(LOG_DIR, "orders-0"): ruling})


@dataclass(frozen=True)
class Case:
    """What `guard` alone refuses."""

    guard: Guard
    says: str
    proposal: Proposal
    facts: Facts


ASSIGNED = Ruling(Verdict.ASSIGNED, last_copy=False)
IN_USE = log_dir(open_by={"orders-0": (17,)})
IN_USE_STRAY = log_dir(open_by={STRAY: (4711, 17)}, holder=serving())
UNSEEN = log_dir(open_files_unreadable="process 9 cannot be read")
OTHER = "/data/quarantine"
STAYS = facts(strays={DirKey(LOG_DIR, STRAY): StrayRuling(False, Reason("no copy covers it"))})
FIXED = Reason("it is immutable", "chattr -i")

CASES = [
    Case(guards.inside, "not the name of a direct child", mark(replace(directory("orders-0"), name="../orders-0")),
         facts(orphans=[DirKey(LOG_DIR, "../orders-0")])),
    Case(guards.inside, "cannot be trusted", mark(directory("orders-0", error="symlink")), ORPHAN),
    Case(guards.inside, "another file system", mark(directory("orders-0", device=DEVICE + 1)), ORPHAN),
    Case(guards.inside, "index cache", remove("remote-log-index-cache"), facts()),
    Case(guards.inside, "not named like a partition dir", remove("lost+found"), facts()),
    Case(guards.inside, "does not apply", remove("orders-0"), ORPHAN),
    Case(guards.inside, "does not apply", proposal(ActionKind.RESTORE, directory("orders-0")), ORPHAN),
    Case(guards.inside, "does not apply", proposal(ActionKind.DROP_CHECKPOINT_ENTRY, directory("orders-0")), ORPHAN),
    Case(guards.inside, "no broker would start", replace(mark(), new_name="orders 0-0.x-delete"), ORPHAN),
    Case(guards.inside, "no broker would start", replace(restore(), new_name="orders-1"), facts()),
    Case(guards.online, "offline", mark(), unhealthy(Health.OFFLINE)),
    Case(guards.online, "read-only", remove(), unhealthy(Health.READ_ONLY)),
    Case(guards.online, "unformatted", remove(STRAY), unhealthy(Health.UNFORMATTED)),
    Case(guards.cluster, "different clusters", mark(),
         replace(ORPHAN, cluster_problems={LOG_DIR: "different clusters"})),
    Case(guards.lock, "uses the log dir", mark(), held(HolderState.HIDDEN)),
    Case(guards.lock, "cannot tell who", remove(), held(HolderState.UNREADABLE)),
    Case(guards.lock, "uses the log dir", restore(), held(HolderState.HIDDEN)),
    Case(guards.window, "is live", mark(), held(HolderState.HELD)),
    Case(guards.window, "is live", remove(), held(HolderState.HELD)),
    Case(guards.window, "is live", restore(), held(HolderState.HELD)),
    Case(guards.window, "may still be starting", remove(STRAY), held(HolderState.STARTING)),
    Case(guards.window, "may still be starting", quarantine(), held(HolderState.STARTING)),
    Case(guards.window, "is live", quarantine(new_dir=OTHER),
         replace(held(HolderState.HELD), log_dirs={**held(HolderState.HELD).log_dirs, OTHER: log_dir(OTHER)})),
    Case(guards.in_use, "process 17", mark(), facts(IN_USE, orphans=[DirKey(LOG_DIR, "orders-0")])),
    Case(guards.in_use, "process 4711, 17", remove(STRAY), facts(IN_USE_STRAY)),
    Case(guards.in_use, "cannot be read", remove(), facts(UNSEEN)),
    Case(guards.version, "3.6.0", quarantine(), replace(ORPHAN, kafka_version=(3, 6, 0))),
    Case(guards.version, "version is unknown", quarantine(), replace(ORPHAN, kafka_version=None)),
    Case(guards.policy, "delete.topic.enable", mark(flags=Flags(by_topic=True)),
         replace(ORPHAN, delete_topic_enable=False)),
    Case(guards.policy, "internal topic", mark(directory("__consumer_offsets-3")),
         facts(orphans=[DirKey(LOG_DIR, "__consumer_offsets-3")])),
    Case(guards.assigned, "assigned", mark(), ruled(ASSIGNED)),
    Case(guards.assigned, "no-assignments", quarantine(), facts()),
    Case(guards.assigned, "unknown", mark(), ruled(Ruling(Verdict.UNKNOWN, "reassigning"))),
    Case(guards.assigned, "nobody checked whether another copy has all of it", mark(flags=Flags(allow_assigned=True)),
         replace(ruled(ASSIGNED), strays={})),
    Case(guards.assigned, "last live copy", displace(), ruled(replace(ASSIGNED, last_copy=True))),
    Case(guards.assigned, "no current assignments", displace(), ruled(replace(ASSIGNED, last_copy=None))),
    Case(guards.assigned, "no copy covers it", remove(STRAY), STAYS),
    Case(guards.assigned, "no copy covers it", mark(directory(STRAY)), STAYS),
    Case(guards.assigned, "nobody checked", remove(STRAY), facts(strays={})),
    Case(guards.assigned, "nobody checked", mark(directory(STRAY)), facts(strays={})),
    Case(guards.policy, "internal topic", remove(f"__consumer_offsets-3.{HEX}-stray"), facts()),
    Case(guards.policy, "begins with '_'", mark(directory("_schemas-0")),
         facts(orphans=[DirKey(LOG_DIR, "_schemas-0")])),
    Case(guards.policy, "begins with '_'", remove(f"_schemas-0.{HEX}-stray"), facts()),
    *(Case(guards.policy, f"logagent never deletes {NEVER}", replace(p, flags=Flags(include_internal=True)),
           facts(orphans=[DirKey(LOG_DIR, f"{NEVER}-0")]))
      for p in (mark(directory(f"{NEVER}-0")), quarantine(directory(f"{NEVER}-0")), remove(f"{NEVER}-0.{HEX}-stray"),
                remove(f"{NEVER}-0.{HEX}-delete"))),
    Case(guards.changeable, "is immutable", mark(), replace(ORPHAN, unchangeable={mark().key: FIXED})),
    Case(guards.changeable, "is immutable", remove(), facts(unchangeable={remove().key: FIXED})),
    Case(guards.changeable, "is immutable", restore(), facts(unchangeable={restore().key: FIXED})),
    Case(guards.journal, "disk full", mark(), replace(ORPHAN, journal_problem=Reason("disk full", "make room"))),
    Case(guards.journal, "disk full", remove(), facts(journal_problem=Reason("disk full", "make room"))),
]  # fmt: skip


def ids(case: Case) -> str:
    return f"{case.guard.__name__}-{case.says}-{case.proposal.action}".replace(" ", "_")


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_a_guard_refuses_what_no_other_one_would(case: Case) -> None:
    plan = assemble([case.proposal], [], case.facts, GUARDS, WIDE)
    assert plan.actions == ()
    (refusal,) = plan.refusals
    assert refusal.why.code == case.guard.__name__.replace("_", "-")
    assert case.says in refusal.why.fact
    assert refusal.why.hint
    assert "None" not in refusal.why.fact, refusal.why.fact
    without = [g for g in GUARDS if g is not case.guard]
    assert assemble([case.proposal], [], case.facts, without, WIDE).actions == (case.proposal,)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda g: g.__name__)
def test_no_guard_of_the_list_is_without_a_case(guard: Guard) -> None:
    assert [c for c in CASES if c.guard is guard]


def test_no_guard_of_the_module_is_left_out_of_the_list() -> None:
    found = {
        function
        for name, function in inspect.getmembers(guards, inspect.isfunction)
        if function.__module__ == guards.__name__ and not name.startswith("_")
    }
    assert found == set(GUARDS)


def test_a_log_dir_that_was_not_looked_at_permits_nothing() -> None:
    """The one thing that several guards refuse: there is no fact at all."""
    elsewhere = mark(directory("orders-0", log_dir="/data/d9"))
    refusing = {g.__name__ for g in GUARDS if g(elsewhere, facts(orphans=[("/data/d9", "orders-0")])) is not None}
    assert {"inside", "online", "lock"} <= refusing


def test_an_unknown_quarantine_directory_permits_nothing() -> None:
    refusing = {g.__name__ for g in GUARDS if g(quarantine(new_dir="/nowhere"), ORPHAN) is not None}
    assert {"online", "lock"} <= refusing


TOPICS = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9._]{0,20}", fullmatch=True)
GOOD = st.sampled_from(
    [ActionKind.MARK, ActionKind.QUARANTINE, ActionKind.RESTORE, ActionKind.REMOVE],
)


@given(topic=TOPICS, number=st.integers(0, 99999), action=GOOD, health=st.sampled_from([Health.ONLINE, Health.FULL]))
def test_what_is_good_in_every_respect_passes(topic: str, number: int, action: ActionKind, health: Health) -> None:
    good = good_proposal(action, f"{topic}-{number}")
    seen = facts(log_dir(health=health), orphans=[(LOG_DIR, f"{topic}-{number}")])
    assert assemble([good], [], seen, GUARDS, WIDE).actions == (good,)


def good_proposal(action: ActionKind, name: str) -> Proposal:
    current = directory(name)
    assert current.topic is not None and current.partition is not None
    stray = stray_name(current.topic, current.partition, HEX)
    if action is ActionKind.MARK:
        return mark(current)
    if action is ActionKind.QUARANTINE:
        return quarantine(current)
    if action is ActionKind.RESTORE:
        return proposal(action, directory(stray), new_name=name)
    return proposal(action, directory(stray))


def test_a_stray_of_an_internal_topic_goes_by_word_and_half_of_one_goes_on() -> None:
    strays = (remove(f"__consumer_offsets-3.{HEX}-stray"), remove(f"_schemas-0.{HEX}-stray"))
    for going in (
        *(replace(stray, flags=Flags(include_internal=True)) for stray in strays),
        *(replace(stray, removal_started=True) for stray in strays),
    ):
        assert assemble([going], [], facts(), GUARDS, WIDE).actions == (going,)


def test_what_never_goes_comes_back_and_half_of_it_goes_on() -> None:
    half = replace(remove(f"{NEVER}-0.{HEX}-delete"), removal_started=True)
    back = proposal(ActionKind.RESTORE, directory(f"{NEVER}-0.{HEX}-stray"), new_name=f"{NEVER}-0")
    for allowed in (half, back):
        assert assemble([allowed], [], facts(), GUARDS, WIDE).actions == (allowed,)


def test_two_guards_keep_the_metadata_log() -> None:
    asked = mark(directory("__cluster_metadata-0"), Flags(True, True, True))
    for guard in (guards.inside, guards.policy):
        assert guard(asked, facts(orphans=[DirKey(LOG_DIR, "__cluster_metadata-0")])) is not None


def test_a_stray_of_the_serving_holder_may_be_removed_under_it() -> None:
    where = log_dir(open_by={STRAY: (4711,)}, holder=serving())
    assert assemble([remove(STRAY)], [], facts(where), GUARDS, WIDE).actions == (remove(STRAY),)


@given(kind=st.sampled_from(list(Kind)), action=st.sampled_from(list(ActionKind)), state=st.sampled_from(HolderState))
def test_only_strays_are_touched_while_somebody_holds_the_log_dir(
    kind: Kind, action: ActionKind, state: HolderState
) -> None:
    found = replace(directory("orders-0"), kind=kind)
    plan = assemble([proposal(action, found, flags=Flags(True, True, True))], [], held(state), GUARDS, WIDE)
    if plan.actions:
        assert state is HolderState.FREE or (
            state is HolderState.HELD and kind is Kind.STRAY and action is ActionKind.REMOVE
        )


APPLIES = {
    ActionKind.MARK: {Kind.CURRENT, Kind.FUTURE, Kind.STRAY},
    ActionKind.QUARANTINE: {Kind.CURRENT, Kind.FUTURE, Kind.DELETE},
    ActionKind.RESTORE: {Kind.STRAY, Kind.DELETE},
    ActionKind.REMOVE: {Kind.STRAY, Kind.DELETE},
    ActionKind.REMOVE_LEFTOVERS: {Kind.CURRENT, Kind.FUTURE},
}


@pytest.mark.parametrize("action", list(ActionKind))
@pytest.mark.parametrize("kind", list(Kind))
def test_each_action_applies_to_its_kinds_only(action: ActionKind, kind: Kind) -> None:
    p = proposal(action, replace(directory("orders-0"), kind=kind))
    refused = guards.inside(p, ORPHAN)
    assert (refused is None) == (kind in APPLIES.get(action, ()))


@pytest.mark.parametrize(
    ("verdict", "names", "goes"),
    [
        (Verdict.ASSIGNED, ("0.log.deleted", "0.log.cleaned"), True),
        (Verdict.ASSIGNED, ("0.log.deleted", "0.log"), False),
        (Verdict.ASSIGNED, ("0.log.swap",), False),
        (Verdict.ASSIGNED, ("0-0.checkpoint.deleted",), False),
        (Verdict.ASSIGNED, (), False),
        (Verdict.UNKNOWN, ("0.log.deleted",), False),
        (Verdict.ORPHAN, ("0.log.deleted",), False),
    ],
)
def test_only_what_a_start_drops_goes_from_a_directory_that_stays(
    verdict: Verdict, names: tuple[str, ...], goes: bool
) -> None:
    p = proposal(ActionKind.REMOVE_LEFTOVERS, directory("orders-0"), leftovers=names)
    proof = (Held(Claim.LIVES_HERE, Witness.KRAFT_LOG, NOW),) if verdict is Verdict.ASSIGNED else ()
    seen = facts(rulings={DirKey(LOG_DIR, "orders-0"): Ruling(verdict, proof=proof)})
    assert (guards.assigned(p, seen) is None) is goes
    # It takes no directory away: no limit counts it, and its own approval lists the files.
    assert blast_radius([p], facts(), BlastRadius(max_dirs=0, max_fraction=0.0)) is None


@pytest.mark.parametrize(
    ("was", "flags", "word"),
    [
        (Ruling(Verdict.UNKNOWN, "no-topic-id"), Flags(even_last_copy=True), True),
        (Ruling(Verdict.UNKNOWN, "no-topic-id"), Flags(allow_assigned=True), False),
        (Ruling(Verdict.ORPHAN, "not-a-replica"), Flags(even_last_copy=True), True),
        (Ruling(Verdict.ASSIGNED), Flags(even_last_copy=True), False),
        (Ruling(Verdict.ASSIGNED), Flags(even_last_copy=True, allow_assigned=True), True),
    ],
)
def test_a_stray_that_may_be_the_only_copy_goes_by_the_operators_word_and_an_approval(
    was: Ruling, flags: Flags, word: bool
) -> None:
    p = proposal(ActionKind.MARK, directory(STRAY), flags=flags)
    seen = facts(strays={DirKey(LOG_DIR, STRAY): StrayRuling(False, Reason("no copy covers it"), ruling=was)})
    assert (guards.assigned(p, seen) is None) is word
    plan = assemble([p], [], seen, [guards.assigned], WIDE)
    assert (plan.needs_approval is not None) is word
    if word:
        assert assemble([p], [], seen, [guards.assigned], WIDE, approve=plan.plan_id).needs_approval is None


def from_quarantine() -> Proposal:
    return proposal(ActionKind.RESTORE, directory(STRAY, log_dir=OTHER), new_name="orders-0", new_dir=LOG_DIR)


@pytest.mark.parametrize(
    ("guard", "home"),
    [
        (guards.window, log_dir(holder=Holder(HolderState.HELD, 4711))),
        (guards.window, log_dir(holder=Holder(HolderState.STARTING, 4711))),
        (guards.online, log_dir(health=Health.READ_ONLY, health_reason="seen")),
        (guards.lock, log_dir(holder=Holder(HolderState.HIDDEN, 4711))),
    ],
)
def test_a_restore_from_quarantine_looks_at_where_it_goes(guard: Guard, home: LogDirFacts) -> None:
    seen = replace(facts(), log_dirs={LOG_DIR: home, OTHER: replace(log_dir(OTHER), quarantine=True)})
    plan = assemble([from_quarantine()], [], seen, GUARDS, WIDE)
    assert [r.why.code for r in plan.refusals] == [guard.__name__]


def test_a_restore_from_quarantine_never_goes_to_a_log_dir_of_another_cluster() -> None:
    seen = replace(
        facts(),
        log_dirs={LOG_DIR: log_dir(), OTHER: replace(log_dir(OTHER), quarantine=True)},
        cluster_problems={LOG_DIR: "different clusters"},
    )
    assert [r.why.code for r in assemble([from_quarantine()], [], seen, GUARDS, WIDE).refusals] == ["cluster"]


def test_a_new_name_is_of_the_kind_that_the_action_gives() -> None:
    for p in (
        replace(mark(), new_name=STRAY),
        replace(quarantine(), new_name=MARKED),
        replace(restore(), new_name=MARKED),
    ):
        refusal = guards.inside(p, ORPHAN)
        assert refusal is not None and "no broker would start" in refusal.fact


SOURCE = tuple(
    Held(claim, witness, NOW)
    for claim, witness in (
        (Claim.OUR_LINEAGE, Witness.STATE_DIR),
        (Claim.IN_THIS_MODE, Witness.PROCESS_ROLES),
        (Claim.NOT_CONTRADICTED, Witness.EVERY_SOURCE),
    )
)
GONE = Ruling(Verdict.ORPHAN, "topic-absent", proof=(Held(Claim.TOPIC_ABSENT, Witness.KRAFT_LOG, NOW), *SOURCE))
MOVED = Ruling(Verdict.ORPHAN, "not-a-replica", proof=(Held(Claim.NOT_A_REPLICA, Witness.KRAFT_LOG, NOW), *SOURCE))
HERE = Ruling(Verdict.ASSIGNED, None)
UNKNOWN = Ruling(Verdict.UNKNOWN, "no-topic-id")
COVERED = (*MOVED.proof, Held(Claim.COVERED, Witness.LEADER, NOW))


@pytest.mark.parametrize(
    ("ruling", "flags", "goes"),
    [
        (StrayRuling(True, Reason("topic-absent"), ruling=GONE, proof=GONE.proof), Flags(only_deleted=True), True),
        (StrayRuling(True, Reason("another copy has all of it"), "yes", ruling=MOVED, proof=COVERED), Flags(), True),
        (
            StrayRuling(True, Reason("another copy has all of it"), "yes", ruling=MOVED, proof=COVERED),
            Flags(only_deleted=True, even_last_copy=True),
            False,
        ),
        (StrayRuling(False, Reason("no copy covers it"), "no", ruling=MOVED, proof=MOVED.proof), Flags(), False),
        (StrayRuling(False, Reason("no copy covers it"), "no", ruling=MOVED), Flags(even_last_copy=True), True),
        (
            StrayRuling(False, Reason("nobody could be asked"), "unknown", ruling=MOVED),
            Flags(even_last_copy=True),
            True,
        ),
        (StrayRuling(False, Reason("no copy covers it"), "no", ruling=HERE), Flags(even_last_copy=True), False),
        (StrayRuling(False, Reason("no copy covers it"), "no", ruling=MOVED), Flags(only_copy=True), True),
        (StrayRuling(False, Reason("no copy covers it"), "no", ruling=HERE), Flags(only_copy=True), False),
        (StrayRuling(False, Reason("its owner is unknown now"), ruling=UNKNOWN), Flags(only_copy=True), False),
    ],
)
def test_what_a_stray_needs_to_go(ruling: StrayRuling, flags: Flags, goes: bool) -> None:
    """`only_deleted`: cover by another copy is no proof that its topic is deleted. `even_last_copy`: that it may be the
    only copy was approved; that its partition is assigned here was not. `only_copy`: the same, by a request, and only
    of a partition that is known."""
    known = facts(strays={DirKey(LOG_DIR, STRAY): ruling})
    assert (guards.assigned(replace(remove(STRAY), flags=flags), known) is None) is goes


@pytest.mark.parametrize("asked", [mark(), replace(quarantine(), then_removed=True)], ids=["mark", "to-remove"])
@pytest.mark.parametrize(
    ("cover", "fact", "hint"),
    [
        (None, "nobody checked whether another copy has all of it", "add --even-last-copy"),
        (
            StrayRuling(False, Reason("no copy covers it"), "no", ruling=MOVED),
            "no copy covers it",
            "add --even-last-copy",
        ),
        (
            StrayRuling(False, Reason("not asked", "set kafka.client"), "unknown", ruling=MOVED),
            "not asked",
            "its leader could not be asked: set kafka.client; or add --even-last-copy",
        ),
    ],
)
def test_what_has_moved_does_not_go_without_cover(
    asked: Proposal, cover: StrayRuling | None, fact: str, hint: str
) -> None:
    known = replace(ruled(MOVED), strays={} if cover is None else {asked.dir.key: cover})
    refusal = guards.assigned(asked, known)
    assert refusal is not None and refusal.fact == fact and refusal.claim is Claim.COVERED
    assert refusal.hint.startswith(hint) and "logagent cleanup only sets it aside" in refusal.hint
