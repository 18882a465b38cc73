"""How many lives a property test leads, and from which seed: `LOGAGENT_TESTS_LIVES`, `LOGAGENT_TESTS_SEED`.

`LOGAGENT_TESTS_LIVES=1000 tests/run tests/disk/agent/session -k no_life` is the long form. A life that fails prints its
seed; with the same seed, number and code it comes again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, note, seed, settings

SEED = int(os.environ.get("LOGAGENT_TESTS_SEED") or random.SystemRandom().randrange(1 << 32))


def lives(few: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """So many lives where nothing is said. They are not made shorter: each is a host, and the first failure tells."""
    count = int(os.environ.get("LOGAGENT_TESTS_LIVES") or few)
    chosen = settings(
        phases=[Phase.explicit, Phase.generate],
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    return lambda test: chosen(seed(SEED)(test))


def say_seed() -> None:
    """Printed with the life that fails."""
    note(f"LOGAGENT_TESTS_SEED={SEED} LOGAGENT_TESTS_LIVES={os.environ.get('LOGAGENT_TESTS_LIVES') or ''}")
