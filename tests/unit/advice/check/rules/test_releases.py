"""Whether a release can read what is finalised: from hand-made levels, and from the table of what releases support."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.advice.check.rules.linter import check
from logagent.advice.check.rules.releases import QUORUM_STATE_COUNTS
from logagent.advice.check.rules.start_facts import Mode, StartFacts, StartLogDirFacts, StartServerFacts
from logagent.advice.finding import Finding, Severity
from logagent.base.kafka_version import Version
from logagent.kafka.image import StartLevels, oldest_release
from logagent.kafka.release_table import METADATA_VERSIONS, RELEASES

CONTROLLER = StartServerFacts(Mode.KRAFT, 1, None, "/meta", None, runs_controller=True)
BROKER = replace(CONTROLLER, runs_controller=False)
CODES = ("feature-unsupported", "features-not-compared", "format-ignored")


def findings(
    levels: StartLevels, version: Version | None, server: StartServerFacts = CONTROLLER, at_least: Version | None = None
) -> list[Finding]:
    meta = StartLogDirFacts("/meta", "/meta", holds_logs=False, holds_metadata=True, levels=levels)
    found = check(StartFacts(server, (meta,)), version, at_least=at_least)
    return [f for f in found if f.why.code in CODES]


def said(*args: object, **named: object) -> list[tuple[str, str, str]]:
    return [(f.severity.value, f.why.code, f.path) for f in findings(*args, **named)]  # type: ignore[arg-type]


def log(**levels: int | tuple[int, ...]) -> StartLevels:
    """`metadata=30` for `metadata.version` 30."""
    of = {f"{name.replace('_', '.')}.version": v if isinstance(v, tuple) else (v,) for name, v in levels.items()}
    return StartLevels(of)


LOG, BOOTSTRAP = "/meta/__cluster_metadata-0", "/meta/bootstrap.checkpoint"
REFUSED = [("fatal", "feature-unsupported", LOG)]


@pytest.mark.parametrize(
    ("level", "version", "starts"),
    [
        (30, (4, 3, 1), True),
        (30, (3, 9, 1), False),
        (33, (4, 3, 1), False),
        (31, (4, 3, 1), False),  # it has this level, as one that is not stable
        (33, (4, 4, 0), True),
        (21, (3, 7, 0), False),
        (6, (3, 9, 1), True),
        (6, (4, 0, 0), False),
        (7, (4, 4, 0), True),
    ],
)
def test_metadata_version_is_compared_with_the_release(level: int, version: Version, starts: bool) -> None:
    assert said(log(metadata=level), version) == ([] if starts else REFUSED)


@given(level=st.integers(1, 40), row=st.sampled_from(sorted(RELEASES)), patch=st.integers(0, 9))
def test_a_level_is_fatal_where_the_table_does_not_have_it(level: int, row: tuple[int, int], patch: int) -> None:
    low, high = RELEASES[row].features["metadata.version"]
    assert said(log(metadata=level), (*row, patch)) == ([] if low <= level <= high else REFUSED)


@given(
    name=st.sampled_from(sorted({name for row in RELEASES.values() for name in row.features} - {"metadata.version"})),
    level=st.integers(0, 4),
    row=st.sampled_from(sorted(RELEASES)),
)
def test_every_feature_is_compared(name: str, level: int, row: tuple[int, int]) -> None:
    low, high = RELEASES[row].features.get(name, (0, 0))
    metadata = RELEASES[row].features["metadata.version"][1]
    levels = StartLevels({"metadata.version": (metadata,), name: (level,)})
    assert said(levels, (*row, 1)) == ([] if low <= level <= high else REFUSED)


def test_a_release_that_is_not_known_exactly_is_only_warned_of() -> None:
    assert said(log(metadata=30), None, at_least=(3, 9, 1)) == [("warning", "feature-unsupported", LOG)]
    assert said(log(metadata=30), None, at_least=(4, 3, 0)) == []
    (finding,) = findings(log(metadata=30), None)
    assert finding.severity is Severity.WARNING and "Kafka before 4.3" in finding.why.fact


def test_no_row_is_said_and_not_silence() -> None:
    (finding,) = findings(log(metadata=30, share=1), (4, 5, 0))
    assert (finding.severity, finding.why.code) == (Severity.WARNING, "features-not-compared")
    assert "metadata.version 30 (4.3-IV0), share.version 1" in finding.why.fact and "Kafka 4.5.0" in finding.why.fact
    # What is newer than all that is known is refused by all of it.
    assert said(log(metadata=99), (4, 4, 0)) == REFUSED
    # Older releases than the table has cannot support what its oldest does not.
    assert said(log(metadata=30), (3, 4, 0)) == [*REFUSED, ("warning", "features-not-compared", LOG)]


def test_a_feature_that_no_release_has_is_said() -> None:
    (finding,) = findings(log(metadata=30, telepathy=1), (4, 3, 1))
    assert finding.why.code == "features-not-compared" and "telepathy.version 1" in finding.why.fact
    assert findings(log(metadata=30, telepathy=0), (4, 3, 1)) == []


def test_what_could_not_be_read_is_said_for_every_release() -> None:
    for version in ((3, 9, 1), (4, 4, 0), None):
        (finding,) = findings(StartLevels({"metadata.version": (7,)}, unread="torn"), version)
        assert (finding.severity, finding.why.code) == (Severity.WARNING, "features-not-compared")
    (finding,) = findings(StartLevels(), (4, 3, 1))
    assert "no metadata.version" in finding.why.fact


def test_a_broker_that_has_never_run_has_nothing_to_compare_and_says_so() -> None:
    empty = StartLevels(empty=True)
    assert said(empty, (4, 3, 1), BROKER) == [("info", "features-not-compared", LOG)]
    assert said(empty, (4, 3, 1)) == []


def test_what_was_taken_back_is_fatal_for_a_controller_and_not_for_a_broker() -> None:
    past = log(metadata=21, group=(1, 0))
    (finding,) = findings(past, (3, 9, 1))
    assert finding.severity is Severity.FATAL and "no longer finalised" in finding.why.fact
    assert "snapshot" in finding.why.hint and "downgrade" not in finding.why.hint
    assert said(past, (3, 9, 1), BROKER) == [("warning", "feature-unsupported", LOG)]
    assert said(past, (4, 3, 1)) == []


def test_one_finding_for_a_feature_however_often_it_was_changed() -> None:
    assert said(log(metadata=(29, 28, 30)), (3, 9, 1)) == REFUSED
    assert said(log(metadata=(30, 29, 21)), (3, 9, 1)) == REFUSED


def test_the_bootstrap_checkpoint_counts_where_a_release_has_no_name_for_its_level() -> None:
    levels = log(metadata=19)._replace(bootstrap={"metadata.version": (21,), "group.version": (1,)})
    (finding,) = findings(levels, (3, 7, 0))
    assert (finding.severity, finding.path) == (Severity.FATAL, BOOTSTRAP) and "move the file" in finding.why.hint
    assert findings(levels, (3, 7, 0), BROKER)[-1].path == BOOTSTRAP
    assert findings(levels, (3, 8, 1)) == []  # it has a name for 21, if not a stable one
    assert findings(levels, (3, 9, 1)) == []
    newer = log(metadata=21)._replace(bootstrap={"metadata.version": (30,)})
    assert said(newer, (3, 9, 1)) == [("fatal", "feature-unsupported", BOOTSTRAP)]
    for version in ((4, 0, 2), (4, 1, 0), (4, 4, 0)):
        assert findings(newer, version) == []
    older = log(metadata=21)._replace(bootstrap={"metadata.version": (6,)})
    assert findings(older, (3, 9, 1)) == findings(older, (4, 3, 1)) == []


def test_of_a_host_that_was_only_formatted_all_that_the_format_asked_for_counts() -> None:
    levels = StartLevels(bootstrap={"metadata.version": (21,), "group.version": (1,)}, empty=True)
    (finding,) = findings(levels, (3, 9, 1))
    assert finding.path == BOOTSTRAP and "group.version" in finding.why.fact and "format" in finding.why.hint
    assert said(levels, (3, 9, 1), BROKER) == [("info", "features-not-compared", LOG)]
    newest = levels._replace(bootstrap={"metadata.version": (30,)})
    assert said(newest, (4, 1, 0)) == [("fatal", "feature-unsupported", BOOTSTRAP)]
    newer = StartLevels(formatted={"metadata.version": (33,)}, empty=True)
    assert said(newer, (4, 3, 1)) == [("warning", "format-ignored", LOG)]
    assert said(newer, (4, 4, 0)) == []


@pytest.mark.parametrize(
    ("level", "version", "hint"),
    [
        (21, (3, 7, 0), "downgrade --metadata 3.7-IV4"),
        (29, (4, 1, 0), "downgrade --metadata 4.1-IV1"),
        (30, (4, 1, 0), "stay with a release that supports metadata.version 30"),
        (33, (4, 3, 1), "stay with a release that supports metadata.version 33"),
        (29, (3, 9, 1), "stay with a release that supports metadata.version 29"),  # 23 changed what is written
        (6, (4, 3, 1), "upgrade --metadata 3.3-IV3"),
    ],
)
def test_the_remedy_is_one_that_kafka_permits(level: int, version: Version, hint: str) -> None:
    (finding,) = findings(log(metadata=level), version)
    assert hint in finding.why.hint


def test_nobody_lowers_features_where_metadata_version_cannot_be() -> None:
    hints = {f.why.hint for f in findings(log(metadata=30, group=1, transaction=2), (3, 9, 1))}
    assert len(hints) == 1 and "downgrade" not in hints.pop()
    (finding,) = findings(log(metadata=21, group=1), (3, 9, 1))
    assert "downgrade --feature group.version=0" in finding.why.hint
    (finding,) = findings(log(metadata=21, kraft=1), (3, 8, 0))[1:]
    assert "kraft.version cannot be lowered" in finding.why.hint


def test_a_zookeeper_mode_broker_has_no_features() -> None:
    assert findings(log(metadata=30), (3, 9, 1), replace(BROKER, mode=Mode.ZOOKEEPER)) == []


def test_the_level_says_the_oldest_release() -> None:
    expected = {0: None, 1: (3, 0, 0), 8: (3, 4, 0), 19: (3, 7, 0), 21: (3, 9, 0), 25: (4, 0, 0), 33: (4, 4, 0)}
    assert {level: oldest_release(level) for level in expected} == expected
    assert oldest_release(99) == oldest_release(max(METADATA_VERSIONS))


def test_a_file_that_another_release_cannot_read_has_a_rule_of_its_own() -> None:
    """All of these releases read the same formats of logs, indexes and checkpoints, so a change between them needs no
    finding. Where one differs, there is one."""
    by_file = {name: {row.files[name] for row in RELEASES.values()} for name in next(iter(RELEASES.values())).files}
    assert {name for name, versions in by_file.items() if len(versions) > 1} == {"quorum-state"}
    dynamic = [minor for minor, row in RELEASES.items() if row.files["quorum-state"][1] == 1]
    assert dynamic == [minor for minor in RELEASES if minor >= QUORUM_STATE_COUNTS[:2]]
