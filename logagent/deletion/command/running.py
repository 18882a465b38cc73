"""`topics run`: round after round, until nothing is left or forever; and `topics cancel`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from logagent.base.console.options import Call
from logagent.base.console.render import dump
from logagent.base.errors import ConfigError, Exit, ServiceUnreachable, UsageError
from logagent.deletion.command.asking import say_how_it_ends, state_of
from logagent.deletion.command.opening import Place
from logagent.deletion.command.progress import progress_document
from logagent.deletion.controller.deletions import Deletions
from logagent.deletion.controller.topic_deletion_manager import Sightings
from logagent.deletion.store.answers import Answer
from logagent.deletion.store.requests import Filed


def run_rounds(call: Call, place: Place, *, once: bool, interval: str | None, pause: float) -> None:
    """Rounds with `pause` seconds in between. With an `interval` they go on forever, and what passes does not end
    them."""
    deletions = place.deletions(signing=True)
    was_open: set[str] | None = None
    try:
        while True:
            try:
                was_open = _say(call, deletions, deletions.round(), was_open or set())
                if interval is None and (not was_open or once):
                    break
            except (ServiceUnreachable, ConfigError) as error:
                if interval is None or (was_open is None and isinstance(error, ConfigError)):
                    raise
                call.say(f"topics: {error}; the next round tries again")
            time.sleep(pause)
    finally:
        deletions.stop()
    if was_open:
        for number in sorted(was_open):
            why = deletions.waits.get(number, "`logagent topics status` shows what is missing")
            call.say(f"topics: request {number} is still open: {why}")
        call.record_status(Exit.REFUSED)


def _say(call: Call, deletions: Deletions, seen: Sightings, was_open: set[str]) -> set[str]:
    """Say what the requests that were open have come to; those that are open now."""
    states = {number: state_of(seen, deletions, number) for number in sorted(seen.filed)}
    for number, state in states.items():
        if not state.is_over:
            call.detail(f"topics: request {number} is {state.state}: {deletions.waits.get(number, state.why)}")
        elif number in was_open and state.state == "done":
            call.say(f"topics: request {number} is done")
        elif number in was_open or number in deletions.closed:
            say_how_it_ends(call, number, state, deletions)
    return {number for number, state in states.items() if not state.is_over}


def cancel(call: Call, given: str, options: Mapping[str, Any]) -> None:
    """Cancel a request, and say what that still stops, and what a restore can give back."""
    deletions = Place(call, **options).deletions(signing=True)
    seen = deletions.reader.read()
    filed = _named(seen, given)
    state = state_of(seen, deletions, filed.request_id)
    if filed.outcome is not None or (state.is_over and state.state != "done"):
        hint = "on each host `logagent restore` gives back what is still set aside" if state.state == "done" else None
        raise UsageError(f"request {filed.request_id} is {state.state} already", hint=hint)
    counts = deletions.cancel(filed)
    seen = deletions.reader.read()
    if counts.decision == "delete":
        call.say(
            f"too late for the topics: they were to be deleted since {counts.at}; hosts that have not acted yet stop"
        )
    else:
        call.say(f"request {filed.request_id} is {counts.decision}")
    for line in _what_is_gone([a for (number, _), a in seen.answers.items() if number == filed.request_id]):
        call.say(line)
    if call.json:
        dump(progress_document(seen, deletions, filed.request_id))


def _named(seen: Sightings, given: str) -> Filed:
    """The request with this id, or with one that begins so."""
    found = [f for number, f in seen.filed.items() if number.startswith(given)] if len(given) >= 8 else []
    if len(found) != 1:
        known = ", ".join(n for n, f in seen.filed.items() if not f.is_over) or "none is open"
        raise UsageError(f"there is no request {given}", hint=f"open requests: {known}")
    return found[0]


def _what_is_gone(answers: list[Answer]) -> list[str]:
    """What hosts did before: what `restore` can give back, and what nothing can."""
    kept = sorted({a.node_id for a in answers for d in a.directories if d.result == "quarantined"}
                  | {a.node_id for a in answers for t in a.topics if t.strays_left})  # fmt: skip
    gone = sorted({a.node_id for a in answers for d in a.directories if d.result == "removed"})
    lines = []
    if kept:
        lines.append(f"on nodes {', '.join(map(str, kept))} `logagent restore` gives back what is still quarantined")
    if gone:
        lines.append(f"on nodes {', '.join(map(str, gone))} directories were removed: nothing gives them back")
    return lines or ["no host says that it has quarantined or removed anything"]
