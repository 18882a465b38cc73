"""Which topics have directories here, judged by directory names alone."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from logagent.model.naming.dir_names import classify
from logagent.model.records import Kind


def topics_in(log_dirs: Iterable[str]) -> frozenset[str]:
    """The topics of current and future directories. A log dir that cannot be listed contributes none."""
    found: set[str] = set()
    for log_dir in log_dirs:
        with suppress(OSError):
            parsed = map(classify, os.listdir(log_dir))
            found |= {p.topic for p in parsed if p.topic is not None and p.kind in (Kind.CURRENT, Kind.FUTURE)}
    return frozenset(found)
