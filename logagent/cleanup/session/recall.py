"""Reads what the journal says of the directories that an inventory just saw, and ends what it permits no more."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from logagent.base.clock import Clock
from logagent.base.config.settings import CleanupSettings
from logagent.base.dir_names import classify, is_unique
from logagent.base.records import LIVE_KINDS, ActionKind, DirKey, Kind, PartitionDir
from logagent.cleanup.plan.queue import NO_REMOVALS, Recalled, RemovalIntent, RemovalIntents
from logagent.cleanup.state.journal import Entry, Journal
from logagent.verdict.clock_doubt import ClockDoubt, ClockJump, Clocks, accepted, clock_doubt, corrected
from logagent.verdict.marks import Contents, Mark, Sighting
from logagent.verdict.rules import VerdictReason

_BY_REQUEST = ("request ", "order ")
"""Releases before this one obeyed orders: what they quarantined goes like what was requested."""


def actor_of(request_id: str) -> str:
    """The journal's name for a request of the fleet that was carried out."""
    return f"{_BY_REQUEST[0]}{request_id}"


Renames = Mapping[tuple[str, int], Entry]


def recall(journal: Journal, clocks: ClockWatch, dirs: Sequence[PartitionDir]) -> Recalled:
    """What the journal says of `dirs` and of the clock, now. Raises JournalError.

    The doubt has to be asked for after the moment to which ages are counted: then a clock that was set before it is
    seen (`gather` does so once more)."""
    renames, jumps = journal.renames(), tuple(clocks.jumps())
    return Recalled(
        marks=marks(renames, dirs),
        removal_intents=removal_intents(journal, renames, [d for d in dirs if d.kind in (Kind.STRAY, Kind.DELETE)]),
        failures=journal.failures(),
        sightings=todays_sightings(journal, dirs, jumps),
        jumps=jumps,
        doubt=clocks.doubt(),
    )


def since_brought_back(known: Mapping[DirKey, Sighting], dirs: Iterable[PartitionDir]) -> Mapping[DirKey, Sighting]:
    """`known` (times as the journal has them) without what was seen of one of `dirs` before it was brought back: who
    did that wanted it to stay, and it is counted anew."""
    back = {d.key: d.brought_back.at_ms for d in dirs if d.brought_back is not None}
    return {key: s for key, s in known.items() if key not in back or s.first_ms > back[key]} if back else known


def todays_sightings(
    journal: Journal, dirs: Iterable[PartitionDir], jumps: Sequence[ClockJump]
) -> Mapping[DirKey, Sighting]:
    """Those that count, by today's clock."""
    return by_todays_clock(since_brought_back(journal.sightings(), dirs), jumps)


def by_todays_clock(known: Mapping[DirKey, Sighting], jumps: Sequence[ClockJump]) -> Mapping[DirKey, Sighting]:
    if not jumps:
        return known
    return {
        key: replace(s, first_ms=corrected(s.first_ms, jumps), last_ms=corrected(s.last_ms, jumps))
        for key, s in known.items()
    }


def marks(renames: Renames, dirs: Iterable[PartitionDir]) -> dict[DirKey, Mark]:
    """What we know about the rename of each (log dir, present name), whatever path its log dir had then."""
    found: dict[DirKey, Mark] = {}
    by_name = _by_unique_name(renames)
    for d in dirs if renames else ():
        entry = _rename_of(d, renames, by_name)
        if entry is not None:
            chain = list(_renames_back(entry, renames))
            i = chain[-1].intent
            is_of_copy = entry.intent.identity.inode != d.inode
            found[d.key] = Mark(
                entry.at_ms,
                i.topic,
                i.name,
                entry.intent.approved,
                entry.id,
                original_dir=next((e.intent.log_dir for e in chain if e.intent.new_dir is not None), None),
                # What was proven about its topic id then says nothing about another id. Releases that did not note
                # `files` proved too much: from a metadata log that was rolled back, or left over from a migration.
                reason=i.reason if d.topic_id == i.topic_id and i.files is not None else None,
                had=Contents(i.files, i.bytes, i.segments, i.log_bytes),
                # Of a name that a broker uses: under another one something may have been removed before.
                had_bit=i.removal_started is True and classify(i.name).kind in LIVE_KINDS,
                request=_request_of(entry) if not is_of_copy else None,
                is_of_copy=is_of_copy,
                intact=i.closed_cleanly is True and not any(e.intent.action is ActionKind.MARK for e in chain),
            )
    return found


def _by_unique_name(renames: Renames) -> dict[str, Entry]:
    return {name: entry for (name, _), entry in sorted(renames.items(), key=lambda item: item[1].id) if is_unique(name)}


def _rename_of(d: PartitionDir, renames: Renames, by_name: Mapping[str, Entry]) -> Entry | None:
    """Our rename that gave `d`, or the directory that it is a copy of, its present name."""
    entry = renames.get((d.name, d.inode)) or by_name.get(d.name)
    if entry is None or entry.intent.identity.inode == d.inode:
        return entry
    same = entry.intent.partition == d.partition and d.topic_id in (None, entry.intent.topic_id)
    return entry if same else None


def _request_of(entry: Entry) -> str | None:
    """The request that may remove what it renamed so, if that has not ended."""
    actor = entry.intent.actor
    if entry.permission_ended is not None:
        return None
    return next((actor.removeprefix(by) for by in _BY_REQUEST if actor.startswith(by)), None)


def end_permissions(journal: Journal, dirs: Iterable[PartitionDir] | None, cancelled: Callable[[str], bool]) -> None:
    """End for good what requests may remove, where they were cancelled or it is not there any more under the name that
    they gave it. `dirs`: all of this host; None while a log dir was not read: then nothing is known to be absent."""
    permissions = journal.permissions()
    there = {(d.name, d.inode): d.topic_id for d in dirs or () if permissions}
    ended: dict[int, str] = {}
    for entry in permissions:
        i, request = entry.intent, _request_of(entry)
        topic_id = there.get((i.new_name or "", i.identity.inode), "")
        if request is not None and cancelled(request):
            ended[entry.id] = "the request was cancelled"
        elif dirs is not None and topic_id not in (None, i.topic_id):
            ended[entry.id] = "it no longer exists"
    if ended:
        journal.end_permissions(ended)


def _renames_back(entry: Entry, renames: Mapping[tuple[str, int], Entry]) -> Iterator[Entry]:
    """Our renames of one directory (current → stray → delete), latest first, back to the one from its original name."""
    yield entry
    while True:
        before = renames.get((entry.intent.name, entry.intent.identity.inode))
        if before is None or before.intent.action is ActionKind.RESTORE or before.id >= entry.id:
            return
        entry = before
        yield entry


def note_what_came_back(journal: Journal, dirs: Sequence[PartitionDir]) -> None:
    """Note in each of `dirs` that a name was given back to it. Another one of the partition may have got its inode, and
    is told by its topic id."""
    live = {d.inode for d in dirs if d.kind in LIVE_KINDS}
    known = journal.brought_back(live) if live else {}
    for d in dirs:
        d.brought_back = known.get((d.name, d.inode, d.topic_id))


def restored_topics(journal: Journal) -> list[tuple[str | None, int]]:
    """The topic id of every directory that was restored on this host, and when (ms)."""
    return [(e.intent.topic_id, e.at_ms) for e in journal.restores().values()]


def renamed_by(journal: Journal, dirs: Iterable[PartitionDir], plan_id: str) -> list[DirKey]:
    """(log dir, present name) of what the plan renamed away and what is still there."""
    renames = {(e.intent.new_name or "", e.intent.identity.inode): e for e in journal.of_plan(plan_id)}
    by_name = _by_unique_name(renames)
    return [d.key for d in dirs if _rename_of(d, renames, by_name) is not None]


def removal_intents(journal: Journal, renames: Renames, dirs: Sequence[PartitionDir]) -> RemovalIntents:
    """By (log dir, present name), every removal of those strays and marked `dirs` that we meant, under whatever name
    they had then."""
    if not dirs:
        return NO_REMOVALS
    by_name = _by_unique_name(renames)
    names_of: dict[DirKey, set[tuple[str, int]]] = {}
    for d in dirs:
        names = names_of[d.key] = {(d.name, d.inode)}
        entry = _rename_of(d, renames, by_name)
        # A restore ends it: what comes back is complete, and waits its full time when it is set aside again.
        if entry is not None and entry.intent.action is not ActionKind.RESTORE:
            for e in _renames_back(entry, renames):
                names |= {(e.intent.name, e.intent.identity.inode), (e.intent.name, d.inode)}
    unique = {name for names in names_of.values() for name, _ in names if is_unique(name)}
    removals = journal.removal_intents({d.inode for d in dirs}, unique)
    # A directory that nobody renamed (a broker's stray) is known by its unique name alone.
    by_unique: dict[str, list[tuple[int, RemovalIntent]]] = {}
    for (name, inode), meant in removals.items():
        by_unique.setdefault(name, []).extend((inode, intent) for intent in meant)
    found: dict[DirKey, list[RemovalIntent]] = {}
    for d in dirs:
        meant = [intent for key in names_of[d.key] if key[1] == d.inode for intent in removals.get(key, ())]
        others = {name for name, _ in names_of[d.key] if is_unique(name)}
        meant += [
            replace(intent, is_of_copy=True)
            for name in others
            for inode, intent in by_unique.get(name, ())
            if inode != d.inode
        ]
        if meant:
            found[d.key] = meant
    return found


def open_exchanges(journal: Journal, dirs: Iterable[PartitionDir]) -> dict[str, str]:
    """The path of every stray of `dirs` that a `restore --replace` displaced and that still has the name of its
    replacement, because the restore was cut short (`execute.renames.Replacement`), with its former name."""
    waiting = {
        (i.through[1], i.identity.inode): i.name
        for i in (e.intent for e in journal.unsettled())
        if i.through is not None
    }
    keys = ((d, (d.name, d.inode)) for d in dirs if d.kind is Kind.STRAY)
    return {f"{d.log_dir}/{d.name}": waiting[key] for d, key in keys if key in waiting}


def proven_absent(sightings: Iterable[Sighting], cleanup: CleanupSettings) -> frozenset[str]:
    """Topic ids that this host's broker did not know, for as many sightings and as long as an orphan requires."""
    return frozenset(
        s.topic_id
        for s in sightings
        if s.topic_id is not None
        and s.reason in (VerdictReason.TOPIC_ABSENT, VerdictReason.TOPIC_RECREATED)
        and s.count >= cleanup.sightings
        and s.last_ms - s.first_ms >= cleanup.min_age
    )


# The clock

_STA_UNSYNC = 0x0040
# systemd-timesyncd creates it once it has set the clock; /run does not survive a reboot.
_TIMESYNCD = "/run/systemd/timesync/synchronized"


@dataclass(slots=True)
class ClockWatch:
    """Whether ages can be trusted, and how old things are after an accepted jump. Only a session that acts writes.

    `changed_ms`: when files and directories of the log dirs were last changed, as far as they were looked at.
    """

    journal: Journal
    clock: Clock
    acting: bool
    changed_ms: Callable[[], Iterable[int]] = tuple
    _read: list[ClockJump] | None = None
    _trusted: bool = False

    def doubt(self) -> ClockDoubt | None:
        """Raises JournalError."""
        if self._trusted:
            return None
        last, known = self.journal.last_clocks(), self.journal.clock_doubt()
        now = clocks_now(self.clock)
        return clock_doubt(last, known, now, synchronised=is_synchronised(), changed_ms=self.changed_ms)

    def note(self) -> None:
        """Remember the current clocks if they can be trusted; else the doubt, which survives a restart."""
        doubt = self.doubt()
        if doubt is None:
            self.journal.note_clocks(clocks_now(self.clock))
        elif doubt.drift_ms:
            self.journal.note_clock_doubt(doubt)

    def trust(self) -> None:
        """The operator confirms that the wall clock is right now. In a session that does not act this counts only for
        that session."""
        doubt = self.doubt()
        jump = accepted(doubt) if doubt is not None else None
        self._read = [*self.jumps(), *([jump] if jump is not None else [])]
        if self.acting:
            self.journal.trust_clocks(clocks_now(self.clock), jump)
        self._trusted = True

    def jumps(self) -> list[ClockJump]:
        """Those that an operator has accepted, oldest first."""
        if self._read is None:
            self._read = self.journal.clock_jumps()
        return self._read


def clocks_now(clock: Clock) -> Clocks:
    return Clocks(boot_id() or "unknown", clock.now_ms(), int(clock.boottime() * 1000))


def is_synchronised() -> bool | None:
    """What the kernel says of the wall clock (`adjtimex`, used only for reading).

    If that is not permitted (EPERM in a container, ENOSYS), the mark of systemd-timesyncd counts; else None.
    """
    timex = ctypes.create_string_buffer(512)
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(timex)
    except (OSError, AttributeError):
        state = -1
    if state < 0:
        return True if os.path.exists(_TIMESYNCD) else None
    # struct timex: modes (int), offset, freq, maxerror, esterror (long), status (int).
    status = ctypes.c_int.from_buffer(timex, 5 * ctypes.sizeof(ctypes.c_long)).value
    return not status & _STA_UNSYNC


def boot_id() -> str | None:
    """The kernel's id of this boot: across a reboot, ages depend on the wall clock alone."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None
