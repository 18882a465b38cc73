"""A host for tests of the command line: a real broker's disk, a configuration and a state dir of its own."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from logagent.broker.exported import write_assignments
from logagent.broker.files.meta_properties import parse_meta_properties
from logagent.broker.metadata_log.log import read_metadata_log
from logagent.cli.main import run
from logagent.model.assignments.image import PartitionAssignment, Topic
from tests.host_files import write_toml
from tests.kafka_disks import extract, metadata_dir

# Where a test says nothing else: nothing waits, and no plan is too large.
ALL_DUE = {"cleanup.stray_retention": "0s", "cleanup.leftover_grace": "0s", "delete.file_delete_delay_ms": 0}
NO_LIMITS = {"cleanup.max_fraction": 1.0, "cleanup.max_dirs": 1000}
FREELY = ("--allow-assigned", "--even-last-copy")


@dataclass(frozen=True)
class Ran:
    """What a command left: exit status, stdout and stderr."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout; a ValueError where there is anything else."""
        return json.loads(self.out)

    def guards(self) -> dict[str, str]:
        """Guard by directory name of each refusal; each has to say fact and hint."""
        refusals = self.json["refusals"]
        assert all(r["fact"] and r["hint"] for r in refusals), refusals
        return {r["name"]: r["guard"] for r in refusals}

    @property
    def deeds(self) -> list[Any]:
        """The actions on directories (what leaves the checkpoints with them is listed beside them)."""
        return [a for a in self.json["actions"] if a["action"] != "drop-checkpoint-entry"]

    def outcomes(self) -> dict[str, str]:
        """Outcome by directory name of each action on a directory."""
        return {a["name"]: a["outcome"] for a in self.deeds}


class CliHost:
    """The disk `name` of tests/fixtures/disks below `root`, with `logagent.toml` and a state dir that is not there."""

    def __init__(self, root: Path, name: str = "3.9.1/node3-dir-returned") -> None:
        self.root = root
        self.disk = root / "host"
        self.disk.mkdir(parents=True)
        extract(name, self.disk)
        self.d1, self.d2 = self.disk / "d1", self.disk / "d2"
        self.properties = self.disk / "server.properties"
        text = self.properties.read_text(encoding="latin-1")
        # The records are as old as the archive: under the default of seven days all of them would be due by now.
        text = text.replace("@ROOT@", str(self.disk)) + "\nlog.retention.hours=876000\n"
        self.properties.write_text(text, encoding="latin-1")
        self.toml = root / "logagent.toml"
        self.state = root / "state"
        self.configure(**NO_LIMITS)

    def configure(self, **settings: object) -> None:
        """Write `logagent.toml`: `section.key` to value. Without assignments, unless they are among `settings`."""
        wanted: dict[str, object] = {
            "kafka.config": str(self.properties),
            "kafka.version": "3.9.1",
            "assignments.sources": ["kraft-log"],
            **settings,
        }
        write_toml(self.toml, wanted)

    def with_assignments(self, *, topics_gone: object = False, **settings: object) -> None:
        """As `configure`, with the assignments of the disk's own metadata log, dated to now; with `topics_gone` of a
        cluster in which every topic was deleted since, and another one made elsewhere."""
        directory = metadata_dir(self.disk)
        meta = parse_meta_properties((directory.parent / "meta.properties").read_bytes())
        now_ms = time.time_ns() // 1_000_000
        log = read_metadata_log(
            str(directory), node_id=meta.node_id, cluster_id=meta.cluster_id, now_ms=now_ms, configured_voters=1
        )
        file = self.root / "assignments.json"
        image = replace(log.assignments, at_ms=now_ms, known_until_ms=now_ms)
        if (own := image.brokers.get(-1 if meta.node_id is None else meta.node_id)) is not None:
            # The others have noticed by now that it is stopped.
            image.brokers = {**image.brokers, own.node_id: own._replace(fenced=True)}
        if topics_gone:
            elsewhere = Topic("elsewhere", "ElseElseElseElseElseEA", {0: PartitionAssignment((meta.node_id or 0, 999))})
            image = replace(image, by_id={"ElseElseElseElseElseEA": elsewhere}, by_name={"elsewhere": elsewhere})
        write_assignments(str(file), image)
        self.configure(**{"assignments.sources": ["file"], "assignments.file": str(file), **settings})

    def set_property(self, line: str) -> None:
        """Add a line to `server.properties`."""
        with self.properties.open("a", encoding="latin-1") as file:
            file.write(f"\n{line}\n")

    def set_clock(self, **by: int) -> None:
        """The wall clock was set by so much since the last cycle, as far as the journal remembers."""
        with sqlite3.connect(self.state / "journal.db") as journal:
            by_ms = timedelta(**by) // timedelta(milliseconds=1)
            journal.execute("UPDATE last_cycle SET wall_ms = wall_ms - ?", (by_ms,))
        journal.close()

    def arguments(self, *arguments: str) -> list[str]:
        return [arguments[0], "--config", str(self.toml), "--state-dir", str(self.state), *arguments[1:]]

    def run(self, *arguments: str) -> Ran:
        """Run a command in this process, as `logagent` would be run for this host."""
        return run_here(*self.arguments(*arguments))

    def spawn(self, *arguments: str, **environment: str) -> Ran:
        """Run a command in a process of its own."""
        return run_apart(*self.arguments(*arguments), **environment)

    def snapshot(self) -> dict[str, tuple[object, ...]]:
        """Everything on the broker's disk: mode, inode, size, mtime, ctime, content."""
        return dict(_snapshot(self.disk))

    def partitions(self) -> dict[str, tuple[object, ...]]:
        """The log dirs' trees without what any rename changes (ctimes, and the times of the log dirs themselves)."""
        found: dict[str, tuple[object, ...]] = {}
        for path, (kind, inode, size, mtime, _, content) in _snapshot(self.disk):
            where = Path(path).relative_to(self.disk)
            if len(where.parts) > 1 and where.parts[0] in ("d1", "d2") and not where.name.endswith("-checkpoint"):
                found[str(where)] = (kind, inode, size, mtime, content)
        return found

    def check_back(self, before: Mapping[str, tuple[object, ...]]) -> None:
        """Everything is as it was `before` (`partitions`), but for `.index` files of what was restored: the broker
        makes those anew, from what is in the `.log`."""

        def files(found: Mapping[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
            return {name: state for name, state in found.items() if not name.endswith(".index")}

        now = self.partitions()
        assert files(now) == files(before) and set(now) < set(before)
        assert all(name.endswith(".index") for name in set(before) - set(now))

    def checkpoints(self) -> dict[str, frozenset[str]]:
        """Entries of every checkpoint (in any order)."""
        files = sorted((*self.d1.glob("*-checkpoint"), *self.d2.glob("*-checkpoint")))
        return {str(f.relative_to(self.disk)): frozenset(f.read_text().splitlines()[2:]) for f in files}

    def find_in(self, log_dir: Path, suffix: str) -> list[str]:
        """Names of the directories in one log dir that end so."""
        return sorted(entry.name for entry in log_dir.iterdir() if entry.is_dir() and entry.name.endswith(suffix))

    def find(self, prefix: str, suffix: str = "") -> list[str]:
        """Names of the directories in both log dirs that begin and end so."""
        names = [entry.name for d in (self.d1, self.d2) for entry in d.iterdir() if entry.is_dir()]
        return sorted(name for name in names if name.startswith(prefix) and name.endswith(suffix))


LOCKER = """
import fcntl, os, sys
files = [open(f"{d}/.lock", "a") for d in sys.argv[1:]]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def process(source: str, *arguments: str | Path) -> Iterator[int]:
    """A process of this Python program, which has said "ready"; it ends with the end of its stdin."""
    command = [sys.executable, "-c", source, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        try:
            yield running.pid
        finally:
            running.stdin.close()
            running.wait(200)


def delete(host: CliHost, *arguments: str, execute: bool = True) -> Ran:
    return host.run("delete", "--json", *arguments, *(("--execute",) if execute else ()))


def run_here(*arguments: str) -> Ran:
    """The command line in this process. stdout is strict UTF-8: a name that cannot be printed is an error."""
    raw_out, raw_err = io.BytesIO(), io.BytesIO()
    out = io.TextIOWrapper(raw_out, encoding="utf-8", write_through=True)
    err = io.TextIOWrapper(raw_err, encoding="utf-8", errors="backslashreplace", write_through=True)
    with redirect_stdout(out), redirect_stderr(err):
        status = run(arguments)
    return Ran(status, raw_out.getvalue().decode(), raw_err.getvalue().decode())


def run_apart(*arguments: str, stdin: str | None = None, **environment: str) -> Ran:
    """The command line in a process of its own, with `environment` over this one's."""
    done = subprocess.run(
        [sys.executable, "-m", "logagent", *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environment},
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


# Mode, inode, size, mtime, ctime, content.
_Seen = tuple[int, int, int, int, int, bytes]


def _snapshot(root: Path) -> list[tuple[str, _Seen]]:
    found: list[tuple[str, _Seen]] = []
    for folder, names, files in os.walk(root):
        for name in sorted((*names, *files, ".")):
            path = os.path.normpath(os.path.join(folder, name))
            seen = os.lstat(path)
            content = Path(path).read_bytes() if stat.S_ISREG(seen.st_mode) else b""
            size = seen.st_size if stat.S_ISREG(seen.st_mode) else 0
            found.append((path, (seen.st_mode, seen.st_ino, size, seen.st_mtime_ns, seen.st_ctime_ns, content)))
    return found
