"""Ingest, report and trim killed at each write: `python -m tests.spark.killed [CASE ...] [--every] [--kills N]`.

SIGKILL leaves files as they are at that moment. So a day is ingested for the first time, or again, or trimmed, and then
reported, by a JVM of its own, undisturbed but for strace, which holds every call that adds, renames or removes a name
(Python's and Spark's) before it is made; what the store and the report's directory hold then is copied, and each copy
is what a kill at that write leaves. `--kills` kills the whole process group for once at so many of them, and compares
what is left with the copy.

For the first copy of each kind (one table is written like another), or all with `--every`: the next ingest and the
next report succeed, find what the undisturbed ones found, and leave nothing of the killed ones once their time is
over. Where commits or lock were touched, a report before that shows the last committed run and says which. For each
copy: the commit that counts and the latest report are whole.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from logagent.base.errors import LogAgentError
from logagent.fleet.ingest.dates import KEEP_RUNS, ingest_dates, sweep, trim_landing
from logagent.fleet.job import Job, report
from logagent.fleet.report.columns import TABLES
from logagent.fleet.report.output import Output, run_name
from logagent.fleet.spark_session import build_session
from logagent.fleet.tables.frames import STORE
from logagent.fleet.tables.store import Commit, Store
from tests.spark.hand_made import AT, NOW, Kafka, dir_row, small_cluster

DAY = AT.date()
ROOT = Path(__file__).resolve().parents[2]
LATER = NOW + timedelta(minutes=1)
CALLS = (
    *("link", "linkat", "symlink", "symlinkat", "rename", "renameat", "renameat2"),
    *("mkdir", "mkdirat", "unlink", "unlinkat", "rmdir"),
)
VERDICTS = ("orphans", "missing_replicas", "duplicates", "leftovers", "undecided", "usage_log_dirs")
CONF = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_NAMES = (
    (r"\d{4}-\d\d-\d\d-\d{8}T\d{12}Z-[0-9a-f]{8}", "REPORT"),
    (r"\d{8}T\d{6}Z-[0-9a-f]{12}", "RUN"),
    (r"/_temporary.*", "/_temporary"),
    (r"part-\d+-[^/]*", "PART"),
    (r"[0-9a-f]{32}", "ID"),
    (r"\.latest\.\d+", ".latest.PID"),
)
_TABLES = (
    (r"/(RUN|\.aside/ID|parquet|\.scratch-ID|tables)/[a-z_]+", r"/\1/TABLE"),
    (r"/[a-z_]+(\.csv|\.jsonl\.gz)", r"/TABLE\1"),
)
Verdicts = dict[str, list[tuple[str, ...]]]


def named(path: str) -> str:
    """A path without what differs from one run to the next."""
    for pattern, name in _NAMES:
        path = re.sub(pattern, name, path)
    return path


def kind(write: str) -> str:
    """A write without the table that is written."""
    for pattern, name in _TABLES:
        write = re.sub(pattern, name, write)
    return write


def tree(root: Path) -> list[str]:
    """What is below `root`, sorted, without what differs from one run to the next."""
    return sorted(named(f"/{path.relative_to(root)}") for path in root.rglob("*"))


@dataclass(frozen=True)
class State:
    """What a kill before `write` leaves: `store` and `out` below `root`."""

    write: str
    root: Path


@dataclass(frozen=True)
class Case:
    """`before` makes what is there, `after` is killed (with the report that follows it), and makes commit `last`.
    Without `reports` there is none, before it neither: the store alone is judged."""

    name: str
    before: Callable[[SparkSession, Path], None]
    after: Callable[[Store], object]
    last: int
    reports: bool = True

    def work(self, spark: SparkSession, root: Path) -> None:
        """What is killed."""
        store = Store.open(spark, str(root / "store"))
        self.after(store)
        if self.reports:
            report(Job(store, str(root / "out"), LATER))


def _first(spark: SparkSession, root: Path) -> None:
    """Landing, and nothing else."""
    small_cluster(root / "store")


def _ingested(spark: SparkSession, root: Path) -> Kafka:
    kafka = small_cluster(root / "store")
    store = Store.open(spark, str(root / "store"))
    ingest_dates(store, None)
    report(Job(store, str(root / "out"), NOW))
    return kafka


def _again(spark: SparkSession, root: Path) -> None:
    """A day that was ingested and reported, and a snapshot with an orphan that came since."""
    come_since(_ingested(spark, root))


def come_since(kafka: Kafka) -> None:
    late = [*kafka.replicas_of(1), dir_row("gone-0", "AAAAAAAAAAAAAAAAAAAAAQ")]
    kafka.snapshot(1, late, at=AT + timedelta(minutes=2))


def _trim(spark: SparkSession, root: Path) -> None:
    """A day that was ingested and reported."""
    _ingested(spark, root)


def _ingest(store: Store) -> object:
    return ingest_dates(store, None)


def _trimmed(store: Store) -> object:
    return trim_landing(store, DAY + timedelta(days=1))


CASES = {
    c.name: c
    for c in (Case("first", _first, _ingest, 1), Case("again", _again, _ingest, 2), Case("trim", _trim, _trimmed, 2))
}


def watched(case: Case, root: Path, hold: float, at: Callable[[int, str], bool]) -> None:
    """Runs `case.work`; every such call below `root` is held for `hold` seconds while `at` has its number and name.
    Where it returns True, the process group is killed."""
    reader, writer = os.pipe()
    inject = f"inject={','.join(CALLS)}:delay_enter={round(hold * 1e6)}"
    command = ["strace", "-f", "--seccomp-bpf", "-y", "-qq", "-e", "signal=none", "-s", "4096"]
    command += ["-o", f"/dev/fd/{writer}", "-e", f"trace={','.join(CALLS)}", "-e", inject]
    command += [sys.executable, "-m", "tests.spark.killed", case.name, "--work", str(root)]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, cwd=ROOT, pass_fds=[writer], stdout=said, stderr=said, start_new_session=True
        )
        os.close(writer)
        call = re.compile(rf"^\d+ +({'|'.join(CALLS)})\(([^\n]*{re.escape(str(root))}/[^\n]*)".encode(), re.MULTILINE)
        number = 0
        try:
            while data := os.read(reader, 1 << 20):
                for name, arguments in call.findall(data):
                    paths = re.findall(r'(?:<([^>]*)>, )?"([^"]*)"', arguments.decode())
                    below = [p.removeprefix(str(root)) for p in map(_joined, paths) if p.startswith(f"{root}/")]
                    if at(number, f"{name.decode()} {named(below[-1])}"):
                        os.killpg(process.pid, signal.SIGKILL)
                        process.wait()
                        return
                    number += 1
            status = process.wait(60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            os.close(reader)
        said.seek(0)
        assert status == 0, said.read()[-3000:].decode(errors="replace")


def _joined(found: tuple[str, str]) -> str:
    """The path of a name that strace shows after its directory."""
    return os.path.join(*found)


def states(case: Case, root: Path, into: Path, hold: float = 0.2, every: bool = False) -> list[State]:
    """What is there before each call of `case.work`, and after the last; of equal ones the first if not `every`."""
    found: list[State] = []
    seen: set[str] = set()

    def copy(number: int, write: str) -> bool:
        if every or write not in seen:
            seen.add(write)
            began = time.monotonic()
            _copy(root, into / f"{number:04d}")
            if time.monotonic() - began > hold:
                print(f"{write}: copied in {time.monotonic() - began:.2f} s, longer than it was held", flush=True)
            found.append(State(write, into / f"{number:04d}"))
        return False

    watched(case, root, hold, copy)
    _copy(root, into / "end")
    return [*found, State("the end", into / "end")]


def python_states(case: Case, spark: SparkSession, root: Path, into: Path) -> list[State]:
    """The same without strace, in this process: before each name that Python adds, renames or removes, and at the
    end. What Spark writes is there whole."""
    found: list[State] = []
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()

    def copy(write: str) -> None:
        found.append(State(write, into / f"{len(found):04d}"))
        _copy(root, found[-1].root)
        # A killed process does not run, and this one does.
        for link in (found[-1].root / "out").glob(f".latest.{os.getpid()}"):
            link.rename(link.with_name(f".latest.{gone.pid}"))
        lock = found[-1].root / "store/.ingest-lock"
        if lock.exists():
            lock.write_text(lock.read_text().replace(f'"pid": {os.getpid()}', f'"pid": {gone.pid}'))

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if working and event in ("os.link", "os.symlink", "os.rename", "os.remove", "os.rmdir", "os.mkdir"):
            path = str([each for each in arguments if isinstance(each, (str, Path))][-1])
            if not path.startswith("/") and isinstance(arguments[-1], int) and arguments[-1] >= 0:
                path = f"{os.readlink(f'/proc/self/fd/{arguments[-1]}')}/{path}"
            if path.startswith(f"{root}/"):
                copy(f"{event} {named(path.removeprefix(str(root)))}")

    working = True
    sys.addaudithook(hook)
    try:
        case.work(spark, root)
    finally:
        working = False
    copy("the end")
    return found


def _copy(root: Path, to: Path) -> None:
    """Hard links, except for what is rewritten in place: files of a store are replaced, never changed."""

    def one(source: str, target: str) -> None:
        try:
            shutil.copy2(source, target) if "lock" in source else os.link(source, target, follow_symlinks=False)
        except FileNotFoundError:
            print(f"{source} went while it was copied", flush=True)

    shutil.copytree(root, to, symlinks=True, copy_function=one, ignore_dangling_symlinks=True)


def verdicts(out: Path) -> Verdicts:
    """The rows of the verdict tables, without ages and times of this report."""
    found: Verdicts = {}
    for table in VERDICTS:
        names = [c.name for c in TABLES[table].columns if c.unit != "seconds"]
        with (out / f"{table}.csv").open(newline="") as file:
            found[table] = sorted(tuple(row[name] for name in names) for row in csv.DictReader(file))
    return found


@dataclass
class Judge:
    """Checks states in one session. `expected`: verdicts by commit. `before`: a report before the next ingest, too."""

    case: Case
    spark: SparkSession
    folder: Path
    expected: dict[int, Verdicts]
    before: bool = True

    def glance(self, state: State) -> list[str]:
        """What is not whole in a state."""
        store = Store.open(self.spark, str(state.root / "store"))
        commit = store.commit_of(DAY)
        latest = state.root / "out/latest"
        if not self.case.reports or (self.case.name == "first" and not latest.is_symlink()):
            found = []
        else:
            last = json.loads((latest / "report.json").read_text())
            found = [] if last["run_id"] == latest.resolve().name else ["latest is not whole"]
            found += [] if (latest / "index.html").exists() else ["latest has no page"]
            if verdicts(latest) != self.expected[last["ingested"]["commit"]]:
                found.append(f"latest does not show commit {last['ingested']['commit']}")
        if commit is None:
            return found if self.case.name == "first" and not latest.exists() else [*found, "no commit counts"]
        root = state.root / "store"
        files = [
            (root / commit.folder(table) / f["file"], f["bytes"])
            for table, listed in commit.tables.items()
            for f in listed
        ]
        return found + [f"{path} of commit {commit.number}" for path, size in files if path.stat().st_size != size]

    def problems(self, state: State) -> list[str]:
        """What is wrong with a state, or with what comes after it."""
        if state.write.split()[-1].startswith("/out"):
            return self._of_report(state.root)
        return self._of_store(state)

    def _of_store(self, state: State) -> list[str]:
        store = Store.open(self.spark, str(state.root / "store"))
        root = state.root
        commit = store.commit_of(DAY)
        shows = self.before and self.case.reports and not re.search("/(runs|tables)", state.write)
        found = self._shows(store, commit) if shows else []
        number = commit.number if commit is not None else 0
        if self.case.after is _trimmed:
            found += [f"an ingest after it took {one.taken}" for one in ingest_dates(store, None)]
            trim_landing(store, DAY + timedelta(days=1))
            wanted = self.case.last
        else:
            ingest_dates(store, DAY)
            wanted = number + 1
        again = store.commit_of(DAY)
        assert again is not None
        if again.number != wanted or again.late:
            found.append(f"what comes next made commit {again.number} after {number}, late: {again.late}")
        if self.case.reports:
            told = report(Job(store, str(root / "out"), LATER))
            if (
                told["ingested"]["commit"] != again.number
                or verdicts(root / "out/latest") != self.expected[self.case.last]
            ):
                found.append("what comes next has other verdicts")
        sweep(store, datetime.now(UTC) + KEEP_RUNS + timedelta(hours=1))
        left = [path for path in tree(root / "store") if not _belongs(path, trimmed=again.trimmed)]
        runs = len(list((root / "store/runs").iterdir()))
        found += [f"left: {left}"] if left else []
        found += [
            f"the Delta log of {table} has other files" for table in STORE if not _agree(root / "store", again, table)
        ]
        return found + ([f"{runs} runs"] if runs != 1 else [])

    def _shows(self, store: Store, commit: Commit | None) -> list[str]:
        """Whether a report shows this commit, and says so; without one, that it says that, and leaves nothing."""
        out = self.folder / "before"
        if commit is None:
            try:
                report(Job(store, str(out), NOW))
            except LogAgentError as error:
                said = "nothing was ingested" in str(error) and not (out / "latest").is_symlink()
                return [] if said else [f"a report without a commit says: {error}"]
            return ["a report without a commit"]
        told = report(Job(store, str(out), NOW))
        found = verdicts(out / "latest")
        shutil.rmtree(out)
        said = told["ingested"] == {"run": commit.run, "commit": commit.number, "at": commit.at}
        if not said or found != self.expected[commit.number]:
            return [f"a report does not show commit {commit.number}, but {told['ingested']}"]
        return []

    def _of_report(self, root: Path) -> list[str]:
        found = []
        out = root / "out"
        store = Store.open(self.spark, str(root / "store"))
        after = LATER + timedelta(minutes=1)
        told = report(Job(store, str(out), after))
        wanted = self.expected[self.case.last]
        if (out / "latest").resolve().name != told["run_id"] or verdicts(out / "latest") != wanted:
            found.append("the next report is not the latest, or has other verdicts")
        for path in out.glob(".latest.*"):
            os.utime(path, (0, 0), follow_symlinks=False)
        Output(self.spark, store.files, store.files.qualify(str(out)), run_name(str(DAY), _tomorrow(after)))._sweep()
        reports = {path.name for path in out.iterdir() if path.name[0] != "." and (path / "report.json").exists()}
        left = {path.name for path in out.iterdir()} - reports
        odd = [path for path in tree(out) if re.search(r"\.tmp|_temporary|\.scratch|/\.csv-", path)]
        return found + ([f"left: {left}"] if left else []) + ([f"left: {odd}"] if odd else [])


def _agree(store: Path, commit: Commit, table: str) -> bool:
    """Whether the Delta log of a table has the files of the only commit."""
    named = {str(store / commit.folder(table) / each["file"]) for each in commit.tables[table] if each["rows"]}
    return set(DeltaTable(str(store / "tables" / table)).file_uris()) == named


def _tomorrow(now: datetime) -> datetime:
    return max(now, datetime.now(UTC)) + timedelta(days=2)


def _belongs(path: str, *, trimmed: bool) -> bool:
    """Whether a store has such a name when nobody is at work."""
    run = r"/runs(/RUN(/[a-z_]+(/[a-z_]+\.jsonl\.gz)?)?)?"
    run += r"|/tables(/[a-z_]+(/run=RUN(/\.?PART)?|/_delta_log(/\d{20}\.json)?)?)?"
    commit = r"/commits(/\d{4}-\d\d-\d\d(/\d+\.json)?)?"
    landing = "/landing(/[^/]*)?" if trimmed else "/landing(/.*)?"
    return re.fullmatch(rf"{landing}|{run}|{commit}", path) is not None


def judge(case: Case, spark: SparkSession, folder: Path, end: State) -> Judge:
    """Expects what the undisturbed run found, and what was found before it."""
    reports = sorted(path for path in (end.root / "out").iterdir() if path.is_dir() and not path.is_symlink())
    expected = {json.loads((r / "report.json").read_text())["ingested"]["commit"]: verdicts(r) for r in reports}
    assert expected.keys() == set(range(1, case.last + 1))
    assert case.name != "again" or expected[1] != expected[2]
    return Judge(case, spark, folder, expected)


def killed(case: Case, spark: SparkSession, folder: Path, found: list[State], number: int, hold: float) -> list[str]:
    """Kills at one of the states, for once; what is wrong with what that leaves."""
    root = folder / f"killed-{number}"
    case.before(spark, root)
    write = found[number].write
    watched(case, root, hold, lambda _, name: name == write)
    there, copied = tree(root), tree(found[number].root)
    return [f"{write}: {sorted({*there} ^ {*copied})} differ from the copy"] if there != copied else []


def run(case: Case, spark: SparkSession, folder: Path, chosen: argparse.Namespace) -> int:
    """Prints what each state comes to; the number of problems."""
    problems = 0
    folder.mkdir()
    case.before(spark, folder / "made")
    found = states(case, folder / "made", folder / "states", hold=chosen.hold, every=chosen.every)
    print(f"{case.name}: {len(found)} writes of {len({kind(s.write) for s in found})} kinds", flush=True)
    judged = judge(case, spark, folder, found[-1])
    # First: what is judged is changed.
    for number in range(0, len(found) - 1, -(-len(found) // chosen.kills)) if chosen.kills else ():
        said = killed(case, spark, folder, found, number, chosen.hold)
        problems += len(said)
        print(f"killed at {found[number].write}: {'; '.join(said) or 'as copied'}", flush=True)
    kinds: set[str] = set()
    for state in found:
        said = judged.glance(state)
        first = chosen.every or kind(state.write) not in kinds
        kinds.add(kind(state.write))
        said += judged.problems(state) if first else []
        problems += len(said)
        print(f"{state.root.name} {state.write}: {'; '.join(said) or ('ok' if first else 'whole')}", flush=True)
    print(f"{case.name}: {len(found)} writes, {problems} problems", flush=True)
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.killed", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"only these of {', '.join(CASES)}")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--every", action="store_true", help="also calls that are like one before (Spark's parts)")
    parser.add_argument("--kills", type=int, default=0, help="how many of them are killed for once")
    parser.add_argument("--hold", type=float, default=0.2, help="seconds for which each call is held")
    chosen = parser.parse_args()
    if unknown := set(chosen.cases) - CASES.keys():
        parser.error(f"no case: {', '.join(sorted(unknown))}")
    cases = [CASES[name] for name in chosen.cases or CASES]
    if chosen.work:
        with build_session(master="local[2]", conf=CONF) as spark:
            return cases[0].work(spark, chosen.work)
    with tempfile.TemporaryDirectory(prefix="logagent-killed-") as name:
        spark = build_session(master="local[2]", conf=CONF)
        problems = sum(run(case, spark, Path(name) / case.name, chosen) for case in cases)
        spark.stop()
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
