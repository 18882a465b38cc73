"""Scratch hosts: the disk of a real broker below a fresh root, and the commands that are run on it."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from tests.waiting import pause

FIXTURES = Path(__file__).parents[1] / "fixtures"
DISKS = FIXTURES / "disks"
PATIENCE = 60.0


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Checkout:
    """The code of one checkout, ready to be run: one process that has imported it, and forks for each command."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree.resolve()
        own = self.tree / ".venv" / "bin" / "python"
        self.python = str(own) if own.exists() else sys.executable
        self._server = subprocess.Popen(
            [self.python, "-P", str(Path(__file__).with_name("forks.py")), str(self.tree)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.environment(),
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(PATIENCE)

    def environment(self, **more: str) -> dict[str, str]:
        """Nothing of whoever runs this: no settings of theirs, no terminal, no locale."""
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(self.tree),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "COLUMNS": "1000",
            "SPARK_LOCAL_IP": "127.0.0.1",
            **more,
        }

    def fork(self, request: dict[str, Any]) -> int:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())


class ScratchHost:
    """A fresh root, and the transcript of everything that was run there."""

    def __init__(self, root: Path, checkout: Checkout) -> None:
        self.root, self.checkout = root, checkout
        self.started = time.time()
        self.state, self.toml = root / "state", root / "logagent.toml"
        self.store = root / "store"
        self.disk, self.version = root / "host", ""
        self.expected: dict[str, Any] = {}
        self.commands = 0
        self._apart: set[Path] = set()
        self._touched_ms = 0
        self._lines: list[str] = []
        (root / "cwd").mkdir()

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def say(self, title: str, text: str = "") -> None:
        """A section of the transcript."""
        self._lines.append(f"===== {title}")
        if text:
            self._lines.append(text.rstrip("\n"))

    # The disk and its configuration

    def extract(self, name: str) -> None:
        """The disk `name` of the fixtures, as `tests.host` has it."""
        with tarfile.open(DISKS / f"{name}.tar.xz") as archive:
            archive.extractall(self.disk, filter="data")
        self.expected = json.loads((DISKS / f"{name}.expected.json").read_text())
        self.version = self.expected["kafka_version"]
        properties = self.disk / "server.properties"
        text = properties.read_text(encoding="latin-1").replace("@ROOT@", str(self.disk))
        properties.write_text(text, encoding="latin-1")
        self.apart()

    def apart(self) -> None:
        """Give every directory that has a new name since the last time a ctime of its own: what was marked or set aside
        within one millisecond has no order otherwise, and what took two has one. The order is always the same, and not
        that of the names: what goes by age is told from what goes by name."""
        new = [path for path in self.directories() if path not in self._apart]
        for path in sorted(new, key=lambda path: zlib.crc32(repr(_fixed(path)[1:]).encode())):
            self._touched_ms = _touch_after(path, self._touched_ms)
        self._apart.update(new)

    def directories(self) -> list[Path]:
        """The directories in the log dirs, by name; where a random uuid would decide, by topic id."""
        found = [p for d in self.log_dirs() if d.is_dir() for p in d.iterdir() if p.is_dir() and not p.is_symlink()]
        return sorted(sorted(found), key=_fixed)

    def configure(self, *settings: Mapping[str, object]) -> None:
        wanted: dict[str, object] = {
            "kafka.config": str(self.disk / "server.properties"),
            "kafka.version": self.version,
            "assignments.sources": ["kraft-log"],
            "metrics.listen": "",
        }
        for more in settings:
            wanted |= more
        sections: dict[str, list[str]] = {}
        for key, value in wanted.items():
            section, _, name = key.partition(".")
            sections.setdefault(section, []).append(f"{name} = {json.dumps(value)}")
        self.toml.write_text("".join(f"[{s}]\n" + "\n".join(lines) + "\n" for s, lines in sections.items()))

    def with_assignments(self, *settings: Mapping[str, object], gone: bool = False, cluster: str | None = None) -> None:
        """As `configure`, with an exported assignment file of now: of the disk's metadata log, or, before KRaft, of
        what Kafka's admin API said. `gone`: of a cluster in which every topic was deleted since."""
        if "3.9.1" in self.version:
            self.configure()
            exported = self.quietly("assignments", "export", "-").out
        else:
            exported = self._asked()
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        text = re.sub(r'"at":"[^"]*"', f'"at":"{at}"', exported, count=1)
        if cluster is not None:
            text = re.sub(r'"cluster_id":"[^"]*"', f'"cluster_id":"{cluster}"', text, count=1)
        body = text[: text.rindex(',"sha256":"')]
        if gone:
            partition = {"partition": 0, "replicas": [999], "adding": [], "removing": [], "isr": [], "directories": []}
            other = {"topic": "elsewhere", "topic_id": "ElseElseElseElseElseEA", "partitions": [partition]}
            body = body[: body.index('"topics":[')] + '"topics":[\n' + json.dumps(other) + "]"
        digest = hashlib.sha256(body.encode()).hexdigest()
        file = self.root / "assignments.json"
        file.write_text(f'{body},"sha256":"{digest}"}}\n')
        self.configure({"assignments.sources": ["file"], "assignments.file": str(file)}, *settings)

    def _asked(self) -> str:
        """An export of what the admin API answered when the fixture was made."""
        topics = []
        nodes = {self.expected["node_id"]}
        for name, topic in self.expected["topics"].items():
            rows = []
            for number, one in sorted(topic["partitions"].items(), key=lambda item: int(item[0])):
                nodes.update(one["replicas"])
                row = {"partition": int(number), "replicas": one["replicas"], "adding": [], "removing": []}
                rows.append(row | {"isr": one["isr"], "directories": []})
            id_ = None if set(topic["topic_id"]) == {"A"} else topic["topic_id"]
            topics.append({"topic": name, "topic_id": id_, "partitions": rows})
        head = {"schema": "logagent.assignments/1", "cluster_id": self.expected["cluster_id"], "at": "now"}
        head |= {"source": "admin", "offset": None, "metadata_version": None}
        brokers = [{"node_id": node, "directory_ids": [], "fenced": False} for node in sorted(nodes)]
        document = json.dumps(head | {"brokers": brokers, "uncommitted": [], "topics": topics}, separators=(",", ":"))
        return document[:-1] + ',"sha256":"'

    # Commands

    def quietly(self, *arguments: str, stdin: str = "", **environment: str) -> Ran:
        """Run a command as it stands: no options are added, and nothing goes to the transcript."""
        here = self.root / "cwd"
        files = {name: self.root / f".{name}" for name in ("stdin", "stdout", "stderr")}
        files["stdin"].write_text(stdin)
        request: dict[str, Any] = {"arguments": self._arguments(arguments), "cwd": str(here)}
        request |= {"environment": self.checkout.environment(HOME=str(self.root), **environment)}
        status = self.checkout.fork(request | {name: str(path) for name, path in files.items()})
        self.commands += 1
        return Ran(
            status,
            files["stdout"].read_bytes().decode(errors="backslashreplace"),
            files["stderr"].read_bytes().decode(errors="backslashreplace"),
        )

    def _arguments(self, arguments: tuple[str, ...]) -> list[str]:
        """With this host's configuration and state dir, for commands that take them."""
        words = 2 if arguments[0] in ("assignments", "config") else 1
        if arguments[0] in ("schema", "fleet", "demo", "topics") or "--help" in arguments or not self.toml.exists():
            return list(arguments)
        own = ["--config", str(self.toml), *([] if arguments[0] == "config" else ["--state-dir", str(self.state)])]
        return [*arguments[:words], *own, *arguments[words:]]

    def run(self, *arguments: str, stdin: str = "", **environment: str) -> Ran:
        """Run a command, and write down what it was and what came out."""
        ran = self.quietly(*arguments, stdin=stdin, **environment)
        narrow = "".join(f"{key}={value} " for key, value in environment.items())
        self._lines.append(f"===== {narrow}logagent {' '.join(arguments)}\nexit {ran.status}")
        for name, text in (("stdout", ran.out), ("stderr", ran.err)):
            if text:
                self._lines.append(f"--- {name}\n{text.rstrip(chr(10))}")
        if "--execute" in arguments or arguments[0] in ("prestart", "run"):
            self.apart()
        return ran

    def both(self, *arguments: str) -> Ran:
        """As document and as table; the document."""
        self.run(*arguments)
        return self.run(*arguments, "--json")

    @contextmanager
    def daemon(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """`logagent run` in a process of its own; it ends with the context, by SIGTERM."""
        command = [self.checkout.python, "-P", "-m", "logagent", *self._arguments(("run", *arguments))]
        with (self.root / "daemon.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=self.root / "cwd",
                env=self.checkout.environment(HOME=str(self.root)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                yield process
            finally:
                process.send_signal(signal.SIGTERM)
                status = process.wait(PATIENCE)
        self.say(f"the daemon ended with {status}")

    # What a command left

    def log_dirs(self) -> list[Path]:
        return [self.disk / "d1", self.disk / "d2"]

    def find(self, prefix: str, suffix: str = "") -> list[str]:
        names = [path.name for path in self.directories()]
        return [name for name in names if name.startswith(prefix) and name.endswith(suffix)]

    def show_disk(self) -> None:
        """Every directory of the log dirs with the names and sizes of its files, and the checkpoints' content."""
        lines = []
        for path in self.directories():
            inside = ", ".join(f"{f.name} {f.lstat().st_size}" for f in sorted(path.iterdir()))
            lines.append(f"{path.relative_to(self.disk)} {path.stat().st_mode:o}: {inside}")
        for path in sorted(p for d in self.log_dirs() for p in d.iterdir() if p not in self.directories()):
            inside = " | ".join(path.read_text().splitlines()) if path.name.endswith("-checkpoint") else ""
            lines.append(f"{path.relative_to(self.disk)} {path.lstat().st_mode:o}: {inside}")
        self.say("the log dirs", "\n".join(lines))

    def show_journal(self) -> None:
        """The journal's schema: an older package has to know whether it can read it."""
        with sqlite3.connect(f"file:{self.state}/journal.db?mode=ro", uri=True) as journal:
            rows = journal.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
            version = journal.execute("PRAGMA user_version").fetchone()
        journal.close()
        self.say("the journal's schema", "\n".join([f"user_version {version[0]}", *(row[0] for row in rows)]))

    def show_store(self) -> None:
        """Every file of the fleet store; packed ones unpacked."""
        for path in sorted(p for p in self.store.rglob("*") if p.is_file()):
            data = path.read_bytes()
            text = gzip.decompress(data).decode() if path.suffix == ".gz" else data.decode(errors="backslashreplace")
            self.say(f"store: {path.relative_to(self.store)} {path.stat().st_mode:o}", text)


def _touch_after(path: Path, before_ms: int) -> int:
    """Give the directory a ctime in a later millisecond, by the clock of the file system, which ticks some ms apart."""
    while True:
        seen = path.stat()
        os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        if (at_ms := path.stat().st_ctime_ns // 1_000_000) > before_ms:
            return at_ms
        pause(0.001, "until the clock of the file system ticks")


def _fixed(path: Path) -> tuple[str, str, str]:
    """Log dir, name without what is random in it, and topic."""
    metadata = path / "partition.metadata"
    topic = metadata.read_text() if metadata.is_file() else ""
    return str(path.parent), re.sub(r"\.[0-9a-f]{32}-", ".-", path.name), topic


_LOCKER = """
import fcntl, sys
files = [open(f"{d}/.lock", "a") for d in sys.argv[1:]]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(*log_dirs: Path) -> Iterator[int]:
    """A process that holds the locks of these log dirs, as a broker does."""
    command = [sys.executable, "-c", _LOCKER, *map(str, log_dirs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        try:
            yield running.pid
        finally:
            running.stdin.close()
            running.wait(PATIENCE)
