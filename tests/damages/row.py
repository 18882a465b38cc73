"""What a row of the table is: a damage, and what is known to come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from tests.broker.rig.jars import version_tuple
from tests.damages.disk import Disk
from tests.hosts import OF_PLACES

ANSWERS = Path(__file__).parent / "answers.tsv"

Doing = Callable[[Disk], object]
# unprivileged: a combined node whose broker runs as another user than root.
Kind = Literal["combined", "broker", "controller", "dynamic", "zookeeper", "unprivileged"]

KINDS: tuple[Kind, ...] = get_args(Kind)


class Outcome(StrEnum):
    """REFUSES: it ends before it serves. OFFLINE: it serves without the damaged log dir, or ends for want of it.
    UNSERVED: it serves, but not every partition. STARTS: it serves everything, all records are there. HANGS: it neither
    serves nor ends. FAILS: one of the others, and nobody wrote down which; never the outcome of a real start."""

    REFUSES = "refuses"
    OFFLINE = "offline"
    UNSERVED = "unserved"
    STARTS = "starts"
    HANGS = "hangs"
    FAILS = "fails"


class Answer(NamedTuple):
    """What a start of one release makes of it, and what `check` says to that before.

    marked: it is one that shows what others like it do. found: `severity:code` of each finding, sorted.
    """

    outcome: Outcome
    found: tuple[str, ...]
    marked: bool = False

    @property
    def fatal(self) -> set[str]:
        return {code for severity, _, code in (each.partition(":") for each in self.found) if severity == "fatal"}


@dataclass(frozen=True)
class Damage:
    """What is done to the disk of a stopped node. `answers.tsv` has what comes of it, by kind of node and release.

    cure: what the hint of check's finding advises; after it the node starts and serves everything. trimmed: of a node
    whose metadata log begins at a snapshot. patience: seconds in which a start may go wrong after it serves. write:
    records are written meanwhile. starts: how many starts in a row; the last one counts.
    """

    id: str
    do: Doing
    cure: Doing | None = None
    trimmed: bool = False
    patience: float = 0
    write: bool = False
    starts: int = 1

    def answers(self, kind: Kind) -> Mapping[str, Answer]:
        """By release, the oldest first; empty where it does not hold."""
        return answers().get((self.id, kind), {})

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(kind for name, kind in answers() if name == self.id)


@cache
def answers() -> Mapping[tuple[str, Kind], Mapping[str, Answer]]:
    """A line: the name, then `kind release… kind release…: outcome finding…` for each group that agrees. A star marks
    a release of which a start shows what others like it do."""
    found: dict[tuple[str, Kind], dict[str, Answer]] = {}
    for line in ANSWERS.read_text().splitlines():
        name, *groups = line.split("\t")
        for who, _, said in (group.partition(": ") for group in groups):
            outcome, *codes = said.split(" ")
            of: dict[str, Answer] = {}
            for word in who.split(" "):
                if word[0].isalpha():
                    of = found.setdefault((name, cast(Kind, word)), {})
                    continue
                release = word.rstrip("*")
                assert release not in of, f"{release} stands twice in: {line}"
                of[release] = Answer(Outcome(outcome), tuple(codes), release != word)
    return {key: {release: of[release] for release in sorted(of, key=version_tuple)} for key, of in found.items()}


def write_answers(rows: Mapping[tuple[str, Kind], Mapping[str, Answer]]) -> None:
    lines: dict[str, dict[str, list[str]]] = {}
    for (name, kind), of in sorted(rows.items(), key=lambda row: KINDS.index(row[0][1])):
        groups = lines.setdefault(name, {})
        for release in sorted(of, key=version_tuple):
            outcome, found, marked = of[release]
            who = groups.setdefault(" ".join((outcome, *found)), [])
            who += [kind] * (kind not in who) + [release + "*" * marked]
    ANSWERS.write_text(
        "".join(
            "\t".join((name, *(f"{' '.join(who)}: {said}" for said, who in lines[name].items()))) + "\n"
            for name in dict.fromkeys(name for name, _ in rows)
        )
    )
    answers.cache_clear()


# Not of the damage: where a test's disks are, and how full that one is.
NOT_OF_THE_DAMAGE = {*OF_PLACES, "low-space", "low-inodes"}


def findings(of: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Those of a document of `check`, as an `Answer` has them."""
    return tuple(sorted({f"{f['severity']}:{f['code']}" for f in of if f["code"] not in NOT_OF_THE_DAMAGE}))


# Where in a disk, and what is done to the file there.
Where = Callable[[Disk], Path]
How = Callable[[Path], object]


def to(where: Where, how: How) -> Doing:
    return lambda disk: how(where(disk))


def each(
    what: str, where: Where, hows: Mapping[str, How], cure: How | None = None, trimmed: bool = False
) -> Iterator[Damage]:
    """One file damaged in several ways."""
    for how, damage in hows.items():
        mended = to(where, cure) if cure is not None else None
        yield Damage(f"{what} {how}", to(where, damage), cure=mended, trimmed=trimmed)
