"""The class archive, with real JVMs: who dumps it, when it is used, and that it never costs a run its result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from logagent.fleet import class_archive
from tests.needs import need_command, need_root

# What `logagent fleet` does around its work, with less work.
RUN = """
import sys
from logagent.cli.fleet_job import run_job
conf = tuple(sys.argv[2:])
with run_job(sys.argv[1], {"conf": conf, "master": "local[1]", "verbose": False}, small=True) as (store, say):
    jvm = store.spark.sparkContext._jvm
    flags = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    print(*(flag for flag in flags if "Archive" in flag))
    print(store.spark.range(3).count())
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of a user who has never run anything."""
    need_command("java")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def archive_of_user() -> Path:
    archive = class_archive.path()
    assert archive is not None
    return archive


def run(home: Path, *conf: str) -> tuple[int, list[str], str]:
    """One run in a process of its own: its status, the lines of its stdout, its stderr."""
    command = [sys.executable, "-c", RUN, str(home), *conf]
    done = subprocess.run(command, capture_output=True, text=True, cwd=home, timeout=300)
    return done.returncode, done.stdout.splitlines(), done.stderr


def names(archive: Path) -> list[str]:
    return sorted(path.name.replace(archive.stem, "A") for path in archive.parent.iterdir())


def test_the_second_run_dumps_and_a_broken_archive_goes(home: Path) -> None:
    """A run whose JVM dies of the archive has its result and nothing else on stdout."""
    archive = archive_of_user()
    assert not class_archive._is_second(archive)
    assert names(archive) == ["A.once"]
    status, lines, _ = run(home)
    assert (status, lines[1:]) == (0, ["3"])
    assert "ArchiveClassesAtExit" in lines[0]
    assert names(archive) == ["A.jsa", "A.tried"]
    assert archive.stat().st_mode & 0o777 == 0o600
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    assert not class_archive.works(archive)
    status, lines, said = run(home)
    assert (status, lines) == (0, ["", "3"])
    assert "SIGBUS" in said
    assert names(archive) == ["A.tried"]


def test_a_run_that_failed_leaves_the_dump_to_the_next(home: Path) -> None:
    archive, part = archive_of_user(), class_archive.part_of(archive_of_user())
    assert [class_archive._is_second(archive) for _ in range(2)] == [False, True]
    class_archive._at_exit(archive, part, False, part.touch)
    assert names(archive) == ["A.once"]


def test_a_run_with_a_class_path_of_its_own_leaves_the_dump_to_the_next(home: Path) -> None:
    """Java says at its exit that it does not dump where a folder on the class path has files."""
    archive = archive_of_user()
    assert not class_archive._is_second(archive)
    (home / "folder").mkdir()
    (home / "folder" / "file").touch()
    status, lines, said = run(home, f"spark.driver.extraClassPath={home / 'folder'}")
    assert (status, lines) == (0, ["", "3"])
    assert "non-empty" not in said
    assert names(archive) == ["A.once"]


@pytest.mark.parametrize("name", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "SPARK_DIST_CLASSPATH"])
def test_no_archive_where_a_folder_on_the_class_path_has_files(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "conf").mkdir()
    monkeypatch.setenv(name, str(home / "conf"))
    assert class_archive.path() is not None
    (home / "conf" / "spark-defaults.conf").touch()
    assert class_archive.path() is None


def test_the_name_depends_on_the_class_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive_of_user()
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", "/opt/hadoop/*")
    assert archive_of_user() != before


def test_only_our_own_archive_in_our_own_folder(home: Path) -> None:
    archive = archive_of_user()
    assert class_archive.found() is None
    archive.touch(mode=0o600)
    assert class_archive.found() == archive
    archive.chmod(0o644)
    assert class_archive.found() is None
    archive.unlink()
    archive.symlink_to("/etc/hostname")
    assert class_archive.found() is None
    archive.parent.chmod(0o777)
    assert class_archive.path() is None


def test_of_two_runs_at_the_same_time_one_dumps_and_only_once(home: Path) -> None:
    archive = archive_of_user()
    assert not class_archive._is_second(archive)
    assert [class_archive._is_second(archive) for _ in range(3)] == [True, False, False]
    class_archive._tried(archive).unlink()
    archive.touch()
    assert not class_archive._is_second(archive)


def test_no_run_dumps_where_there_is_little_room(home: Path) -> None:
    need_root()
    (home / "cache").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "logagent-test", str(home / "cache")], check=True)
    try:
        assert [class_archive._is_second(archive_of_user()) for _ in range(2)] == [False, False]
    finally:
        subprocess.run(["umount", "-l", str(home / "cache")], check=True)


def test_what_a_killed_dump_left_goes_after_a_day(home: Path) -> None:
    archive = archive_of_user()
    part = class_archive.part_of(archive)
    part.touch()
    class_archive._tried(archive).touch()
    class_archive._is_second(archive)
    assert part.exists()
    os.utime(part, (0, 0))
    class_archive._is_second(archive)
    assert not part.exists()
