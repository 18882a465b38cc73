"""Parsing a file is not disturbed by what the garbage collector ends meanwhile."""

from __future__ import annotations

import ast
import gc

import pytest

from tests.syntax import syntax_tree


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
