"""The ratchet: what the house has come to is not lost again. The script that counts it finds all of each subject."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frozen import house
from tests.frozen.figures import read

ROOT = Path(__file__).parents[2]


def test_every_pattern_of_a_subject_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = read(ROOT)
    found = {subject: house.subject_files(modules, ROOT, subject) for subject in house.SUBJECTS}
    assert all(found.values())
    moved_away = {"topics": (*house.SUBJECTS["topics"], "nowhere/*")}
    monkeypatch.setattr(house, "SUBJECTS", moved_away)
    with pytest.raises(ValueError, match=r"topics: no file of the product matches nowhere/\*"):
        house.subject_files(modules, ROOT, "topics")


def test_no_figure_rises_and_what_fell_is_held() -> None:
    """A new limit goes into `tests/frozen/house.tsv`; `python -m tests.frozen.house` prints today's figures."""
    found, most = dict(house.counts(ROOT)), house.limits()
    assert found.keys() == most.keys()
    risen = {name: (number, most[name]) for name, number in found.items() if number > most[name]}
    assert not risen, "more than house.tsv permits"
    assert {name: (number, most[name]) for name, number in found.items() if number < 0.97 * most[name]} == {}, (
        "less than house.tsv permits: tighten it"
    )
