"""Which releases a test is run against: the first of those it names, or all of them with LOGAGENT_TESTS_FULL=1."""

from __future__ import annotations

from typing import TypeVar

from tests.long_form import FULL

Release = TypeVar("Release")


def versions(*releases: Release) -> list[Release]:
    """For `pytest.mark.parametrize`. The default runs of different tests take different releases."""
    return list(releases if FULL else releases[:1])
