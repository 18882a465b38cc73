"""A finding: one thing that `check` or `doctor` reports, which releases of Kafka it concerns, and what to change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from logagent.base.kafka_version import NEWEST_SUPPORTED, OLDEST_SUPPORTED, Version, version_text
from logagent.base.records import Reason


class Severity(StrEnum):
    """How bad it is.

    FATAL: for `check`, this broker would not start, would take the log dir offline, or would destroy data of others;
    for `doctor`, something that logagent needs does not work. WARNING: it works, but something can go wrong or could be
    better; also what is fatal only for some releases, if the release is not known. INFO: worth knowing, nothing to do.
    WORKS: checked and in order (`doctor` only).
    """

    FATAL = "fatal"
    WARNING = "warning"
    INFO = "info"
    WORKS = "works"


_ORDER = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Releases:
    """The releases from `since` (None: the oldest) up to but not including `before` (None: no end)."""

    since: Version | None = None
    before: Version | None = None

    def includes(self, version: Version) -> bool:
        return (self.since is None or version >= self.since) and (self.before is None or version < self.before)

    def reaches(self, oldest: Version | None) -> bool:
        """Whether any release from `oldest` on is included."""
        return self.before is None or self.before > (oldest or OLDEST_SUPPORTED)

    def covers(self, oldest: Version | None) -> bool:
        """Whether every supported release from `oldest` on is included."""
        first = oldest or OLDEST_SUPPORTED
        return (self.since is None or self.since <= first) and (self.before is None or self.before > NEWEST_SUPPORTED)

    def __str__(self) -> str:
        """`all`, `< 3.6.1`, `>= 3.7.0, < 3.7.1`."""
        if self.covers(None):
            return "all"
        low = f">= {version_text(self.since)}" if self.since is not None else ""
        high = f"< {version_text(self.before)}" if self.before is not None else ""
        return ", ".join(part for part in (low, high) if part)


ALL = Releases()


class Area(StrEnum):
    """The part of a host that a finding of `doctor` is about."""

    CONFIGURATION = "configuration"
    BROKER = "broker"
    RIGHTS = "rights"
    LOG_DIRS = "log dirs"
    FILES = "files"
    SERVICE = "service"
    DAEMON = "daemon"
    STATE_DIR = "state dir"
    ASSIGNMENTS = "assignments"
    METRICS = "metrics"
    INSTANCES = "instances"


@dataclass(frozen=True, slots=True)
class Remedy:
    """The exact change: put `line` (it may contain newlines) into `file` below `section`, replacing line `number` if
    that is known. Without a file, `line` is a command to run as root. then: what makes the change effective."""

    line: str
    file: str | None = None
    number: int | None = None
    section: str | None = None
    then: str | None = None

    @property
    def where(self) -> str:
        """`FILE:NUMBER, [section]`, or how to run it."""
        if self.file is None:
            return "as root"
        place = self.file if self.number is None else f"{self.file}:{self.number}"
        return place if self.section is None else f"{place}, [{self.section}]"


@dataclass(frozen=True, slots=True)
class Finding:
    """`path` is what it is about, `change` the exact change for the hint of `why`."""

    severity: Severity
    path: str
    why: Reason
    releases: Releases = ALL
    area: Area | None = None
    change: Remedy | None = None


def finding(
    s: Severity, code: str, path: str, fact: str, hint: str = "", releases: Releases = ALL, change: Remedy | None = None
) -> Finding:
    return Finding(s, path, Reason(fact, hint, code), releases, change=change)


fatal = partial(finding, Severity.FATAL)
warning = partial(finding, Severity.WARNING)
info = partial(finding, Severity.INFO)
works = partial(finding, Severity.WORKS)


def any_fatal(findings: Iterable[Finding]) -> bool:
    return any(f.severity is Severity.FATAL for f in findings)


def concerning(
    findings: Iterable[Finding], version: Version | None, *, at_least: Version | None = None
) -> list[Finding]:
    """The findings that concern `version`, the worst first, then by path.

    If the version is not known, those are kept that concern any release from `at_least` on (None: any supported one),
    and what is fatal for only some of these becomes a warning: it may not apply to this broker.
    """
    kept = []
    for f in findings:
        if version is not None:
            if f.releases.includes(version):
                kept.append(f)
        elif f.releases.reaches(at_least):
            fatal_for_some = f.severity is Severity.FATAL and not f.releases.covers(at_least)
            kept.append(replace(f, severity=Severity.WARNING) if fatal_for_some else f)
    return sorted(kept, key=lambda f: (_ORDER[f.severity], f.path, f.why.code))
