"""After a crash: intents without an outcome are settled by looking at the disk. Nothing is redone, only understood.

Runs first in every session that may act, under the executor lock, so nobody else's work in progress is mistaken for
a crash. A removal that was interrupted is due again at once (its name still stands in the queue); a rename either
happened or did not, and the identity (device, inode) says which.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from logagent.agent.renames import edit_checkpoints
from logagent.broker.checkpoints import CLEANER, LOG_START_OFFSET, RECOVERY_POINT
from logagent.broker.lock import Interlock
from logagent.errors import BrokerHoldsLogDir, LogAgentError
from logagent.host.disk import OpenLogDir
from logagent.host.journal import Entry, Journal
from logagent.model.records import ActionKind, Identity, Outcome

_FILES = (LOG_START_OFFSET, CLEANER, RECOVERY_POINT)


def recover(journal: Journal, log_dirs: Mapping[str, OpenLogDir], now_ms: int) -> list[Entry]:
    """Settle every unsettled intent on an open log dir; those elsewhere (offline now) stay as they are.

    Returns the settled entries, as they were. Raises JournalError.
    """
    settled: list[Entry] = []
    outcomes: list[tuple[int, Outcome, str | None]] = []
    for entry in journal.unsettled():
        log_dir, target = log_dirs.get(entry.intent.log_dir), log_dirs.get(entry.intent.ends_in)
        if log_dir is None or target is None:
            continue
        try:
            outcome, error = _settle(journal.with_checkpoint_entries(entry), log_dir, target)
        except LogAgentError:
            continue
        outcomes.append((entry.id, outcome, error))
        settled.append(entry)
    if outcomes:
        journal.finish(outcomes, now_ms)
    return settled


def _settle(entry: Entry, log_dir: OpenLogDir, target: OpenLogDir) -> tuple[Outcome, str | None]:
    intent = entry.intent
    with log_dir.acting("look", intent.name):
        at_old_name = _is(log_dir, intent.name, intent.identity)
        at_new_name = intent.new_name is not None and _is(target, intent.new_name, intent.identity)
    if intent.action is ActionKind.REMOVE:
        if at_old_name:
            return Outcome.YIELDED, "interrupted: the rest stays queued"
        return Outcome.DONE, None
    if at_new_name:
        target.fsync()
        if intent.action is ActionKind.RESTORE:
            _put_back(entry, target)
        return Outcome.DONE, None
    if at_old_name:
        if intent.action is not ActionKind.RESTORE:
            _put_back(entry, log_dir)
        return Outcome.SKIPPED, "interrupted before the rename"
    return Outcome.FAILED, "interrupted, and the directory stands under neither name now"


def _is(log_dir: OpenLogDir, name: str, identity: Identity) -> bool:
    try:
        found = os.stat(name, dir_fd=log_dir.fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (identity.device, identity.inode)


def _put_back(entry: Entry, log_dir: OpenLogDir) -> None:
    """Put the entries of a partition that has its name (back) into the checkpoints, where a broker made no newer one.

    While a broker holds the log dir its own checkpoints are the truth and nothing is written.
    """
    if not entry.intent.checkpoint_entries:
        return
    try:
        edit_checkpoints(
            log_dir,
            Interlock(log_dir.fd, log_dir.path),
            drop=(),
            put=entry.intent.checkpoint_entries,
            files=_FILES,
        )
    except BrokerHoldsLogDir:
        pass
