"""Which version of Kafka holds on this host? One rule for everything that asks.

The jars of the running broker, else `kafka.version`, else the jars that are installed, else the oldest release that the
cluster's `metadata.version` allows. A configured version that the running broker contradicts is a finding of `check`
and `doctor`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Version = tuple[int, ...]

# From here on a broker keeps `-stray` dirs; before, it does not start with one in a log dir.
STRAY_SINCE: Version = (3, 6, 1)


class VersionSource(StrEnum):
    RUNNING = "running"
    CONFIGURED = "configured"
    INSTALLED = "installed"
    METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class VersionLook:
    """What every source says; None where it says nothing. `pid`: of the running broker with these jars."""

    running: Version | None = None
    pid: int | None = None
    configured: Version | None = None
    installed: Version | None = None
    metadata: Version | None = None


@dataclass(frozen=True, slots=True)
class KafkaVersion:
    """`version` is None where no source says anything: then the rules of the oldest release hold.

    contradicted: the configured version, where the running broker is another one. pid: of the running broker.
    """

    version: Version | None = None
    source: VersionSource | None = None
    contradicted: Version | None = None
    pid: int | None = None

    @property
    def exact(self) -> Version | None:
        """The version, unless it is only the oldest that it can be."""
        return None if self.source is VersionSource.METADATA else self.version

    @property
    def at_least(self) -> Version | None:
        """The oldest that it can be, where no more is known."""
        return self.version if self.source is VersionSource.METADATA else None

    def says(self) -> str | None:
        """Where the version is from, for a person."""
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


def which_version(seen: VersionLook) -> KafkaVersion:
    """The version that holds, and what says so."""
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
    """Whether another rule may hold for one than for the other: they are of different minor releases, or on different
    sides of 3.6.1. (`3.9` for a broker 3.9.1 is right as far as it goes.)"""
    return configured[:2] != running[:2] or (configured < STRAY_SINCE) != (running < STRAY_SINCE)


def version_text(version: Version) -> str:
    return ".".join(map(str, version))
