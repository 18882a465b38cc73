"""What agents publish in the fleet store, each defined once: manifests, and the lines of snapshots.

`store/snapshots.py` says how a snapshot is read from its changes and its base.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, Required

from pydantic import Field

from logagent.advice.documents import LogDirDoc
from logagent.base.documents import Size, Time, TypedDict, strict
from logagent.base.records import Kind, Verdict
from logagent.verdict.evidence.documents import AssignmentsUsed
from logagent.verdict.rules import VerdictReason

Millis = int


@strict
class BaseNamed(TypedDict):
    """The whole snapshot of the same folder that a delta changes; `sha256` is that of its manifest."""

    snapshot_id: str
    sha256: str


@strict
class Manifest(TypedDict):
    """Vouches for one file of landing: `rows` counts all its lines, `bytes` and `sha256` are of the compressed file. A
    delta is a snapshot that has only what has changed since its `base`. `boot_id`: of the machine that took a
    snapshot; `booted_at`: when that boot began, by the same clock as `at`; `directory_ids`: of its log dirs, where
    they have one (Kafka 3.7 on)."""

    schema: Literal["logagent.manifest/1"]
    snapshot_id: str
    kind: Literal["snapshot", "delta", "assignments"]
    cluster_id: str
    node_id: int | None
    host: str
    at: Time
    rows: int
    bytes: Size
    sha256: str
    base: NotRequired[BaseNamed]
    boot_id: NotRequired[str]
    booted_at: NotRequired[Time]
    directory_ids: NotRequired[list[str]]


@strict
class ImageUsed(TypedDict):
    """An image of the assignments: `at` and `offset` say how recent it is (`offset`: of the metadata log)."""

    source: str
    at: Time
    offset: int | None


@strict
class ImagesUsed(TypedDict):
    before: ImageUsed
    after: ImageUsed


class SnapshotHead(TypedDict):
    """The first line of a snapshot file: who saw what follows, and when.

    `mode`: cleanup.mode; `accepts`: ids of the keys whose requests the agent carries out, with commas between them;
    none: orders.accept is false, or it has no key. `began`: when the inventory did. `images`: the assignments as
    they were read before it and after it, where both are of one source and one lineage. `absent`: how many `absent`
    lines there are; null where no image or not every log dir could be read, so that it is not known what is
    missing.
    `as_of`: of each source that verdicts rest on, until when it is known. `seen`: ids of the deletion requests without
    an outcome that the agent knew before it looked at its disks. Of a delta, `dirs` and `dirs_sha256` are the number of
    the `dir` lines that its base and its changes give together, and the SHA-256 of their text in that order, without
    line ends.
    """

    row: Literal["snapshot"]
    schema: Literal["logagent.snapshot/3"]
    snapshot_id: str
    at: Time
    host: str
    cluster_id: str
    node_id: int
    agent_version: str
    kafka_version: str | None
    boot_id: str | None
    assignments: AssignmentsUsed | None
    as_of: dict[str, Time]
    seen: list[str]
    mode: NotRequired[Literal["report", "enforce"]]
    accepts: NotRequired[str]
    began: NotRequired[Time | None]
    images: NotRequired[ImagesUsed | None]
    absent: NotRequired[int | None]
    base: BaseNamed | None
    dirs: NotRequired[int]
    dirs_sha256: NotRequired[str]


class SnapshotLogDir(LogDirDoc):
    row: Literal["log_dir"]


class SnapshotAbsent(TypedDict):
    """A replica that both `images` of the head assign to this node, and of which no log dir has a current or future
    directory, though every one was read, nor one that is marked for deletion. `left`: whether one that was set aside
    is there; null: nothing is."""

    row: Literal["absent"]
    topic: str
    topic_id: str | None
    partition: int
    left: Literal["stray"] | None


class SnapshotDir(TypedDict, total=False):
    """A directory as `logagent scan` has it, its times in milliseconds since 1970; and what only snapshots have. What
    is null there is left out.

    `window`: when the agent's next step on it is open (now, at the broker's next restart, with approval, later),
    `due_at`: when that is or was, `obstacle`: the guard or rule that prevents it, `obstacle_detail`: in a sentence,
    where one word does not say it, `covered`: whether another copy contains what a stray contains. `claim`: what its
    verdict rests on, `witness`: the source that says so (see `as_of` of the head). `inode` and, of orphans and strays,
    `end_offset` (where its log ends) tell it from another directory of the same name.
    """

    row: Required[Literal["dir"]]
    log_dir: Required[str]
    name: Required[str]
    kind: Required[Kind]
    topic: str
    topic_truncated: bool
    full_topic: str
    partition: int
    uuid: str
    topic_id: str
    inode: int
    marked_at: Millis
    first_seen: Millis
    in_use: bool
    verdict: Verdict
    reason: VerdictReason
    claim: str
    witness: str
    error: str
    window: Literal["now", "restart", "approval", "later"]
    due_at: Millis
    covered: Literal["yes", "no", "unknown"]
    obstacle: str
    obstacle_detail: str
    bytes: Required[Size]
    allocated: Required[Size]
    files: Size
    segments: Size
    sightings: int
    newest_mtime: Millis
    first_offset: int
    last_segment_offset: int
    end_offset: int


class SnapshotChanges(TypedDict):
    """Of a delta: the directories of its base that are not as they were, in its order. Each is an array: how many after
    the last one are as they were; then by how much each number of its line, from `bytes` on, has grown (`allocated`: by
    how much more than `bytes`), without the zeros at the end. One without such numbers is gone. Directories that are
    new follow as `dir` lines."""

    row: Literal["changes"]
    dirs: list[list[int]]


SnapshotLine = Annotated[
    SnapshotHead | SnapshotLogDir | SnapshotAbsent | SnapshotDir | SnapshotChanges, Field(discriminator="row")
]
"""One line of a snapshot file, by its `row`: first the head, then a line per log dir, per replica that is absent, and
per directory."""


SCHEMAS: dict[str, Any] = {"snapshot": SnapshotLine, "manifest": Manifest}
