"""How often, and since when, an orphan has been seen.

An orphan is acted on only after `cleanup.sightings` complete inventories over `cleanup.min_age`. Counting starts over
if the directory changes (inode, topic id, new writes) or the reason does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from logagent.base.records import DirKey, Identity, PartitionDir, Verdict, in_64_bits
from logagent.verdict.facts import Facts


@dataclass(frozen=True, slots=True)
class Sighting:
    """One orphan as recorded in the journal. Times in ms; `newest_mtime_ns` within 64 bits."""

    log_dir: str
    name: str
    identity: Identity
    topic_id: str | None
    newest_mtime_ns: int
    reason: str
    count: int
    first_ms: int
    last_ms: int

    @property
    def key(self) -> DirKey:
        return DirKey(self.log_dir, self.name)

    @property
    def subject(self) -> tuple[Identity, str | None, int, str]:
        """What must be the same for a sighting to be of the same orphan."""
        return self.identity, self.topic_id, self.newest_mtime_ns, self.reason

    def is_in_order(self, now_ms: int) -> bool:
        """Whether its times are possible: the clock has not gone back."""
        return self.first_ms <= self.last_ms <= now_ms


def of_directory(known: Sighting | None, d: PartitionDir, reason: str, now_ms: int) -> Sighting | None:
    """`known` if it is of exactly this directory, unchanged, and for this reason; otherwise None.

    Commands that do not count sightings themselves (`prestart`, a dry run) use what the last cycle recorded, which may
    be about an earlier directory of the same name.
    """
    seen = (d.identity, d.topic_id, in_64_bits(d.newest_mtime_ns), reason)
    return known if known is not None and known.is_in_order(now_ms) and known.subject == seen else None


def orphans_seen(dirs: Iterable[PartitionDir], facts: Facts) -> list[Sighting]:
    """The orphans of one inventory, as sightings whose count and times are not filled in yet."""
    return [
        Sighting(
            d.log_dir,
            d.name,
            d.identity,
            d.topic_id,
            in_64_bits(d.newest_mtime_ns),
            ruling.reason or "",
            0,
            facts.now_ms,
            facts.now_ms,
        )
        for d in dirs
        if d.error is None and (ruling := facts.rulings.get(d.key)) is not None and ruling.verdict is Verdict.ORPHAN
    ]


def count_sightings(
    known: Mapping[DirKey, Sighting],
    seen: Iterable[Sighting],
    complete_log_dirs: frozenset[str],
    now_ms: int,
) -> dict[DirKey, Sighting]:
    """The sightings after an inventory that found `seen` (whose count and times are ignored).

    Only log dirs in `complete_log_dirs` (completely inventoried, with fresh assignments) count: there, a known orphan
    that was not seen again is forgotten; elsewhere it is kept unchanged. If the clock went back, counting starts over.
    """
    kept = {key: s for key, s in known.items() if s.log_dir not in complete_log_dirs}
    for s in seen:
        if s.log_dir not in complete_log_dirs:
            continue
        before = known.get(s.key)
        if before is not None and before.subject == s.subject and before.is_in_order(now_ms):
            kept[s.key] = replace(before, count=before.count + 1, last_ms=now_ms)
        else:
            kept[s.key] = replace(s, count=1, first_ms=now_ms, last_ms=now_ms)
    return kept
