"""The syntax tree of a source text, for the tests that read the code."""

from __future__ import annotations

import ast
import gc
from functools import cache


@cache
def syntax_tree(source: str) -> ast.Module:
    """`ast.parse` without the garbage collector, and once for each text.

    CPython 3.11 and 3.12 count the depth of every parse in one place. Where the collector runs in the middle of one
    and ends something whose finalizer parses too (an error in a finalizer does: a traceback parses the lines that it
    shows), they end the outer one with "AST constructor recursion depth mismatch".
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if collecting:
            gc.enable()
