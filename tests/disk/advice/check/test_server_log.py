"""What another user can put in the place of a broker's log: nothing that is waited for, and nothing that it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.advice.check.start_inspection import failed_marks
from tests.disk.hostile_files import KINDS, changing


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_nothing_in_its_place_says_anything_or_keeps_us_waiting(tmp_path: Path, kind: Callable[[Path], None]) -> None:
    log = tmp_path / "server.log"
    kind(log)
    assert failed_marks([str(log)], ["/data/d1"]) == {}


def test_one_that_is_rewritten_meanwhile_is_read_to_its_end(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"")
    with changing(log):
        for _ in range(50):
            assert failed_marks([str(log)], ["/data/d1"]) == {}
