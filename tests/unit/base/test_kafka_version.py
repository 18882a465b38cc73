"""Which version of Kafka holds: the oldest that any source has, and never a newer one for a source that is missing."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from logagent.base.kafka_version import (
    UNKNOWN_VERSION,
    KafkaVersion,
    LastRun,
    Version,
    VersionSource,
    VersionsSeen,
    contradicts,
    deletes_strays,
    parse_version,
    which_version,
)

SOME: list[Version | None] = [None, (2, 7, 1), (3, 5, 2), (3, 6, 1), (3, 9, 1)]


def test_the_oldest_that_any_source_has_counts_and_what_contradicts_it_is_told() -> None:
    for running, last, configured, installed in product(SOME, repeat=4):
        found = which_version(VersionsSeen(running, 5, LastRun(last), configured, installed))
        named = {v for v in (running, configured, installed) if v is not None}
        if not named:
            assert replace(found, last_run=LastRun()) == UNKNOWN_VERSION  # what ran last permits nothing by itself
            continue
        if running is None and last is not None:
            named.add(last)
        assert found.version == min(named)
        assert {v for _, v in found.newer} == named - {min(named)}
        assert (found.doubt() is not None) is (len(named) > 1)
        assert found.says() is not None


def test_what_ran_last_counts_until_a_newer_one_runs() -> None:
    left_over = VersionsSeen(last_run=LastRun((3, 5, 2)), configured=(3, 9, 1))
    found = which_version(left_over)
    assert (found.version, found.source) == ((3, 5, 2), VersionSource.LAST_RUN)
    doubt = found.doubt()
    assert doubt is not None and doubt.fact == (
        "the broker last ran as 3.5.2, but kafka.version is 3.9.1: the older one counts"
    )
    assert "this ends once the new version has started" in doubt.hint
    upgraded = which_version(replace(left_over, running=(3, 9, 1), pid=5))
    assert (upgraded.version, upgraded.newer) == ((3, 9, 1), ())


def test_what_only_ran_last_is_no_version_but_is_named() -> None:
    found = which_version(VersionsSeen(last_run=LastRun((4, 3, 1), seen_ms=1000)))
    assert found.version is None and found.doubt() is None
    seen = found.only_ran_as(1000 + 3 * 3_600_000)
    assert seen is not None and "last ran as 4.3.1, seen 3 h ago," in seen.fact
    assert 'kafka.version = "4.3.1"' in seen.hint
    for known in (VersionsSeen(last_run=LastRun((4, 3, 1)), configured=(4, 3, 1)), VersionsSeen()):
        assert which_version(known).only_ran_as(0) is None


def test_what_cannot_be_read_of_the_last_run_is_no_version_at_all() -> None:
    unread = LastRun(unread="/s/version-seen.json, which says what ran last, is damaged", file="/s/version-seen.json")
    found = which_version(VersionsSeen(last_run=unread, configured=(3, 9, 1), installed=(3, 9, 1), metadata=(3, 9, 0)))
    assert found.version is None and found.exact is None
    doubt = found.doubt()
    assert doubt is not None and "is damaged" in doubt.fact and "/s/version-seen.json" in doubt.hint
    assert which_version(VersionsSeen(running=(3, 9, 1), last_run=unread)).version == (3, 9, 1)


def test_of_what_is_as_old_the_source_that_knows_best_counts() -> None:
    found = which_version(VersionsSeen(running=(3, 9, 1), pid=5, configured=(3, 9, 0)))
    assert found == KafkaVersion((3, 9, 1), VersionSource.RUNNING, pid=5)
    found = which_version(VersionsSeen(last_run=LastRun((3, 9, 0)), configured=(3, 9, 1)))
    assert (found.version, found.source) == ((3, 9, 1), VersionSource.CONFIGURED)


def test_what_the_metadata_version_allows_is_only_the_oldest_that_it_can_be() -> None:
    found = which_version(VersionsSeen(metadata=(3, 7, 0)))
    assert (found.version, found.exact, found.at_least) == ((3, 7, 0), None, (3, 7, 0))
    assert found.says() is not None
    # It contradicts what is older, and nothing that is newer.
    assert which_version(VersionsSeen(configured=(3, 9, 1), metadata=(3, 5, 0))).newer == ()
    assert which_version(VersionsSeen(last_run=LastRun((3, 9, 1)), metadata=(3, 7, 0))).newer == ()
    for older in (
        VersionsSeen(configured=(3, 5, 2), metadata=(3, 9, 0)),
        VersionsSeen(last_run=LastRun((3, 5, 2)), metadata=(3, 9, 0)),
    ):
        found = which_version(older)
        assert (found.version, found.newer) == ((3, 5, 2), ((VersionSource.METADATA, (3, 9, 0)),))
    assert UNKNOWN_VERSION.exact is None


def test_an_older_version_is_only_a_lower_bound_where_another_source_has_a_newer_one() -> None:
    """`check` must not call fatal what only a version that is gone does not survive: `prestart --strict` would keep an
    upgraded broker down."""
    for upgraded in (
        VersionsSeen(last_run=LastRun((3, 5, 2)), installed=(3, 9, 1)),
        VersionsSeen(last_run=LastRun((3, 5, 2)), configured=(3, 9, 1)),
    ):
        found = which_version(upgraded)
        assert (found.exact, found.at_least) == (None, (3, 5, 2))
    for configured in ((3, 5, 2), (4, 3, 1)):  # what runs is what it is
        found = which_version(VersionsSeen(running=(3, 9, 1), pid=5, configured=configured))
        assert (found.exact, found.at_least) == ((3, 9, 1), None)


def test_every_version_that_is_possible_is_asked_whether_it_deletes() -> None:
    found = which_version(VersionsSeen(running=(3, 5, 2), configured=(2, 7, 1)))
    assert [deletes_strays(v, zookeeper=False) for v in found.possible] == [False, True]


@pytest.mark.parametrize(
    ("configured", "running", "wrong"),
    [
        ((3, 9, 1), (3, 9, 1), False),
        ((3, 9, 0), (3, 9, 1), False),
        ((3, 8, 0), (3, 9, 1), True),
        ((4, 9, 1), (3, 9, 1), True),
        # The one patch release at which a rule of ours changes.
        ((3, 6, 1), (3, 6, 0), True),
        ((3, 6, 0), (3, 6, 2), True),
        ((3, 6, 1), (3, 6, 2), False),
    ],
)
def test_a_configured_version_that_the_running_broker_contradicts(
    configured: Version, running: Version, wrong: bool
) -> None:
    assert contradicts(configured, running) is wrong
    found = which_version(VersionsSeen(running=running, configured=configured))
    assert found.version == (min(running, configured) if wrong else running)
    assert bool(found.newer) is wrong


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("3.9.1", (3, 9, 1)),
        ("4.0", (4, 0, 0)),
        ("2.8.2", (2, 8, 2)),
        ("0.10.2.1", (0, 10, 2)),
        ("7.6.0-ccs", (3, 6, 0)),
        ("7.9.1", (3, 9, 0)),
        ("8.1.0", (4, 1, 0)),
        ("5.5.0", (2, 5, 0)),
        ("4.4.0", (4, 4, 0)),
    ],
)
def test_releases_of_kafka_and_of_confluent(text: str, version: Version) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    "text",
    ["39.1", "3.91", "43.1", "4.31", "13.9.1", "391", "3", "3.9.", "3..9", "v3.9.1", "3,9,1", "3.9.1 ", "3.9.\u0661",
     "3." + "9" * 5000, "7.61", "", "-", "3.9.1\n"],
)  # fmt: skip
def test_what_no_release_is_called_is_no_version(text: str) -> None:
    assert parse_version(text) is None


@pytest.mark.parametrize(
    ("version", "deletes"),
    [(None, True), ((2, 7, 1), False), ((2, 8, 0), True), ((3, 3, 2), True), ((3, 6, 2), True), ((3, 7, 0), False)],
)
def test_which_brokers_may_delete_what_is_not_assigned_to_them(version: Version | None, deletes: bool) -> None:
    assert deletes_strays(version, zookeeper=False) is deletes
    assert not deletes_strays(version, zookeeper=True)
