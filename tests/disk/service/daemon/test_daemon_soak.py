"""The first events of a soak with a fixed seed, two minutes with `tests/run --full`; `python -m tests.disk.soak
--minutes 30 --seed N` is as long as one likes."""

from __future__ import annotations

from pathlib import Path

from tests.disk.soak import soak
from tests.long_form import FULL


def test_a_soak_of_marking_filling_breaking_and_killing(tmp_path: Path) -> None:
    life = soak(120 if FULL else 600, 7, tmp_path, None if FULL else 22)
    assert life.problems == []
    assert life.done["marked"] > 10 and life.done["killed"] + life.done["restarted"] > 0, life.done
