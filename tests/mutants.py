"""Does a test fail when the code is broken? Seeded mutants of a subject, each against the tests that reach it.

    python -m tests.mutants verdict --count 200 --seed 42
    python -m tests.mutants removal --count 20 --survivors

A mutant changes one place of one function: a comparison, `and` or `or`, a `not`, a number, a condition that is always
or never met, a statement that is left out, a result that is not returned. `outer` are the tests through the command
line and on disks, `inner` those that call the subject's functions. Printed is how many mutants each kind kills; what
both leave alive is either the same program, or a guard without a test.

All is one process in which the tests are collected and the product is imported once. A fork of it runs every test and
notes which statements each reaches, also in commands that it starts; then, one fork per mutant, the code of the broken
function is exchanged. Of the outer tests, those that killed others of the same file come first, then the cheapest of
each function, and the first failure ends them; the inner ones all run, so that it is known which of them alone kills a
mutant.

Takes about two seconds of one core per mutant.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import ctypes
import gc
import importlib
import mmap
import os
import pickle
import re
import resource
import select
import shutil
import signal
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Literal

import pytest

from tests.forked import import_product
from tests.mutated import ROOT, Mutant, compiled, drawn, noting, tree_of

Kind = Literal["outer", "inner"]
_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 0x4000, 0x40000


@dataclass(frozen=True)
class Subject:
    """What is broken, below `logagent/`, and who should notice, below `tests/`."""

    files: tuple[str, ...]
    outer: tuple[str, ...]
    inner: tuple[str, ...]


_ACTS = (
    "disk/cleanup/restore/test_displaced_is_not_emptied.py",
    "disk/cleanup/plan/test_last_copy.py",
    "disk/service/prestart/test_prestart.py",
    "disk/cleanup/session/test_assigned_again.py",
    "disk/cleanup/session/test_mark_restore_remove.py",
    "disk/cleanup/session/test_open_files_hold.py",
    "disk/cleanup/execute/test_guards_again.py",
    "disk/cleanup/execute/test_recovery.py",
    "disk/cleanup/execute/test_topic_id_again.py",
    "disk/verdict/evidence/test_covering_copies.py",
    "disk/verdict/evidence/test_own_log.py",
    "disk/verdict/evidence/test_strays_asked.py",
    "disk/verdict/evidence/test_verdicts_on_disks.py",
    "disk/cleanup/commands/test_approval.py",
    "disk/advice/test_assignments_option.py",
    "disk/cleanup/commands/test_dry_run.py",
    "disk/cleanup/commands/test_leftovers.py",
    "disk/cleanup/commands/test_strays.py",
    "disk/cleanup/plan/test_quarantine_dirs.py",
    "disk/cli/test_guards.py",
)
SUBJECTS = {
    "verdict": Subject(
        (
            "base/claims.py",
            "verdict/rules.py",
            "verdict/copies.py",
            "kafka/extents.py",
            "kafka/commitment.py",
        ),
        (*_ACTS, "disk/kafka/metadata_log/test_generated.py"),
        ("unit/verdict", "unit/kafka/test_lineage.py", "unit/base/test_claims.py"),
    ),
    "guards": Subject(
        ("cleanup/plan/guards.py", "cleanup/plan/proposals.py"),
        _ACTS,
        ("unit/cleanup",),
    ),
    "due": Subject(
        (
            "cleanup/plan/planner.py",
            "verdict/marks.py",
            "cleanup/plan/queue.py",
        ),
        _ACTS,
        ("unit/cleanup/plan", "unit/cleanup/restore", "unit/verdict"),
    ),
    "removal": Subject(
        (
            "disk/remove.py",
            "disk/unlink.py",
            "cleanup/execute/changeable.py",
        ),
        (
            "disk/disk/test_broken_steps.py",
            "disk/disk/test_calls.py",
            "disk/disk/test_hostile_disks.py",
            "disk/disk/test_plain_removal.py",
            "disk/disk/test_removal.py",
            "disk/disk/test_removal_workers.py",
            "disk/disk/test_truncate.py",
            "disk/cleanup/execute/test_changeable.py",
            "disk/cleanup/execute/test_allocated_bytes.py",
            "disk/cleanup/execute/test_guards_again.py",
            "disk/cleanup/execute/test_topic_id_again.py",
            "disk/cleanup/session/test_mark_restore_remove.py",
            "disk/cleanup/session/test_thread_limit.py",
            "disk/cleanup/state/test_before_acting.py",
        ),
        ("unit/disk", "unit/base/test_holes.py"),
    ),
    "deletion": Subject(
        (
            "deletion/controller/deletion_plan.py",
            "deletion/controller/deletions.py",
            "deletion/controller/topic_deletion_manager.py",
        ),
        ("disk/deletion/controller", "disk/deletion/command/test_topics.py"),
        ("unit/deletion/controller",),
    ),
}

# Commands that tests start find the same changed modules, and note what they reach in the same file.
_STARTED = """
import builtins, importlib._bootstrap_external, mmap, os, sys
class Changed:
    def find_spec(name, path=None, target=None):
        file = os.path.join(os.environ["MUTANT_SOURCES"], *name.split(".")) + ".py"
        if name.startswith("logagent.") and os.path.exists(file):
            return importlib._bootstrap_external.spec_from_file_location(name, file)
if "MUTANT_SOURCES" in os.environ:
    sys.meta_path.insert(0, Changed)
    with open(os.environ["MUTANT_REACHED"], "r+b") as file:
        builtins.__reached__ = mmap.mmap(file.fileno(), 0)
"""


def _exchange(functions: Sequence[FunctionType], trees: dict[str, ast.Module], sources: Path) -> None:
    """Give the functions of these files their changed code, here and in each command that is started."""
    changed = dict[tuple[str, str, int], CodeType]()

    def add(code: CodeType) -> None:
        changed[code.co_filename, code.co_qualname, code.co_firstlineno] = code
        for each in code.co_consts:
            if isinstance(each, CodeType):
                add(each)

    for file, tree in trees.items():
        add(compiled(file, tree))
        path = sources / "logagent" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(ast.unparse(tree), encoding="utf-8")
    for function in functions:
        old = function.__code__
        function.__code__ = changed.get((old.co_filename, old.co_qualname, old.co_firstlineno), old)
    os.environ["MUTANT_SOURCES"] = str(sources)


@dataclass
class Reached:
    """What a test reaches, and what it costs."""

    seconds: float
    statements: frozenset[int]


@dataclass
class Judged:
    outer: str = "unreached"
    inner: str = "unreached"
    killers: set[str] = field(default_factory=set)
    """The inner test functions that fail."""


class Bench:
    """The plugin that runs the collected tests again and again, instead of once."""

    def __init__(self, subject: Subject, mutants: Sequence[Mutant], folder: Path, seconds: float) -> None:
        self.subject, self.mutants, self.folder, self.seconds = subject, mutants, folder, seconds
        self.judged = dict[Mutant, Judged]()
        self.kills = Counter[tuple[str, str]]()
        """By file and outer test."""
        self.functions: list[FunctionType] = []
        self.failed = False
        self.out = os.fdopen(os.dup(1), "w", buffering=1)
        sizes = {file: sum(1 for _ in ast.walk(tree_of(file))) for file in subject.files}
        self.first = {file: sum(list(sizes.values())[:n]) for n, file in enumerate(sizes)}
        notes = folder / "reached"
        notes.write_bytes(bytes(sum(sizes.values())))
        notes.chmod(0o666)
        with notes.open("r+b") as file:
            self.notes = mmap.mmap(file.fileno(), 0)
        builtins.__reached__ = self.notes  # type: ignore[attr-defined]
        (folder / "started").mkdir()
        (folder / "started/sitecustomize.py").write_text(_STARTED)
        os.environ |= {"MUTANT_REACHED": str(notes), "PYTHONPATH": f"{folder}/started"}

    def pytest_collection(self) -> None:
        # Not before pytest has started: it warns of what is imported already.
        import hypothesis

        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", deadline=None, derandomize=True, database=None, phases=phases)
        hypothesis.settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import_product()
        gc.collect()
        names = {str(ROOT / "logagent" / file) for file in self.subject.files}
        functions = (each for each in gc.get_objects() if isinstance(each, FunctionType))
        self.functions = [function for function in functions if function.__code__.co_filename in names]
        assert self.functions, "the product is not imported from here"
        reached: dict[str, Reached] = self.forked(session, lambda: self.reach(session), 3600, 3600) or {}
        total = sum(r.seconds for r in reached.values())
        print(f"{len(reached)} of {len(session.items)} tests passed, {total:.0f} s", file=self.out)
        for mutant in self.mutants:
            self.judged[mutant] = self.judge(session, mutant, reached)
            judged = self.judged[mutant]
            print(f"outer {judged.outer:9}  inner {judged.inner:9}  {mutant.in_words()}", file=self.out)
        return True

    def reach(self, session: pytest.Session) -> dict[str, Reached]:
        _exchange(
            self.functions, {file: noting(file, first) for file, first in self.first.items()}, self.folder / "noting"
        )
        found = dict[str, Reached]()
        for number, item in enumerate(session.items):
            self.notes[:] = bytes(len(self.notes))
            before = _seconds()
            failed = self.fails([item, *session.items[number + 1 : number + 2]], 1)
            # What fails here anyway says nothing about a mutant: a machine may lack something.
            if not failed:
                statements = frozenset(n for n, noted in enumerate(self.notes[:]) if noted)
                found[item.nodeid] = Reached(_seconds() - before, statements)
        return found

    def fails(self, items: Sequence[pytest.Item], most: int | None = None) -> str | None:
        """The first of these that fails; of the first `most`, and what follows tells what stays set up."""
        for number, item in enumerate(items[:most]):
            self.failed = False
            after = items[number + 1] if number + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self.failed:
                return item.nodeid
        return None

    def judge(self, session: pytest.Session, mutant: Mutant, reached: dict[str, Reached]) -> Judged:
        place = self.first[mutant.file] + mutant.statement
        by_kind: dict[Kind, list[pytest.Item]] = {"outer": [], "inner": []}
        cases, spent = Counter[tuple[Kind, str]](), Counter[Kind]()
        ranked = list[tuple[int, int, float, str, Kind, pytest.Item]]()
        for item in sorted(session.items, key=lambda i: (getattr(reached.get(i.nodeid), "seconds", 0), i.nodeid)):
            if item.nodeid in reached and place in reached[item.nodeid].statements:
                kind: Kind = "inner" if item.nodeid.startswith("tests/unit/") else "outer"
                cases[kind, _function(item)] += 1
                cost = reached[item.nodeid].seconds
                kills = self.kills[mutant.file, item.nodeid]
                ranked.append((-kills, cases[kind, _function(item)], cost, item.nodeid, kind, item))
        for _, _, cost, _, kind, item in sorted(ranked, key=lambda r: r[:4]):
            if spent[kind] == 0 or spent[kind] + cost <= self.seconds:
                spent[kind] += cost  # type: ignore[assignment]
                by_kind[kind].append(item)
        sources = self.folder / "mutant"

        def inner() -> set[str]:
            _exchange(self.functions, {mutant.file: mutant.tree()}, sources)
            return {_function(item) for item in by_kind["inner"] if self.fails([item])}

        def outer() -> str:
            _exchange(self.functions, {mutant.file: mutant.tree()}, sources)
            return self.fails(by_kind["outer"]) or ""

        judged = Judged()
        for kind, work in (("inner", inner), ("outer", outer)):
            if by_kind[kind]:
                limit = 10 * spent[kind] + 10
                found = self.forked(session, work, limit, 3 * limit + 30)
                # A test that does not end any more is one that fails.
                setattr(judged, kind, "alive" if found is not None and not found else "killed")
                if isinstance(found, str):
                    self.kills[mutant.file, found] += 1
                if kind == "inner":
                    judged.killers = found if isinstance(found, set) else {"(does not end)"}
        return judged

    def forked(self, session: pytest.Session, work: Callable[[], object], cpu: float, wall: float) -> Any:
        """What `work` comes to in a fork; None if it does not end."""
        result, scratch = self.folder / "result", self.folder / "tmp"
        shutil.rmtree(self.folder / "mutant", ignore_errors=True)
        scratch.mkdir()
        result.unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                _mount_apart()
                gc.freeze()
                resource.setrlimit(resource.RLIMIT_CPU, (int(cpu), int(cpu) + 5))
                reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
                reporter._tw._file = open(os.devnull, "w")  # noqa: SIM115
                session.config._tmp_path_factory._basetemp = scratch  # type: ignore[attr-defined]
                os.environ["PYTEST_DEBUG_TEMPROOT"] = str(scratch)
                found = work()
                session._setupstate.teardown_exact(None)
                result.write_bytes(pickle.dumps(found))
            finally:
                os._exit(0)
        ended = os.pidfd_open(pid)
        select.select([ended], [], [], wall)
        os.close(ended)
        # Whatever it started ends with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        shutil.rmtree(scratch, ignore_errors=True)
        return pickle.loads(result.read_bytes()) if result.is_file() else None


def _mount_apart() -> None:
    """What a test mounts from now on ends with its process, even if that is killed. Only root can; only root mounts."""
    libc = ctypes.CDLL(None)
    if libc.unshare(_CLONE_NEWNS) == 0:
        libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)


def _seconds() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--seconds", type=float, default=1, help="of tests per mutant and kind")
    parser.add_argument("--only", default="", help="a regular expression for the words of those that are tried")
    parser.add_argument("--survivors", action="store_true", help="at the end, what both kinds leave alive once more")
    options = parser.parse_args()
    subject = SUBJECTS[options.subject]
    mutants, every = drawn(subject.files, options.count, options.seed)
    mutants = [mutant for mutant in mutants if re.search(options.only, mutant.in_words())]
    for file in subject.files:
        importlib.import_module("logagent." + file.removesuffix(".py").replace("/", "."))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        bench = Bench(subject, mutants, folder, options.seconds)
        tests = [f"tests/{path}" for path in (*subject.outer, *subject.inner)]
        pytest.main(["-q", "-p", "no:cacheprovider", "-o", "timeout=0", *tests], plugins=[bench])
        bench.out.close()
    judged = bench.judged
    alone: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for each in judged.values():
        for function in each.killers:
            counts = alone[function]
            counts[0] += 1
            counts[1] += each.outer != "killed"
            counts[2] += each.outer != "killed" and len(each.killers) == 1
    print("\nInner tests: mutants killed; of these not by outer tests; of these by no other inner test")
    for function, counts in sorted(alone.items(), key=lambda pair: pair[1][::-1]):
        print(f"{counts[0]:5} {counts[1]:5} {counts[2]:5}  {function}")
    if options.survivors:
        print("\nAlive:")
        for mutant, each in judged.items():
            if "killed" not in (each.outer, each.inner):
                print(f"outer {each.outer:9}  inner {each.inner:9}  {mutant.in_words()}")
    print(f"\n{options.subject}: {len(judged)} of {every} mutants, seed {options.seed}, {_seconds():.0f} s of CPU")
    for (outer, inner), number in sorted(Counter((j.outer, j.inner) for j in judged.values()).items()):
        print(f"{number:5}  outer {outer}, inner {inner}")


if __name__ == "__main__":
    main()
