"""An empty argument, such as a variable of a script that is not set, never selects what is selected without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import click
import pytest

from logagent.cli import cli, run
from tests.host import Host


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, *path, name)
        else:
            yield (*path, name), found


def arguments() -> Iterator[tuple[str, ...]]:
    """Every command with each of its options that has a value, and with its arguments, empty."""
    for path, command in commands(cli):
        for param in command.params:
            if isinstance(param, click.Argument):
                yield *path, ""
            elif not getattr(param, "is_flag", False) and not getattr(param, "count", False):
                yield *path, param.opts[0], ""
                yield *path, param.opts[0], " \t"
                yield *path, f"{param.opts[0]}="


def started(*_: object) -> NoReturn:
    raise AssertionError("the command has begun")


@pytest.mark.parametrize("words", list(arguments()), ids=repr)
def test_an_empty_argument_is_a_usage_error(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the command would do: it does not even begin."""
    monkeypatch.setattr(cli, "make_context", started)
    assert run(words) == 2
    said = capsys.readouterr()
    assert "is empty" in said.err and "an empty value never means all" in said.err and said.out == ""


def test_every_command_is_listed() -> None:
    words = set(arguments())
    for known in ("topics purge --id", "topics delete --topic", "delete --partition", "restore --plan",
                  "fleet ingest --date", "cleanup --log-dir", "check --kafka-config"):  # fmt: skip
        assert (*known.split(), "") in words
    assert ("restore", "") in words and ("topics", "cancel", "") in words


def test_nothing_is_restored_for_an_empty_plan(tmp_path: Path) -> None:
    host = Host.from_disk(tmp_path)
    before = host.partitions()
    ran = host.run("restore", "--plan", "", "--execute")
    assert ran.status == 2 and "--plan is empty" in ran.err and host.partitions() == before
