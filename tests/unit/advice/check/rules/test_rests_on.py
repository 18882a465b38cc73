"""What `check` rests on: without each of its inputs it says something else; a doubt adds a finding and removes none,
and is never fatal by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.advice.check.rules.linter import check
from logagent.advice.check.rules.start_facts import (
    CheckpointFault,
    FreeSpace,
    MetaFile,
    MetaState,
    PathProblem,
    StartFacts,
)
from logagent.advice.documents import CheckDoc, LeaveDoc
from logagent.advice.finding import Finding, Severity
from logagent.base.kafka_version import VersionsSeen, which_version
from logagent.base.records import Health, Holder, HolderState
from logagent.kafka.image import StartLevels
from logagent.kafka.retention.settings import Layers
from logagent.verdict.without_directory import LeftLogDir, WithoutDirectory
from tests.damages.disk import UUID
from tests.damages.facts import OTHER_ID, directory, facts, meta, seen
from tests.rests_on import assert_complete, figures

NEW = (4, 3, 1)
LEVELS = StartLevels({"metadata.version": (25,)})
KNOWN = facts(
    seen(holds_metadata=True, metadata_log=True, levels=LEVELS),
    seen("/d2"),
    dirs=(directory("orders-0"), directory("orders-1", "/d2")),
    settings=Layers(complete=True),
)


def first(found: StartFacts, **changes: object) -> StartFacts:
    """With this of the first log dir."""
    log_dirs = (replace(found.log_dirs[0], **changes), *found.log_dirs[1:])  # type: ignore[arg-type]
    return replace(found, log_dirs=log_dirs)


def missing(found: StartFacts, **changes: object) -> StartFacts:
    return replace(found, missing=replace(found.missing, **changes))  # type: ignore[arg-type]


def unread_double(found: StartFacts) -> StartFacts:
    double = directory("orders-0", "/d2", topic_id=None, error="it cannot be opened: Permission denied")
    return replace(found, dirs=(*found.dirs, double))


# By input: how it is withheld, and the finding that says so.
WITHHELD: dict[str, tuple[Callable[[StartFacts], StartFacts], str]] = {
    "log dir": (lambda f: first(f, problem=PathProblem.CLOSED, health=Health.OFFLINE), "not-verified"),
    "meta.properties": (lambda f: first(f, meta=MetaFile(MetaState.UNREADABLE, error="denied")), "not-verified"),
    "lock": (lambda f: first(f, holder=Holder(HolderState.UNREADABLE)), "not-verified"),
    "partition directories": (lambda f: first(f, not_seen=("orders-0",)), "not-verified"),
    "file system": (lambda f: first(f, file_system=None, cannot=None), "unfit-file-system"),
    "features": (lambda f: first(f, levels=StartLevels(unread="damaged")), "features-not-compared"),
    "topic settings": (lambda f: replace(f, settings=Layers(complete=False)), "settings-not-compared"),
    "topic id": (unread_double, "duplicate-partition"),
    "assignments": (lambda f: missing(f, unknown="no source"), "assignments-not-compared"),
    "log dirs seen": (lambda f: missing(f, doubt="damaged"), "not-verified"),
    "configuration in force": (lambda f: replace(f, config_doubt="it changed"), "config-changed"),
    "version": (
        lambda f: replace(f, kafka_version=which_version(VersionsSeen(running=(3, 9, 1), pid=5, configured=(3, 5, 2)))),
        "version-contradicted",
    ),
}
# Those of the configuration, the probe and the clock are no doubts: without them there is no document.
GIVEN = {"configuration", "probe"}
CHECK = {
    "log_dirs": ("configuration",),
    "log_dirs[].probe_ms": ("probe",),
    "findings": tuple(sorted(WITHHELD)),
}


def test_every_figure_of_check_has_a_row_and_every_input_is_withheld() -> None:
    assert_complete(CheckDoc, CHECK, dict.fromkeys([*WITHHELD, *GIVEN]))


@pytest.mark.parametrize("what", WITHHELD)
def test_without_an_input_something_is_said_and_it_is_not_fatal(what: str) -> None:
    assert check(KNOWN, NEW) == []
    withhold, code = WITHHELD[what]
    found = check(withhold(KNOWN), NEW)
    assert code in {f.why.code for f in found}
    assert {f.severity for f in found} <= {Severity.WARNING, Severity.INFO}, found


# What is known to be wrong, in the other log dir or of the whole node.
LOST = WithoutDirectory("a", 0, "A", only_copy=True)
DAMAGES: list[Callable[[StartFacts], StartFacts]] = [
    lambda f: second(f, room=FreeSpace(1000, 10, 1000, 500)),
    lambda f: second(f, health=Health.READ_ONLY),
    lambda f: second(f, meta=meta(node_id=9, directory_id="d2")),
    lambda f: second(f, checkpoints={"cleaner-offset-checkpoint": (CheckpointFault.MALFORMED, "line 1")}),
    lambda f: second(f, file_system="9p", cannot={"lock a file": "no"}),
    lambda f: replace(f, dirs=(*f.dirs, directory("bar", "/d2"))),
    lambda f: replace(f, dirs=(*f.dirs, directory("lost+found", "/d2"))),
    lambda f: replace(f, dirs=(*f.dirs, directory(f"a-1.{UUID}-future", "/d2"), directory("a-1", "/d2"))),
    lambda f: missing(f, here=(LOST,)),
    lambda f: missing(f, left=(LeftLogDir("/d9", None, "the journal", True, (LOST,)),)),
    lambda f: missing(f, hidden=(LOST,), unseen=("/d9",)),
]


def second(found: StartFacts, **changes: object) -> StartFacts:
    return replace(found, log_dirs=(found.log_dirs[0], replace(found.log_dirs[1], **changes)))  # type: ignore[arg-type]


def what(findings: list[Finding]) -> set[tuple[str, str, Severity]]:
    return {(f.why.code, f.path, f.severity) for f in findings}


@given(st.lists(st.sampled_from(DAMAGES), unique=True, max_size=4), st.sampled_from(sorted(WITHHELD)))
def test_a_doubt_adds_a_finding_and_removes_none(damages: list[Callable[..., StartFacts]], doubt: str) -> None:
    damaged = KNOWN
    for damage in damages:
        damaged = damage(damaged)
    known, doubted = what(check(damaged, NEW)), what(check(WITHHELD[doubt][0](damaged), NEW))
    gone = {(code, path) for code, path, _ in known} - {(code, path) for code, path, _ in doubted}
    assert not gone and doubted != known


def test_an_unknown_version_names_what_any_release_would_make_of_it() -> None:
    """Less is fatal, and nothing is left out."""
    damaged = first(replace(KNOWN, dirs=(*KNOWN.dirs, directory(f"z-0.{UUID}-stray"), directory("bar"))), levels=None)
    for version in ((2, 5, 1), (3, 5, 2), NEW):
        named = {(f.why.code, f.path) for f in check(damaged, version)}
        assert named <= {(f.why.code, f.path) for f in check(damaged, None)}


def test_not_known_is_not_different_absent_or_zero() -> None:
    """An id that was not read is not another one, room that was not read is not none, and a kind of file system that is
    not known is not a good one."""
    other = replace(KNOWN, dirs=(*KNOWN.dirs, directory("orders-0", "/d2", topic_id=OTHER_ID)))
    unread = unread_double(KNOWN)
    for version in ((3, 9, 1), NEW):
        (known,), (doubted,) = ([f for f in check(f, version) if "orders-0" in f.path] for f in (other, unread))
        assert (known.severity, doubted.severity) == (Severity.INFO, Severity.WARNING)
    assert check(first(KNOWN, room=None), NEW) == []
    assert [f.why.code for f in check(first(KNOWN, file_system=None), NEW)] == ["unfit-file-system"]


# Whether a log dir may leave: each obstacle of tests/unit/verdict/test_leaving.py withholds one of these.
LEAVE = {
    "obstacles": ("inventory", "assignments", "lock", "configuration"),
    "dirs": ("inventory",),
    "dirs[].partition": ("inventory",),
    "dirs[].allocated": ("inventory",),
    "moves": ("inventory",),
    "moves[].copied_bytes": ("inventory",),
    "moves[].bytes": ("inventory",),
    "reassignment": ("inventory", "assignments", "room"),
}


def test_every_figure_of_leave_has_a_row() -> None:
    assert figures(LeaveDoc) == LEAVE.keys()
