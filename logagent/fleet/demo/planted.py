"""What a generated fleet is asked to be, and what was planted in it: plain records."""

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
    """How large, and how sick.

    `partitions` counts directories; rates are per directory (`sick`), per host (`broken`).
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

    def share(self, whole: int, cluster: int) -> int:
        """Part of `whole` that falls to a cluster."""
        return whole // self.clusters + (1 if cluster < whole % self.clusters else 0)


@dataclass
class Orphan:
    reason: str
    copies_elsewhere: int
    longest: bool
    bytes: int


@dataclass
class Truth:
    """What the reports must find in a cluster on its last day.

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
    """One directory to be. `age_days` is since its newest write; `goes` the day from which it is gone."""

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


def topic_id(*words: object) -> str:
    """22 characters as Kafka prints a `Uuid`, from a hash of `words`."""
    digest = hashlib.md5(repr(words).encode(), usedforsecurity=False).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def uuid_hex(*words: object) -> str:
    return hashlib.md5(repr(words).encode(), usedforsecurity=False).hexdigest()
