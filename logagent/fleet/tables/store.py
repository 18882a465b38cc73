"""The fleet store: landing, runs, and the commits that say which run counts for a date.

`landing/` is written by the agents. What a run writes is not read until `commits/<date>/<n>.json` names it, file by
file, with bytes and rows. That file is created only if absent and never overwritten; the highest valid one of a date
counts. So readers list nothing, a killed ingest leaves the last complete run in force, and a report uses a single run
from its first to its last byte.

Large tables are Parquet, in `tables/<table>/run=<run>/`: each table has a root, beside which `delta_log.py` says for
other programs which files count. Tables bounded by hosts and log dirs are JSON lines (`SMALL`) in
`runs/<run>/<table>/`, which the driver reads without a Spark job.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from logagent.base.errors import Busy, ServiceUnreachable, UnreadableError
from logagent.base.files.safe_open import parse_json
from logagent.fleet.tables.files import Files, literal
from logagent.fleet.tables.frames import STORE, local_frame, shaped
from logagent.store.contract import LEDGER, OWN_LEDGER, as_date

COMMIT_SCHEMA = "logagent.commit/2"
_BEFORE = "logagent.commit/1"
SMALL = ("files", "log_dirs", "nodes", "quarantine", "choice")
LATER = ("acts",)
"""Tables that commits of earlier builds lack: that they have no rows there says nothing of their date."""
_RUN = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{12}")
Row = dict[str, Any]


@dataclass(frozen=True)
class Commit:
    """Which run counts for a date. `tables`: the files of each table, each `{file, bytes, rows}`."""

    day: date
    number: int
    run: str
    at: str
    tables: dict[str, list[Row]]
    trimmed: bool = False
    late: list[Row] = field(default_factory=list)

    def document(self) -> Row:
        return {
            "schema": COMMIT_SCHEMA,
            "date": self.day.isoformat(),
            "run": self.run,
            "at": self.at,
            "tables": self.tables,
            "trimmed": self.trimmed,
            "late": self.late,
        }

    def folder(self, table: str) -> str:
        return folder_of(self.run, table)

    def rows(self, table: str) -> int:
        return sum(int(each["rows"]) for each in self.tables[table])


def folder_of(run: str, table: str) -> str:
    """Where the files of a table are, below the store."""
    return f"tables/{table}/run={run}" if table in STORE else f"runs/{run}/{table}"


def parsed_commit(content: bytes, day: date, number: int) -> Commit | None:
    """The commit, if the file is complete and of that date, else None. Raises `UnreadableError` for one of a build from
    before the first release: to go on to an older commit, or to none, would be to take its date for another one."""
    try:
        read = parse_json(content)
        schema = str(read["schema"])
        if not schema.startswith("logagent.commit/") or read["date"] != day.isoformat():
            return None
        tables: dict[str, list[Row]] = {str(name): [dict(one) for one in each] for name, each in read["tables"].items()}
        tables = {**{name: [] for name in LATER}, **tables}
        lacks = sorted({*STORE, *SMALL} - tables.keys())
        if schema == _BEFORE or (schema == COMMIT_SCHEMA and lacks):
            what = schema if schema == _BEFORE else f"it has no {', '.join(lacks)}"
            raise UnreadableError(
                f"commits/{day}/{number}.json was written by a build from before the first release ({what}; this one"
                f" reads {COMMIT_SCHEMA})",
                hint=f"move commits/{day} out of the store; `logagent fleet ingest --date {day}` makes it anew while"
                " landing has that date",
            )
        if _RUN.fullmatch(read["run"]) is None or lacks:
            return None
        for each in (one for files in tables.values() for one in files):
            if "/" in each["file"] or int(each["bytes"]) < 0 or int(each["rows"]) < 0:
                return None
        if datetime.fromisoformat(read["at"]).tzinfo is None:
            return None
        late = list(read["late"])
        return Commit(day, number, read["run"], read["at"], tables, bool(read["trimmed"]), late)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


@dataclass(frozen=True)
class Store:
    """One store. `uri` is qualified and has no slash at its end."""

    spark: SparkSession
    files: Files
    uri: str

    @classmethod
    def open(cls, spark: SparkSession, path: str) -> Store:
        """Raises `ServiceUnreachable` if there is nothing at `path`."""
        files = Files(spark)
        uri = files.qualify(path)
        if not files.exists(uri):
            raise ServiceUnreachable(f"there is no fleet store at {uri}", hint="check --store, and that it is mounted")
        return cls(spark, files, uri)

    @property
    def landing(self) -> str:
        return f"{self.uri}/landing"

    def new_run(self) -> Run:
        return Run(self, f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid4().hex[:12]}")

    # Commits

    def dates(self) -> list[date]:
        """Dates that were ingested, oldest first."""
        return sorted(self._commits)

    @cached_property
    def _commits(self) -> dict[date, list[int]]:
        """Commit numbers of each date, highest first."""
        found: dict[date, list[int]] = {}
        for path in self.files.paths(f"{self.uri}/commits"):
            folder, _, name = path.partition("/")
            day, number = as_date(folder), name.removesuffix(".json")
            if day is not None and re.fullmatch(r"[1-9][0-9]{0,8}", number):
                found.setdefault(day, []).append(int(number))
        return {day: sorted(numbers, reverse=True) for day, numbers in found.items()}

    def refresh(self) -> None:
        """Lists the commits again."""
        self.__dict__.pop("_commits", None)

    def commit_of(self, day: date, number: int | None = None) -> Commit | None:
        """The commit that counts for a date (or commit `number`), None if the date was not ingested."""
        return next(self._valid(day, self._commits.get(day, []) if number is None else [number]), None)

    def commits_of(self, day: date) -> Iterator[Commit]:
        """The valid commits of a date, the one that counts first."""
        return self._valid(day, self._commits.get(day, []))

    def _valid(self, day: date, numbers: Iterable[int]) -> Iterator[Commit]:
        for each in numbers:
            try:
                content = self.files.read(f"{self.uri}/commits/{day}/{each}.json")
            except (OSError, Py4JError, UnreadableError):
                continue
            if (commit := parsed_commit(content, day, each)) is not None:
                yield commit

    def add_commit(self, commit: Commit) -> None:
        """Makes a run count, with a number above `commit.number`. Raises `LogAgentError` if another ingest was
        first."""
        uri = f"{self.uri}/commits/{commit.day}/{commit.number}.json"
        if not self.files.create_new(uri, json.dumps(commit.document()).encode() + b"\n"):
            raise Busy(f"another ingest has committed {commit.day} meanwhile", hint="run `logagent fleet ingest` again")
        self.__dict__.pop("_commits", None)

    def next_number(self, day: date) -> int:
        return max(self._commits.get(day, []), default=0) + 1

    def commits(self) -> dict[date, Commit]:
        """The commit that counts for each date, oldest first."""
        found = ((day, self.commit_of(day)) for day in self.dates())
        return {day: commit for day, commit in found if commit is not None}

    # Runs

    def runs(self) -> list[str]:
        """Names of all runs of which there are files, committed or not, sorted."""
        names = set(self.files.names(f"{self.uri}/runs"))
        for table in STORE:
            found = self.files.names(f"{self.uri}/tables/{table}")
            names |= {name.removeprefix("run=") for name in found if name.startswith("run=")}
        return sorted(name for name in names if _RUN.fullmatch(name))

    def delete_run(self, run: str) -> None:
        """Removes all files of a run. Raises OSError, Py4JError."""
        for table in STORE:
            self.files.delete(f"{self.uri}/{folder_of(run, table)}")
        self.files.delete(f"{self.uri}/runs/{run}")

    # Tables

    def read(self, name: str, commits: Iterable[Commit]) -> DataFrame:
        """Rows of a Parquet table. Raises `UnreadableError` for a file that differs from its commit."""
        paths = []
        for commit in commits:
            for each in commit.tables[name]:
                uri = f"{self.uri}/{commit.folder(name)}/{each['file']}"
                if self.files.size(uri) != each["bytes"]:
                    raise _damaged(commit.day, f"{name}/{each['file']} of run {commit.run} is gone or changed")
                if each["rows"]:
                    paths.append(uri)
        if not paths:
            return local_frame(self.spark, [], STORE[name])
        return shaped(self.spark.read.schema(STORE[name]).parquet(*map(literal, paths)), STORE[name])

    def small(self, name: str, commit: Commit) -> list[Row]:
        """Rows of a small table. Raises `UnreadableError` as `read` does."""
        (each,) = commit.tables[name]
        try:
            packed = self.files.read(f"{self.uri}/{commit.folder(name)}/{each['file']}")
            whole = len(packed) == each["bytes"]
            lines = gzip.decompress(packed).splitlines() if whole and packed else []
            rows: list[Row] = parse_json(b"[" + b",".join(lines) + b"]")
        except (OSError, EOFError, ValueError, Py4JError) as error:
            raise _damaged(commit.day, f"{name} of run {commit.run} cannot be read") from error
        if not whole or len(rows) != each["rows"]:
            raise _damaged(commit.day, f"{name} of run {commit.run} has {len(rows)} of {each['rows']} rows")
        return rows

    def log_dirs(self, commit: Commit) -> list[Row]:
        """Rows of `log_dirs`. A log dir of which only directories were listed has no ledger and no health: null."""
        none = dict.fromkeys((*LEDGER, "directory_id", "health", "reason", "device"))
        return by_file_system([none | row for row in self.small("log_dirs", commit)])


def by_file_system(rows: list[Row]) -> list[Row]:
    """Ledgers in which what log dirs have in common counts once. Of log dirs of a host on one file system all but the
    first name that one in `shares_with`; it alone has what is unexplained on the file system: what is used there and in
    none of them."""
    together: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        if row["device"] is not None and row["used"] is not None and row["unexplained"] is not None:
            together.setdefault((row["cluster_id"], row["node_id"], row["device"]), []).append(row)
    for first, *others in together.values():
        known = sum(row.get(name) or 0 for row in (first, *others) for name in OWN_LEDGER)
        first["unexplained"] = first["used"] - known
        for row in others:
            row |= {"unexplained": 0, "shares_with": first["log_dir"]}
    return rows


def _damaged(day: date, what: str) -> UnreadableError:
    return UnreadableError(
        f"a file of the store is damaged: {what}",
        hint=f"run `logagent fleet ingest --date {day}` again: landing is the source",
    )


@dataclass
class Run:
    """A run that is being written. Nobody reads it before it is committed."""

    store: Store
    name: str
    tables: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        """Where its small tables are, and what it needs while it is written."""
        return f"{self.store.uri}/runs/{self.name}"

    def write(self, table: str, frame: DataFrame) -> DataFrame:
        """Writes a Parquet table (replacing it if it was written before); returns what was written, to continue
        from."""
        folder = f"{self.store.uri}/{folder_of(self.name, table)}"
        shaped(frame, STORE[table]).write.mode("overwrite").parquet(folder)
        files = self.store.files
        self.tables[table] = [
            {"file": name, "bytes": files.size(f"{folder}/{name}"), "rows": rows}
            for name, rows in files.parquet_files(folder).items()
        ]
        return self.read(table)

    def write_none(self, table: str) -> None:
        """A Parquet table without rows, without a file."""
        self.tables[table] = []

    def read(self, table: str) -> DataFrame:
        return self.store.read(table, [self.as_commit(date.min, 0)])

    def count(self, table: str) -> int:
        return sum(each["rows"] for each in self.tables[table])

    def write_small(self, table: str, rows: Sequence[Row]) -> None:
        packed = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), 6, mtime=0)
        self.store.files.write(f"{self.uri}/{table}/{table}.jsonl.gz", packed)
        self.tables[table] = [{"file": f"{table}.jsonl.gz", "bytes": len(packed), "rows": len(rows)}]

    def as_commit(self, day: date, number: int) -> Commit:
        return Commit(day, number, self.name, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.000Z}", self.tables)

    def drop(self) -> None:
        """Removes what was written: it will not be committed."""
        with suppress(OSError, Py4JError):
            self.store.delete_run(self.name)
