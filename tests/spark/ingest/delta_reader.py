"""The store's tables as `deltalake` reads them through the Delta log, and as our own reader does."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import functions as fn

from logagent.fleet.tables.frames import STORE, fields
from logagent.fleet.tables.store import Commit, Store

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Rows = list[tuple[Any, ...]]


def by_delta(store: Path, table: str, version: int | None = None) -> dict[date, Rows]:
    """Sorted rows of each date, as of a version or the newest; times are microseconds since 1970."""
    read = DeltaTable(str(store / "tables" / table), version=version)
    names = [name for name, _ in fields(STORE[table])]
    found = QueryBuilder().register("t", read).execute("select * from t").read_all()
    assert found.schema.names == [*names, "date"]
    rows: dict[date, Rows] = {}
    for day, *values in zip(*(found.column(name).to_pylist() for name in ("date", *names)), strict=True):
        rows.setdefault(day, []).append(tuple(_plain(value) for value in values))
    return {day: sorted(each, key=repr) for day, each in sorted(rows.items())}


def by_us(store: Store, table: str, commits: dict[date, Commit]) -> dict[date, Rows]:
    """The same of these commits, from our own reader."""
    columns = [
        fn.unix_micros(name).alias(name) if kind == "timestamp" else fn.col(name) for name, kind in fields(STORE[table])
    ]
    rows = {day: store.read(table, [commit]).select(*columns).collect() for day, commit in sorted(commits.items())}
    return {day: sorted((tuple(row) for row in each), key=repr) for day, each in rows.items() if each}


def versions(store: Path, table: str) -> list[int]:
    """The versions whose files are there."""
    return sorted(int(path.stem) for path in (store / "tables" / table / "_delta_log").glob("*.json"))


def _plain(value: object) -> object:
    return (value - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value
