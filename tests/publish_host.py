"""A host that publishes: a real broker's disk, a session that has looked at it, and what is in the store afterwards."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from logagent.base.clock import SystemClock
from logagent.cleanup.commands.cleanup import plan_ahead
from logagent.cleanup.session.session import Session
from logagent.service.publish import SPOOL_BYTES, Publisher
from logagent.verdict.facts import Facts
from tests.fake_time import LaterClock
from tests.host import Host

HOUR_MS = 3_600_000


@contextmanager
def looked_at(host: Host, clock: SystemClock) -> Iterator[tuple[Session, Facts]]:
    """A session as a cleanup cycle has it after its inventory."""
    with host.session(clock=clock, inventory=True) as session:
        yield session, session.facts()


class Publishing:
    """One daemon's publishing: `look` spools a snapshot of the host, `send` brings it away."""

    def __init__(self, root: Path, store: Path, *, limit_bytes: int = SPOOL_BYTES, name: str = "host7") -> None:
        self.host = Host.from_disk(root)
        self.host.with_assignments()
        self.store = store
        self.clock = LaterClock()
        self.name = name
        self.limit_bytes = limit_bytes
        self.publisher = self.started()

    def started(self) -> Publisher:
        """A publisher as a daemon that was just started has it."""
        return Publisher(
            str(self.store), str(self.host.state), self.clock, host=self.name, interval_ms=HOUR_MS,
            limit_bytes=self.limit_bytes,
        )  # fmt: skip

    def look(self) -> str:
        with looked_at(self.host, self.clock) as (session, facts):
            return self.publisher.spool(session, facts, plan_ahead(session, facts))

    def to_midnight_ms(self) -> int:
        """How long it is to a later day in UTC, and a minute: an hour later it is still the same day. Not the next one:
        what is due after a day would be so at some hours, and not at others, by the time at which the tests run."""
        return 3 * 24 * HOUR_MS - (self.clock.now_ms() - self.clock.ahead_ms) % (24 * HOUR_MS) + 60_000

    @property
    def log_dirs(self) -> list[Path]:
        return [self.host.d1, self.host.d2]

    def spooled(self) -> list[str]:
        return sorted(entry.name for entry in (self.host.state / "spool").iterdir() if entry.is_file())


def landed(store: Path) -> list[Path]:
    """Every name below `landing/`, relative to it."""
    where = store / "landing"
    return sorted(path.relative_to(where) for path in where.rglob("*") if not path.is_dir())


def data_files(store: Path, *kinds: str) -> list[Path]:
    """Data files of the store that are vouched for, oldest first; each is what its manifest says."""
    found = []
    for manifest in sorted((store / "landing").rglob("*.manifest.json")):
        claim = json.loads(manifest.read_bytes())
        data = manifest.with_name(manifest.name.replace(".manifest.json", ".jsonl.gz"))
        packed = data.read_bytes()
        assert (len(packed), hashlib.sha256(packed).hexdigest()) == (claim["bytes"], claim["sha256"])
        assert len(gzip.decompress(packed).splitlines()) == claim["rows"]
        if not kinds or claim["kind"] in kinds:
            found.append(data)
    return found


def rows_of(data: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(data.read_bytes()).splitlines()]
