"""Where a report goes: per table Parquet and CSV, and `report.json` and the page beside them."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from logagent.fleet.tables.schema import rfc3339
from logagent.fleet.tables.store import Files, literal
from logagent.store.contract import CHARTS, NO_CSV, PAGE_ROWS, TABLES, PageTable, Table

_TYPES = {
    "text": "string",
    "int": "bigint",
    "bytes": "bigint",
    "seconds": "double",
    "days": "double",
    "share": "double",
    "ratio": "double",
    "time": "timestamp",
    "date": "date",
    "bool": "boolean",
}


_TEXT = "_text"


@dataclass
class Output:
    """One report directory. `tables` and `page` fill up as tables are written."""

    spark: SparkSession
    files: Files
    uri: str
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    page: dict[str, PageTable] = field(default_factory=dict)

    def begin(self) -> None:
        """Removes what makes it a report, until it is one again: tables of two runs must not pass for one."""
        for name in ("report.json", "index.html"):
            self.files.delete(f"{self.uri}/{name}")

    def table(self, name: str, frame: DataFrame) -> DataFrame:
        """Writes one table of the contract; what was written, to go on from. Raises what Spark raises."""
        table = TABLES[name]
        parquet = f"parquet/{name}"
        shaped = frame.select(*(_typed(table, column) for column in table.names))
        shaped.write.mode("overwrite").parquet(f"{self.uri}/{parquet}")
        written = self.spark.read.schema(shaped.schema).parquet(literal(f"{self.uri}/{parquet}"))
        if name in NO_CSV:
            self.tables[name] = {"rows": written.count(), "csv": None, "parquet": parquet, "shown": 0}
            return written
        text = fn.array(*(_plain(table, n).cast("string") for n in table.names)).alias(_TEXT)
        rows = self._first(table, written, PAGE_ROWS, text)
        texts = [row.pop(_TEXT) for row in rows]
        total = len(rows)
        if total < PAGE_ROWS:
            self.files.write(f"{self.uri}/{name}.csv", _csv_lines(table.names, texts))
        else:
            total = written.count()
            self._large_csv(name, table, written)
        self.page[name] = {"columns": table.names, "rows": rows, "total": total}
        self.tables[name] = {"rows": total, "csv": f"{name}.csv", "parquet": parquet, "shown": len(rows)}
        return written

    def chart(self, name: str, frame: DataFrame, limit: int) -> None:
        """Keeps a chart's rows (not more than `limit`, which the contract bounds) for the page."""
        table = CHARTS[name]
        shaped = frame.select(*(_typed(table, column) for column in table.names))
        rows = self._first(table, shaped, limit)
        self.page[name] = {"columns": table.names, "rows": rows, "total": len(rows)}

    def _first(self, table: Table, frame: DataFrame, limit: int, *more: Column) -> list[dict[str, Any]]:
        """The first rows in the table's order, as plain values."""
        shown = frame.orderBy(*ordering(table)).limit(limit)
        return [row.asDict() for row in shown.select(*(_plain(table, n) for n in table.names), *more).collect()]

    def _large_csv(self, name: str, table: Table, written: DataFrame) -> None:
        """One CSV file with a header, RFC 4180 quoting, an empty field for null."""
        folder = f"{self.uri}/.csv-{name}"
        text = written.orderBy(*ordering(table)).select(
            *(_plain(table, n).cast("string").alias(n) for n in table.names)
        )
        options = {"header": "true", "escape": '"', "emptyValue": "", "nullValue": "", "lineSep": "\n"}
        keep = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
        text.coalesce(1).write.mode("overwrite").options(**options, **keep).csv(folder)
        part = next(n for n in self.files.names(folder) if n.startswith("part-"))
        self.files.move(f"{folder}/{part}", f"{self.uri}/{name}.csv")
        self.files.delete(folder)


def _csv_lines(header: list[str], rows: list[list[str | None]]) -> bytes:
    """What `_large_csv` writes, for tables that are at hand anyway."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _typed(table: Table, name: str) -> Column:
    unit = next(column.unit for column in table.columns if column.name == name)
    return fn.col(name).cast(_TYPES[unit]).alias(name)


def _plain(table: Table, name: str) -> Column:
    unit = next(column.unit for column in table.columns if column.name == name)
    if unit == "time":
        return rfc3339(name).alias(name)
    return fn.col(name).cast("string").alias(name) if unit == "date" else fn.col(name)


def ordering(table: Table) -> list[Column]:
    """The table's order; unknown values come last either way."""
    return [
        fn.col(name[1:]).desc_nulls_last() if name.startswith("-") else fn.col(name).asc_nulls_last()
        for name in table.order
    ]
