"""Deletion requests in the fleet store: what was asked, what was decided once, what came of it.

`control/<cluster>/requests/<id>/` holds `request.json`, `decision.json` and `outcome.json`. All are signed and name the
request, whose id is the SHA-256 of its payload. A request is decided exactly once: `decision.json` is created only if
absent, and whoever comes second obeys the first. That is what fences two controllers (Kafka: the controller epoch in
ZooKeeper, `epochZkVersion`). Nothing reopens a request: what shows up after its outcome is a finding for a new one.

Fails closed: a file in one of these places that cannot be read, or that no trusted key signed, holds the request.
Nobody acts on it, and `topics cancel` writes its decision beside it (`decision-<random>.json`).

Of `control/<cluster>/`, files appear complete, are created once and are never overwritten. Only commands of key holders
write there (`ControlFolder.prepare` first); agents read. Callers match names against their patterns before they pass
them.

Records are plain dataclasses; pydantic checks the formats of their fields when one is read from a file. Times are
RFC 3339 in UTC with milliseconds.
"""

from __future__ import annotations

import errno
import hashlib
import io
import pathlib
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from logagent.base import records
from logagent.base.documents import Time
from logagent.base.errors import ConfigError, LogAgentError, ServiceUnreachable, UnreadableError
from logagent.base.files.safe_open import MIB, FileLimit
from logagent.base.units import LARGEST_COUNT, counted, human_time
from logagent.store.contract import is_plain
from logagent.store.shared import SharedStore, open_store, refuse_loose
from logagent.store.signing import NotSigned, PrivateKey, PublicKey, verify
from logagent.store.tree import StoredFile

CONTROL, PROBES = "control", "probe"
CONTROL_FILE = FileLimit("a file of the store's control folder", 16 * MIB)
MAX_NAMES = 1_000_000
LATEST_SECONDS = float(1 << 36)
"""In the year 4147: whoever owns a file can give it any time, also one that no `datetime` can hold."""
_FOLDER_UNREADABLE = (errno.ELOOP, errno.ENOTDIR, errno.EACCES)
_CANNOT_LINK = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class FolderUnreadable(ServiceUnreachable):
    """A folder of the store is not a directory, or we have no permission to read it."""


UNREADABLE = (UnreadableError, FolderUnreadable)
"""What concerns one file or folder, and not the store."""


class TooLarge(LogAgentError):
    """A file would be larger than what readers accept. Nothing was written."""

    slug = "too-large"


class ControlFolder:
    """One cluster's control folder. Its subfolders are created on the first write.

    Raises ServiceUnreachable if the store is absent or fails: an unreadable folder is never taken for an empty one.
    """

    root = "control"

    def __init__(self, store: str | pathlib.Path, cluster_id: str) -> None:
        if not is_plain(cluster_id):
            hint = "--cluster ID: logagent status shows it"
            raise ConfigError(f"{cluster_id!r} is not a cluster id that a folder can be named after", hint=hint)
        self.store = str(store)
        self.cluster_id = cluster_id

    def names(self, folder: str) -> list[str]:
        """All names in a folder; empty if the folder does not exist yet."""
        with self._opened(folder) as store:
            names = store.names(self._path(folder))
        if len(names) > MAX_NAMES:
            raise UnreadableError(f"more than {MAX_NAMES} files in {folder} of {self._where()}")
        return names

    def files(self, folder: str) -> list[StoredFile]:
        """The regular files of a folder, with size and time; empty if the folder does not exist yet."""
        with self._opened(folder) as store:
            return store.files(self._path(folder), MAX_NAMES)

    def read(self, folder: str, name: str, limit: FileLimit = CONTROL_FILE) -> bytes | None:
        """A file's content, None if absent. Raises UnreadableError if it is not a regular file or too big."""
        with self._opened(folder) as store, suppress(FileNotFoundError):
            return store.read([*self._path(folder), name], limit)
        return None

    def exists(self, folder: str, name: str) -> bool:
        with self._opened(folder) as store:
            return store.exists([*self._path(folder), name])

    def modified(self, folder: str, name: str) -> datetime | None:
        """When a file was written, by the store's clock; None if absent. A time that no file can have is moved to the
        nearest that one can have."""
        with self._opened(folder) as store, suppress(FileNotFoundError):
            seconds = store.modified([*self._path(folder), name])
            return datetime.fromtimestamp(min(max(seconds, 0.0), LATEST_SECONDS), UTC)
        return None

    def create(self, folder: str, name: str, content: bytes) -> bool:
        """Create a file durably; False if the name is taken. Readers never see it half written. Raises TooLarge."""
        if len(content) > CONTROL_FILE.max_bytes:
            most = CONTROL_FILE.max_bytes // MIB
            raise TooLarge(f"{folder}/{name} would have {len(content)} bytes, and no more than {most} MiB are read")
        with self._opened(folder) as store:
            try:
                return store.create_new([*self._path(folder), name], content, keyed=True)
            except OSError as error:
                if error.errno in _CANNOT_LINK:
                    raise ConfigError(
                        "the store cannot create a file only if absent: it has no hard links",
                        hint="use a store on a file system with hard links",
                    ) from error
                raise

    def replace(self, folder: str, name: str, content: bytes) -> None:
        """Write a file that only informs: it is replaced whole."""
        with self._opened(folder) as store:
            store.put([*self._path(folder), name], io.BytesIO(content), keyed=True)

    def prepare(self) -> datetime:
        """Before a key holder's command writes: the folders are closed to others, and a file that exists is not created
        again. Returns the time by the store's clock. Raises ConfigError, ServiceUnreachable."""
        with self._opened(PROBES) as store:
            refuse_loose(self.store, store)
            for folder in ([CONTROL], [CONTROL, self.cluster_id], self._path("requests")):
                found = store.open_to_others(folder)
                if found is not None:
                    where, (why, hint) = "/".join(folder), found
                    raise ConfigError(
                        f"{where} in {self.store} is not closed: {why}; there, decisions could be removed", hint=hint
                    )
        name = f"{secrets.token_hex(16)}.json"
        first, second = self.create(PROBES, name, b"1"), self.create(PROBES, name, b"2")
        kept, at = self.read(PROBES, name), self.modified(PROBES, name)
        self.remove(PROBES, name)
        if not first or second or kept != b"1" or at is None:
            raise ConfigError(
                f"the store {self.store} overwrites a file that exists already: two could decide on one request",
                hint="a local or NFS directory holds it, and object stores that support If-None-Match",
            )
        return at

    def remove(self, folder: str, name: str) -> None:
        """Remove a file that is no longer needed; it need not exist."""
        with self._opened(folder) as store:
            store.remove_file([*self._path(folder), name])

    def _path(self, folder: str) -> list[str]:
        return [self.root, self.cluster_id, *filter(None, folder.split("/"))]

    @contextmanager
    def _opened(self, folder: str) -> Iterator[SharedStore]:
        try:
            with open_store(self.store) as store:
                yield store
        except OSError as error:
            kind = FolderUnreadable if error.errno in _FOLDER_UNREADABLE else ServiceUnreachable
            raise kind(f"{folder} of {self._where()}: {error.strerror or error}") from error

    def _where(self) -> str:
        return f"{self.root}/{self.cluster_id} in {self.store}"


T = TypeVar("T")


ClusterId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
TopicId = Annotated[str, Field(pattern=f"^{records.ID_SHAPE}$")]
TopicName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
AgentId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Nonce = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
PlanId = Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")]
Path = Annotated[str, Field(min_length=1, max_length=4096)]
DirName = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^/\x00]+$")]
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Number = Annotated[int, Field(ge=0, le=(1 << 64) - 1)]
"""A device or inode number: unsigned, 64 bits."""
Node = Annotated[int, Field(ge=0, le=(1 << 31) - 1)]
LONGEST_WORDS = 2000
Words = Annotated[str, Field(max_length=LONGEST_WORDS)]
Kind = Literal["topics", "directories"]


@dataclass(frozen=True, slots=True)
class RequestedPartition:
    partition: Count
    replicas: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class RequestedTopic:
    """A topic of a `topics` request with its replicas as of the request or its decision."""

    topic: TopicName
    topic_id: TopicId
    partitions: tuple[RequestedPartition, ...]
    bytes: Count = 0


class UnknownSchema(LogAgentError):
    """A file with a valid signature and a schema that this version does not know."""

    slug = "schema"


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def encode(value: object) -> bytes:
    """Serialize a record as a payload."""
    return _adapter(type(value)).dump_json(value, exclude_defaults=True)


def decode(kind: type[T], payload: bytes) -> T:
    """Parse a record from its payload. Raises NotSigned for anything else."""
    try:
        read: T = _adapter(kind).validate_json(payload, strict=True)
    except ValidationError as error:
        title = getattr(kind, "__pydantic_config__", {}).get("title", kind.__name__)
        raise NotSigned(f"it is not one of our {title.lower()}s ({counted(error.error_count(), 'error')})") from error
    return read


def checked(kind: type[T], values: Mapping[str, object]) -> T:
    """A part of a record from its fields, checked as when it is read. Raises ValueError, which names the first wrong
    field."""
    try:
        part: T = _adapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return part


def moment(text: str) -> datetime:
    """Parse a time of a record, which was checked when it was read."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def moment_ms(text: str) -> int:
    return round(moment(text).timestamp() * 1000)


def payload_of(
    content: bytes, schema: str, keys: tuple[PublicKey, ...], cluster_id: str, *, retired: bool = False
) -> bytes:
    """What a trusted key signed as `schema`. Raises NotSigned, and UnknownSchema for another version of it. `retired`:
    as for `verify`."""
    found, payload = verify(content, keys, cluster_id, retired=retired)
    if found != schema:
        if found.partition("/")[0] == schema.partition("/")[0]:
            raise UnknownSchema(f"its schema is {found}, this version knows {schema}")
        raise NotSigned(f"it is a {found}, not a {schema}")
    return payload


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
    the same one if inode, topic id, partition and end are."""

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
        asked = human_time(moment(self.at))
        return f"it decides to delete at {human_time(at)}, not within a minute after the request ({asked})"

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
class RequestOutcome:
    """What came of each topic or directory of a request. Closes it for good."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(title="Outcome")  # as it is published

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
    outcome: RequestOutcome | None = None
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


def write_request(control: ControlFolder, request: Request, key: PrivateKey) -> str:
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


def decide(control: ControlFolder, decision: Decision, key: PrivateKey, keys: tuple[PublicKey, ...]) -> Decision:
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


def cancel_beside(control: ControlFolder, decision: Decision, key: PrivateKey, nonce: str) -> bool:
    """Cancel a request whose `decision.json` is something else: among all that are valid, a cancellation wins."""
    name = f"decision-{nonce}.json"
    return control.create(folder_of(decision.request_id), name, key.sign(DECISION_SCHEMA, encode(decision)))


def write_outcome(control: ControlFolder, outcome: RequestOutcome, key: PrivateKey) -> bool:
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


def read_outcome(content: bytes, number: str, keys: tuple[PublicKey, ...], cluster_id: str) -> RequestOutcome:
    """Verify and parse the outcome of a request. Raises NotSigned, UnknownSchema."""
    found = decode(RequestOutcome, payload_of(content, OUTCOME_SCHEMA, keys, cluster_id, retired=True))
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

    control: ControlFolder
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
