"""`logagent queue`: what is marked for deletion, in the order in which it is due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from logagent.base.console.options import Call, common
from logagent.base.console.render import dump, human_bytes, human_ms, table
from logagent.base.dir_names import DELETE_SUFFIX, FUTURE_SUFFIX
from logagent.base.records import DirKey, Health, Kind
from logagent.base.units import counted, human_time
from logagent.cleanup.plan.queue import QueueEntry
from logagent.cleanup.plan_documents import move_in_words, queue_document
from logagent.cleanup.session.of_command import needs_log_dirs, note_health, nothing_is_due, session_of
from logagent.cleanup.session.open_host import forgotten_log_dir

if TYPE_CHECKING:
    from logagent.verdict.copies import Move
    from logagent.verdict.facts import Facts

MOST_MOVES = 25
_USABLE = (Health.ONLINE, Health.FULL)
_SUFFIXES = (DELETE_SUFFIX, FUTURE_SUFFIX)


@click.command()
@common
@needs_log_dirs
def queue(call: Call) -> None:
    """Show what is marked for deletion and when it is due: file.delete.delay.ms after it was marked; what the broker
    marked, cleanup.leftover_grace later. Moves between log dirs are shown, too: each ends with one that is marked."""
    with session_of(call) as session:
        moves: list[Move] = []
        session.read_delete_delay()
        session.take_inventory(only=lambda name: name.endswith(_SUFFIXES))
        if moved := {f"{d.topic}-{d.partition}" for d in session.of_kind(Kind.FUTURE)}:
            from logagent.verdict.copies import moves_of

            session.take_inventory(only=lambda name: name.endswith(_SUFFIXES) or name in moved)
            moves = moves_of(session.dirs)
        looked = session.log_dirs.log_dir_facts("no")
        facts = session.log_dirs.facts(looked)
        forgotten = forgotten_log_dir(session.target, session.log_dirs, session.state_dir, looked)
        facts = replace(facts, forgotten=forgotten)
        note_health(call, facts)
        if session.journal_problem is not None:
            call.say(f"times and names may be missing: {session.journal_problem.fact}")
        holders = facts.log_dirs
        entries = sorted(session.queue(), key=lambda e: e.goes_at_ms(holders.get(e.dir.log_dir)))
        waits = _waits(entries, facts)
        delay = session.file_delete_delay_ms()
        grace = session.settings.cleanup.leftover_grace
        now = session.clock.now_ms()
    if call.json:
        dump(queue_document(entries, moves, now, delay, holders, waits))
        return
    for move in moves[:MOST_MOVES]:
        call.say(move_in_words(move, facts.log_dirs[move.future.log_dir].holder.state))
    if len(moves) > MOST_MOVES:
        call.say(f"{counted(len(moves) - MOST_MOVES, 'more move')} between log dirs; --json has all")
    if not entries:
        call.say("nothing is marked for deletion")
        return
    rows = [_row(e, None if e.dir.key in waits else e.goes_at_ms(holders.get(e.dir.log_dir)), now) for e in entries]
    columns = [("directory", "dir"), ("allocated", "right"), ("due", "left"), ("marked by", "left?")]
    columns += [("marked at", "left?"), ("size", "right?"), ("topic", "left?"), ("failed attempts", "text")]
    title = f"Delete queue (file.delete.delay.ms = {delay}"
    if any(e.owner == "broker" for e in entries):
        title += f"; what the broker marked waits {human_ms(grace)} longer"
    table(f"{title})", columns, rows, color=call.color)
    held = {path for path, f in facts.log_dirs.items() if f.holder.state.is_broker}
    going = [e for e in entries if e.dir.key not in waits]
    for why, count in Counter(waits.values()).items():
        call.say(f"{count} {'waits' if count == 1 else 'wait'}: {why}")
    if going:
        call.say(_closing([e for e in going if e.dir.log_dir not in held], len(going), now))


def _waits(entries: Sequence[QueueEntry], facts: Facts) -> dict[DirKey, str]:
    """Why what is marked stays, whenever its time is over: only where not every log dir is there, and usable."""
    if not entries or (facts.not_seen() is None and all(f.health in _USABLE for f in facts.log_dirs.values())):
        return {}
    from logagent.cleanup.plan.planner import not_removed

    return {key: why.fact for key, why in not_removed(entries, facts).items()}


def _row(e: QueueEntry, goes_at_ms: int | None, now_ms: int) -> list[str]:
    return [
        f"{e.dir.log_dir}/{e.dir.name}",
        human_bytes(e.dir.allocated),
        "waits" if goes_at_ms is None else "now" if goes_at_ms <= now_ms else f"in {human_ms(goes_at_ms - now_ms)}",
        e.owner,
        human_time(e.marked_at_ms),
        human_bytes(e.dir.bytes),
        e.full_topic or f"{e.dir.topic}…",
        f"{e.attempts.count}: {e.attempts.last_error}" if e.attempts is not None else "",
    ]


def _closing(agents: Sequence[QueueEntry], count: int, now_ms: int) -> str:
    """Who removes them, and when: not `closing` of a plan, which leaves out what a running broker does itself."""
    sentences = []
    if due := sum(e.due_at_ms <= now_ms for e in agents):
        sentences.append(f"{due} due: logagent cleanup --execute removes what is due")
    elif agents:
        sentences.append(nothing_is_due([e.due_at_ms for e in agents], now_ms))
    if brokers := count - len(agents):
        sentences.append(f"{brokers} in log dirs of a running broker, which removes them itself when they are due")
    return "; ".join(sentences)
