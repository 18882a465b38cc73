"""No file is opened that is not in the list of hostile files, or for a reason that stands there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import logagent
from tests.disk.hostile_files import ELSEWHERE, FILES, OTHERWISE, OWN_FOLDERS
from tests.syntax import syntax_tree

ROOT = Path(logagent.__file__).parent
SAFE = frozenset({"read_regular", "opened_regular", "open_regular", "read_open", "open_seen", "read_trusted"})
RAW = frozenset({"open", "os.open", "io.open", "s.connect", "sqlite3.connect"})
# What no user can put anything in the place of: /proc, new files, directories, nothing.
HARMLESS = ("/proc", "{proc}", "O_EXCL", "O_DIRECTORY", "OPEN_DIRECTORY", "OPEN_CHILD", "_DIRECTORY", "'xb'", "devnull",
            "O_PATH", "O_TMPFILE")  # fmt: skip


def calls(node: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Every call, and the function that it stands in."""
    for child in ast.iter_child_nodes(node):
        here = child.name if isinstance(child, ast.FunctionDef) else inside
        if isinstance(child, ast.Call):
            yield here, child
        yield from calls(child, here)


def all_calls() -> Iterator[tuple[str, ast.Call]]:
    for path in ROOT.rglob("*.py"):
        if not path.relative_to(ROOT).as_posix().startswith(OWN_FOLDERS):
            yield from calls(syntax_tree(path.read_text(encoding="utf-8")))


def test_every_kind_of_file_that_is_opened_is_tried() -> None:
    kinds = {"QUORUM_STATE"}  # given on in a variable
    for _, call in all_calls():
        if ast.unparse(call.func).rpartition(".")[2] in SAFE and len(call.args) > 1:
            second = ast.unparse(call.func).rpartition(".")[2] not in ("read_open", "open_seen")
            kinds.add(ast.unparse(call.args[1 if second else 2]).rpartition(".")[2])
    listed = {file.kind for file in FILES.values()} | set(ELSEWHERE)
    assert kinds - listed - {"limit"} == set(), "add the file to tests/disk/hostile_files.py"
    assert listed - kinds - {""} == set(), "nothing is opened as these any more"


def test_whoever_opens_anything_otherwise_has_a_reason() -> None:
    used = set()
    for function, call in all_calls():
        name = ast.unparse(call.func)
        if name in RAW or name.endswith((".read_text", ".read_bytes")):
            text = ast.unparse(call)
            if not any(word in text for word in HARMLESS):
                assert function in OTHERWISE, f"{function}: {text}: use logagent.base.files.safe_open, or say why not"
                used.add(function)
    assert used
