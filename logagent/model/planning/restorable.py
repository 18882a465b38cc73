"""Whether a `-stray` or `-delete` dir can be restored at all, by what is known of it, and where it goes back to."""

from __future__ import annotations

from logagent.model.facts import Facts
from logagent.model.planning.owner import CopyLook
from logagent.model.planning.plan import Refusal
from logagent.model.planning.queue import Mark
from logagent.model.planning.started import NotWhole
from logagent.model.records import Kind, PartitionDir

# Never "get it from a replica": nobody has asked one, and this may be the only copy.
_COPY_IT = "copy what is left of it elsewhere before anything removes it, if that may be the only copy"


def not_restorable(
    d: PartitionDir,
    topic: str | None,
    copy: CopyLook | None,
    home: str | None,
    facts: Facts,
    not_whole: NotWhole | None,
) -> Refusal | None:
    """Why `d` cannot be restored under any name. `topic`: its full topic; `copy`: what is on disk; `home`: of `home_of`
    (each None if unknown). `not_whole`: of `why_not_whole`."""
    return (
        _cannot_restore(d, topic, not_whole)
        or _incomplete(d, copy)
        or _origin_unknown(d, home)
        or _not_all_visible(d, facts)
    )


def home_of(d: PartitionDir, mark: Mark | None, facts: Facts) -> str | None:
    """The log dir that `d` goes back to: its own, unless that is a quarantine directory; None if unknown.

    If the one that it was quarantined from has another path now, the only log dir on its file system is the same one.
    """
    where = facts.log_dirs.get(d.log_dir)
    if where is None or not where.quarantine:
        return d.log_dir
    if mark is None or mark.original_dir is None:
        return None
    if mark.original_dir in facts.log_dirs:
        return mark.original_dir
    dirs = [f for f in facts.log_dirs.values() if not f.quarantine]
    beside = [f.path for f in dirs if f.identity is not None and f.identity.device == d.device]
    return beside[0] if len(beside) == 1 else None


def _cannot_restore(d: PartitionDir, name: str | None, not_whole: NotWhole | None) -> Refusal | None:
    if d.kind not in (Kind.STRAY, Kind.DELETE) or d.partition is None:
        fact, hint = f"it is a {d.kind.value} dir", "only -stray and -delete dirs can be restored"
        return Refusal(d.log_dir, d.name, "policy", fact, hint, d.bytes)
    if not_whole is not None:
        return Refusal(d.log_dir, d.name, "journal", not_whole.fact, not_whole.hint, d.bytes)
    if d.segments == 0:
        fact = "it has no segments left"
        return Refusal(d.log_dir, d.name, "policy", fact, "there is nothing to restore", d.bytes)
    if name is None:
        fact = f"its name was truncated and the journal does not know the full topic ({d.topic}…)"
        return Refusal(d.log_dir, d.name, "policy", fact, "name the topic with --topic-name", d.bytes)
    if d.topic is None or not name.startswith(d.topic):
        fact = f"topic {name} does not begin with {d.topic}"
        return Refusal(d.log_dir, d.name, "policy", fact, "check --topic-name", d.bytes)
    return None


def _incomplete(d: PartitionDir, copy: CopyLook | None) -> Refusal | None:
    if d.error is not None or copy is None:
        fact = f"it cannot be trusted: {d.error or 'it cannot be read'}"
        return Refusal(d.log_dir, d.name, "inside", fact, "look at it by hand; logagent leaves it alone", d.bytes)
    if copy.without_log:
        fact = f"{copy.without_log[0]} is there, and its .log is not: its removal had started"
        return Refusal(d.log_dir, d.name, "journal", fact, _COPY_IT, d.bytes)
    if copy.deleted and not _starts_at_first_segment(copy):
        fact = (
            f"a broker was about to unlink {copy.deleted[0]}, and the log start offset is not known to be above that:"
        )
        fact += " its removal had started, or retention had deleted that segment"
        return Refusal(d.log_dir, d.name, "journal", fact, _COPY_IT, d.bytes)
    return None


def _starts_at_first_segment(copy: CopyLook) -> bool:
    """Whether what is below the first segment was deleted from the log, not with the whole log: then its log start
    offset moved there, and with it the start of its first leader epoch (`LeaderEpochFileCache.truncateFromStart`). A
    whole log loses its epochs."""
    known = max(copy.log_start_back, copy.log.epochs[0][1] if copy.log.epochs else 0)
    return copy.log.log_start is not None and known >= copy.log.log_start


def _origin_unknown(d: PartitionDir, home: str | None) -> Refusal | None:
    if home is not None:
        return None
    fact = "it is not known which log dir it was quarantined from"
    return Refusal(d.log_dir, d.name, "journal", fact, "move it back by hand while the broker is stopped", d.bytes)


def _not_all_visible(d: PartitionDir, facts: Facts) -> Refusal | None:
    """Refuses if the partition may be current in a log dir that is offline or was not looked at."""
    hidden = facts.not_seen()
    if hidden is None:
        return None
    fact = f"{hidden.fact}: the partition may be current there"
    return Refusal(d.log_dir, d.name, "online", fact, hidden.hint, d.bytes)
