"""A host of a test's own: this machine's files below an overlay, with mounts, processes and network of its own.

What is written in it (`/etc/kafka`, `/opt/kafka`, users, units) goes to a tmpfs that ends with it; nothing outside
changes. Its processes are all that its `/proc` shows, and all of them end with it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import pwd
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from tests.command_line import Ran, run_here
from tests.forked import import_product
from tests.needs import missing, need_command, need_root
from tests.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parents[1]
_SETUP = r"""
set -e
scratch=$1
shift
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$scratch"
number=0
# An overlay of a directory has nothing of what is mounted below it.
for point in / "$@"; do
    number=$((number + 1))
    own=$scratch/$number
    mkdir -p "$own/upper" "$own/work" "$scratch/root$point"
    mount -t overlay overlay -o "lowerdir=$point,upperdir=$own/upper,workdir=$own/work" "$scratch/root$point"
done
cd "$scratch/root"
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
rm -rf etc/kafka opt/kafka srv/kafka etc/logagent var/lib/logagent
echo ready
exec chroot . sleep infinity
"""
_LOOPBACK = """
import fcntl, socket, struct
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))
"""
KAFKA_UID = 6092
OTHER_UID = 6093


class PrivateHost:
    """`run` and `start` work inside it; `path` is where a file of it is seen from outside."""

    def __init__(self, init: int) -> None:
        self._init = init
        self.root = Path(f"/proc/{init}/root")
        # Only root reads root's home, where Python may live.
        for above in Path(sys.executable).resolve().parents:
            self.path(str(above)).chmod(self.path(str(above)).stat().st_mode | 0o055)
        for above in (REPOSITORY, *REPOSITORY.parents):
            self.path(str(above)).chmod(self.path(str(above)).stat().st_mode | 0o055)
        self.run(sys.executable, "-c", _LOOPBACK)
        for name, number in (("kafka", KAFKA_UID), ("mallory", OTHER_UID)):
            with self.path("/etc/passwd").open("a") as file:
                file.write(f"{name}:x:{number}:{number}::/nonexistent:/bin/sh\n")
            with self.path("/etc/group").open("a") as file:
                file.write(f"{name}:x:{number}:\n")

    def path(self, inside: str) -> Path:
        return self.root / inside.lstrip("/")

    def write(self, inside: str, text: str, mode: int = 0o644) -> str:
        """Make a file, and the directories above it."""
        self.path(inside).parent.mkdir(parents=True, exist_ok=True)
        self.path(inside).write_text(text)
        self.path(inside).chmod(mode)
        return inside

    def command(self, *words: str, user: str | None = None, options: Sequence[str] = ()) -> list[str]:
        enter = ["nsenter", f"--target={self._init}", "--mount", "--pid", "--net", "--root", "--wdns=/"]
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *options] if user else list(options)
        return [*enter, *become, *words]

    def run(self, *words: str, user: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words, user=user),
            env=self._environment(user),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=check,
        )

    def logagent(self, *words: str, user: str | None = None, folder: str = "/", **environment: str) -> Ran:
        """The command line inside, started in `folder` with `environment` over that of its users, in a copy of this
        process: Python starts and imports everything only once."""
        import_product()
        reader, writer = os.pipe()
        # The copy takes no lock that a thread of ours could hold: it goes inside, runs the command and ends.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            os.close(reader)
            self._run_inside(words, user, folder, environment, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            answer = pipe.read()
        os.waitpid(pid, 0)
        assert answer, f"logagent {' '.join(words)} ended without an answer"
        return Ran(*json.loads(answer))

    def _run_inside(
        self, words: Sequence[str], user: str | None, folder: str, environment: Mapping[str, str], writer: int
    ) -> NoReturn:
        try:
            gc.freeze()  # or collecting garbage copies all that this process has
            root = os.open(self.root, os.O_PATH | os.O_DIRECTORY)
            for kind in ("net", "pid", "mnt"):
                _enter(f"/proc/{self._init}/ns/{kind}")
            os.fchdir(root)
            os.chroot(".")
            if (pid := os.fork()) == 0:  # only children are in the new PID namespace
                os.environ.update({**self._environment(user), **environment})
                if user is not None:
                    entry = pwd.getpwnam(user)
                    os.initgroups(user, entry.pw_gid)
                    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
                    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
                os.chdir(folder)
                ran = run_here(*words)
                os.write(writer, json.dumps([ran.status, ran.out, ran.err]).encode())
            else:
                os.waitpid(pid, 0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def logagent_command(self, *words: str) -> list[str]:
        python = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n{_MAIN}"]
        return [*python, *words]

    def doctor(self, *words: str, user: str | None = None) -> tuple[int, dict[str, Any]]:
        """Exit status and document of `logagent doctor --json`."""
        ran = self.logagent("doctor", "--json", *words, user=user)
        document = ran.json
        assert isinstance(document, dict)
        return ran.status, document

    @contextmanager
    def process(
        self, *words: str, user: str | None = None, options: Sequence[str] = (), log: Path | None = None
    ) -> Iterator[int]:
        """A process inside for as long as the context lasts; its number there. It has said "ready" unless it writes to
        a `log`."""
        with ExitStack() as stack:
            out = stack.enter_context(log.open("wb")) if log is not None else subprocess.PIPE
            running = stack.enter_context(
                subprocess.Popen(
                    self.command(*words, user=user, options=options),
                    env=self._environment(user),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
            )
            # nsenter forks into the PID namespace and waits.
            outside = self._child(running)
            # Two numbers: ours and the one inside.
            inside = int(_status(outside, "NSpid").split()[-1])
            try:
                if running.stdout is not None:
                    line = running.stdout.readline()
                    assert line == b"ready\n", line + running.stdout.read()
                yield inside
            finally:
                with suppress(ProcessLookupError):
                    os.kill(outside, signal.SIGKILL)
                # nsenter stops itself when what it waits for is stopped.
                running.send_signal(signal.SIGCONT)
                running.wait(30)

    def _child(self, running: subprocess.Popen[bytes]) -> int:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        found = wait_until(lambda: running.poll() is not None or children.read_text().split(), str(running.args))
        assert found is not True, running.args
        return int(found[0])

    def _environment(self, user: str | None) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/nonexistent" if user else "/root"}


def _enter(namespace: str) -> None:
    """`setns`, which Python has since 3.12."""
    fd = os.open(namespace, os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), namespace)
    os.close(fd)


def _status(pid: int, key: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.partition(":")[2] for line in lines if line.startswith(f"{key}:"))


def _mount_points() -> list[str]:
    """Of the file systems that the tests and Python are on, but for that of `/`."""
    needed = (REPOSITORY, Path(sys.prefix), Path(sys.executable).resolve())
    found = {str(next(above for above in (path, *path.parents) if above.is_mount())) for path in needed}
    return sorted(found - {"/"})


_Host = TypeVar("_Host", bound=PrivateHost)
_MAIN = "from logagent.cli import main\nmain()"


@contextmanager
def private_host(scratch: Path, kind: type[_Host]) -> Iterator[_Host]:
    """A host for as long as the context lasts. Needs root and overlay mounts."""
    need_root()
    need_command("unshare", "nsenter", "setpriv")
    scratch.mkdir(exist_ok=True)
    end = ["setpriv", "--pdeathsig", "KILL"]  # with the tests, however they end
    command = [
        *end,
        "unshare",
        "--mount",
        "--pid",
        "--net",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        _SETUP,
        "sh",
        str(scratch),
        *_mount_points(),
    ]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as outer:
        try:
            assert outer.stdout is not None and outer.stderr is not None
            if outer.stdout.readline() != b"ready\n":
                missing(f"overlay mounts in a namespace of its own ({outer.stderr.read().decode().strip()})")
            (init,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            wait_until(lambda: os.readlink(f"/proc/{init}/root") != "/", "it has its own root", interval=0.01)
            yield kind(int(init))
        finally:
            outer.kill()
