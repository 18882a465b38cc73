"""Carries out orders on one session: looks for `stop`, renames or removes for `delete`, and reports each result.

Every action goes through the plan's guards like any other. An order only replaces the wait for sightings and ages and,
if it carries an approval, the host's blast radius and a stray's retention; it proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from logagent.agent.orders.lookup import LIVE, Lookup
from logagent.agent.orders.results import IDENTITY, RETENTION, key_of, refused, result_of
from logagent.agent.planning.plan_prestart import as_mark
from logagent.agent.session.clock_watch import clocks_now
from logagent.agent.session.dir_history import actor_of
from logagent.agent.session.session import Session, new_uuid
from logagent.model.facts import Facts
from logagent.model.naming.dir_names import why_spared
from logagent.model.planning.due import stray_due_ms
from logagent.model.planning.plan import Execution, Flags, GuardName, Plan, Proposal, Refusal, action_id
from logagent.model.planning.proposals import rename_away
from logagent.model.planning.queue import Mark, full_topic, marked_at_ms
from logagent.model.records import ActionKind, DirKey, Kind, Outcome, PartitionDir
from logagent.model.times import rfc3339
from logagent.store.deletion import Identity, Order, OrderedPartition, Result, ResultName

NEXT_STOP = "waiting for the broker's next stop"


@dataclass(slots=True)
class OrderExecution:
    """One order on one session. `renames_only`: for `prestart`, which removes nothing."""

    session: Session
    facts: Facts
    order: Order
    stop: Callable[[], bool]
    renames_only: bool = False
    execution: Execution | None = None
    plan: Plan | None = None
    lookup: Lookup = field(init=False)
    _found: dict[int, PartitionDir] = field(default_factory=dict)
    _marks: Mapping[DirKey, Mark] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lookup = Lookup(self.session, self.facts)

    def answer_stop(self) -> list[Result]:
        """What this host has of each ordered partition."""
        return self.lookup.answer_stop(self.order)

    def delete(self, done: Mapping[str, Result]) -> list[Result]:
        """Set aside (or, if so ordered, mark or remove) what the order names, under every guard.

        `done`: the results of earlier runs of this same order, by `key_of`.
        """
        self._marks = self.session.marks()
        results: dict[int, Result] = {}
        for i, p in enumerate(self.order.partitions):
            before = done.get(key_of(p))
            if before is not None:
                results[i] = before
                continue
            verdict = self._match(p)
            if isinstance(verdict, Result):
                results[i] = verdict
            else:
                self._found[i] = verdict
        self._check_identities(results)
        proposals: dict[int, Proposal] = {}
        for i, d in self._found.items():
            proposed = results.get(i) or self._propose(self.order.partitions[i], d)
            if isinstance(proposed, Result):
                results[i] = proposed
            else:
                proposals[i] = proposed
        self._act(proposals, results)
        return [results[i] for i in sorted(results)]

    def _match(self, p: OrderedPartition) -> PartitionDir | Result:
        """The directory that `p` names, or the result that says why there is none."""
        if p.directory is None:
            return refused(p, IDENTITY, "the order does not say which directory")
        d = self.lookup.named(p.directory.log_dir, p.directory.name)
        if d is not None:
            if (d.topic_id, d.partition) != (p.topic_id, p.partition):
                fact = f"it is {d.topic_id}-{d.partition}, the order says {p.topic_id}-{p.partition}"
                return refused(p, IDENTITY, fact)
            if d not in self.lookup.sought(p):  # the order repeats an answer, which nobody signed
                return refused(p, IDENTITY, f"the request is not about {d.log_dir}/{d.name}")
            return self.lookup.restored(self.order, p, d) or d
        elsewhere = self.lookup.sought(p)
        if elsewhere:
            fact = f"it is {elsewhere[0].log_dir}/{elsewhere[0].name} now"
            return refused(p, IDENTITY, fact)
        return self._set_aside_before(p) or self.lookup.not_there(p)

    def _set_aside_before(self, p: OrderedPartition) -> Result | None:
        """`renamed` where an order has set this very directory aside already: its agent was killed before it had
        remembered the answer. It would be called absent, and what came of it would not be known."""
        assert p.directory is not None
        boot_id = clocks_now(self.session.clock).boot_id
        for d in self.lookup.of(p.topic_id, p.partition):
            mark = self._marks.get(d.key)
            if mark is None or not mark.ordered:
                continue
            log_dir, name = mark.original_dir or d.log_dir, mark.old_name or d.name
            was = replace(p.directory, log_dir=log_dir, name=name, inode=d.inode, device=d.device, boot_id=boot_id)
            if p.directory.difference(was) is None:
                return result_of(p, "renamed", directory=p.directory, new_name=d.name)
        return None

    def _check_identities(self, results: dict[int, Result]) -> None:
        now = self.lookup.identities(self._found.values())
        for i, d in self._found.items():
            p, identity = self.order.partitions[i], now.get(d.key)
            assert p.directory is not None
            if not isinstance(identity, Identity):
                results[i] = result_of(p, "offline", fact=str(identity or f"{d.log_dir} is offline"))
                continue
            difference = p.directory.difference(identity)
            if difference is not None:
                results[i] = refused(p, IDENTITY, difference)

    def _propose(self, p: OrderedPartition, d: PartitionDir) -> Proposal | Result:
        approved = p.approved_plan is not None
        if d.kind is Kind.STRAY:
            mark = self._marks.get(d.key)
            set_aside_ms = marked_at_ms(d, mark, self.session.clock_watch.corrected)
            due = stray_due_ms(set_aside_ms, self.session.settings.cleanup.stray_retention)
            if due > self.facts.now_ms and not approved:
                hint = "only an approved plan (--approve) takes a stray before its retention is over"
                fact = f"kept until {rfc3339(due)} (cleanup.stray_retention)"
                return result_of(p, "waiting", directory=p.directory, guard=RETENTION, fact=fact, hint=hint)
            removal = Proposal(
                ActionKind.REMOVE,
                d,
                "ordered",
                full_topic=full_topic(d, mark),
                due_at_ms=due,
                approved=approved,
                flags=_flags(p),
            )
            return as_mark(removal, new_uuid) if self.renames_only else removal
        proposal = rename_away(
            d,
            is_stray=not p.no_retention,
            reason="ordered",
            new_uuid=new_uuid,
            quarantine_dir=self.facts.quarantine_dirs.get(d.log_dir),
        )
        return replace(proposal, approved=approved, flags=_flags(p))

    def _act(self, proposals: Mapping[int, Proposal], results: dict[int, Result]) -> None:
        if not proposals:
            return
        doubt = self.session.clock_watch.doubt()
        if doubt is not None:
            results.update({i: self._said(i, "waiting", fact=doubt.why) for i in proposals})
            return
        plan = self.plan = self.session.plan(list(proposals.values()), facts=self.facts)
        stopped = plan.needs_approval or self._leaves_nothing(plan)
        if stopped is not None:
            for i, p in proposals.items():
                results[i] = self._refused(i, _refusal_of(p, plan.refusals) or stopped)
            return
        manager = self.session.log_manager(stop=self.stop)
        manager.actor = actor_of(self.order.order_id)
        execution = self.execution = manager.execute(plan)
        for i, p in proposals.items():
            refusal = _refusal_of(p, [*plan.refusals, *execution.refusals])
            outcome = execution.results.get(action_id(p))
            if outcome is not None and outcome.outcome is Outcome.DONE:
                name: ResultName = "removed" if p.action is ActionKind.REMOVE else "renamed"
                results[i] = self._said(i, name, new_name=p.new_name)
            elif refusal is not None:
                results[i] = self._refused(i, refusal)
            elif outcome is not None and outcome.outcome is Outcome.FAILED:
                results[i] = self._said(i, "failed", fact=outcome.error)
            else:
                fact = outcome.error if outcome is not None else None
                results[i] = self._said(i, "waiting", fact=fact or "it was not reached")

    def _leaves_nothing(self, plan: Plan) -> Refusal | None:
        """No order, however approved, takes the last assigned directory of a host (or acts if none is known)."""
        taken = {p.dir.key for p in plan.actions if p.dir.kind in LIVE}
        if not taken or any(key not in taken for key in self.facts.assigned_dirs):
            return None
        fact = "it would leave this host without any assigned partition dir"
        return Refusal("", "", "blast-radius", fact, "delete these on the host: logagent cleanup --execute --approve")

    def _refused(self, i: int, refusal: Refusal) -> Result:
        if refusal.guard == "window":
            return self._said(i, "waiting", fact=f"{NEXT_STOP}: {refusal.fact}", hint=refusal.hint)
        name: ResultName = "offline" if refusal.guard == "online" else "refused"
        return self._said(i, name, guard=refusal.guard, fact=refusal.fact, hint=refusal.hint)

    def _said(self, i: int, result: ResultName, *, guard: GuardName | None = None, **more: str | None) -> Result:
        p = self.order.partitions[i]
        return result_of(p, result, directory=p.directory, guard=guard, **more)


def _flags(p: OrderedPartition) -> Flags:
    """The fleet takes a request for such a topic only with `--include-internal`. An order that names another topic than
    the directory's has no such word for it."""
    return Flags(include_internal=why_spared(p.topic, include_internal=False) is not None)


def _refusal_of(p: Proposal, refusals: Iterable[Refusal]) -> Refusal | None:
    return next((r for r in refusals if r.key == p.dir.key), None)
