"""A broker that starts, serves and dies while cleanup runs: never an offline log dir, a failed start, a lost record.

The long form is `python -m tests.broker.races` (see there).
"""

from __future__ import annotations

import pytest

from tests.broker.races import Mode, Race
from tests.broker.rig import Rig


@pytest.mark.parametrize(
    ("version", "mode", "rounds", "full"),
    [("3.9.1", "kraft", 6, 2), ("4.3.1", "kraft", 5, 2), ("3.5.2", "zookeeper", 5, 2)],
)
def test_a_broker_meets_a_removal_in_every_phase_unharmed(
    rig: Rig, version: str, mode: Mode, rounds: int, full: int
) -> None:
    tally = Race(rig, version, mode, seed=20).run(rounds, full)
    assert tally.troubles == []
    assert tally.full >= full
    assert tally.full + tally.killed == rounds
    # The races were real: the remover was interrupted by a broker, and it did remove.
    assert tally.yielded > 0
    assert tally.removed > 0


def test_without_the_interlock_the_same_loop_fails(rig: Rig) -> None:
    # About one start in five is hit. The first that is hit is enough.
    tally = Race(rig, "3.9.1", "kraft", seed=20, interlock=False).run(rounds=60, full=60, most_troubles=0)
    assert any("Stopping serving logs" in trouble or "offline" in trouble for trouble in tally.troubles), tally
