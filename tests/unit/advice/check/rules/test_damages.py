"""Check's rules on each damage of the table, from facts in memory: for every release and kind of node that it names."""

from __future__ import annotations

import pytest

from logagent.advice.check.rules.linter import check
from tests.broker.rig.jars import version_tuple
from tests.damages import DAMAGES
from tests.damages.facts import FACTS, of_kind, why_without
from tests.damages.row import Damage, Kind

ROWS = [(DAMAGES[name], kind) for name in FACTS for kind in DAMAGES[name].kinds]


@pytest.mark.parametrize(("damage", "kind"), [pytest.param(*row, id=f"{row[1]} {row[0].id}") for row in ROWS])
def test_the_rules_find_what_the_table_says(damage: Damage, kind: Kind) -> None:
    """All that is fatal, and nothing that `check` does not find on a disk, where there is more than in these facts."""
    told = []
    for release, answer in damage.answers(kind).items():
        found = check(of_kind(FACTS[damage.id], kind), version_tuple(release))
        fatal = {f.why.code for f in found if f.severity.value == "fatal"}
        more = {f"{f.severity.value}:{f.why.code}" for f in found} - {*answer.found}
        if fatal != answer.fatal or more:
            told.append(f"{release}: {sorted(fatal | more)} instead of {list(answer.found)}")
    assert "; ".join(told) == ""


def test_a_row_without_facts_says_why() -> None:
    assert [name for name in DAMAGES if name not in FACTS and why_without(name) is None] == []
    assert {*FACTS} <= {*DAMAGES}
