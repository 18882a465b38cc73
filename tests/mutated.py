"""Programs that differ from the product in one place, as syntax trees: see `tests/mutants.py`."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).parents[1]

_OTHER: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass(frozen=True)
class Mutant:
    file: str
    """Below `logagent/`."""
    line: int
    what: str
    number: int
    """Of the syntax node that it changes, as `ast.walk` counts."""
    statement: int
    """The number of the statement that it is in: what a test has to reach."""

    def tree(self) -> ast.Module:
        """The whole file, broken."""
        tree = tree_of(self.file)
        return _changed(tree, next(n for i, n in enumerate(ast.walk(tree)) if i == self.number), self.what)

    def in_words(self) -> str:
        text = _text_of(self.file).splitlines()[self.line - 1]
        return f"{self.file}:{self.line}: {self.what}: {text.strip()}"


@cache
def _text_of(file: str) -> str:
    """Read once: somebody may edit it meanwhile."""
    return (ROOT / "logagent" / file).read_text(encoding="utf-8")


def tree_of(file: str) -> ast.Module:
    return ast.parse(_text_of(file))


def compiled(file: str, tree: ast.Module) -> CodeType:
    return compile(ast.fix_missing_locations(tree), str(ROOT / "logagent" / file), "exec", dont_inherit=True)


def mutants_of(file: str) -> Iterator[Mutant]:
    """Every mutant of the functions in a file; what is outside of functions is run at import, and left alone."""
    tree = tree_of(file)
    numbers = {node: number for number, node in enumerate(ast.walk(tree))}

    def below(node: ast.AST, statement: int) -> Iterator[Mutant]:
        for child in ast.iter_child_nodes(node):
            nearest = numbers[child] if isinstance(child, ast.stmt) else statement
            for what in _changes(child):
                yield Mutant(file, child.lineno, what, numbers[child], nearest)  # type: ignore[attr-defined]
            yield from below(child, nearest)

    for function in _functions(tree):
        for statement in function.body:
            whole = ast.Module([statement], [])
            yield from below(whole, -1)


def _functions(node: ast.AST) -> Iterator[ast.FunctionDef]:
    """The outermost ones."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield child
        else:
            yield from _functions(child)


def _changes(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Compare(ops=[_]):
            yield "other comparison"
        case ast.BoolOp():
            yield "and/or"
        case ast.UnaryOp(op=ast.Not()):
            yield "no not"
        case ast.Constant(value=bool()):
            yield "other truth"
        case ast.Constant(value=int()):
            yield "one more"
        case ast.If() | ast.IfExp():
            yield "always"
            yield "never"
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield "returns None"
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.AugAssign():
            yield "left out"


def _changed(tree: ast.Module, there: ast.AST, what: str) -> ast.Module:
    """What is left out stays behind a condition: the function has to keep the variables that it shares."""
    match what, there:
        case "other comparison", ast.Compare():
            there.ops = [_OTHER[type(there.ops[0])]()]
        case "and/or", ast.BoolOp():
            there.op = ast.Or() if isinstance(there.op, ast.And) else ast.And()
        case "no not", ast.UnaryOp():
            there.op, there.operand = ast.Not(), ast.UnaryOp(ast.Not(), there.operand)
        case "other truth", ast.Constant():
            there.value = not there.value
        case "one more", ast.Constant(value=int(value)):
            there.value = value + 1
        case "always", (ast.If() | ast.IfExp()):
            there.test = ast.BoolOp(ast.Or(), [ast.Constant(True), there.test])
        case "never", (ast.If() | ast.IfExp()):
            there.test = ast.BoolOp(ast.And(), [ast.Constant(False), there.test])
        case "returns None", ast.Return(value=ast.expr() as value):
            there.value = ast.IfExp(ast.Constant(True), ast.Constant(None), value)
        case _:
            for body in _bodies(tree):
                if there in body:
                    body[body.index(there)] = ast.If(ast.Constant(False), [there], [])
                    break
    return tree


def _bodies(tree: ast.AST) -> list[list[ast.stmt]]:
    bodies = (getattr(each, name, None) for each in ast.walk(tree) for name in ("body", "orelse", "finalbody"))
    return [body for body in bodies if isinstance(body, list)]


def noting(file: str, first: int) -> ast.Module:
    """The file, whose functions note each statement before they run it, at its number after `first`."""
    tree = tree_of(file)
    numbers = {node: number for number, node in enumerate(ast.walk(tree))}
    for function in list(_functions(tree)):
        for body in _bodies(function):
            body[:] = [
                each
                for statement in body
                for each in (*ast.parse(f"__reached__[{first + numbers[statement]}] = 1").body, statement)
            ]
    return tree


def drawn(files: Sequence[str], count: int, seed: int) -> tuple[list[Mutant], int]:
    """Mutants that are programs of their own, and how many places there were to draw from."""
    every = [m for file in files for m in mutants_of(file)]
    random.Random(seed).shuffle(every)
    seen = {compiled(file, tree_of(file)) for file in files}
    chosen = list[Mutant]()
    for mutant in every:
        if len(chosen) < count and (code := compiled(mutant.file, mutant.tree())) not in seen:
            seen.add(code)
            chosen.append(mutant)
    return chosen, len(every)
