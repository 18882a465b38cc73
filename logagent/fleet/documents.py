"""What the fleet job prints and what manifests hold, as models: for `logagent schema` and the tests."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, RootModel

from logagent.documents.base import Document, Size, Time
from logagent.documents.inventory import Assignments, DirDoc, LogDirDoc

DateText = str


class ReportAssignments(Document):
    source: str | None
    at: Time
    age_seconds: float
    topics: int
    partitions: int


class ReportCluster(Document):
    """`verdicts` is `unknown` where there are no usable assignments; `why` says so."""

    cluster_id: str
    hosts: int
    unknown_hosts: int
    assignments: ReportAssignments | None
    verdicts: Literal["decided", "unknown"]
    why: str | None


class UnknownHost(Document):
    cluster_id: str
    node_id: int
    why: str


class ReportHosts(Document):
    """`unknown` may be cut; `unknown_total` is their number, and the table `log_dir_health` has them all."""

    reporting: int
    unknown: list[UnknownHost]
    unknown_total: int


class ReportTotals(Document):
    """Bytes of the directories, of the ledgers (`current` … `other`) and of orphans; the rest are counts."""

    bytes: Size
    allocated: Size
    current: Size
    future: Size
    stray: Size
    delete: Size
    other: Size
    orphans: int
    orphan_bytes: Size
    missing_replicas: int
    duplicates: int
    leftovers: int


class ReportTable(Document):
    """Paths are relative to the report directory; `shown` rows of `rows` are on the page."""

    rows: int
    csv: str | None
    parquet: str
    shown: int


class FleetReport(Document):
    schema_: Literal["logagent.fleet-report/1"] = Field(alias="schema")
    run_id: str
    at: Time
    as_of: Time
    date: DateText
    clusters: list[ReportCluster]
    hosts: ReportHosts
    totals: ReportTotals
    tables: dict[str, ReportTable]
    warnings: list[str]


class IngestedDate(Document):
    date: DateText
    taken: int
    superseded: int
    waiting: int
    rejected: int
    rows: int


class FleetIngest(Document):
    schema_: Literal["logagent.fleet-ingest/1"] = Field(alias="schema")
    dates: list[IngestedDate]
    trimmed: list[DateText]


class Manifest(Document):
    """Vouches for one file of landing: `rows` counts all its lines, `bytes` and `sha256` are of the compressed file."""

    schema_: Literal["logagent.manifest/1"] = Field(alias="schema")
    snapshot_id: str
    kind: Literal["snapshot", "assignments"]
    cluster_id: str
    node_id: int | None
    host: str
    at: Time
    rows: int
    bytes: Size
    sha256: str


class SnapshotHead(Document):
    """The first line of a snapshot file: who saw what follows, and when."""

    row: Literal["snapshot"]
    schema_: Literal["logagent.snapshot/1"] = Field(alias="schema")
    snapshot_id: str
    at: Time
    host: str
    cluster_id: str
    node_id: int
    agent_version: str
    kafka_version: str | None
    assignments: Assignments | None


class SnapshotLogDir(LogDirDoc):
    row: Literal["log_dir"]


class SnapshotDir(DirDoc):
    row: Literal["dir"]


class SnapshotLine(RootModel[SnapshotHead | SnapshotLogDir | SnapshotDir]):
    """One line of a snapshot file, by its `row`: first the head, then a line per log dir and per directory."""

    root: SnapshotHead | SnapshotLogDir | SnapshotDir = Field(discriminator="row")


SCHEMAS: dict[str, type[BaseModel]] = {
    "fleet-report": FleetReport,
    "fleet-ingest": FleetIngest,
    "snapshot": SnapshotLine,
    "manifest": Manifest,
}
