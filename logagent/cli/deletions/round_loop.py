"""Round after round, as in `topics run`: until nothing is left, or forever."""

from __future__ import annotations

import time

from logagent.cli.deletions.asking import tell_dropped
from logagent.cli.deletions.opening import Place
from logagent.cli.options import Call
from logagent.controller.rounds import DeletionRounds
from logagent.errors import Exit, ServiceUnreachable
from logagent.store.epochs import EpochLost

IDLE_LOOKS = 3
"""How often another controller is found idle before its epoch is ended. Two that ended each other's at once would let
no agent finish what takes longer than their rounds."""


def run_rounds(call: Call, place: Place, *, once: bool, interval: str | None, pause: float) -> None:
    """Run rounds, with `pause` seconds in between. With an `interval` they go on forever, and temporary errors do not
    end them."""
    if once and not _is_due(call, place):
        return
    rounds = place.rounds(signing=True)
    rounds.start()
    while True:
        try:
            rounds.round()
            left = len(rounds.context.topics_to_be_deleted)
            call.detail(f"topics: epoch {rounds.epoch}, {left} topics left")
            if once or (interval is None and not left):
                break
        except ServiceUnreachable as error:
            if once or interval is None:
                raise
            call.say(f"topics: {error}; the next round tries again")
        except EpochLost as error:
            if interval is None:
                raise
            call.say(f"topics: {error}; taking over again once that controller does nothing")
            rounds = _take_over(call, place, pause)
            continue
        time.sleep(pause)
    if rounds.dropped:
        tell_dropped(call)
    if rounds.context.topics_to_be_deleted:
        call.say("topics: requests are still open; `logagent topics status` shows what they wait for")
        call.record_status(Exit.REFUSED)


def _take_over(call: Call, place: Place, pause: float) -> DeletionRounds:
    """Only look until another controller's epoch has been idle for several looks; the controller that follows it."""
    idle, epoch = 0, None
    while True:
        time.sleep(pause)
        try:
            look = place.rounds(signing=True)
            is_idle, before, epoch = look.is_idle(), epoch, look.highest_epoch()
            idle = idle + 1 if is_idle and epoch == before else int(is_idle)
            if idle >= IDLE_LOOKS:
                rounds = place.rounds(signing=True)
                rounds.start()
                return rounds
        except (ServiceUnreachable, EpochLost) as error:
            idle = 0
            call.say(f"topics: {error}; the next round tries again")


def _is_due(call: Call, place: Place) -> bool:
    look = place.rounds(signing=True)
    if look.is_due():
        return True
    if look.context.topics_to_be_deleted:
        call.say("topics: nothing can be done now; `logagent topics status` shows what open requests wait for")
        call.record_status(Exit.REFUSED)
    return False
