"""`-k` with the name of a test, or a longer part of it, imports only the files that may have it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chosen import may_have_it

TEXT = 'def test_a_disk_that_hangs(kind: str) -> None:\n    """xfs"""'


@pytest.mark.parametrize(
    ("expression", "may"),
    [
        ("", True),
        ("test_a_disk_that_hangs", True),
        ("disk_that_hangs", True),
        ("Disk_That_Hangs", True),
        ("test_a_disk_that_hangs and ext4", True),
        ("test_a_disk and that_hangs_never", False),
        ("test_another", False),
        ("disk_that_stands", False),
        ("test_health_real", True),  # the file's own name
        ("zookeeper", True),  # may be a case, whose name is computed
        ("disk_that_stands or hangs", True),
        ("not disk_that_stands", True),
        ("(disk_that_stands)", True),
    ],
)
def test_a_file_is_left_out_only_where_no_name_in_it_can_match(expression: str, may: bool) -> None:
    assert may_have_it(expression, "tests/disk/disk/test_health_real.py", TEXT) == may


def test_one_test_is_collected_from_one_file_without_the_others() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-k", "left_out_only_where_no_name"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1].startswith("13/14 tests collected (1 deselected)"), done.stdout[-2000:]
