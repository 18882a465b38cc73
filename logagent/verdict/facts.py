"""The state of a host at one moment: everything that the guards decide on, gathered once per batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from logagent.base.claims import Claim, Held, Moment, Proof, Unmet, Witness, holds
from logagent.base.kafka_version import UNKNOWN_VERSION, KafkaVersion, VersionsSeen
from logagent.base.records import DirKey, Health, Holder, Identity, Kind, PartitionDir, Reason, RemovedFile, Verdict
from logagent.base.units import counted


@dataclass(frozen=True, slots=True)
class LogDirFacts:
    """One log dir. `open_by` maps the name of a direct child to the PIDs that have something below it open or mapped.

    `quarantine`: this is a quarantine directory (for brokers before 3.6.1), not a log dir; no broker ever opens it.
    `open_removed_bytes`: of the removed files that a process still has open and that are therefore not freed;
    `open_removed`: each of them (`cleanup.rescue.plan_rescue` says which of them are room to be had).
    `open_files_unreadable`: why `open_by` cannot be trusted, None if it can. `unread_processes`: how many processes of
    other users could not be read; what they have open is missing. None: nobody looked, or /proc could not be read.
    """

    path: str
    identity: Identity | None
    health: Health
    health_reason: str | None
    holder: Holder
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None
    open_by: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    open_files_unreadable: str | None = None
    open_removed_bytes: int = 0
    open_removed: tuple[RemovedFile, ...] = ()
    unread_processes: int | None = 0
    quarantine: bool = False


def unread_processes(log_dirs: Mapping[str, LogDirFacts]) -> int | None:
    """How many processes of this host could not be read (`LogDirFacts.unread_processes`)."""
    counts = [where.unread_processes for where in log_dirs.values()]
    return None if None in counts else max((n for n in counts if n is not None), default=0)


def unread_words(count: int | None) -> str:
    """The same in words; empty if all were read."""
    if count is None:
        return "no process could be read"
    return f"{counted(count, 'process')} of other users cannot be read" if count else ""


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict on one directory, with its reason and the underlying fact in words. `proof`: who says so, as of when;
    for an orphan, what makes that source one to rest on, too."""

    verdict: Verdict
    reason: str | None = None
    detail: str | None = None
    last_copy: bool | None = None
    proof: Proof = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class StrayRuling:
    """Whether a stray may be removed, and why; the hint of `why` is what would help where nobody could be asked.
    `covered`: whether another copy has all that it has; None if that was not checked because its topic id no longer
    exists. `ruling`: the verdict on the directory as it was before it was set aside. `proof`: what it rests on, also
    what is not enough."""

    may_go: bool
    why: Reason
    covered: Literal["yes", "no", "unknown"] | None = None
    ruling: Ruling | None = None
    proof: Proof = field(default=(), compare=False)


class Rulings(Mapping[DirKey, Ruling]):
    """Verdicts by log dir and name, filled by `add`.

    Stored by name within each log dir: key tuples for 100,000 directories would add 6 MB to the daemon's peak memory,
    while the names exist anyway.
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Ruling]] = {}

    def add(self, log_dir: str, name: str, ruling: Ruling) -> None:
        found = self._found.get(log_dir)
        if found is None:
            found = self._found[log_dir] = {}
        found[name] = ruling

    def __getitem__(self, key: DirKey) -> Ruling:
        return self._found[key[0]][key[1]]

    def __iter__(self) -> Iterator[DirKey]:
        return (DirKey(log_dir, name) for log_dir, found in self._found.items() for name in found)

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))


@dataclass(frozen=True, slots=True)
class RecentAction:
    """A directory that we renamed, removed or (`restored`) restored in the last 24 hours.

    `topic_id` and `partition` distinguish it from a later directory with the same inode. `allocated`: what it
    took up on its file system.
    """

    identity: Identity
    topic_id: str | None
    partition: int | None
    allocated: int
    approved: bool
    restored: bool = False


# A process's start time is computed from the boot time, which the kernel rounds to seconds.
SAME_START_MS = 2_000


@dataclass(frozen=True, slots=True)
class SeenHolder:
    """A process (PID and start time) that was seen holding a log dir's lock, or serving; since_ms: first seen so."""

    pid: int
    started_ms: int
    since_ms: int

    def is_process(self, pid: int, started_ms: int) -> bool:
        return self.pid == pid and abs(self.started_ms - started_ms) <= SAME_START_MS


def unseen_log_dirs(log_dirs: Iterable[LogDirFacts]) -> dict[str, str]:
    """The log dirs that may contain what cannot be seen now, with the fact in words: offline, or without
    `meta.properties` while others have it."""
    dirs = [f for f in log_dirs if not f.quarantine]
    found = {f.path: f"log dir {f.path} is offline" for f in dirs if f.health is Health.OFFLINE}
    formatted = [f for f in dirs if f.cluster_id is not None or f.node_id is not None]
    for f in dirs:
        if formatted and f not in formatted:
            unread = f"log dir {f.path} has no meta.properties that can be read (is its disk mounted?)"
            found.setdefault(f.path, unread)
    return found


@dataclass(frozen=True, slots=True)
class Facts:
    """One host at one moment. `cluster_problems` maps a log dir to why its owner is unknown.

    `partition_dirs` and `partition_bytes` (allocated) are what the host had within 24 hours, including what we removed
    since. `assigned_dirs`: found when asked for, so that 100,000 keys are not kept in memory.
    `left_out`: log dirs of the broker that were not looked at; `forgotten`: one that its configuration named before and
    does not name now. `directory_ids`: those of the log dirs that the cluster has for this node, empty before 3.7
    (found when asked for: there can be a million replicas). `strays`: the rulings on strays that are about to be
    removed, and on orphans of living topics that are about to be marked; `duplicates`: the same for directories that
    another log dir of this host has in full. `known_version`: where `kafka_version` is from,
    and what contradicts it. `unchangeable`: what the kernel would not let us change, of what a plan is about to.
    `stray_verdicts`: on each stray of the host, as it was before it was set aside; `never_shown`: topic ids of strays
    that the metadata log of this host never had. `versions`: what showed one; `serving`: by log dir,
    the broker that serves it, None if nobody was asked.
    `age_ms`: how long ago all this was gathered. `max_age_ms`: of assignments. `booted_ms`: `now_ms` less the time
    since boot, which changes only when the wall clock is set.
    """

    now_ms: int
    log_dirs: Mapping[str, LogDirFacts]
    cluster_problems: Mapping[str, str] = field(default_factory=dict)
    rulings: Mapping[DirKey, Ruling] = field(default_factory=dict)
    journal_problem: Reason | None = None
    delete_topic_enable: bool = True
    kafka_version: tuple[int, ...] | None = None
    known_version: KafkaVersion = UNKNOWN_VERSION
    quarantine_dirs: Mapping[str, str] = field(default_factory=dict)
    recent: tuple[RecentAction, ...] = ()
    partition_dirs: int = 0
    partition_bytes: int = 0
    assigned_dirs: Callable[[], Iterable[DirKey]] = tuple
    left_out: tuple[str, ...] = ()
    forgotten: Reason | None = None
    directory_ids: Callable[[], frozenset[str]] = frozenset
    strays: Mapping[DirKey, StrayRuling] = field(default_factory=dict)
    duplicates: Mapping[DirKey, StrayRuling] = field(default_factory=dict)
    unchangeable: Mapping[DirKey, Reason] = field(default_factory=dict)
    stray_verdicts: Mapping[DirKey, Ruling] = field(default_factory=dict)
    never_shown: frozenset[str] = frozenset()
    versions: VersionsSeen | None = None
    serving: Mapping[str, SeenHolder] | None = None
    age_ms: int = 0
    max_age_ms: int = 900_000
    booted_ms: int = 0
    _too_late: dict[tuple[Claim, Witness], Unmet | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def why_too_late(self, claim: Claim, witness: Witness) -> Unmet | None:
        """Why what was read for all of these facts no longer counts for `claim`; None if it does. Determined
        once: it is the same for every directory."""
        if (claim, witness) not in self._too_late:
            moment = Moment(self.now_ms + self.age_ms, self.now_ms, self.max_age_ms)
            self._too_late[claim, witness] = holds(Held(claim, witness, self.now_ms), moment)
        return self._too_late[claim, witness]

    def moment(self, d: PartitionDir) -> Moment:
        """What the times of witnesses are compared with, for an act on `d` now."""
        where = self.log_dirs.get(d.log_dir)
        # It was made no later than the older of the two: a rename renews ctime, a new file mtime.
        made_ms = min(d.ctime_ns, d.mtime_ns) // 1_000_000
        started_ms = where.holder.start_time_ms if where is not None else None
        return Moment(self.now_ms + self.age_ms, made_ms, self.max_age_ms, started_ms)

    def not_seen(self) -> Reason | None:
        """A log dir that may contain partitions that cannot be seen now: it is offline, it has no `meta.properties`
        while others have one (after a reboot with a dead disk, the mount point is such a directory and not offline at
        all), or it was not inspected, by our own configuration, by the broker's (cut short, perhaps) or by what
        the cluster has for this node."""
        for fact in unseen_log_dirs(self.log_dirs.values()).values():
            return Reason(fact, "repair that log dir first")
        if self.forgotten is not None:
            return self.forgotten
        if self.left_out:
            hint = "name all log dirs of the broker with --log-dir, or none"
            return Reason(f"log dir {self.left_out[0]} was not inspected", hint)
        missing = self.directory_ids() - {f.directory_id for f in self.log_dirs.values() if not f.quarantine}
        if missing:
            hint = "name it with --log-dir, or name --kafka-config; logagent check says if log.dirs no longer has it"
            hint += " what a start would make of that"
            return Reason(f"log dir with directory.id {min(missing)} (by the assignments) was not inspected", hint)
        return None

    def process(self) -> tuple[int | None, int | None]:
        """The process that holds the log dirs, None if several or not seen, and when the first of them
        started (ms), None if not all are known: one that is seen does not stand for a broker in another namespace."""
        held = [h for f in self.log_dirs.values() if (h := f.holder).state.is_broker or h.pid is not None]
        known, pids = [h.start_time_ms for h in held if h.start_time_ms is not None], {h.pid for h in held}
        return pids.pop() if len(pids) == 1 else None, min(known, default=None) if len(known) == len(held) else None

    def verdict_on(self, d: PartitionDir) -> Ruling | None:
        """The one that is printed: of a stray, on what it was before; None for what has no verdict."""
        return self.verdict_of(d.key)

    def verdict_of(self, key: DirKey) -> Ruling | None:
        return self.rulings.get(key) or self.stray_verdicts.get(key)

    def ruling_to_act(self, d: PartitionDir) -> Ruling | None:
        """The same, of a stray only where these facts rule on its removal: that is asked anew before each act."""
        if d.kind is not Kind.STRAY:
            return self.rulings.get(d.key)
        stray = self.strays.get(d.key)
        return stray.ruling if stray is not None else None

    def ruling(self, directory: PartitionDir) -> Ruling:
        """The verdict on `directory`; unknown for lack of assignments if none was reached."""
        unknown = Ruling(Verdict.UNKNOWN, "no-assignments", "no assignments were read")
        return self.rulings.get(directory.key, unknown)
