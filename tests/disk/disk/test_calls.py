"""Calls to disks that hang: who waits, what is refused, and that a sleeper which wakes up changes nothing more."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from logagent.base.errors import ItemFailed, KafkaStorageError
from logagent.base.records import Identity
from logagent.disk.bounded_calls import BoundedCalls
from logagent.disk.calls import DirectCalls, Stop, StoppableInterlock
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.remove import remove_dir
from logagent.disk.unlink import WorkControl
from tests.disk.conftest import LoopFs
from tests.disk.failing import HangingFs, frozen, hanging_fs, open_below
from tests.host_files import bulk_partition
from tests.waiting import pause, wait_until

SHORT = 0.5


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[HangingFs]:
    with hanging_fs(tmp_path / "fuse") as made:
        yield made


@pytest.fixture
def bounded(failures: LogDirFailures) -> BoundedCalls:
    return BoundedCalls(failures, SHORT)


def opened(path: Path, failures: LogDirFailures) -> OpenLogDir:
    return OpenLogDir(str(path), failures).__enter__()


def test_results_and_errors_come_back_as_they_are(bounded: BoundedCalls) -> None:
    def fails() -> int:
        raise ItemFailed("no", path="/d/a-0")

    for calls in (bounded, DirectCalls()):
        assert calls.call("/d", lambda: 7) == 7
        with pytest.raises(ItemFailed):
            calls.call("/d", fails)
        found = calls.call_each({"/e": lambda: 1, "/d": fails, "/f": lambda: 2})
        assert list(found) == ["/e", "/d", "/f"]
        assert (found["/e"], found["/f"]) == (1, 2)
        assert isinstance(found["/d"], ItemFailed)
        with pytest.raises(ZeroDivisionError):
            calls.work({"/d": lambda stop: 1 // 0})
        assert calls.work({"/d": lambda stop: stop()}) == {"/d": False}
        assert calls.ask("sums", lambda: 3, of=["/d"], limit=1) == 3


def test_direct_calls_run_in_the_thread_that_asks() -> None:
    assert DirectCalls().call("/d", threading.get_ident) == threading.get_ident()


def test_a_call_that_hangs_takes_its_log_dir_offline_and_no_second_one_is_made(
    hanging: HangingFs, failures: LogDirFailures, bounded: BoundedCalls
) -> None:
    path = str(hanging.point)
    hanging.hang()
    with pytest.raises(KafkaStorageError, match=r"did not answer within 0\.5 s"):
        bounded.call(path, lambda: os.stat(path))
    assert failures.reason(path) == "it did not answer within 0.5 s"
    assert bounded.hanging(path)
    failures.recovered(path)
    with pytest.raises(KafkaStorageError, match="an earlier call is still hanging"):
        bounded.call(path, lambda: os.stat(path))
    assert bounded.call("/", lambda: os.stat("/")).st_ino, "others are not concerned"
    hanging.wake()
    wait_until(lambda: not bounded.hanging(path), "the call returns")
    assert bounded.call(path, lambda: os.stat(path)).st_ino


def test_what_was_opened_too_late_is_closed_again(
    hanging: HangingFs, failures: LogDirFailures, bounded: BoundedCalls
) -> None:
    path = str(hanging.point)
    hanging.hang()
    jobs = {path: OpenLogDir(path, failures).__enter__}
    assert isinstance(bounded.call_each(jobs, undo=OpenLogDir.close)[path], KafkaStorageError)
    hanging.wake()
    wait_until(lambda: not bounded.hanging(path), "the call returns")
    wait_until(lambda: not open_below(hanging.point), "its descriptor is closed")


def test_whoever_waits_says_so_and_the_prober_ends_the_wait(hanging: HangingFs, failures: LogDirFailures) -> None:
    beats: list[str] = []
    calls = BoundedCalls(failures, SHORT, beat=lambda: beats.append("beat"))
    path = str(hanging.point)
    hanging.hang()
    threading.Timer(3 * SHORT, failures.mark_offline, (path, "the prober says so")).start()
    good: list[str] = []

    def works(stop: Stop) -> str:
        good.append("done")
        return "good"

    found = calls.work({path: lambda stop: str(os.stat(path)), "/good": works})
    assert found["/good"] == "good" and good == ["done"]
    assert str(found[path]) == f"log dir {path} is offline: the prober says so"
    assert len(beats) >= 3
    hanging.wake()
    wait_until(lambda: not calls.hanging(path), "the call returns")


def test_work_whose_log_dir_fails_meanwhile_ends_by_itself(failures: LogDirFailures, bounded: BoundedCalls) -> None:
    """It is not given up at once: what it has done so far is its result."""
    began = threading.Event()

    def works(stop: Stop) -> str:
        began.set()
        wait_until(stop, "the work is told to stop")
        return "half of it"

    threading.Timer(0.1, lambda: began.wait(30) and failures.mark_offline("/d", "it failed")).start()
    assert bounded.work({"/d": works}) == {"/d": "half of it"}
    with pytest.raises(KafkaStorageError, match="it failed"):
        bounded.call("/d", lambda: 1)


def test_stop_stays_true_for_work_from_before_a_failure_even_when_the_log_dir_is_back(
    failures: LogDirFailures, bounded: BoundedCalls
) -> None:
    def works(stop: Stop) -> tuple[bool, bool]:
        before = stop()
        failures.mark_offline("/d", "it failed")
        failures.recovered("/d")
        return before, stop()

    assert bounded.work({"/d": works}) == {"/d": (False, True)}


def test_a_log_dir_opened_before_a_failure_stays_out(tmp_path: Path, failures: LogDirFailures) -> None:
    log_dir = opened(tmp_path, failures)
    failures.mark_offline(str(tmp_path), "it failed")
    failures.recovered(str(tmp_path))
    assert log_dir.offline() == "it went offline for a while after it was opened"
    with pytest.raises(KafkaStorageError, match="for a while"):
        log_dir.fsync()
    log_dir.close()
    with OpenLogDir(str(tmp_path), failures) as again:
        again.fsync()


def test_a_descriptor_that_a_sleeper_uses_keeps_its_number(
    loop_fs: LoopFs, failures: LogDirFailures, bounded: BoundedCalls
) -> None:
    point, other = loop_fs("ext4"), loop_fs("ext4")
    log_dir = opened(point, failures)
    number = log_dir.fd
    with frozen(point) as thaw:
        threading.Timer(SHORT, failures.mark_offline, (str(point), "the prober says so")).start()
        found = bounded.work({str(point): lambda stop: os.mkdir("made-0", dir_fd=log_dir.fd)})
        assert isinstance(found[str(point)], KafkaStorageError)
        bounded.close((str(point),), log_dir.close)
        assert log_dir.fd == number
        with OpenLogDir(str(other), failures) as next_one:
            assert next_one.fd != number, "the number is not free"
            thaw()
            wait_until(lambda: log_dir.fd == -1, "the sleeper returns, and only then it is closed")
        assert (point / "made-0").exists() and not (other / "made-0").exists()
    wait_until(lambda: not open_below(point), "it is closed")


def test_closing_waits_for_every_log_dir_that_uses_it(failures: LogDirFailures, bounded: BoundedCalls) -> None:
    closed, go = threading.Event(), threading.Event()
    waiter = threading.Thread(target=bounded.work, args=({"/d": lambda stop: go.wait(30)},))
    waiter.start()
    wait_until(lambda: "/d" in bounded._active, "the work began")
    bounded.close(("/quarantine", "/d"), closed.set)
    assert not closed.wait(SHORT)
    go.set()
    assert closed.wait(30)
    waiter.join()


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_removal_that_froze_and_was_given_up_removes_nothing_more_when_the_disk_thaws(
    kind: str, loop_fs: LoopFs, failures: LogDirFailures, bounded: BoundedCalls
) -> None:
    point = loop_fs(kind)
    victim = bulk_partition(point, "orders-0." + "a" * 32 + "-delete", segments=2000)
    log_dir = opened(point, failures)
    expect = os.stat(victim)
    reached, froze = threading.Event(), threading.Event()

    removed = 0

    def progress(files: int, size: int) -> None:
        nonlocal removed
        removed += files
        if removed == 500:
            reached.set()
        if removed >= 500 and not froze.is_set():
            pause(0.002, "else, on a slow machine, the rest is gone before")

    def remove(stop: Stop) -> object:
        watch = StoppableInterlock(log_dir.fd, str(point), stop)
        identity = Identity(expect.st_dev, expect.st_ino)
        return remove_dir(log_dir, victim.name, identity, watch, control=WorkControl(on_progress=progress, stop=stop))

    freezer = _freeze_when(reached, froze, point, failures)
    found = bounded.work({str(point): remove})
    thaw = freezer()
    assert isinstance(found[str(point)], KafkaStorageError)
    bounded.close((str(point),), log_dir.close)
    left = set(os.listdir(victim))
    assert 0 < len(left) <= 3500
    thaw()
    wait_until(lambda: not bounded.hanging(str(point)), "the sleeper returns")
    # The one call that was in the kernel when the disk froze may come to its end; no other was begun.
    assert len(left - set(os.listdir(victim))) <= 1
    assert log_dir.fd == -1


def _freeze_when(
    reached: threading.Event, froze: threading.Event, point: Path, failures: LogDirFailures
) -> Callable[[], Callable[[], None]]:
    """Freeze `point` when `reached` is set, set `froze`, and say that it hangs. The result waits and gives the thaw."""
    stack = ExitStack()

    def freeze() -> None:
        assert reached.wait(60)
        stack.enter_context(frozen(point))
        froze.set()
        failures.mark_offline(str(point), "the prober says so")

    thread = threading.Thread(target=freeze)
    thread.start()

    def frozen_now() -> Callable[[], None]:
        thread.join(60)
        assert froze.is_set()
        return stack.close

    return frozen_now
