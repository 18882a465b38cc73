"""The first screen as text: the same figures, and names that no terminal and no chat obeys."""

from __future__ import annotations

import pytest

from logagent.fleet.page import text as units
from logagent.fleet.page.document import brief
from tests.page.sample import empty
from tests.page.test_first_screen import FLEETS, directories
from tests.page.test_render import HOSTILE, altered


@pytest.mark.parametrize("name", sorted(FLEETS))
def test_the_figures_are_those_of_the_rows(name: str) -> None:
    made = FLEETS[name]()
    text = brief(made[0])
    assert len(text.splitlines()) <= 10 and max(map(len, text.splitlines())) <= 200
    rows = made[1]["usage_log_dirs"]["rows"]
    used, size = (sum(row[key] or 0 for row in rows) for key in ("used", "size"))
    least = "" if name == "healthy" else "at least "
    assert f"Used: {least}{units.size(used)} of {units.size(size)}, {units.percent(used / size)}" in text
    for window, label in (("now", "now"), ("restart", "at next broker restart"), ("approval", "only with approval")):
        mine = sum(row["allocated"] for row in directories(made) if row["window"] == window)
        assert f"{label} {units.size(mine)}" in text
    missing = made[1]["missing_replicas"]["rows"]
    lost = len({(row["topic_id"], row["partition"]) for row in missing if row["copies_elsewhere"] == 0})
    assert f"At risk: {lost} partitions with no copy" in text
    assert ("hosts reporting" in text) is (name != "healthy")


def test_nothing_known_is_not_nothing_there() -> None:
    assert brief(empty()[0]).splitlines()[1:] == ["No host reported: nothing is known."]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_one_line_of_text(name: str) -> None:
    plain = brief(FLEETS["on fire"]()[0])
    text = brief(altered(FLEETS["on fire"](), lambda _: name)[0])
    assert len(text.splitlines()) <= len(plain.splitlines())
    assert text.replace("\n", "").isprintable()
