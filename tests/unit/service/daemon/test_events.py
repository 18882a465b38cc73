"""One line per event, nothing twice, and nothing that a name from a disk could forge."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.records import ActionKind, DirKey, Outcome, Reason
from logagent.cleanup.plan.plan import ActionResult, Execution, Plan, Proposal, Refusal, action_id
from logagent.service.events import MOST_LINES, Events, LogLines, Value, as_text
from tests.hosts import LOG_DIR, NOW, directory


def lines(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


@given(st.dictionaries(st.sampled_from(["name", "fact", "x"]), st.text(), max_size=3))
def test_whatever_a_value_holds_it_is_one_line_of_ascii(values: dict[str, str]) -> None:
    for form in ("text", "json"):
        out = io.StringIO()
        Events(out, lambda: NOW, form).say("event", **values)
        text = out.getvalue()
        assert text.endswith("\n") and len(text.splitlines()) == 1 and text.isascii()
        if form == "json":
            assert {k: v for k, v in json.loads(text).items() if k in values} == values


def test_text_quotes_what_could_be_taken_for_another_field() -> None:
    fields: dict[str, Value] = {"name": 'a b="c', "plain": "/d1/t-0", "n": 3, "ok": True, "s": 1.23456, "empty": ""}
    assert as_text(fields) == 'name="a b=\\"c" plain=/d1/t-0 n=3 ok=true s=1.235 empty=""'
    out = io.StringIO()
    Events(out, lambda: NOW).say("x", name="a\nat=1970 event=forged", none=None)
    assert "none" not in out.getvalue() and out.getvalue().count("\n") == 1


def test_a_log_that_cannot_be_written_disturbs_nobody() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    Events(Broken(), lambda: NOW).say("x")


def test_changes_are_logged_and_states_are_not() -> None:
    events = Events(io.StringIO(), lambda: NOW)
    told = [events.changed("k", value) for value in ("a", "a", "b", "a", None, None, "a")]
    assert told == [True, False, True, True, True, False, True]


@pytest.fixture
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    kafka = logging.getLogger("kafka").level
    yield
    root.handlers[:], root.level = handlers, level
    logging.getLogger("kafka").setLevel(kafka)


def test_warnings_of_libraries_are_events_each_once(root_logger: None) -> None:
    out = io.StringIO()
    Events(out, lambda: NOW, "json").adopt_logging()
    for number in range(3):
        logging.getLogger("watchdog").warning("overflow %d", number)
        logging.getLogger("apscheduler").info("added a job")
        logging.getLogger("kafka.conn").error("connection refused")
    assert [(e["library"], e["message"]) for e in lines(out)] == [("watchdog", "overflow 0")]


# What is told of plans


def plan(*names: str, refusals: tuple[Refusal, ...] = (), stop: Refusal | None = None) -> Plan:
    actions = tuple(
        Proposal(ActionKind.REMOVE, directory(name, inode=n), "stray-retention") for n, name in enumerate(names)
    )
    return Plan("0123456789abcdef", NOW, actions, refusals, (), stop)


def refusal(name: str, guard: str = "in-use") -> Refusal:
    return Refusal(Reason("process 12 has it open", "wait", guard), DirKey(LOG_DIR, name))


def test_a_refusal_is_logged_once_until_it_changes_or_is_over() -> None:
    out = io.StringIO()
    log = LogLines(Events(out, lambda: NOW, "json"))
    for found in (("a-0",), ("a-0",), ("a-0", "b-0"), (), ("a-0",)):
        log.planned("cleanup", plan(refusals=tuple(refusal(n) for n in found)), True)
    log.planned("cleanup", plan(refusals=(refusal("a-0", "lock"),)), True)
    assert [(e["name"], e["guard"]) for e in lines(out)] == [
        ("a-0", "in-use"), ("b-0", "in-use"), ("a-0", "in-use"), ("a-0", "lock"),
    ]  # fmt: skip


def test_the_queue_cycle_does_not_forget_what_the_whole_cycle_logged() -> None:
    out = io.StringIO()
    log = LogLines(Events(out, lambda: NOW, "json"))
    log.planned("cleanup", plan(refusals=(refusal("a-0"),)), True)
    log.planned("queue", plan(), True)
    log.planned("cleanup", plan(refusals=(refusal("a-0"),)), True)
    assert len(lines(out)) == 1


def test_thousands_of_one_kind_are_counted() -> None:
    out = io.StringIO()
    log = LogLines(Events(out, lambda: NOW, "json"))
    names = tuple(f"t-{n}.0123456789abcdef0123456789abcdef-stray" for n in range(4000))
    log.planned("cleanup", plan(*names), False)
    log.planned("cleanup", plan(refusals=tuple(map(refusal, names))), True)
    log.executed(plan(*names), Execution({action_id(p): ActionResult(Outcome.DONE) for p in plan(*names).actions}))
    told = lines(out)
    assert len(told) <= 3 * (MOST_LINES + 1)
    rest = {str(e["event"]): e["dirs"] for e in told if str(e["event"]).endswith("-more")}
    assert rest == dict.fromkeys(("would-act-more", "refused-more", "actions-more"), 4000 - MOST_LINES)


def test_failures_are_reported_however_many_there_are() -> None:
    out = io.StringIO()
    names = tuple(f"t-{n}.0123456789abcdef0123456789abcdef-stray" for n in range(MOST_LINES + 5))
    p = plan(*names)
    results = {action_id(a): ActionResult(Outcome.FAILED, "EBUSY") for a in p.actions}
    LogLines(Events(out, lambda: NOW, "json")).executed(p, Execution(results))
    assert [e["level"] for e in lines(out)] == ["warning"] * (MOST_LINES + 5)


def test_a_plan_that_needs_approval_is_logged_once_with_the_command_and_again_when_it_changes() -> None:
    out = io.StringIO()
    log = LogLines(Events(out, lambda: NOW, "json"))
    stop = Refusal(Reason("21 directories are more than 20", "read the plan", "blast-radius"))
    for stopped in (stop, stop, None, stop):
        log.planned("cleanup", plan("a-0", stop=stopped), True)
    told = lines(out)
    assert [e["event"] for e in told] == ["needs-approval"] * 2
    assert "--approve 0123456789abcdef" in str(told[0]["hint"])
