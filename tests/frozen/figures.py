"""`python -m tests.frozen.figures [CHECKOUT]`: what a refactoring wants to see shrink, from the code alone.

Product files are those of `logagent/` without `__init__.py`. A package is a folder. Imports are those of modules and
their names; what runs only in `if TYPE_CHECKING` is counted apart, and so is what a function imports (lazily).
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.syntax import syntax_tree

SHORT = 80
LONG_FUNCTION = 40
MANY_PARAMETERS = 8
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """One file: its dotted name, its package, and what it imports of the product."""

    name: str
    path: Path
    lines: int
    tree: ast.Module
    eager: set[str] = field(default_factory=set)
    lazy: list[tuple[str, int]] = field(default_factory=list)
    """Every import statement in a function: what is imported first, and the line."""
    typing: list[tuple[str, int]] = field(default_factory=list)

    @property
    def package(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def is_init(self) -> bool:
        return self.path.name == "__init__.py"


def read(root: Path) -> dict[str, Module]:
    """Every module of the product by its dotted name."""
    found = {}
    for path in sorted((root / "logagent").rglob("*.py")):
        text = path.read_text()
        parts = path.relative_to(root).with_suffix("").parts
        # A package's own code belongs to its folder: `logagent.verdict.__init__` lies in `logagent.verdict`.
        name = ".".join(parts)
        found[name] = Module(name, path, len(text.splitlines()), syntax_tree(text))
    for module in found.values():
        _imports(module, module.tree, found, where="eager")
    return found


def _imports(module: Module, node: ast.AST, known: dict[str, Module], where: str) -> None:
    for child in ast.iter_child_nodes(node):
        inside = where
        if isinstance(child, Function | ast.Lambda):
            inside = "lazy"
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for statement in child.body:
                _imports(module, ast.Module([statement], []), known, "typing")
            for statement in child.orelse:
                _imports(module, ast.Module([statement], []), known, where)
            continue
        elif isinstance(child, ast.Import | ast.ImportFrom):
            _note(module, child, known, where)
        _imports(module, child, known, inside)


def _note(module: Module, statement: ast.Import | ast.ImportFrom, known: dict[str, Module], where: str) -> None:
    targets = list(_targets(statement, known))
    first = targets[0] if targets else ast.unparse(statement)
    if where == "eager":
        module.eager.update(targets)
    else:
        (module.lazy if where == "lazy" else module.typing).append((first, statement.lineno))


def _targets(statement: ast.Import | ast.ImportFrom, known: dict[str, Module]) -> Iterator[str]:
    """The product's modules that are imported, by dotted name."""
    names = [a.name for a in statement.names]
    if isinstance(statement, ast.ImportFrom):
        names = [f"{statement.module}.{name}" for name in names]
    for name in names:
        while name.startswith("logagent"):
            module = next((n for n in (name, f"{name}.__init__") if n in known), None)
            if module is not None:
                yield module
                break
            name = name.rpartition(".")[0]


def functions(module: Module) -> Iterator[tuple[str, Function]]:
    """Every function and method with its qualified name."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield f"{prefix}{child.name}", child
                yield from walk(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, f"{prefix}{child.name}.")
            else:
                yield from walk(child, prefix)

    yield from walk(module.tree, "")


def length(function: Function) -> int:
    """Lines from `def` to the last one; decorators do not count, docstrings do."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def parameters(function: Function) -> int:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    own = sum(a.arg not in ("self", "cls") for a in named)
    return own + (arguments.vararg is not None) + (arguments.kwarg is not None)


def circles(edges: dict[str, set[str]]) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Pairs that import each other, and whole groups in which everything reaches everything."""
    reach: dict[str, set[str]] = {}
    for start in edges:
        seen: set[str] = set()
        left = [start]
        while left:
            for after in edges.get(left.pop(), ()):
                if after not in seen:
                    seen.add(after)
                    left.append(after)
        reach[start] = seen
    pairs = sorted((a, b) for a in edges for b in edges[a] if a < b and a in edges.get(b, ()))
    groups: list[list[str]] = []
    for name in sorted(edges):
        if name in reach[name] and not any(name in group for group in groups):
            groups.append(sorted(other for other in edges if other in reach[name] and name in reach[other]))
    return pairs, groups


def package_edges(modules: dict[str, Module], *, lazy: bool) -> dict[str, set[str]]:
    """Which folder imports which; `lazy`: what functions import counts too."""
    edges: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        targets = module.eager | ({name for name, _ in module.lazy if name in modules} if lazy else set())
        for target in targets:
            package = modules[target].package
            edges[module.package]
            if package != module.package:
                edges[module.package].add(package)
    return dict(edges)


def bases(modules: dict[str, Module]) -> tuple[list[str], list[str]]:
    """Classes of which exactly one class is derived, and Protocols that exactly one class is said or seen to have."""
    classes: dict[str, list[tuple[Module, ast.ClassDef]]] = defaultdict(list)
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append((module, node))
    derived: dict[str, set[str]] = defaultdict(set)
    protocols: dict[str, tuple[Module, ast.ClassDef]] = {}
    for name, places in classes.items():
        for module, node in places:
            for base in node.bases:
                written = ast.unparse(base).partition("[")[0].rpartition(".")[2]
                if written == "Protocol":
                    protocols[name] = (module, node)
                elif written in classes:
                    derived[written].add(f"{name} ({module.path.stem})")
    single = [
        f"{classes[name][0][0].name}:{name} <- {next(iter(heirs))}"
        for name, heirs in sorted(derived.items())
        if len(heirs) == 1 and name not in protocols
    ]
    told = []
    for name, (module, node) in sorted(protocols.items()):
        wanted = _members(node)
        fit = [
            f"{other} ({at.path.stem})"
            for other, places in classes.items()
            for at, candidate in places
            if other not in protocols and wanted and wanted <= _all_members(candidate, classes)
        ]
        if len(fit) == 1:
            told.append(f"{module.name}:{name} <- {fit[0]}")
        elif not fit:
            told.append(f"{module.name}:{name} <- none in the product (functions, modules or other libraries)")
    return single, told


def _members(node: ast.ClassDef) -> set[str]:
    """Methods and annotated attributes, those that methods set on `self` included."""
    found = set()
    for child in ast.walk(node):
        if isinstance(child, Function):
            found.add(child.name)
        elif isinstance(child, ast.AnnAssign | ast.Assign):
            for target in child.targets if isinstance(child, ast.Assign) else [child.target]:
                if isinstance(target, ast.Name):
                    found.add(target.id)
                elif isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                    found.add(target.attr)
    return found


def _all_members(node: ast.ClassDef, classes: dict[str, list[tuple[Module, ast.ClassDef]]]) -> set[str]:
    found = _members(node)
    for base in node.bases:
        name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
        for _, parent in classes.get(name, ()):
            if parent is not node:
                found |= _all_members(parent, classes)
    return found


def _list(title: str, rows: list[str]) -> None:
    print(f"\n{title}: {len(rows)}")
    for row in rows:
        print(f"  {row}")


def main(root: Path) -> None:
    modules = read(root)
    product = [m for m in modules.values() if not m.is_init]
    print(f"product files: {len(product)}")
    inits = [m for m in modules.values() if m.is_init]
    print(f"lines: {sum(m.lines for m in product)}")
    print(f"__init__.py files: {len(inits)}, with {sum(m.lines for m in inits)} lines")
    print(f"files below {SHORT} lines: {sum(m.lines < SHORT for m in product)}")
    alone = _importers(modules)
    one = [m for m in product if alone[m.name] == {m.package}]
    print(f"files whose importers are all in their own folder: {len(one)}")
    print(f"files with one importer, in their own folder: {sum(_single(modules, m) for m in product)}")

    measured = [(length(f), f"{m.name}:{name}") for m in modules.values() for name, f in functions(m)]
    longest = sorted(measured, reverse=True)
    print(f"functions over {LONG_FUNCTION} lines: {sum(n > LONG_FUNCTION for n, _ in longest)}")
    _list("longest functions", [f"{n:3} {name}" for n, name in longest[:10]])
    many = sorted(
        ((parameters(f), f"{m.name}:{name}") for m in modules.values() for name, f in functions(m)), reverse=True
    )
    _list(
        f"functions with {MANY_PARAMETERS} parameters or more (without self)",
        [f"{n:3} {name}" for n, name in many if n >= MANY_PARAMETERS],
    )

    for title, lazy in (("eager imports", False), ("lazy ones too", True)):
        edges = package_edges(modules, lazy=lazy)
        pairs, groups = circles(edges)
        _list(f"package circles, {title}: pairs", [f"{a} <-> {b}" for a, b in pairs])
        _list(f"package circles, {title}: groups", [", ".join(group) for group in groups])

    lazily = [(m, name, line) for m in modules.values() for name, line in m.lazy]
    own = [one for one in lazily if one[1] in modules]
    print(f"\nlazy imports (statements in functions): {len(lazily)}, of the product's own modules: {len(own)}")
    print(f"imports in `if TYPE_CHECKING`: {sum(len(m.typing) for m in modules.values())}")
    by_room: dict[str, int] = defaultdict(int)
    for module, _, _ in lazily:
        by_room[".".join(module.name.split(".")[:2])] += 1
    print("  by room: " + ", ".join(f"{room} {count}" for room, count in sorted(by_room.items())))

    single, told = bases(modules)
    _list("classes that are a base class of exactly one class", single)
    _list("Protocols with at most one implementation in the product (by members)", told)


def _importers(modules: dict[str, Module]) -> dict[str, set[str]]:
    """Folders that import each module, lazily or not."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for target in module.eager | {name for name, _ in module.lazy} | {name for name, _ in module.typing}:
            found[target].add(module.package)
    return found


def _single(modules: dict[str, Module], wanted: Module) -> bool:
    importers = {
        m.name
        for m in modules.values()
        if wanted.name in m.eager or any(name == wanted.name for name, _ in (*m.lazy, *m.typing))
    }
    return len(importers) == 1 and modules[next(iter(importers))].package == wanted.package


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2])
