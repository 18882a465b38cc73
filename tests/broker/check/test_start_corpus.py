"""`logagent check` beside starts whose outcome nobody wrote down: what it calls fatal does not start, the rest does.

A default run takes the damages that name a release as quick, and all their cures together; `tests/run --full` takes
all, and each cure by itself (or, with a table of what came of each, `python -m tests.broker.check`).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.check.conftest import Preparer
from tests.broker.check.corpus import CORPUS, EVERYWHERE, NEWEST, Damage
from tests.broker.check.starts import Kind, Outcome, outcome
from tests.broker.check.tried import checked, try_damage
from tests.long_form import FULL
from tests.needs import need_root


def matrix() -> list[Any]:
    """(damage, version, kind of node), in an order in which each disk is prepared once."""
    rows = [
        (damage, version, kind)
        for version in EVERYWHERE
        for damage in CORPUS
        for kind in damage.tries(version)
        if FULL or (version, kind) in damage.quick
    ]
    rows.sort(key=lambda row: (row[1], row[2], row[0].trimmed))
    return [pytest.param(*row, id=f"{row[1]} {row[2]} {row[0].id}") for row in rows]


@pytest.mark.parametrize(("damage", "version", "kind"), matrix())
def test_a_start_and_its_cure_go_as_check_says(prepared: Preparer, damage: Damage, version: str, kind: Kind) -> None:
    need_root()
    tried = try_damage(prepared(version, kind, damage.trimmed), damage, version, cures=FULL)
    assert tried.agrees, (tried.outcome, tried.cured, tried.findings, tried.log[-3000:])


def test_the_cures_of_a_default_run_go_side_by_side(prepared: Preparer) -> None:
    """Each is one for its own damage; so one start shows all of them. The long form has a start for each."""
    need_root()
    with prepared(NEWEST).disk() as disk:
        cured = [damage for damage in CORPUS if (NEWEST, "combined") in damage.quick and damage.cure is not None]
        for damage in cured:
            damage.do(disk)
            assert damage.cure is not None
            damage.cure(disk)
        fatal = [finding for finding in checked(disk, NEWEST) if finding["severity"] == "fatal"]
        assert fatal == [] and len(cured) > 10
        assert outcome(disk) is Outcome.STARTS, disk.node.log_tail()


def test_the_corpus_is_large_and_its_names_are_its_own() -> None:
    assert len({damage.id for damage in CORPUS}) == len(CORPUS) >= 90
