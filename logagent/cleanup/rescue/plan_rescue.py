"""The plan of `logagent rescue`: every step that may be offered, in order, until enough is freed.

Carries a rescue out: what is removed directly, what is set aside and then removed in the same run, and more of what
is due while the file system has got back less than is needed.

One step after the other: no copy of another step is read before a marked directory is gone, and on a full disk a rename
may need what the removals before it have freed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from logagent.base.claims import Claim
from logagent.base.records import DirKey, Holder, HolderState, Identity, Kind, Outcome, PartitionDir, RemovedFile
from logagent.base.sizes import NOTHING, Space
from logagent.cleanup.execute.log_manager import LogManager
from logagent.cleanup.plan.due import RETRY, Part, what_is_due
from logagent.cleanup.plan.plan import Execution, Flags, Plan, Proposal, Refusal, Waiting, action_id, plan_id
from logagent.cleanup.rescue.inspection import (
    BrokersPart,
    CameBack,
    Room,
    brokers_part,
    file_systems,
    free_by_device,
    free_room,
    leftover_files,
    plain_files,
    room_given_back,
    what_came,
)
from logagent.cleanup.rescue.rules import (
    Kept,
    Offer,
    Step,
    approved,
    at_risk,
    in_order,
    kept,
    offer_duplicate,
    offer_leftovers,
    removal_of,
    up_to,
    with_approval,
    without_a_stop,
)
from logagent.cleanup.session.session import Session, new_uuid
from logagent.disk.calls import Stop
from logagent.kafka.processes.broker_process import inspect_process
from logagent.verdict.duplicates import Duplicates, duplicates, pairs
from logagent.verdict.evidence.stray_questions import read_as_loaded
from logagent.verdict.facts import Facts

# Sources that need no network: what only a running cluster can prove is unknown here.
LOCAL_SOURCES = ("kraft-log", "file")
_BOOKS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class OpenRemoved:
    """Removed files that one process keeps open; they are freed when it ends, and nothing else is lost. `files`: the
    blocks of each, in bytes."""

    log_dir: str
    pid: int
    program: str | None
    files: Mapping[Identity, int]
    is_holder: bool

    @property
    def bytes(self) -> int:
        return sum(self.files.values())


@dataclass(frozen=True, slots=True)
class RemovedByHand:
    """A file that one process keeps open, and that may be the only copy of its records."""

    log_dir: str
    file: RemovedFile
    program: str | None
    is_holder: bool


@dataclass(frozen=True, slots=True)
class Rescue:
    """`plan`: what would be done now; `offers`: which step each of its actions is. `more`: what could be freed beyond
    the need. `unread_processes`: how many `open_removed` lacks. `free`: by log dir. `removed_by_hand`: what is lost
    when a process ends; while there is any, no stop or restart is advised. `came`: what the file system got back, once
    the plan was carried out, `expected`: the blocks of what was removed, and `kept_open`: of what was removed meanwhile
    where it acted, what processes keep open."""

    plan: Plan
    offers: dict[DirKey, Offer]
    more: int
    need: int | None
    kept: list[Kept]
    open_removed: list[OpenRemoved]
    unread_processes: int
    by_broker: BrokersPart
    free: dict[str, Space]
    removed_by_hand: list[RemovedByHand]
    came: CameBack | None = None
    expected: int = 0
    kept_open: int = 0

    @property
    def gives_back(self) -> int:
        return _given_back(self.offers.values())

    @property
    def missing(self) -> int:
        """What of the need the plan leaves, or left when it was carried out."""
        return max(0, (self.need or 0) - (self.gives_back if self.came is None else self.came.bytes))

    @property
    def came_less(self) -> int:
        """By how many bytes less came than was removed; 0 up to what a file system's own books take."""
        lacks = self.expected - self.came.bytes if self.came is not None else 0
        return max(0, lacks - _BOOKS_BYTES)


def plan_rescue(
    session: Session,
    facts: Facts,
    *,
    need: int | None,
    approve: str | None = None,
    only_due: bool = False,
    include_internal: bool = False,
    leave_out: Collection[DirKey] = (),
) -> Rescue:
    """What can be freed now. `only_due`: without what would need approval (plain `--execute`); `approve`: exactly the
    plan with that id; `leave_out`: directories that are not offered, because they were tried already."""
    found = _possible(session, facts, Flags(include_internal=include_internal), leave_out)
    due = [o for o in found.offers if o.shortens is None]
    only_due = only_due and approve is None
    chosen = up_to(due if only_due else found.offers, need)
    of_that_id = _approved(approve, chosen, found.offers, due) if approve is not None else None
    if of_that_id is not None:
        chosen = of_that_id
    refusals = list(found.refusals)
    if only_due and (need is None or _given_back(chosen) < need):
        refusals += [_early(o) for o in found.offers if o.shortens is not None and (need is None or o.helps)]
    plan = session.plan(
        [o.proposal for o in chosen],
        found.waiting,
        refusals,
        facts=facts,
        approve=approve if of_that_id is None else None,
    )
    # Less than was chosen, if the plan of that id was made before something was added.
    planned = {p.key for p in plan.actions}
    by_key = {o.key: o for o in chosen if o.key in planned}
    return _rescue(session, facts, found, with_approval(plan, by_key, approve), by_key, need)


@dataclass(frozen=True, slots=True)
class _Possible:
    """`offers`: every step that the guards permit, in order; `refusals` and `waiting`: of the others. `concerned`: what
    any of these names. `duplicates`: what is known of all."""

    offers: list[Offer]
    refusals: list[Refusal]
    waiting: list[Waiting]
    concerned: set[DirKey]
    duplicates: Duplicates


def _possible(session: Session, facts: Facts, flags: Flags, leave_out: Collection[DirKey]) -> _Possible:
    offers, waiting = _offers(session, facts, flags)
    duplicate_offers, decided = _duplicates(session, facts, flags)
    offers = [o for o in (*offers, *duplicate_offers) if o.key not in leave_out]
    known = {*leave_out, *(o.key for o in offers)}
    offers += [offer_leftovers(d, *found) for d, found in leftover_files(session, facts) if d.key not in known]
    offers, only_copies = _without_only_copies(session, facts, offers)
    whole = session.plan([o.proposal for o in offers], waiting, only_copies, facts=facts)
    passed = {p.key for p in whole.actions}
    # A directory of which only leftovers go is kept all the same.
    whole_dirs = [o for o in offers if o.step is not Step.LEFTOVERS]
    concerned = {x.key for some in (whole_dirs, waiting, only_copies) for x in some}
    refusals = [r for r in whole.refusals if r.name]
    return _Possible(in_order(o for o in offers if o.key in passed), refusals, waiting, concerned, decided)


def _rescue(
    session: Session, facts: Facts, found: _Possible, plan: Plan, offers: dict[DirKey, Offer], need: int | None
) -> Rescue:
    """The plan with everything that a rescue reports beside it."""
    by_hand, spared, given = _removed_by_hand(facts), session.spared, _given_back(offers.values())
    if by_hand:
        plan = replace(plan, refusals=tuple(map(without_a_stop, plan.refusals)))
    idle = [o.proposal.dir for o in found.offers if need is not None and not o.helps and o.key not in offers]
    here = [d for d in session.dirs if d.log_dir not in spared]
    missing = None if need is None else need - given
    return Rescue(
        plan,
        offers,
        _given_back(found.offers) - given,
        need,
        kept(here, plain_files(session), facts, found.concerned, found.duplicates, idle),
        _open_removed(facts, spared),
        max((where.unread_processes for where in facts.log_dirs.values()), default=0),
        brokers_part(session, facts, {o.key for o in found.offers}, missing),
        {path: room for path, room in free_room(session).items() if path not in spared},
        by_hand,
    )


def _given_back(offers: Iterable[Offer]) -> int:
    return sum(o.gives_back for o in offers)


def _approved(approve: str, chosen: list[Offer], possible: list[Offer], due: list[Offer]) -> list[Offer] | None:
    """The offers of the plan with that id: most often it is what is `chosen` now. A plain `--execute` can exceed the
    blast radius: that plan, of what is `due`, can be approved, too."""
    if plan_id(o.proposal for o in chosen) == approve:
        return approved(chosen, approve)
    return approved(possible, approve) or (approved(due, approve) if len(due) < len(possible) else None)


_Found = tuple[Step, Proposal, str | None]


def _offers(session: Session, facts: Facts, flags: Flags) -> tuple[list[Offer], list[Waiting]]:
    """Every step but doubles, before the guards check it, and what cannot be a step now. While the clock is in doubt
    nothing is due: everything would be early, and needs approval."""
    known = session.candidates(flags=flags)
    now, whole = (what_is_due(known, facts, new_uuid, waits_over=over) for over in (False, True))
    doubt = session.clock_watch.doubt()
    why = f" ({doubt.why})" if doubt is not None else ""
    past, within = Step.STRAY_PAST_RETENTION, Step.STRAY_WITHIN_RETENTION
    found = [
        *_due_first(now.marked, whole.marked, Step.MARKED, Step.MARKED, f"file.delete.delay.ms{why}"),
        *_due_first(now.strays, whole.strays, past, within, f"cleanup.stray_retention{why}"),
    ]
    away = [replace(p, flags=flags, then_removed=True) for p in whole.orphans.due]
    found += [(Step.ORPHAN, p, f"cleanup.min_age, cleanup.stray_retention{why}") for p in away]
    room = room_given_back(session, facts, [p.dir for _, p, _ in found])
    offers = [Offer(step, p, _bytes(room, p.dir), shortens) for step, p, shortens in found]
    return offers, [*whole.marked.waiting, *whole.orphans.waiting]


def _without_only_copies(session: Session, facts: Facts, offers: list[Offer]) -> tuple[list[Offer], list[Refusal]]:
    """An orphan is removed right after it is set aside, so the checks on a stray's removal are made now."""
    rulings = session.rule_on_strays([o.proposal.dir for o in offers if o.step is Step.ORPHAN], facts.now_ms)
    kept_back = [o for o in offers if o.key in rulings and not rulings[o.key].may_go]

    def hint(asked: str | None) -> str:
        hint = "it stays, as it may be the only copy; logagent cleanup sets it aside when it is due"
        return hint if asked is None else f"{hint}; its leader could not be asked: {asked}"

    def refusal(o: Offer) -> Refusal:
        found = rulings[o.key]
        lacks = Claim.COVERED if found.covered is not None else None
        return Refusal.of(o.proposal.dir, "assigned", found.detail, hint(found.hint), claim=lacks)

    return [o for o in offers if o not in kept_back], [refusal(o) for o in kept_back]


def _due_first(now: Part, whole: Part, past: Step, within: Step, setting: str) -> list[_Found]:
    """What is due, and the rest, with the wait that removing it now would shorten: the setting's, or the one after a
    failed removal."""
    waits = {w.key: "the wait after a failed removal" if w.rule == RETRY else setting for w in now.waiting}
    rest = [(p, waits[p.key]) for p in whole.due if p.key in waits]
    return [*((past, p, None) for p in now.due), *((within, p, wait) for p, wait in rest)]


def _duplicates(session: Session, facts: Facts, flags: Flags) -> tuple[list[Offer], Duplicates]:
    """Checked only if there are any, because it reads logs. The guard checks again right before each is set aside. Also
    returns what is known of all."""
    logs = read_as_loaded([d for pair in pairs(session.dirs) for d in pair], session.own_log_dirs(), session.calls)
    free = {path: room for paths, room in file_systems(session) for path in paths} if logs else {}
    decided = duplicates(session.dirs, facts, logs, session.spared, free)
    found = decided.found
    room = room_given_back(session, facts, [duplicate.dir for duplicate in found])
    session.duplicates = {d.dir.key: d.other for d in found}
    offers = [offer_duplicate(d, _bytes(room, d.dir), new_uuid, flags, facts) for d in found]
    return offers, decided


def _bytes(room: Mapping[DirKey, Space], d: PartitionDir) -> int:
    return room.get(d.key, NOTHING).bytes


def _early(offer: Offer) -> Refusal:
    fact = f"it would be removed early ({offer.shortens})"
    hint = "logagent rescue shows the plan; --execute --approve PLAN_ID carries out exactly that plan"
    return Refusal.of(offer.proposal.dir, "policy", fact, hint)


def _is_broker(holder: Holder, pid: int) -> bool:
    """Whether it has the lock, or `.lock` open at least: what has nothing but files open may be anybody's."""
    locked = holder.state in (HolderState.HELD, HolderState.STARTING)
    return (locked and pid == holder.pid) or pid in holder.lock_open_by


def _open_removed(facts: Facts, spared: Collection[str]) -> list[OpenRemoved]:
    """What is freed when a process ends. A process that keeps what was removed by hand is left out with all that it
    has."""
    never = {file.pid for _, file in at_risk(facts)}
    found: list[OpenRemoved] = []
    for path, where in facts.log_dirs.items():
        by_process: dict[int, dict[Identity, int]] = {}
        for file in where.open_removed:
            if file.pid not in never:
                by_process.setdefault(file.pid, {})[file.identity] = file.allocated
        for pid, files in by_process.items():
            if path not in spared and any(files.values()):
                found.append(OpenRemoved(path, pid, _program(pid), files, _is_broker(where.holder, pid)))
    return sorted(found, key=lambda o: (-o.bytes, o.log_dir, o.pid))


def _removed_by_hand(facts: Facts) -> list[RemovedByHand]:
    """In every log dir: whatever `--log-dir` leaves out is lost with the same process."""
    return [
        RemovedByHand(path, file, _program(file.pid), _is_broker(facts.log_dirs[path].holder, file.pid))
        for path, file in at_risk(facts)
    ]


def _program(pid: int) -> str | None:
    process = inspect_process(pid)
    return process.short_command if process is not None else None


def carry_out_rescue(
    session: Session, rescue: Rescue, manager: LogManager, *, approved: bool, include_internal: bool
) -> tuple[Rescue, Execution]:
    """Execute the plan, and then, while less came back than is needed, what else is due: a guard may refuse at the act
    what it let pass before, and other files or processes may keep the blocks of what was removed. Returns the rescue
    with everything that was tried, and the outcome. Raises JournalError.

    `approved`: the plan was approved by its id. Then exactly that plan is carried out.
    """
    before, stop = free_by_device(session), manager.control.stop
    plan, execution = _with_removals(session, rescue.plan, manager)
    rescue = replace(rescue, plan=plan)
    if execution.results or plan.needs_approval is None:
        rescue = _measured(session, rescue, execution, before, stop)
    tried, going_on = set(rescue.offers), not approved and plan.needs_approval is None
    while going_on and rescue.missing and not stop():
        session.take_inventory()
        found = plan_rescue(
            session,
            session.facts(),
            need=rescue.missing,
            only_due=True,
            include_internal=include_internal,
            leave_out=tried,
        )
        tried.update(found.offers)
        rescue = _joined(rescue, found)
        going_on = bool(found.plan.actions) and found.plan.needs_approval is None
        if going_on:
            execution = _together(execution, manager.execute(replace(found.plan, plan_id=rescue.plan.plan_id)))
            rescue = _measured(session, rescue, execution, before, stop)
    return (_with_who_keeps_it(session, rescue) if rescue.came_less else rescue), execution


def _measured(session: Session, rescue: Rescue, execution: Execution, before: Mapping[int, Room], stop: Stop) -> Rescue:
    """With what came back until now where it acted: elsewhere a broker frees and writes, too."""
    expected = execution.freed_bytes
    acted_on = {p.dir.device for p in rescue.plan.actions}
    rooms = {device: before.get(device) for device in acted_on}
    return replace(rescue, came=what_came(session, rooms, expected - _BOOKS_BYTES, stop), expected=expected)


def _with_who_keeps_it(session: Session, rescue: Rescue) -> Rescue:
    """With the processes that keep removed files open now, what this run removed included. What they kept before is no
    reason: it was not free then either."""
    session.take_inventory()
    facts = session.facts()
    unread = max((where.unread_processes for where in facts.log_dirs.values()), default=0)
    now = _open_removed(facts, session.spared)
    acted_on = {p.dir.device for p in rescue.plan.actions}
    before = {identity for o in rescue.open_removed for identity in o.files}
    new = {i: size for o in now for i, size in o.files.items() if i not in before and i.device in acted_on}
    return replace(rescue, open_removed=now, unread_processes=unread, kept_open=sum(new.values()))


def _joined(rescue: Rescue, found: Rescue) -> Rescue:
    """`rescue` with the actions of `found`; if those would need an approval, with a refusal of each instead."""
    actions, refusals, offers, more = found.plan.actions, found.plan.refusals, found.offers, found.more
    stop = found.plan.needs_approval
    if stop is not None:
        refusals = (*(r for r in refusals if r != stop), *(_needs_approval(p, stop.fact) for p in actions))
        actions, offers, more = (), {}, found.more + found.gives_back
    plan = replace(
        rescue.plan,
        actions=(*rescue.plan.actions, *actions),
        refusals=tuple(dict.fromkeys((*rescue.plan.refusals, *refusals))),
    )
    return replace(
        rescue,
        plan=plan,
        offers=rescue.offers | offers,
        more=more,
        by_broker=found.by_broker,
    )


def _needs_approval(p: Proposal, fact: str) -> Refusal:
    hint = (
        "logagent rescue without --need shows all that can be freed; --execute --approve PLAN_ID carries that plan out"
    )
    return Refusal.of(p.dir, "blast-radius", fact, hint)


def _with_removals(session: Session, plan: Plan, manager: LogManager) -> tuple[Plan, Execution]:
    """Execute `plan`, and remove what it has set aside: an approval covers that too. Returns the plan with those
    removals, and the outcome of everything."""
    whole, execution = plan, Execution()
    if plan.needs_approval is not None:
        return whole, execution
    for _, group in groupby(plan.actions, key=_step):
        left = list(group)
        while left:
            execution = _together(execution, manager.execute(replace(plan, actions=tuple(left))))
            aside = [p for p in left if p.then_removed and _outcome(execution, p) is Outcome.DONE]
            if not aside:
                break
            then = _removals(session, whole, aside)
            if then.needs_approval is None:
                execution = _together(execution, manager.execute(then))
            whole = replace(
                whole,
                actions=(*whole.actions, *then.actions),
                refusals=(*whole.refusals, *then.refusals),
                needs_approval=then.needs_approval,
            )
            if whole.needs_approval is not None:
                return whole, execution
            # Renames, too, need some space, and there is more of it now.
            left = [p for p in left if _outcome(execution, p) is Outcome.FAILED]
    return whole, execution


def _step(p: Proposal) -> tuple[bool, bool, Kind | None]:
    return p.then_removed, p.duplicate, None if p.then_removed else p.dir.kind


def _removals(session: Session, plan: Plan, aside: Sequence[Proposal]) -> Plan:
    """The removal of what `plan` has just set aside."""
    session.take_inventory()
    before = {(p.new_dir or p.dir.log_dir, p.new_name): p for p in aside}
    removals = [removal_of(d, p) for d in session.dirs if (p := before.get(d.key)) is not None]
    session.duplicates |= {r.key: session.duplicates[before[r.key].key] for r in removals if r.duplicate}
    return replace(session.plan(removals, facts=session.facts()), plan_id=plan.plan_id)


def _together(first: Execution, then: Execution) -> Execution:
    return Execution(first.results | then.results, [*first.refusals, *then.refusals])


def _outcome(execution: Execution, p: Proposal) -> Outcome | None:
    result = execution.results.get(action_id(p))
    return result.outcome if result is not None else None
