"""The treemap's layout: areas true, no overlap, no gap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.fleet.page.topics import cut
from logagent.fleet.page.treemap import Box, squarify

weights = st.lists(st.integers(0, 2**50), max_size=80)
sides = st.floats(1, 2000)


@given(weights, sides, sides)
def test_areas_are_in_proportion_and_fill_the_whole(given_weights: list[int], width: float, height: float) -> None:
    total = sum(given_weights)
    boxes = squarify(given_weights, width, height)
    assert [box.number for box in boxes] == [number for number, weight in enumerate(given_weights) if weight > 0]
    for box in boxes:
        wanted = given_weights[box.number] / total * width * height
        assert box.width * box.height == pytest.approx(wanted, rel=1e-3, abs=1e-6 * width * height)
    if boxes:
        assert sum(box.width * box.height for box in boxes) == pytest.approx(width * height, rel=1e-6)


@given(weights, sides, sides)
def test_boxes_stay_inside_and_apart(given_weights: list[int], width: float, height: float) -> None:
    boxes = squarify(sorted(given_weights, reverse=True), width, height)
    slack = 1e-6 * max(width, height)
    for index, box in enumerate(boxes):
        assert box.x >= -slack and box.y >= -slack
        assert box.x + box.width <= width + slack
        assert box.y + box.height <= height + slack
        assert not any(_overlap(box, other, slack) for other in boxes[:index])


def _overlap(one: Box, other: Box, slack: float) -> bool:
    across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
    down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
    return across > slack and down > slack


def test_the_example_of_the_paper() -> None:
    boxes = squarify([6, 6, 4, 3, 2, 2, 1], 6, 4)
    assert [(round(b.x, 2), round(b.y, 2), round(b.width, 2), round(b.height, 2)) for b in boxes[:3]] == [
        (0, 0, 3, 2),
        (0, 2, 3, 2),
        (3, 0, 1.71, 2.33),
    ]


def test_nothing_to_draw() -> None:
    assert squarify([], 10, 10) == []
    assert squarify([0, -1], 10, 10) == []
    assert squarify([1], 0, 10) == []


def test_labels_are_cut_by_the_width_of_their_letters() -> None:
    assert cut("orders", 6) == "orders"
    assert cut("orders.v2", 6) == "order…"
    assert cut("注文注文", 4) == "注…"
