"""Brokers are shared; a test that has one of its own says why, in its docstring or in that of its file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.syntax import syntax_tree

BROKER = Path(__file__).parents[1] / "broker"
STARTERS = {"kafka", "kafka_cluster", "rig"}
MADE_BY_HAND = {"Rig", "KraftNode", "ZooKeeperNode", "KafkaCluster", "ZooKeeperCluster", "Quorum"}
REASON = re.compile(r"\b(?:brokers?|clusters?|nodes?|quorum) (?:is|are|of) (?:its|their) own(?:[:,]| as) \w")


def without_reason(tree: ast.Module) -> Iterator[str]:
    """The functions that start brokers of their own and do not say why."""
    if _says(tree):
        return
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and _starts(function) and not _says(function):
            yield function.name


def _says(where: ast.Module | ast.FunctionDef) -> bool:
    return REASON.search(" ".join((ast.get_docstring(where) or "").split())) is not None


def _starts(function: ast.FunctionDef) -> bool:
    asked = {argument.arg for argument in function.args.args + function.args.kwonlyargs}
    called = {n.func.id for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    named = {n.value for n in ast.walk(function) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    by_name = "getfixturevalue" in ast.dump(function) and bool(named & STARTERS)
    return bool(asked & STARTERS or called & MADE_BY_HAND or by_name)


@pytest.mark.parametrize("path", sorted(BROKER.rglob("test_*.py")), ids=lambda path: path.stem)
def test_who_has_brokers_of_their_own_says_why(path: Path) -> None:
    found = list(without_reason(syntax_tree(path.read_text(encoding="utf-8"))))
    assert found == [], f"{path.name}: not on a shared broker, and no 'The broker is its own, as …': {found}"


def test_an_own_broker_without_a_reason_is_found() -> None:
    source = '''
def asks(shared_node): """Nothing of its own."""
def silent(kafka): """The broker is its own."""
def made(tmp_path): Rig(tmp_path)
def named(request): request.getfixturevalue("kafka_cluster")
def says(kafka): """A broker of its own, as it is killed."""
'''
    assert list(without_reason(syntax_tree(source))) == ["silent", "made", "named"]
    assert list(without_reason(syntax_tree(f'"""The clusters are their own: they die."""{source}'))) == []
