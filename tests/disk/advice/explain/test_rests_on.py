"""What `explain` rests on: without each of its inputs it says something else, and that it lacks it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from logagent.advice.explain.documents import ExplainDoc
from logagent.base.dir_names import CLEANER, LOG_START_OFFSET, REPLICATION
from tests.command_line import LOCKER, process
from tests.host import Host
from tests.kafka_disks import metadata_dir
from tests.rests_on import figures

# By what is asked.
ASKED: dict[str, Callable[[Host], tuple[str, ...]]] = {
    "file systems": lambda host: ("--log-dirs-only",),
    "directories": lambda host: (str(host.d1), str(host.d2)),
    "what if": lambda host: ("--what-if", "retention.ms=1"),
}


def damage(file: Path) -> None:
    file.write_bytes(b"\xff\xff damaged")


def unread_log_dir(host: Host) -> None:
    host.d2.rename(host.d2.with_name("away"))


def no_metadata_log(host: Host) -> None:
    metadata_dir(host.disk).rename(host.root / "away")


def damaged(name: str) -> tuple[Callable[[Host], object], str]:
    return lambda host: damage(host.d1 / name), f"{name} is damaged"


def unread_segments(host: Host) -> None:
    """Neither an index nor a batch says when its records were written."""
    for log in host.d1.glob("*-[0-9]/*.log"):
        log.write_bytes(os.urandom(5000))
        for suffix in (".index", ".timeindex"):
            log.with_suffix(suffix).unlink(missing_ok=True)
            os.mkfifo(log.with_suffix(suffix))


# By input: how it is withheld, and what says so.
WITHHELD: dict[str, tuple[Callable[[Host], object], str]] = {
    "log dirs": (unread_log_dir, "is offline"),
    "segments": (unread_segments, "unreadable"),
    "metadata log": (no_metadata_log, "settings of topics are not known"),
    "journal": (lambda host: damage(host.state / "journal.db"), "dates and full topic names may be others"),
    "log start checkpoint": damaged(LOG_START_OFFSET),
    "replication checkpoint": damaged(REPLICATION),
    "cleaner checkpoint": damaged(CLEANER),
    "running broker": (lambda host: None, "the broker does not listen"),
}
# What it is asked for, and what there is no document without. What lies outside the log dirs has a test of its own
# (test_outside), and so have processes that may not be read.
GIVEN = {"names", "configuration", "file system", "outside"}
CHECKPOINTS = ("log start checkpoint", "replication checkpoint", "cleaner checkpoint")
OF_LOGS = ("log dirs", "segments", "metadata log", "journal", *CHECKPOINTS, "running broker")
OUTSIDE = (
    *("log_dirs", "log_dirs[].allocated", "log_dirs[].node_id", "log_dirs[].partitions", "places"),
    *("places[].allocated", "places[].files", "rest", "rest_files", "unread_directories"),
)
SUMS = ("", "[].allocated", "[].bytes", "[].directories", "[].segments")
EXPLAIN: dict[str, tuple[str, ...]] = {
    "as_of": ("metadata log",),
    "broker_unknown": ("running broker",),
    "checks": ("running broker", "metadata log"),
    "log_dirs": ("configuration", "log dirs"),
    "log_dirs[].unread": CHECKPOINTS,
    "names": ("names",),
    "names[].partition": ("names",),
    "node_id": ("log dirs",),
    "not_considered": ("metadata log",),
    "not_considered[].topics": ("metadata log",),
    "dirs": ("names", *OF_LOGS),
    "dirs[].partition": ("log dirs",),
    "dirs[].allocated": OF_LOGS,
    "dirs[].broker.bytes": ("running broker",),
    "dirs[].broker.offset_lag": ("running broker",),
    "dirs[].groups": OF_LOGS,
    **{f"dirs[].groups[].{each}": OF_LOGS for each in ("allocated", "bytes", "first_offset", "segments")},
    "file_systems": ("log dirs",),
    "file_systems[].log_dirs": ("log dirs",),
    **{f"file_systems[].{each}": ("file system",) for each in ("free", "size", "used")},
    **{f"file_systems[].reasons{each}": OF_LOGS for each in SUMS},
    **{f"file_systems[].outside.{each}": ("outside",) for each in OUTSIDE},
    "what_if": OF_LOGS,
    "what_if[].directories": ("log dirs",),
    "what_if[].settings": ("names",),
    **{f"what_if[].{each}": OF_LOGS for each in ("goes", "goes_anyway", "stays_after_all")},
    **{f"what_if[].{which}{each}": OF_LOGS for which in ("changed", "unchanged") for each in SUMS},
}


def test_every_figure_of_explain_has_a_row_and_every_input_is_withheld() -> None:
    assert figures(ExplainDoc) == EXPLAIN.keys(), "every number and list has its row, and no other"
    assert {each for inputs in EXPLAIN.values() for each in inputs} == {*WITHHELD, *GIVEN}


def said(host: Host) -> dict[str, str]:
    """What is said, without the time."""
    found = {}
    for what, words in ASKED.items():
        ran = host.run("explain", *words(host), "--json")
        found[what] = json.dumps({k: v for k, v in ran.json.items() if k != "at"}) + ran.err
    return found


@pytest.mark.parametrize("what", WITHHELD)
def test_without_an_input_explain_says_so(tmp_path: Path, what: str) -> None:
    host = Host.from_disk(tmp_path)
    host.run("cleanup", "--execute")
    withhold, says = WITHHELD[what]
    before = said(host)
    with ExitStack() as stack:
        if what == "running broker":
            stack.enter_context(process(LOCKER, host.d1, host.d2))
        withhold(host)
        now = said(host)
    silent = {
        asked for asked in ASKED if says in before[asked] or says not in now[asked] or before[asked] == now[asked]
    }
    assert not silent
