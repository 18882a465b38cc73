"""Footers of real Parquet files come out the same whatever order a JVM listed their encodings in."""

from __future__ import annotations

from pathlib import Path

import duckdb
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from logagent.fleet.ingest.footers import MAGIC, TRAILER, canonical
from logagent.fleet.tables.store import Files
from tests.spark.conftest import Zoo


def _footer(path: Path) -> bytes:
    content = path.read_bytes()
    assert content.endswith(MAGIC)
    length = int.from_bytes(content[-8:-4], "little")
    return content[-length - TRAILER : -TRAILER]


def test_the_store_has_canonical_footers_and_other_readers_read_them(zoo: Zoo) -> None:
    found = [path for name in ("dirs", "files", "assignments") for path in (zoo.path / name).rglob("*.parquet")]
    assert len(found) >= 5
    for path in found:
        footer = _footer(path)
        assert canonical(footer) == footer
        with duckdb.connect() as duck:
            counted = duck.execute(f"select count(*) from read_parquet('{path}')").fetchall()
            columns = duck.execute(f"select encodings from parquet_metadata('{path}')").fetchall()
        assert counted[0][0] > 0
        assert all(encodings for (encodings,) in columns)


def test_another_order_is_the_same_footer(zoo: Zoo) -> None:
    """A list of encodings is turned round by hand: nothing else changes, and the canonical form is what it was."""
    path = next((zoo.path / "dirs").rglob("*.parquet"))
    footer = _footer(path)
    turned = bytearray(footer)
    # Field 2 of a column, a list of three i32: PLAIN_DICTIONARY, RLE, BIT_PACKED as zigzag numbers.
    place = footer.index(bytes.fromhex("1935040608"))
    turned[place + 2 : place + 5] = bytes.fromhex("080604")
    assert bytes(turned) != footer
    assert canonical(bytes(turned)) == footer


@given(st.binary(max_size=200))
def test_what_is_no_footer_stays_as_it_is(content: bytes) -> None:
    made = canonical(content)
    assert len(made) == len(content)
    assert canonical(made) == made


def test_replacing_the_end_of_a_file(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark)
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 9)
    assert files.end(str(path), 3) == b"\xfd\xfe\xff"
    files.replace_end(str(path), b"END")
    assert path.read_bytes() == (bytes(range(256)) * 9)[:-3] + b"END"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
