"""What the default run leaves out stands in one list, and nothing else is left out."""

from __future__ import annotations

import re
from pathlib import Path

from tests.long_form import LONG

ROOT = Path(__file__).parents[2]


def test_the_list_names_the_files_that_have_a_long_form() -> None:
    having = {
        str(path.relative_to(ROOT))
        for path in ROOT.glob("tests/**/test_*.py")
        if re.search(r"^from tests\.long_form import .*\b(FULL|long_form|one_in|versions)\b", path.read_text(), re.M)
    }
    assert having == set(LONG)


def test_nobody_else_asks_for_the_variable() -> None:
    asking = {
        str(path.relative_to(ROOT))
        for path in ROOT.glob("tests/**/*.py")
        if re.search(r"environ\W.*LOGAGENT_TESTS_FULL\W*\) ", path.read_text())
    }
    assert asking == {"tests/long_form.py"}
