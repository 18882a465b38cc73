"""Real file systems: loop-mounted ext4 and xfs, tmpfs, bind mounts; made and unmounted here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest

from logagent.base.records import Identity
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from tests.needs import need_command, need_root
from tests.waiting import wait_until

MIB = 1 << 20
# mkfs.xfs takes nothing smaller than 300 MB any more; the images are sparse.
DEFAULT_SIZE = 400 * MIB

LoopFs = Callable[..., Path]


def run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True, timeout=120)


def unmount(point: Path) -> None:
    """Unmount; what still uses it gets a moment to end."""

    def gone() -> bool:
        # os.path.ismount does not know bind mounts of the same device.
        return (
            not subprocess.run(["umount", str(point)], capture_output=True, check=False).returncode
            or f" {point} " not in Path("/proc/self/mountinfo").read_text()
        )

    try:
        wait_until(gone, f"{point} is unmounted")
    except AssertionError:
        # Never left behind for others to find (and to empty).
        subprocess.run(["umount", "--lazy", str(point)], check=False)
        raise


def mounted(where: Path, kind: str, size: int, stack: ExitStack, options: str = "") -> Path:
    need_root()
    point = where / f"{kind}-{len(list(where.iterdir()))}"
    point.mkdir()
    if kind == "tmpfs":
        run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", point)
    else:
        need_command(f"mkfs.{kind}", "losetup")
        image = point.with_suffix(".img")
        with image.open("wb") as file:
            file.truncate(size)
        run(f"mkfs.{kind}", "-q", *options.split(), image)
        run("mount", "-o", "loop", image, point)
        stack.callback(image.unlink)
    stack.callback(unmount, point)
    return point


@pytest.fixture
def loop_fs(tmp_path: Path) -> Iterator[LoopFs]:
    """`loop_fs("ext4"|"xfs"|"tmpfs", size=...)`: a file system of the test's own, unmounted at its end."""
    with ExitStack() as stack:

        def make(kind: str, size: int = DEFAULT_SIZE, options: str = "") -> Path:
            return mounted(tmp_path, kind, size, stack, options)

        yield make


@pytest.fixture(scope="session")
def shared_mounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """One mount of each kind for the whole session: use `folder_on`."""
    where = tmp_path_factory.mktemp("mounts")
    made: dict[str, Path] = {}
    with ExitStack() as stack:

        def get(kind: str) -> Path:
            if kind not in made:
                made[kind] = mounted(where, kind, DEFAULT_SIZE, stack)
            return made[kind]

        yield get


@pytest.fixture
def folder_on(shared_mounts: Callable[[str], Path], tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """`folder_on(kind)`: a folder of the test's own on a shared mount, until its end: the mounts are small."""
    made: list[Path] = []

    def make(kind: str) -> Path:
        path = shared_mounts(kind) / tmp_path.name
        path.mkdir()
        made.append(path)
        return path

    yield make
    for path in made:
        shutil.rmtree(path)


@pytest.fixture(params=["ext4", "xfs", "tmpfs"])
def log_dir_path(request: pytest.FixtureRequest, folder_on: Callable[[str], Path]) -> Path:
    """A log dir on each kind of file system."""
    path = folder_on(request.param) / "logs"
    path.mkdir()
    return path


@pytest.fixture
def failures() -> LogDirFailures:
    return LogDirFailures()


@pytest.fixture
def open_log_dir(failures: LogDirFailures) -> Iterator[Callable[[Path], OpenLogDir]]:
    with ExitStack() as stack:
        yield lambda path: stack.enter_context(OpenLogDir(str(path), failures))


@pytest.fixture
def bind_mount() -> Iterator[Callable[[Path, Path], None]]:
    """`bind_mount(source, target)`."""
    need_root()
    with ExitStack() as stack:

        def bind(source: Path, target: Path) -> None:
            run("mount", "--bind", source, target)
            stack.callback(unmount, target)

        yield bind


class Child:
    """A process of ours that does something when told to and ends when closed."""

    def __init__(self, source: str, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", source, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        return self._stdout().readline().strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def _stdout(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(timeout=20)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._stdout().close()


Spawn = Callable[..., Child]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """`spawn(python_source, *arguments)`: the process has said "ready" when this returns."""
    with ExitStack() as stack:

        def start(source: str, *arguments: str | Path) -> Child:
            child = Child(source, *arguments)
            stack.callback(child.close)
            assert child.line() == "ready"
            return child

        yield start


class Calls:
    """A `Watch` that permits everything and runs `action(n)` right before the n-th change (from 0)."""

    def __init__(self, action: Callable[[int], None] = lambda n: None) -> None:
        self.count = 0
        self._action = action

    def before(self) -> None:
        n = self.count
        self.count += 1
        self._action(n)

    def expire(self) -> None:
        pass


@pytest.fixture
def calls() -> type[Calls]:
    return Calls


def identity(path: Path) -> Identity:
    found = path.stat(follow_symlinks=False)
    return Identity(found.st_dev, found.st_ino)


@pytest.fixture
def identity_of() -> Callable[[Path], Identity]:
    return identity
