"""How our own JVMs are started: by the size of the fleet.

A small report spends most of its time starting: loading classes, interpreting, compiling. Small
fleets get only the quick compiler (C1), one garbage collector thread and no adaptive planning; large ones get Java's
compilers and the collector made for throughput: ingesting 4 million directories took 214 CPU seconds with the default
one (G1), 194 with it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from logagent.errors import UnreadableError
from logagent.files.safe_open import STORE_FILE, parse_json, read_regular

SMALL_LANDING = 24 << 20
"""Compressed bytes of landing (about 500,000 directories) up to which the quick compiler is enough to ingest them. At
4 million it took 565 CPU seconds, Java's default 277."""
SMALL_REPORT = 5_000_000
"""The same for the directories of a report, which reads few of them. At 4 million it took 65 CPU seconds, Java's
default 94."""
_SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_LARGE = "-XX:+UseParallelGC"
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_READ_BY_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


def java_options(small: bool, environment: Mapping[str, str] = os.environ) -> str:
    """Options for the JVM of a driver, by how much it has to do.

    Java refuses to start with two collectors: one that the user's environment chooses is left alone.
    """
    options = _SMALL if small else _LARGE
    if any(_COLLECTOR.search(environment.get(name, "")) for name in _READ_BY_JAVA):
        options = _COLLECTOR.sub("", options).strip()
    return options


def sql_conf(small: bool) -> dict[str, str]:
    """Settings of Spark that only pay for many rows."""
    return {"spark.sql.adaptive.enabled": "false"} if small else {}


def is_small_report(store: str) -> bool:
    """Whether a report on a local store covers few directories: those of its largest date. False if unknown."""
    most: int | None = None
    with suppress(OSError, ValueError, KeyError, TypeError, UnreadableError):
        for day in sorted((Path(store) / "commits").iterdir())[-3:]:
            last = max(day.glob("[1-9]*.json"), key=lambda path: int(path.stem))
            tables = parse_json(read_regular(last, STORE_FILE))["tables"]
            most = max(most or 0, sum(each["rows"] for each in tables["dirs"]))
    return most is not None and most <= SMALL_REPORT


def is_small_landing(store: str) -> bool:
    """Whether a local landing contains little to ingest. False if unknown."""
    packed = 0
    try:
        os.lstat(Path(store) / "landing")  # `walk` says nothing of one that is not there
        for folder, _, names in os.walk(Path(store) / "landing"):
            packed += sum(os.lstat(os.path.join(folder, name)).st_size for name in names)
            if packed > SMALL_LANDING:
                return False
    except OSError:
        return False
    return True
