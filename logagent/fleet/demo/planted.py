"""The parameters of a generated fleet, and what was planted in it: plain records."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from datetime import datetime

from logagent.fleet.demo.corruptions import CORRUPTIONS

REPLICATION = 3
BROKEN = (*CORRUPTIONS, "silent", "late")
"""Ways in which a host becomes unknown."""


@dataclass(frozen=True)
class Fleet:
    """The size of a fleet, and its problems.

    `partitions` counts directories; rates are per directory (`sick`), per host (`broken`). `lifelike`: terabytes on
    disks of different sizes and fullness, and reasons to act.
    """

    at: datetime
    clusters: int = 3
    hosts: int = 30
    partitions: int = 3000
    days: int = 2
    seed: int = 1
    sick: float = 0.01
    broken: float = 0.1
    largest_topic: float = 0.2
    lifelike: bool = False

    @property
    def told(self) -> list[int]:
        """The days of which there are snapshots: all, or the three that show a week and a day of change."""
        return sorted({0, max(self.days - 2, 0), self.days - 1}) if self.lifelike else list(range(self.days))

    def share(self, whole: int, cluster: int) -> int:
        """The share of `whole` that belongs to a cluster."""
        return whole // self.clusters + (1 if cluster < whole % self.clusters else 0)


@dataclass
class Orphan:
    reason: str
    copies_elsewhere: int
    longest: bool
    bytes: int


@dataclass
class Truth:
    """What the reports must find in a cluster on the last day.

    Keys: `node|log dir|name` (orphans, leftovers), `node|topic id|partition` (missing, duplicates), `node|log dir`
    (health).
    """

    cluster_id: str
    orphans: dict[str, Orphan] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    leftovers: dict[str, str] = field(default_factory=dict)
    unknown_hosts: dict[int, str] = field(default_factory=dict)
    health: dict[str, str] = field(default_factory=dict)
    dirs: int = 0
    bytes: int = 0


@dataclass
class Dir:
    """One directory to create. `age_days`: since its newest write. It exists from day `comes` until before day
    `goes`."""

    name: str
    kind: str
    topic: str | None
    partition: int | None
    topic_id: str | None
    bytes: int
    log_dir: int
    age_days: float = 0.1
    offset: int = 0
    marked_hours: float | None = None
    orphan: str | None = None
    goes: int | None = None
    comes: int = 0


def topic_id(*words: object) -> str:
    """22 characters as Kafka prints a `Uuid`, from a hash of `words`."""
    digest = hashlib.md5(repr(words).encode(), usedforsecurity=False).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def uuid_hex(*words: object) -> str:
    return hashlib.md5(repr(words).encode(), usedforsecurity=False).hexdigest()
