"""The last sentence of a command agrees with what its plan came to, and what it says to add is what carries it out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from logagent.base.errors import Exit
from logagent.service.status.command import _cycle
from tests.command_line import LOCKER, Ran, process
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


def last(ran: Ran) -> str:
    return ran.err.splitlines()[-1]


def test_nothing_to_do(host: Host) -> None:
    assert last(host.run("delete", "--topic", "no-such-topic")) == "nothing to do"


def test_what_waits_is_not_due(host: Host) -> None:
    host.with_assignments(**NO_LIMITS)
    said = last(host.run("cleanup"))
    assert re.fullmatch(r"nothing is due: \d+ wait, the first until \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", said), said


def test_all_refused_says_so_and_nothing_of_execute(host: Host) -> None:
    for options in ((), ("--execute",)):
        ran = host.run("delete", "--partition", "orders-1", *options)
        tense = "was" if options else "would be"
        assert last(ran) == f"nothing {tense} done: refused, see above"
        ran = host.run("delete", "--topic", "orders", *options)
        assert re.fullmatch(rf"nothing {tense} done: all \d are refused, see above", last(ran))


def test_what_is_due_and_what_to_add(host: Host) -> None:
    words = ("delete", "--partition", "orders-1", "--partition", "orders-2", *FREELY)
    said = last(host.run(*words))
    assert re.fullmatch(r"2 directories, [\d.]+ KiB: nothing has been done yet; add --execute", said), said
    host.with_assignments(**{**ALL_DUE, **NO_LIMITS})
    beside = last(host.run("cleanup"))
    assert re.fullmatch(
        r"\d directories, [\d.]+ KiB \(2 refused\): nothing has been done yet; add --execute", beside
    ), beside
    done = host.run("cleanup", "--execute")
    assert done.status == Exit.REFUSED
    assert re.fullmatch(r"9 of 9 done, [\d.]+ KiB freed; 2 refused, see above", last(done)), done.err


def test_a_plan_that_needs_approval_says_the_words_and_they_work(host: Host) -> None:
    host.configure(**{"cleanup.max_dirs": 1})
    words = ("delete", "--partition", "orders-1", "--partition", "orders-2", *FREELY)
    added = ""
    for options in ((), ("--execute",), ("--execute", "--approve", "0123456789abcdef")):
        ran = host.run(*words, *options)
        assert ran.status == Exit.APPROVAL
        said = re.fullmatch(
            r"2 directories, .* KiB: nothing has been done yet; it needs approval: read the plan, then add (.*)",
            last(ran),
        )
        assert said is not None, ran.err
        added = said[1]
    assert "no plan 0123456789abcdef can be made now: the id is wrong" in " ".join(ran.out.split())
    assert last(host.run(*words, *shlex.split(added))) == "2 of 2 done"


def test_the_queue_says_who_removes_it_and_when(host: Host) -> None:
    host.configure(**{**ALL_DUE, **NO_LIMITS})
    entries = len(host.find("", "-delete"))
    assert last(host.run("queue")) == f"{entries} due: logagent cleanup --execute removes what is due"
    host.configure(**{**NO_LIMITS, "cleanup.leftover_grace": "9999d"})
    waits = last(host.run("queue"))
    assert re.fullmatch(rf"nothing is due: {entries} wait, the first until [\d-]+ [\d:]+Z", waits), waits
    with process(LOCKER, host.d1, host.d2):
        said = last(host.run("queue"))
    assert said == f"{entries} in log dirs of a running broker, which removes them itself when they are due"


def test_rescue_closes_as_every_other_plan_does(host: Host) -> None:
    host.configure(**{**NO_LIMITS, "cleanup.leftover_grace": "0s"})
    due = host.run("rescue")
    said = re.fullmatch(
        r"(\d+) directories, ([\d.]+ KiB)( \(\d+ refused\))?: nothing has been done yet; it needs approval: read the "
        r"plan, then add --execute --approve [0-9a-f]{16}",
        last(due),
    )
    assert said is not None and due.status == Exit.APPROVAL, due.err
    short = host.run("rescue", "--need", "1TiB").err.splitlines()
    assert re.fullmatch(r"1\.0 TiB needed, .* missing", short[-2]) and "nothing has been done yet" in short[-1], short
    assert re.fullmatch(r"nothing was done: all \d+ are refused, see above", last(host.run("rescue", "--execute")))
    host.with_assignments(**{**ALL_DUE, **NO_LIMITS})
    done = host.run("rescue", "--execute")
    assert re.fullmatch(r"(\d+) of \1 done, [\d.]+ KiB freed; \d+ refused, see above", last(done)), done.err


def test_status_never_says_that_nothing_was_due_of_a_plan_that_needs_approval_or_is_refused() -> None:
    cycle = {
        "job": "cleanup", "started_at": "2026-11-22T01:00:00.000Z", "seconds": 1.0, "planned": 0, "results": [],
        "refusals": {}, "waiting": 0, "freed_bytes": 0, "needs_approval": None, "error": None,
    }  # fmt: skip

    def result(**of: object) -> str:
        return _cycle({**cycle, **of}, "report")[4]

    assert result() == "nothing was due"
    assert result(needs_approval="ab", planned=30) == "nothing: its plan needs approval, see below"
    assert result(refusals={"assigned": 2}) == "nothing: all of it is refused"
    assert result(planned=3) == "nothing: cleanup.mode = report"


def test_rescue_says_once_what_would_go_early_and_no_id_of_a_plan_that_it_does_not_show(host: Host) -> None:
    """An id that can be pasted is approved unread: only the dry run, which lists that plan, has it."""
    host.with_assignments()
    done = host.run("rescue", "--execute")
    said = re.search(r"^\d+ directories, [\d.]+ KiB, would go early: without --execute, ", done.err, re.MULTILINE)
    assert said is not None and "early" not in done.out and "PLAN_ID" not in done.out + done.err, done.err
    shown = re.search(r"Plan ([0-9a-f]{16}) \(not carried out\)", host.run("rescue").out)
    assert shown is not None
    assert not re.search("--approve [0-9a-f]", done.out + done.err) and shown[1] not in done.out + done.err
    of_execute = host.run("rescue", "--execute", "--json")
    assert of_execute.json["refusals"] and shown[1] not in of_execute.out + of_execute.err


def test_rescue_says_that_most_of_it_is_not_kafkas(host: Host) -> None:
    host.with_assignments()
    assert "not Kafka's" not in host.run("rescue").err
    (host.d1 / "filler").write_bytes(b"x" * (10 << 20))
    assert f"not for logagent to remove: {host.d1}/filler 10.0 MiB" in host.run("rescue").err


def test_what_helps_several_refusals_is_said_once_below_them(host: Host) -> None:
    host.with_assignments(**{**ALL_DUE, **NO_LIMITS})
    out = host.run("cleanup").out
    assert out.count("what to do, assigned, 2 directories: it stays until its leader can be asked") == 1
    assert out.count("it stays until its leader can be asked") == 1
