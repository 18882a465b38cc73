"""What the journal knows about a directory: that we renamed it and what it had in it then, and how often and since when
it was seen as an orphan.

An orphan is acted on only after `cleanup.sightings` complete inventories over `cleanup.min_age`. Counting starts over
if the directory changes (inode, topic id, new writes) or the reason does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from logagent.base.records import DirKey, Identity, PartitionDir, Verdict, in_64_bits
from logagent.verdict.facts import Facts


@dataclass(frozen=True, slots=True)
class Contents:
    """What a directory had when it was renamed, or its removal was meant: `log_bytes` in the `.log` files of
    `segments`. `files`, `segments`, `log_bytes`: None in journals of earlier releases."""

    files: int | None
    bytes: int
    segments: int | None = None
    log_bytes: int | None = None

    def have_shrunk(self, d: PartitionDir) -> bool:
        """Whether segments are missing since, whose `.log` a removal takes first, or files where there was none. Other
        files a broker drops when it loads a stray (`.deleted`, snapshots of producers). Sizes alone prove it only where
        no number is known: a broker that stops shortens the indexes of what it has loaded."""
        if self.segments:
            return d.segments < self.segments
        return d.files < self.files if self.files is not None else d.bytes < self.bytes

    def are_all_in(self, d: PartitionDir) -> bool:
        """Whether nothing was removed since: no segment, and no byte of one, as a removal shortens large files before
        it unlinks them. Nothing else counts: a broker that loads the directory stretches and rebuilds indexes, adds
        snapshots of producers and drops old ones, and drops what ends in `.deleted`. Of an empty log everything counts:
        once its one `.log` is gone, with the offset in its name, that broker makes another one, which begins at 0."""
        if self.segments and self.log_bytes:
            return self.segments <= d.segments and self.log_bytes == d.segment_bytes
        return self.files == d.files and self.bytes == d.bytes


@dataclass(frozen=True, slots=True)
class Mark:
    """What the journal knows about one of our renames: when (ms), and what the new name no longer shows.

    `old_name`: the exact name before: `zzz-01` is partition 1 too, and is restored as `zzz-01`. `original_dir`: the log
    dir that it was quarantined from (its path then), if it was moved to another directory. `reason`: why it was an
    orphan then, if it still has the same topic id. `intact`: the broker had stopped cleanly before the rename, and it
    never had a `-delete` name since. `request`: the id of the fleet's request that renamed it and may remove it under
    this name, in report mode too (None once that has ended). `had`: what was in it at its first rename. `had_bit`: we
    took its current name, and it had the mode bit then that marks the start of a removal. `is_of_copy`: the directory
    has this unique name, and not the inode that was renamed. It is a copy of that one: it can be restored like it, and
    for its removal nothing of this counts (`for_removal`).
    """

    at_ms: int
    full_topic: str | None
    old_name: str | None = None
    approved: bool = False
    action_id: int | None = None
    original_dir: str | None = None
    reason: str | None = None
    intact: bool = False
    request: str | None = None
    had: Contents | None = None
    had_bit: bool = False
    is_of_copy: bool = False

    def lacks_some(self, d: PartitionDir) -> bool:
        """Whether segments are missing since its first rename, or bytes of them. After a crash a broker that loads it
        cuts off what is torn at the end; after a clean stop nothing, and never everything."""
        had = self.had
        if had is None or not had.segments or had.log_bytes is None:
            return False
        is_shorter = d.segment_bytes < had.log_bytes and (self.intact or d.segment_bytes == 0)
        return had.have_shrunk(d) or is_shorter


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
