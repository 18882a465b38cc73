"""`check` for the release that is found, and for one that is named: what the metadata log has finalised is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host import Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Of Kafka 3.9.1, with metadata.version 21."""
    return Host.from_disk(tmp_path)


def features(host: Host, *options: str) -> tuple[int, list[tuple[str, str]]]:
    ran = host.run("check", "--json", *options)
    found = [f for f in ran.json["findings"] if "feature" in f["code"]]
    return ran.status, [(f["severity"], f["code"]) for f in found]


def test_a_release_that_is_named_is_compared_up_and_down(host: Host) -> None:
    assert features(host, "--kafka-version", "3.7.2") == (6, [("fatal", "feature-unsupported")] * 2)  # and bootstrap
    for version in ("3.9.1", "4.0.0", "4.4.0"):
        assert ("fatal", "feature-unsupported") not in features(host, "--kafka-version", version)[1]
    assert features(host, "--kafka-version", "4.6.0")[1] == [("warning", "features-not-compared")]


def test_the_release_that_is_found_is_compared_as_well(host: Host) -> None:
    """Where the log contradicts what is configured, either may be wrong: a warning of each."""
    host.configure(**{"kafka.version": "3.7.2"})
    status, found = features(host)
    assert ("warning", "feature-unsupported") in found
    assert [(severity, _) for severity, _ in found if severity == "fatal"] == []
    codes = {f["code"] for f in host.run("check", "--json").json["findings"]}
    assert "version-contradicted" in codes and status != 6
    host.configure(**{"kafka.version": "3.9.1"})
    assert features(host)[1] == []
