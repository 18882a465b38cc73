"""Does a test fail when the code is broken? Seeded mutants of a subject, each against the tests that reach its line.

    python -m tests.mutants verdict --count 200 --seed 42
    python -m tests.mutants removal --count 20 --survivors

A mutant changes one place of one function: a comparison, `and` or `or`, a `not`, a number, a condition that is always
or never met, a statement that is left out, a result that is not returned. `outer` are the tests through the command
line and on disks, `inner` those that call the subject's functions. Printed is how many mutants each kind kills; what
both leave alive is either the same program, or a guard without a test. Takes some seconds of one core per mutant,
after a run of the subject's tests that finds which of them reach which line.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

ROOT = Path(__file__).parents[1]
Kind = Literal["outer", "inner"]


@dataclass(frozen=True)
class Subject:
    """What is broken, below `logagent/`, and who should notice, below `tests/`."""

    files: tuple[str, ...]
    outer: tuple[str, ...]
    inner: tuple[str, ...]


_ACTS = ("disk/agent/planning", "disk/agent/session", "disk/agent/execute", "disk/agent/evidence", "disk/cli/commands")
SUBJECTS = {
    "verdict": Subject(
        (
            "model/claims.py",
            *(f"model/assignments/{f}.py" for f in ("verdict", "covered", "strays", "duplicates", "lineage")),
        ),
        (*_ACTS, "disk/cli/test_guards.py", "disk/broker/metadata_log"),
        ("unit/model/assignments", "unit/model/test_claims.py", "unit/agent/evidence"),
    ),
    "guards": Subject(
        ("model/planning/guards.py", "model/planning/acts.py"),
        (*_ACTS, "disk/cli/test_guards.py"),
        ("unit/model/planning",),
    ),
    "due": Subject(
        ("model/planning/due.py", "model/planning/queue.py", "model/assignments/sightings.py"),
        (*_ACTS, "disk/cli/test_guards.py"),
        ("unit/model/planning", "unit/model/assignments"),
    ),
    "removal": Subject(
        tuple(f"host/removal/{f}.py" for f in ("remove", "unlink", "changeable", "work_control")),
        ("disk/host/removal", *_ACTS),
        ("unit/host",),
    ),
    "deletion": Subject(
        tuple(
            f"controller/{f}.py"
            for f in ("deletion_plan", "deletions", "fleet_reader", "request_states", "topic_deletion_manager")
        ),
        ("disk/controller", "disk/cli/commands/test_topics.py"),
        ("unit/controller",),
    ),
}

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

    def source(self) -> str:
        """The whole file, broken."""
        tree = _tree(self.file)
        return _changed(tree, next(n for i, n in enumerate(ast.walk(tree)) if i == self.number), self.what)


def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / "logagent" / file).read_text(encoding="utf-8"))


def mutants_of(file: str) -> list[Mutant]:
    """Every mutant of the functions in a file; what is outside of functions is run at import, and left alone."""
    tree = _tree(file)
    inside = {n for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for s in f.body for n in ast.walk(s)}
    return [
        Mutant(file, node.lineno, what, number)  # type: ignore[attr-defined]
        for number, node in enumerate(ast.walk(tree))
        if node in inside
        for what in _changes(node)
    ]


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


def _changed(tree: ast.Module, there: ast.AST, what: str) -> str:
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
        case (("always" | "never"), (ast.If() | ast.IfExp())):
            there.test = ast.Constant(what == "always")
        case "returns None", ast.Return():
            there.value = ast.Constant(None)
        case _:
            _leave_out(tree, there)
    return ast.unparse(ast.fix_missing_locations(tree))


def _leave_out(tree: ast.Module, statement: ast.AST) -> None:
    for each in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(each, name, None)
            if isinstance(body, list) and statement in body:
                body[body.index(statement)] = ast.Pass()


def reached(subject: Subject, kind: Kind, folder: Path) -> dict[tuple[str, int], set[str]]:
    """By file and line, the test functions that reach it in their own process."""
    data, settings = folder / f"{kind}.coverage", folder / "coveragerc"
    files = ",".join(f"logagent/{file}" for file in subject.files)
    settings.write_text(f"[run]\ndynamic_context = test_function\ninclude = {files}\n")
    report = folder / f"{kind}.json"
    command = [sys.executable, "-m", "coverage"]
    tests = [f"tests/{path}" for path in getattr(subject, kind)]
    pytest = ["run", f"--rcfile={settings}", f"--data-file={data}", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # What fails here anyway says nothing about a mutant: a machine may lack something.
    subprocess.run([*command, *pytest, f"--basetemp={folder}/{kind}", *tests], cwd=ROOT, stdout=sys.stderr, check=False)
    show = ["json", f"--rcfile={settings}", f"--data-file={data}", "--show-contexts", "-q", "-o", str(report)]
    subprocess.run([*command, *show], cwd=ROOT, check=True, stdout=sys.stderr)
    found = defaultdict[tuple[str, int], set[str]](set)
    for path, of_file in json.loads(report.read_text())["files"].items():
        for line, contexts in of_file["contexts"].items():
            named = {node for c in contexts if (node := _node_of(c)) is not None}
            found[path.removeprefix("logagent/"), int(line)] |= named
    return found


def _node_of(context: str) -> str | None:
    """`tests.disk.cli.test_x.test_name` as pytest names it."""
    parts = context.split(".")
    for n in range(len(parts), 0, -1):
        if (ROOT / "/".join(parts[:n])).with_suffix(".py").is_file():
            return "::".join(["/".join(parts[:n]) + ".py", *parts[n:]])
    return None


class Bench:
    """A copy of the tree in which one mutant after the other is tried."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder
        keep = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache")
        shutil.copytree(ROOT, folder, ignore=keep, symlinks=True)

    def kills(self, mutant: Mutant, tests: Sequence[str]) -> bool:
        """Whether any of `tests` fails."""
        file = self.tree / "logagent" / mutant.file
        sound = file.read_bytes()
        file.write_text(mutant.source(), encoding="utf-8")
        pytest = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"--basetemp={self.tree}.tmp"]
        try:
            with subprocess.Popen(
                [sys.executable, *pytest, *tests],
                cwd=self.tree,
                env={**os.environ, "PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            ) as running:
                try:
                    # A test that does not end any more is one that fails.
                    return running.wait(300) != 0
                except subprocess.TimeoutExpired:
                    return True
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(running.pid, signal.SIGKILL)
        finally:
            file.write_bytes(sound)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--most", type=int, default=40, help="test functions per mutant and kind")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--survivors", action="store_true", help="only what both kinds leave alive")
    options = parser.parse_args()
    subject = SUBJECTS[options.subject]
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        maps = {kind: reached(subject, kind, folder) for kind in ("outer", "inner")}
        every = [m for file in subject.files for m in mutants_of(file)]
        drawn = chance.sample(every, min(options.count, len(every)))
        benches = SimpleQueue[Bench]()
        for number in range(options.workers):
            benches.put(Bench(folder / f"tree{number}"))

        def judge(mutant: Mutant) -> dict[str, str]:
            bench = benches.get()
            try:
                said = dict[str, str]()
                for kind, lines in maps.items():
                    tests = sorted(lines.get((mutant.file, mutant.line), ()))
                    tests = random.Random(mutant.line).sample(tests, min(options.most, len(tests)))
                    said[kind] = "unreached" if not tests else "killed" if bench.kills(mutant, tests) else "alive"
                return said
            finally:
                benches.put(bench)

        counts = Counter[tuple[str, str]]()
        with ThreadPoolExecutor(options.workers) as pool:
            for mutant, said in zip(drawn, pool.map(judge, drawn), strict=True):
                counts[said["outer"], said["inner"]] += 1
                if not options.survivors or "killed" not in said.values():
                    print(
                        f"outer {said['outer']:9}  inner {said['inner']:9}  {mutant.file}:{mutant.line}: {mutant.what}"
                    )
                    sys.stdout.flush()
    print(f"{options.subject}: {len(drawn)} of {len(every)} mutants, seed {options.seed}")
    for (outer, inner), number in sorted(counts.items()):
        print(f"{number:5}  outer {outer}, inner {inner}")


if __name__ == "__main__":
    main()
