"""The plan of `logagent restore`: what comes back, what it displaces, and what was asked of disk and cluster before."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from logagent.agent.session.session import Session, new_uuid
from logagent.broker.files.index_files import indexes_to_rebuild
from logagent.broker.files.log_look import look_at_log
from logagent.broker.files.segment_files import look_at_segments
from logagent.errors import LogAgentError
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.model.facts import Facts
from logagent.model.planning.owner import Asked, CopyLook, Owner
from logagent.model.planning.plan import Plan
from logagent.model.planning.restorations import restorations
from logagent.model.records import Kind, PartitionDir


def plan_restore(
    session: Session, facts: Facts, chosen: Iterable[PartitionDir], asked: Asked, *, approve: str | None = None
) -> Plan:
    """`chosen` back to their full names, marked ones first."""
    wanted = sorted(chosen, key=lambda d: (d.kind is Kind.STRAY, d.log_dir, d.name))
    owner = Owner(session.assignments.first, session.log_dirs.cluster.node_id)
    proposals, refusals = restorations(
        wanted,
        session.dirs,
        facts,
        session.marks(),
        session.begun(),
        _look_at_copies(session, wanted),
        owner,
        asked,
        new_uuid=new_uuid,
    )
    return session.plan(proposals, refusals=refusals, facts=facts, approve=approve)


def _look_at_copies(session: Session, chosen: Sequence[PartitionDir]) -> dict[tuple[str, str], CopyLook]:
    """What the disk shows of each; one that cannot be read is missing."""
    found: dict[tuple[str, str], CopyLook] = {}
    opened = session.log_dirs.opened()
    for d in chosen:
        if d.kind not in (Kind.STRAY, Kind.DELETE) or d.log_dir not in opened:
            continue
        try:
            found[d.log_dir, d.name] = _look_at(opened[d.log_dir], d)
        except LogAgentError:
            continue
    return found


def _look_at(log_dir: OpenLogDir, d: PartitionDir) -> CopyLook:
    with log_dir.acting("look", d.name):
        fd = log_dir.open_child(d.name, d.identity)
        try:
            segments = look_at_segments(fd)
            some = indexes_to_rebuild(segments, every_segment=False)
            every = indexes_to_rebuild(segments, every_segment=True)
            return CopyLook(look_at_log(fd), some.bytes, every.bytes, segments.without_log)
        finally:
            os.close(fd)
