"""ARCHITECTURE.md names files, functions and folders, CONTRIBUTING.md files and tests, docstrings and comments names of
the code: every one of them is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.syntax import syntax_tree

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/.]+\.py)(?:: ([\w.]+))?`", TEXT)))
PATH = re.compile(r"`((?:logagent|tests|packaging|docs|config)/[\w./-]+?\w)(?:::(\w+))?(?=[`: ])")
TOLD = sorted(set(PATH.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))))
# Of docstrings and comments. Not ours: the kernel's, systemd's, and how the names of arguments of `link` end.
SNAKE = re.compile(r"`(?:[a-z_]\w*\.)*([a-z][a-z0-9]*_[a-z0-9_]+)(?:\(\))?`")
NOT_OURS = {
    "ceph_rename",
    "nfs_rename",
    "v9fs_vfs_rename",
    "vfs_rename",
    "sd_booted",
    "sd_notify",
    "key__min",
    "key__max",
}
FOLDERS = sorted(set(re.findall(r"`([a-z_/]+/)`", TEXT)))


def source_of(path: str) -> Path:
    """Of the product, unless the path says that it is one of the tests."""
    return ROOT / path if path.startswith("tests/") else ROOT / "logagent" / path


def defines(tree: ast.AST, name: str) -> bool:
    """Whether `name` (or `Class.method`) is defined in the body of `tree`."""
    first, _, rest = name.partition(".")
    found = (n for n in ast.iter_child_nodes(tree) if getattr(n, "name", None) == first)
    return any(not rest or defines(n, rest) for n in found)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_name_is_there(path: str, name: str) -> None:
    source = source_of(path)
    assert source.is_file(), path
    assert not name or defines(syntax_tree(source.read_text(encoding="utf-8")), name), f"{path}: {name}"


@pytest.mark.parametrize(("path", "test"), TOLD)
def test_what_contributors_are_told_is_there(path: str, test: str) -> None:
    assert (ROOT / path).exists(), path
    assert not test or defines(syntax_tree((ROOT / path).read_text(encoding="utf-8")), test), f"{path}: {test}"


def test_every_folder_is_there() -> None:
    missing = [f for f in FOLDERS if not (ROOT / f).is_dir() and not (ROOT / "logagent" / f).is_dir()]
    assert not missing and len(FOLDERS) > 20


def test_every_room_is_on_the_map() -> None:
    rooms = {p.name for p in (ROOT / "logagent").iterdir() if (p / "__init__.py").is_file()}
    assert {f"{room}/" for room in rooms} <= set(FOLDERS)


def test_the_walks_name_their_functions() -> None:
    walks = re.findall(r"^## Walk \d:.*?(?=^## )", TEXT, re.MULTILINE | re.DOTALL)
    assert [len(re.findall(r"`[\w/]+\.py: ", walk)) > 6 for walk in walks] == [True] * 3


def prose_and_code(source: str) -> tuple[str, str]:
    """Docstrings and comments, and the rest."""
    comment = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
    prose, lines = comment.findall(source), comment.sub("", source).splitlines()
    for node in ast.walk(syntax_tree(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose.append(node.value.value)
            for number in range(node.lineno - 1, node.value.end_lineno or 0):
                lines[number] = ""
    return "\n".join(prose), "\n".join(lines)


def test_what_comments_and_docstrings_name_is_in_the_code() -> None:
    both = {path: prose_and_code(path.read_text("utf-8")) for path in sorted((ROOT / "logagent").rglob("*.py"))}
    words = NOT_OURS | {word for path, (_, code) in both.items() for word in re.findall(r"\w+", code)}
    told = [(str(path.relative_to(ROOT)), name) for path, (prose, _) in both.items() for name in SNAKE.findall(prose)]
    assert len(told) > 500
    assert [(path, name) for path, name in told if name not in words] == []
