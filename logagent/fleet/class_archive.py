"""The class archive (AppCDS) that our JVMs start from: loading Spark's classes is most of a small report's start.

`logagent fleet warm` dumps one, and so does the second run of a user with this Java and this Spark; never the first,
which may be the only one. The dump goes to a temporary name, is tried in a fresh JVM, and is renamed into the user's
cache folder (0600; the folder must be ours). Its name encodes what it depends on: Java's version, every jar's path,
size and time, and the class path. Only JVMs that we start use it, never `spark-submit`'s.

An archive never costs a run its result: a run dumps after it has printed everything, only one tries and only once, and
what cannot be used is dropped without a word. A JVM that does not start with its archive is started once more without
(`spark_session.py`).
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_CLASS_PATH = ("SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""What Spark's launcher adds to the class path, besides its own `conf` and `jars`."""
_ROOM = 2 << 30
"""A run dumps by itself only if so many bytes are free: an archive has some 200 MB, and nobody asked for it."""
_ABANDONED = 24 * 3600
"""Seconds after which the temporary file of a killed dump goes."""


def use(archive: Path) -> str:
    """Java's options to start from an archive."""
    # A stale one causes warnings.
    return f"-XX:SharedArchiveFile={archive} -Xlog:disable -Xlog:all=error:stderr"


def dump(part: Path) -> str:
    """Java's options to dump an archive at the JVM's exit."""
    # Why it could not is of no use to somebody who wanted a report.
    return f"-XX:ArchiveClassesAtExit={part} -Xlog:disable"


def path() -> Path | None:
    """The path of the archive for this Java and this Spark, whether or not it exists; None if there can be none."""
    folder = _cache_folder()
    if folder is None or any(letter.isspace() for letter in str(folder)) or _has_folder_of_files():
        return None
    home = os.environ.get("JAVA_HOME")
    try:
        digest = hashlib.sha256(_version(f"{home}/bin/java" if home else "java"))
        for jar in sorted((_spark_home() / "jars").iterdir()):
            seen = jar.stat()
            digest.update(f"{jar}\0{seen.st_size}\0{seen.st_mtime_ns}\n".encode())
    except (OSError, subprocess.SubprocessError):
        return None
    digest.update("\0".join([str(_conf_folder()), *(os.environ.get(name, "") for name in _CLASS_PATH)]).encode())
    return folder / f"{digest.hexdigest()[:32]}.jsa"


def found() -> Path | None:
    """The archive to start with, None if there is none that is ours."""
    archive = path()
    try:
        seen = archive.lstat() if archive is not None else None
    except OSError:
        return None
    if seen is None or not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
        return None
    return archive


@contextmanager
def dumped_by_second_run(end_jvm: Callable[[], None]) -> Iterator[Path | None]:
    """Where this run's JVM is to dump its classes, None if it is not to.

    It is tried and kept when Python exits, after the result was printed; before, `end_jvm` ends the JVM and waits for
    it. A run that failed has loaded too little: its dump is dropped, and the next run dumps.
    """
    archive = path()
    if archive is None or not _is_second(archive):
        yield None
        return
    part, good = part_of(archive), False
    try:
        yield part
        good = True
    finally:
        atexit.register(_at_exit, archive, part, good, end_jvm)


def _at_exit(archive: Path, part: Path, good: bool, end_jvm: Callable[[], None]) -> None:
    try:
        sys.stdout.flush()
        end_jvm()
        if good:
            keep(part, archive)
        else:
            _tried(archive).rename(_once(archive))
    except (OSError, subprocess.SubprocessError, KeyboardInterrupt):
        pass
    finally:
        with suppress(OSError):
            part.unlink()


def keep(part: Path, archive: Path) -> bool:
    """Renames a dump to `archive` if a fresh JVM starts from it; returns whether. Raises OSError."""
    if not part.exists():
        # A JVM that could not write it exits with success.
        return False
    part.chmod(0o600)
    if not works(part):
        return False
    with part.open("rb") as file:
        # What a power cut truncates would end every JVM.
        os.fsync(file.fileno())
    part.replace(archive)
    return True


def works(archive: Path) -> bool:
    """Whether a fresh JVM, started as Spark starts ours, maps the archive and uses it.

    `-Xshare:on` makes it fail where it would else start without (other flags, another class path). Whoever dies by a
    signal or aborts (SIGBUS: truncated) does not work either.
    """
    environment = os.environ | {
        "SPARK_SUBMIT_OPTS": f"-Xshare:on -XX:SharedArchiveFile={archive} -XX:+SuppressFatalErrorMessage"
    }
    command = [str(_spark_home() / "bin" / "spark-submit"), "--version"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=300, env=environment)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _is_second(archive: Path) -> bool:
    """Whether this run is to dump: one ran before, there is no archive, nobody has tried, and there is room.

    The first run leaves a mark, the second renames it: of two at the same time one does.
    """
    _sweep(archive.parent)
    if archive.exists() or _tried(archive).exists():
        return False
    try:
        if shutil.disk_usage(archive.parent).free < _ROOM:
            return False
        _once(archive).rename(_tried(archive))
    except FileNotFoundError:
        with suppress(OSError):
            os.close(os.open(_once(archive), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        return False
    except OSError:
        return False
    return True


def _once(archive: Path) -> Path:
    return archive.with_suffix(".once")


def _tried(archive: Path) -> Path:
    return archive.with_suffix(".tried")


def part_of(archive: Path) -> Path:
    """The temporary name that this process dumps to."""
    return archive.with_name(f".{archive.name}.{os.getpid()}.tmp")


def _sweep(folder: Path) -> None:
    """Removes what killed dumps have left."""
    for part in folder.glob(".*.jsa.*.tmp"):
        with suppress(OSError):
            if time.time() - part.lstat().st_mtime > _ABANDONED:
                part.unlink()


@cache
def _version(java: str) -> bytes:
    return subprocess.run([java, "-version"], capture_output=True, timeout=30).stderr


def _cache_folder() -> Path | None:
    """The folder of archives, created if missing; None if it is not this user's own."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "logagent"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        seen = folder.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & 0o022
    return folder if ours else None


def _spark_home() -> Path:
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _conf_folder() -> Path:
    return Path(os.environ.get("SPARK_CONF_DIR") or _spark_home() / "conf")


def _has_folder_of_files() -> bool:
    """Whether a folder on the class path is not empty: Java neither dumps nor uses an archive there, and says the
    first only when it exits."""
    entries = [str(_conf_folder()), *(e for name in _CLASS_PATH for e in os.environ.get(name, "").split(":"))]
    for entry in filter(None, entries):
        with suppress(FileNotFoundError, NotADirectoryError):
            try:
                if os.listdir(entry):
                    return True
            except PermissionError:
                return True
    return False
