"""Gathers what `advice.check.rules.leave` decides on: reads the disks and the assignments, and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator

from logagent.advice.check.rules.leave import Leave, Leaving, Room, may_leave
from logagent.base.errors import UsageError
from logagent.base.records import Health, HolderState
from logagent.cleanup.session.session import Session
from logagent.kafka.retention.settings import CORDONED_LOG_DIRS
from logagent.verdict.facts import Facts


def ask_leave(session: Session, log_dir: str) -> Leave:
    """Whether `log_dir` may be taken out of `log.dirs`. The session has read assignments and taken its inventory.
    Raises UsageError for what is no log dir of this host."""
    facts = session.facts(to_plan=False)
    path = _named(session, facts, log_dir)
    images = session.assignments.usable
    server, version = session.target.server, session.kafka_version(facts.log_dirs)
    return may_leave(
        Leaving(
            log_dir=path,
            unseen=_unseen(session, facts, path),
            dirs=session.dirs,
            rulings=facts.rulings,
            image=max(images, key=lambda image: image.at_ms, default=None),
            no_image="; ".join(session.assignments.problems) or "no source of assignments is usable",
            node_id=session.log_dirs.cluster.node_id,
            configured=server.log_dirs if session.target.config is not None else (),
            metadata_log_dir=server.metadata_log_dir if server.process_roles else None,
            rooms=tuple(_rooms(session, facts, path)),
            stopped=_stopped(facts),
            cordoned=session.assignments.layers.cordoned,
            cordon_is_dynamic=CORDONED_LOG_DIRS in session.assignments.layers.broker,
            version=version.version,
        )
    )


def _named(session: Session, facts: Facts, log_dir: str) -> str:
    """`log_dir` as this session calls it, also if it was named by another path."""
    known = [path for path, f in facts.log_dirs.items() if not f.quarantine]
    wanted = os.path.abspath(log_dir)
    if wanted in known:
        return wanted
    real = {os.path.realpath(path): path for path in known if facts.log_dirs[path].health is not Health.OFFLINE}
    if (found := real.get(os.path.realpath(wanted))) is not None:
        return found
    raise UsageError(f"--leave: {log_dir} is no log dir of this broker", hint=f"its log dirs are {', '.join(known)}")


def _unseen(session: Session, facts: Facts, path: str) -> str | None:
    where = facts.log_dirs[path]
    if where.health is Health.OFFLINE:
        return f"it is offline: {where.health_reason}"
    inventory = session.inventories.get(path)
    if inventory is None:
        return "it was not read"
    errors = inventory.errors
    return next((f"{name}: {why}" for name, why in errors.items()), None)


def _rooms(session: Session, facts: Facts, leaving: str) -> Iterator[Room]:
    """The other log dirs that take partitions now."""
    cordoned = session.assignments.layers.cordoned
    for path, where in facts.log_dirs.items():
        inventory = session.inventories.get(path)
        if path == leaving or where.quarantine or where.health is not Health.ONLINE or inventory is None:
            continue
        if path not in cordoned and "*" not in cordoned:
            yield Room(path, inventory.identity.device, inventory.size, inventory.free)


def _stopped(facts: Facts) -> bool | None:
    """By the locks of all log dirs: a broker that lost one still runs with the others."""
    states = {f.holder.state for f in facts.log_dirs.values() if not f.quarantine}
    if states & {HolderState.HELD, HolderState.STARTING}:
        return False
    return True if states == {HolderState.FREE} else None
