"""Which version of Kafka holds: one rule, in this order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logagent.model.health.kafka_version import (
    UNKNOWN_VERSION,
    Version,
    VersionLook,
    VersionSource,
    contradicts,
    deletes_strays,
    parse_version,
    which_version,
)

ALL = VersionLook(running=(3, 9, 1), pid=5, configured=(3, 9, 0), installed=(4, 0, 0), metadata=(3, 7, 0))


def test_the_sources_in_their_order() -> None:
    seen, order = ALL, []
    for source, gone in (
        (VersionSource.RUNNING, "running"),
        (VersionSource.CONFIGURED, "configured"),
        (VersionSource.INSTALLED, "installed"),
        (VersionSource.METADATA, "metadata"),
    ):
        found = which_version(seen)
        assert found.source is source and found.says() is not None
        order.append(found.version)
        seen = replace(seen, **{gone: None})
    assert order == [(3, 9, 1), (3, 9, 0), (4, 0, 0), (3, 7, 0)]
    assert which_version(seen) == UNKNOWN_VERSION and UNKNOWN_VERSION.says() is None


def test_what_the_metadata_version_allows_is_only_the_oldest_that_it_can_be() -> None:
    found = which_version(VersionLook(metadata=(3, 7, 0)))
    assert (found.version, found.exact, found.at_least) == ((3, 7, 0), None, (3, 7, 0))
    assert which_version(ALL).at_least is None
    assert UNKNOWN_VERSION.exact is None


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
    found = which_version(VersionLook(running=running, configured=configured))
    assert found.version == running
    assert found.contradicted == (configured if wrong else None)


def test_a_stopped_broker_contradicts_nothing() -> None:
    assert which_version(VersionLook(configured=(3, 5, 2), installed=(3, 9, 1))).contradicted is None


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
