"""Claims and witnesses: what every act on a directory rests on. The one table of it; decides without I/O.

A **claim** is what must be true before an act. A **witness** is who or what said so, as of a time. `ENOUGH` lists the
witnesses that are enough for each claim, and how long what they said stays true: that a topic was deleted stays true
for ever, since topic ids are never reused; that this node is no replica, that another copy covers this one, that a
broker serves, that nobody holds a lock do not. `NEEDS` lists the claims of each act. The guards
(`cleanup.plan.guards`) say where each claim is found in the facts about a host, and refuse what is not there or not
there any more (`from_proof`).

Setting aside can be undone, so it needs only the verdict. A removal and a mark for deletion cannot: they need that
another copy has every record too, unless the topic is proven to be gone. Signs that are not in the table are not
enough, however often they came true: a log dir whose files are open is not served, a living ISR does not cover, a
metadata log with a sound end is not up to date, a mode bit is no started removal, `kafka.version` is not what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import NamedTuple

from logagent.base.units import rfc3339


class Claim(StrEnum):
    """What an act can rest on. `copy-of` to `topic-recreated` are the reasons of orphans (`assignments.verdict`)."""

    SAME_DIRECTORY = "same-directory"
    ONLINE = "online"
    OUR_BROKER = "our-broker"
    HOLDER_KNOWN = "holder-known"
    STOPPED = "stopped"
    SERVING = "serving"
    NOT_OPEN = "not-open"
    CHANGEABLE = "changeable"
    VERSION = "version"
    CLOCK = "clock"
    CONFIGURATION = "configuration"
    STOOD = "stood"
    KEPT = "kept"
    TOPIC_ABSENT = "topic-absent"
    TOPIC_RECREATED = "topic-recreated"
    NOT_A_REPLICA = "not-a-replica"
    COPY_OF = "copy-of"
    LIVES_HERE = "lives-here"
    OUR_LINEAGE = "our-lineage"
    IN_THIS_MODE = "in-this-mode"
    NOT_CONTRADICTED = "not-contradicted"
    COVERED = "covered"
    OTHERS_IN_SYNC = "others-in-sync"
    REMOVAL_STARTED = "removal-started"
    WHOLE = "whole"
    ALLOWED = "allowed-assigned"
    GIVEN_UP = "given-up"


class Witness(StrEnum):
    """Who or what says that a claim is true."""

    INVENTORY = "inventory"
    PROBE = "probe"
    META_PROPERTIES = "meta.properties"
    LOCK = "lock"
    DESCRIBE_LOG_DIRS = "describe-log-dirs"
    REGISTRATION = "registration"
    SEEN_SERVING = "seen-serving"
    PROCESSES = "processes"
    KERNEL = "kernel"
    VERSION_SOURCES = "version-sources"
    QUARANTINE_DIR = "quarantine-dir"
    CLOCKS = "clocks"
    EVERY_LOG_DIR = "every-log-dir"
    SIGHTINGS = "sightings"
    NAME = "name"
    KRAFT_LOG = "kraft-log"
    NEVER_SHOWN = "kraft-log-never-shown"
    ADMIN = "admin"
    FILE = "file"
    JOURNAL = "journal"
    STATE_DIR = "state-dir"
    OWN_DISK = "own-disk"
    CLUSTER = "cluster"
    PROCESS_ROLES = "process.roles"
    EVERY_SOURCE = "every-source"
    LEADER = "leader"
    LED_HERE = "led-here"
    OTHER_LOG_DIR = "other-log-dir"
    NO_RECORDS = "no-records"
    MARK_AND_COUNT = "mark-and-count"
    OPERATOR = "operator"


class Lasts(Enum):
    """How long what a witness said stays true."""

    FOR_EVER = "for ever"
    SINCE_IT_WAS_MADE = "for ever, of what is older than the witness"
    WHILE_ASSIGNMENTS_COUNT = "as long as assignments.max_age says"
    WHILE_IT_RUNS = "as long as the process holds the log dir"
    A_MINUTE = "60 s"
    TEN_SECONDS = "10 s"
    THE_PLAN = "as long as the plan that it was inspected for"


_READ = Lasts.WHILE_ASSIGNMENTS_COUNT
_GONE = {
    Witness.KRAFT_LOG: Lasts.SINCE_IT_WAS_MADE,
    # Its topic id is in no topic, and in none that was removed as far as is known here: of another lineage, perhaps.
    Witness.NEVER_SHOWN: Lasts.SINCE_IT_WAS_MADE,
    Witness.ADMIN: Lasts.SINCE_IT_WAS_MADE,
    Witness.FILE: Lasts.SINCE_IT_WAS_MADE,
    Witness.JOURNAL: Lasts.FOR_EVER,
}
_ASSIGNMENTS = {Witness.KRAFT_LOG: _READ, Witness.ADMIN: _READ, Witness.FILE: _READ}

ENOUGH: Mapping[Claim, Mapping[Witness, Lasts]] = {
    Claim.SAME_DIRECTORY: {Witness.INVENTORY: Lasts.TEN_SECONDS},
    Claim.ONLINE: {Witness.PROBE: Lasts.TEN_SECONDS},
    Claim.OUR_BROKER: {Witness.META_PROPERTIES: Lasts.TEN_SECONDS},
    Claim.HOLDER_KNOWN: {Witness.LOCK: Lasts.TEN_SECONDS},
    Claim.STOPPED: {Witness.LOCK: Lasts.TEN_SECONDS},
    Claim.SERVING: {
        Witness.DESCRIBE_LOG_DIRS: Lasts.WHILE_IT_RUNS,
        Witness.REGISTRATION: Lasts.WHILE_IT_RUNS,
        Witness.SEEN_SERVING: Lasts.WHILE_IT_RUNS,
    },
    Claim.NOT_OPEN: {Witness.PROCESSES: Lasts.TEN_SECONDS},
    # Asked when a plan is made: before each act, the act itself asks.
    Claim.CHANGEABLE: {Witness.KERNEL: Lasts.THE_PLAN},
    Claim.VERSION: {Witness.VERSION_SOURCES: Lasts.TEN_SECONDS, Witness.QUARANTINE_DIR: Lasts.TEN_SECONDS},
    # Asked when it falls due; before each act, whether the clock was set since (`as_planned`).
    Claim.CLOCK: {Witness.CLOCKS: Lasts.THE_PLAN},
    Claim.CONFIGURATION: {Witness.EVERY_LOG_DIR: Lasts.THE_PLAN},
    Claim.STOOD: {Witness.SIGHTINGS: Lasts.THE_PLAN},
    Claim.KEPT: {Witness.NAME: Lasts.THE_PLAN, Witness.JOURNAL: Lasts.THE_PLAN},
    Claim.TOPIC_ABSENT: _GONE,
    Claim.TOPIC_RECREATED: _GONE,
    Claim.NOT_A_REPLICA: _ASSIGNMENTS,
    Claim.COPY_OF: _ASSIGNMENTS,
    Claim.LIVES_HERE: _ASSIGNMENTS,
    Claim.OUR_LINEAGE: {
        Witness.STATE_DIR: _READ,
        Witness.REGISTRATION: _READ,
        Witness.OWN_DISK: _READ,
        Witness.CLUSTER: _READ,
        Witness.JOURNAL: Lasts.FOR_EVER,
    },
    Claim.IN_THIS_MODE: {
        Witness.PROCESS_ROLES: _READ,
        Witness.ADMIN: _READ,
        Witness.FILE: _READ,
        Witness.JOURNAL: Lasts.FOR_EVER,
    },
    Claim.NOT_CONTRADICTED: {Witness.EVERY_SOURCE: _READ},
    Claim.COVERED: {
        Witness.LEADER: Lasts.A_MINUTE,
        Witness.LED_HERE: Lasts.A_MINUTE,
        Witness.OTHER_LOG_DIR: Lasts.A_MINUTE,
        Witness.NO_RECORDS: Lasts.A_MINUTE,
    },
    Claim.OTHERS_IN_SYNC: _ASSIGNMENTS,
    Claim.REMOVAL_STARTED: {Witness.MARK_AND_COUNT: Lasts.FOR_EVER},
    Claim.WHOLE: {Witness.INVENTORY: Lasts.THE_PLAN},
    Claim.ALLOWED: {Witness.OPERATOR: Lasts.FOR_EVER},
    Claim.GIVEN_UP: {Witness.OPERATOR: Lasts.FOR_EVER},
}


class Act(StrEnum):
    """What is done to one directory. In the order of the words: which, and what is done with it."""

    SET_ASIDE_ORPHAN = "set-aside-orphan"
    SET_ASIDE_TO_REMOVE = "set-aside-to-remove"
    MARK_ORPHAN = "mark-orphan"
    MARK_ASSIGNED = "mark-assigned"
    DISPLACE = "displace"
    SET_ASIDE_DUPLICATE = "set-aside-duplicate"
    TAKE_BACK = "take-back"
    MARK_STRAY = "mark-stray"
    REMOVE_STRAY = "remove-stray"
    REMOVE_LEFTOVERS = "remove-leftovers"
    REMOVE_DUPLICATE = "remove-duplicate"
    REMOVE_MARKED = "remove-marked"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """Claims that are enough together, in one of several ways: the first that is met counts. `claims`: those of all
    ways. Compared and hashed by identity, because each guard looks needs up for each directory."""

    ways: tuple[tuple[Claim, ...], ...]
    claims: frozenset[Claim] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "claims", frozenset(claim for way in self.ways for claim in way))


def _all(*claims: Claim) -> tuple[Need, ...]:
    return tuple(Need(((claim,),)) for claim in claims)


def _one_of(*ways: tuple[Claim, ...]) -> tuple[Need, ...]:
    return (Need(ways),)


_C = Claim
_SOURCE = (_C.OUR_LINEAGE, _C.IN_THIS_MODE, _C.NOT_CONTRADICTED)
_ABSENT, _RECREATED = (_C.TOPIC_ABSENT, *_SOURCE), (_C.TOPIC_RECREATED, *_SOURCE)
_MOVED, _COPY = (_C.NOT_A_REPLICA, *_SOURCE), (_C.COPY_OF, *_SOURCE)
_ORPHAN = _one_of(_ABSENT, _RECREATED, _MOVED, _COPY)
_ORPHAN_THAT_GOES = _one_of(
    _ABSENT,
    _RECREATED,
    (*_MOVED, _C.COVERED),
    (*_COPY, _C.COVERED),
    (*_MOVED, _C.GIVEN_UP),
    (*_COPY, _C.GIVEN_UP),
)
_STRAY_THAT_GOES = _one_of(
    _ABSENT,
    _RECREATED,
    (*_MOVED, _C.COVERED),
    (*_COPY, _C.COVERED),
    (_C.LIVES_HERE, _C.COVERED),
    (_C.REMOVAL_STARTED,),
    # By name, and with an approval: nothing may be able to show whose it is.
    (_C.GIVEN_UP,),
)
_HOST = _all(_C.SAME_DIRECTORY, _C.ONLINE, _C.OUR_BROKER, _C.HOLDER_KNOWN, _C.CHANGEABLE)
_STOPPED = (*_HOST, *_all(_C.STOPPED, _C.NOT_OPEN))
_KEPT = _all(_C.CLOCK, _C.KEPT)

NEEDS: Mapping[Act, tuple[Need, ...]] = {
    Act.SET_ASIDE_ORPHAN: (*_STOPPED, *_all(_C.VERSION), *_ORPHAN, *_all(_C.CLOCK, _C.STOOD)),
    # Of a rescue, which goes on with its removal at once: an operator has approved that it need not stand.
    Act.SET_ASIDE_TO_REMOVE: (*_STOPPED, *_all(_C.VERSION), *_ORPHAN_THAT_GOES),
    Act.MARK_ORPHAN: (*_STOPPED, *_ORPHAN_THAT_GOES),
    Act.MARK_ASSIGNED: (*_STOPPED, *_one_of((_C.ALLOWED, _C.COVERED), (_C.ALLOWED, _C.GIVEN_UP))),
    # Set aside only, for a restore that takes its place: `--replace` is the operator's word for that.
    Act.DISPLACE: (
        *_STOPPED,
        *_all(_C.VERSION),
        *_one_of((_C.OTHERS_IN_SYNC,), (_C.GIVEN_UP,), _ABSENT, _RECREATED, _MOVED, _COPY),
    ),
    Act.SET_ASIDE_DUPLICATE: (*_STOPPED, *_all(_C.VERSION, _C.COVERED)),
    Act.TAKE_BACK: (*_STOPPED, *_all(_C.VERSION)),
    Act.MARK_STRAY: (*_STOPPED, *_STRAY_THAT_GOES, *_KEPT),
    Act.REMOVE_STRAY: (
        *_HOST,
        *_one_of((_C.STOPPED,), (_C.SERVING,)),
        *_all(_C.NOT_OPEN),
        *_STRAY_THAT_GOES,
        *_KEPT,
    ),
    # Files that a start drops from a directory that stays. An approval lists each of them.
    Act.REMOVE_LEFTOVERS: (*_STOPPED, *_all(_C.LIVES_HERE)),
    # What a rescue has just set aside because of its copy, which has all of it.
    Act.REMOVE_DUPLICATE: (*_STOPPED, *_all(_C.COVERED)),
    Act.REMOVE_MARKED: (*_STOPPED, *_all(_C.CONFIGURATION), *_KEPT),
    Act.RESTORE: (*_STOPPED, *_all(_C.WHOLE)),
}
"""An act needs all of its needs. `clock`, `stood`, `kept` and `configuration` are asked when it falls due
(`cleanup.plan.planner`), `whole` when a restore is planned (`cleanup.restore.rules`), the others by the guards."""

JUST: Mapping[Claim, frozenset[Claim]] = {claim: frozenset({claim}) for claim in Claim}
"""Each claim as a set of its own, to look up the need that it belongs to."""


@dataclass(frozen=True, slots=True)
class Held:
    """A claim that holds, and who says so as of when (ms)."""

    claim: Claim
    witness: Witness
    as_of_ms: int


Proof = tuple[Held, ...]


class Moment(NamedTuple):
    """When an act is decided on, and what the times of its witnesses are compared with, in ms: `made_ms`, no later than
    when the directory was made; `max_age_ms`, of assignments; `process_started_ms`, of the log dir's holder."""

    now_ms: int
    made_ms: int
    max_age_ms: int
    process_started_ms: int | None = None


class Unmet(NamedTuple):
    """The claim that an act lacks. `late`: what is wrong with its witness; None if there is none."""

    claim: Claim
    late: str | None = None


def holds(held: Held, moment: Moment) -> Unmet | None:
    """Why that witness is not enough for its claim (any more); None if it is."""
    lasts = ENOUGH[held.claim].get(held.witness)
    if lasts is None:
        return Unmet(held.claim, f"{held.witness} is no witness of it")
    late = _late(held.as_of_ms, lasts, moment)
    return None if late is None else Unmet(held.claim, f"{held.witness} says so as of {_at(held.as_of_ms)}: {late}")


def _late(as_of_ms: int, lasts: Lasts, moment: Moment) -> str | None:
    longest = _longest_ms(lasts, moment)
    if longest is not None:
        age = moment.now_ms - as_of_ms
        return f"{age // 1000} s ago, and that stays true for {longest // 1000} s" if age > longest else None
    if lasts is Lasts.SINCE_IT_WAS_MADE and as_of_ms < moment.made_ms:
        return f"the directory may have been made at {_at(moment.made_ms)}"
    if lasts is Lasts.WHILE_IT_RUNS and (moment.process_started_ms or as_of_ms + 1) > as_of_ms:
        return "the process that holds the log dir is another one"
    return None


def _longest_ms(lasts: Lasts, moment: Moment) -> int | None:
    if lasts is Lasts.TEN_SECONDS:
        return 10_000
    if lasts is Lasts.A_MINUTE:
        return 60_000
    return moment.max_age_ms if lasts is Lasts.WHILE_ASSIGNMENTS_COUNT else None


def _at(ms: int) -> str:
    return rfc3339(ms) if ms >= 0 else str(ms)


Ask = Callable[[Claim], "Held | Unmet"]


def met(need: Need, ask: Ask) -> Proof | Unmet:
    """The proof of `need` if it is met: of the first way all of whose claims hold. Else what is lacking, in the way
    that has most of them, and of those rather one whose witness came too late."""
    furthest: tuple[tuple[int, bool], Unmet] | None = None
    for way in need.ways:
        proof: list[Held] = []
        for claim in way:
            answer = ask(claim)
            if isinstance(answer, Unmet):
                far = len(proof), answer.late is not None
                if furthest is None or far > furthest[0]:
                    furthest = far, answer
                break
            proof.append(answer)
        else:
            return tuple(proof)
    assert furthest is not None
    return furthest[1]


def from_proof(proof: Iterable[Held], moment: Moment) -> Ask:
    """Asks a proof: for each claim the first witness that is enough now."""
    by_claim: dict[Claim, list[Held]] = {}
    for held in proof:
        by_claim.setdefault(held.claim, []).append(held)

    def ask(claim: Claim) -> Held | Unmet:
        lacking = Unmet(claim)
        for held in by_claim.get(claim, ()):
            unmet = holds(held, moment)
            if unmet is None:
                return held
            lacking = unmet
        return lacking

    return ask


def of_ruling(proof: Proof) -> Held | None:
    """What a verdict says and who said it: the first claim of its proof."""
    return proof[0] if proof else None


_DECIDES = (
    _C.GIVEN_UP, _C.ALLOWED, _C.TOPIC_ABSENT, _C.TOPIC_RECREATED, _C.NOT_A_REPLICA, _C.COPY_OF, _C.COVERED,
    _C.OTHERS_IN_SYNC, _C.REMOVAL_STARTED, _C.LIVES_HERE, _C.WHOLE, _C.KEPT,
)  # fmt: skip


def decisive(claims: Iterable[tuple[str, str, int]]) -> tuple[str, str, int] | None:
    """Of what an act rested on (claim, witness, as of), what was decisive for this directory: an operator's word before
    the verdict, the verdict before what any act needs of its host. None if nothing of that was noted."""
    by_claim = {claim: (claim, witness, at) for claim, witness, at in claims}
    return next((by_claim[claim] for claim in _DECIDES if claim in by_claim), None)


def since_when(proofs: Iterable[Proof]) -> dict[Witness, int]:
    """Who the proofs rest on, and the oldest time (ms) as of which each says so."""
    oldest: dict[Witness, int] = {}
    for proof in set(proofs):
        for held in proof:
            oldest[held.witness] = min(held.as_of_ms, oldest.get(held.witness, held.as_of_ms))
    return dict(sorted(oldest.items()))
