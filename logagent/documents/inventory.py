"""What is on a host and what it belongs to: `scan`, `explain`, `assignments export`."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from pydantic import ConfigDict, with_config

from logagent.documents.base import AsOf, Size, Time, TypedDict, strict
from logagent.model.assignments.image import Source
from logagent.model.assignments.verdict import VerdictReason
from logagent.model.claims import Claim, Witness
from logagent.model.outside import PlaceKind, Whose
from logagent.model.records import Health, HolderState, Kind, Verdict
from logagent.model.retention.reasons import RetentionReason
from logagent.model.retention.settings import Source as SetWhere


@strict
class LogDoubtDoc(TypedDict):
    """Why the metadata log on this host proves less than that of a tested release of Kafka, and what helps. `proves`:
    only that topics were deleted or created anew (`removals`), `nothing`, or `all` where only features were not tested
    that say nothing of partitions as far as is known."""

    proves: Literal["all", "removals", "nothing"]
    says: str
    hint: str


@strict
class AssignmentsUsed(TypedDict):
    """The assignments that the verdicts are based on. `source` is `none` if there were none. `ends_at_stop`: they end
    when this host's broker stopped, and why no living broker could be asked about what happened since."""

    source: Source | Literal["none"]
    cluster_id: str | None
    at: Time | None
    offset: int | None
    age_seconds: float | None
    topics: int
    partitions: int
    ends_at_stop: NotRequired[str]
    log_doubt: NotRequired[LogDoubtDoc]


@strict
class HolderDoc(TypedDict):
    state: HolderState
    pid: int | None
    start_time: Time | None


@strict
class Ledger(TypedDict):
    """What the bytes of a log dir's file system are used for. `size`, `used`, `free` and `unexplained` are of the file
    system, which log dirs with the same `device` share: add them up once. `unexplained` = used − what all of those log
    dirs have (may be negative)."""

    size: Size
    used: Size
    free: Size
    current: Size
    future: Size
    stray: Size
    delete: Size
    other: Size
    open_removed: Size
    unexplained: int


@strict
class LogDirDoc(TypedDict):
    """`device`: the number of its file system (it may be another one after a reboot), null where it is offline. Log
    dirs with the same one share its `size`, `used` and `free`."""

    path: str
    device: int | None
    directory_id: str | None
    health: Health
    reason: str | None
    holder: HolderDoc
    ledger: Ledger | None


@strict
class DirDoc(TypedDict):
    """`claim`, `witness`: what the verdict says and who said so, as of the time that the head gives for that witness;
    null where there is no verdict, or one that rests on nothing. `detail`: of strays and copies, what it rests on in
    words."""

    log_dir: str
    name: str
    kind: Kind
    topic: str | None
    topic_truncated: bool
    full_topic: str | None
    partition: int | None
    uuid: str | None
    topic_id: str | None
    bytes: Size
    allocated: Size
    files: Size
    segments: Size
    newest_mtime: Time | None
    marked_at: Time | None
    first_offset: int | None
    last_segment_offset: int | None
    sightings: int
    first_seen: Time | None
    in_use: bool | None
    verdict: Verdict | None
    reason: VerdictReason | None
    claim: NotRequired[Claim | None]
    witness: NotRequired[Witness | None]
    error: str | None
    detail: NotRequired[str | None]


@strict
class WithoutDirectoryDoc(TypedDict):
    """What is assigned to this node and has no current directory here. `only_copy`: no other replica is in sync; null
    if the assignments do not say. `future`: the path of its `-future` directory, null if there is none."""

    topic: str
    partition: int
    topic_id: str | None
    only_copy: bool | None
    future: NotRequired[str | None]


@strict
class ForgottenLogDirDoc(TypedDict):
    """A log dir that `log.dirs` does not name any more. `path` or `directory_id` is null where it is unknown.
    `partitions`: those that are assigned to it, or lie in it, and have no directory elsewhere here; a start makes them
    anew, empty. `known`: false where that is only possible. `only_copies`: how many of them are not known to have
    another replica in sync; null if no assignments were read."""

    path: str | None
    directory_id: str | None
    known: bool
    known_by: str
    partitions: list[str]
    only_copies: Size | None


@strict
class Scan(TypedDict):
    schema: Literal["logagent.scan/2"]
    at: Time
    host: str
    agent_version: str
    cluster_id: str | None
    node_id: int | None
    kafka_version: str | None
    assignments: AssignmentsUsed
    as_of: AsOf
    log_dirs: list[LogDirDoc]
    without_directory: NotRequired[list[WithoutDirectoryDoc]]
    forgotten_log_dirs: NotRequired[list[ForgottenLogDirDoc]]
    dirs: list[DirDoc]


@strict
class NameDoc(TypedDict):
    """What Kafka makes of a directory name. `valid`: whether a broker starts if a log dir has a directory of this name;
    `error`: why not."""

    schema: Literal["logagent.explain/1"]
    name: str
    kind: Kind
    topic: str | None
    partition: int | None
    uuid: str | None
    topic_truncated: bool
    valid: bool
    error: str | None


@strict
class SettingDoc(TypedDict):
    """`key` and `value` as they are set, and where: `unknown` where nothing that was read says."""

    key: str
    value: str | None
    source: SetWhere


@strict
class GroupDoc(TypedDict):
    """Bytes of one directory that stay for one reason. `bytes`: file sizes, of segments that of their `.log`;
    `allocated`: on disk, with the segments' other files. `at`: when the first of them go, at the earliest, `last_at`
    the last; null if no date is known. `first`: what must happen before."""

    reason: RetentionReason
    bytes: Size
    allocated: Size
    segments: Size
    first_offset: int | None
    at: Time | None
    last_at: Time | None
    setting: SettingDoc | None
    first: str | None


@strict
class ExplainedDirDoc(TypedDict):
    """`verdict`, `reason`, `claim`, `witness`: whose it is, as in `logagent.scan/2`. `role`: what this node was for the
    partition when the assignments were read; null if they do not say, or it is no replica."""

    log_dir: str
    name: str
    kind: Kind
    topic: str | None
    partition: int | None
    topic_id: str | None
    role: Literal["leader", "follower"] | None
    allocated: Size
    verdict: Verdict | None
    reason: VerdictReason | None
    claim: Claim | None
    witness: Witness | None
    groups: list[GroupDoc]


@strict
class ReasonSumDoc(TypedDict):
    """The bytes of a file system that stay for one reason, by one setting. `allocated` may be negative for
    `unexplained`. `first`: null also where it differs between directories. `largest`: the path of the directory that
    has most of them."""

    reason: RetentionReason
    bytes: Size
    allocated: int
    segments: Size
    directories: Size
    at: Time | None
    last_at: Time | None
    setting: SettingDoc | None
    first: str | None
    largest: str | None


@strict
class PlaceDoc(TypedDict):
    """Where bytes outside the log dirs are. `kind`: `remainder` is what is in a directory besides its parts that are
    listed themselves. `files`: all but directories."""

    path: str
    kind: PlaceKind
    allocated: Size
    files: Size


@strict
class OtherLogDirDoc(TypedDict):
    """A log dir that is not in `log.dirs`. `whose`: by its `meta.properties`, of which `cluster_id` and `node_id` are;
    `unknown` where it has none that can be read, and is known by its partition directories. `partitions`: those with
    segments. `in_use`: a process has its lock."""

    path: str
    whose: Whose
    cluster_id: str | None
    node_id: int | None
    partitions: Size
    allocated: Size
    in_use: bool


@strict
class OutsideDoc(TypedDict):
    """What was counted below `root`, the mount point, outside the log dirs, within its time: allocated bytes, each file
    once, no symlink followed and no other file system entered. `log_dirs`, `places`: the 20 largest of each; `rest`:
    what is in none of them, in `rest_files`. `unread_directories`: how many could not be read. `unfinished`: why it is
    not everything; null if it is."""

    root: str
    log_dirs: list[OtherLogDirDoc]
    places: list[PlaceDoc]
    rest: Size
    rest_files: Size
    unread_directories: Size
    unfinished: str | None


@strict
class FileSystemDoc(TypedDict):
    """`used` is the sum of what `reasons` have allocated. `outside`: what the reason `unexplained` consists of; absent
    with `--log-dirs-only`."""

    log_dirs: list[str]
    size: Size
    used: Size
    free: Size
    reasons: list[ReasonSumDoc]
    outside: NotRequired[OutsideDoc]


@strict
class ExplainedLogDirDoc(TypedDict):
    """`waits_for`: what must happen before anything goes from this log dir; null if its broker deletes now.
    `cordoned`: whether it is in `cordoned.log.dirs` (it gets no new partitions, and retention goes on)."""

    path: str
    health: Health
    waits_for: str | None
    cordoned: bool


@strict
class NotConsideredDoc(TypedDict):
    """A setting whose name is like those that keep or take segments, and which logagent does not take into account.
    `topics`: that have this value; empty for a broker's."""

    setting: SettingDoc
    topics: list[str]


@strict
class ExplainDoc(TypedDict):
    """`names`: how Kafka parses each NAME; `dirs`: the directories that they mean. `file_systems`: without NAMEs.
    `not_considered`: what is set of the topics that are explained and of this broker. `settings_as_of`: when the
    metadata log ends from which the settings of topics are; null if they are not known, and the defaults are taken for
    them."""

    schema: Literal["logagent.explain/2"]
    at: Time
    host: str
    cluster_id: str | None
    node_id: int | None
    settings_as_of: Time | None
    as_of: AsOf
    names: list[NameDoc]
    log_dirs: list[ExplainedLogDirDoc]
    dirs: list[ExplainedDirDoc]
    file_systems: list[FileSystemDoc]
    not_considered: NotRequired[list[NotConsideredDoc]]


@strict
class BrokerDoc(TypedDict):
    node_id: int
    directory_ids: list[str]
    fenced: NotRequired[bool | None]


@strict
class UncommittedDoc(TypedDict):
    topic_id: str
    partition: int | None


@strict
class PartitionDoc(TypedDict):
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    isr: list[int]
    directories: list[str]


@strict
class TopicDoc(TypedDict):
    topic: str
    topic_id: str | None
    partitions: list[PartitionDoc]


@with_config(ConfigDict(extra="allow", strict=True))
class AssignmentsDoc(TypedDict):
    schema: Literal["logagent.assignments/1"]
    cluster_id: str | None
    at: Time
    known_until: NotRequired[Time]
    source: Source
    offset: int | None
    metadata_version: NotRequired[Any]
    brokers: list[BrokerDoc]
    uncommitted: NotRequired[list[UncommittedDoc]]
    topics: list[TopicDoc]
