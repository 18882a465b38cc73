"""What decides touches nothing: the imports of all rules are read, those inside functions too."""

from __future__ import annotations

import ast
from fnmatch import fnmatch
from pathlib import Path

import pytest

import logagent
from tests.syntax import syntax_tree

ROOT = Path(logagent.__file__).parent
# Below logagent/: what decides on values that others read, and the values.
RULES = (
    "*/rules.py",
    "*/rules/*.py",
    "cleanup/plan/*.py",
    "kafka/retention/*.py",
    "advice/finding.py",
    "base/claims.py",
    "base/config/settings.py",
    "base/dir_names.py",
    "base/errors.py",
    "base/kafka_version.py",
    "base/records.py",
    "base/units.py",
    "disk/health.py",
    "service/summary.py",
)
# Of these folders, what is in themselves.
FOLDERS = ("kafka", "verdict")


def is_rules(path: Path) -> bool:
    name = path.relative_to(ROOT).as_posix()
    return name.rpartition("/")[0] in FOLDERS or any(fnmatch(name, rule) for rule in RULES)


MODULES = [path for path in sorted(ROOT.rglob("*.py")) if path.name != "__init__.py" and is_rules(path)]
OURS = {"logagent." + path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in MODULES}

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
    "pydantic",  # of a setting, how its text becomes a value
    "pydantic_core",
    "re",
    "tomllib",
    "shlex",  # quotes words; only its lexer would read stdin, and only if it is given nothing else
    "string",
    "struct",
    "types",
    "typing",
    "unicodedata",
}
FORBIDDEN_CALLS = {"open", "print", "input", "__import__", "exec", "eval", "breakpoint"}
DATETIMES = {"datetime", "date", "datetime.datetime", "datetime.date"}
CLOCKS = {"now", "today", "utcnow"}


def impurities(source: str) -> list[str]:
    """Every import and call in `source` that rules must not have, as "line: what"."""
    found = []
    for node in ast.walk(syntax_tree(source)):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            # `from logagent.cleanup.plan import guards` names a module, too.
            imported = [module] if is_pure(module) else [f"{module}.{alias.name}" for alias in node.names]
        else:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
                found.append(f"{node.lineno}: calls {node.func.id}")
            if isinstance(node, ast.Attribute) and node.attr in CLOCKS and ast.unparse(node.value) in DATETIMES:
                found.append(f"{node.lineno}: asks the clock with {node.attr}")
            continue
        found += [f"{node.lineno}: imports {name}" for name in imported if not is_pure(name)]
    return found


def is_pure(module: str) -> bool:
    return module in OURS or module.partition(".")[0] in ALLOWED


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_rules_import_nothing_that_acts(module: Path) -> None:
    assert impurities(module.read_text(encoding="utf-8")) == []


def test_there_is_something_to_read() -> None:
    empty = [rule for rule in RULES if not any(fnmatch(m.relative_to(ROOT).as_posix(), rule) for m in MODULES)]
    assert not empty and len(MODULES) > 40


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
        "from logagent.disk import unlink",
        "import logagent.base.errors_of_others",
        "def f():\n    import sqlite3",
        "if x:\n    from pyspark.sql import types",
        "open('x')",
        "__import__('os')",
    ],
)
def test_the_reader_sees_what_it_should(line: str) -> None:
    assert len(impurities(line)) == 1


@pytest.mark.parametrize(
    "line", ["import re", "from logagent.base.records import Kind", "import logagent.base.errors", "self.now"]
)
def test_the_reader_lets_the_rest_pass(line: str) -> None:
    assert impurities(line) == []
