"""The daemon's log: one line per event, `key=value` or JSON, and nothing is repeated.

Log lines report changes, of cycles and rounds: what was done, and what is otherwise than the last time. States are for
`logagent status` and the metrics. `Events.say` prints; `Events.changed` says whether the value under a key has changed
since the last time.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import IO, Literal

from logagent.base.records import Health, Outcome
from logagent.base.units import rfc3339
from logagent.cleanup.plan.plan import Execution, Plan, Proposal, Refusal, action_id
from logagent.service.summary import CycleSummary, HealthSummary, PublishSummary
from logagent.verdict.clock_doubt import TRUST_CLOCK

Level = Literal["info", "warning", "error"]
Format = Literal["text", "json"]
Value = str | int | float | bool | None

# Keys remembered; beyond this the oldest are forgotten (at worst their line is repeated).
_MOST_KEYS = 50_000
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@+%,~")


class Events:
    """Writes to `out`, one line at a time, from any thread. A line that cannot be written is lost; nothing else
    happens."""

    def __init__(self, out: IO[str], now_ms: Callable[[], int], form: Format = "text") -> None:
        self._out = out
        self._now_ms = now_ms
        self._form = form
        self._mutex = threading.Lock()
        self._last: dict[Hashable, object] = {}

    def say(self, event: str, level: Level = "info", /, **fields: Value) -> None:
        """`None` fields are left out."""
        record: dict[str, Value] = {"at": rfc3339(self._now_ms()), "level": level, "event": event}
        record |= {key: value for key, value in fields.items() if value is not None}
        line = json.dumps(record, ensure_ascii=True) if self._form == "json" else as_text(record)
        with self._mutex:
            try:
                self._out.write(line + "\n")
                self._out.flush()
            except (OSError, ValueError):
                pass

    def changed(self, key: Hashable, value: object) -> bool:
        """Whether `value` differs from the last call with `key` (`None`: as if there was none)."""
        with self._mutex:
            before = self._last.pop(key, None)
            if value is not None:
                self._last[key] = value
                if len(self._last) > _MOST_KEYS:
                    del self._last[next((k for k in self._last if _is_of_a_directory(k)), next(iter(self._last)))]
            return before != value

    def forget_all_but(self, family: str, keys: Iterable[Hashable]) -> None:
        """Forget the keys of `family` (the first member of tuple keys) except these."""
        kept = set(keys)
        with self._mutex:
            for key in [k for k in self._last if isinstance(k, tuple) and k[0] == family and k not in kept]:
                del self._last[key]

    def adopt_logging(self) -> None:
        """Libraries' own warnings become events, each once; their other messages are dropped."""
        root = logging.getLogger()
        root.handlers[:] = [_Adopted(self)]
        root.setLevel(logging.WARNING)
        # Unreachable brokers are reported once, with the assignments, not at every attempt to connect.
        logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)


class _Adopted(logging.Handler):
    def __init__(self, events: Events) -> None:
        super().__init__(logging.WARNING)
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        if self._events.changed(("library", record.name, record.msg), True):
            message = record.getMessage()
            self._events.say("library", "warning", library=record.name, message=message)


def _is_of_a_directory(key: Hashable) -> bool:
    """There can be 100,000 of these and only a few others, which must not be evicted to make room for them."""
    return isinstance(key, tuple) and len(key) > 2


def as_text(fields: dict[str, Value]) -> str:
    """`key=value` pairs (logfmt): values with anything but plain characters are quoted, and always on one line."""
    return " ".join(f"{key}={_text(value)}" for key, value in fields.items())


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    if text and all(c in _PLAIN for c in text):
        return text
    return json.dumps(text, ensure_ascii=True)


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
            by_key = {("would", p.dir.log_dir, p.dir.name): p.action for p in plan.actions}
            news = self._news("would", by_key, whole)
            new = [p for k, p in zip(by_key, plan.actions, strict=True) if k in news]
            for p in new[:MOST_LINES]:
                self.events.say("would-act", **_about(p, plan.plan_id))
            if len(new) > MOST_LINES:
                self.events.say("would-act-more", plan=plan.plan_id, dirs=len(new) - MOST_LINES)
        self._refused(plan.refusals, plan, whole)
        if whole and self.events.changed("approval", plan.plan_id if plan.needs_approval is not None else None):
            stop = plan.needs_approval
            if stop is not None:
                hint = f"logagent cleanup --execute --approve {plan.plan_id}"
                id_, dirs, fact = plan.plan_id, len(plan.actions), stop.why.fact
                self.events.say("needs-approval", "warning", plan=id_, dirs=dirs, fact=fact, hint=hint)

    def _refused(self, refusals: Sequence[Refusal], plan: Plan, whole: bool) -> None:
        single = [r for r in refusals if r.key.name]
        by_key = {("refused", *r.key): r.why.code for r in single}
        news = self._news("refused", by_key, whole)
        new = [r for r in single if ("refused", *r.key) in news]
        for r in new[:MOST_LINES]:
            self.events.say(
                "refused",
                plan=plan.plan_id,
                **r.key._asdict(),
                guard=r.why.code,
                fact=r.why.fact,
                hint=r.why.hint,
            )
        for guard, count in Counter(r.why.code for r in new[MOST_LINES:]).items():
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
        if self.events.changed("metadata-log", _shape(a.log_doubt.fact if a.log_doubt is not None else None)):
            if (doubt := a.log_doubt) is not None:
                self.events.say("metadata-log", "warning", proves=doubt.code, reason=doubt.fact, hint=doubt.hint)
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
