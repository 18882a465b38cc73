"""Parsing a file is not disturbed by what the garbage collector ends meanwhile."""

from __future__ import annotations

import ast
import gc
from pathlib import Path

import pytest

from tests.syntax import syntax_tree

TESTS = Path(__file__).parents[1]
# Who calls `ast.parse` and why. Of anywhere else, all tests of a file may end in "AST constructor recursion depth".
PARSES = {
    "syntax.py": "without the collector",
    "mutated.py": "changes the tree; of a program of its own",
    "unit/test_syntax.py": "to disturb another parse",
}


class Parses:
    """Garbage that only the collector finds, and that parses when it is ended."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        self.deeper(30)

    def deeper(self, levels: int) -> None:
        if levels:
            self.deeper(levels - 1)
        else:
            ast.parse("a + b")


def test_garbage_that_parses_is_not_ended_amid_a_parse() -> None:
    source = "\n".join(f"x{number} = (a + b) * c(d, [e, f])" for number in range(4_000))
    before = gc.get_threshold()
    gc.disable()
    for _ in range(50):
        Parses()
    gc.set_threshold(5_000, 1, 1)
    gc.enable()
    try:
        assert len(syntax_tree(source).body) == 4_000
    except SystemError as error:
        pytest.fail(f"the parse was disturbed: {error}")
    finally:
        gc.set_threshold(*before)
        gc.collect()


def test_whoever_reads_the_code_has_it_parsed_without_the_collector() -> None:
    parses = [str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py") if "ast.parse(" in path.read_text("utf-8")]
    assert sorted(parses) == sorted(PARSES)
