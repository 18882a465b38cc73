"""What may be carried out of a request: pure decisions, without disk, store or clock."""

from __future__ import annotations

import posixpath
from datetime import datetime
from typing import Literal, NamedTuple

from logagent.base.records import PartitionDir
from logagent.base.times import instant
from logagent.deletion.agent.memory import RequestMemory
from logagent.deletion.store.answers import DirectoryAnswer
from logagent.deletion.store.requests import Filed, RequestedDirectory, moment
from logagent.store.contract import CLOCKS_APART

FINAL = ("identity", "restored", "request")
"""Refusals that this very request never gets over."""


def row_key(row: RequestedDirectory) -> str:
    return f"{posixpath.normpath(row.log_dir)}/{row.name}"


def is_settled(answer: DirectoryAnswer, soon: datetime | None, *, accept: bool) -> bool:
    """Whether nothing is to be done about this directory now. `soon`: what is to be tried by then is tried now; None:
    everything is."""
    if is_final(answer) or (answer.claim == "accept" and not accept):
        return True
    return soon is not None and answer.next_try_at is not None and moment(answer.next_try_at) > soon


def is_final(answer: DirectoryAnswer) -> bool:
    """Whether the request never touches this directory again."""
    return answer.state == "done" or (answer.state == "refused" and answer.claim in FINAL)


class Refused(NamedTuple):
    """Why a request is not carried out. With the claim `request` that is so for good."""

    claim: Literal["request", "accept", "held", "clock"]
    fact: str


def why_refused(number: str, filed: Filed, memory: RequestMemory, now: datetime, *, accept: bool) -> Refused | None:
    """Why a request is not carried out, whatever it asks for; None if it may be.

    An agent whose memory is new or lost carries out nothing that stood at its first look: it may have done so before.
    """
    request, known = filed.request, memory.requests.get(number)
    if request is None or filed.hold is not None:
        return Refused("held", f"nobody may act on it: {filed.hold or 'it cannot be read'}")
    if filed.decision is not None:
        return Refused("request", f"it was decided ({filed.decision.decision}) at {filed.decision.at}")
    if filed.outcome is not None:
        return Refused("request", f"its outcome was written at {filed.outcome.at}")
    if known is not None and known.closed:
        return Refused("request", known.closed)
    if memory.stood is None or number in memory.stood or memory.is_younger_than(filed):
        return Refused("request", "this agent's memory is newer than the request")
    if moment(request.at) > now + CLOCKS_APART:
        return Refused("clock", f"it was made at {request.at}, which is in the future here")
    if now >= request.ends_at:
        return Refused("request", f"it expired at {instant(request.ends_at)}")
    if not accept:
        return Refused("accept", "requests are not accepted here (orders.accept)")
    return None


def difference(
    row: RequestedDirectory, d: PartitionDir, *, directory_id: str | None, end_offset: int | None
) -> str | None:
    """How `d`, whatever its name, differs from the directory that was asked for; None if it is the same one."""
    for what, ours, theirs in (
        ("topic id", row.topic_id, d.topic_id),
        ("partition", row.partition, d.partition),
        ("inode", row.inode, d.inode),
        ("directory id of the log dir", row.directory_id or directory_id, directory_id),
        ("log end offset", end_offset if row.end_offset is None else row.end_offset, end_offset),
    ):
        if ours != theirs:
            return f"its {what} is {theirs}, the request says {ours}"
    return None
