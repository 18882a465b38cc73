"""A Delta log beside each Parquet table of the store, for Spark, DuckDB, Polars and whatever else reads Delta tables.

`tables/<table>/_delta_log/<version>.json` says which files count, as Delta's protocol has it (`PROTOCOL.md` of
github.com/delta-io/delta: actions, checkpoints, table features). It follows from the commits: nothing in logagent reads
a table through it, and an ingest that cannot write it succeeds. A version takes away the files of the runs that no
longer count and adds those that do, and notes which run that is for each date. So the next ingest, of whatever date,
sees from the newest version alone what an ingest that was killed has left out.

`date` is a partition column: it is in the log, not in the files. No other program may write to these tables: the
protocol names a feature that none of them has, and what follows the protocol refuses.

Growth: after `CHECKPOINT_EVERY` versions a checkpoint says everything once more, so readers open few files; what is
before a checkpoint that is older than `KEEP_LOG` goes.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from urllib.parse import quote
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from logagent import __version__
from logagent.base.errors import Busy, LogAgentError, UnreadableError
from logagent.base.files.safe_open import parse_json
from logagent.fleet.tables.frames import STORE, fields, local_frame
from logagent.fleet.tables.store import Commit, Row, Store, folder_of

CHECKPOINT_EVERY = 50
KEEP_LOG = timedelta(days=30)
"""As long as Delta's own writers keep their log by default."""
MAX_TRIES = 3
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["logagent-store"]}
_TYPES = {"string": "string", "int": "integer", "bigint": "long", "boolean": "boolean", "timestamp": "timestamp"}
_VERSION = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")
_CHECKPOINT = """
    protocol struct<minReaderVersion:int,minWriterVersion:int,writerFeatures:array<string>>,
    metaData struct<id:string,name:string,format:struct<provider:string,options:map<string,string>>,
        schemaString:string,partitionColumns:array<string>,configuration:map<string,string>,createdTime:bigint>,
    add struct<path:string,partitionValues:map<string,string>,size:bigint,modificationTime:bigint,dataChange:boolean,
        stats:string>
"""
Warn = Callable[[str], None]


def log_folder(table: str) -> str:
    """Where the log of a table is, below the store."""
    return f"tables/{table}/_delta_log"


def schema_string(table: str) -> str:
    """The schema of a table as Delta has it: the columns of its files, and `date`."""
    kinds = [(name, _type(kind)) for name, kind in fields(STORE[table])] + [("date", "date")]
    columns = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds]
    return json.dumps({"type": "struct", "fields": columns})


def _type(kind: str) -> object:
    element = re.fullmatch(r"array<(\w+)>", kind)
    if element is None:
        return _TYPES[kind]
    return {"type": "array", "elementType": _TYPES[element[1]], "containsNull": True}


@dataclass(frozen=True)
class Noted:
    """What a version notes of itself: `runs` has the run of each date whose files count, `schema` stands for the
    table's schema, `id` and `created` (milliseconds) are the table's."""

    version: int
    id: str
    created: int
    schema: int
    runs: dict[date, str]

    def document(self) -> Row:
        runs = {day.isoformat(): run for day, run in sorted(self.runs.items())}
        return {"id": self.id, "created": self.created, "schema": self.schema, "runs": runs}


class DeltaLogs:
    """The Delta logs of a store. `warn` is told once of each table whose log cannot be written."""

    def __init__(self, store: Store, warn: Warn) -> None:
        self._warn = warn
        self._logs = [DeltaLog(store, table) for table in STORE]

    def follow(self, commits: Mapping[date, Commit]) -> None:
        """Brings every log into line with the commits that count, one for each date. Raises nothing of what stands in
        its way."""
        for log in list(self._logs):
            try:
                log.follow(commits)
            except (OSError, Py4JError, PySparkException, LogAgentError) as error:
                first = (str(error).splitlines() or [type(error).__name__])[0]
                self._warn(f"the Delta log of the table {log.table} is behind, the store is whole: {first}")
                self._logs.remove(log)


@dataclass
class DeltaLog:
    """The log of one table. Only the holder of the ingest lock writes it."""

    store: Store
    table: str
    _last: Noted | None = field(default=None, init=False)
    """The newest version, once it was read or written."""

    @property
    def uri(self) -> str:
        return f"{self.store.uri}/{log_folder(self.table)}"

    def follow(self, commits: Mapping[date, Commit]) -> None:
        """Writes a version if other files count than the newest one says. A date that has commits of which none can be
        read now stays as it is.

        Raises `UnreadableError` for a log that is damaged, `Busy` if somebody else writes it, and what file systems
        and Spark raise.
        """
        for _ in range(MAX_TRIES):
            last = self._last or self._newest()
            if last is None and not commits:
                return
            actions, noted = self._next(last, commits)
            if not actions:
                self._last = last
                return
            content = "".join(json.dumps(action) + "\n" for action in actions).encode()
            if self.store.files.create_new(f"{self.uri}/{noted.version:020}.json", content):
                self._last = noted
                self._checkpoint(noted, commits)
                return
            self._last = None
        raise Busy(f"somebody else writes {self.uri}", hint="only `logagent fleet ingest` may")

    def _newest(self) -> Noted | None:
        """What the newest version notes; None before the first one."""
        versions = self._names("json")
        if not versions:
            return None
        uri = f"{self.uri}/{versions[-1]:020}.json"
        try:
            noted = parse_json(self.store.files.read(uri).splitlines()[0])["commitInfo"]["logagent"]
            runs = {date.fromisoformat(day): str(run) for day, run in noted["runs"].items()}
            return Noted(versions[-1], str(noted["id"]), int(noted["created"]), int(noted["schema"]), runs)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            hint = "remove the folder _delta_log: the next ingest writes it again, without the versions before"
            raise UnreadableError(f"{uri} is damaged; {hint}") from error

    def _names(self, kind: str) -> list[int]:
        """The versions with a file of this kind, ascending."""
        found = (_VERSION.fullmatch(name) for name in self.store.files.names(self.uri))
        return sorted(int(name[1]) for name in found if name is not None and name[2] == kind)

    def _next(self, last: Noted | None, commits: Mapping[date, Commit]) -> tuple[list[Row], Noted]:
        """The actions of the next version, none if nothing has changed; and what it notes."""
        before = {} if last is None else last.runs
        unread = before.keys() & set(self.store.dates()) - commits.keys()
        runs = {day: commit.run for day, commit in commits.items()}
        runs |= {day: before[day] for day in unread}
        mark = zlib.crc32(schema_string(self.table).encode())
        changed = sorted(day for day in before.keys() | runs.keys() if before.get(day) != runs.get(day))
        now = _ms(datetime.now(UTC).isoformat())
        at = max((_ms(commits[day].at) for day in changed if day in commits), default=now)
        if last is None:
            # Not from the content: a log that is begun again is another table to those who have read the old one.
            noted = Noted(0, str(uuid4()), at, mark, runs)
        else:
            noted = Noted(last.version + 1, last.id, last.created, mark, runs)
        actions: list[Row] = []
        if last is None or last.schema != mark:
            actions += [{"protocol": PROTOCOL}, {"metaData": self._metadata(noted)}]
        for day in changed:
            for path in self._written(day, before[day]) if day in before else ():
                actions.append({"remove": {"path": path, "deletionTimestamp": at, "dataChange": True}})
            actions += [{"add": add} for add in (self._adds(commits[day]) if day in runs else ())]
        if not (actions or changed):
            return [], noted
        info = {"timestamp": at, "operation": "WRITE", "operationParameters": {}, "logagent": noted.document()}
        return [{"commitInfo": info | {"engineInfo": f"logagent/{__version__}"}}, *actions], noted

    def _metadata(self, noted: Noted) -> Row:
        form: Row = {"provider": "parquet", "options": {}}
        described = {"id": noted.id, "name": self.table, "format": form, "schemaString": schema_string(self.table)}
        return described | {"partitionColumns": ["date"], "configuration": {}, "createdTime": noted.created}

    def _adds(self, commit: Commit) -> Iterator[Row]:
        for each in commit.tables[self.table]:
            if each["rows"]:
                values = {"path": _path(commit.run, each["file"]), "partitionValues": {"date": commit.day.isoformat()}}
                counted = {"size": each["bytes"], "modificationTime": _ms(commit.at), "dataChange": True}
                yield values | counted | {"stats": json.dumps({"numRecords": each["rows"]})}

    def _written(self, day: date, run: str) -> list[str]:
        """The paths of the files that a run has added: as one of the date's commits names them, or, if somebody has
        removed those, as they are there."""
        files = self.store.files
        for commit in self.store.commits_of(day):
            if commit.run == run:
                return [_path(run, each["file"]) for each in commit.tables[self.table] if each["rows"]]
        there = files.names(f"{self.store.uri}/{folder_of(run, self.table)}")
        return [_path(run, name) for name in there if name.endswith(".parquet")]

    def _checkpoint(self, noted: Noted, commits: Mapping[date, Commit]) -> None:
        """Writes a checkpoint of this version if it is time for one, and removes what nobody needs any more.

        Without what was removed lately: that is for programs that clean up, and no other may here.
        """
        if noted.version == 0 or noted.version % CHECKPOINT_EVERY or not noted.runs.keys() <= commits.keys():
            return
        before = self._names("checkpoint.parquet")
        rows: list[Row] = [{"protocol": PROTOCOL}, {"metaData": self._metadata(noted)}]
        rows += [{"add": add | {"dataChange": False}} for day in noted.runs for add in self._adds(commits[day])]
        files, scratch = self.store.files, f"{self.store.uri}/.scratch-{uuid4().hex}"
        try:
            local_frame(self.store.spark, rows, _CHECKPOINT).coalesce(1).write.parquet(scratch)
            (part,) = files.parquet_files(scratch)
            files.write(f"{self.uri}/{noted.version:020}.checkpoint.parquet", files.read(f"{scratch}/{part}"))
        finally:
            with suppress(OSError, Py4JError):
                files.delete(scratch)
        files.write(f"{self.uri}/_last_checkpoint", json.dumps({"version": noted.version, "size": len(rows)}).encode())
        self._trim(before)

    def _trim(self, checkpoints: list[int]) -> None:
        """Removes what is older than the last of these checkpoints that is itself older than `KEEP_LOG`."""
        files = self.store.files
        latest = (datetime.now(UTC) - KEEP_LOG).timestamp() * 1000
        for version in reversed(checkpoints):
            if files.modified_ms(f"{self.uri}/{version:020}.checkpoint.parquet") < latest:
                for name in files.names(self.uri):
                    found = _VERSION.fullmatch(name)
                    if found is not None and int(found[1]) < version:
                        files.delete(f"{self.uri}/{name}")
                return


def _path(run: str, file: str) -> str:
    """A file below the table's root, as a URI."""
    return quote(f"run={run}/{file}", safe="/=")


def _ms(at: str) -> int:
    return round(datetime.fromisoformat(at).timestamp() * 1000)
