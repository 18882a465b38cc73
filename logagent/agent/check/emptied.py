"""Strays that the broker will empty at its next start: it looks up the log start offset by the parsed name
(`LogManager.loadLog`), so a stray shares the checkpoint entry of the current partition of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from logagent.agent.evidence.stray_questions import read_log
from logagent.agent.session.session import Session
from logagent.broker.files.checkpoint_files import LOG_START_OFFSET, read_checkpoint
from logagent.errors import LogAgentError, UnreadableError
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.model.check.start_facts import Emptied
from logagent.model.records import Kind, PartitionDir, TopicPartition


def emptied_strays(session: Session) -> tuple[Emptied, ...]:
    """Strays whose log is not known to reach the log start offset recorded for their name, in the log dirs that can be
    read."""
    log_dirs = session.log_dirs.online()
    strays = [d for d in session.of_kind(Kind.STRAY) if d.log_dir in log_dirs and d.segments and d.error is None]
    jobs = {
        path: partial(_emptied_in, log_dirs[path], [d for d in strays if d.log_dir == path])
        for path in {d.log_dir for d in strays}
        if path not in session.log_dirs.quarantine
    }
    found = session.calls.looks(jobs)
    return tuple(e for looked in found.values() if not isinstance(looked, LogAgentError) for e in looked)


def _emptied_in(log_dir: OpenLogDir, strays: Sequence[PartitionDir]) -> list[Emptied]:
    with log_dir.acting("read", LOG_START_OFFSET):
        try:
            starts = read_checkpoint(log_dir.fd, LOG_START_OFFSET) or {}
        except UnreadableError:
            # Another finding reports this: the log dir goes offline, and nothing in it is loaded.
            return []
    found: list[Emptied] = []
    for d in strays:
        # For a truncated name the broker looks up the truncated topic.
        start = starts.get(TopicPartition(d.topic or "", d.partition if d.partition is not None else -1), 0)
        if start == 0:
            continue
        log = read_log(log_dir, d)
        if log is not None and log.emptied_by(start):
            found.append(Emptied(f"{d.log_dir}/{d.name}", start, log.log_end))
    return found
