"""Which fleets are small enough for a driver with the quick compiler only."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pytest
from py4j.protocol import Py4JError

from logagent.fleet.spark_session import (
    SMALL_LANDING,
    SMALL_REPORT,
    is_small_landing,
    is_small_report,
    java_options,
    sql_conf,
)
from logagent.fleet.tables.files import relative
from tests.needs import need_command


@pytest.mark.parametrize(("packed", "small"), [(1 << 20, True), (SMALL_LANDING, True), (SMALL_LANDING + 1, False)])
def test_a_landing_is_judged_by_its_compressed_bytes(tmp_path: Path, packed: int, small: bool) -> None:
    for node in range(2):
        place = tmp_path / f"landing/cluster/2026-11-22/{node}"
        place.mkdir(parents=True)
        with (place / "snapshot.jsonl.gz").open("wb") as file:
            file.truncate(packed // 2 + packed % 2 * node)
    assert is_small_landing(str(tmp_path)) is small


def test_only_what_will_be_parsed_makes_a_landing_large(tmp_path: Path) -> None:
    """Of each host and date one snapshot; of a date that was ingested, nothing."""
    for day in ("2026-11-21", "2026-11-22"):
        place = tmp_path / f"landing/cluster/{day}/1"
        place.mkdir(parents=True)
        for hour in range(24):
            with (place / f"{hour}.jsonl.gz").open("wb") as file:
                file.truncate(SMALL_LANDING * 3 // 4)
            os.utime(place / f"{hour}.jsonl.gz", (1_000, 1_000))
    assert not is_small_landing(str(tmp_path)), "two dates"
    assert is_small_landing(str(tmp_path), date(2026, 11, 22))
    (tmp_path / "commits/2026-11-21").mkdir(parents=True)
    (tmp_path / "commits/2026-11-21/1.json").write_text("{}")
    assert is_small_landing(str(tmp_path))
    os.utime(tmp_path / "commits/2026-11-21/1.json", (900, 900))
    assert not is_small_landing(str(tmp_path)), "a file came after it was ingested"


@pytest.mark.parametrize(("rows", "small"), [(0, True), (SMALL_REPORT, True), (SMALL_REPORT + 1, False)])
def test_a_report_is_judged_by_the_largest_of_its_dates(tmp_path: Path, rows: int, small: bool) -> None:
    for day, each in (("2026-11-21", rows), ("2026-11-22", rows // 2)):
        (tmp_path / "commits" / day).mkdir(parents=True)
        content = {"tables": {"dirs": [{"rows": each // 2}, {"rows": each - each // 2}]}}
        (tmp_path / "commits" / day / "1.json").write_text(json.dumps(content))
    assert is_small_report(str(tmp_path)) is small


def test_what_is_unknown_counts_as_large(tmp_path: Path) -> None:
    assert not is_small_landing(str(tmp_path)) and not is_small_report(str(tmp_path))
    (tmp_path / "commits/2026-11-22").mkdir(parents=True)
    (tmp_path / "commits/2026-11-22/1.json").write_text("{")
    assert not is_small_report(str(tmp_path))
    assert java_options(small=False, environment={}) == "-XX:+UseParallelGC" and sql_conf(small=False) == {}
    assert "TieredStopAtLevel" in java_options(small=True, environment={})


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"])
@pytest.mark.parametrize("small", [True, False])
def test_java_starts_with_the_collector_of_the_environment(name: str, small: bool) -> None:
    need_command("java")
    environment = {name: "-Dany=thing -XX:+UseG1GC"}
    options = java_options(small, environment).split()
    command = ["java", *options, "-version"]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("-XX:TieredStopAtLevel=1" in options) is small


class Listed(NamedTuple):
    text: str

    def toString(self) -> str:  # noqa: N802 (as Hadoop's Path has it)
        return self.text


def test_what_is_listed_in_another_form_is_not_nothing() -> None:
    assert relative("s3a://b/landing", Listed("s3a://b/landing/c/2026-11-29/h.json.gz")) == "c/2026-11-29/h.json.gz"
    for other in ("s3://b/landing/c/h", "s3a://b/landing", "s3a://b/landing2/c", "/mnt/s3a://b/landing/c"):
        with pytest.raises(Py4JError, match="in another form"):
            relative("s3a://b/landing", Listed(other))
