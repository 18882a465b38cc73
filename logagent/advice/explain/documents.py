"""Why bytes are still on disk, and what Kafka makes of a name: `explain`."""

from __future__ import annotations

from typing import Literal, NotRequired

from logagent.advice.explain.rules import OtherLogDirDoc, OutsideDoc, PlaceDoc
from logagent.base.claims import Claim, Witness
from logagent.base.documents import AsOf, Size, Time, TypedDict, strict
from logagent.base.records import Health, Kind, SetBy, Verdict
from logagent.kafka.retention.reasons import RetentionReason
from logagent.verdict.rules import VerdictReason


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
    source: SetBy


@strict
class GroupDoc(TypedDict):
    """Bytes of one directory that stay for one reason. `bytes`: file sizes, of segments that of their `.log`;
    `allocated`: on disk, with the segments' other files. `at`: when the first of them go, at the earliest, `last_at`
    the last; null if no date is known. `first`: what must happen before; where it begins with "or", it may come
    before the date."""

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
class HeldLogDoc(TypedDict):
    """A log as its running broker has it: `bytes` of its segments; `offset_lag`: how many records it is behind (a
    future one: behind the current one)."""

    bytes: Size
    offset_lag: int


@strict
class ExplainedDirDoc(TypedDict):
    """`verdict`, `reason`, `claim`, `witness`: whose it is, as in `logagent.scan/2`. `role`: what this node was for the
    partition when the assignments were read; null if they do not say, or it is no replica. `broker`: null if it has no
    such log, or did not say (`broker_unknown`)."""

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
    broker: HeldLogDoc | None


@strict
class ReasonSumDoc(TypedDict):
    """The bytes of a file system that stay for one reason, by one setting. `allocated` may be negative for
    `unexplained`. `first`: null also where it differs between directories. `largest`: the path of the directory, or
    of the file that Kafka did not write, that has most of them."""

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


# Values that are their own documents.
for _value in (PlaceDoc, OtherLogDirDoc, OutsideDoc):
    strict(_value)


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
    `cordoned`: whether it is in `cordoned.log.dirs` (it gets no new partitions, and retention goes on). `unread`: its
    checkpoint files that are damaged: what they say is not known."""

    path: str
    health: Health
    waits_for: str | None
    cordoned: bool
    unread: NotRequired[list[str]]


@strict
class NotConsideredDoc(TypedDict):
    """A setting whose name is like those that keep or take segments, and which logagent does not take into account.
    `topics`: that have this value; empty for a broker's."""

    setting: SettingDoc
    topics: list[str]


@strict
class WhatIfDoc(TypedDict):
    """What the rules say of a topic in one log dir, if it had `settings` of its own; nothing is changed. Allocated
    bytes that the next checks would delete only then (`goes`), then and now (`goes_anyway`), and now only
    (`stays_after_all`). `changed`, `unchanged`: why the other segments stay, and until when, otherwise than now or as
    now. `command`: sets it for good."""

    topic: str
    log_dir: str
    directories: Size
    settings: list[SettingDoc]
    goes: Size
    goes_anyway: Size
    stays_after_all: Size
    changed: list[ReasonSumDoc]
    unchanged: list[ReasonSumDoc]
    command: str


@strict
class ExplainDoc(TypedDict):
    """`names`: how Kafka parses each NAME; `dirs`: the directories that they mean. `file_systems`: without NAMEs.
    `not_considered`: what is set of the topics that are explained and of this broker. `settings_as_of`: when the
    metadata log ends from which the settings of topics are; null if they are not known, and the defaults are taken for
    them. `checks`: how often retention is checked, and how often the log cleaner looks at compacted topics. `what_if`:
    only with `--what-if`. `settings_unknown`: why the broker's own settings, and Kafka's defaults, are not known; null
    if they are: the running broker said them, or its file is older than its start. `broker_unknown`: what the running
    broker was asked in vain about its logs, and why."""

    schema: Literal["logagent.explain/2"]
    at: Time
    host: str
    cluster_id: str | None
    node_id: int | None
    settings_as_of: Time | None
    as_of: AsOf
    checks: NotRequired[list[SettingDoc]]
    names: list[NameDoc]
    log_dirs: list[ExplainedLogDirDoc]
    dirs: list[ExplainedDirDoc]
    file_systems: list[FileSystemDoc]
    not_considered: NotRequired[list[NotConsideredDoc]]
    settings_unknown: NotRequired[str | None]
    broker_unknown: NotRequired[list[str]]
    what_if: NotRequired[list[WhatIfDoc]]
