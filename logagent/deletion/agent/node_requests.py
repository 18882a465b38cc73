"""Requests between store and host: held by the daemon for its lifetime, and briefly by `prestart`.

`read` and `send` use the store and run in the loop that may hang with it; `carry_out` acts on a session, under the
executor lock, and asks the store only whether a request is still open, for a few seconds at most. `note` takes from
each inventory what the answers say of the topics.
"""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from logagent.base.clock import Clock
from logagent.base.config.settings import Settings
from logagent.base.errors import Busy, LogAgentError
from logagent.base.units import DAY_MS, human_time, rfc3339
from logagent.cleanup.plan.plan import Plan
from logagent.cleanup.session.recall import restored_topics
from logagent.cleanup.session.session import Session
from logagent.cleanup.state.executor_lock import ExecutorLock
from logagent.deletion.agent.directories import DirectoryRun, refuse_all, topic_answers, updated
from logagent.deletion.agent.memory import (
    KEPT_MS,
    NAME,
    RequestMemory,
    Row,
    expires_ms,
    is_settled,
    row_key,
    why_refused,
)
from logagent.deletion.store.answers import SEEN, Answer, Answers, Seen, SeenLogDirs, TopicAnswer, as_words
from logagent.deletion.store.requests import (
    AT_ONCE,
    DECISION,
    OUTCOME,
    REQUEST,
    ControlFolder,
    Filed,
    Request,
    RequestedDirectory,
    RequestFolder,
    TooLarge,
    folder_of,
    moment,
)
from logagent.disk.bounded_calls import Task
from logagent.store.contract import CLOCKS_APART
from logagent.store.shared import check_store
from logagent.store.signing import public_key
from logagent.verdict.facts import Facts

T = TypeVar("T")

OPEN_SECONDS, OPEN_IN_PRESTART_SECONDS = 5.0, 0.2
OPEN_ANEW_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RequestsSummary:
    """One look at the fleet's deletion requests. `directories`: those of this host, by the last answer. `strays_left`:
    of deleted topics. `held`: the requests on which nobody may act, and why. `refuses`: why nothing is carried out."""

    at_ms: int
    open: int = 0
    directories: Mapping[str, int] = field(default_factory=dict)
    strays_left: int = 0
    held: Mapping[str, str] = field(default_factory=dict)
    refuses: str | None = None
    error: str | None = None


@dataclass(slots=True)
class NodeRequests:
    """The requests of one node. `settings` must name a store and keys."""

    settings: Settings
    state_dir: str
    clock: Clock
    cluster_id: str
    node_id: int
    host: str
    folder: RequestFolder = field(init=False)
    answers: Answers = field(init=False)
    filed: dict[str, Filed] | None = None
    """As of the last look; None before it."""
    _read_at: str = ""
    _filed_before: dict[str, Filed] = field(default_factory=dict)
    _problem: str | None = "its clock has not been compared with the store's yet"
    """Why nothing is carried out: an agent whose clock is wrong, or that cannot say what it does, does nothing."""
    _log_dirs: SeenLogDirs | None = None
    _topics: dict[str, tuple[TopicAnswer, ...]] = field(default_factory=dict)
    _rows: dict[str, dict[str, Row]] = field(default_factory=dict)
    _noted: str = ""
    _announced: frozenset[str] = frozenset()
    """The requests that our seen file names, whole or as open: before that we do nothing about one."""
    _sent: dict[str, Answer] = field(default_factory=dict)
    _tried: set[str] = field(default_factory=set)
    _store_hangs: bool = False
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        assert self.settings.publish.store is not None
        keys = tuple(public_key(text) for text in self.settings.orders.keys)
        self.folder = RequestFolder(ControlFolder(self.settings.publish.store, self.cluster_id), keys)
        self.answers = Answers(self.settings.publish.store, self.cluster_id)

    # With the store

    def read(self) -> bool:
        """Read the requests in the store; whether there is anything to take in or to carry out. Raises
        ServiceUnreachable, JournalError."""
        assert self.settings.publish.store is not None
        at = rfc3339(self.clock.now_ms())
        check_store(self.settings.publish.store)
        memory = self._memory()
        filed = self.folder.read()
        with self._mutex:
            self.filed, self._read_at = filed, at
        return self._has_work(filed, memory)

    def remember_first(self) -> None:
        """Put on disk at once what stood at the first look: an agent that stops before its first act must not take
        later requests for older ones. While anything acts here, it waits for the next look. Raises JournalError."""
        with self._mutex:
            filed = self.filed
        if filed is None or self._memory().stood is not None:
            return
        lock = ExecutorLock(
            self.state_dir, "the first check for requests", wait_seconds=0, monotonic=self.clock.monotonic,
            sleep=self.clock.sleep,
        )  # fmt: skip
        with suppress(Busy), lock:
            memory = self._memory()  # as it is now that nobody else replaces it
            memory.meet_first(filed)
            memory.save(self.state_dir)

    def read_before_start(self) -> bool:
        """`read` for `prestart`, which removes nothing and writes nothing to the store: what the daemon wrote there
        last must not be from the future."""
        work = self.read()
        self._announced = frozenset(self.filed or ())
        by_store = self.answers.modified(str(self.node_id), SEEN)
        if by_store is not None and by_store <= self._now() + CLOCKS_APART:
            self._problem = None
        return work

    def _has_work(self, filed: Mapping[str, Filed], memory: RequestMemory) -> bool:
        met = copy.deepcopy(memory)
        met.meet(filed, self.clock.now_ms(), is_sure=False)
        if met != memory:
            return True
        return any(not self._settled(memory, number, f) for number, f in filed.items())

    def _settled(self, memory: RequestMemory, number: str, f: Filed) -> bool:
        """Whether nothing is to be done here now. The time of the next try counts only for what this process tried:
        after a restart, with other settings or in `prestart` it may be possible at once."""
        known = memory.requests.get(number)
        rows = known.rows if known is not None else {}
        soon = self._now() + timedelta(milliseconds=self.settings.orders.interval) if number in self._tried else None
        accept = self.settings.orders.accept
        answers = [rows[key].answer if (key := row_key(r)) in rows else None for r in self._mine(f)]
        return all(a is not None and is_settled(a, soon, accept=accept) for a in answers)

    def _mine(self, f: Filed) -> list[RequestedDirectory]:
        if f.request is None or f.request.kind != "directories" or expires_ms(f) + KEPT_MS < self.clock.now_ms():
            return []
        return [row for row in f.request.directories if row.node_id == self.node_id]

    def send(self) -> None:
        """Write what this agent has seen, and its answers where they have changed. Raises ServiceUnreachable,
        JournalError; once the others are written, TooLarge for one that nobody could read."""
        self.remember_first()
        memory = self._memory()
        with self._mutex:
            filed, looked = self.filed, self._read_at
        if filed is not None and memory.stood is None:
            return  # what it would say it might not know after a crash
        if filed is not None:
            # Also compare our clock with the store's; what that changes is written at once, as an agent may end here.
            said = self._refuses()
            self._compare_clocks(memory, filed, looked)
            if self._refuses() != said:
                self.answers.write_seen(self._seen(memory, filed, looked))
        bad: TooLarge | None = None
        for number, answer in sorted(self._answers(memory, filed or {}).items()):
            before = self._sent.get(number)
            if before is not None and replace(answer, at=before.at) == before:
                continue
            try:
                self.answers.write(answer)
            except TooLarge as error:
                bad = bad or error
            self._sent[number] = answer
        if bad is not None:
            raise bad

    def _seen(self, memory: RequestMemory, filed: Mapping[str, Filed], looked: str) -> Seen:
        now_ms = self.clock.now_ms()
        # Only ids, and of ended ones those that are remembered: nothing that others wrote is carried.
        ended = {n for n, r in memory.requests.items() if r.closed and r.expires_ms + DAY_MS >= now_ms}
        verified = tuple(sorted(n for n, f in filed.items() if n not in ended and f.is_open(self._now())))
        return Seen(
            self.cluster_id, self.node_id, as_words(self.host), memory.agent, rfc3339(memory.born_ms), looked, verified,
            tuple(sorted(ended)), self._log_dirs, as_words(self._refuses() or ""),
        )  # fmt: skip

    def _refuses(self) -> str | None:
        if not self.settings.orders.accept:
            return "requests are not accepted here (orders.accept)"
        return self._problem

    def _compare_clocks(self, memory: RequestMemory, filed: Mapping[str, Filed], looked: str) -> None:
        try:
            self.answers.write_seen(self._seen(memory, filed, looked))
            self._announced = frozenset(filed)
            by_store, now = self.answers.modified(str(self.node_id), SEEN), self._now()
        except LogAgentError as error:
            self._problem = f"what it has seen cannot be written to the store: {error}"
            raise
        if by_store is None:
            self._problem = "its answers could not be written to the store"
        elif abs(by_store - now) > CLOCKS_APART:
            self._problem = f"its clock says {human_time(self.clock.now_ms())}, the store's {human_time(by_store)}"
        else:
            self._problem = None

    def _answers(self, memory: RequestMemory, filed: Mapping[str, Filed]) -> dict[str, Answer]:
        with self._mutex:
            topics, rows, noted = dict(self._topics), dict(self._rows), self._noted
        found: dict[str, Answer] = {}
        for number in topics.keys() | {n for n, r in memory.requests.items() if r.rows}:
            if number not in filed:
                continue
            known = memory.requests.get(number)
            latest = dict(known.rows) if known is not None else {}
            latest |= {k: r for k, r in rows.get(number, {}).items() if _is_quarantined(latest.get(k))}
            at = noted if number in topics or known is None else max(noted, rfc3339(known.at_ms))
            found[number] = Answer(
                self.cluster_id, self.node_id, number, as_words(self.host), memory.agent, at,
                tuple(row.answer for _, row in sorted(latest.items())), topics.get(number, ()),
            )  # fmt: skip
        return found

    def summary(self) -> RequestsSummary:
        """What is open, and how far it is. Raises JournalError."""
        memory = self._memory()
        with self._mutex:
            filed, topics = dict(self.filed or {}), dict(self._topics)
        states: Counter[str] = Counter(
            row.answer.state for n, r in memory.requests.items() if n in filed for row in r.rows.values()
        )
        strays = {t.topic_id: t for rows in topics.values() for t in rows}
        return RequestsSummary(
            self.clock.now_ms(),
            open=sum(f.is_open(self._now()) for f in filed.values()),
            directories=dict(states),
            strays_left=sum(t.strays_left for t in strays.values()),
            held={n: f.hold for n, f in filed.items() if f.hold is not None},
            refuses=self._refuses(),
        )

    # With a session

    def carry_out(
        self, session: Session, facts: Facts, stop: Callable[[], bool], *,
        touched: Collection[int] = (), in_prestart: bool = False,
    ) -> list[DirectoryRun]:  # fmt: skip
        """Take in the last look and carry out what is open, oldest request first; returns what was done. `touched`: the
        inodes of directories that were renamed since the inventory.

        Raises JournalError if it cannot be remembered: then nothing (more) is done.
        """
        with self._mutex:
            filed = self.filed
        if filed is None:
            return []
        memory = self._memory()
        before = copy.deepcopy(memory)
        is_sure = self._problem is None and session.recalled.doubt is None
        memory.meet(filed, self.clock.now_ms(), is_sure=is_sure)
        memory.end_restored(restored_topics(session.journal))
        if session.inventory.whole and facts.not_seen() is None:
            memory.forget_words((d.topic_id for d in session.dirs), filed)
        if memory != before:
            memory.save(self.state_dir)
        gone, runs, self._store_hangs = set(touched), list[DirectoryRun](), False
        for number, f in sorted(filed.items(), key=_oldest_first):
            rows = [row for row in self._mine(f) if row.inode not in gone and number in self._announced]
            if not rows or self._settled(memory, number, f):
                continue
            if self._store_hangs or stop():
                break
            run = self._carry_out_one(memory, number, f, rows, session, facts, stop, in_prestart)
            memory.save(self.state_dir)
            if run is not None and run.execution is not None and run.plan is not None:
                # What this request took counts against the limits of the next one.
                facts, runs = session.facts(), [*runs, run]
                gone |= {p.dir.inode for p in run.plan.actions}
        return runs

    def _carry_out_one(
        self, memory: RequestMemory, number: str, f: Filed, rows: Sequence[RequestedDirectory], session: Session,
        facts: Facts, stop: Callable[[], bool], in_prestart: bool,
    ) -> DirectoryRun | None:  # fmt: skip
        if self._problem is not None:
            return None  # a wrong clock's "it expired" would count for good
        self._tried.add(number)
        known = memory.of(number, f)
        known.at_ms = self.clock.now_ms()
        why = why_refused(number, f, memory, self._now(), accept=self.settings.orders.accept)
        if why is not None:
            if f.request is not None and f.hold is None:
                known.rows |= refuse_all(rows, known.rows, why)
            return None
        assert f.request is not None
        halted = RequestStop(partial(self._still_open, number, in_prestart), self.clock, stop)
        if halted():
            return None
        next_try = None if in_prestart else rfc3339(self.clock.now_ms() + self.settings.orders.interval)
        run = DirectoryRun(
            session, facts, number, f.request, known.rows, halted, next_try,
            partial(why_not_at_once, f.request, self._now()),
            renames_only=in_prestart,
        )  # fmt: skip
        known.rows |= run.run(rows)
        return run

    def _still_open(self, number: str, in_prestart: bool) -> bool:
        """Whether the store says now that nobody has decided the request. No answer in time counts as no."""
        seconds = OPEN_IN_PRESTART_SECONDS if in_prestart else OPEN_SECONDS
        names = bounded(lambda: self.folder.control.names(folder_of(number)), seconds)
        if names is None:
            self._store_hangs = True
        if names is None or REQUEST not in names:
            return False
        prefix = DECISION.removesuffix(".json")
        return not any(name == OUTCOME or name.startswith(prefix) for name in names)

    @property
    def has_decisions(self) -> bool:
        """Whether inventories are asked what is left of deleted topics."""
        with self._mutex:
            return any(f.decision is not None and f.decision.decision == "delete" for f in (self.filed or {}).values())

    def before_inventory(self) -> None:
        """What an inventory shows is an answer only to what was decided before it began."""
        with self._mutex:
            self._filed_before = dict(self.filed or {})

    def seen_before_inventory(self) -> list[str]:
        """The requests that were known by then and have no outcome: the snapshot of the inventory says so."""
        return sorted(n for n, f in self._filed_before.items() if f.hold is None and not f.is_over)

    def note(self, session: Session, facts: Facts, plan: Plan | None) -> None:
        """Take from a whole inventory, and the plan for it if there is one, what the answers say. Raises
        JournalError."""
        memory, filed = self._memory(), self._filed_before
        at, hidden = rfc3339(facts.now_ms), facts.not_seen()
        offline = tuple(sorted(f.path for f in facts.log_dirs.values() if f.path not in session.inventory.by_log_dir))
        online = session.inventory.whole and hidden is None
        since = self._log_dirs.since if self._log_dirs is not None and self._log_dirs.all_online else at
        topics = topic_answers(memory, filed, session, facts, plan)
        rows = {
            n: updated(r.rows, session, facts, request)
            for n, r in memory.requests.items()
            if r.rows and n in filed and (request := filed[n].request) is not None
        }
        if plan is None:  # what the last plan said of them still holds
            planned = {(n, t.topic_id): t for n, each in self._topics.items() for t in each}
            topics = {
                n: tuple(_as_planned(t, planned.get((n, t.topic_id))) for t in each) for n, each in topics.items()
            }
        with self._mutex:
            self._log_dirs = SeenLogDirs(at, online, since if online else None, offline)
            self._topics, self._rows, self._noted = topics, rows, at

    def _memory(self) -> RequestMemory:
        return RequestMemory.load(self.state_dir, self.clock.now_ms())

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)


def _as_planned(now: TopicAnswer, before: TopicAnswer | None) -> TopicAnswer:
    if now.words or before is None or (now.live, now.strays_left) != (before.live, before.strays_left):
        return now
    return replace(now, words=before.words, next_try_at=before.next_try_at)


def _oldest_first(item: tuple[str, Filed]) -> tuple[str, str]:
    number, f = item
    return (f.request.at if f.request is not None else "", number)


def _is_quarantined(row: Row | None) -> bool:
    return row is not None and row.answer.result == "quarantined"


def why_not_at_once(request: Request, now: datetime) -> str | None:
    """Why `no-retention` no longer counts, by this host's clock; None while it does."""
    at = moment(request.at)
    if at - CLOCKS_APART <= now <= at + AT_ONCE:
        return None
    return f"no-retention counted until {human_time(at + AT_ONCE)}"


@dataclass(slots=True)
class RequestStop:
    """The `stop` of one request's execution: told to stop, or the request is no longer open. A store that does not
    answer once is not asked again: the host's own work must not wait for it."""

    still_open: Callable[[], bool]
    clock: Clock
    stop: Callable[[], bool]
    _asked_at: float = float("-inf")
    _over: bool = False

    def __call__(self) -> bool:
        if self._over or self.stop():
            return True
        if self.clock.monotonic() - self._asked_at >= OPEN_ANEW_SECONDS:
            self._over = not self.still_open()
            self._asked_at = self.clock.monotonic()
        return self._over


def bounded(ask: Callable[[], T], seconds: float) -> T | None:
    """What `ask` returns within `seconds`; None if it takes longer or fails. Then its thread is left behind, so that a
    hung store blocks nothing else."""
    task = Task("logagent-store", ask)
    try:
        task.start()
    except RuntimeError:  # the thread limit
        return None
    try:
        return task.outcome() if task.join(seconds) else None
    except (OSError, LogAgentError):
        return None


def requests_of(settings: Settings, state_dir: str, clock: Clock, session: Session, host: str) -> NodeRequests | None:
    """The requests for the host of this session; None if requests cannot arrive (no store, no keys, no cluster known).

    Creates this agent's memory if the session holds the executor lock. Raises JournalError.
    """
    cluster = session.log_dirs.cluster
    if settings.publish.store is None or not settings.orders.keys:
        return None
    if cluster.cluster_id is None or cluster.node_id is None:
        return None
    if session.acting and not Path(state_dir, NAME).exists():
        RequestMemory.load(state_dir, clock.now_ms()).save(state_dir)
    return NodeRequests(settings, state_dir, clock, cluster.cluster_id, cluster.node_id, host)
