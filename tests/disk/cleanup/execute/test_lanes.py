"""The execution of a plan in one lane per log dir: no lane waits for another one."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.base.config.settings import DeleteSettings
from logagent.base.errors import JournalError
from logagent.cleanup.commands.cleanup import plan_cleanup
from tests.disk.sessions import SETTINGS, FailingHost, outcomes
from tests.host_files import DIRECTORY_IDS, bulk_partition, format_log_dir

UUID = "a" * 32


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    return (format_log_dir(tmp_path / "d1"), format_log_dir(tmp_path / "d2", DIRECTORY_IDS[1]))


def test_log_dirs_are_worked_on_at_the_same_time(paths: tuple[Path, Path], tmp_path: Path) -> None:
    """Each waits in the middle of its removal until the other one is there too."""
    for path in paths:
        bulk_partition(path, f"orders-0.{UUID}-stray", segments=20)
    host = FailingHost(tmp_path / "state", *paths)
    together = threading.Barrier(2, timeout=60)
    met: set[str] = set()

    def progress(files: int, size: int) -> None:
        name = threading.current_thread().name
        if name not in met:
            met.add(name)
            together.wait()

    assert outcomes(host.clean(progress)) == ["done", "done"]
    assert len(met) == 2


def test_a_slow_log_dir_leaves_the_rest_to_the_next_cycle_which_sees_what_fell_due_elsewhere(
    paths: tuple[Path, Path], tmp_path: Path
) -> None:
    one, two = paths
    slow = bulk_partition(one, f"orders-0.{UUID}-stray", segments=100, size=100_000)
    settings = replace(
        SETTINGS,
        cleanup=replace(SETTINGS.cleanup, interval=3000),
        delete=DeleteSettings(file_delete_delay_ms=0, bytes_per_second=500_000),
    )
    host = FailingHost(tmp_path / "state", *paths, settings=settings)
    first = host.clean()
    assert outcomes(first) == ["yielded"]
    left = len(list(slow.iterdir()))
    assert 0 < left < 200
    other = bulk_partition(two, f"other-0.{UUID}-stray")
    assert outcomes(host.clean()) == ["done", "yielded"]
    assert not other.exists()
    assert len(list(slow.iterdir())) < left


def test_one_log_dir_alone_is_worked_on_to_the_end(tmp_path: Path) -> None:
    path = format_log_dir(tmp_path / "d1")
    bulk_partition(path, f"orders-0.{UUID}-stray", segments=20, size=100_000)
    settings = replace(
        SETTINGS,
        cleanup=replace(SETTINGS.cleanup, interval=100),
        delete=DeleteSettings(file_delete_delay_ms=0, bytes_per_second=2_000_000),
    )
    assert outcomes(FailingHost(tmp_path / "state", path, settings=settings).clean()) == ["done"]


def test_without_a_journal_every_lane_ends_and_nothing_is_removed(paths: tuple[Path, Path], tmp_path: Path) -> None:
    made = [bulk_partition(path, f"orders-0.{UUID}-stray") for path in paths]
    with FailingHost(tmp_path / "state", *paths).session() as session:
        session.take_inventory()
        plan = plan_cleanup(session, session.facts())
        assert len(plan.actions) == 2
        session.journal.close()
        with pytest.raises(JournalError):
            session.log_manager().execute(plan)
    assert [path for path in made if not path.exists()] == []
