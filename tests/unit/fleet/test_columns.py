"""Every column of a table of the fleet is explained, with its type and unit, in the schema and in the docs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_type_hints

import pytest

from logagent.cli import run
from logagent.fleet.documents import SnapshotDir
from logagent.fleet.report.columns import STAMP, TABLES, UNITS
from logagent.fleet.tables.frames import STORE, fields
from logagent.store.snapshots import FIELDS, NUMBERS, TIMES

REFERENCE = Path(__file__).parents[3] / "docs/reference"


@pytest.mark.parametrize("table", TABLES)
def test_every_column_has_a_meaning_a_type_and_a_unit(table: str) -> None:
    assert len(set(TABLES[table].names)) == len(TABLES[table].columns)
    for column in TABLES[table].columns:
        assert len(column.meaning) > 8 and "|" not in column.meaning, column.name
        kind, unit = UNITS[column.unit]
        assert kind and (unit or column.unit in ("text", "int", "date", "bool")), column.name


def test_the_schema_has_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "fleet-tables"]) == 0
    tables = json.loads(capsys.readouterr().out)["properties"]
    assert set(tables) == set(TABLES)
    size = tables["orphans"]["items"]["properties"]["bytes"]
    assert size == {"type": ["integer", "null"], "description": "sum of file sizes", "unit": "bytes"}
    assert run(["schema"]) == 0
    assert "fleet-tables" in capsys.readouterr().out.splitlines()


def _documented(page: str) -> dict[str, list[str]]:
    """The columns of each table in the docs, in their order."""
    sections = re.split(r"(?m)^## ", (REFERENCE / page).read_text())[1:]
    return {each.split("\n", 1)[0]: re.findall(r"(?m)^\| `(\w+)` \|", each) for each in sections}


def test_every_column_of_every_table_stands_in_the_docs() -> None:
    stamp = [column.name for column in STAMP]
    assert _documented("report.md") == {name: [*table.names, *stamp] for name, table in TABLES.items()}
    assert _documented("store.md") == {name: [column for column, _ in fields(ddl)] for name, ddl in STORE.items()}


def test_the_fields_of_a_directory_are_those_of_its_line() -> None:
    """What agents write, and what the fleet job reads of it and keeps."""
    hints = get_type_hints(SnapshotDir)
    assert hints.keys() == FIELDS.keys()
    for name, hint in hints.items():
        assert (FIELDS[name] in ("int", "long", "time")) == (hint is int), name
        assert (FIELDS[name] == "bool") == (hint is bool), name
    assert {name for name in NUMBERS if FIELDS[name] not in ("long", "time")} == set()
    assert {name for name, kind in fields(STORE["dirs"]) if kind == "timestamp"} == set(TIMES)
