"""`python -m tests.frozen.house [CHECKOUT]`: how far a feature's code lies apart, and how many shapes a thing has.

Beside what `figures` counts: the files and rooms of a subject (a room is a folder directly below `logagent/`), what of
the lines only joins others (blank ones, imports, heads of classes and functions), classes by their kind and names that
stand twice, and what two commands cost in code on the demo's host: the files that `cleanup --execute` runs through, and
the dataclasses that are created before `queue` answers.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

from tests.frozen.figures import Function, Module, read

LIMITS = Path(__file__).with_name("house.tsv")

# The files of each subject: what somebody who changes it may have to open, and nothing that others use as well.
SUBJECTS: Mapping[str, Sequence[str]] = {
    "topics": ("deletion/*", "kafka/admin/topic_deletion.py"),
    "check": ("advice/check/*",),
    "doctor": ("service/doctor/*",),
    "rescue": ("cleanup/rescue/*",),
    "explain": ("advice/explain/*",),
}

# Runs in a process of its own, below a demo's folder: the arguments are a mode and a command line.
PROBE = """
import contextlib, dataclasses, io, json, sys, threading
mode, root, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
made, passed = 0, set()
if mode == "dataclasses":
    create = dataclasses._process_class
    def counted(cls, *rest, **named):
        global made
        made += cls.__module__.startswith("logagent")
        return create(cls, *rest, **named)
    dataclasses._process_class = counted
def note(frame, event, argument):
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(root) and frame.f_code.co_name != "<module>":
        passed.add((file, frame.f_code.co_qualname))
if mode == "passed":
    import logagent.cli
    threading.setprofile(note)
    sys.setprofile(note)
from logagent.cli import run
with contextlib.redirect_stdout(io.StringIO()):
    status = run(arguments)
sys.setprofile(None)
print(json.dumps({"status": status, "made": made, "passed": sorted(passed)}))
"""


def subject_files(modules: Mapping[str, Module], root: Path, subject: str) -> list[str]:
    """The product's files of one subject, relative to `logagent/`. Raises ValueError if a pattern matches none: what
    moved away would count as gone."""
    names = [str(m.path.relative_to(root / "logagent")) for m in modules.values() if not m.is_init]
    matched = {pattern: {name for name in names if fnmatch(name, pattern)} for pattern in SUBJECTS[subject]}
    if empty := [pattern for pattern, found in matched.items() if not found]:
        raise ValueError(f"{subject}: no file of the product matches {', '.join(empty)}")
    return sorted(set[str]().union(*matched.values()))


def joining_lines(module: Module) -> set[int]:
    """Lines that are blank, import, or are the head of a class or function (decorators and signature)."""
    lines = module.path.read_text().splitlines()
    joining = {number for number, line in enumerate(lines, 1) if not line.strip()}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            joining.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, Function | ast.ClassDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            joining.update(range(first, max(node.body[0].lineno, node.lineno + 1)))
    return joining


def kinds_of_classes(modules: Mapping[str, Module]) -> tuple[Counter[str], list[str]]:
    """How many dataclasses, TypedDicts, NamedTuples and others there are, and the names that stand more than once."""
    kinds: Counter[str] = Counter()
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module.name)
                kinds[_kind(node)] += 1
    return kinds, [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]


def _kind(node: ast.ClassDef) -> str:
    if any(ast.unparse(each).startswith("dataclass") for each in node.decorator_list):
        return "dataclass"
    bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
    return next((kind for kind in ("TypedDict", "NamedTuple") if kind in bases), "other")


def called_once(modules: Mapping[str, Module]) -> int:
    """Private functions and methods that the whole product names once besides their definition."""
    defined: Counter[str] = Counter()
    named: Counter[str] = Counter()
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, Function):
                defined[node.name] += 1
            elif isinstance(node, ast.Name):
                named[node.id] += 1
            elif isinstance(node, ast.Attribute):
                named[node.attr] += 1
    private = (name for name in defined if name.startswith("_") and not name.startswith("__"))
    return sum(defined[name] == named[name] == 1 for name in private)


def demo_host(root: Path, folder: Path) -> None:
    """Lay the demo's host out in `folder`, which must be empty."""
    code = "import sys; from pathlib import Path; from logagent.demo.host import lay_out; lay_out(Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-P", "-c", code, str(folder)], env=_environment(root), check=True)


def probe(root: Path, folder: Path, mode: str, *arguments: str) -> dict[str, object]:
    """Run a command of the checkout on the demo's host in `folder`, and count `mode`."""
    typed = [arguments[0], "--config", "logagent.toml", "--state-dir", "state", *arguments[1:]]
    command = [sys.executable, "-P", "-c", PROBE, mode, str(root / "logagent"), *typed]
    ran = subprocess.run(command, cwd=folder, env=_environment(root), capture_output=True, text=True, check=True)
    counted = json.loads(ran.stdout)
    assert isinstance(counted, dict)
    return counted


def _environment(root: Path) -> dict[str, str]:
    """Nothing of whoever runs this; what is marked or set aside on the demo's host is due at once."""
    due = {
        "LOGAGENT_DELETE__FILE_DELETE_DELAY_MS": "0",
        "LOGAGENT_CLEANUP__LEFTOVER_GRACE": "0s",
        "LOGAGENT_CLEANUP__MAX_FRACTION": "1",
    }
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(root),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        **due,
    }


def passed_by(root: Path) -> Iterator[tuple[str, int]]:
    """What `cleanup --execute` passes, and what `queue` creates, on a demo's host each."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "demo"
        folder.mkdir()
        demo_host(root, folder)
        queue = probe(root, folder, "dataclasses", "queue")
        cleanup = probe(root, folder, "passed", "cleanup", "--execute")
    assert isinstance(cleanup["passed"], list) and isinstance(queue["made"], int)
    assert cleanup["status"] == queue["status"] == 0, "what ends early passes little"
    yield "files that cleanup --execute passes", len({file for file, _ in cleanup["passed"]})
    yield "dataclasses at the start of queue", queue["made"]


def counts(root: Path) -> Iterator[tuple[str, float]]:
    """Every figure of the checkout by its name, as `house.tsv` has them."""
    modules = read(root)
    product = [module for module in modules.values() if not module.is_init]
    lines = sum(module.lines for module in product)
    yield "files", len(product)
    yield "lines", lines
    yield "joinery in percent of the lines", round(100 * sum(len(joining_lines(m)) for m in product) / lines, 1)
    yield "files of the largest folder", max(Counter(module.path.parent for module in product).values())
    for subject in SUBJECTS:
        files = subject_files(modules, root, subject)
        yield f"files of {subject}", len(files)
        yield f"rooms of {subject}", len({name.partition("/")[0] for name in files})
    kinds, twice = kinds_of_classes(modules)
    for kind in ("dataclass", "TypedDict", "NamedTuple", "other"):
        yield f"classes: {kind}", kinds[kind]
    yield "class names that stand more than once", len(twice)
    yield "private functions that are named once", called_once(modules)
    yield from passed_by(root)


def limits() -> dict[str, float]:
    """The most that each figure may come to (`house.tsv`): a limit is tightened with what a change brings down, and
    loosened only with a sentence in the commit that says why."""
    rows = (line.split("\t") for line in LIMITS.read_text().splitlines())
    return {name: float(most) for most, name in rows}


def main(root: Path) -> None:
    for what, number in counts(root):
        print(f"{number:g}\t{what}")
    for row in kinds_of_classes(read(root))[1]:
        print(f"  {row}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(__file__).parents[2])
