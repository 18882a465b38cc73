"""The default run and the long form, `LOGAGENT_TESTS_FULL=1 tests/run …`, which leaves nothing out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")
FULL = os.environ.get("LOGAGENT_TESTS_FULL") == "1"
long_form = pytest.mark.skipif(not FULL, reason="a long form: LOGAGENT_TESTS_FULL=1")
"""Minutes of work for what shorter tests show in part."""


def one_in(number: int, found: Sequence[T]) -> Sequence[T]:
    """Every so many-th of many alike, from the first to the last; all of them in the long form."""
    return found if FULL else found[::number]
