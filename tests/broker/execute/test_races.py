"""A broker that starts, serves and dies while cleanup runs: never an offline log dir, a failed start, a lost record.

The long form is `python -m tests.broker.races` (see there). The brokers are their own: they are killed again and again.
"""

from __future__ import annotations

import shutil

import pytest

from tests.broker.races import Mode, Race
from tests.broker.rig.rig import Rig
from tests.long_form import FULL, long_form, versions


@pytest.mark.parametrize(
    ("version", "mode", "rounds", "full"),
    versions(
        ("4.4.0", "kraft", *((6, 2) if FULL else (4, 1))),
        ("4.3.1", "kraft", 6, 2),
        ("3.9.1", "kraft", 6, 2),
        ("3.5.2", "zookeeper", 5, 2),
    ),
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


@pytest.mark.parametrize("interlock", [True, False])
def test_a_removal_held_up_over_a_start_goes_on_only_without_the_interlock(rig: Rig, interlock: bool) -> None:
    race = Race(rig, "3.9.1", "kraft", seed=20, interlock=interlock, purge_after=8)
    race.held_up()
    tally = race.tally
    if interlock:
        assert tally.troubles == []
        # It was in the middle of one, and left the rest to the broker.
        assert (tally.yielded, tally.removed) == (1, 0)
    else:
        assert any("Stopping serving logs" in trouble for trouble in tally.troubles), tally
        assert any(trouble.startswith("offline") for trouble in tally.troubles), tally
        assert (tally.yielded, tally.removed) == (0, 1)


@long_form
def test_a_broker_that_is_not_ready_in_time_is_a_trouble_of_its_round_alone(rig: Rig) -> None:
    race = Race(rig, "3.9.1", "kraft", seed=20)
    race.node.start()
    race.node.stop()
    shutil.copytree(race.node.log_dirs[0], race.template, ignore=lambda directory, names: names)
    race.ready_seconds = 0.05
    race.round(full=True)
    assert len(race.tally.troubles) == 1
    assert race.tally.troubles[0].startswith("failed start")
    assert not race.node.alive
    race.ready_seconds = 90
    race.round(full=True)
    assert len(race.tally.troubles) == 1
    assert not race.node.alive
