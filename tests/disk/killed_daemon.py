"""Kills, or fails one system call of, a whole cycle of the daemon (`logagent run --once`), and goes on after it.

`python -m tests.disk.killed_daemon --every` strikes every call and tries every errno; in the tests one call site of
each kind is struck. The daemon works in a thread per log dir, and strace counts calls per thread; so a site is the N-th
call of a thread **on one path** (`strace -P`), whichever thread gets there first.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logagent.base.dir_names import RECOVERY_POINT
from logagent.kafka.image import PartitionAssignment, Topic
from tests.disk.killed import (
    HEX,
    KILL,
    PARTITIONS,
    SYSCALLS,
    Blow,
    assignments,
    been_here,
    end_of,
    errors,
    in_process,
    kills,
    problems_of,
    under_strace,
)
from tests.host_files import whole_partition
from tests.waiting import wait_until

_CALL = re.compile(r"^(?P<thread>\d+) +(?P<name>\w+)\((?P<arguments>.*)")
# The probe's file: strace cannot aim at what has no name, and nothing can be left of it.
_NAMELESS = re.compile(r"/#\d+$")
DAEMON_FILES = {"daemon.lock"}


def prepare(root: Path) -> None:
    """Something for every kind of work: orphans to set aside, a marked directory and a stray to remove."""
    been_here(root)
    whole_partition(root / "d1" / f"gone-7.{HEX}-delete", "EEEEEEEEEEEEEEEEEEEEEA")
    whole_partition(root / "d1" / f"gone-8.{HEX}-stray", "FFFFFFFFFFFFFFFFFFFFFA")
    (root / "d1" / f"gone-7.{HEX}-delete" / "below").mkdir()
    (root / "d1" / f"gone-7.{HEX}-delete" / "below" / "it").write_text("x")
    assignments(root, Topic("payments", PARTITIONS["payments-0"], {0: PartitionAssignment((1, 2), (1, 2))}))


def arguments(root: Path, *own: str) -> list[str]:
    return [*own, "--assignments", str(root / "assignments.json")]


ENVIRONMENT = {
    "LOGAGENT_CLEANUP__MODE": "enforce",
    "LOGAGENT_CLEANUP__SIGHTINGS": "1",
    "LOGAGENT_CLEANUP__MIN_AGE": "0s",
    "LOGAGENT_METRICS__LISTEN": "",
}


def to_the_end(root: Path) -> None:
    """Cycles until nothing is due any more: what one sets aside the next one removes."""

    def nothing_left() -> bool:
        status, document = in_process(root, arguments(root, "cleanup", "--execute"))
        assert status == 0 or document.get("actions"), document
        return not document["actions"] and not document["waiting"]

    wait_until(nothing_left, "nothing is due any more", interval=0.2)


@dataclass(frozen=True, slots=True)
class Site:
    """The `number`-th `call` of a thread on `path` (below the host's folder)."""

    call: str
    path: str
    number: int

    def __str__(self) -> str:
        return f"{self.call} number {self.number} on {self.path}"


def sites_of(folder: Path) -> list[Site]:
    """All calls of one undisturbed cycle on files below its folder, in their order."""
    root, log = folder / "traced", folder / "trace"
    prepare(root)
    done = under_strace(
        root, arguments(root, "run", "--once"), "-y", "-s", "300", "-o", str(log), "-e", f"trace={','.join(SYSCALLS)}"
    )
    assert done.returncode == 0, done.stderr
    counts: Counter[tuple[str, str, str]] = Counter()
    sites: dict[Site, None] = {}
    for line in log.read_text(errors="replace").splitlines():
        match = _CALL.match(line)
        path = re.match(r'(?:\d+<|")([^>"]*)', match["arguments"]) if match is not None else None
        if match is None or match["name"] not in SYSCALLS or path is None or not path[1].startswith(f"{root}/"):
            continue
        where = path[1].removeprefix(f"{root}/").removesuffix("(deleted)")
        if _NAMELESS.search(where):
            continue
        counts[match["thread"], match["name"], where] += 1
        sites[Site(match["name"], where, counts[match["thread"], match["name"], where])] = None
    shutil.rmtree(root)
    return list(sites)


def each_few(sites: Iterable[Site]) -> list[Site]:
    """Of each kind of call on each path the first and then every 64th: nearly all are writes to the journal."""
    return [s for s in sites if s.number == 1 or s.number % 64 == 0]


def each_kind_once(sites: Iterable[Site]) -> list[Site]:
    """Each kind of call on partitions, on files in them, on checkpoints, on the log dir and on the WAL."""
    kinds: dict[tuple[str, str], Site] = {}
    for site in each_few(sites):
        what = re.sub(r"[^/]*-\d+\.[0-9a-f]+|\.logagent-.*", "*", site.path)
        if site.path.startswith("d1") or site.path.endswith("-wal"):
            kinds.setdefault((site.call, what), site)
    return list(kinds.values())


def each_file_once(sites: Iterable[Site]) -> list[Site]:
    return [s for s in sites if s.number == 1]


def strike(blows: Sequence[Blow[Site]], folder: Path) -> list[str]:
    """Strike once per blow, let the next daemon and then commands go on, and tell what is not as it should be."""
    undisturbed = folder / "undisturbed"
    prepare(undisturbed)
    to_the_end(undisturbed)
    wanted = end_of(undisturbed)
    problems: list[str] = []
    for n, blow in enumerate(blows):
        root = folder / f"case-{n}"
        run = _struck(root, blow)
        said = [*_judge_first(blow, run), *_judge_end(root, wanted, blow)]
        problems += [f"{blow}: {problem}" for problem in said[:4]]
        shutil.rmtree(root)
    return problems


def _struck(root: Path, blow: Blow[Site]) -> subprocess.CompletedProcess[str]:
    prepare(root)
    site = blow.site
    injection = f"inject={site.call}:{blow.injection}:when={site.number}"
    options = ["-o", os.devnull, "-P", str(root / site.path), "-e", f"trace={site.call}", "-e", injection]
    return under_strace(root, arguments(root, "run", "--once"), *options)


def _judge_first(blow: Blow[Site], run: subprocess.CompletedProcess[str]) -> list[str]:
    if blow.injection == KILL:
        killed = run.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
        return [] if killed else [f"it was not killed (status {run.returncode}): {run.stderr[-500:]}"]
    if "Traceback" in run.stderr or "internal-error" in run.stderr or run.returncode not in (0, 1, 3, 5):
        return [f"it ended with status {run.returncode}: {run.stderr[-800:]}"]
    return []


def _judge_end(root: Path, wanted: Mapping[str, Any], blow: Blow[Site]) -> list[str]:
    try:
        to_the_end(root)
    except Exception as e:
        return [f"it did not come to its end: {e!r}"]
    if blow.injection != KILL and (blow.site.path.endswith(RECOVERY_POINT) or blow.site.path == "d1"):
        # One that could not be taken out stays where it is: it does no harm, and nobody tries again.
        wanted = {**wanted, RECOVERY_POINT: end_of(root)[RECOVERY_POINT]}
    return [p for p in problems_of(root, wanted) if not any(p.endswith(f": {name}") for name in DAEMON_FILES)]


def run_all(*, every: bool) -> int:
    with tempfile.TemporaryDirectory(prefix="logagent-killed-") as folder:
        os.environ.update(ENVIRONMENT)
        sites = sites_of(Path(folder))
        chosen = sites if every else each_few(sites)
        blows = [*kills(chosen), *errors(sites if every else each_file_once(sites), each=every)]
        print(f"{len(chosen)} of {len(sites)} calls, {len(blows)} runs", flush=True)
        problems = strike(blows, Path(folder))
    for problem in problems:
        print(f"  {problem}")
    print(f"{len(problems)} problems")
    return len(problems)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.disk.killed_daemon")
    parser.add_argument("--every", action="store_true", help="every call, every errno (an hour)")
    raise SystemExit(min(run_all(every=parser.parse_args().every), 1))
