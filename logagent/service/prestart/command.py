"""`logagent prestart`: between a broker's stop and its start, as `ExecStartPre=-` of its unit. This window is the
safest: only renames, and never beyond the budget.

Due orphans become `-stray` (3.6.1 and later, or into a quarantine directory), strays past their retention become
`-delete`, which the starting broker purges itself after its own delay. Only if a file system has too little space for a
start is anything removed: what is due, until there is enough; instead of the renames, where the blast radius does not
allow both. No sighting is counted.
"""

from __future__ import annotations

import mmap
import shlex
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import click

from logagent.advice.check.rules.log_dirs import SPACE_CODES
from logagent.base.config.settings import parse_duration
from logagent.base.console.options import Call, common, reads_assignments
from logagent.base.console.render import dump, human_bytes, said_on_stderr, whoever_reads
from logagent.base.errors import Exit, LogAgentError, UsageError
from logagent.base.linux.access import work_in_child
from logagent.base.records import ActionKind, DirKey, Outcome, PartitionDir, Reason
from logagent.base.units import NOTHING, Space, counted, rfc3339
from logagent.cleanup.execute.log_manager import LogManager
from logagent.cleanup.plan.plan import Execution, Plan, Proposal, Waiting, action_id
from logagent.cleanup.plan.proposals import rename_away
from logagent.cleanup.rescue.plan_rescue import free_room, room_given_back
from logagent.cleanup.run_plan import Done, carry_out, closing, set_status, show_plan
from logagent.cleanup.session.gather import reads_of
from logagent.cleanup.session.of_command import note_health, read_assignments, say_where_they_end, session_of
from logagent.cleanup.session.session import Session, new_uuid
from logagent.kafka.processes.target import UnnamedBroker
from logagent.service.prestart.rules import StartRoom, room_to_start, still_lacking, to_make_room, until_it_starts
from logagent.verdict.evidence.stray_questions import PRESTART_BYTES
from logagent.verdict.facts import Facts

if TYPE_CHECKING:
    from logagent.advice.documents import FindingDoc


# Nobody is asked during a start, so a hint must not say how to approve its plan.
_NO_APPROVAL = "prestart takes no approval; logagent cleanup shows a plan that can be approved"


class BudgetSpent(BaseException):
    """The time budget ran out while we were still looking: nothing was done.

    Like KeyboardInterrupt it is not an `Exception`: code that turns every failure of a network client into its own
    error must not swallow it and go on.
    """


@contextmanager
def reading_at_most(seconds: float) -> Iterator[None]:
    """Raise BudgetSpent in the body when `seconds` are over. Only for code that reads: it can strike anywhere.

    Only in the main thread, where Python delivers signals.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        raise BudgetSpent

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True, slots=True)
class Prestart:
    """`plan`: what is done now. The rest is empty unless a file system lacks space for a start: `lacking`, how much, by
    device; `removals`, what may be removed there, in order, of which the plan has as much as should be enough; `gains`,
    what each removal gives back; `marked`, every removal of a marked directory that the guards permit, due or not;
    `beyond`, what would help too, but exceeds the blast radius."""

    plan: Plan
    lacking: Mapping[int, Space] = field(default_factory=dict)
    removals: Sequence[Proposal] = ()
    gains: Mapping[DirKey, Space] = field(default_factory=dict)
    marked: Sequence[Proposal] = ()
    beyond: Sequence[Proposal] = ()


def plan_prestart(session: Session, facts: Facts) -> Prestart:
    """What is due and can be renamed now; on a file system with too little space for a start, what is due is removed
    first."""
    session.ask_leaders, reads_of(session).left = False, PRESTART_BYTES
    planner = session.planner(facts)
    due = planner.due()
    inside = [p for p in due.strays.due if not facts.log_dirs[p.dir.log_dir].quarantine]
    renames = [*due.orphans.due, *(as_mark(p, new_uuid) for p in inside)]
    waiting = [w for w in due.strays.waiting if not facts.log_dirs[w.dir.log_dir].quarantine]
    waiting = [*due.orphans.waiting, *waiting]
    lacking = lacks(session)
    if not lacking:
        return Prestart(_without_approval(session.plan(renames, waiting, facts=facts)))
    whole = planner.due(waits_over=True).marked.due
    removals = [*due.marked.due, *due.strays.due]
    return _making_room(session, facts, removals, whole, renames, [*waiting, *due.marked.waiting], lacking)


def _making_room(
    session: Session,
    facts: Facts,
    due: Sequence[Proposal],
    marked: Sequence[Proposal],
    renames: Sequence[Proposal],
    waiting: Sequence[Waiting],
    lacking: Mapping[int, Space],
) -> Prestart:
    """The guards judge first, so that only what can really be removed counts."""
    due = [p for p in due if p.dir.device in lacking]
    removing = {p.key: p for p in (*marked, *due)}
    whole = session.plan([*removing.values(), *renames], facts=facts)
    limits = session.planner(facts).limits
    passed = {p.key: p for p in whole.actions if p.action is ActionKind.REMOVE}
    renamed = [p for p in whole.actions if p.action is not ActionKind.REMOVE]
    gains = room_given_back(session, facts, [p.dir for p in passed.values()])
    found = to_make_room([p for p in due if p.key in passed], renamed, lacking, gains, facts, limits)
    refused = {p.key for p in due} - {p.key for p in renames}
    refusals = [r for r in whole.refusals if r.key in refused]
    if found.stop is not None:
        fact = f"{found.stop.why.fact}; only what makes room for a start is removed"
        refusals.append(replace(found.stop, why=replace(found.stop.why, fact=fact, hint=_NO_APPROVAL)))
    left_out = {p.key for p in (*renamed, *found.chosen)} - {p.key for p in found.renames}
    proposals = [*found.chosen, *(p for p in renames if p.key not in left_out)]
    plan = session.plan(proposals, waiting, refusals, facts=facts)
    marked_here = [passed[p.key] for p in marked if p.key in passed]
    return Prestart(_without_approval(plan), lacking, found.possible, gains, marked_here, found.beyond)


def _without_approval(plan: Plan) -> Plan:
    stop = plan.needs_approval
    if stop is None:
        return plan
    refusal = replace(stop, why=replace(stop.why, hint=_NO_APPROVAL))
    return replace(plan, needs_approval=refusal, refusals=tuple(refusal if r == stop else r for r in plan.refusals))


def room_for_start(session: Session) -> dict[int, StartRoom]:
    """By device: what is free now, and what a start may need."""
    devices = {path: log_dir.identity.device for path, log_dir in session.log_dirs.by_path.items()}
    return room_to_start(session.dirs, devices, free_room(session))


def lacks(session: Session) -> dict[int, Space]:
    """What each file system that has too little space for a start lacks now."""
    return {device: room.lacks for device, room in room_for_start(session).items() if room.lacks}


def as_mark(removal: Proposal, uuid: Callable[[], str]) -> Proposal:
    """The mark for deletion of a stray that could be removed; approved if the stray was."""
    mark = rename_away(removal.dir, is_stray=False, reason=removal.reason, new_uuid=uuid)
    return replace(
        mark,
        full_topic=removal.full_topic,
        due_at_ms=removal.due_at_ms,
        approved=removal.approved,
        removal_started=removal.removal_started,
        flags=removal.flags,
    )


# xfs frees in the background: how long statvfs may take to show what was removed, in all.
_BACKGROUND_SECONDS = 0.5
_CLOSING_SECONDS = 0.01


def carry_out_prestart(session: Session, found: Prestart, manager: LogManager) -> tuple[Plan, Execution]:
    """Execute the plan. If statvfs shows too little space after its removals, go on with those that are left. Returns
    the plan with everything that was removed, and the outcome. Raises JournalError.

    What is removed in addition adds nothing to the blast radius: it would be renamed otherwise, or it was counted.
    """
    plan, execution, stop = found.plan, Execution(), manager.control.stop
    if plan.needs_approval is not None:
        return plan, execution

    def execute(actions: Iterable[Proposal]) -> tuple[Proposal, ...]:
        part = replace(plan, actions=tuple(actions))
        done = manager.execute(part)
        execution.results.update(done.results)
        execution.refusals.extend(done.refusals)
        return part.actions

    removed: tuple[Proposal, ...] = ()
    chosen = [p for p in plan.actions if p.action is ActionKind.REMOVE]
    lacking, until = found.lacking, session.clock.monotonic() + _BACKGROUND_SECONDS
    while chosen and not stop():
        removed += execute(chosen)
        expected = still_lacking(lacking, chosen, found.gains)
        lacking = lacks(session)
        while _exceeds(lacking, expected) and not stop() and session.clock.monotonic() < until:
            session.clock.sleep(_CLOSING_SECONDS)
            lacking = lacks(session)
        tried = {p.key for p in removed}
        chosen = until_it_starts([p for p in found.removals if p.key not in tried], lacking, found.gains)
    gone = {p.key for p in removed}
    renames = execute(p for p in plan.actions if p.key not in gone)
    return replace(plan, actions=(*removed, *renames)), execution


def _exceeds(lacking: Mapping[int, Space], expected: Mapping[int, Space]) -> bool:
    return any(lack.less(expected.get(device, NOTHING)) for device, lack in lacking.items())


def room_after(rooms: Mapping[int, StartRoom], prestart: Prestart, done: Done) -> dict[int, StartRoom]:
    """`rooms` (by device, as they are now) once the plan is carried out: in a dry run, what it would remove has not
    made room yet."""
    if done.execution is not None:
        return dict(rooms)
    removed = _removed(done)
    return {
        device: replace(room, free=room.free + _given([p for p in removed if p.dir.device == device], prestart.gains))
        for device, room in rooms.items()
    }


def room_notes(rooms: Mapping[int, StartRoom], prestart: Prestart, done: Done) -> list[str]:
    """Of each of `rooms` that is too small for a start: how much it lacks, and what else could go there."""
    gone = {p.key for p in _removed(done)}
    return [note for device, room in rooms.items() if room.lacks for note in _notes(device, room, prestart, gone)]


def settled_by(rooms: Mapping[int, StartRoom], prestart: Prestart, findings: Iterable[FindingDoc]) -> list[FindingDoc]:
    """The fatal ones about too little space where a start has enough once the plan is carried out (`rooms`)."""
    enough = {
        path for device in prestart.lacking if (room := rooms.get(device)) and not room.lacks for path in room.log_dirs
    }
    return [f for f in findings if f["severity"] == "fatal" and f["code"] in SPACE_CODES and f["path"] in enough]


def _notes(device: int, room: StartRoom, prestart: Prestart, gone: set[DirKey]) -> Iterator[str]:
    free, need = room.free, room.need
    has = "has" if len(room.log_dirs) == 1 else "(one file system) have"
    where = ", ".join(room.log_dirs)
    yield (
        f"{where} {has} {free.bytes} bytes and {free.inodes} inodes free; starting may need"
        f" {need.bytes} and {need.inodes} (logagent rescue shows what can be freed)"
    )
    beyond = [p for p in prestart.beyond if p.dir.device == device]
    if beyond:
        what = _count(beyond, "directory that is due exceeds", "directories that are due exceed")
        yield (
            f"{what} the limits of 24 hours (cleanup.max_dirs, cleanup.max_fraction) and would free"
            f" {human_bytes(_given(beyond, prestart.gains).bytes)} in {where} (logagent cleanup shows a plan that can"
            " be approved)"
        )
    counted = gone.union(p.key for p in beyond)
    marked = [p for p in prestart.marked if p.dir.device == device and p.key not in counted]
    if marked:
        # Before it is due, removing it needs an approval, and only `rescue` takes one.
        size = _given(marked, prestart.gains).bytes
        rescue = shlex.join(["logagent", "rescue", *(w for d in room.log_dirs for w in ("--log-dir", d))])
        shown = f"{rescue} --need {size}" if size else rescue  # inodes may be all that it frees
        yield (
            f"{_count(marked, 'directory is', 'directories are')} marked for deletion in {where}: removing that now"
            f" would free {human_bytes(size)} and needs an approval ({shown} shows the plan, {rescue} --execute"
            " --approve PLAN_ID carries it out)"
        )


def _removed(done: Done) -> list[Proposal]:
    """What was removed, or in a dry run would be."""
    removals = [p for p in done.plan.actions if p.action is ActionKind.REMOVE and done.plan.needs_approval is None]
    if done.execution is None:
        return removals
    results = done.execution.results
    return [p for p in removals if action_id(p) in results and results[action_id(p)].outcome is Outcome.DONE]


def _given(removals: Sequence[Proposal], gains: Mapping[DirKey, Space]) -> Space:
    return sum((gains.get(p.key, NOTHING) for p in removals), NOTHING)


def _count(removals: Sequence[Proposal], one: str, many: str) -> str:
    return f"1 {one}" if len(removals) == 1 else f"{len(removals)} {many}"


# How long to wait for another logagent to finish acting: a broker is waiting for us.
EXECUTOR_WAIT_SECONDS = 1.0
MOST_BUDGET_SECONDS = 3600.0
# At most this much of the budget is reserved for ending in an orderly way.
_REPORTING_SECONDS = 0.2


@click.command()
@click.option(
    "--budget",
    default="2s",
    show_default=True,
    metavar="TIME",
    help="Delay the broker's start by at most this long (0ms: do nothing).",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Exit 6, which prevents the start, if the broker would fail to start, or is known to lose a log dir or"
    " records by it.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be renamed.")
@reads_assignments
@common
def prestart(call: Call, budget: str, strict: bool, dry_run: bool) -> None:
    """Set due orphans aside and mark strays past their retention, right before the broker starts.

    It only renames; on a log dir too full for a start it also removes what is due, until there is room.

    A child process does the work; it is abandoned when the budget is spent, whatever it is waiting for.
    """
    try:
        allowed = parse_duration(budget) / 1000
    except ValueError as e:
        raise UsageError(f"--budget: {e}", hint="logagent prestart --budget 2s") from e
    if allowed > MOST_BUDGET_SECONDS:
        raise UsageError(
            f"--budget {budget}: the broker would wait that long; the maximum is an hour",
            hint="logagent prestart --budget 2s",
        )
    started = time.monotonic()
    step = _Step()
    try:
        result = work_in_child(
            lambda: _Run(call, started + _working_seconds(allowed), step, strict=strict).act(dry_run=dry_run), allowed
        )
    except TimeoutError:
        result = _Result(skipped=Reason(f"the budget of {budget} was spent while {step.text()}"), status=call.status)
    call.record_status(result.status)
    fatal = [f for f in result.findings if f["severity"] == "fatal"]
    if strict and any(finding not in result.settled for finding in fatal):
        call.record_status(Exit.CHECK_FATAL)
    # A full disk behind stdout keeps no broker from starting, nor does a reader that has gone let one start.
    with whoever_reads(call.say), _done_said(call, result):
        if result.done is not None and not call.json:
            show_plan(call, result.done)
    _say(call, result, fatal)
    if call.json:
        _dump(call, result, allowed, started)


def _dump(call: Call, result: _Result, allowed: float, started: float) -> None:
    why = result.skipped
    with whoever_reads(call.say), _done_said(call, result):
        dump(
            {
                "schema": "logagent.prestart/1",
                "at": rfc3339(time.time_ns() // 1_000_000),
                "budget_ms": int(allowed * 1000),
                "spent_ms": int((time.monotonic() - started) * 1000),
                "skipped": why.fact if why is not None else None,
                "hint": (why.hint or None) if why is not None else None,
                "plan": result.done.document if result.done is not None else None,
                "findings": result.findings,
                "settled_by_plan": result.settled,
            }
        )


def _done_said(call: Call, result: _Result) -> AbstractContextManager[None]:
    done = result.done
    return nullcontext() if done is None else said_on_stderr(call.say, closing(done.plan, done.document))


def _say(call: Call, result: _Result, fatal: Iterable[FindingDoc]) -> None:
    for note in result.notes:
        call.say(f"prestart: {note}")
    if result.skipped is not None:
        call.tell(result.skipped, "prestart: ")
    for finding in fatal:
        settled = finding in result.settled
        what = "the broker would start only once this plan is carried out" if settled else "fatal for this start"
        call.say(f"{what}: {finding['path']}: {finding['says']} ({finding['hint']})")


def _working_seconds(allowed: float) -> float:
    """The part of the budget for the work itself, so that it usually ends by itself and can report how far it got."""
    return allowed - min(_REPORTING_SECONDS, allowed / 10)


class _Step:
    """What the child is doing, in memory shared with the parent that may have to abandon it."""

    _BYTES = 512

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, self._BYTES)
        self.note("starting")

    def note(self, doing: str) -> None:
        self._shared[:] = doing.encode("utf-8", "replace")[: self._BYTES].ljust(self._BYTES)

    def text(self) -> str:
        return self._shared[:].decode("utf-8", "replace").strip()


@dataclass(slots=True)
class _Result:
    """The result of one prestart. skipped: why it ended early. settled: the fatal findings that a dry run's plan would
    settle."""

    status: Exit
    skipped: Reason | None = None
    done: Done | None = None
    findings: list[FindingDoc] = field(default_factory=list)
    settled: list[FindingDoc] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Run:
    """One prestart, in the child: the parent touches neither disks nor journal nor configuration."""

    def __init__(self, call: Call, deadline: float, step: _Step, *, strict: bool) -> None:
        self.call = call
        self.strict = strict
        self.deadline = deadline
        self.found = _Result(call.status)
        self._step = step

    def _left(self) -> float:
        return self.deadline - time.monotonic()

    def act(self, *, dry_run: bool) -> _Result:
        try:
            self._act(dry_run=dry_run)
        except BudgetSpent:
            self.found.skipped = Reason(f"the budget was spent while {self._step.text()}")
        except LogAgentError as e:
            self.found.skipped = Reason(str(e), e.hint or "")
            # With --strict the status decides whether the broker starts, and nothing fatal is known of it.
            if isinstance(e, UnnamedBroker) and not self.strict:
                self.call.record_status(e.exit_status)
        self.found.status = self.call.status
        return self.found

    def _act(self, *, dry_run: bool) -> None:
        self._step.note("opening the state dir, the journal and the log dirs; nothing was renamed")
        wait = max(0.0, min(EXECUTOR_WAIT_SECONDS, self._left()))
        with session_of(self.call, act=not dry_run, to_plan=True, wait_seconds=wait) as session:
            with reading_at_most(self._left()):
                self._step.note("looking at assignments and log dirs; nothing was renamed")
                # An `--assignments` file that cannot be used is an error here, too (the unit decides whether the broker
                # starts all the same: `ExecStartPre=-`).
                # The disk comes first: what is on it is looked at although nobody answers.
                session.network_seconds = self._left() / 2
                try:
                    read_assignments(session, self.call)
                except LogAgentError as e:
                    if self.call.assignments is not None:
                        self.call.record_status(e.exit_status)
                    raise
                session.take_inventory()
                facts = session.facts()
                session.remember(facts)
                say_where_they_end(session, self.call)
                prestart = plan_prestart(session, facts)
                self._check(session)
            self._step.note("renaming; what was done is in the journal (logagent history)")
            self.found.done = done = carry_out(
                self.call,
                session,
                prestart.plan,
                execute=not dry_run,
                stop=lambda: self._left() <= 0,
                read_facts=lambda dirs: self._facts_in_time(session, dirs, facts),
                act=partial(carry_out_prestart, session, prestart),
            )
            note_health(self.call, facts)
            if done.execution is not None and any(p.action is ActionKind.REMOVE for p in done.plan.actions):
                self._check_space_again(session)
            rooms = room_after(room_for_start(session), prestart, done)
            self.found.notes += room_notes(rooms, prestart, done)
            if dry_run:
                self.found.settled = settled_by(rooms, prestart, self.found.findings)
            if not dry_run:
                self._carry_out_requests(session, done.plan.actions)
        set_status(self.call, done.plan, done.execution)

    def _check_space_again(self, session: Session) -> None:
        """What was removed made room: the findings about space are those after it."""
        from logagent.advice.check.run_check import check_space, finding_row

        before = [f for f in self.found.findings if f["code"] in SPACE_CODES]
        try:
            with reading_at_most(max(0.1, self._left())):
                paths = dict.fromkeys(f["path"] for f in before)
                now = [f for path in paths for f in check_space(session, path, max(0.1, self._left()))]
        except (BudgetSpent, LogAgentError):
            return
        others = [f for f in self.found.findings if f["code"] not in SPACE_CODES]
        self.found.findings = [*others, *(row for row in map(finding_row, now) if row not in others)]

    def _carry_out_requests(self, session: Session, renamed: Collection[Proposal]) -> None:
        """Quarantine what requests of the fleet ask for, if the store can be read in half of the remaining time; else
        that waits for the next start."""
        from logagent.deletion.agent.node_requests import bounded, requests_of

        settings = self.call.settings()
        if not settings.orders.accept or self._left() <= 0:
            return
        self._step.note("reading the fleet's requests; the renames of this host's own plan are done")
        node_requests = requests_of(settings, self.call.state_dir, session.clock, session, self.call.host)
        if node_requests is None:
            return
        if bounded(node_requests.read_before_start, self._left() / 2) is None:
            self.found.notes.append("the store was not read in time; no request of the fleet was carried out")
            return
        with reading_at_most(self._left()):
            facts = session.facts()
        self._step.note("renaming by requests; what was done is in the journal (logagent history)")
        touched = {p.dir.inode for p in renamed}
        for run in node_requests.carry_out(
            session, facts, lambda: self._left() <= 0, touched=touched, in_prestart=True
        ):
            done = run.execution.results.values() if run.execution is not None else ()
            count = sum(r.outcome is Outcome.DONE for r in done)
            if count:
                self.found.notes.append(f"{counted(count, 'directory')} quarantined for request {run.number}")

    def _facts_in_time(self, session: Session, dirs: Sequence[PartitionDir], last: Facts) -> Facts:
        """Gathering facts again before acting counts against the budget too. If it takes too long its result is not
        used: the budget is spent, and `stop` says so."""
        try:
            with reading_at_most(self._left()):
                return session.again(dirs)
        except BudgetSpent:
            return last

    def _check(self, session: Session) -> None:
        from logagent.advice.check.run_check import finding_row, run_check

        report = run_check(session, timeout=max(0.1, self._left()), deep=False, about_to_start=True)
        self.found.findings = [finding_row(f) for f in report.findings]
