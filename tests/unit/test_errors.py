"""Exit statuses: one place defines them, the first that applies wins, and every error has its own."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logagent
from logagent.base import errors
from logagent.base.errors import EXIT_PRECEDENCE, Exit, LogAgentError, worst
from logagent.cli import cli
from tests.syntax import syntax_tree

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, LogAgentError)]


def test_the_order_names_every_status_once() -> None:
    assert sorted(EXIT_PRECEDENCE) == sorted(Exit)
    assert [int(s) for s in EXIT_PRECEDENCE] == [130, 2, 77, 78, 7, 69, 75, 1, 4, 5, 6, 3, 0]


@given(st.lists(st.sampled_from(list(Exit))))
def test_the_first_of_the_order_that_applies_wins(statuses: list[Exit]) -> None:
    assert worst(*statuses) == min(statuses, key=EXIT_PRECEDENCE.index, default=Exit.OK)


@given(st.lists(st.sampled_from(list(Exit)), min_size=1))
def test_it_does_not_matter_in_which_order_they_come_up(statuses: list[Exit]) -> None:
    one_by_one = Exit.OK
    for status in statuses:
        one_by_one = worst(one_by_one, status)
    assert one_by_one == worst(*statuses)


@pytest.mark.parametrize("found", CLASSES, ids=lambda c: c.__name__)
def test_every_error_has_a_status_that_is_no_success_a_slug_and_words(found: type[LogAgentError]) -> None:
    assert found.exit_status in Exit and found.exit_status is not Exit.OK
    assert re.fullmatch(r"[a-z-]+", found.slug)
    assert inspect.getdoc(found)


def test_slugs_tell_errors_apart() -> None:
    slugs = [c.slug for c in CLASSES]
    assert len(slugs) == len(set(slugs))


def test_whoever_mistyped_or_misconfigured_is_told_what_to_do() -> None:
    """What to do, each time: the user has the command line or the file in front of them."""
    without = [
        f"{path}:{call.lineno}"
        for path in sorted(Path(logagent.__file__).parent.rglob("*.py"))
        for call in ast.walk(syntax_tree(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "id", None) in ("UsageError", "ConfigError")
        if not any(keyword.arg == "hint" for keyword in call.keywords)
    ]
    assert without == []


def test_the_help_tells_every_status() -> None:
    with click.Context(cli, info_name="logagent", terminal_width=80) as context:
        lines = cli.get_help(context).partition("Exit status:")[2].splitlines()
    assert [int(n) for n in re.findall(r"^  (\d+) ", "\n".join(lines), flags=re.MULTILINE)] == sorted(Exit)
    assert max(map(len, lines)) <= 80


def test_the_module_imports_nothing_of_ours() -> None:
    tree = syntax_tree(inspect.getsource(errors))
    imported = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)} | set(
        itertools.chain.from_iterable([a.name for a in n.names] for n in ast.walk(tree) if isinstance(n, ast.Import))
    )
    assert imported == {"__future__", "enum", "typing"}
