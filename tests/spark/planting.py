"""What a test file adds to the landing of the fleet that the folder's tests share (`zoo` in `conftest.py`).

Clusters do not see each other: a report of all of them costs what a report of one costs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Plant = TypeVar("Plant", bound=Callable[[Path], Any])
PLANTED: dict[str, Callable[[Path], Any]] = {}


def planted(make: Plant) -> Plant:
    """`make(store)` adds clusters of its own; what it returns is `zoo.planted[its name]`."""
    assert make.__name__ not in PLANTED, make.__name__
    PLANTED[make.__name__] = make
    return make
