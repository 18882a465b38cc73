"""Kills, or fails one system call of, the real commands at each call that changes something, and starts them again.

`python -m tests.disk.killed --every` does it for every single call and every errno; without `--every` each call site is
taken once: a system call on a file (segments and random ids left out) between two fsyncs. Tests take one call site of
each kind (`each_kind_once`). What has to hold afterwards stands in `problems_of`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from logagent import cli as main
from logagent.base.dir_names import CHECKPOINTS, RECOVERY_POINT
from logagent.base.errors import Exit
from logagent.base.records import ActionKind, Outcome
from logagent.cleanup.plan.queue import backoff_ms
from logagent.cleanup.state.journal import Journal
from logagent.cleanup.state.reserve import RESERVE_NAME
from logagent.kafka.files.checkpoint_files import parse_checkpoint
from logagent.kafka.image import PartitionAssignment, Topic
from logagent.kafka.processes.lock import MAX_SLOW_QUERIES
from tests.host_files import format_log_dir, whole_partition, write_export
from tests.traced import traced
from tests.waiting import pause

SYSCALLS = (
    "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "fsync", "fdatasync", "pwrite64", "write",
    "ftruncate", "fchmod",
)  # fmt: skip
ERRNOS = ("EIO", "ENOSPC", "EACCES", "EROFS", "EBUSY")
KILL = "signal=KILL"
TOO_BUSY = f"{MAX_SLOW_QUERIES} queries of "
S = TypeVar("S")
Run = subprocess.CompletedProcess[str]

LONG = "t" * 249
PARTITIONS = {
    "orders-0": "DDDDDDDDDDDDDDDDDDDDDA",
    "orders-01": "DDDDDDDDDDDDDDDDDDDDDA",
    f"{LONG}-0": "BBBBBBBBBBBBBBBBBBBBBA",
    "payments-0": "CCCCCCCCCCCCCCCCCCCCCA",
}
HEX = "0123456789abcdef" * 2
SETTINGS = {
    "LOGAGENT_KAFKA__VERSION": "3.9.1",
    "LOGAGENT_CLEANUP__MAX_FRACTION": "1.0",
    "LOGAGENT_CLEANUP__STRAY_RETENTION": "0s",
    "LOGAGENT_CLEANUP__LEFTOVER_GRACE": "0s",
    "LOGAGENT_DELETE__FILE_DELETE_DELAY_MS": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}

_CALL = re.compile(r"^(?P<thread>\d+) +(?P<name>\w+)\((?P<arguments>.*)")
_UUID = re.compile(r"[0-9a-f]{32}")
_SEGMENT = re.compile(r"[0-9]{20}")


# A host


def lay_out(root: Path) -> None:
    """One log dir with four partitions, every one of them in every checkpoint, as a stopped broker leaves it."""
    log_dir = format_log_dir(root / "d1", "AAAAAAAAAAAAAAAAAAAAZg", node_id=1)
    (log_dir / ".lock").touch()
    for name, topic_id in PARTITIONS.items():
        whole_partition(log_dir / name, topic_id)
    entries = [f"{name.rpartition('-')[0]} {int(name.rpartition('-')[2])}" for name in PARTITIONS]
    for number, file in enumerate(CHECKPOINTS):
        lines = [f"{entry} {100 * number + offset}" for offset, entry in enumerate(entries, 5)]
        (log_dir / file).write_text("\n".join(["0", str(len(lines)), *lines, ""]))
        (log_dir / file).chmod(0o640)


def been_here(root: Path) -> None:
    """The same, and a journal without an entry: what creates one is struck where `delete` does so."""
    lay_out(root)
    (root / "state").mkdir(mode=0o750)
    Journal.open(str(root / "state")).close()


def assignments(root: Path, *topics: Topic) -> list[str]:
    """The option for assignments of now in which exactly these topics live: strays of other ids may go."""
    return ["--assignments", str(write_export(root / "assignments.json", *topics, offset=100))]


def laid_out() -> list[Topic]:
    """The topics of `lay_out`, all of them with replicas on this node."""
    both = PartitionAssignment((1, 2), (1, 2))
    return [
        Topic("orders", PARTITIONS["orders-0"], {0: both, 1: both}),
        Topic(LONG, PARTITIONS[f"{LONG}-0"], {0: both}),
        Topic("payments", PARTITIONS["payments-0"], {0: both}),
    ]


# The commands under test


@dataclass(frozen=True, slots=True)
class Scenario:
    """`prepare` lays the host out and returns the command's own arguments; `status`: that of a run nothing happens
    to; `again_may`: statuses of the second run; `in_child`: the work is done in a child process, so that a blow kills
    this one, and the command has to say so. `remove`: what takes a host away again. `between`: what is wrong after a
    blow, before the second run. `mounted`: the host is a file system of its own."""

    name: str
    prepare: Callable[[Path], list[str]]
    status: int = 0
    again_may: tuple[int, ...] = (0,)
    in_child: bool = False
    remove: Callable[[Path], None] = shutil.rmtree
    between: Callable[[Path], list[str]] = lambda root: []
    mounted: bool = False


def deleting(topics: str) -> list[str]:
    return ["delete", "--topic", topics, "--allow-assigned", "--even-last-copy", "--execute"]


DELETE = deleting(f"orders|{LONG}")


def _delete(root: Path) -> list[str]:
    lay_out(root)
    return DELETE


def _restore(root: Path) -> list[str]:
    lay_out(root)
    status, document = in_process(root, DELETE)
    assert status == 0, document
    return ["restore", "--retention-will-delete", "--plan", document["plan_id"], "--execute"]


def _replace(root: Path) -> list[str]:
    """A stray changes places with what the broker made in its stead."""
    been_here(root)
    whole_partition(root / "d1" / f"orders-0.{HEX}-stray", PARTITIONS["orders-0"])
    return ["restore", "--retention-will-delete", f"orders-0.{HEX}-stray", "--replace", "--even-last-copy", "--execute"]


def _replace_marked(root: Path) -> list[str]:
    """The same with a marked one, which is set aside first."""
    been_here(root)
    whole_partition(root / "d1" / f"orders-0.{HEX}-delete", PARTITIONS["orders-0"])
    return [
        "restore",
        "--retention-will-delete",
        f"orders-0.{HEX}-delete",
        "--replace",
        "--even-last-copy",
        "--execute",
    ]


def _cleanup(root: Path) -> list[str]:
    lay_out(root)
    status, document = in_process(root, deleting(LONG))
    assert status == 0, document
    whole_partition(root / "d1" / f"gone-7.{HEX}-delete", "EEEEEEEEEEEEEEEEEEEEEA")
    whole_partition(root / "d1" / f"orders-0.{HEX}-stray", "FFFFFFFFFFFFFFFFFFFFFA")
    (root / "d1" / f"gone-7.{HEX}-delete" / "below").mkdir()
    (root / "d1" / f"gone-7.{HEX}-delete" / "below" / "it").write_text("x")
    for path in (root / "d1").glob("*-*.*-*"):
        os.utime(path, (1, 1))  # Unchanged for long: what an inventory saw of its files counts, where they are plain.
    return ["cleanup", "--execute", *assignments(root, *laid_out())]


def _batch(root: Path) -> list[str]:
    """Three marked directories, whose removal is begun together."""
    been_here(root)
    for number in range(3):
        made = root / "d1" / f"audit-{number}.{HEX}-delete"
        whole_partition(made, "EEEEEEEEEEEEEEEEEEEEEA")
        os.utime(made, (1, 1))
    return ["cleanup", "--execute", *assignments(root, *laid_out())]


def whole_or_refused(root: Path) -> list[str]:
    """A marked directory with all its files can be restored, one that lacks any cannot."""
    left = {path.name: sorted(file.name for file in path.iterdir()) for path in (root / "d1").glob("*-delete")}
    if not left:
        return []
    own = ["restore", "--retention-will-delete", *left]
    _, document = in_process(root, own)
    offered = {a["name"] for a in document.get("actions", [])}
    every = sorted(file.name for file in (root / "d1" / "payments-0").iterdir())
    return [
        f"{name} has {len(files)} of {len(every)} files, and is {'' if name in offered else 'not '}offered: {document}"
        for name, files in left.items()
        if (files == every) != (name in offered)
    ]


def _rescue(root: Path) -> list[str]:
    """The same as a cleanup's, asked for as more room than there is to give."""
    return ["rescue", "--need", "1GiB", *_cleanup(root)[1:]]


def _prestart(root: Path) -> list[str]:
    """Strays past their retention are marked, for the broker to purge; one of them lives beside its successor."""
    been_here(root)
    whole_partition(root / "d1" / f"orders-0.{HEX}-stray", "EEEEEEEEEEEEEEEEEEEEEA")
    whole_partition(root / "d1" / f"gone-7.{HEX}-stray", "FFFFFFFFFFFFFFFFFFFFFA")
    return ["prestart", "--budget", "60s", *assignments(root, *laid_out())]


SCENARIOS = {
    s.name: s
    for s in (
        Scenario("delete", _delete),
        # Once all is restored there is nothing left of that plan, and saying so is wrong usage.
        Scenario("restore", _restore, again_may=(0, 2)),
        Scenario("replace", _replace, again_may=(0, 2)),
        Scenario("replace-marked", _replace_marked, again_may=(0, 2)),
        Scenario("cleanup", _cleanup),
        Scenario("batch", _batch, between=whole_or_refused),
        Scenario("prestart", _prestart, in_child=True),
        Scenario("rescue", _rescue, status=3, again_may=(3,)),
    )
}


def _arguments(root: Path, own: Sequence[str]) -> list[str]:
    return [own[0], "--log-dir", str(root / "d1"), "--state-dir", str(root / "state"), "--json", *own[1:]]


@contextmanager
def _environment() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(SETTINGS)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def in_process(root: Path, own: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """Run a command in this process: its exit status and its document ({} where there is none)."""
    out, err = io.StringIO(), io.StringIO()
    with _environment(), redirect_stdout(out), redirect_stderr(err):
        status = main.run(_arguments(root, own))
    return status, json.loads(out.getvalue()) if out.getvalue() else {"said": err.getvalue()}


def under_strace(
    root: Path, own: Sequence[str], *options: str, mounted: bool = False
) -> subprocess.CompletedProcess[str]:
    return traced(_arguments(root, own), {**os.environ, **SETTINGS}, *options, alone=not mounted)


# Where it can be struck


@dataclass(frozen=True, slots=True)
class Site:
    """The `number`-th `call` that a thread makes, on `what`; equal `what` and `epoch` mean the same call site.

    strace counts per thread: where several of them get that far, the first one is struck.
    """

    call: str
    number: int
    what: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.call} number {self.number} ({self.what})"


def sites_of(scenario: Scenario, folder: Path) -> list[Site]:
    """All calls of one undisturbed run that concern files below its own folder, in their order."""
    root, log = folder / "traced", folder / "trace"
    options = ["-y", "-s", "300", "-o", str(log), "-e", f"trace={','.join(SYSCALLS)}"]
    _, done = unless_too_busy(partial(_laid_out_and_run, scenario, root, *options))
    assert done.returncode == scenario.status, done.stderr + done.stdout
    counts: Counter[tuple[str, str]] = Counter()
    sites: list[Site] = []
    epoch = 0
    for line in log.read_text(errors="replace").splitlines():
        match = _CALL.match(line)
        if match is None or match["name"] not in SYSCALLS:
            continue
        call = match["name"]
        counts[match["thread"], call] += 1
        what = _what(call, match["arguments"], root)
        if what is not None:
            sites.append(Site(call, counts[match["thread"], call], what, epoch))
            epoch += call in ("fsync", "fdatasync")
    scenario.remove(root)
    return sites


def _what(call: str, arguments: str, root: Path) -> str | None:
    """The file below `root` that a call is about, without what differs from run to run or from segment to segment."""
    folder = re.match(r'(?:\d+<|")([^>"]*)', arguments)
    if folder is None or not folder[1].startswith(str(root)):
        return None
    path = folder[1]
    if call in ("renameat", "renameat2", "unlinkat"):
        path += "/" + (re.findall(r'"([^"]*)"', arguments) or [""])[0]
    return _SEGMENT.sub("#", _UUID.sub("*", path.removeprefix(f"{root}/"))).replace(LONG[:200], "")


def each_once(sites: Iterable[Site]) -> list[Site]:
    """The first call of each call site."""
    return list({(s.call, s.what, s.epoch): s for s in reversed(list(sites))}.values())[::-1]


def each_file_once(sites: Iterable[Site]) -> list[Site]:
    """The first call of each kind on each file: enough for errors, which leave the process to say what it means."""
    return list({(s.call, s.what): s for s in reversed(list(sites))}.values())[::-1]


def each_kind_once(sites: Iterable[Site], *, opening: bool) -> dict[str, Site]:
    """One call site of each kind. On the log dir that is a system call on a partition, on a file in one, on a
    checkpoint on its way, or on the log dir itself (of many the middle one); on the WAL a write and a sync after each
    of these, and the last ones before the first. The rest of the state dir only with `opening`: while a journal is new.
    """
    kinds: dict[str, list[Site]] = {}
    last = ""
    for site in each_once(sites):
        place, _, below = site.what.partition("/")
        if place == "d1":
            last = f"{site.call} {_kind_of(site.call, below)}"
            kinds.setdefault(last, []).append(site)
        elif below == "journal.db-wal":
            alike = kinds.setdefault(f"{site.call} {below} after {last}", [site])
            alike[:] = alike if last else [site]
        elif opening:
            kinds.setdefault(f"{site.call} {site.what}", []).append(site)
    return {kind: alike[len(alike) // 2] for kind, alike in kinds.items()}


def _kind_of(call: str, below: str) -> str:
    if below.startswith("."):
        return below if call == "renameat" else "a checkpoint"
    if below.startswith("#"):
        return "the probe"
    return "a file" if "/" in below else re.sub(r".*-\d+(\.|$)", "partition.", below)


# What must hold


def end_of(root: Path) -> dict[str, Any]:
    """What is on the log dir's disk, without random ids: every file with its content and mode; checkpoints parsed."""
    found: dict[str, Any] = {}
    log_dir = root / "d1"
    for path in sorted(log_dir.rglob("*")):
        name = _UUID.sub("*", str(path.relative_to(log_dir)))
        name = name if name not in found else f"{name} (again)"
        if path.is_dir():
            found[name] = "directory"
        elif path.name in CHECKPOINTS and path.parent == log_dir:
            entries = {str(p): offset for p, offset in parse_checkpoint(path.read_bytes()).items()}
            found[name] = (dict(sorted(entries.items())), oct(path.stat().st_mode))
        else:
            found[name] = path.read_bytes()
    return found


def problems_of(root: Path, wanted: Mapping[str, Any]) -> list[str]:
    """What is wrong after the second run: the disk differs from an undisturbed run's, or the journal from the disk."""
    found = end_of(root)
    problems = [f"{name}: {found.get(name)!r}, not {wanted.get(name)!r}" for name in sorted({*found, *wanted})
                if found.get(name) != wanted.get(name)]  # fmt: skip
    left = {p.name for p in (root / "state").iterdir()} - {"journal.db", "executor.lock", RESERVE_NAME}
    problems += [f"left in the state dir: {name}" for name in sorted(left)]
    with Journal.open_read_only(str(root / "state")) as journal:
        problems += [f"unsettled in the journal: {e.intent.action} {e.intent.name}" for e in journal.unsettled()]
        entries = journal.history()
    for name in os.listdir(root / "d1"):
        taken = [e for e in entries if e.intent.new_name == name and e.outcome is Outcome.DONE]
        if len(taken) > 1:
            problems.append(f"{name} got its name {len(taken)} times by the journal")
        if HEX not in name and name.endswith("-delete") and not taken:
            problems.append(f"{name} stands there, and the journal does not know of it")
    for e in entries:
        gone = e.intent.action is ActionKind.REMOVE and e.outcome is Outcome.DONE
        if gone and (root / "d1" / e.intent.name).exists():
            problems.append(f"{e.intent.name} is removed by the journal, but there")
    return problems


# Striking


@dataclass(frozen=True, slots=True)
class Blow(Generic[S]):
    """One case: at `site`, `injection` (as strace writes it)."""

    site: S
    injection: str

    def __str__(self) -> str:
        return f"{self.injection} at {self.site}"


def kills(sites: Iterable[S]) -> list[Blow[S]]:
    return [Blow(s, KILL) for s in sites]


def errors(sites: Iterable[S], *, each: bool) -> list[Blow[S]]:
    """Every site with every errno (`each`), or with one of them in turn."""
    if each:
        return [Blow(s, f"error={errno}") for s in sites for errno in ERRNOS]
    return [Blow(s, f"error={ERRNOS[number % len(ERRNOS)]}") for number, s in enumerate(sites)]


def strike(scenario: Scenario, blows: Sequence[Blow[Site]], folder: Path) -> list[str]:
    """Strike once per blow, run the command again, and tell everything that is not as it should be."""
    undisturbed = folder / "undisturbed"
    status, document = in_process(undisturbed, scenario.prepare(undisturbed))
    assert status == scenario.status, document
    wanted = end_of(undisturbed)
    assert problems_of(undisturbed, wanted) == []
    problems: list[str] = []
    missed: list[str] = []
    for number, blow in enumerate(blows):
        root = folder / f"case-{number}"
        own, run = unless_too_busy(partial(_struck, scenario, root, blow))
        if _was_missed(scenario, blow, run):
            missed.append(f"{scenario.name}, {blow}: it was not reached")
            found = []
        else:
            found = [*_judge_first(scenario, blow, run), *scenario.between(root)]
        found += _judge_second(scenario, blow, root, own, wanted)
        # The first few say enough; a partition that was not renamed differs in every file.
        problems += [f"{scenario.name}, {blow}: {problem}" for problem in found[:4]]
        scenario.remove(root)
    scenario.remove(undisturbed)
    return problems + (missed if len(missed) * 20 > len(blows) else [])


def _was_missed(scenario: Scenario, blow: Blow[Site], run: subprocess.CompletedProcess[str]) -> bool:
    """Whether the run ended as an undisturbed one does, before its last writes to the lock file and the journal came
    to the number that the traced run had: what a run waits for is written there, and that depends on time."""
    if blow.injection != KILL or not blow.site.what.startswith("state/") or blow.site.call != "pwrite64":
        return False
    return run.returncode == scenario.status


def unless_too_busy(struck: Callable[[], tuple[list[str], Run]]) -> tuple[list[str], Run]:
    """One that got to its end, or to its blow. A command that cannot check the broker's lock within 2 ms, 25 times in a
    row, ends before that, and on a busy host strace alone, which stops at every call, takes as long."""
    tries = (struck() for _ in range(5))
    return next((each for each in tries if TOO_BUSY not in each[1].stdout + each[1].stderr), None) or struck()


def _struck(scenario: Scenario, root: Path, blow: Blow[Site]) -> tuple[list[str], Run]:
    call = blow.site.call
    injection = f"inject={call}:{blow.injection}:when={blow.site.number}"
    return _laid_out_and_run(scenario, root, "-o", os.devnull, "-e", f"trace={call}", "-e", injection)


def _laid_out_and_run(scenario: Scenario, root: Path, *options: str) -> tuple[list[str], Run]:
    """The command's arguments, and how it ended, on a host that is laid out anew."""
    if root.exists():
        scenario.remove(root)
    own = scenario.prepare(root)
    return own, under_strace(root, own, *options, mounted=scenario.mounted)


def _judge_first(scenario: Scenario, blow: Blow[Site], run: subprocess.CompletedProcess[str]) -> list[str]:
    if blow.injection == KILL:
        if scenario.in_child:
            killed = run.returncode == 1 and run.stderr.endswith("the child process ended without an answer\n")
        else:
            killed = run.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
        return [] if killed else [f"it was not killed (status {run.returncode}): {run.stderr}{run.stdout}"]
    if "Traceback" in run.stderr or run.returncode not in (0, 1, 3, 5, Exit.PERMISSION):
        return [f"it ended with status {run.returncode}: {run.stderr}"]
    return []


def _expected(blow: Blow[Site], root: Path, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """A recovery point that could not be taken out stays where it is: it does no harm, and nobody tries again."""
    if blow.injection == KILL or not blow.site.what.endswith((RECOVERY_POINT, "d1")):
        return wanted
    return {**wanted, RECOVERY_POINT: end_of(root)[RECOVERY_POINT]}


def _judge_second(
    scenario: Scenario, blow: Blow[Site], root: Path, own: Sequence[str], wanted: Mapping[str, Any]
) -> list[str]:
    try:
        status, document = in_process(root, own)
        # A removal that failed is tried again after a backoff, and a fast machine is back before it is over.
        while (again_at := _tried_again_at(document)) is not None:
            pause(max(again_at - time.time(), 0), "the backoff")
            status, document = in_process(root, own)
    except Exception as e:
        return [f"the second run failed: {e!r}"]
    said = [f"the second run came to {status}: {document}"] if status not in scenario.again_may else []
    return said + problems_of(root, _expected(blow, root, wanted))


def _tried_again_at(document: Mapping[str, Any]) -> float | None:
    """When the last of what failed in the struck run and waits now is due, in seconds; None where nothing waits.

    Rescue refuses it instead (a step that would shorten the backoff needs approval), and says no time.
    """
    times = [w["until"] for w in document.get("waiting", []) if w["until"] is not None]
    refused = any("after a failed removal" in r["fact"] for r in document.get("refusals", []))
    first = [time.time() + backoff_ms(1) / 1000] if refused else []
    return max([*first, *(datetime.fromisoformat(t).timestamp() for t in times)], default=None)


def run_all(scenarios: Iterable[Scenario], *, every: bool) -> int:
    """Strike the scenarios; prints what was done and every problem. The number of problems."""
    count = 0
    for scenario in scenarios:
        with tempfile.TemporaryDirectory(prefix="logagent-killed-") as folder:
            all_sites = sites_of(scenario, Path(folder))
            to_kill, to_fail = (all_sites, all_sites) if every else (each_once(all_sites), each_file_once(all_sites))
            blows = [*kills(to_kill), *errors(to_fail, each=every)]
            print(f"{scenario.name}: {len(to_kill)} of {len(all_sites)} calls, {len(blows)} runs", flush=True)
            for problem in strike(scenario, blows, Path(folder)):
                count += 1
                print(f"  {problem}", flush=True)
    print(f"{count} problems", flush=True)
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.disk.killed")
    parser.add_argument("--every", action="store_true", help="every call, every errno (an hour)")
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []], help="all of them by default")
    asked = parser.parse_args()
    sys.exit(1 if run_all([SCENARIOS[name] for name in asked.scenario or SCENARIOS], every=asked.every) else 0)
