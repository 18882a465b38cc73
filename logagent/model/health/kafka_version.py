"""Which version of Kafka applies on this host. One rule for every caller.

That of the running broker's jars, else `kafka.version`, else that of the installed jars, else the oldest release that
the cluster's `metadata.version` allows. If the running broker contradicts the configured version, `check` and `doctor`
report it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

Version = tuple[int, ...]

OLDEST_SUPPORTED: Version = (2, 5, 0)
NEWEST_SUPPORTED: Version = (4, 3, 1)
# From this release on a broker accepts `-stray` dirs; earlier ones do not start with one in a log dir.
STRAY_SINCE: Version = (3, 6, 1)
# The first release that may run without ZooKeeper, and the first one whose KRaft brokers set aside what is not assigned
# to them. Those in between delete it when they start (`BrokerMetadataPublisher`; seen on 3.3.2, 3.5.2 and 3.6.0).
KRAFT_SINCE: Version = (2, 8, 0)
SETS_ASIDE_SINCE: Version = (3, 7, 0)

_RELEASE = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})(?:\.([0-9]{1,4}))?(?:\.[0-9]{1,4})?(?:-.*)?")
_MOST_MINOR = 9
"""The highest minor number of any release since 1.0: `3.91` is a typo."""


class VersionSource(StrEnum):
    RUNNING = "running"
    CONFIGURED = "configured"
    INSTALLED = "installed"
    METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class VersionLook:
    """The version from each source, None if it has none. `pid`: that of the running broker."""

    running: Version | None = None
    pid: int | None = None
    configured: Version | None = None
    installed: Version | None = None
    metadata: Version | None = None


@dataclass(frozen=True, slots=True)
class KafkaVersion:
    """`version` is None if no source has one: then the rules of the oldest release apply.

    contradicted: the configured version, if the running broker's differs. pid: that of the running broker.
    """

    version: Version | None = None
    source: VersionSource | None = None
    contradicted: Version | None = None
    pid: int | None = None

    @property
    def exact(self) -> Version | None:
        """The version, unless it is only a lower bound."""
        return None if self.source is VersionSource.METADATA else self.version

    @property
    def at_least(self) -> Version | None:
        """The lower bound of the version, if that is all that is known."""
        return self.version if self.source is VersionSource.METADATA else None

    def says(self) -> str | None:
        """Where the version comes from, in words."""
        match self.source:
            case VersionSource.RUNNING:
                return f"the jars of process {self.pid}"
            case VersionSource.CONFIGURED:
                return "kafka.version says so"
            case VersionSource.INSTALLED:
                return "the jars of the installation that this configuration belongs to"
            case VersionSource.METADATA:
                return "the metadata.version of its cluster"
        return None


UNKNOWN_VERSION = KafkaVersion()


def deletes_strays(version: Version | None, *, zookeeper: bool) -> bool:
    """Whether a broker may delete, at its start, every log that is not assigned to it. True also if the version (or a
    better bound of it) is unknown."""
    return not zookeeper and (version is None or KRAFT_SINCE <= version < SETS_ASIDE_SINCE)


def which_version(seen: VersionLook) -> KafkaVersion:
    """The version that applies, and its source."""
    if seen.running is not None:
        configured = seen.configured
        wrong = configured is not None and contradicts(configured, seen.running)
        return KafkaVersion(seen.running, VersionSource.RUNNING, configured if wrong else None, seen.pid)
    for version, source in (
        (seen.configured, VersionSource.CONFIGURED),
        (seen.installed, VersionSource.INSTALLED),
        (seen.metadata, VersionSource.METADATA),
    ):
        if version is not None:
            return KafkaVersion(version, source)
    return UNKNOWN_VERSION


def contradicts(configured: Version, running: Version) -> bool:
    """Whether different rules may apply to the two: they are different minor releases, or on different sides of 3.6.1.
    (`3.9` does not contradict a broker 3.9.1.)"""
    return configured[:2] != running[:2] or (configured < STRAY_SINCE) != (running < STRAY_SINCE)


def version_text(version: Version) -> str:
    return ".".join(map(str, version))


def parse_version(text: str) -> Version | None:
    """(3, 9, 1) for `3.9.1`, (3, 6, 0) for Confluent's `7.6.0-ccs`; None if neither has such a release, such as `39.1`:
    a version that is too high would permit actions that the broker does not survive."""
    match = _RELEASE.fullmatch(text)
    if match is None:
        return None
    version = apache_version(int(match[1]), int(match[2]), int(match[3] or 0))
    major, minor, _ = version
    return version if major <= NEWEST_SUPPORTED[0] + 1 and (major == 0 or minor <= _MOST_MINOR) else None


def apache_version(major: int, minor: int, patch: int) -> tuple[int, int, int]:
    """Translates Confluent's version numbers, from 5.0 on: 7.6.x is Apache 3.6, assumed to be its oldest patch."""
    if major < 5:
        return major, minor, patch
    if major == 5:
        return 2, minor, 0
    return (2, 6 + minor, 0) if major == 6 else (major - 4, minor, 0)
