"""`logagent check` beside real starts, row by row of the table of damages: what it calls fatal does not start, the rest
does.

What a release makes of a disk does not change with this project, and `tests/disk/cli/test_damages.py` compares what
`check` says with all that was written down of it. So a default run takes one start of each outcome, and all cures of
those that are marked in `answers.tsv` together; `tests/run --full` takes all that are marked, those of the newest
release and of each that answers otherwise than the one before or after it, and each cure by itself. All of them, an
hour of CPU, with a line for each: `python -m tests.broker.check`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain, pairwise
from typing import Any

import pytest

from logagent.advice.check.rules import linter
from tests.broker.check.conftest import Preparer
from tests.broker.check.starts import outcome
from tests.broker.check.test_other_release import CHANGES
from tests.broker.check.tried import checked, try_damage
from tests.broker.rig.jars import version_tuple
from tests.damages import DAMAGES
from tests.damages.row import Answer, Damage, Kind, Outcome, answers
from tests.long_form import FULL
from tests.needs import need_root

# Of older releases, of ZooKeeper mode, or of a dynamic quorum.
ONLY_LONG = {
    "stray-unsupported",
    "cache-unsupported",
    "lost-broker-id",
    "no-broker-id",
    "reserved-broker-id",
    "no-quorum",
    "other-directory-id",
}
ROWS = [
    (DAMAGES[name], kind, release, answer) for (name, kind), of in answers().items() for release, answer in of.items()
]


def telling(of: Mapping[str, Answer]) -> set[str]:
    """Of the answers to one damage: the newest release, and both of each two between which they change."""
    releases = sorted(of, key=version_tuple)
    changes = [two for two in pairwise(releases) if of[two[0]][:2] != of[two[1]][:2]]
    return {releases[-1], *chain.from_iterable(changes)}


def matrix() -> list[Any]:
    """In an order in which each disk is prepared once."""
    marked = [row for row in ROWS if row[3].marked]
    if FULL:
        rows = [row for row in ROWS if row in marked or row[2] in telling(answers()[row[0].id, row[1]])]
    else:
        rows = list({(*row[1:3], row[3].outcome): row for row in reversed(marked)}.values())
    rows.sort(key=lambda row: (row[2], row[1], row[0].trimmed))
    return [pytest.param(*row, id=f"{row[2]} {row[1]} {row[0].id}") for row in rows]


@pytest.mark.parametrize(("damage", "kind", "version", "answer"), matrix())
def test_a_start_and_its_cure_go_as_check_says(
    prepared: Preparer, damage: Damage, kind: Kind, version: str, answer: Answer
) -> None:
    need_root()
    tried = try_damage(prepared(version, kind, damage.trimmed), damage, version, cures=FULL)
    assert "; ".join(tried.differs(answer)) == "", tried.log[-3000:]


@pytest.mark.parametrize("version", ["3.9.1", "4.4.0"])
def test_the_cures_of_a_default_run_go_side_by_side(prepared: Preparer, version: str) -> None:
    """Each is one for its own damage; so one start shows all of them. The long form has a start for each."""
    need_root()
    with prepared(version).disk() as disk:
        cured = [
            damage
            for damage, kind, release, answer in ROWS
            if (kind, release) == ("combined", version) and answer.marked and damage.cure is not None
        ]
        for damage in cured:
            assert damage.cure is not None
            damage.do(disk)
            damage.cure(disk)
        fatal = [finding for finding in checked(disk, version) if finding["severity"] == "fatal"]
        assert fatal == [] and len(cured) > 5
        assert outcome(disk) is Outcome.STARTS, disk.node.log_tail()


def test_every_fatal_code_was_seen_on_a_real_broker() -> None:
    """By the table of codes. A symlink's target is emptied later than at the start: test_check_live shows that; names
    that are too long, tests/broker/execute/test_before_2_4.py. A broker starts with two partitions in one dir, and
    one overwrites the other: no outcome of a start. On a file system that cannot do what a broker does it starts, and
    fails later; which those are is tried without a broker."""
    fatal = set(re.findall(r"^([a-z][a-z-]+) +fatal ", linter.__doc__ or "", re.MULTILINE))
    shown = {code for *_, answer in ROWS for code in answer.fatal}
    shown |= {code for change in CHANGES for code in change.codes}
    assert fatal - shown == {"delete-through-link", "too-long-to-delete", "linked-partition", "unfit-file-system"}
    assert shown <= fatal


def test_what_is_marked_shows_every_fatal_code_that_its_releases_know() -> None:
    shown = {code for *_, answer in ROWS if answer.marked for code in answer.fatal}
    shown |= {code for change in CHANGES if change.quick for code in change.codes}
    every = {code for *_, answer in ROWS for code in answer.fatal}
    every |= {code for change in CHANGES for code in change.codes}
    assert every - shown == ONLY_LONG


def test_what_is_marked_starts_on_the_oldest_and_the_newest_release_of_these() -> None:
    of = [release for _, kind, release, answer in ROWS if answer.marked and kind == "combined"]
    assert min(of.count("3.9.1"), of.count("4.4.0")) > 15 and {*of} == {"3.9.1", "4.4.0"}
