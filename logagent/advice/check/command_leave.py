"""`logagent check --leave LOG_DIR`: may this log dir be taken out of `log.dirs`, and what moves what is in it?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from logagent.advice.check.rules.leave import Leave, Left
from logagent.advice.check.run_leave import ask_leave
from logagent.base.console.options import Call
from logagent.base.console.render import dump, human_bytes, table
from logagent.base.console.streams import whoever_reads
from logagent.base.errors import Exit, LogAgentError, UsageError
from logagent.base.files.whole_file import whole_file
from logagent.base.times import rfc3339, rfc3339_or_none
from logagent.cleanup.session.of_command import read_assignments, session_of, take_inventory
from logagent.kafka.image import AssignmentImage

if TYPE_CHECKING:
    from logagent.advice.check.documents import LeaveDirDoc, LeaveDoc

_SHOWN = 25


def check_leave(call: Call, log_dir: str, file: str | None) -> None:
    """Print the answer; `file`: where the JSON for `kafka-reassign-partitions.sh` goes."""
    if call.log_dirs:
        raise UsageError("--leave asks about all log dirs of the broker", hint="leave out --log-dir")
    with session_of(call) as session:
        read_assignments(session, call)
        take_inventory(session, call)
        answer = ask_leave(session, log_dir)
        document = _document(call, answer, session.clock.now_ms(), _as_of(session.assignments.usable))
        config = session.target.config
    if not answer.may_leave:
        call.record_status(Exit.REFUSED)
    with whoever_reads(call.say, lambda: call.record_status(Exit.FAILED)):
        if call.json:
            dump(document)
        else:
            _show(call, answer)
    if answer.cordon is not None and not call.json:
        call.say(f"first, so that no new partition comes: {answer.cordon}")
    if file is not None:
        _write(call, file, answer)
    if not call.json:
        _close(call, answer, file, config)


def _close(call: Call, answer: Leave, file: str | None, config: str | None) -> None:
    for obstacle in answer.obstacles:
        call.say(obstacle.says)
        if file is None or obstacle.code != "assigned":
            call.say(f"  hint: {obstacle.hint}")
    if answer.may_leave:
        stop = "" if answer.stopped else "stop the broker, and "
        call.say(f"it is empty: {stop}in {config} change the line to")
        call.say(f"  {answer.line}")
        if answer.uncordon is not None:
            when = "after the start" if answer.stopped else "right before the stop"
            call.say(
                f"take the cordon back {when}: while it names a log dir that log.dirs lacks, the broker applies none of"
                " its dynamic settings"
            )
            call.say(f"  {answer.uncordon}")
    elif file is None and (moves := answer.reassignment) is not None:
        call.say(f"it may not leave yet: {len(moves['partitions'])} can be moved, --reassignment FILE writes the JSON")
    else:
        call.say("it may not leave yet: see above")


def _as_of(images: list[AssignmentImage]) -> int | None:
    return max((image.at_ms for image in images), default=None)


def _write(call: Call, file: str, answer: Leave) -> None:
    moves = answer.reassignment
    if moves is None:
        call.say(f"{file} is not written: there is nothing that can be moved")
        return
    try:
        with whole_file(file) as out:
            out.write(json.dumps(moves, indent=1).encode() + b"\n")
    except OSError as e:
        raise LogAgentError(f"cannot write {file}: {e.strerror}", hint="name a file in a folder that exists") from e
    call.say(
        f"{file}: {len(moves['partitions'])} partitions, with the replicas that they have now. While the broker runs:"
    )
    call.say(f"  kafka-reassign-partitions.sh --bootstrap-server HOST:PORT --reassignment-json-file {file} --execute")


def _show(call: Call, answer: Leave) -> None:
    rows = [
        [f"{e.dir.log_dir}/{e.dir.name}", e.dir.kind.value, human_bytes(e.dir.allocated), _verdict(e), _goes(e)]
        for e in answer.left[:_SHOWN]
    ]
    headings = [
        ("directory", "dir"),
        ("kind", "left"),
        ("allocated", "right"),
        ("verdict", "left"),
        ("goes to", "text"),
    ]
    if rows:
        table("Still in it", headings, rows, color=call.color)
    if (rest := len(answer.left) - len(rows)) > 0:
        call.say(f"showing the largest {len(rows)} of {len(answer.left)}; --json has all, {rest} more")


def _verdict(each: Left) -> str:
    words = each.ruling.verdict.value if each.ruling is not None else ""
    return f"{words}, only copy" if each.only_copy else words


def _goes(each: Left) -> str:
    return each.to or each.stays or ""


def _document(call: Call, answer: Leave, now_ms: int, as_of_ms: int | None) -> LeaveDoc:
    return {
        "schema": "logagent.leave/1",
        "at": rfc3339(now_ms),
        "host": call.host,
        "log_dir": answer.log_dir,
        "may_leave": answer.may_leave,
        "assignments_as_of": rfc3339_or_none(as_of_ms),
        "obstacles": [o._asdict() for o in answer.obstacles],  # type: ignore[misc]
        "dirs": [_dir(each) for each in answer.left],
        "reassignment": answer.reassignment,
        "cordon": answer.cordon,
        "uncordon": answer.uncordon,
        "line": answer.line,
    }


def _dir(each: Left) -> LeaveDirDoc:
    d = each.dir
    return {
        "name": d.name,
        "kind": d.kind,
        "topic": d.topic,
        "partition": d.partition,
        "topic_id": d.topic_id,
        "allocated": d.allocated,
        "verdict": each.ruling.verdict if each.ruling is not None else None,
        "only_copy": each.only_copy,
        "to": each.to,
        "stays": each.stays,
    }
