"""The demo's host: a folder with `server.properties`, two log dirs and a metadata log, as left by a real broker; a
process that plays the broker (it holds the lock of each log dir the way Kafka does, a POSIX record lock); and the
stage, which runs the real commands in this process, shows each as a user would type it, and counts the checks.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import click

from logagent.base.config.config import ENV_PREFIX
from logagent.base.console.render import short_name
from logagent.base.dir_names import CLEANER, LOG_START_OFFSET, RECOVERY_POINT
from logagent.base.errors import LogAgentError, UsageError
from logagent.kafka.files.exported import write_assignments
from logagent.kafka.files.properties import META_PROPERTIES, parse_meta_properties
from logagent.kafka.image import BrokerRegistration
from logagent.kafka.metadata_log.log import read_metadata_log

# Node 3 of a three-node KRaft cluster of Kafka 3.9.1, whose second log dir came back after an outage: topics were
# deleted, recreated and moved away during the outage, so it contains orphans besides current, -delete, -stray and
# -future dirs.
DISK = "node3-dir-returned.tar.xz"
LOG_DIRS = ("d1", "d2")
CONFIG = "logagent.toml"
ASSIGNMENTS = "assignments.json"
STATE_DIR = "state"
SHELL = "env.sh"
CHECKPOINTS = (RECOVERY_POINT, LOG_START_OFFSET, CLEANER)
_LONGEST_NAME = 255
# The records are as old as the disk's archive: under the default of seven days a restored topic's would all be due.
_RETENTION = "log.retention.hours=876000\n"
_CONFIG = """[kafka]
config = "{properties}"
version = "3.9.1"

[assignments]
sources = ["file"]
file = "{assignments}"
max_age = "36500d"  # on a real host 15m: what is older proves nothing. Here you may look around as long as you like.
"""
# Those that concern no host are left as they are typed; what somebody types wins over the demo's own.
_SHELL = """# . ./env.sh in a shell: `logagent COMMAND` is about this host there.
logagent() {{
    case "${{1:-}}" in
    "" | -* | demo | fleet | schema | topics) ;;
    *)
        for logagent_own in --config={folder}/logagent.toml --state-dir={folder}/state; do
            case " $* " in
            *" ${{logagent_own%%=*}}"[=\\ ]*) ;;
            *) set -- "$@" "$logagent_own" ;;
            esac
        done
        ;;
    esac
    command logagent "$@"
}}
"""


@dataclass(frozen=True, slots=True)
class FileState:
    """The properties of a file that only change where a command is meant to change it."""

    size: int
    mtime_ns: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Tree:
    """The log dirs at one moment. Keys: paths relative to the host's folder (`d1/orders-1/…`)."""

    dirs: Mapping[str, Mapping[str, FileState]]
    ctimes: Mapping[str, int]
    checkpoints: Mapping[str, frozenset[str]]

    def without_indexes(self) -> dict[str, dict[str, FileState]]:
        """The directories with all their files except the `.index` files, which a restore removes."""
        return {
            where: {name: state for name, state in files.items() if not name.endswith(".index")}
            for where, files in self.dirs.items()
        }


def lay_out(folder: Path) -> None:
    """Extract the disk into `folder` (which must exist), and write the configuration and the assignments.

    Modification times are the broker's; ctimes (the times of marking if no journal has better ones) are now. The
    assignments are those of the metadata log on this disk, dated to now: whenever the demo runs, the broker has just
    stopped. Raises LogAgentError if the file system does not support names of 255 bytes.
    """
    if os.pathconf(folder, "PC_NAME_MAX") < _LONGEST_NAME:
        raise LogAgentError(
            f"the file system of {folder} does not take names of {_LONGEST_NAME} bytes, as Kafka's can be",
            hint="name a folder on another file system with --dir",
        )
    with as_file(files("logagent.demo") / "data" / DISK) as archive, tarfile.open(archive) as tar:
        # Python before 3.11.4 has no filters; the owner is set to us so that all versions do the same.
        if hasattr(tarfile, "data_filter"):
            tar.extraction_filter = tarfile.data_filter
        members = tar.getmembers()
        # If this machine's clock is behind the disk's timestamps, they are moved into the past, so that none is in the
        # future.
        ahead = max(0.0, max(member.mtime for member in members) - time.time())
        for member in members:
            member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
            member.mtime -= ahead
            tar.extract(member, folder)
    properties = folder / "server.properties"
    text = properties.read_text(encoding="latin-1").replace("@ROOT@", str(folder))
    properties.write_text(f"{text}\n{_RETENTION}", encoding="latin-1")
    export_assignments(folder)
    config = _CONFIG.format(properties=properties, assignments=folder / ASSIGNMENTS)
    (folder / CONFIG).write_text(config, encoding="utf-8")
    (folder / SHELL).write_text(_SHELL.format(folder=shlex.quote(str(folder))), encoding="utf-8")


def export_assignments(folder: Path) -> None:
    """What another node exports now: by the metadata log on the disk, with this broker stopped and its log dirs known.
    A file that calls it live, or knows other log dirs, is another cluster's."""
    now_ms = time.time_ns() // 1_000_000
    meta, *of_log_dirs = (
        parse_meta_properties((folder / d / META_PROPERTIES).read_bytes()) for d in ("meta", *LOG_DIRS)
    )
    log = read_metadata_log(
        str(folder / "meta" / "__cluster_metadata-0"),
        node_id=meta.node_id,
        cluster_id=meta.cluster_id,
        now_ms=now_ms,
        configured_voters=1,
    )
    image = replace(log.assignments, at_ms=now_ms, known_until_ms=now_ms)
    if meta.node_id is not None:
        ids = tuple(m.directory_id for m in of_log_dirs if m.directory_id is not None)
        image.brokers = {**image.brokers, meta.node_id: BrokerRegistration(meta.node_id, ids, fenced=True)}
    write_assignments(str(folder / ASSIGNMENTS), image)


def make_folder(wanted: str | None) -> Path:
    """The folder to work in: a new temporary one, or `wanted`, which must be absent or empty."""
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="logagent-demo-"))
    folder = Path(wanted).absolute()
    if any(c in str(folder) for c in '\n\r"\\,=:#!') or str(folder) != str(folder).strip():
        raise UsageError(f"{str(folder)!r} cannot stand in a server.properties as it is", hint="use a plainer path")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        empty = not any(folder.iterdir())
    except OSError as e:
        raise UsageError(f"{folder}: {e.strerror}", hint="name a folder that can be made") from e
    if not empty:
        raise UsageError(f"{folder} is not empty", hint="name a new folder; the demo overwrites nothing")
    return folder


def read_tree(folder: Path) -> Tree:
    """Every partition dir with its files, and the checkpoints' entries (whose order means nothing)."""
    dirs: dict[str, dict[str, FileState]] = {}
    ctimes: dict[str, int] = {}
    checkpoints: dict[str, frozenset[str]] = {}
    for log_dir in LOG_DIRS:
        for entry in sorted(os.scandir(folder / log_dir), key=lambda e: e.name):
            where = f"{log_dir}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                dirs[where] = dict(_files(Path(entry.path)))
                ctimes[where] = entry.stat(follow_symlinks=False).st_ctime_ns
            elif entry.name in CHECKPOINTS:
                checkpoints[where] = frozenset(Path(entry.path).read_text().splitlines()[2:])
    return Tree(dirs, ctimes, checkpoints)


def _files(directory: Path) -> Iterator[tuple[str, FileState]]:
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            status = path.stat()
            digest = hashlib.sha256(path.read_bytes()).digest()
            yield str(path.relative_to(directory)), FileState(status.st_size, status.st_mtime_ns, digest)


def differences(before: Tree, after: Tree) -> list[str]:
    """What changed on disk, one line per directory and per checkpoint entry, as `diff` would mark it."""
    lines = [f"- {name}/" for name in before.dirs if name not in after.dirs]
    lines += [f"+ {name}/" for name in after.dirs if name not in before.dirs]
    lines += [f"! {name}/" for name, state in after.dirs.items() if before.dirs.get(name, state) != state]
    for file in sorted({*before.checkpoints, *after.checkpoints}):
        old, new = before.checkpoints.get(file, frozenset()), after.checkpoints.get(file, frozenset())
        lines += [f"- {file}: {entry}" for entry in sorted(old - new)]
        lines += [f"+ {file}: {entry}" for entry in sorted(new - old)]
    return lines


# Reads stdin until it is closed, so it never outlives the demo.
_PROGRAM = """
import fcntl, sys
held = [open(f"{log_dir}/.lock", "a") for log_dir in sys.argv[1:]]
for file in held:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def broker_holds(log_dirs: list[Path]) -> Iterator[int]:
    """While this is open, another process (whose PID is the value) holds the locks of `log_dirs`."""
    command = [sys.executable, "-I", "-c", _PROGRAM, *map(str, log_dirs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            if process.stdout.readline() != b"locked\n":
                raise RuntimeError("the process that plays the broker could not lock the log dirs")
            yield process.pid
        finally:
            process.stdin.close()
            process.wait(10)


_COMMON = ("--config", CONFIG, "--state-dir", STATE_DIR)
_WIDTH = 100


class StepFailed(Exception):
    """A step did not do what was announced. It is added to `Stage.failures`, and the demo ends."""


@dataclass(slots=True)
class Stage:
    """`run` is the entry point of the command line: takes arguments, returns the exit status."""

    folder: Path
    run: Callable[[Sequence[str]], int]
    color: bool
    checks: int = 0
    failures: list[str] = field(default_factory=list)
    _chapter: int = 0

    def chapter(self, title: str, text: str) -> None:
        self._chapter += 1
        self._say(f"\n{self._chapter}. {title}", bold=True)
        self.explain(text)

    def explain(self, text: str) -> None:
        for line in textwrap.wrap(" ".join(text.split()), _WIDTH):
            self._say(line)

    def command(self, *arguments: str, expect: int = 0) -> None:
        """Show `logagent ARGUMENTS` of this host, run it visibly, and check its exit status."""
        self.typed(arguments[0], *_COMMON, *arguments[1:], expect=expect)

    def typed(self, *typed: str, expect: int = 0) -> None:
        """The same for exactly these arguments."""
        self._say(f"\n$ logagent {shlex.join(typed)}", fg="cyan", bold=True)
        status = self.run(list(typed))
        self.check(status == expect, f"exit status {status}", f"exit status {status} and not {expect}")

    def unchanged(self, says: str, *arguments: str, expect: int = 0) -> None:
        """Show and run `logagent ARGUMENTS`, and check that it changed nothing on disk."""
        with self.watching() as before:
            self.command(*arguments, expect=expect)
            self.check(read_tree(self.folder) == before, says)

    def document(self, *arguments: str) -> dict[str, Any]:
        """The document of `logagent ARGUMENTS --json` of this host, which is run without showing it."""
        return self.document_of(arguments[0], *_COMMON, *arguments[1:])

    def document_of(self, *typed: str) -> dict[str, Any]:
        """The same for exactly these arguments."""
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(io.StringIO()):
            self.run([*typed, "--json"])
        document = json.loads(out.getvalue() or "{}")
        assert isinstance(document, dict)
        return document

    def check(self, holds: bool, says: str, otherwise: str | None = None) -> None:
        """Check a fact that the demo must have established. Raises StepFailed if it does not hold."""
        self.checks += 1
        if holds:
            self._say(f"  ✓ {says}", fg="green")
        else:
            self.failures.append(otherwise or says)
            self._say(f"  ✗ NOT SO: {otherwise or says}", fg="red", bold=True)
            raise StepFailed(self.failures[-1])

    @contextmanager
    def watching(self) -> Iterator[Tree]:
        """Show what changed on disk while this was open. The value is the tree as it was before."""
        before = read_tree(self.folder)
        yield before
        lines = differences(before, read_tree(self.folder))
        self._say("\nWhat changed on disk:" if lines else "\nNothing changed on disk.")
        for line in lines:
            self._say("  " + _shortened(line), fg={"-": "red", "+": "green", "!": "yellow"}[line[0]])

    def _say(self, line: str, *, fg: str | None = None, bold: bool = False) -> None:
        # Flush at once: the commands' messages go to stderr and must not come first.
        click.echo(click.style(line, fg=fg, bold=bold) if self.color and (fg or bold) else line, color=self.color)


def _shortened(line: str) -> str:
    return "/".join(short_name(part, 70) for part in line.split("/"))


@contextmanager
def within(folder: Path) -> Iterator[None]:
    """Works in `folder`. Its user may not be let back to where they were: `sudo -u kafka` in root's home."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.chdir(before)


@contextmanager
def own_environment(*, color: bool) -> Iterator[None]:
    """Without the user's own LOGAGENT_… settings: only the demo's configuration is in effect."""
    saved = dict(os.environ)
    for name in saved:
        if name.startswith(ENV_PREFIX):
            del os.environ[name]
    if not color:
        os.environ["NO_COLOR"] = "1"
    if not sys.stdout.isatty():
        os.environ.setdefault("COLUMNS", str(_WIDTH + 40))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)
