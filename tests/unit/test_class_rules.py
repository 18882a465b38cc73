"""A class is one class in one file: none exists to split another, and a Protocol has two implementations or a test
that puts another in its place (ARCHITECTURE.md)."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import logagent
from tests.syntax import syntax_tree

ROOT = Path(logagent.__file__).parent
TESTS = ROOT.parent / "tests"

# A class that only one other is derived from and that nobody makes, with the one that is made. This only gets shorter.
SPLIT = {("HolderWatch", "StoppableHolderWatch")}
# A Protocol with at most one implementation, tests included. This only gets shorter.
ALONE: set[str] = set()


# Before a class, at whatever depth: files without one need not be parsed.
A_CLASS = re.compile(r"^ *class ", re.MULTILINE)


def nodes(root: Path, having: re.Pattern[str] = re.compile("")) -> Iterator[ast.AST]:
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if having.search(text):
            yield from ast.walk(syntax_tree(text))


@cache
def classes(root: Path) -> list[ast.ClassDef]:
    return [node for node in nodes(root, A_CLASS) if isinstance(node, ast.ClassDef)]


def bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}


def made(root: Path) -> set[str]:
    """Names that a call, an annotation or an `except` is about: what is used as itself, not only to derive from."""
    found: set[str] = set()
    for node in nodes(root):
        parts: list[ast.expr | None] = []
        match node:
            case ast.Call():
                parts = [node.func]
            case ast.AnnAssign() | ast.arg():
                parts = [node.annotation]
            case ast.FunctionDef():
                parts = [node.returns]
            case ast.ExceptHandler():
                parts = [node.type]
        found |= {n.id for part in parts if part is not None for n in ast.walk(part) if isinstance(n, ast.Name)}
    return found


def members(node: ast.ClassDef, known: dict[str, ast.ClassDef]) -> set[str]:
    """Methods, annotated attributes, and what methods set on `self`, inherited ones included."""
    found: set[str] = set()
    for n in ast.walk(node):
        if isinstance(n, ast.FunctionDef):
            found.add(n.name)
        elif isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Store):
            found.add(n.id if isinstance(n, ast.Name) else n.attr)
    for name in bases(node) & known.keys():
        found |= members(known[name], known) if known[name] is not node else set()
    return found


def test_no_class_exists_only_to_split_another() -> None:
    derived: dict[str, set[str]] = defaultdict(set)
    product = classes(ROOT)
    for node in product:
        for base in bases(node):
            derived[base].add(node.name)
    own = {node.name for node in product if "Protocol" not in bases(node)}
    used = made(ROOT)
    split = {(base, *heirs) for base, heirs in derived.items() if base in own and len(heirs) == 1 and base not in used}
    assert split == SPLIT, "fold the two into one (or take a pair that has gone off the list)"


def test_every_protocol_has_another_implementation() -> None:
    product, all_classes = classes(ROOT), [*classes(ROOT), *classes(TESTS)]
    known = {node.name: node for node in all_classes}
    fits = {id(n): members(n, known) for n in all_classes}
    protocols = {node.name: node for node in product if "Protocol" in bases(node)}
    alone = set()
    for name, protocol in protocols.items():
        wanted = {member for member in members(protocol, known) if not member.startswith("__")}
        fit = [n.name for n in all_classes if n.name not in protocols and wanted and wanted <= fits[id(n)]]
        if len(fit) < 2:
            alone.add(name)
    assert alone == ALONE, "fold the Protocol into its implementation (or take one that has gone off the list)"
