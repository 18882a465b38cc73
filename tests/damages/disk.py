"""The disk of a stopped node, as a damage meets it: of a real one, or of one in `tests/fixtures/disks/damages`."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from tests.disk.conftest import run, unmount
from tests.kafka_disks import extract

UUID = "0123456789abcdef0123456789abcdef"
OTHER_UUID = "f123456789abcdef0123456789abcdef"
OTHER_TOPIC_ID = "Xs6gS0pIR5yNqcAe2bBqwQ"
# What every node has that is not a controller only: two partitions, and so many records in each.
TOPIC = "orders"
RECORDS = 5
METADATA_LOG = "__cluster_metadata-0"
NOBODY = 65534
# For `check` on these disks. They are as old as they are, and under many tests at once they may be slow: the table is
# about neither.
CONFIGURATION = '[health]\nprobe_timeout = "5m"\n[assignments]\nmax_age = "876000h"\n'


class Node(Protocol):
    """A stopped node: its files and its configuration."""

    root: Path
    config: Path
    node_id: int
    properties: dict[str, str]

    @property
    def version(self) -> str: ...

    @property
    def log_dirs(self) -> Sequence[Path]: ...

    def configure(self, changes: Mapping[str, str | None]) -> object:
        """Change `server.properties`; None removes a key."""


class StoppedNode:
    """One that is never started: the fixture `VERSION-KIND` in `root`."""

    def __init__(self, root: Path, fixture: str) -> None:
        self.root = extract(f"damages/{fixture}", root)
        self.version = fixture.partition("-")[0]
        self.config = root / "server.properties"
        self.log_dirs = (root / "d1", root / "d2")
        lines = self.config.read_text().replace("@ROOT@", str(root)).splitlines()
        self.properties = dict(line.split("=", 1) for line in lines)
        self.node_id = int(self.properties.get("node.id") or self.properties["broker.id"])
        self.configure({})

    def configure(self, changes: Mapping[str, str | None]) -> None:
        self.properties = {k: v for k, v in {**self.properties, **changes}.items() if v is not None}
        self.config.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))


class Disk:
    """The disks of one stopped broker: `d1` and `d2`, and `meta` in KRaft mode. `undo` is run after the test."""

    def __init__(self, node: Node, undo: ExitStack) -> None:
        self.node = node
        self.undo = undo
        self.root = node.root
        self.d1, self.d2 = node.log_dirs[0], node.log_dirs[1]
        self.kraft = "process.roles" in node.properties
        # Where a KRaft node has its metadata log, apart from its log dirs.
        self.meta = self.root / "meta"
        metas = [log_dir / "meta.properties" for log_dir in (*node.log_dirs, self.meta)]
        self._metas = {path: path.read_bytes() for path in metas if path.exists()}

    def put_meta_properties_back(self) -> None:
        for path, content in self._metas.items():
            path.write_bytes(content)

    @property
    def metadata_log(self) -> Path:
        return self.meta / METADATA_LOG

    def snapshots(self) -> list[Path]:
        """The metadata snapshots, the newest last."""
        return sorted(self.metadata_log.glob("*.checkpoint"))

    def partition(self, name: str = f"{TOPIC}-0") -> Path:
        """Where a partition directory lies."""
        return next(d / name for d in (self.d1, self.d2) if (d / name).is_dir())

    def other(self, partition: Path) -> Path:
        """The log dir in which it does not lie."""
        return self.d2 if partition.parent == self.d1 else self.d1

    def make(self, name: str, where: Path | None = None) -> Path:
        made = (where or self.d1) / name
        made.mkdir()
        return made

    def log_dirs(self, *paths: Path | str) -> None:
        self.node.configure({"log.dirs": ",".join(map(str, paths))})

    def edit(self, path: Path, pattern: str, replacement: str) -> None:
        before = path.read_text()
        after = re.sub(pattern, replacement, before)
        assert before != after, before
        path.write_text(after)

    def mount(self, options: str, path: Path | None = None) -> None:
        """Put `path` (d1) on a tmpfs of its own, with its content."""
        self._mount(path or self.d1, "-t", "tmpfs", "-o", options, "tmpfs")

    def mount_image(self, kind: str) -> None:
        """The same with a file system in a file: one that can be shut down."""
        image = self.root / "d1.img"
        with image.open("wb") as file:
            file.truncate(400 << 20)
        run(f"mkfs.{kind}", "-q", image)
        self._mount(self.d1, "-o", "loop", str(image))

    def _mount(self, path: Path, *what: str) -> None:
        aside = self.root / "aside"
        shutil.move(path, aside)
        path.mkdir()
        run("mount", *what, path)
        self.undo.callback(unmount, path)
        run("cp", "-a", f"{aside}/.", path)
        shutil.rmtree(aside)

    def fill(self, path: Path | None = None) -> None:
        fd = os.open((path or self.d1) / "ballast", os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while True:
                os.write(fd, b"x" * 4096)
        os.close(fd)

    def hold_lock(self, exclusive: bool) -> None:
        """Another process locks d1/.lock."""
        source = (
            "import fcntl, sys\n"
            "file = open(sys.argv[1], 'r+' if sys.argv[2] == 'x' else 'r')\n"
            "fcntl.lockf(file, fcntl.LOCK_EX if sys.argv[2] == 'x' else fcntl.LOCK_SH)\n"
            "print('ready', flush=True)\n"
            "sys.stdin.read()\n"
        )
        (self.d1 / ".lock").touch()
        arguments = [sys.executable, "-c", source, str(self.d1 / ".lock"), "x" if exclusive else "s"]
        child = self.undo.enter_context(
            subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
