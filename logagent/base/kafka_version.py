"""Which version of Kafka applies on this host. One rule for every caller.

The oldest of: what runs now (its jars) or else ran last, `kafka.version`, the installed jars; if there is none of
these, the oldest release that the cluster's `metadata.version` allows. Each can be out of date (`kafka.version` is left
over from a rollback), and what a newer release survives may keep an older one from starting. If they contradict each
other, guards, `check` and `doctor` say so.

What ran last may only lower it: alone it permits nothing, because the next start may be a rollback.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from logagent.base.records import Reason
from logagent.base.units import rough


def version_text_or_none(version: Version | None) -> str | None:
    return version_text(version) if version is not None else None


Version = tuple[int, ...]

OLDEST_SUPPORTED: Version = (2, 5, 0)
# From this release on a broker writes its cluster.id into meta.properties, at each start and into every log dir.
CLUSTER_ID_SINCE: Version = (2, 4, 0)
NEWEST_SUPPORTED: Version = (4, 4, 0)
# From this release on a broker accepts `-stray` dirs; earlier ones do not start with one in a log dir.
STRAY_SINCE: Version = (3, 6, 1)
# The first release that may run without ZooKeeper, and the first one whose KRaft brokers set aside what is not assigned
# to them. Those in between delete it when they start (`BrokerMetadataPublisher`; seen on 3.3.2, 3.5.2 and 3.6.0).
KRAFT_SINCE: Version = (2, 8, 0)
SETS_ASIDE_SINCE: Version = (3, 7, 0)
# From this release on a broker has `cordoned.log.dirs` (KIP-1066).
CORDONS_SINCE: Version = (4, 3, 0)

_RELEASE = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})(?:\.([0-9]{1,4}))?(?:\.[0-9]{1,4})?(?:-.*)?")
_MOST_MINOR = 9
"""The highest minor number of any release since 1.0: `3.91` is a typo."""


class VersionSource(StrEnum):
    RUNNING = "running"
    LAST_RUN = "last-run"
    CONFIGURED = "configured"
    INSTALLED = "installed"
    METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class LastRun:
    """The version that this broker had when it last ran, as this state dir remembers it in `file`. `unread`: why it
    cannot be told (there is a memory, and it is of no use); never if there is none. `seen_ms`: when it was last seen to
    run, to the hour; None if that was not noted."""

    version: Version | None = None
    unread: str | None = None
    file: str = ""
    seen_ms: int | None = None


@dataclass(frozen=True, slots=True)
class VersionsSeen:
    """The version from each source, None if it has none. `pid`: that of the running broker."""

    running: Version | None = None
    pid: int | None = None
    last_run: LastRun = LastRun()
    configured: Version | None = None
    installed: Version | None = None
    metadata: Version | None = None


Sourced = tuple[VersionSource, Version]


@dataclass(frozen=True, slots=True)
class KafkaVersion:
    """`version` is None if no source has one: then the rules of the oldest release apply.

    newer: the sources that contradict it, and what they have. pid: that of the running broker. last_run: what is
    remembered, if nothing runs.
    """

    version: Version | None = None
    source: VersionSource | None = None
    newer: tuple[Sourced, ...] = ()
    pid: int | None = None
    last_run: LastRun = LastRun()

    @property
    def exact(self) -> Version | None:
        """The version for which a start is checked: what runs, or what no source contradicts. None if only a lower
        bound is known: what keeps an older release from starting may not concern the one that comes."""
        running = next((v for source, v in self.newer if source is VersionSource.RUNNING), None)
        if running is not None or self.source is VersionSource.RUNNING:
            return running or self.version
        return None if self.newer or self.source is VersionSource.METADATA else self.version

    @property
    def at_least(self) -> Version | None:
        """The lower bound of the version, if that is all that is known."""
        return self.version if self.exact is None else None

    @property
    def possible(self) -> tuple[Version | None, ...]:
        """Every version that some source has, as far as different rules may apply; the one that counts is the first."""
        return (self.version, *(version for _, version in self.newer))

    def surely_before(self, release: Version) -> bool:
        """Whether it is known, and no source has `release` or a later one. For what only older releases permit, where
        the oldest version is not the strictest."""
        return self.version is not None and all(v is not None and v < release for v in self.possible)

    def says(self) -> str | None:
        """Where the version comes from, in words."""
        match self.source:
            case VersionSource.RUNNING:
                return f"the jars of process {self.pid}"
            case VersionSource.LAST_RUN:
                return "what the broker last ran as"
            case VersionSource.CONFIGURED:
                return "kafka.version says so"
            case VersionSource.INSTALLED:
                return "the jars of the installation that this configuration belongs to"
            case VersionSource.METADATA:
                return "the metadata.version of its cluster"
        return None

    def right_setting(self) -> Version | None:
        """What `kafka.version` should be, if it contradicts the running broker; only that is known to be right."""
        if self.source is VersionSource.RUNNING:
            return self.version if any(source is VersionSource.CONFIGURED for source, _ in self.newer) else None
        runs = (version for source, version in self.newer if source is VersionSource.RUNNING)
        return next(runs, None) if self.source is VersionSource.CONFIGURED else None

    def only_ran_as(self, now_ms: int) -> Reason | None:
        """That the version is unknown, but not what ran last; None if that is not so."""
        ran = self.last_run.version
        if self.version is not None or ran is None:
            return None
        seen_ms = self.last_run.seen_ms
        seen = f", seen {rough(max(now_ms - seen_ms, 0))} ago," if seen_ms is not None else ","
        fact = f"the broker last ran as {version_text(ran)}{seen} and nothing says what it is now"
        return Reason(fact, f'set kafka.version = "{version_text(ran)}" if it still is')

    def doubt(self) -> Reason | None:
        """Why the version is older than some source says, or unknown; None if no source contradicts another."""
        if self.last_run.unread is not None and self.version is None:
            hint = f"start the broker: logagent notes its version again; or remove {self.last_run.file} if"
            return Reason(self.last_run.unread, f"{hint} kafka.version is right")
        if not self.newer or self.version is None or self.source is None:
            return None
        newer = " and ".join(self._described(source, version) for source, version in self.newer)
        fact = f"{self._described(self.source, self.version)}, but {newer}: the older one counts"
        if self.source is VersionSource.LAST_RUN:
            hint = (
                "correct kafka.version if it is left over; after an upgrade this ends once the new version has started"
                " and logagent has seen it serve (the daemon in any mode, or a command with --execute), which it notes"
                f" in {self.last_run.file} (if it cannot ask the broker, remove that file once the new version serves)"
            )
        elif self.source is VersionSource.CONFIGURED:
            hint = "correct kafka.version"
        elif any(source is VersionSource.CONFIGURED for source, _ in self.newer):
            hint = "correct kafka.version, or where the older one is still installed"
        else:
            hint = "this ends once the broker has started as what it is to be, and logagent has seen it serve"
        return Reason(fact, hint)

    def _described(self, source: VersionSource, version: Version) -> str:
        match source:
            case VersionSource.RUNNING:
                words = f"process {self.pid} runs"
            case VersionSource.LAST_RUN:
                words = "the broker last ran as"
            case VersionSource.CONFIGURED:
                words = "kafka.version is"
            case VersionSource.INSTALLED:
                words = "the jars of its installation are"
            case VersionSource.METADATA:
                words = "the metadata.version of its cluster needs"
        return f"{words} {version_text(version)}"


UNKNOWN_VERSION = KafkaVersion()


def deletes_strays(version: Version | None, *, zookeeper: bool) -> bool:
    """Whether a broker may delete, at its start, every log that is not assigned to it. True also if the version (or a
    better bound of it) is unknown."""
    return not zookeeper and (version is None or KRAFT_SINCE <= version < SETS_ASIDE_SINCE)


def which_version(seen: VersionsSeen) -> KafkaVersion:
    """The version that applies, its source, and the sources that contradict it."""
    last_run = seen.last_run if seen.running is None else LastRun()
    if last_run.unread is not None:
        return KafkaVersion(last_run=last_run)
    named = [
        (source, version)
        for source, version in (
            (VersionSource.RUNNING, seen.running),
            (VersionSource.CONFIGURED, seen.configured),
            (VersionSource.INSTALLED, seen.installed),
        )
        if version is not None
    ]
    ran, bound = last_run.version, seen.metadata
    if ran is not None and (named or (bound is not None and ran < bound)):
        named.append((VersionSource.LAST_RUN, ran))
    if not named:
        return KafkaVersion(bound, VersionSource.METADATA) if bound is not None else KafkaVersion(last_run=last_run)
    oldest = min(version for _, version in named)
    # Of those that are as good as the oldest, the one that knows best: `3.9` is a broker 3.9.1.
    source, version = next(pair for pair in named if not contradicts(pair[1], oldest))
    if bound is not None and bound > version:  # a lower bound contradicts only what is older
        named.append((VersionSource.METADATA, bound))
    newer = tuple(pair for pair in named if contradicts(pair[1], version))
    return KafkaVersion(version, source, newer, seen.pid, last_run)


def contradicts(one: Version, other: Version) -> bool:
    """Whether different rules may apply to the two: they are different minor releases, or on different sides of 3.6.1.
    (`3.9` does not contradict a broker 3.9.1.)"""
    return one[:2] != other[:2] or (one < STRAY_SINCE) != (other < STRAY_SINCE)


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
