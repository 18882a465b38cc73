"""How a JVM that is ours is started: by size, and from a class archive (AppCDS) where there is one that was tried.

Most of a small report is starting: loading classes, interpreting, compiling. Small fleets get the quick compiler alone,
one garbage collector thread and no adaptive planning; large ones Java's defaults. An archive is made by
`logagent fleet warm`, under a temporary name, tried in a fresh JVM and then renamed into the cache directory of this
user (0600; if the folder is not ours, there is none). Its name says what it depends on: Java's own version and every
jar's name, size and time. It is given to JVMs that we start and to nobody else's.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SMALL_ROWS = 2_000_000
"""Directories up to which the quick compiler is enough."""
SMALL_PACKED = 200 << 20
"""Compressed bytes of landing that hold about so many."""
# A stale archive warns on stdout, where the JSON goes.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
_SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def java_options(rows: int | None, archive: Path | None) -> str:
    """Options for a driver JVM that will see about `rows` directories (None: nobody knows)."""
    options = [_SMALL] if rows is not None and rows <= SMALL_ROWS else []
    if archive is not None and " " not in str(archive):
        options.append(f"-XX:SharedArchiveFile={archive} {_QUIET}")
    return " ".join(options)


def sql_conf(rows: int | None) -> dict[str, str]:
    """Settings of Spark that only pay for many rows."""
    if rows is None or rows > SMALL_ROWS:
        return {}
    return {"spark.sql.adaptive.enabled": "false"}


def rows_to_report(store: str) -> int | None:
    """Directories that a report on a local store will be about: those of its largest date; None if that is unknown."""
    most: int | None = None
    with suppress(OSError, ValueError, KeyError, TypeError):
        for day in sorted((Path(store) / "commits").iterdir())[-3:]:
            last = max(day.glob("[1-9]*.json"), key=lambda path: int(path.stem))
            tables = json.loads(last.read_bytes())["tables"]
            most = max(most or 0, sum(each["rows"] for each in tables["dirs"]))
    return most


def rows_to_ingest(store: str) -> int | None:
    """About how many directories lie in a local landing, by compressed bytes; None if that is unknown."""
    packed = 0
    try:
        for cluster in os.scandir(Path(store) / "landing"):
            for day in os.scandir(cluster.path) if cluster.is_dir(follow_symlinks=False) else ():
                for place in os.scandir(day.path) if day.is_dir(follow_symlinks=False) else ():
                    if place.is_dir(follow_symlinks=False):
                        packed += sum(e.stat(follow_symlinks=False).st_size for e in os.scandir(place.path))
                if packed > SMALL_PACKED:
                    return SMALL_ROWS + 1
    except OSError:
        return None
    return packed * SMALL_ROWS // SMALL_PACKED


def cache_folder() -> Path | None:
    """The folder of archives, made if it is absent; None where it is not this user's own."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "logagent"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        seen = folder.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & 0o022
    return folder if ours else None


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def archive_path() -> Path | None:
    """Where the archive of this Java and this Spark lies or would lie; None if there can be none."""
    import pyspark

    folder = cache_folder()
    if folder is None:
        return None
    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    try:
        version = subprocess.run([_java(), "-version"], capture_output=True, timeout=30).stderr
        digest = hashlib.sha256(version)
        for jar in sorted(jars.iterdir()):
            seen = jar.stat()
            digest.update(f"{jar}\0{seen.st_size}\0{seen.st_mtime_ns}\n".encode())
    except (OSError, subprocess.SubprocessError):
        return None
    return folder / f"{digest.hexdigest()[:32]}.jsa"


def archive() -> Path | None:
    """The archive to start with, None if there is none that is ours."""
    path = archive_path()
    try:
        seen = path.lstat() if path is not None else None
    except OSError:
        return None
    if seen is None or not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
        return None
    return path


@contextmanager
def dumping(path: Path) -> Iterator[str]:
    """The option with which a JVM writes an archive at its end; afterwards it lies at `path`, if it works."""
    part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield f"-XX:ArchiveClassesAtExit={part} {_QUIET}"
        part.chmod(0o600)
        if works(part):
            part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink()


def works(path: Path) -> bool:
    """Whether a fresh JVM starts with an archive."""
    import pyspark

    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    command = [_java(), f"-XX:SharedArchiveFile={path}", "-cp", f"{jars}/*", "org.apache.spark.SparkBuildInfo"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode >= 0 and done.returncode not in (134, 135, 139)
