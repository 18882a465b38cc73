"""What `check` finds, and which releases of Kafka a finding concerns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

Version = tuple[int, ...]

OLDEST_SUPPORTED: Version = (2, 5, 0)
NEWEST_SUPPORTED: Version = (4, 3, 1)


class Severity(StrEnum):
    """FATAL: this broker would not start, would take the log dir offline, or would destroy what is not its own.

    WARNING: it starts, but something will go wrong or data can be lost later; also what would be fatal for some
    releases where it is not known which one runs. INFO: worth knowing, nothing to do before a start.
    """

    FATAL = "fatal"
    WARNING = "warning"
    INFO = "info"


_ORDER = {Severity.FATAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


@dataclass(frozen=True, slots=True)
class Releases:
    """From `since` on (None: from the oldest) and before `before` (None: to the newest)."""

    since: Version | None = None
    before: Version | None = None

    def includes(self, version: Version) -> bool:
        return (self.since is None or version >= self.since) and (self.before is None or version < self.before)

    def reaches(self, oldest: Version | None) -> bool:
        """Whether there is such a release among those from `oldest` on."""
        return self.before is None or self.before > (oldest or OLDEST_SUPPORTED)

    def covers(self, oldest: Version | None) -> bool:
        """Whether it is every supported release from `oldest` on."""
        first = oldest or OLDEST_SUPPORTED
        return (self.since is None or self.since <= first) and (self.before is None or self.before > NEWEST_SUPPORTED)

    def __str__(self) -> str:
        if self.covers(None):
            return "all"
        low = f">= {_dotted(self.since)}" if self.since is not None else ""
        high = f"< {_dotted(self.before)}" if self.before is not None else ""
        return ", ".join(part for part in (low, high) if part)


ALL = Releases()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `check` has to say: `path` is what it is about, `hint` what the operator can do."""

    severity: Severity
    code: str
    path: str
    releases: Releases
    says: str
    hint: str

    @property
    def kafka_versions(self) -> str:
        """The releases in words: `all`, `< 3.6.1`, `>= 3.7.0, < 3.7.1`."""
        return str(self.releases)


def concerning(
    findings: Iterable[Finding], version: Version | None, *, at_least: Version | None = None
) -> list[Finding]:
    """The findings that concern `version`, the worst first, then by path.

    Where the version is not known, those stay that concern any release from `at_least` on (None: any supported one),
    and what is fatal for some of these releases only becomes a warning: it cannot be claimed of this broker.
    """
    kept = []
    for f in findings:
        if version is not None:
            if f.releases.includes(version):
                kept.append(f)
        elif f.releases.reaches(at_least):
            fatal_for_some = f.severity is Severity.FATAL and not f.releases.covers(at_least)
            kept.append(replace(f, severity=Severity.WARNING) if fatal_for_some else f)
    return sorted(kept, key=lambda f: (_ORDER[f.severity], f.path, f.code))


def _dotted(version: Version | None) -> str:
    return ".".join(map(str, version or ()))
