"""What a request comes to, in one word and a reason, and who carries it out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from logagent.base.times import instant
from logagent.deletion.controller.sightings import Runner, Sightings
from logagent.deletion.controller.topic_deletion_manager import TopicProgress
from logagent.deletion.store.requests import Filed, Request

State = Literal["open", "deleting", "on-hold", "done", "disabled", "refused", "cancelled", "dropped", "expired"]
RUNNER_LASTS = timedelta(minutes=2)
FAILED = frozenset({"disabled", "refused", "dropped"})
"""States with which a command ends as failed."""


@dataclass(frozen=True, slots=True)
class RequestState:
    """`next`: what has to be done, and by whom; empty once it is over."""

    state: State
    why: str = ""
    next: str = ""
    carried_out_by: str = ""

    @property
    def is_over(self) -> bool:
        return self.state not in ("open", "deleting", "on-hold")


def is_running(runner: Runner, now: datetime) -> bool:
    return now - RUNNER_LASTS <= runner.at <= now + RUNNER_LASTS


def request_state(filed: Filed, progress: Sequence[TopicProgress], seen: Sightings) -> RequestState:
    """The state of one request, from what one look has seen."""
    decision, outcome = filed.decision, filed.outcome
    if decision is not None and decision.decision != "delete":
        return RequestState(decision.decision, decision.why)
    if outcome is not None:
        failed = [t for t in outcome.topics if t.result != "deleted"]
        if failed:
            state: State = "disabled" if any(t.result == "disabled" for t in failed) else "refused"
            return RequestState(state, failed[0].why)
        refused = [d for d in outcome.directories if d.result == "refused"]
        return RequestState("refused", refused[0].why) if refused else RequestState("done")
    if filed.hold is not None:
        cancel = f"see who wrote it; `logagent topics cancel {filed.request_id}` ends the request"
        return RequestState("on-hold", f"nobody acts on it: {filed.hold}", cancel)
    if filed.request is None:
        return RequestState("on-hold", "the request itself is missing", "nobody acts on it")
    request = filed.request
    if request.kind == "directories":
        return _directories(filed.request_id, request, progress, seen)
    runners = [r for r in seen.runners if is_running(r, seen.at)]
    why = next((r.waits[filed.request_id] for r in runners if filed.request_id in r.waits), "")
    who = ", ".join(sorted({f"{r.by} on {r.host}" for r in runners}))
    nobody = "" if who else "nobody is carrying this out: run `logagent topics run`"
    if decision is None:
        if seen.at >= request.ends_at:
            return RequestState("expired", f"nobody has decided it by {instant(request.ends_at)}")
        if filed.request_id in {number for r in runners for number in r.waits}:
            return RequestState("open", why, "", who)
        if not filed.is_left(seen.at):
            words = f"the command that asked may still decide it, within a minute after {request.at}"
            return RequestState("open", words, f"`logagent topics cancel {filed.request_id}` stops it")
        return RequestState("open", "not decided: no topic is deleted, and nobody may decide it any more",
                            f"ask again; `logagent topics cancel {filed.request_id}` closes it")  # fmt: skip
    if progress and all(topic.complete for topic in progress):
        return RequestState("done")
    return RequestState("deleting", why, nobody, who)


def _directories(number: str, request: Request, progress: Sequence[TopicProgress], seen: Sightings) -> RequestState:
    """A request for directories: agents carry it out by themselves, until it is over."""
    if all(topic.complete for topic in progress):
        return RequestState("done")
    if seen.at >= request.ends_at:
        return RequestState("expired", f"not everything was done by {instant(request.ends_at)}")
    took = sorted(w.seen.node_id for w in seen.agents.values() if number in w.seen.open)
    who = f"the agents of node {', '.join(map(str, took[:10]))}{', …' if len(took) > 10 else ''}" if took else ""
    nobody = "" if who else "no agent has taken it yet: see that orders.accept = true and orders.keys are set there"
    return RequestState("open", "", nobody, who)
