"""When the bytes of a directory can be freed, and what prevents it until then, derived from a plan.

Published with each snapshot, so that the fleet's page shows what the hosts themselves would do. The host decides again
when somebody acts on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from logagent.model.facts import StrayRuling
from logagent.model.planning.plan import Plan, PlanGuard, Refusal
from logagent.model.records import ActionKind, DirKey
from logagent.model.times import LAST_MS

Window = Literal["now", "restart", "approval", "later"]
_OPENS: dict[PlanGuard, Window] = {
    "window": "restart",
    "in-use": "restart",
    "policy": "approval",
    "assigned": "approval",
    "blast-radius": "approval",
}
"""What lifts a guard's refusal: the broker's next restart, or a person's approval. The other guards refuse until
something is fixed."""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """`window`: when the next step (set aside, mark, remove) is possible: `now`, at the broker's next `restart`, with a
    person's `approval`, `later` (at `due_at_ms`); None if something has to be fixed first. `obstacle`: the guard or
    rule that prevents it, if any. `covered`: `StrayRuling.covered`."""

    window: Window | None
    due_at_ms: int | None = None
    obstacle: str | None = None
    covered: Literal["yes", "no", "unknown"] | None = None

    def row(self) -> dict[str, object]:
        """In the form of `logagent.snapshot/2`."""
        due = None if self.due_at_ms is None else min(self.due_at_ms, LAST_MS)  # any delay can be configured
        return {"window": self.window, "due_at": due, "covered": self.covered, "obstacle": self.obstacle}


def reclaims(plan: Plan) -> dict[DirKey, Reclaim]:
    """By (log dir, name), for every directory that `plan` names."""
    found: dict[DirKey, Reclaim] = {}
    for w in plan.waiting:
        if w.until_ms is not None:
            window: Window | None = "later"
        else:
            # An orphan that is old enough waits only for the broker to stop.
            window = "restart" if w.action is ActionKind.QUARANTINE else None
        found[w.key] = Reclaim(window, w.until_ms, w.reason)
    for refusal in plan.refusals:
        if refusal.name:
            key = refusal.key
            found[key] = _refused(refusal, plan.strays.get(key))
    for p in plan.actions:
        key = p.dir.key
        ruling = plan.strays.get(key)
        covered = ruling.covered if ruling is not None else None
        if plan.needs_approval is not None and not p.approved:
            found[key] = Reclaim("approval", p.due_at_ms, plan.needs_approval.guard, covered)
        else:
            found[key] = Reclaim("now", p.due_at_ms, None, covered)
    return found


def _refused(refusal: Refusal, ruling: StrayRuling | None) -> Reclaim:
    return Reclaim(_OPENS.get(refusal.guard), None, refusal.guard, ruling.covered if ruling is not None else None)
