"""The lives of a property test: so many, each from a seed of its own, which is in the name of the test.

The few of every run are the same ones, so that a run says something about the change and not about chance;
`LOGAGENT_TESTS_LIVES=1000 tests/run tests/disk/cleanup/session -k no_life` is the long form, with lives that nobody has
seen yet. `LOGAGENT_TESTS_SEED=…` begins with that life. What a life picks depends on what it finds on a disk, and on
nothing else but its seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
# What is picked, and from what.
Pick = Callable[[str, Sequence[Any]], Any]


def seeds(few: int) -> list[int]:
    """As many as asked for, new ones; the same `few` where nobody says."""
    many = os.environ.get("LOGAGENT_TESTS_LIVES")
    first = os.environ.get("LOGAGENT_TESTS_SEED") or (random.SystemRandom().randrange(1 << 32) if many else 1)
    return [int(first) + number for number in range(int(many or few))]


def by_chance(seed: int) -> Pick:
    """Says what it picks: that is printed with the life that fails."""
    chance = random.Random(seed)

    def pick(what: str, choices: Sequence[T]) -> T:
        chosen = chance.choice(choices)
        print(f"{what}: {getattr(chosen, '__name__', chosen)}")
        return chosen

    return pick


def told(**answers: Any) -> Pick:
    """Picks what it was told, by label."""
    return lambda what, _: answers[what.replace(" ", "_").replace(".", "_")]
