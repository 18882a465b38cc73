"""`logagent fleet` as a command: options, exit statuses, what it prints, and what it does not import."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from logagent.cli import run
from logagent.fleet.demo import Cluster, Fleet
from tests.documents import assert_promised
from tests.fleets.planted import generate, truth_of

PYTHON = [sys.executable, "-W", "error"]


def test_version_and_help_do_not_import_pyspark() -> None:
    code = "import sys; from logagent.cli import run; run(sys.argv[1:]); "
    code += "print(sorted(m for m in sys.modules if 'spark' in m))"
    for arguments in (["--version"], ["--help"], ["fleet", "--help"], ["fleet", "report", "--help"]):
        done = subprocess.run([*PYTHON, "-c", code, *arguments], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]", arguments


def test_without_pyspark(tmp_path: Path) -> None:
    """As on a host that has only the agent: a clear error, and how to get it."""
    code = "import sys; sys.modules['pyspark'] = None; from logagent.cli import run; sys.exit(run(sys.argv[1:]))"
    command = [*PYTHON, "-c", code, "fleet", "report", "--store", str(tmp_path), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 78
    assert "pyspark is not installed" in done.stderr
    assert "pip install '.[fleet]'" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["ingest"], 2, "--store"),
        (["report", "--store", "s"], 2, "--out"),
        (["ingest", "--store", "s", "--date", "yesterday"], 2, "is not a date"),
        (["report", "--store", "s", "--out", "o", "--max-snapshot-age", "26"], 2, "is not a duration"),
        (["ingest", "--store", "s", "--conf", "nonsense"], 78, "not K=V"),
        (["demo", "--hosts", "2"], 2, "not in the range"),
    ],
)
def test_wrong_usage(arguments: list[str], status: int, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", *arguments]) == status
    shown = capsys.readouterr()
    assert says in shown.err
    assert shown.out == ""


def test_missing_store_is_69_no_connector_78(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fleet", "ingest", "--store", str(tmp_path / "nowhere")]) == 69
    assert "there is no fleet store" in capsys.readouterr().err
    assert run(["fleet", "report", "--store", "nosuch://x/y", "--out", str(tmp_path)]) == 78
    assert "no connector" in capsys.readouterr().err


def test_demo_makes_a_report(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything in one go; stdout holds one JSON document."""
    assert run(["fleet", "demo", "--dir", str(tmp_path), "--hosts", "6", "--partitions", "200", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    fleet = Fleet(at=datetime.now(UTC), hosts=6, partitions=200)
    truths = [truth_of(Cluster(fleet, number)) for number in range(fleet.clusters)]
    assert content["totals"]["orphans"] == sum(len(truth.orphans) for truth in truths)
    assert content["totals"]["bytes"] == sum(truth.bytes for truth in truths)
    assert (tmp_path / "report" / "latest" / "index.html").is_file()
    again = ["fleet", "ingest", "--store", str(tmp_path), "--keep-landing", "off"]
    assert run(again) == 0
    assert capsys.readouterr().out == "nothing new in landing\n"
    # That there is a report, too: `test_documents_run.py`.
    place = f"{tmp_path}/second/run"
    monkeypatch.setattr("logagent.fleet.command._reported", lambda *_: (content, place))
    assert run([*again, "--report", str(tmp_path / "second"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert_promised(told, "fleet-ingest")
    assert (told["dates"], told["trimmed"], told["report"]) == ([], [], place)


def test_the_demo_shows_every_kind_of_problem() -> None:
    fleet = Fleet(at=datetime.now(UTC))
    truths = [truth_of(Cluster(fleet, number)) for number in range(fleet.clusters)]
    reasons = {orphan.reason for truth in truths for orphan in truth.orphans.values()}
    assert reasons == {"topic-absent", "topic-recreated", "not-a-replica"}
    assert {way for truth in truths for way in truth.unknown_hosts.values()} >= {"truncated", "silent"}
    for name in ("missing", "duplicates", "leftovers", "health"):
        assert any(getattr(truth, name) for truth in truths), name


def test_demo_refuses_a_full_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("precious")
    assert run(["fleet", "demo", "--dir", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_the_same_fleet_gives_the_same_bytes(tmp_path: Path) -> None:
    """With one worker or two."""
    fleet = Fleet(at=datetime(2025, 3, 10, 12, tzinfo=UTC), clusters=2, hosts=4, partitions=100, days=2)
    for name, workers in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        generate(tmp_path / name, fleet, workers=workers)

    def content(name: str) -> dict[str, bytes]:
        return {
            str(p.relative_to(tmp_path / name)): p.read_bytes() for p in (tmp_path / name).rglob("*") if p.is_file()
        }

    assert content("a") == content("b")
    assert len(content("a")) > 10


def test_archive_is_all_that_spark_submit_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "archive", str(tmp_path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("spark-submit --master URL --py-files ")
    code = "import sys; sys.path.insert(0, sys.argv[1]); "
    code += "import logagent.fleet.job, logagent.fleet.page; print(logagent.__file__)"
    command = [*PYTHON, "-c", code, str(tmp_path / "logagent.zip")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip().startswith(str(tmp_path / "logagent.zip"))
