"""The lives of a property test: so many, each from a seed of its own, which is in the name of the test.

`LOGAGENT_TESTS_LIVES=1000 tests/run tests/disk/agent/session -k no_life` is the long form; `LOGAGENT_TESTS_SEED=…`
begins with that life. What a life picks depends on what it finds on a disk, and on nothing else but its seed.
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
    """As many as asked for; `few` where nobody says."""
    first = os.environ.get("LOGAGENT_TESTS_SEED") or random.SystemRandom().randrange(1 << 32)
    return [int(first) + number for number in range(int(os.environ.get("LOGAGENT_TESTS_LIVES") or few))]


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
