"""Ingest and report killed at each of their writes: `python -m tests.spark.killed [--every] [--kills N]`.

SIGKILL leaves files as they are at that moment. So a day is ingested again and reported by a JVM of its own,
undisturbed but for strace, which holds every call that adds, renames or removes a name (Python's and Spark's) before it
is made; what the store and the report's directory hold then is copied, and each copy is what a kill at that write
leaves. `--kills` kills the whole process group for once at so many of them, and compares what is left with the copy.

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

from pyspark.sql import SparkSession

from logagent.fleet.ingest.dates import KEEP_RUNS, ingest_dates, sweep
from logagent.fleet.job import Job, report
from logagent.fleet.report.output import Output, run_name
from logagent.fleet.spark_session import build_session
from logagent.fleet.tables.store import Commit, Store
from logagent.store.contract import TABLES
from tests.spark.hand_made import AT, NOW, Kafka, dir_row

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
    (r"/(RUN|\.aside/ID|parquet|\.scratch-ID)/[a-z_]+", r"/\1/TABLE"),
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


def make(spark: SparkSession, root: Path) -> None:
    """A day that was ingested and reported, and a snapshot with an orphan that came since."""
    (root / "store").mkdir(parents=True)
    kafka = Kafka(root / "store", "killed")
    kafka.topic("orders", [1, 2, 3])
    kafka.assignments()
    kafka.everyone()
    store = Store.open(spark, str(root / "store"))
    ingest_dates(store, None)
    report(Job(store, str(root / "out"), NOW))
    late = [*kafka.replicas_of(1), dir_row("gone-0", "AAAAAAAAAAAAAAAAAAAAAQ")]
    kafka.snapshot(1, late, at=AT + timedelta(minutes=2))


def work(spark: SparkSession, root: Path) -> None:
    """What is killed."""
    store = Store.open(spark, str(root / "store"))
    ingest_dates(store, None)
    report(Job(store, str(root / "out"), LATER))


def watched(root: Path, hold: float, at: Callable[[int, str], bool]) -> None:
    """Runs `work`; every such call below `root` is held for `hold` seconds while `at` has its number and name. Where
    it returns True, the process group is killed."""
    reader, writer = os.pipe()
    inject = f"inject={','.join(CALLS)}:delay_enter={round(hold * 1e6)}"
    command = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", "signal=none", "-s", "4096", "-o", f"/dev/fd/{writer}"]
    command += ["-e", f"trace={','.join(CALLS)}", "-e", inject]
    command += [sys.executable, "-m", "tests.spark.killed", "--work", str(root)]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, cwd=ROOT, pass_fds=[writer], stdout=said, stderr=said, start_new_session=True
        )
        os.close(writer)
        call = re.compile(rf"^\d+ +({'|'.join(CALLS)})\((.*?\"{re.escape(str(root))}/[^\n]*)".encode(), re.MULTILINE)
        number = 0
        try:
            while data := os.read(reader, 1 << 20):
                for name, arguments in call.findall(data):
                    paths = re.findall(rf'"{re.escape(str(root))}(/[^"]*)"', arguments.decode())
                    if at(number, f"{name.decode()} {named(paths[-1])}"):
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


def states(root: Path, into: Path, hold: float = 0.2, every: bool = False) -> list[State]:
    """What is there before each call of `work`, and after the last; of equal ones the first if not `every`."""
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

    watched(root, hold, copy)
    _copy(root, into / "end")
    return [*found, State("the end", into / "end")]


def python_states(spark: SparkSession, root: Path, into: Path) -> list[State]:
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
        if working and event in ("os.link", "os.symlink", "os.rename", "os.remove", "os.mkdir"):
            path = str([each for each in arguments if isinstance(each, (str, Path))][-1])
            if path.startswith(f"{root}/"):
                copy(f"{event} {named(path.removeprefix(str(root)))}")

    working = True
    sys.addaudithook(hook)
    try:
        work(spark, root)
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
    """Checks states in one session. `expected`: verdicts by commit."""

    spark: SparkSession
    folder: Path
    expected: dict[int, Verdicts]

    def glance(self, state: State) -> list[str]:
        """What is not whole in a state."""
        store = Store.open(self.spark, str(state.root / "store"))
        commit = store.commit_of(DAY)
        assert commit is not None
        runs = state.root / "store/runs" / commit.run
        files = [(runs / table / f["file"], f["bytes"]) for table, found in commit.tables.items() for f in found]
        found = [f"{path} of commit {commit.number}" for path, size in files if path.stat().st_size != size]
        latest = state.root / "out/latest"
        last = json.loads((latest / "report.json").read_text())
        if last["run_id"] != latest.resolve().name or not (latest / "index.html").exists():
            found.append("latest is not whole")
        if verdicts(latest) != self.expected[last["ingested"]["commit"]]:
            found.append(f"latest does not show commit {last['ingested']['commit']}")
        return found

    def problems(self, state: State) -> list[str]:
        """What is wrong with a state, or with what comes after it."""
        if state.write.split()[-1].startswith("/out"):
            return self._of_report(state.root)
        return self._of_ingest(state)

    def _of_ingest(self, state: State) -> list[str]:
        store = Store.open(self.spark, str(state.root / "store"))
        root = state.root
        commit = store.commit_of(DAY)
        assert commit is not None
        found = [] if "/runs" in state.write else self._shows(store, commit)
        ingest_dates(store, DAY)
        told = report(Job(store, str(root / "out"), LATER))
        again = store.commit_of(DAY)
        assert again is not None
        if again.number != commit.number + 1 or told["ingested"]["commit"] != again.number:
            found.append(f"the next ingest made commit {again.number} after {commit.number}")
        if verdicts(root / "out/latest") != self.expected[2]:
            found.append("the next ingest has other verdicts")
        sweep(store, datetime.now(UTC) + KEEP_RUNS + timedelta(hours=1))
        left = [path for path in tree(root / "store") if not _belongs(path)]
        runs = len(list((root / "store/runs").iterdir()))
        return found + ([f"left: {left}"] if left else []) + ([f"{runs} runs"] if runs != 1 else [])

    def _shows(self, store: Store, commit: Commit) -> list[str]:
        """Whether a report shows this commit, and says so."""
        out = self.folder / "before"
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
        if (out / "latest").resolve().name != told["run_id"] or verdicts(out / "latest") != self.expected[2]:
            found.append("the next report is not the latest, or has other verdicts")
        for path in out.glob(".latest.*"):
            os.utime(path, (0, 0), follow_symlinks=False)
        Output(self.spark, store.files, store.files.qualify(str(out)), run_name(str(DAY), _tomorrow(after)))._sweep()
        reports = {path.name for path in out.iterdir() if path.name[0] != "." and (path / "report.json").exists()}
        left = {path.name for path in out.iterdir()} - reports
        odd = [path for path in tree(out) if re.search(r"\.tmp|_temporary|\.scratch|/\.csv-", path)]
        return found + ([f"left: {left}"] if left else []) + ([f"left: {odd}"] if odd else [])


def _tomorrow(now: datetime) -> datetime:
    return max(now, datetime.now(UTC)) + timedelta(days=2)


def _belongs(path: str) -> bool:
    """Whether a store has such a name when nobody is at work."""
    run = r"/runs(/RUN(/[a-z_]+(/(\.?PART|[a-z_]+\.jsonl\.gz))?)?)?"
    commit = r"/commits(/\d{4}-\d\d-\d\d(/\d+\.json)?)?"
    return re.fullmatch(rf"/landing(/.*)?|{run}|{commit}", path) is not None


def judge(spark: SparkSession, folder: Path, end: State) -> Judge:
    """Expects what the undisturbed run found, and what was found before it."""
    reports = sorted(path for path in (end.root / "out").iterdir() if path.is_dir() and not path.is_symlink())
    expected = {json.loads((r / "report.json").read_text())["ingested"]["commit"]: verdicts(r) for r in reports}
    assert expected.keys() == {1, 2} and expected[1] != expected[2]
    return Judge(spark, folder, expected)


def killed(spark: SparkSession, folder: Path, found: list[State], number: int, hold: float) -> list[str]:
    """Kills at one of the states, for once; what is wrong with what that leaves."""
    root = folder / f"killed-{number}"
    make(spark, root)
    write = found[number].write
    watched(root, hold, lambda _, name: name == write)
    there, copied = tree(root), tree(found[number].root)
    return [f"{write}: {sorted({*there} ^ {*copied})} differ from the copy"] if there != copied else []


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.killed", description=__doc__)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--every", action="store_true", help="also calls that are like one before (Spark's parts)")
    parser.add_argument("--kills", type=int, default=0, help="how many of them are killed for once")
    parser.add_argument("--hold", type=float, default=0.2, help="seconds for which each call is held")
    chosen = parser.parse_args()
    if chosen.work:
        with build_session(master="local[2]", conf=CONF) as spark:
            return work(spark, chosen.work)
    problems = 0
    with tempfile.TemporaryDirectory(prefix="logagent-killed-") as name:
        folder = Path(name)
        spark = build_session(master="local[2]", conf=CONF)
        make(spark, folder / "made")
        found = states(folder / "made", folder / "states", hold=chosen.hold, every=chosen.every)
        print(f"{len(found)} writes of {len({kind(s.write) for s in found})} kinds", flush=True)
        judged = judge(spark, folder, found[-1])
        # First: what is judged is changed.
        for number in range(0, len(found) - 1, -(-len(found) // chosen.kills)) if chosen.kills else ():
            said = killed(spark, folder, found, number, chosen.hold)
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
        spark.stop()
    print(f"{len(found)} writes, {problems} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
