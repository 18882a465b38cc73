"""The order of the rooms: the imports of every file are read, those inside functions and for types too.

Each room may import itself and those that stand before it, as ARCHITECTURE.md lists them.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import logagent
from tests.frozen import figures
from tests.syntax import syntax_tree

ROOT = Path(logagent.__file__).parent

# Each may import those before it. `cli.py` collects the commands by their names, without importing them; `demo` runs
# them through it.
ORDER = (
    "base",
    "kafka",
    "store",
    "disk",
    "verdict",
    "cleanup",
    "advice",
    "deletion",
    "service",
    "fleet",
    "schemas",
    "cli",
    "demo",
    "__main__",
)

# The fleet job runs where there is no broker: of the rooms between it and the store it imports words and types only.
FLEET_WORDS = {
    "kafka.image": "the sources of assignments, reserved directory ids, the newest metadata.version that was tested",
    "verdict.rules": "the reasons for verdicts",
    "verdict.evidence.documents": "the head of a snapshot names the assignments that were used",
    "advice.documents": "a log dir in a snapshot is that of a scan",
    "deletion.store.answers": "a report shows how far requests are",
}

# Heavy or dangerous packages, and the only place that may import them.
ONLY_IN = {"pyspark": "fleet", "py4j": "fleet", "sqlite3": "cleanup/state", "kafka": "kafka/admin"}


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


def room_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def room_of_import(module: str) -> str | None:
    """The room that an import names; None where it is not ours, "" for the package itself."""
    parts = module.split(".")
    if parts[0] != "logagent":
        return None
    return "" if len(parts) == 1 or parts[1] == "__version__" else parts[1]


def upwards(room: str, source: str, package: str) -> set[str]:
    """The rooms that `source`, a file of `room`, imports although they do not stand before it."""
    rooms = {room_of_import(module) for _, module in imports(source, package)} - {None, "", room}
    before = ORDER[: ORDER.index(room)] if room else ()
    return {name for name in rooms if name is not None and name not in before}


def strangers(path: Path) -> set[str]:
    """The packages that the file imports outside the only place for them."""
    here = path.relative_to(ROOT).as_posix()
    names = {module.split(".")[0] for _, module in imports(path.read_text(encoding="utf-8"), "")}
    return {name for name in names & ONLY_IN.keys() if not here.startswith(f"{ONLY_IN[name]}/")}


def package_of(path: Path) -> str:
    return ".".join(("logagent", *path.relative_to(ROOT).parts[:-1]))


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_run_down_the_list(path: Path) -> None:
    found = upwards(room_of(path), path.read_text(encoding="utf-8"), package_of(path))
    assert not found, "imports against the order of the rooms"
    assert not strangers(path)


@pytest.mark.parametrize("room", ORDER)
def test_an_import_against_the_order_is_seen(room: str) -> None:
    for after in ORDER[ORDER.index(room) + 1 :]:
        assert upwards(room, f"def f():\n    from logagent.{after} import x\n", f"logagent.{room}") == {after}


def test_the_rooms_are_those_of_the_list() -> None:
    assert {room_of(path) for path in modules()} - {""} == set(ORDER)


def test_the_fleet_job_imports_words_only() -> None:
    found = set()
    for path in sorted((ROOT / "fleet").rglob("*.py")):
        for _, module in imports(path.read_text(encoding="utf-8"), package_of(path)):
            if room_of_import(module) not in (None, "", "fleet", "base", "store"):
                found.add(module.removeprefix("logagent."))
    names = {name for name in found if (ROOT / name.replace(".", "/")).with_suffix(".py").is_file()}
    assert names == FLEET_WORDS.keys()


def test_no_folder_has_more_than_fifteen_files() -> None:
    files = Counter(path.parent for path in modules() if path.name != "__init__.py")
    assert {folder.relative_to(ROOT).as_posix(): n for folder, n in files.items() if n > 15} == {}


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
        ("import logagent.base.linux.kernel", "logagent.base.linux.kernel"),
        ("from logagent.base import linux", "logagent.base"),
        ("from logagent import base", "logagent.base"),
        ("from . import rows", "logagent.cleanup.session"),
        ("from .rows import x", "logagent.cleanup.session.rows"),
        ("from ..run_plan import run_plan", "logagent.cleanup.run_plan"),
        ("def f():\n    from pyspark.sql import types", "pyspark.sql"),
        ("if TYPE_CHECKING:\n    import pyspark", "pyspark"),
        ("importlib.import_module('logagent.fleet.job')", "logagent.fleet.job"),
    ],
)
def test_the_reader_sees_every_import(line: str, expected: str) -> None:
    assert expected in {module for _, module in imports(line, "logagent.cleanup.session")}
