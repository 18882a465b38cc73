"""Where a report goes: Parquet and CSV per table, with `report.json` and the page beside them.

A report is written below `DIR/<run>/`; `DIR/latest` names the last complete one. A report that fails is removed and
leaves the last good one in place.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from logagent.base.units import rfc3339_or_none
from logagent.fleet.report.columns import CHARTS, NO_CSV, STAMP, TABLES, UNITS, Table
from logagent.fleet.tables.files import Files, literal
from logagent.fleet.tables.frames import local_frame, rfc3339
from logagent.store.contract import DRIVER_ROWS, PAGE_ROWS, PageTable

_TYPES = {name: parquet for name, (parquet, _) in UNITS.items()}
LATEST = "latest"
KEEP = timedelta(days=1)
ALWAYS_KEPT = 10
"""So many reports are never too old: a clock that is wrong does not empty the folder."""
_RUN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}-([0-9]{8}T[0-9]{12})Z-[0-9a-f]{8}")
# What a spreadsheet would evaluate. An id or a number may begin with a dash: without an operator after it that is safe.
_FORMULA = r"^(?:[=@\t\r]|[+-][A-Za-z0-9_.-]*[^A-Za-z0-9_.-])"
_is_formula = re.compile(_FORMULA).match
Row = dict[str, Any]


@dataclass
class Output:
    """One report directory. `tables` and `page` are filled as tables are written. `keep`: when it is complete, reports
    that are so much older are removed; None: none."""

    spark: SparkSession
    files: Files
    out: str
    run: str
    day: date | None = None
    keep: timedelta | None = None
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    page: dict[str, PageTable] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return f"{self.out}/{self.run}"

    def table(self, name: str, frame: DataFrame) -> list[Row] | None:
        """Writes one table of the contract from a frame; returns its rows in order, None if there are more than
        `DRIVER_ROWS`.

        Raises what Spark raises.
        """
        table = TABLES[name]
        shaped = frame.select(*(_typed(table, column) for column in table.names))
        folder = f"{self.uri}/parquet/{name}"
        self._stamped(shaped).write.parquet(folder)
        total = sum(self.files.parquet_files(folder).values())
        written = self.spark.read.schema(shaped.schema).parquet(literal(folder))
        plain = written.select(*(_plain(table, column) for column in table.names))
        if name in NO_CSV:
            self._describe(name, total, 0)
            return None
        if total <= DRIVER_ROWS:
            rows = [row.asDict() for row in plain.collect()] if total else []
            return self._finish(name, rows)
        self._large_csv(name, table, plain.orderBy(*ordering(table)))
        first = [row.asDict() for row in plain.orderBy(*ordering(table)).limit(PAGE_ROWS).collect()]
        self.page[name] = {"columns": table.names, "rows": first, "total": total}
        self._describe(name, total, len(first))
        return None

    def written(self, name: str) -> DataFrame:
        """All rows of a table that was written."""
        table = TABLES[name]
        ddl = ", ".join(f"`{c.name}` {_TYPES[c.unit]}" for c in table.columns)
        return self.spark.read.schema(ddl).parquet(literal(f"{self.uri}/parquet/{name}"))

    def rows(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Writes one table of the contract from rows of the driver (times in milliseconds); returns its rows in
        order."""
        table = TABLES[name]
        kept = [{column: row.get(column) for column in table.names} for row in rows]
        ddl = ", ".join(f"`{c.name}` {'bigint' if c.unit == 'time' else _TYPES[c.unit]}" for c in table.columns)
        frame = local_frame(self.spark, kept, ddl)
        times = {c.name: fn.timestamp_millis(c.name) for c in table.columns if c.unit == "time"}
        shaped = frame.withColumns(times) if times else frame
        self._stamped(shaped).coalesce(1).write.parquet(f"{self.uri}/parquet/{name}")
        for row in kept:
            row |= {time: rfc3339_or_none(row[time]) for time in times}
        return self._finish(name, kept)

    @property
    def _stamp(self) -> dict[str, str]:
        """The values of `STAMP`."""
        values = ("" if self.day is None else self.day.isoformat(), self.run)
        return {column.name: value for column, value in zip(STAMP, values, strict=True)}

    def _stamped(self, shaped: DataFrame) -> DataFrame:
        return shaped.withColumns({c.name: fn.lit(self._stamp[c.name] or None).cast(_TYPES[c.unit]) for c in STAMP})

    def chart(self, name: str, rows: Sequence[Row]) -> None:
        """Keeps a chart's rows for the page."""
        table = CHARTS[name]
        kept = ordered(table, [{column: row.get(column) for column in table.names} for row in rows])
        self.page[name] = {"columns": table.names, "rows": kept, "total": len(kept)}

    def _finish(self, name: str, rows: list[Row]) -> list[Row]:
        table = TABLES[name]
        rows = ordered(table, rows)
        self.files.write(f"{self.uri}/{name}.csv", csv_bytes(table.names, rows, self._stamp))
        self.page[name] = {"columns": table.names, "rows": rows[:PAGE_ROWS], "total": len(rows)}
        self._describe(name, len(rows), min(len(rows), PAGE_ROWS))
        return rows

    def _describe(self, name: str, rows: int, shown: int) -> None:
        where = None if name in NO_CSV else f"{name}.csv"
        self.tables[name] = {"rows": rows, "csv": where, "parquet": f"parquet/{name}", "shown": shown}

    def _large_csv(self, name: str, table: Table, plain: DataFrame) -> None:
        """The same file written by Spark: every cell is formatted here, so that Spark's own quoting has no effect."""
        cells = [_cell(fn.col(column.name), column.unit) for column in table.columns]
        cells += [fn.lit(text) for text in self._stamp.values()]
        folder = f"{self.uri}/.csv-{name}"
        lines = plain.select(fn.concat_ws(",", *cells).alias("line"))
        lines.coalesce(1).write.option("lineSep", "\r\n").text(folder)
        part = next(n for n in self.files.names(folder) if n.startswith("part-"))
        self.files.prepend(f"{folder}/{part}", csv_bytes(table.names, [], self._stamp), f"{self.uri}/{name}.csv")
        self.files.delete(folder)

    def finish(self, content: dict[str, Any], page: Callable[[], str]) -> None:
        """Writes the page and `report.json`, and makes this the latest. `report.json` comes last: it completes the
        report."""
        self.files.write(f"{self.uri}/index.html", page().encode("utf-8", "backslashreplace"))
        self.files.write(f"{self.uri}/report.json", (json.dumps(content, indent=2) + "\n").encode())
        self._sweep(self._point(self.run))

    def _sweep(self, latest: str = "") -> None:
        """Removes reports older than `keep` but for `latest` and the last `ALWAYS_KEPT`, what killed reports have
        left (folders without `report.json` that are a day older than this one), and symlinks that did not become
        `latest`."""
        names = self.files.names(self.out)
        old = sorted((n for n in names if _RUN.fullmatch(n) and _made(self.run) - _made(n) > KEEP), key=_made)
        whole = [name for name in old if self._is_whole(name)]
        gone = set(old).difference(whole)
        if self.keep is not None:
            gone |= {name for name in whole[:-ALWAYS_KEPT] if _made(self.run) - _made(name) > self.keep}
        for name in sorted(gone - {latest}):
            self.files.delete(f"{self.out}/{name}")
        for name in names:
            local = self.files.local(f"{self.out}/{name}")
            if local is not None and re.fullmatch(rf"\.{LATEST}\.[0-9]+", name):
                with suppress(OSError):
                    if time.time() - local.lstat().st_mtime > KEEP.total_seconds():
                        local.unlink()

    def _point(self, run: str) -> str:
        """Makes `latest` name a run, unless a later one is there already: a symlink, or a file with its name. The
        name of the run."""
        runs = sorted(n for n in self.files.names(self.out) if _RUN.fullmatch(n) and self._is_whole(n))
        newest = runs[-1] if runs else run
        local = self.files.local(f"{self.out}/{LATEST}")
        if local is None:
            self.files.write(f"{self.out}/{LATEST}", newest.encode() + b"\n")
            return newest
        if local.exists() and not local.is_symlink():
            return newest
        part = local.with_name(f".{LATEST}.{os.getpid()}")
        with suppress(FileNotFoundError):
            part.unlink()
        part.symlink_to(newest)
        part.replace(local)
        return newest

    def _is_whole(self, run: str) -> bool:
        return self.files.exists(f"{self.out}/{run}/report.json")

    def drop(self) -> None:
        """Removes a report that failed."""
        with suppress(OSError, Py4JError):
            self.files.delete(self.uri)


def _made(run: str) -> datetime:
    found = _RUN.fullmatch(run)
    return datetime.strptime(found.group(1) if found else "", "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC)


def run_name(day: str, now: datetime) -> str:
    """Names of reports of one date sort by creation time; no two are the same, whatever the clock says."""
    return f"{day}-{now:%Y%m%dT%H%M%S%f}Z-{uuid4().hex[:8]}"


def csv_bytes(header: Sequence[str], rows: Sequence[Row], stamp: Mapping[str, str]) -> bytes:
    """The columns of `header`, then those of `stamp`, which are the same in every row. RFC 4180: CR LF, quotes around
    what has CR, LF, comma or quote; an empty field for null. Cells that a spreadsheet would evaluate begin with an
    apostrophe. Bytes that are not UTF-8 are written as their escape."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([*header, *stamp])
    columns = [_cells([row[name] for row in rows]) for name in header]
    writer.writerows(zip(*columns, *([value] * len(rows) for value in stamp.values()), strict=True))
    return text.getvalue().encode("utf-8", "backslashreplace")


def _cells(column: list[Any]) -> list[Any]:
    """A column for `csv`, which itself writes numbers and null as they should be."""
    return [_text(value) for value in column] if {str, bool} & {*map(type, column)} else column


def _text(value: Any) -> Any:
    if isinstance(value, str):
        return "'" + value if _is_formula(value) else value
    return str(value).lower() if isinstance(value, bool) else value


def _cell(value: Column, unit: str) -> Column:
    """What `csv_bytes` writes for a value."""
    text = value.cast("string")
    if unit != "text":
        return fn.coalesce(text, fn.lit(""))
    guarded = fn.when(text.rlike(_FORMULA), fn.concat(fn.lit("'"), text)).otherwise(text)
    quoted = fn.concat(fn.lit('"'), fn.replace(guarded, fn.lit('"'), fn.lit('""')), fn.lit('"'))
    return fn.coalesce(fn.when(guarded.rlike('[",\r\n]'), quoted).otherwise(guarded), fn.lit(""))


def ordered(table: Table, rows: list[Row]) -> list[Row]:
    """Rows in the table's order; unknown values come last either way."""
    for name in reversed(table.order):
        column, down = name.removeprefix("-"), name.startswith("-")
        known = [row for row in rows if row[column] is not None]
        known.sort(key=lambda row: row[column], reverse=down)
        rows = known + [row for row in rows if row[column] is None]
    return rows


def _typed(table: Table, name: str) -> Column:
    return fn.col(name).cast(_TYPES[table.units[name]]).alias(name)


def _plain(table: Table, name: str) -> Column:
    unit = table.units[name]
    if unit == "time":
        return rfc3339(name).alias(name)
    return fn.col(name).cast("string").alias(name) if unit == "date" else fn.col(name)


def ordering(table: Table) -> list[Column]:
    """The table's order; unknown values come last either way."""
    return [
        fn.col(name[1:]).desc_nulls_last() if name.startswith("-") else fn.col(name).asc_nulls_last()
        for name in table.order
    ]
