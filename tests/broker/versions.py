"""Which releases a test is run against: the first of those it names, or all of them with LOGAGENT_TESTS_FULL=1."""

from __future__ import annotations

import os
from typing import TypeVar

FULL = os.environ.get("LOGAGENT_TESTS_FULL") == "1"


Release = TypeVar("Release")


def versions(*releases: Release) -> list[Release]:
    """For `pytest.mark.parametrize`. The default runs of different tests take different releases."""
    return list(releases if FULL else releases[:1])
