"""What waits in the state dir to be sent to the fleet store: bounded, the oldest are dropped first."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from logagent.errors import LogAgentError
from logagent.store import landing_files as landing
from logagent.store.landing_files import Claim

SPOOL_BYTES = 256 << 20
# The journal is on the same file system and needs the space more than a snapshot does.
LEAVE_FREE_BYTES = 64 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Spool:
    """Files of `landing/` with their manifests, side by side in one directory, sorted by age.

    One thread writes (`put`), one other reads and removes (`waiting`, `remove`). `limit_bytes` bounds what is kept (one
    snapshot always is); `dropped` counts the dropped snapshots. Methods raise OSError.
    """

    def __init__(self, path: Path, *, limit_bytes: int = SPOOL_BYTES, leave_free_bytes: int = LEAVE_FREE_BYTES) -> None:
        self.path = path
        self.dropped = 0
        self._limit = limit_bytes
        self._leave_free = leave_free_bytes

    def prepare(self) -> None:
        """Create the directory, and remove half-written files left by a kill. Raises LogAgentError for lack of
        space."""
        self.path.mkdir(mode=0o750, exist_ok=True)
        for entry in self.path.iterdir():
            lonely = entry.name.endswith(landing.DATA) and not landing.manifest_of(entry).exists()
            if entry.name[0].isdecimal() and (lonely or entry.name.endswith(landing.PART)):
                entry.unlink(missing_ok=True)
        waiting = self.waiting()
        while waiting and self._free() < self._leave_free:
            self.drop(waiting.pop(0))
        if self._free() < self._leave_free:
            raise LogAgentError(
                f"nothing is published for lack of space: {self._free() >> 20} MiB are free below {self.path}"
            )

    def put(self, claim: Claim, lines: Iterable[str | bytes]) -> None:
        """Add a file, and drop the oldest if there are too many bytes now."""
        data = landing.put(self.path / _stem(claim), claim, lines)
        sizes = {waiting: size_of(waiting) for waiting in self.waiting()}
        total = sum(sizes.values())
        for waiting, size in sizes.items():
            if total > self._limit and waiting != data:
                self.drop(waiting)
                total -= size

    def waiting(self) -> list[Path]:
        """Complete data files (those with a manifest), oldest first."""
        if not self.path.is_dir():
            return []
        names = sorted(entry.name for entry in self.path.iterdir())
        whole = {name.removesuffix(landing.MANIFEST) for name in names if name.endswith(landing.MANIFEST)}
        return [self.path / n for n in names if n.endswith(landing.DATA) and n.removesuffix(landing.DATA) in whole]

    def drop(self, data: Path) -> None:
        """Drop one and count it."""
        self.remove(data)
        if data.name.endswith(f"-snapshot{landing.DATA}"):
            self.dropped += 1

    def remove(self, data: Path) -> None:
        """The manifest first: data without one is cleaned up, but a manifest without data would be sent."""
        landing.manifest_of(data).unlink(missing_ok=True)
        data.unlink(missing_ok=True)

    def _free(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize


def _stem(claim: Claim) -> str:
    """Sorting by name also sorts by age."""
    return f"{(claim.at - _EPOCH) // timedelta(milliseconds=1):015d}-{claim.kind}"


def size_of(path: Path) -> int:
    """Its size in bytes; 0 if it no longer exists."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
