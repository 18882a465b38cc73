"""Deletion requests in the fleet store: what was asked, what was decided once, what came of it.

`control/<cluster>/requests/<id>/` holds `request.json`, `decision.json` and `outcome.json`. All are signed and name the
request, whose id is the SHA-256 of its payload. A request is decided exactly once: `decision.json` is created only if
absent, and whoever comes second obeys the first. That is what fences two controllers (Kafka: the controller epoch in
ZooKeeper, `epochZkVersion`). Nothing reopens a request: what shows up after its outcome is a finding for a new one.

Fails closed: a file in one of these places that cannot be read, or that no trusted key signed, holds the request.
Nobody acts on it, and `topics cancel` writes its decision beside it (`decision-<random>.json`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from logagent.base.errors import LogAgentError
from logagent.base.files.safe_open import MIB
from logagent.base.time_field import Time
from logagent.deletion.store.control import UNREADABLE, Control
from logagent.deletion.store.records import (
    ClusterId,
    Count,
    DirName,
    Kind,
    Node,
    Nonce,
    Number,
    Path,
    PlanId,
    RequestedTopic,
    Sha256,
    TopicId,
    TopicName,
    UnknownSchema,
    Words,
    decode,
    encode,
    instant,
    moment,
    payload_of,
)
from logagent.store.signing import NotSigned, PrivateKey, PublicKey
from logagent.store.tree import StoredFile

T = TypeVar("T")

REQUEST_SCHEMA = "logagent.request/2"
PART_SCHEMA = "logagent.request-part/1"
DECISION_SCHEMA = "logagent.decision/1"
OUTCOME_SCHEMA = "logagent.outcome/1"

REQUESTS = "requests"
REQUEST, DECISION, OUTCOME = "request.json", "decision.json", "outcome.json"
SEND_WITHIN = timedelta(hours=24)
"""DeleteTopics is sent only so long after the request."""
DECIDE_WITHIN = timedelta(minutes=1)
"""`delete` is written only so long after the request, by the process that wrote it."""
LIFETIME = timedelta(days=7)
"""How long a request for directories lasts."""
AT_ONCE = timedelta(hours=1)
"""How long after a request its `no-retention` counts: what a store that was set back brings again is older."""
PART_BYTES = 10 * MIB
"""Of a part's payload: in base64 and signed it stays below what is read of a file of the control folder."""

_ID = re.compile(r"[0-9a-f]{64}")
_DECISIONS = re.compile(r"decision(?:-[0-9a-f]{32})?\.json")

Approval = Literal["only-copy", "limit", "no-retention"]
"""`only-copy`: exactly the directories that the plan shows as such. `limit`: more than the limits of a request or of a
day. `no-retention`: strays at once, for `AT_ONCE` after the request. None stands for another."""
Decided = Literal["delete", "cancelled", "dropped", "expired"]
TopicResult = Literal["deleted", "disabled", "refused", "unknown"]
DirectoryResult = Literal["quarantined", "removed", "absent", "refused"]


@dataclass(frozen=True, slots=True)
class RequestedDirectory:
    """A directory of a fleet report, with everything that tells it from any other. Under a broker's `-stray` name it is
    the same one if inode, topic id, partition and end are (`is_same`)."""

    node_id: Node
    log_dir: Path
    name: DirName
    topic: TopicName
    topic_id: TopicId
    partition: Count
    kind: Literal["orphan", "stray"]
    inode: Number
    directory_id: TopicId | None = None
    end_offset: Count | None = None
    bytes: Count = 0
    only_copy: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Where more directories of a large request are: `request-<number>.json`, with the SHA-256 of its payload."""

    number: Annotated[int, Field(ge=1, le=10_000)]
    sha256: Sha256


@dataclass(frozen=True, slots=True)
class NodeOwner:
    """The user who wrote for a node when a request was made: the owner of its folder."""

    node_id: Node
    uid: Count


@dataclass(frozen=True, slots=True)
class Request:
    """What an operator asked for: immutable. `owners`: who may answer, by node; None where the store has no owners."""

    cluster_id: ClusterId
    kind: Kind
    plan_id: PlanId
    by: Words
    at: Time
    expires_at: Time
    nonce: Nonce
    approvals: tuple[Approval, ...] = ()
    topics: tuple[RequestedTopic, ...] = ()
    directories: tuple[RequestedDirectory, ...] = ()
    parts: tuple[Part, ...] = ()
    owners: tuple[NodeOwner, ...] | None = None

    def why_not_from(self, node_id: int, uids: AbstractSet[int]) -> str | None:
        """Why an answer or a snapshot of this node that belongs to these users (file and folder) does not count: it is
        not of the one whose folder it was when the request was made."""
        if self.owners is None or not uids:
            return None
        then = next((o.uid for o in self.owners if o.node_id == node_id), None)
        if then is None:
            return f"nobody, or more than one user, wrote to the store for node {node_id} when this was requested"
        others = sorted(uids - {then})
        if not others:
            return None
        what = f"what is in the store for node {node_id}"
        return f"{what} belonged to user {then} when this was requested, and is user {others[0]}'s now"

    def why_not_deleted(self, at: datetime) -> str | None:
        """Why a decision to delete that is made at this time does not count: whoever asks decides, at once."""
        if moment(self.at) <= at <= moment(self.at) + DECIDE_WITHIN:
            return None
        return f"it decides to delete at {instant(at)}, which is not within a minute after the request ({self.at})"

    @property
    def ends_at(self) -> datetime:
        """Until when it may be decided, or carried out if it is for directories: what it says, and never more."""
        at, says, most = moment(self.at), moment(self.expires_at), SEND_WITHIN if self.kind == "topics" else LIFETIME
        return says if says - at <= most else at + most  # no time is beyond the last year


@dataclass(frozen=True, slots=True)
class RequestPart:
    nonce: Nonce
    number: Count
    directories: tuple[RequestedDirectory, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The one decision on a request. `topics`: with `delete`, the assignments that were read right before."""

    request_id: Sha256
    cluster_id: ClusterId
    decision: Decided
    by: Words
    at: Time
    why: Words = ""
    topics: tuple[RequestedTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    topic_id: TopicId
    result: TopicResult
    why: Words = ""


@dataclass(frozen=True, slots=True)
class DirectoryOutcome:
    node_id: Node
    log_dir: Path
    name: DirName
    result: DirectoryResult
    why: Words = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of each topic or directory of a request. Closes it for good."""

    request_id: Sha256
    cluster_id: ClusterId
    by: Words
    at: Time
    topics: tuple[TopicOutcome, ...] = ()
    directories: tuple[DirectoryOutcome, ...] = ()


@dataclass(frozen=True, slots=True)
class Filed:
    """One request as the store has it. `hold`: why nobody may act on it; a `decision` that is known counts all the
    same."""

    request_id: str
    request: Request | None = None
    decision: Decision | None = None
    outcome: Outcome | None = None
    hold: str | None = None

    @property
    def is_over(self) -> bool:
        """Nothing more is decided or done about it."""
        return self.outcome is not None or (self.decision is not None and self.decision.decision != "delete")

    def is_left(self, now: datetime) -> bool:
        """Whether it is about topics and its process did not decide it in time: nobody may any more."""
        if self.request is None or self.request.kind != "topics" or self.decision is not None or self.hold is not None:
            return False
        return now - moment(self.request.at) > DECIDE_WITHIN

    def is_open(self, now: datetime) -> bool:
        """Whether it may still be decided."""
        if self.request is None or self.hold is not None or self.decision is not None or self.outcome is not None:
            return False
        return moment(self.request.at) <= now < self.request.ends_at


def request_id(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def folder_of(number: str) -> str:
    return f"{REQUESTS}/{number}"


def write_request(control: Control, request: Request, key: PrivateKey) -> str:
    """Sign and write a request, its parts first; returns its id. Raises TooLarge, ServiceUnreachable."""
    parts = list(_parts(request))
    if len(parts) > 1:
        listed = tuple(Part(part.number, request_id(encode(part))) for part in parts)
        request = replace(request, directories=(), parts=listed)
    payload = encode(request)
    number = request_id(payload)
    if len(parts) > 1:
        for part in parts:
            control.create(folder_of(number), _part_name(part.number), key.sign(PART_SCHEMA, encode(part)))
    if not control.create(folder_of(number), REQUEST, key.sign(REQUEST_SCHEMA, payload)):
        raise LogAgentError(f"request {number} exists already", hint="ask again")
    return number


def _part_name(number: int) -> str:
    return f"request-{number}.json"


def _parts(request: Request) -> Iterable[RequestPart]:
    chosen: list[RequestedDirectory] = []
    size, number = 0, 1
    for directory in request.directories:
        more = len(encode(directory)) + 1
        if chosen and size + more > PART_BYTES:
            yield RequestPart(request.nonce, number, tuple(chosen))
            chosen, size, number = [], 0, number + 1
        chosen.append(directory)
        size += more
    yield RequestPart(request.nonce, number, tuple(chosen))


def decide(control: Control, decision: Decision, key: PrivateKey, keys: tuple[PublicKey, ...]) -> Decision:
    """Make the decision, unless somebody has: returns the one that counts, which may be another's.

    Raises NotSigned if something else is in its place, ServiceUnreachable if the store fails: then it is not known
    whether this one was written, and nothing may be done on it until it is read.
    """
    folder = folder_of(decision.request_id)
    if control.create(folder, DECISION, key.sign(DECISION_SCHEMA, encode(decision))):
        return decision
    content = control.read(folder, DECISION)
    if content is None:
        raise NotSigned("the decision was removed while it was made")
    return read_decision(content, decision.request_id, keys, control.cluster_id)


def cancel_beside(control: Control, decision: Decision, key: PrivateKey, nonce: str) -> bool:
    """Cancel a request whose `decision.json` is something else: among all that are valid, a cancellation wins."""
    name = f"decision-{nonce}.json"
    return control.create(folder_of(decision.request_id), name, key.sign(DECISION_SCHEMA, encode(decision)))


def write_outcome(control: Control, outcome: Outcome, key: PrivateKey) -> bool:
    """Close a request; False if it has an outcome already."""
    return control.create(folder_of(outcome.request_id), OUTCOME, key.sign(OUTCOME_SCHEMA, encode(outcome)))


def read_decision(content: bytes, number: str, keys: tuple[PublicKey, ...], cluster_id: str) -> Decision:
    """Verify and parse the decision on a request, also one that a retired key signed, unless it says `delete`. Raises
    NotSigned, UnknownSchema."""
    found = decode(Decision, payload_of(content, DECISION_SCHEMA, keys, cluster_id, retired=True))
    if (found.request_id, found.cluster_id) != (number, cluster_id):
        raise NotSigned("it belongs to another request")
    if found.decision == "delete":
        payload_of(content, DECISION_SCHEMA, keys, cluster_id)
    return found


def read_outcome(content: bytes, number: str, keys: tuple[PublicKey, ...], cluster_id: str) -> Outcome:
    """Verify and parse the outcome of a request. Raises NotSigned, UnknownSchema."""
    found = decode(Outcome, payload_of(content, OUTCOME_SCHEMA, keys, cluster_id, retired=True))
    if (found.request_id, found.cluster_id) != (number, cluster_id):
        raise NotSigned("it belongs to another request")
    return found


@dataclass(slots=True)
class _Files:
    """Of one request: the names in its folder, its decisions as they are listed (before they are read), and what was
    wrong with those that were read."""

    number: str
    names: AbstractSet[str]
    listed: Mapping[str, StoredFile]
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RequestFolder:
    """The requests of one cluster. Files never change, so a valid one is read once; but in a store that lost a decision
    there can be another one in its place. What is not valid is read again each time, because who repairs it does not
    say so."""

    control: Control
    keys: tuple[PublicKey, ...]
    _closed: dict[str, Filed] = field(default_factory=dict)
    _requests: dict[str, Request] = field(default_factory=dict)
    _decisions: dict[tuple[str, str], tuple[StoredFile, Decision]] = field(default_factory=dict)

    def read(self) -> dict[str, Filed]:
        """All requests by id. Raises ServiceUnreachable: an unreadable store is never an empty one."""
        found: dict[str, Filed] = {}
        for name in sorted(self.control.names(REQUESTS)):
            if _ID.fullmatch(name):
                found[name] = self._closed.get(name) or self._read(name)
        for number in self._closed.keys() - found.keys():
            del self._closed[number]
        return found

    def again(self, number: str) -> Filed:
        """One request as it is now, right before somebody acts on it. Raises ServiceUnreachable."""
        return self._read(number)

    def _read(self, number: str) -> Filed:
        try:
            names = set(self.control.names(folder_of(number)))
            decided = any(_DECISIONS.fullmatch(name) for name in names)
            listed = {file.name: file for file in self.control.files(folder_of(number))} if decided else {}
        except UNREADABLE as error:
            return Filed(number, hold=f"its folder cannot be read: {error}")
        files = _Files(number, names, listed)
        read = partial(self._read_file, files)
        keys, cluster_id = self.keys, self.control.cluster_id
        request = self._requests.get(number) or read(REQUEST, lambda content: self._request(number, content))
        decisions = [
            decision
            for name in sorted(n for n in names if _DECISIONS.fullmatch(n))
            if (decision := read(name, lambda c: read_decision(c, number, keys, cluster_id), holds=name == DECISION))
        ]
        outcome = read(OUTCOME, lambda content: read_outcome(content, number, keys, cluster_id))
        if REQUEST not in names:
            files.problems.append("the request itself is gone")
        if request is not None:
            late = {
                d: why for d in decisions if d.decision == "delete" and (why := request.why_not_deleted(moment(d.at)))
            }
            decisions = [d for d in decisions if d not in late]
            files.problems += late.values()
        cancelled = next((d for d in decisions if d.decision == "cancelled"), None)
        decision = cancelled or (decisions[0] if decisions else None)
        filed = Filed(number, request, decision, outcome, "; ".join(files.problems) or None)
        if outcome is not None and filed.hold is None:
            self._closed[number] = filed
        return filed

    def _read_file(self, files: _Files, name: str, parse: Callable[[bytes], T], *, holds: bool = True) -> T | None:
        """None if it is not there or cannot be used. `holds`: then it holds the request. Raises ServiceUnreachable."""
        number = files.number
        if name not in files.names:
            return None
        before, listed = self._decisions.get((number, name)), files.listed.get(name)
        if before is not None and before[0] == listed:
            return before[1]  # type: ignore[return-value]
        try:
            content = self.control.read(folder_of(number), name)
            if content is None:
                raise NotSigned("it was removed just now")
            parsed = parse(content)
        except (LogAgentError, ValueError) as error:
            if not isinstance(error, (NotSigned, UnknownSchema, *UNREADABLE, ValueError)):
                raise  # the store itself failed: that says nothing about this file
            if holds:
                files.problems.append(f"{name}: {error}")
            return None
        if isinstance(parsed, Decision) and listed is not None:
            self._decisions[number, name] = listed, parsed
        return parsed

    def _request(self, number: str, content: bytes) -> Request:
        payload = payload_of(content, REQUEST_SCHEMA, self.keys, self.control.cluster_id)
        request = decode(Request, payload)
        if request_id(payload) != number or request.cluster_id != self.control.cluster_id:
            raise NotSigned("it belongs to another request")
        directories = list(request.directories)
        for part in request.parts:
            directories += self._part(number, request.nonce, part)
        whole = replace(request, directories=tuple(directories))
        self._requests[number] = whole
        return whole

    def _part(self, number: str, nonce: str, part: Part) -> tuple[RequestedDirectory, ...]:
        content = self.control.read(folder_of(number), _part_name(part.number))
        if content is None:
            raise NotSigned(f"{_part_name(part.number)} is missing")
        payload = payload_of(content, PART_SCHEMA, self.keys, self.control.cluster_id)
        read = decode(RequestPart, payload)
        if request_id(payload) != part.sha256 or (read.nonce, read.number) != (nonce, part.number):
            raise NotSigned(f"{_part_name(part.number)} belongs to another request")
        return read.directories
