"""JSON of others has one error, and no other way is taken to read it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import logagent
from logagent.base.files.safe_open import bounded, parse_json
from tests.syntax import syntax_tree

ROOT = Path(logagent.__file__).parent
# What these read was written by the same process or its own child a moment ago.
OWN = {"advice/assignments_command.py", "base/linux/access.py"}


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": NaN}',
        b"-Infinity",
        b"1e999",
        b"-1e400",
        b"1" * 5000,
        b"\xff\xfe",
        b"",
        b"{} {}",
    ],
)
def test_whatever_is_in_it_the_only_error_is_valueerror(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_json(text)


def test_numbers_that_fit_are_read() -> None:
    assert parse_json('[1, -2.5, 1e300, "x", null]') == [1, -2.5, 1e300, "x", None]
    assert parse_json(str((1 << 63) - 1), integers=bounded) == (1 << 63) - 1
    with pytest.raises(ValueError, match="too long"):
        parse_json("1" * 20, integers=bounded)


def test_nobody_parses_foreign_json_in_another_way() -> None:
    found = set()
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name == "base/files/safe_open.py" or name.startswith("demo/"):
            continue
        for node in ast.walk(syntax_tree(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.loads", "json.load"):
                found.add(name)
    assert found == OWN
