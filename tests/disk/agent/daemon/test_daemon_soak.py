"""Two minutes of the soak with a fixed seed; `python -m tests.disk.soak --minutes 30 --seed N` is the long form."""

from __future__ import annotations

from pathlib import Path

from tests.disk.soak import soak


def test_two_minutes_of_marking_filling_breaking_and_killing(tmp_path: Path) -> None:
    life = soak(120, 7, tmp_path)
    assert life.problems == []
    assert life.done["marked"] > 10 and life.done["killed"] + life.done["restarted"] > 0, life.done
