"""Squarified treemap layout (Bruls, Huizing, van Wijk 2000): areas in proportion, rectangles near squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle in the units of the layout; `number` is that of the weight it stands for."""

    number: int
    x: float
    y: float
    width: float
    height: float


def squarify(weights: Sequence[float], width: float, height: float) -> list[Box]:
    """Rectangles that fill width x height, one for each positive weight, in the order given.

    `weights` should come largest first (squareness depends on it, correctness does not). Areas are in proportion
    to the weights; weights that are not positive get no rectangle.
    """
    wanted = [(index, weight) for index, weight in enumerate(weights) if weight > 0]
    total = sum(weight for _, weight in wanted)
    if not wanted or width <= 0 or height <= 0 or total <= 0:
        return []
    areas = [(index, weight / total * width * height) for index, weight in wanted]
    boxes: list[Box] = []
    x, y = 0.0, 0.0
    start = 0
    while start < len(areas):
        side = min(width - x, height - y)
        end = _row_end(areas, start, side)
        row = areas[start:end]
        is_last = end == len(areas)
        x, y = _place(row, (x, y, width, height), is_last, boxes)
        start = end
    return boxes


def _row_end(areas: Sequence[tuple[int, float]], start: int, side: float) -> int:
    """How far the row that begins at `start` grows before its worst aspect ratio gets worse."""
    total = largest = areas[start][1]
    smallest = largest
    end = start + 1
    worst = _worst(total, largest, smallest, side)
    while end < len(areas):
        area = areas[end][1]
        total += area
        largest, smallest = max(largest, area), min(smallest, area)
        grown = _worst(total, largest, smallest, side)
        if grown > worst:
            break
        worst = grown
        end += 1
    return end


def _worst(total: float, largest: float, smallest: float, side: float) -> float:
    square = side * side
    if square <= 0 or total <= 0 or smallest <= 0:
        return float("inf")
    return max(square * largest / (total * total), total * total / (square * smallest))


def _place(
    row: Sequence[tuple[int, float]],
    rest: tuple[float, float, float, float],
    is_last: bool,
    boxes: list[Box],
) -> tuple[float, float]:
    """Put one row along the shorter side of what is left (x, y to width, height); returns the new corner."""
    x, y, width, height = rest
    total = sum(area for _, area in row)
    upright = width - x >= height - y
    side = height - y if upright else width - x
    room = width - x if upright else height - y
    # The last row takes all that is left: rounding must leave no gap.
    depth = room if is_last or side <= 0 else min(room, total / side)
    at = y if upright else x
    for index, area in row:
        length = area / total * side if total else 0.0
        box = Box(index, x, at, depth, length) if upright else Box(index, at, y, length, depth)
        boxes.append(box)
        at += length
    return (x + depth, y) if upright else (x, y + depth)
