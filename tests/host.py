"""The builder of hosts for tests: a stopped broker's disk and configuration, a state dir, and the command line on them.

`Host.from_disk(root)` has the disk of a real broker. `Host(root).format()` has log dirs without a partition, which
`partition` adds. What one test file needs beyond that stands there: as a function, or as a subclass if it is a notion
of its own. (`tests.hosts` has hosts as the model sees them, in memory.)
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from logagent.base.clock import Clock, SystemClock
from logagent.base.config.config import load
from logagent.base.config.settings import Settings
from logagent.cleanup.session.session import Session, Shared, open_session
from logagent.kafka.files.exported import write_assignments
from logagent.kafka.files.properties import parse_meta_properties
from logagent.kafka.image import PartitionAssignment, Topic
from logagent.kafka.metadata_log.log import read_metadata_log
from logagent.kafka.processes.target import Target, resolve_target
from tests.command_line import Ran, run_apart, run_here
from tests.daemon_process import FIRST, DaemonProcess
from tests.forked import run_forked
from tests.host_files import (
    CLUSTER_ID,
    DIRECTORY_IDS,
    NO_FILES,
    format_log_dir,
    records,
    write_export,
    write_partition,
    write_toml,
)
from tests.kafka_disks import extract, metadata_dir

# Where a test says nothing else: nothing waits, and no plan is too large.
ALL_DUE = {"cleanup.stray_retention": "0s", "cleanup.leftover_grace": "0s", "delete.file_delete_delay_ms": 0}
NO_LIMITS = {"cleanup.max_fraction": 1.0, "cleanup.max_dirs": 1000}
FREELY = ("--allow-assigned", "--even-last-copy")


class Host:
    """Below `root`: log dirs (`d1` and `d2`, unless others are named), `server.properties`, `logagent.toml` and a state
    dir. Nothing of it is there until it is written. Commands take the configuration where there is one, else the log
    dirs by option. `node_id`, `cluster_id`: what `format` writes."""

    def __init__(self, root: Path, *log_dirs: Path, node_id: int = 3, cluster_id: str = CLUSTER_ID) -> None:
        self.root, self.disk = root, root
        self.log_dirs = log_dirs or (root / "d1", root / "d2")
        self.d1, self.d2 = self.log_dirs[0], self.log_dirs[-1]
        self.node_id, self.cluster_id = node_id, cluster_id
        self.properties, self.toml = root / "server.properties", root / "logagent.toml"
        self.state, self.assignments = root / "state", root / "assignments.json"
        self.clock: Clock = SystemClock()
        # What `configure` writes beside what it is given.
        self.defaults: dict[str, object] = {"kafka.version": "3.9.1"}

    @classmethod
    def from_disk(cls, root: Path, name: str = "3.9.1/node3-dir-returned") -> Self:
        """The disk `name` of tests/fixtures/disks at `root/host`, and a configuration under which no plan is too
        large."""
        host = cls(root, root / "host" / "d1", root / "host" / "d2")
        host.disk = host.root / "host"
        host.disk.mkdir(parents=True)
        extract(name, host.disk)
        host.properties = host.disk / "server.properties"
        text = host.properties.read_text(encoding="latin-1")
        # The records are as old as the archive: under the default of seven days all of them would be due by now.
        text = text.replace("@ROOT@", str(host.disk)) + "\nlog.retention.hours=876000\n"
        host.properties.write_text(text, encoding="latin-1")
        # Without assignments, unless a test configures them.
        host.defaults["assignments.sources"] = ["kraft-log"]
        host.configure(**NO_LIMITS)
        return host

    # What is on its disk

    def format(self, *directory_ids: str) -> Self:
        """Its log dirs, as a broker leaves them that has no partition."""
        for path, directory_id in zip(self.log_dirs, directory_ids or DIRECTORY_IDS, strict=False):
            format_log_dir(path, directory_id, node_id=self.node_id, cluster_id=self.cluster_id)
        return self

    def partition(
        self,
        name: str,
        logs: Mapping[int, bytes] | None = None,
        *,
        log_dir: Path | None = None,
        beside: Mapping[str, bytes] = NO_FILES,
        epochs: Sequence[tuple[int, int]] | None = None,
        topic_id: str | None = None,
    ) -> Path:
        """As `write_partition`, in the first log dir unless another one is named; with two segments of records, unless
        `logs` says otherwise."""
        where = self.d1 if log_dir is None else log_dir
        logs = records((0, 100)) if logs is None else logs
        return write_partition(where / name, logs, beside=beside, epochs=epochs, topic_id=topic_id)

    # What its operator writes

    def configure(self, **settings: object) -> None:
        """Write `logagent.toml`: `section.key` to value."""
        write_toml(self.toml, {"kafka.config": str(self.properties), **self.defaults, **settings})

    def export(self, *topics: Topic, **more: Any) -> Path:
        """Write assignments of now, in which exactly these topics live; the file."""
        return write_export(self.assignments, *topics, **{"cluster_id": self.cluster_id, **more})

    def with_assignments(self, *, topics_gone: object = False, **settings: object) -> None:
        """As `configure`, with the assignments of the disk's own metadata log, dated to now; with `topics_gone` of a
        cluster in which every topic was deleted since, and another one made elsewhere."""
        directory = metadata_dir(self.disk)
        meta = parse_meta_properties((directory.parent / "meta.properties").read_bytes())
        now_ms = time.time_ns() // 1_000_000
        log = read_metadata_log(
            str(directory), node_id=meta.node_id, cluster_id=meta.cluster_id, now_ms=now_ms, configured_voters=1
        )
        image = replace(log.assignments, at_ms=now_ms, known_until_ms=now_ms)
        if (own := image.brokers.get(-1 if meta.node_id is None else meta.node_id)) is not None:
            # The others have noticed by now that it is stopped.
            image.brokers = {**image.brokers, own.node_id: own._replace(fenced=True)}
        if topics_gone:
            elsewhere = Topic("elsewhere", "ElseElseElseElseElseEA", {0: PartitionAssignment((meta.node_id or 0, 999))})
            image = replace(image, by_id={"ElseElseElseElseElseEA": elsewhere}, by_name={"elsewhere": elsewhere})
        write_assignments(str(self.assignments), image)
        self.configure(**{"assignments.sources": ["file"], "assignments.file": str(self.assignments), **settings})

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

    # Commands

    def arguments(self, *arguments: str) -> list[str]:
        options = ["--config", str(self.toml)]
        if not self.toml.exists():
            options = [word for path in self.log_dirs for word in ("--log-dir", str(path))]
        return [arguments[0], *options, "--state-dir", str(self.state), *arguments[1:]]

    def run(self, *arguments: str) -> Ran:
        """Run a command in this process, as `logagent` would be run for this host."""
        return run_here(*self.arguments(*arguments))

    def spawn(self, *arguments: str, **environment: str) -> Ran:
        """Run a command in a process of its own."""
        return run_apart(*self.arguments(*arguments), **environment)

    def fork(self, *arguments: str) -> Ran:
        """Run a command in a fork of this process: what one does not remember of the one before it."""
        return run_forked(*self.arguments(*arguments))

    def daemon(self, command: Sequence[str] = FIRST, **environment: str) -> DaemonProcess:
        """The daemon, in a process of its own."""
        return DaemonProcess(self.root, *self.arguments("run")[1:], command=command, **environment)

    # What is on its disk by now

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
        assert [name for name in set(before) - set(now) if not name.endswith(".index")] == []

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

    # A session

    @contextmanager
    def session(
        self, *, clock: Clock | None = None, act: bool = True, actor: str = "test", inventory: bool = False
    ) -> Iterator[Session]:
        """What commands and the daemon open. `inventory`: with that and the assignments, as a cycle has them."""
        target, settings = self.configured()
        with open_session(
            target, settings, clock or self.clock, state_dir=str(self.state), act=act, actor=actor, shared=self.shared()
        ) as session:
            if inventory:
                session.read_assignments()
                session.take_inventory()
            yield session

    def configured(self) -> tuple[Target, Settings]:
        settings = load(str(self.toml), {}).settings
        return resolve_target(settings), settings

    def shared(self) -> Shared:
        """What outlives a session in the daemon; here nothing does."""
        return Shared()


def delete(host: Host, *arguments: str, execute: bool = True) -> Ran:
    return host.run("delete", "--json", *arguments, *(("--execute",) if execute else ()))


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
