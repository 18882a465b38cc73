"""`logagent fleet` and the plain `submit.py` have the same options, from one list."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from logagent.base.errors import UsageError
from logagent.fleet.command import fleet
from logagent.fleet.job_options import OPTIONS
from logagent.fleet.submit import _parser
from logagent.store.signing import PrivateKey


@pytest.mark.parametrize("name", OPTIONS)
def test_both_read_every_option_of_the_list(name: str) -> None:
    command = fleet.commands[name]
    with_click = {o: p for p in command.params if isinstance(p, click.Option) for o in p.opts}
    required = [word for o in OPTIONS[name] if o.required for word in (o.flag, "x")]
    parsed = vars(_parser().parse_args([name, *required]))
    for option in OPTIONS[name]:
        shown = with_click[option.flag]
        assert (shown.name, shown.help, shown.required) == (option.name, option.help, option.required)
        assert option.name in parsed


@pytest.mark.parametrize("name", OPTIONS)
def test_submit_prints_the_same_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args([name, "--help"])
    assert ended.value.code == 0
    printed = "".join(capsys.readouterr().out.split())
    assert [o.flag for o in OPTIONS[name] if "".join(o.help.split()) not in printed] == []


def test_submit_reads_the_keys_of_orders() -> None:
    key = PrivateKey("ops", b"\x01" * 32).public()
    words = ["report", "--store", "s", "--out", "o", "--order-keys"]
    assert _parser().parse_args([*words, f"{key},{key}@a-cluster"]).order_keys == (key, f"{key}@a-cluster")
    for wrong in ("", "ops", f"{key},", "ops:AAAA"):
        with pytest.raises(SystemExit):
            _parser().parse_args([*words, wrong])


def test_the_job_needs_nothing_but_spark() -> None:
    """`submit.py` runs where only Spark is."""
    code = """if True:
        import sys
        class Nothing:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in {"pydantic", "pydantic_core", "cryptography", "click", "kafka", "obstore"}:
                    raise ImportError(name)
        sys.meta_path.insert(0, Nothing())
        import logagent.fleet.submit, logagent.fleet.job, logagent.fleet.ingest.ingest, logagent.fleet.page
    """
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "words",
    [
        ["report", "--out", "o", "--max-snapshot-age", "200000w"],
        ["report", "--out", "o", "--max-snapshot-age", "9999999999999w"],
        ["ingest", "--keep-landing", "200000w"],
        ["report", "--out", "o", "--commit", "9" * 5000],
        ["report", "--out", "o", "--commit", "\u00b2"],
    ],
)
def test_numbers_beyond_every_calendar_are_errors_of_usage(words: list[str]) -> None:
    """Of both, before Spark starts."""
    words = [*words, "--store", "nowhere"]
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(words)
    assert ended.value.code == 2
    with pytest.raises(UsageError), fleet.make_context("fleet", words, resilient_parsing=False) as context:
        fleet.invoke(context)


def test_submit_reads_ages_and_dates() -> None:
    parsed = _parser().parse_args(["report", "--store", "s", "--out", "o", "--date", "2026-11-22"])
    assert parsed.day.isoformat() == "2026-11-22" and parsed.max_snapshot_age.total_seconds() == 26 * 3600
    with pytest.raises(SystemExit):
        _parser().parse_args(["report", "--store", "s", "--out", "o", "--max-snapshot-age", "soon"])
