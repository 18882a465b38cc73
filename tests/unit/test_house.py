"""The script that counts how far a subject's code lies apart finds all of each subject."""

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
