"""No option takes 0 for "always", "everything" or "no limit" without saying so: a usage error, or in `--help`."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from logagent.cli import cli
from tests.command_line import run_here
from tests.disk.cli.test_empty_arguments import commands
from tests.host import Host

# Options whose value is a number, by what they ask for.
NUMBERS = ("SIZE", "TIME", "AGE", "AGE|off", "N", "SHARE")
# What `--help` says of 0; None where it is refused.
ZEROS: dict[str, tuple[str, str | None]] = {
    "rescue --need": ("0", None),
    "history --limit": ("0", None),
    "history --since": ("0s", "0s: none"),
    "prestart --budget": ("0ms", "0ms: do nothing"),
    "topics delete --timeout": ("0", "0 returns as soon as it is requested"),
    "topics purge --timeout": ("0", "0 returns as soon as it is requested"),
    "topics purge --larger": ("0", None),
    "topics run --interval": ("0", None),
    "topics status --interval": ("0s", None),
    "fleet demo --hosts": ("0", None),
    "fleet demo --partitions": ("0", None),
    "fleet ingest --keep": ("0s", None),
    "fleet ingest --keep-landing": ("0s", None),
    "fleet ingest --require-hosts": ("0%", None),
    "fleet ingest --max-snapshot-age": ("0s", None),
    "fleet report --keep": ("0s", None),
    "fleet report --max-snapshot-age": ("0s", None),
    "fleet report --require-hosts": ("0%", None),
}
# A number that names something.
NAMES = ("fleet report --commit",)
REQUIRED = {
    "topics purge": ("--report", "/nowhere"),
    "topics delete": ("--topic", "x"),
    "fleet ingest": ("--store", "/nowhere", "--report", "/nowhere/out"),
    "fleet report": ("--store", "/nowhere", "--out", "/nowhere/out"),
}


def numbers() -> dict[str, click.Option]:
    return {
        " ".join((*path, p.opts[0])): p
        for path, command in commands(cli)
        for p in command.params
        if isinstance(p, click.Option) and (p.metavar in NUMBERS or isinstance(p.type, click.IntRange)) and not p.count
    }


def test_each_option_with_a_number_is_asked_what_its_zero_means() -> None:
    assert set(numbers()) == {*ZEROS, *NAMES}


@pytest.mark.parametrize("words", ZEROS)
def test_zero_is_a_usage_error_or_in_the_help(words: str, tmp_path: Path) -> None:
    value, says = ZEROS[words]
    if says is not None:
        assert says in (numbers()[words].help or "")
        return
    command, _, option = words.rpartition(" ")
    arguments = (*command.split(), option, value, *REQUIRED.get(command, ()))
    ran = Host.from_disk(tmp_path).run(*arguments) if command == "rescue" else run_here(*arguments)
    assert ran.status == 2, ran.err
    assert option in ran.err and value in ran.err and "Traceback" not in ran.err
