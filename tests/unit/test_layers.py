"""The order of the layers: the imports of every file are read, those inside functions and for types too.

Each layer may import itself and those that stand before it, as ARCHITECTURE.md draws them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import logagent
from tests.frozen import figures
from tests.syntax import syntax_tree

ROOT = Path(logagent.__file__).parent

# What every layer may use.
BASE = frozenset({"", "errors"})

# layer -> the layers that it may import.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "settings": frozenset(),
    "files": frozenset(),
    "model": frozenset(),
    "store": frozenset({"files", "model"}),
    "documents": frozenset({"model", "store"}),
    "broker": frozenset({"files", "model"}),
    "host": frozenset({"files", "model", "broker"}),
    "agent": frozenset({"files", "model", "store", "documents", "broker", "host", "settings"}),
    "controller": frozenset({"model", "store"}),
    "fleet": frozenset({"files", "model", "store", "documents", "settings"}),
    "cli": frozenset(
        {"files", "model", "store", "documents", "broker", "host", "agent", "controller", "fleet", "demo", "settings"}
    ),
    "demo": frozenset({"files", "model", "store", "broker", "host", "agent", "cli", "fleet", "settings"}),
    "__main__": frozenset({"cli"}),
    "": frozenset(),
}

# (file, layer): what does not yet keep to it. This list only ever gets shorter.
EXCEPTIONS: frozenset[tuple[str, str]] = frozenset()

# Heavy or dangerous packages, and the only place that may import them.
ONLY_IN = {"pyspark": "fleet", "py4j": "fleet", "sqlite3": "host/state", "kafka": "broker/admin"}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def imports(source: str, package: str) -> Iterator[tuple[int, str]]:
    """(line, imported module) of everything that `source` imports; `package`: its own, for relative imports."""
    for node in ast.walk(syntax_tree(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
            module = node.module or ""
            if node.level:
                module = f"{base}.{module}".rstrip(".")
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from ((node.lineno, str(a.value)) for a in node.args[:1] if isinstance(a, ast.Constant))


def name_of(path: Path) -> str:
    return ".".join(("logagent", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def layer_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def layer_of_import(module: str) -> str | None:
    """The layer that an import names; None where it is not ours, "" for the package itself."""
    parts = module.split(".")
    if parts[0] != "logagent":
        return None
    return "" if len(parts) == 1 or parts[1] == "__version__" else parts[1]


def violations(path: Path) -> set[str]:
    """The layers that the file imports and may not."""
    layer = layer_of(path)
    package = ".".join(("logagent", *path.relative_to(ROOT).parts[:-1]))
    found = (layer_of_import(module) for _, module in imports(path.read_text(encoding="utf-8"), package))
    allowed = MAY_IMPORT[layer] | BASE | {layer}
    return {name for name in found if name is not None and name not in allowed}


def strangers(path: Path) -> set[str]:
    """The packages that the file imports outside the only place for them."""
    here = path.relative_to(ROOT).as_posix()
    names = {module.split(".")[0] for _, module in imports(path.read_text(encoding="utf-8"), "")}
    return {name for name in names & ONLY_IN.keys() if not here.startswith(f"{ONLY_IN[name]}/")}


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_run_one_way(path: Path) -> None:
    here = path.relative_to(ROOT).as_posix()
    excused = {layer for file, layer in EXCEPTIONS if file == here}
    assert violations(path) == excused, "imports against the order of the layers (or an exception that has gone)"
    assert not strangers(path)


def test_every_layer_is_known() -> None:
    assert {layer_of(path) for path in modules()} <= MAY_IMPORT.keys()


def test_the_order_has_no_circle() -> None:
    """The layers can be put into a row (`cli` and its demonstration aside, which show each other)."""
    left = {layer: set(names) - BASE for layer, names in MAY_IMPORT.items() if layer != "demo"}
    left["cli"] -= {"demo"}
    while left:
        free = [layer for layer, names in left.items() if not names & left.keys()]
        assert free, f"a circle among {sorted(left)}"
        for layer in free:
            del left[layer]


def test_no_module_imports_itself_over_others() -> None:
    """No circle between files within a layer either; what is imported inside a function or for types counts too."""
    names = {name_of(path): path for path in modules()}
    graph = {
        name: {module for _, module in imports(path.read_text(encoding="utf-8"), name) if module in names}
        - {name, name.rpartition(".")[0]}
        for name, path in names.items()
    }
    while graph:
        free = [name for name, needs in graph.items() if not needs & graph.keys()]
        assert free, f"a circle among {sorted(graph)}"
        for name in free:
            del graph[name]


def test_no_package_imports_itself_over_others() -> None:
    """No circle between packages (folders) either, over imports at the top of files."""
    pairs, groups = figures.circles(figures.package_edges(figures.read(ROOT.parent), lazy=False))
    assert not pairs
    assert not groups


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import logagent.host.linux.proc", "logagent.host.linux.proc"),
        ("from logagent.host import linux", "logagent.host"),
        ("from logagent import host", "logagent.host"),
        ("from . import rows", "logagent.agent.session"),
        ("from .rows import x", "logagent.agent.session.rows"),
        ("from ..clock import Clock", "logagent.agent.clock"),
        ("def f():\n    from pyspark.sql import types", "pyspark.sql"),
        ("if TYPE_CHECKING:\n    import pyspark", "pyspark"),
        ("importlib.import_module('logagent.fleet.job')", "logagent.fleet.job"),
    ],
)
def test_the_reader_sees_every_import(line: str, expected: str) -> None:
    assert expected in {module for _, module in imports(line, "logagent.agent.session")}
