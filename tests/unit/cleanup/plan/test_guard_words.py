"""What a refusal says, and what it advises: each word of it is chosen by a fact."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logagent.base.claims import Claim
from logagent.base.records import ActionKind, DirKey, Holder, HolderState, Reason, Verdict
from logagent.cleanup.plan import guards
from logagent.cleanup.plan.plan import Flags, Guard, Proposal
from logagent.verdict.facts import Facts, Ruling, StrayRuling
from tests.hosts import HEX, LOG_DIR, NOW, directory, facts, gone, log_dir, orphan, proposal

STRAY, MARKED = f"orders-0.{HEX}-stray", f"orders-0.{HEX}-delete"
ALLOWED = Flags(allow_assigned=True)
UNASKED = "its leader could not be asked: set kafka.client; or add --even-last-copy if the data may be lost forever"


def act(action: ActionKind, name: str, flags: Flags | None = None) -> Proposal:
    return proposal(action, directory(name), flags=flags or Flags())


MARK = act(ActionKind.MARK, "orders-0")
REMOVE = act(ActionKind.REMOVE, STRAY)


def ruled(verdict: Verdict, reason: str | None = None, *strays: StrayRuling) -> Facts:
    known = {DirKey(LOG_DIR, "orders-0"): Ruling(verdict, reason)}
    return facts(rulings=known, strays={DirKey(LOG_DIR, "orders-0"): stray for stray in strays})


def stray(ruling: StrayRuling) -> Facts:
    return facts(strays={DirKey(LOG_DIR, STRAY): ruling})


def held(state: HolderState, pid: int | None = 4711) -> Facts:
    return facts(log_dir(holder=Holder(state, pid)))


COVER_UNKNOWN = StrayRuling(False, Reason("no copy covers it", "set kafka.client"), "unknown")


@pytest.mark.parametrize(
    ("guard", "asked", "known", "fact", "hint"),
    [
        (guards.assigned, MARK, ruled(Verdict.ORPHAN, "topic-absent"),
         "its verdict is orphan (topic-absent), but no source that can prove it says so (topic-absent)",
         "logagent assignments show says what is wrong with the sources"),
        (guards.assigned, MARK, ruled(Verdict.UNKNOWN, "no-assignments"), "its verdict is unknown (no-assignments)",
         "logagent assignments show says what is wrong with the sources; --allow-assigned acts"),
        (guards.assigned, MARK, facts(), "its verdict is unknown (no-assignments: no assignments were read)", ""),
        (guards.assigned, MARK, ruled(Verdict.ASSIGNED), "its verdict is assigned", "add --allow-assigned if"),
        (guards.assigned, replace(MARK, flags=ALLOWED), ruled(Verdict.ASSIGNED),
         "its verdict is assigned; nobody checked whether another copy has all of it", "add --even-last-copy"),
        (guards.assigned, replace(MARK, flags=ALLOWED), ruled(Verdict.UNKNOWN, "reassigning", COVER_UNKNOWN),
         "its verdict is unknown (reassigning); no copy covers it", UNASKED),
        (guards.assigned, REMOVE, stray(COVER_UNKNOWN), "no copy covers it",
         "it stays until its leader can be asked: set kafka.client"),
        (guards.assigned, replace(REMOVE, flags=Flags(only_deleted=True)),
         stray(StrayRuling(True, Reason("a copy has all of it"), "yes", ruling=orphan("not-a-replica"))),
         "its topic is not deleted: a copy has all of it", "nothing to do: it stays"),
        (guards.window, REMOVE, held(HolderState.STARTING), "the broker (process 4711) may still be starting and holds",
         "nothing to do: it goes once the broker has served this log dir for guard.settle"),
        (guards.window, act(ActionKind.REMOVE, MARKED), held(HolderState.HELD), "the broker (process 4711) is live and",
         "nothing to do: the broker removes what is marked for deletion itself"),
        (guards.window, act(ActionKind.REMOVE_LEFTOVERS, "orders-0"), held(HolderState.HELD), "the broker (process ",
         "stop the broker first; it drops these files itself when it loads the directory"),
        (guards.window, MARK, held(HolderState.HELD), "the broker (process 4711) is live and holds the log dir",
         "stop the broker first, or let `logagent prestart` act between its stop and its start"),
        (guards.window, MARK, held(HolderState.STARTING, None), Holder(HolderState.STARTING, None).in_words,
         "stop the broker first, or let"),
        (guards.in_use, MARK, facts(log_dir(open_files_unreadable="process 9 cannot be read")),
         "process 9 cannot be read", "run as the broker's own user"),
        (guards.in_use, MARK, facts(log_dir(open_files_unreadable="process 9 has ended")), "process 9 has ended",
         "wait until that process ends or closes the file"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_is_so_and_what_helps(
    guard: Guard, asked: Proposal, known: Facts, fact: str, hint: str
) -> None:
    refusal = guard(asked, known)
    assert refusal is not None
    assert (refusal.fact[: len(fact)], refusal.hint[: len(hint)]) == (fact, hint)


def test_a_verdict_that_is_too_old_is_said_to_be_so() -> None:
    age_ms = 3_600_000
    moved = replace(orphan("not-a-replica"), proof=gone(Claim.NOT_A_REPLICA, NOW - age_ms))
    known = facts(rulings={DirKey(LOG_DIR, "orders-0"): moved}, max_age_ms=age_ms - 1)
    refusal = guards.assigned(act(ActionKind.QUARANTINE, "orders-0"), known)
    assert refusal is not None and refusal.fact.startswith("the evidence for it is no longer valid (")
    assert refusal.hint == "run it again: it gathers all evidence anew"


@pytest.mark.parametrize(("version", "passes"), [((3, 6, 0), False), ((3, 6, 1), True)])
def test_the_first_release_that_knows_strays_gets_them(version: tuple[int, int, int], passes: bool) -> None:
    asked = act(ActionKind.QUARANTINE, "orders-0")
    assert (guards.version(asked, facts(kafka_version=version)) is None) is passes
