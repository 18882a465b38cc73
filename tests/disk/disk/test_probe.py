"""Probes of real log dirs: what works, what fails, what hangs, and that nothing is left behind."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from logagent.disk.health import ProbeOutcome
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.probe import Prober, probe
from tests.disk.conftest import LoopFs, run
from tests.needs import need_command, need_root
from tests.waiting import wait_until

LIMIT = 20.0


def names(path: Path) -> set[str]:
    return {entry.name for entry in os.scandir(path)}


def test_a_good_log_dir_is_written_to_and_nothing_stays(
    log_dir_path: Path, open_log_dir: Callable[[Path], OpenLogDir]
) -> None:
    before = os.stat(log_dir_path).st_mtime_ns
    result = probe(open_log_dir(log_dir_path), LIMIT)
    assert (result.outcome, result.reason, result.limited) == (ProbeOutcome.GOOD, None, None)
    assert result.wrote
    assert 0 < result.ms < LIMIT * 1000
    assert names(log_dir_path) == set()
    assert os.stat(log_dir_path).st_mtime_ns == before


def test_a_failed_disk_is_reported(loop_fs: LoopFs, open_log_dir: Callable[[Path], OpenLogDir]) -> None:
    need_command("xfs_io")
    point = loop_fs("xfs")
    log_dir = open_log_dir(point)
    run("xfs_io", "-x", "-c", "shutdown", point)
    result = probe(log_dir, LIMIT)
    assert (result.outcome, result.errno) == (ProbeOutcome.FAILED, errno.EIO)
    assert result.reason is not None and "Input/output error" in result.reason


def test_a_dead_ext4_that_still_lists_is_reported(loop_fs: LoopFs, open_log_dir: Callable[[Path], OpenLogDir]) -> None:
    need_command("xfs_io")
    point = loop_fs("ext4")
    (point / "orders-0").mkdir()
    log_dir = open_log_dir(point)
    run("xfs_io", "-x", "-c", "shutdown", point)
    assert "orders-0" in names(point)
    result = probe(log_dir, LIMIT)
    assert result.outcome is ProbeOutcome.FAILED


def test_a_hung_disk_holds_nobody_up(loop_fs: LoopFs, open_log_dir: Callable[[Path], OpenLogDir]) -> None:
    need_command("fsfreeze")
    frozen, good = loop_fs("ext4"), loop_fs("tmpfs")
    log_dirs = [open_log_dir(frozen), open_log_dir(good)]
    prober = Prober()
    run("fsfreeze", "-f", frozen)
    try:
        results = prober.probe_all(log_dirs, 0.3)
        assert results[str(frozen)].outcome is ProbeOutcome.HUNG
        assert results[str(frozen)].ms == 300
        assert results[str(good)].outcome is ProbeOutcome.GOOD
        threads = threading.active_count()
        again = prober.probe_all(log_dirs[:1], 0.3)[str(frozen)]
        assert again.reason == "an earlier probe of it is still hanging"
        assert threading.active_count() == threads
    finally:
        run("fsfreeze", "-u", frozen)
    once_more = partial(prober.probe_all, log_dirs[:1], LIMIT)
    wait_until(lambda: once_more()[str(frozen)].outcome is ProbeOutcome.GOOD, "it is probed again")


def test_a_full_file_system_is_not_written_to(loop_fs: LoopFs, open_log_dir: Callable[[Path], OpenLogDir]) -> None:
    point = loop_fs("tmpfs", size=1 << 20)
    with (point / "ballast").open("wb") as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 65536)
            file.flush()
    result = probe(open_log_dir(point), LIMIT)
    assert (result.outcome, result.wrote) == (ProbeOutcome.FULL, False)
    assert result.reason == "its file system has no free block"


def test_no_free_inode_is_full_too(loop_fs: LoopFs, open_log_dir: Callable[[Path], OpenLogDir]) -> None:
    point = loop_fs("tmpfs")
    run("mount", "-o", "remount,nr_inodes=3", point)
    (point / "a").touch()
    (point / "b").touch()
    result = probe(open_log_dir(point), LIMIT)
    assert (result.outcome, result.reason) == (ProbeOutcome.FULL, "its file system has no free inode")


def test_a_read_only_mount_is_read(loop_fs: LoopFs, open_log_dir: Callable[[Path], OpenLogDir]) -> None:
    point = loop_fs("ext4")
    (point / "meta.properties").write_text("version=1\n")
    run("mount", "-o", "remount,ro", point)
    result = probe(open_log_dir(point), LIMIT)
    assert (result.outcome, result.wrote) == (ProbeOutcome.READ_ONLY, False)


def test_an_unmounted_log_dir_is_reported(tmp_path: Path, open_log_dir: Callable[[Path], OpenLogDir]) -> None:
    need_root()
    point = tmp_path / "point"
    point.mkdir()
    run("mount", "-t", "tmpfs", "tmpfs", point)
    log_dir = open_log_dir(point)
    run("umount", "-l", point)
    result = probe(log_dir, LIMIT)
    assert result.outcome is ProbeOutcome.FAILED
    assert result.reason is not None and "another directory" in result.reason


def test_a_log_dir_that_is_gone_is_reported(tmp_path: Path, open_log_dir: Callable[[Path], OpenLogDir]) -> None:
    path = tmp_path / "d1"
    path.mkdir()
    log_dir = open_log_dir(path)
    path.rmdir()
    result = probe(log_dir, LIMIT)
    assert (result.outcome, result.errno) == (ProbeOutcome.FAILED, errno.ENOENT)


def test_without_o_tmpfile_it_only_reads_and_says_so(open_log_dir: Callable[[Path], OpenLogDir]) -> None:
    # sysfs is a file system without O_TMPFILE that every Linux has.
    result = probe(open_log_dir(Path("/sys")), LIMIT)
    assert (result.outcome, result.wrote) == (ProbeOutcome.GOOD, False)
    assert result.limited == "its file system has no O_TMPFILE, so nothing is written to it"


def test_whoever_may_not_write_reads_and_says_so(tmp_path: Path) -> None:
    need_root()
    need_command("setpriv")
    tmp_path.chmod(0o755)
    log_dir = Path(subprocess.run(["mktemp", "-d"], check=True, capture_output=True, text=True).stdout.strip())
    try:
        log_dir.chmod(0o755)
        pid = os.fork()
        if pid == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with OpenLogDir(str(log_dir), LogDirFailures()) as opened:
                result = probe(opened, LIMIT)
            expected = result.outcome is ProbeOutcome.GOOD and not result.wrote
            os._exit(0 if expected and result.limited is not None and "65534 may not write" in result.limited else 1)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        log_dir.rmdir()


def test_killed_at_any_moment_it_leaves_no_file(log_dir_path: Path) -> None:
    """The file never has a name: a kill after 100 probes, amid the next one, leaves the log dir as it was."""
    before = os.stat(log_dir_path).st_mtime_ns
    done, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        with OpenLogDir(str(log_dir_path), LogDirFailures()) as opened:
            while True:
                probe(opened, LIMIT)
                os.write(told, b".")
    os.close(told)
    with open(done, "rb") as probes:
        assert len(probes.read(100)) == 100
        os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert names(log_dir_path) == set()
    assert os.stat(log_dir_path).st_mtime_ns == before


def test_the_worker_has_a_descriptor_of_its_own(loop_fs: LoopFs, open_log_dir: Callable[[Path], OpenLogDir]) -> None:
    """A log dir closed while its probe hangs: the probe never works on whatever gets that number next."""
    need_command("fsfreeze")
    frozen, other = loop_fs("ext4"), loop_fs("ext4")
    log_dir = open_log_dir(frozen)
    prober = Prober()
    run("fsfreeze", "-f", frozen)
    try:
        assert prober.probe_all([log_dir], 0.2)[str(frozen)].outcome is ProbeOutcome.HUNG
        (worker,) = prober._hanging.values()
        number = log_dir.fd
        log_dir.close()
        reused = os.open(other, os.O_RDONLY | os.O_DIRECTORY)
        assert reused == number
    finally:
        run("fsfreeze", "-u", frozen)
    assert worker.join(20)
    os.close(reused)
    assert worker.outcome().result.outcome is ProbeOutcome.GOOD


def test_a_fifo_called_meta_properties_blocks_nobody(
    loop_fs: LoopFs, open_log_dir: Callable[[Path], OpenLogDir]
) -> None:
    point = loop_fs("ext4")
    os.mkfifo(point / "meta.properties")
    assert stat.S_ISFIFO(os.stat(point / "meta.properties").st_mode)
    run("mount", "-o", "remount,ro", point)
    assert probe(open_log_dir(point), LIMIT).outcome is ProbeOutcome.READ_ONLY
