"""What a failing test says in its first line is what it saw, not that a generator was not all true."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.syntax import syntax_tree

TESTS = Path(__file__).parents[1]


def says_nothing(test: ast.expr) -> bool:
    """Whether a part of what is asserted is `all(… for …)` or `any(… for …)`."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    bare = [part.operand if isinstance(part, ast.UnaryOp) else part for part in parts]
    return [
        call
        for call in bare
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("all", "any")
        and isinstance(call.args[0], ast.GeneratorExp)
    ] != []


def test_an_assertion_shows_what_it_saw() -> None:
    """`assert [x for x in found if not good(x)] == []`, or with a message."""
    silent = [
        f"{path.relative_to(TESTS)}:{node.lineno}"
        for path in sorted(TESTS.glob("**/*.py"))
        for node in ast.walk(syntax_tree(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert) and node.msg is None and says_nothing(node.test)
    ]
    assert silent == []
