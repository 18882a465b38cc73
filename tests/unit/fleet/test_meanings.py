"""Every column of a report table is explained, with its type and unit, in the schema and in the docs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logagent.cli import run
from logagent.fleet.report.meanings import UNITS, columns
from logagent.store.contract import TABLES

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("table", TABLES)
def test_every_column_has_a_meaning_a_type_and_a_unit(table: str) -> None:
    named = columns(table)
    assert [column.name for column, _ in named] == [*TABLES[table].names, "date", "run_id"]
    for column, meaning in named:
        assert len(meaning) > 8 and "|" not in meaning, column.name
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
