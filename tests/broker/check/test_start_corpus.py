"""`logagent check` beside starts whose outcome nobody wrote down: what it calls fatal does not start, the rest does.

A default run takes the damages that name a release as quick; `tests/run --full` takes all (or, with a table of what
came of each, `python -m tests.broker.check`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.broker.check.corpus import CORPUS, EVERYWHERE, Damage
from tests.broker.check.starts import Kind, Prepared
from tests.broker.check.tried import try_damage
from tests.long_form import FULL
from tests.needs import need_root

Preparer = Callable[[str, Kind, bool], Prepared]


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


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preparer]:
    made: dict[tuple[str, Kind, bool], Prepared] = {}
    with ExitStack() as stack:

        def get(version: str, kind: Kind, trimmed: bool) -> Prepared:
            key = (version, kind, trimmed)
            if key not in made:
                made[key] = Prepared(tmp_path_factory.mktemp(f"{kind}-{version}"), version, kind, trimmed=trimmed)
                stack.callback(made[key].close)
            return made[key]

        yield get


@pytest.mark.parametrize(("damage", "version", "kind"), matrix())
def test_a_start_and_its_cure_go_as_check_says(prepared: Preparer, damage: Damage, version: str, kind: Kind) -> None:
    need_root()
    tried = try_damage(prepared(version, kind, damage.trimmed), damage, version)
    assert tried.agrees, (tried.outcome, tried.cured, tried.findings, tried.log[-3000:])


def test_the_corpus_is_large_and_its_names_are_its_own() -> None:
    assert len({damage.id for damage in CORPUS}) == len(CORPUS) >= 90
