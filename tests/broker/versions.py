"""Which releases a test is run against: the first of those it names, or all of them with LOGAGENT_TESTS_FULL=1."""

from __future__ import annotations

import os
from typing import TypeVar

import pytest

FULL = os.environ.get("LOGAGENT_TESTS_FULL") == "1"
long_form = pytest.mark.skipif(not FULL, reason="a long form: LOGAGENT_TESTS_FULL=1")
"""Minutes of waiting for what shorter tests show in part."""


Release = TypeVar("Release")


def versions(*releases: Release) -> list[Release]:
    """For `pytest.mark.parametrize`. The default runs of different tests take different releases."""
    return list(releases if FULL else releases[:1])
