"""`logagent/model` decides and touches nothing: its imports are read, those inside functions too."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import logagent.model
from tests.syntax import syntax_tree

FOLDER = Path(logagent.model.__file__).parent
MODULES = sorted(FOLDER.rglob("*.py"))

# Whoever needs another one asks first whether it can see a disk, a clock or another process.
ALLOWED = {
    "__future__",
    "array",
    "base64",
    "binascii",
    "bisect",
    "collections",
    "dataclasses",
    "datetime",  # to write a moment down; asking the clock is seen below
    "enum",
    "fnmatch",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "tomllib",
    "shlex",  # quotes words; only its lexer would read stdin, and only if it is given nothing else
    "string",
    "struct",
    "types",
    "typing",
    "unicodedata",
}
OURS = ("logagent.errors", "logagent.model")
FORBIDDEN_CALLS = {"open", "print", "input", "__import__", "exec", "eval", "breakpoint"}
DATETIMES = {"datetime", "date", "datetime.datetime", "datetime.date"}
CLOCKS = {"now", "today", "utcnow"}


def impurities(source: str) -> list[str]:
    """Every import and call in `source` that the model must not have, as "line: what"."""
    found = []
    for node in ast.walk(syntax_tree(source)):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = ["." * node.level + (node.module or "")]
        else:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
                found.append(f"{node.lineno}: calls {node.func.id}")
            if isinstance(node, ast.Attribute) and node.attr in CLOCKS and ast.unparse(node.value) in DATETIMES:
                found.append(f"{node.lineno}: asks the clock with {node.attr}")
            continue
        found += [f"{node.lineno}: imports {name}" for name in imported if not is_pure(name)]
    return found


def is_pure(module: str) -> bool:
    if module.partition(".")[0] in ALLOWED:
        return True
    return any(module == ours or module.startswith(f"{ours}.") for ours in OURS)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_the_model_imports_nothing_that_acts(module: Path) -> None:
    assert impurities(module.read_text(encoding="utf-8")) == []


def test_there_is_something_to_read() -> None:
    assert {"dir_names.py", "records.py"} <= {module.name for module in MODULES}


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "import os.path",
        "from time import time",
        "import time",
        "x = datetime.now()",
        "x = datetime.date.today",
        "from pathlib import Path",
        "import psutil, re",
        "from . import names",
        "from logagent.host import disk",
        "import logagent.errors_of_others",
        "def f():\n    import sqlite3",
        "if x:\n    from pyspark.sql import types",
        "open('x')",
        "__import__('os')",
    ],
)
def test_the_reader_sees_what_it_should(line: str) -> None:
    assert len(impurities(line)) == 1


@pytest.mark.parametrize(
    "line", ["import re", "from logagent.model.records import Kind", "import logagent.errors", "self.now"]
)
def test_the_reader_lets_the_rest_pass(line: str) -> None:
    assert impurities(line) == []
