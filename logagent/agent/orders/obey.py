"""Obeys orders on one session: looks for `stop`, renames or removes for `delete`, and says what came of each.

Everything goes through the plan's guards as any other action does. What an order replaces is the wait for sightings
and ages, and, where it carries an approval, the host's blast radius; it proves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from logagent.agent.session.clock_watch import clocks_now
from logagent.agent.session.session import Session, new_uuid
from logagent.broker.files.log_look import look_at_log
from logagent.errors import LogAgentError
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.model.facts import Facts
from logagent.model.naming.names import classify
from logagent.model.planning.plan import Execution, Plan, Proposal, Refusal, action_id
from logagent.model.planning.proposals import rename_away
from logagent.model.planning.queue import full_topic
from logagent.model.records import ActionKind, Kind, Outcome, PartitionDir
from logagent.model.times import rfc3339
from logagent.store.deletion import Identity, Order, OrderedPartition, Result, ResultName
from logagent.store.orders import moment

IDENTITY, RESTORED = "identity", "restored"
NEXT_STOP = "waits for the broker's next stop"
_LIVE = (Kind.CURRENT, Kind.FUTURE)


@dataclass(slots=True)
class Obedience:
    """One order on one session. `renames_only`: `prestart`, which removes nothing."""

    session: Session
    facts: Facts
    order: Order
    stop: Callable[[], bool]
    renames_only: bool = False
    execution: Execution | None = None
    plan: Plan | None = None
    _found: dict[int, PartitionDir] = field(default_factory=dict)

    def answer_stop(self) -> list[Result]:
        """What this host has of each ordered partition, with the identity of each directory."""
        found = {i: self._sought(p) for i, p in enumerate(self.order.partitions)}
        identities = self.identities([d for dirs in found.values() for d in dirs])
        results: list[Result] = []
        for i, p in enumerate(self.order.partitions):
            if not found[i]:
                results.append(self._not_there(p))
            for d in found[i]:
                results.append(self._seen(p, d, identities.get((d.log_dir, d.name))))
        return results

    def _sought(self, p: OrderedPartition) -> list[PartitionDir]:
        """The directories that the order is about. Of a whole topic: what is current or future of its id (what is set
        aside or marked is on its way). Of a report's row: that directory, or what a broker's start made of it."""
        mine = [d for d in self.session.dirs if d.partition == p.partition and d.topic_id == p.topic_id]
        nameless = [d for d in self.session.dirs if _is_nameless(d, p)]
        if p.asked_name is None:
            return [d for d in mine if d.kind in _LIVE] + nameless
        here = [d for d in mine if d.log_dir == p.asked_log_dir]
        kind = classify(p.asked_name).kind
        named = [d for d in here if d.name == p.asked_name]
        return named or [d for d in here if d.kind is kind and kind in _LIVE]

    def _seen(self, p: OrderedPartition, d: PartitionDir, identity: Identity | LogAgentError | None) -> Result:
        if d.topic_id is None:
            return _result(p, "refused", guard=IDENTITY, fact=f"{d.log_dir}/{d.name} has no topic id to be told by",
                           hint="look at it by hand; logagent deletes by topic id only")  # fmt: skip
        restored = self._restored(p, d)
        if restored is not None:
            return restored
        if not isinstance(identity, Identity):
            return _result(p, "offline", fact=str(identity or f"{d.log_dir} cannot be read"))
        return _result(p, "waiting", directory=identity)

    def _not_there(self, p: OrderedPartition) -> Result:
        """Absent, if everything that could hold it was looked at."""
        hidden = self.facts.not_seen()
        if hidden is not None:
            return _result(p, "offline", fact=f"log dir {hidden[0]} {hidden[1]}")
        if not self.session.whole or self.facts.left_out:
            return _result(p, "offline", fact="not every log dir was looked at")
        missing = self._registered() - {f.directory_id for f in self.facts.log_dirs.values()}
        if missing:
            return _result(p, "offline", fact=f"no log dir here is {sorted(missing)[0]}, which the cluster knows of")
        return _result(p, "absent")

    def _registered(self) -> set[str]:
        """The directory ids that the cluster has registered for this node."""
        image, node_id = self.session.assignments.first, self.session.log_dirs.cluster.node_id
        if image is None or node_id is None or node_id not in image.brokers:
            return set()
        return set(image.brokers[node_id].directory_ids)

    def _restored(self, p: OrderedPartition, d: PartitionDir) -> Result | None:
        """A restore on the host voids every order for that directory."""
        entry = self.session.journal.renames().get((d.log_dir, d.name))
        if entry is None or entry.intent.action is not ActionKind.RESTORE or entry.intent.identity.inode != d.inode:
            return None
        if p.requested_at is not None and entry.at_ms < moment(p.requested_at).timestamp() * 1000:
            return None  # it was asked for after the restore
        hint = "cancel the request; ask for it anew if it is to go after all"
        return _result(p, "refused", guard=RESTORED, fact=f"restored at {rfc3339(entry.at_ms)}", hint=hint)

    def identities(self, dirs: Iterable[PartitionDir]) -> dict[tuple[str, str], Identity | LogAgentError]:
        """What tells each directory from another one, with its log's end as far as it can be told."""
        by_log_dir: dict[str, list[PartitionDir]] = {}
        for d in dirs:
            by_log_dir.setdefault(d.log_dir, []).append(d)
        opened = self.session.log_dirs.online()
        jobs = {path: partial(_ends, opened[path], there) for path, there in by_log_dir.items() if path in opened}
        found: dict[tuple[str, str], Identity | LogAgentError] = {}
        boot = clocks_now(self.session.clock).boot_id
        for path, ends in self.session.calls.looks(jobs).items():
            where = self.facts.log_dirs.get(path)
            for d in by_log_dir[path]:
                if isinstance(ends, LogAgentError):
                    found[path, d.name] = ends
                    continue
                found[path, d.name] = Identity(
                    path, d.name, d.inode, d.device, where.directory_id if where is not None else None, boot, d.bytes,
                    ends.get(d.name),
                )  # fmt: skip
        return found

    def delete(self, done: Mapping[str, Result]) -> list[Result]:
        """Set aside (or, where that was asked for, mark or remove) what the order names, under every guard.

        `done`: results of an earlier time that this very order was obeyed, by `key_of`.
        """
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
        proposals = {i: self._propose(self.order.partitions[i], d) for i, d in self._found.items() if i not in results}
        self._act(proposals, results)
        return [results[i] for i in sorted(results)]

    def _match(self, p: OrderedPartition) -> PartitionDir | Result:
        """The directory that `p` names, or what is wrong with it."""
        if p.directory is None:
            return _result(p, "refused", guard=IDENTITY, fact="the order does not say which directory it means")
        for d in self.session.dirs:
            if (d.log_dir, d.name) == (p.directory.log_dir, p.directory.name):
                if (d.topic_id, d.partition) != (p.topic_id, p.partition):
                    fact = f"it is {d.topic_id}-{d.partition}, the order says {p.topic_id}-{p.partition}"
                    return _result(p, "refused", guard=IDENTITY, fact=fact)
                return self._restored(p, d) or d
        elsewhere = self._sought(p)
        if elsewhere:
            fact = f"it is {elsewhere[0].log_dir}/{elsewhere[0].name} now"
            return _result(p, "refused", guard=IDENTITY, fact=fact)
        return self._not_there(p)

    def _check_identities(self, results: dict[int, Result]) -> None:
        now = self.identities(self._found.values())
        for i, d in self._found.items():
            p, identity = self.order.partitions[i], now.get((d.log_dir, d.name))
            assert p.directory is not None
            if not isinstance(identity, Identity):
                results[i] = _result(p, "offline", fact=str(identity or f"{d.log_dir} is offline"))
                continue
            difference = p.directory.difference(identity)
            if difference is not None:
                results[i] = _result(p, "refused", guard=IDENTITY, fact=difference)

    def _propose(self, p: OrderedPartition, d: PartitionDir) -> Proposal:
        approved = p.approved_plan is not None
        if d.kind is Kind.STRAY and not self.renames_only:
            mark = self.session.marks().get((d.log_dir, d.name))
            return Proposal(ActionKind.REMOVE, d, "ordered", full_topic=full_topic(d, mark), approved=approved)
        proposal = rename_away(
            d,
            is_stray=d.kind is not Kind.STRAY and not p.no_retention,
            reason="ordered",
            new_uuid=new_uuid,
            quarantine_dir=self.facts.quarantine_dirs.get(d.log_dir),
        )
        return replace(proposal, approved=approved)

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
        manager.actor = f"order {self.order.order_id}"
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
                results[i] = self._said(i, "waiting", fact=fact or "its turn did not come")

    def _leaves_nothing(self, plan: Plan) -> Refusal | None:
        """No order, however approved, takes the last assigned directory of a host (or acts where none is known)."""
        taken = {(p.dir.log_dir, p.dir.name) for p in plan.actions if p.dir.kind in _LIVE}
        if not taken or any(key not in taken for key in self.facts.assigned_dirs):
            return None
        fact = "it would leave this host without a single assigned partition dir"
        return Refusal("", "", "blast-radius", fact, "delete these on the host: logagent cleanup --execute --approve")

    def _refused(self, i: int, refusal: Refusal) -> Result:
        if refusal.guard == "window":
            return self._said(i, "waiting", fact=f"{NEXT_STOP}: {refusal.fact}", hint=refusal.hint)
        name: ResultName = "offline" if refusal.guard == "online" else "refused"
        return self._said(i, name, guard=refusal.guard, fact=refusal.fact, hint=refusal.hint)

    def _said(self, i: int, result: ResultName, **more: str | None) -> Result:
        p = self.order.partitions[i]
        return _result(p, result, directory=p.directory, **more)


def key_of(p: OrderedPartition) -> str:
    """Tells the partitions of an order apart."""
    where = f"{p.directory.log_dir}/{p.directory.name}" if p.directory is not None else ""
    return f"{p.request_id} {p.topic_id} {p.partition} {p.asked_log_dir or ''}/{p.asked_name or ''} {where}"


def refuse_all(order: Order, why: str) -> list[Result]:
    """The answer to an order that is refused as a whole."""
    return [_result(p, "refused", guard="order", fact=why) for p in order.partitions]


def _ends(log_dir: OpenLogDir, dirs: Sequence[PartitionDir]) -> dict[str, int | None]:
    ends: dict[str, int | None] = {}
    for d in dirs:
        with log_dir.acting("reading", d.name):
            fd = log_dir.open_child(d.name, d.identity)
            try:
                ends[d.name] = look_at_log(fd).log_end
            finally:
                os.close(fd)
    return ends


def _is_nameless(d: PartitionDir, p: OrderedPartition) -> bool:
    return d.kind in _LIVE and d.topic_id is None and (d.topic, d.partition) == (p.topic, p.partition)


def _refusal_of(p: Proposal, refusals: Iterable[Refusal]) -> Refusal | None:
    return next((r for r in refusals if (r.log_dir, r.name) == (p.dir.log_dir, p.dir.name)), None)


def _result(p: OrderedPartition, result: ResultName, *, directory: Identity | None = None,
            guard: str | None = None, fact: str | None = None, hint: str | None = None,
            new_name: str | None = None) -> Result:  # fmt: skip
    return Result(
        p.request_id, p.topic_id, p.partition, result, guard, fact, hint, p.asked_log_dir, p.asked_name, directory,
        new_name,
    )  # fmt: skip
