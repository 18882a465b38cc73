"""What an agent must remember of requests: what was decided, which topics may go, what it did with each directory;
and what that permits of a request (`why_refused`).

One file in the state dir, replaced as a whole and only under the executor lock. If it is lost, the agent gets a new id
and carries out nothing that stood in the store when it first looked.
"""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from logagent.base.errors import JournalError, LogAgentError
from logagent.base.files.safe_open import MIB, FileLimit, read_regular, whole_file
from logagent.base.records import PartitionDir, Reason
from logagent.base.units import human_time
from logagent.deletion.store.answers import DirectoryAnswer
from logagent.deletion.store.requests import Filed, RequestedDirectory, decode, encode, moment, moment_ms
from logagent.store.contract import CLOCKS_APART

NAME = "requests.json"
LIMIT = FileLimit("the memory of requests", 256 * MIB)
KEPT_MS = timedelta(days=30) // timedelta(milliseconds=1)
"""How long after its expiry a request is remembered."""
APART_MS = CLOCKS_APART // timedelta(milliseconds=1)
_NOT_DELETED = ("disabled", "refused")


@dataclass(slots=True)
class Permission:
    """That a request decided to delete a topic: its strays may go, once this host itself knows that it is deleted. It
    outlives the request's outcome and expiry. `limit`: also beyond the limits of a day. `ended`: why no longer."""

    topic_id: str
    request_id: str
    at_ms: int
    limit: bool = False
    ended: str = ""


@dataclass(slots=True)
class Row:
    """The last answer about one requested directory, with what it is known by under any name."""

    answer: DirectoryAnswer
    topic_id: str
    partition: int
    inode: int


@dataclass(slots=True)
class RememberedRequest:
    """One request. `closed`: how it ended; once set, it stays, as does `against`: a decision that was not to delete.
    `rows`: by `row_key`, as of `at_ms`."""

    expires_ms: int
    closed: str = ""
    against: bool = False
    cancelled: bool = False
    rows: dict[str, Row] = field(default_factory=dict)
    at_ms: int = 0


@dataclass(slots=True)
class RequestMemory:
    """`agent`: the agent's id, made at `born_ms`. `stood`: the requests that it verified at its first look; None before
    that. `held`: those of its own on which nobody may act, as of the last look."""

    agent: str
    born_ms: int
    stood: tuple[str, ...] | None = None
    held: tuple[str, ...] = ()
    requests: dict[str, RememberedRequest] = field(default_factory=dict)
    words: list[Permission] = field(default_factory=list)

    @classmethod
    def load(cls, state_dir: str, now_ms: int) -> RequestMemory:
        """The memory of this state dir, or a new one. Raises JournalError for a file that cannot be read: an agent that
        does not know what it did must do nothing."""
        path = Path(state_dir, NAME)
        try:
            return decode(cls, read_regular(path, LIMIT))
        except FileNotFoundError:
            return cls(secrets.token_hex(16), now_ms)
        except (OSError, LogAgentError, ValueError) as error:
            hint = "move it away: this agent then carries out newer requests only"
            raise JournalError(f"{path} cannot be read: {error}", hint=hint) from error

    def save(self, state_dir: str) -> None:
        """Write it durably (0600). Raises JournalError."""
        path = Path(state_dir, NAME)
        try:
            with whole_file(path, mode=0o600) as file:
                file.write(encode(self))
        except OSError as error:
            raise JournalError(f"{path} cannot be written: {error.strerror or error}") from error

    # Pure, from here on

    def meet(self, filed: Mapping[str, Filed], now_ms: int, *, is_sure: bool) -> None:
        """Take in what a look at the store verified. `is_sure`: nothing speaks against the clock."""
        self.meet_first(filed)
        if is_sure:
            # A clock that was ahead at the first start must not make everything too old for ever.
            self.born_ms = min(self.born_ms, now_ms)
            self.requests = {n: r for n, r in self.requests.items() if r.expires_ms + KEPT_MS >= now_ms}
        held = {number for number, f in filed.items() if f.hold is not None}
        # What concerns nothing that is remembered is not remembered either: anybody may have put it there.
        self.held = tuple(sorted(held & {*self.requests, *(word.request_id for word in self.words)}))
        for number, f in sorted(filed.items()):
            self._learn(number, f, now_ms)
            self._word(number, f)

    def meet_first(self, filed: Mapping[str, Filed]) -> None:
        """At the first look: which requests are older than this memory. What cannot be verified is not remembered; if
        it is one, its own time tells."""
        if self.stood is None:
            self.stood = tuple(sorted(number for number, f in filed.items() if f.request is not None))

    def of(self, number: str, filed: Filed) -> RememberedRequest:
        """What is known of a request, to be changed."""
        return self.requests.setdefault(number, RememberedRequest(expires_ms(filed)))

    def _learn(self, number: str, f: Filed, now_ms: int) -> None:
        ends = f.decision is not None and f.decision.decision != "delete"
        if (f.decision is None and f.outcome is None) or (
            number not in self.requests and expires_ms(f) + KEPT_MS < now_ms
        ):
            return
        known = self.of(number, f)
        if f.decision is not None and ends:
            known.against = True
            known.cancelled = known.cancelled or f.decision.decision == "cancelled"
            known.closed = (
                known.closed
                or f"it was {f.decision.decision} by {f.decision.by} at {human_time(moment(f.decision.at))}"
            )
        if f.outcome is not None:
            known.closed = known.closed or f"its outcome was written at {human_time(moment(f.outcome.at))}"

    def _word(self, number: str, f: Filed) -> None:
        """A decision to delete, as words for its topics; and what ends them."""
        mine = [word for word in self.words if word.request_id == number]
        known = self.requests.get(number)
        against = f.decision.decision if f.decision is not None and f.decision.decision != "delete" else None
        if against is not None or (known is not None and known.against):
            for word in mine:
                word.ended = word.ended or f"the request was {against or 'decided otherwise'}"
            return
        results = {t.topic_id: t.result for t in f.outcome.topics} if f.outcome is not None else {}
        for word in mine:
            if results.get(word.topic_id) in _NOT_DELETED:
                word.ended = word.ended or f"its outcome is {results[word.topic_id]}"
        if f.decision is None or f.request is None or f.hold is not None or f.request.kind != "topics":
            return
        if number in (self.stood or ()) or self.is_younger_than(f):
            return
        asked = {t.topic_id for t in f.request.topics} - {word.topic_id for word in mine}
        for topic in f.decision.topics:
            if topic.topic_id in asked and results.get(topic.topic_id) not in _NOT_DELETED:
                asked.remove(topic.topic_id)
                limit = "limit" in f.request.approvals
                self.words.append(Permission(topic.topic_id, number, moment_ms(f.decision.at), limit))

    def is_younger_than(self, f: Filed) -> bool:
        """Whether the request may have been carried out before this memory was made."""
        return f.request is None or moment_ms(f.request.at) < self.born_ms - 1

    def end_restored(self, restores: Iterable[tuple[str | None, int]]) -> None:
        """A restore (topic id, ms) on this host ends every word for that topic that was there before."""
        last: dict[str | None, int] = {}
        for topic_id, at_ms in restores:
            last[topic_id] = max(at_ms, last.get(topic_id, at_ms))
        for word in self.words:
            if word.topic_id in last and last[word.topic_id] >= word.at_ms - APART_MS:
                word.ended = word.ended or "a directory of it was restored on this host"

    def forget_words(self, left: Iterable[str | None], in_store: Iterable[str]) -> None:
        """Drop the words for topics of which nothing is left here, once the store no longer has the request."""
        kept, there = set(left), set(in_store)
        self.words = [w for w in self.words if w.topic_id in kept or w.request_id in there]

    def may_go(self) -> dict[str, Permission]:
        """The words that count now, by topic id; one with `limit` before one without."""
        live = [w for w in self.words if not w.ended and w.request_id not in self.held]
        return {w.topic_id: w for w in sorted(live, key=lambda w: w.limit)}

    def counts(self, number: str) -> bool:
        """Whether what a request permitted counts now: it was not cancelled, and nothing holds it."""
        return number not in self.held and not self.is_cancelled(number)

    def is_cancelled(self, number: str) -> bool:
        known = self.requests.get(number)
        return known is not None and known.cancelled


def expires_ms(f: Filed) -> int:
    """When a request ends by itself; of one that cannot be read, what is known of its end."""
    if f.request is not None:
        return round(f.request.ends_at.timestamp() * 1000)
    return next((moment_ms(known.at) for known in (f.decision, f.outcome) if known is not None), 0)


# What may be carried out of a request: without disk, store or clock

FINAL = ("identity", "restored", "request")
"""Refusals that this very request never gets over."""


def row_key(row: RequestedDirectory) -> str:
    return f"{posixpath.normpath(row.log_dir)}/{row.name}"


def is_settled(answer: DirectoryAnswer, soon: datetime | None, *, accept: bool) -> bool:
    """Whether nothing is to be done about this directory now. `soon`: what is to be tried by then is tried now; None:
    everything is."""
    if is_final(answer) or (answer.claim == "accept" and not accept):
        return True
    return soon is not None and answer.next_try_at is not None and moment(answer.next_try_at) > soon


def is_final(answer: DirectoryAnswer) -> bool:
    """Whether the request never touches this directory again."""
    return answer.state == "done" or (answer.state == "refused" and answer.claim in FINAL)


def why_refused(number: str, filed: Filed, memory: RequestMemory, now: datetime, *, accept: bool) -> Reason | None:
    """Why a request is not carried out, whatever it asks for, with code `request` for good; None if it may be.

    An agent whose memory is new or lost carries out nothing that stood at its first look: it may have done so before.
    """
    request, known = filed.request, memory.requests.get(number)
    if request is None or filed.hold is not None:
        return Reason(f"nobody may act on it: {filed.hold or 'it cannot be read'}", code="held")
    if filed.decision is not None:
        fact = f"it was decided ({filed.decision.decision}) at {human_time(moment(filed.decision.at))}"
        return Reason(fact, code="request")
    if filed.outcome is not None:
        return Reason(f"its outcome was written at {human_time(moment(filed.outcome.at))}", code="request")
    if known is not None and known.closed:
        return Reason(known.closed, code="request")
    if memory.stood is None or number in memory.stood or memory.is_younger_than(filed):
        return Reason("this agent's memory is newer than the request", code="request")
    if moment(request.at) > now + CLOCKS_APART:
        return Reason(f"it was made at {human_time(moment(request.at))}, which is in the future here", code="clock")
    if now >= request.ends_at:
        return Reason(f"it expired at {human_time(request.ends_at)}", code="request")
    if not accept:
        return Reason("requests are not accepted here (orders.accept)", code="accept")
    return None


def difference(
    row: RequestedDirectory, d: PartitionDir, *, directory_id: str | None, end_offset: int | None
) -> str | None:
    """How `d`, whatever its name, differs from the directory that was asked for; None if it is the same one."""
    for what, ours, theirs in (
        ("topic id", row.topic_id, d.topic_id),
        ("partition", row.partition, d.partition),
        ("inode", row.inode, d.inode),
        ("directory id of the log dir", row.directory_id or directory_id, directory_id),
        ("log end offset", end_offset if row.end_offset is None else row.end_offset, end_offset),
    ):
        if ours != theirs:
            return f"its {what} is {theirs}, the request says {ours}"
    return None
