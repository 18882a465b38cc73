"""Turns the results of cycles and rounds into log lines: what was done, and what has changed since the last time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from logagent.base.records import Health, Outcome
from logagent.cleanup.plan.plan import Execution, Plan, Proposal, Refusal, action_id
from logagent.service.events import Events, Level
from logagent.service.summary import CycleSummary, HealthSummary, PublishSummary
from logagent.verdict.clock_doubt import TRUST_CLOCK

# More lines of one kind than this in one cycle are counted, not printed: a log is not an inventory.
MOST_LINES = 50
_Key = tuple[str, str, str]
# Directories remembered one by one to report new ones; 100,000 of them would cost too much.
MOST_APART = 20_000
_DIGITS = re.compile(r"\d+")
_LEVELS: dict[Outcome, Level] = {Outcome.FAILED: "warning"}
_HEALTH_LEVELS: dict[Health, Level] = {Health.OFFLINE: "error", Health.FULL: "warning", Health.READ_ONLY: "warning"}


def _shape(text: str | None) -> str | None:
    """`text` without its numbers: a different age or process id does not make it a new message."""
    return None if text is None else _DIGITS.sub("#", text)


class LogLines:
    """Thread-safe, like `Events`; one per daemon."""

    def __init__(self, events: Events) -> None:
        self.events = events

    # Plans

    def planned(self, job: str, plan: Plan, enforced: bool) -> None:
        """Log what would be done (report mode), what needs approval, and what is refused: each once, until it
        changes."""
        whole = job == "cleanup"
        if not enforced:
            self._would(plan, whole)
        self._refused(plan.refusals, plan, whole)
        if whole and self.events.changed("approval", plan.plan_id if plan.needs_approval is not None else None):
            stop = plan.needs_approval
            if stop is not None:
                hint = f"logagent cleanup --execute --approve {plan.plan_id}"
                self.events.say(
                    "needs-approval", "warning", plan=plan.plan_id, dirs=len(plan.actions), fact=stop.fact, hint=hint
                )

    def _would(self, plan: Plan, whole: bool) -> None:
        by_key = {("would", p.dir.log_dir, p.dir.name): p.action for p in plan.actions}
        news = self._news("would", by_key, whole)
        new = [p for k, p in zip(by_key, plan.actions, strict=True) if k in news]
        for p in new[:MOST_LINES]:
            self.events.say("would-act", **_about(p, plan.plan_id))
        if len(new) > MOST_LINES:
            self.events.say("would-act-more", plan=plan.plan_id, dirs=len(new) - MOST_LINES)

    def _refused(self, refusals: Sequence[Refusal], plan: Plan, whole: bool) -> None:
        single = [r for r in refusals if r.name]
        by_key = {("refused", r.log_dir, r.name): r.guard for r in single}
        news = self._news("refused", by_key, whole)
        new = [r for r in single if ("refused", r.log_dir, r.name) in news]
        for r in new[:MOST_LINES]:
            self.events.say(
                "refused",
                plan=plan.plan_id,
                log_dir=r.log_dir,
                name=r.name,
                guard=r.guard,
                fact=r.fact,
                hint=r.hint,
            )
        for guard, count in Counter(r.guard for r in new[MOST_LINES:]).items():
            self.events.say("refused-more", plan=plan.plan_id, guard=guard, dirs=count)

    def _news(self, family: str, by_key: Mapping[_Key, str], whole: bool) -> AbstractSet[_Key]:
        """Which of these to log. More than `MOST_APART` are remembered as one, and logged again when any differs."""
        together = (family,)
        if whole:
            self.events.forget_all_but(family, [*by_key, together] if len(by_key) <= MOST_APART else [together])
        if len(by_key) <= MOST_APART:
            return {key for key, value in by_key.items() if self.events.changed(key, value)}
        return by_key.keys() if self.events.changed(together, sum(map(hash, by_key.items()))) else frozenset()

    def executed(self, plan: Plan, execution: Execution) -> None:
        """Log every action that was started, with its outcome. An action stopped by a guard is logged as a refusal."""
        self._refused(execution.refusals, plan, whole=False)
        lines = 0
        rest: Counter[tuple[str, str]] = Counter()
        for p in plan.actions:
            result = execution.results.get(action_id(p))
            if result is None or result.outcome is Outcome.SKIPPED:
                continue
            lines += 1
            if lines > MOST_LINES and result.outcome is Outcome.DONE:
                rest[p.action.value, result.outcome.value] += 1
                continue
            level = _LEVELS.get(result.outcome, "info")
            about = _about(p, plan.plan_id)
            self.events.say("action", level, **about, outcome=result.outcome.value, error=result.error)
        for (action, outcome), count in rest.items():
            self.events.say("actions-more", plan=plan.plan_id, action=action, outcome=outcome, dirs=count)

    # Summaries

    def cycle(self, s: CycleSummary) -> None:
        if s.error is not None:
            busy = s.error_slug == "busy"
            if self.events.changed("cycle-error", (s.error_slug, _shape(s.error))):
                self.events.say("cycle-deferred" if busy else "cycle-failed", "info" if busy else "error",
                                 job=s.job, slug=s.error_slug, error=s.error)  # fmt: skip
            return
        if self.events.changed("cycle-error", None):
            self.events.say("cycle-recovered", job=s.job)
        if s.job == "cleanup":
            self._assignments(s)
            if self.events.changed("clock", _shape(s.clock_doubt)):
                if s.clock_doubt is not None:
                    self.events.say("clock-doubted", "warning", reason=s.clock_doubt, hint=TRUST_CLOCK)
                else:
                    self.events.say("clock-trusted")
        figures = (s.mode, s.planned, tuple(sorted(s.refusals.items())), s.waiting, s.needs_approval)
        if (self.events.changed(("cycle", s.job), figures) and (s.job == "cleanup" or s.planned)) or s.results:
            self.events.say(
                "cycle",
                job=s.job,
                mode=s.mode,
                plan=s.plan_id,
                planned=s.planned,
                refused=sum(s.refusals.values()),
                waiting=s.waiting,
                **dict(sorted(_by_outcome(s).items())),
                freed_bytes=s.freed_bytes,
                seconds=s.seconds,
            )

    def _assignments(self, s: CycleSummary) -> None:
        a = s.assignments
        if self.events.changed("assignments", (a.source, a.usable, _shape(a.problem))):
            level: Level = "info" if a.usable else "warning"
            self.events.say("assignments", level, source=a.source or "none", usable=a.usable, problem=a.problem)
        if self.events.changed("metadata-log", _shape(a.log_doubt.says if a.log_doubt is not None else None)):
            if (doubt := a.log_doubt) is not None:
                self.events.say("metadata-log", "warning", proves=doubt.proves, reason=doubt.says, hint=doubt.hint)
            else:
                self.events.say("metadata-log", "info", proves="all")

    def health(self, s: HealthSummary) -> None:
        """Log changes of a log dir's state, and (once) what a probe cannot do there."""
        for d in s.log_dirs:
            if self.events.changed(("health", d.path), (d.health, d.reason if d.health is Health.OFFLINE else None)):
                level = _HEALTH_LEVELS.get(d.health, "info")
                self.events.say("log-dir", level, log_dir=d.path, health=d.health.value, reason=d.reason)
            if d.health is Health.ONLINE and self.events.changed(("probe", d.path), d.limited) and d.limited:
                level = "info" if d.probed else "warning"
                self.events.say("probe-limited", level, log_dir=d.path, reason=d.limited)

    def watch(self, log_dirs: Iterable[str], unwatched: Mapping[str, str]) -> None:
        """Log where inotify does not report, and when it does again."""
        for path in log_dirs:
            problem = unwatched.get(path)
            if self.events.changed(("watch", path), problem):
                if problem is None:
                    self.events.say("watch", log_dir=path, by="inotify")
                else:
                    self.events.say("watch", "warning", log_dir=path, by="polling", reason=problem)

    def publish(self, s: PublishSummary) -> None:
        """Log that the store cannot be reached, or can be again, and snapshots that were dropped."""
        if self.events.changed("publish-error", _shape(s.error)):
            if s.error is not None:
                self.events.say("publish-failed", "warning", error=s.error, waiting=s.waiting)
            else:
                self.events.say("published", sent=s.sent, waiting=s.waiting)
        if self.events.changed("publish-dropped", s.dropped or None) and s.dropped:
            self.events.say("publish-dropped", "warning", snapshots=s.dropped, reason="the spool is full")


def _by_outcome(s: CycleSummary) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (_, outcome), count in s.results.items():
        counts[outcome] += count
    return counts


def _about(p: Proposal, plan_id: str) -> dict[str, str | int | None]:
    return {
        "plan": plan_id,
        "id": action_id(p),
        "action": p.action.value,
        "log_dir": p.dir.log_dir,
        "name": p.dir.name,
        "new_name": p.new_name,
        "topic": p.full_topic or p.dir.topic,
        "reason": p.reason,
        "bytes": p.dir.bytes,
        "allocated": p.dir.allocated,
    }
