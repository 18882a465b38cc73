"""The guards, in one list. Each looks at one proposal and the facts, and lets it pass (None) or refuses and says why.

They run when a plan is made and again right before each rename and each removal, on facts gathered anew. What no
fact can promise for the microseconds in between is held by descriptors and by the interlock (`host.disk`,
`broker.lock`). The blast radius, which concerns a plan as a whole, stands in `model.plan`.
"""

from __future__ import annotations

from collections.abc import Callable

from logagent.model.facts import Facts, LogDirFacts
from logagent.model.health.kafka_version import STRAY_SINCE, version_text
from logagent.model.naming import names
from logagent.model.planning.plan import GuardName, Proposal, Refusal
from logagent.model.records import ActionKind, Health, Holder, HolderState, Kind, Verdict

_RENAMES_AWAY = (ActionKind.MARK, ActionKind.QUARANTINE)
_BECOMES = {
    ActionKind.MARK: (Kind.DELETE,),
    ActionKind.QUARANTINE: (Kind.STRAY,),
    ActionKind.RESTORE: (Kind.CURRENT, Kind.FUTURE),
}
_ACTS_ON = {
    ActionKind.MARK: (Kind.CURRENT, Kind.FUTURE, Kind.STRAY),
    # A marked one only on its way back: the broker would purge what changes places with it.
    ActionKind.QUARANTINE: (Kind.CURRENT, Kind.FUTURE, Kind.DELETE),
    ActionKind.RESTORE: (Kind.STRAY, Kind.DELETE),
    ActionKind.REMOVE: (Kind.STRAY, Kind.DELETE),
}


def inside(p: Proposal, facts: Facts) -> Refusal | None:
    """The directory is a direct child of a configured log dir, on its device, and of a kind that may be touched."""
    d = p.dir
    where = facts.log_dirs.get(d.log_dir)
    if where is None:
        return _refuse(p, "inside", f"{d.log_dir} is no configured log dir", "name the log dirs the broker uses")
    if not d.name or "/" in d.name or d.name in (".", ".."):
        return _refuse(p, "inside", f"{d.name!r} is no name of a direct child", "nothing outside a log dir is touched")
    if d.kind in (Kind.METADATA, Kind.CACHE, Kind.INVALID):
        return _refuse(p, "inside", f"it is {_KIND_WORDS[d.kind]}", "logagent never touches it")
    if d.kind not in _ACTS_ON.get(p.action, ()):
        return _refuse(
            p, "inside", f"{p.action.value} does not apply to a {d.kind.value} dir", "this is a bug: report it"
        )
    if d.error is not None:
        return _refuse(p, "inside", f"it cannot be trusted: {d.error}", "look at it by hand; logagent leaves it alone")
    if where.identity is not None and d.device != where.identity.device:
        return _refuse(p, "inside", "it is on another file system than its log dir", "unmount what is mounted there")
    return _misread(p)


def _misread(p: Proposal) -> Refusal | None:
    """A new name that Kafka would not read as what is meant. A topic with a blank is a partition to it as long as it
    is current, but marked it is an invalid name, and no broker starts with one."""
    if p.new_name is None:
        return None
    read = names.classify(p.new_name)
    if read.kind in _BECOMES.get(p.action, ()) and read.partition == p.dir.partition:
        return None
    why = read.error or f"Kafka would read {p.new_name} as a {read.kind.value} dir"
    return _refuse(p, "inside", f"no broker would start with it under a new name: {why}", "move it away by hand")


def cluster(p: Proposal, facts: Facts) -> Refusal | None:
    """The log dir is formatted, and all log dirs and the broker's configuration agree on cluster and node."""
    for where in _places(p, facts):
        problem = facts.cluster_problems.get(where.path)
        if problem is not None:
            hint = "check that --kafka-config belongs to the broker that wrote these log dirs"
            return _refuse(p, "cluster", problem, hint)
    return None


def online(p: Proposal, facts: Facts) -> Refusal | None:
    """The log dir is not offline and can be written to. A full one is not offline: deleting is the cure."""
    for where in _places(p, facts):
        if where.health not in (Health.ONLINE, Health.FULL):
            fact = f"{where.path} is {where.health.value}: {where.health_reason or 'no reason was recorded'}"
            return _refuse(p, "online", fact, "mend the disk or remount it; logagent check shows its health")
    return None


def in_use(p: Proposal, facts: Facts) -> Refusal | None:
    """No process has anything below the directory open or mapped, and that could be seen.

    Exception: removing a stray whose only opener is the serving holder (Kafka keeps strays open and never writes them).
    """
    where = _where(p.dir.log_dir, facts)
    if where.open_files_unreadable is not None:
        hint = "run as the broker's own user (or as root, which switches to it)"
        return _refuse(p, "in-use", where.open_files_unreadable, hint)
    pids = where.open_by.get(p.dir.name, ())
    if not pids or _stray_of_serving_holder(p, where, pids):
        return None
    who = ", ".join(str(pid) for pid in pids)
    return _refuse(p, "in-use", f"process {who} has files below it open", "it is not ours while somebody has it open")


def assigned(p: Proposal, facts: Facts) -> Refusal | None:
    """Only proven orphans are renamed away, unless the operator takes the responsibility in words.

    A stray is asked again before it goes: what was an orphan when it was set aside may be assigned again, and then it
    stays unless another copy covers it. One whose removal has begun is half a directory already, and goes on.
    """
    if p.dir.kind is Kind.STRAY and p.action in (ActionKind.REMOVE, ActionKind.MARK):
        return None if p.begun else _stray(p, facts)
    if p.action not in _RENAMES_AWAY or p.on_the_way_back:
        return None
    ruling = facts.ruling(p.dir)
    if ruling.verdict is Verdict.ORPHAN:
        return None
    fact = f"its verdict is {ruling.verdict.value}"
    if ruling.reason is not None:
        fact += f" ({ruling.reason}{': ' + ruling.detail if ruling.detail else ''})"
    if not p.flags.allow_assigned:
        return _refuse(p, "assigned", fact, "add --allow-assigned if this copy is really to go")
    if ruling.last_copy is not False and not p.flags.even_last_copy:
        copies = "it is the last live copy" if ruling.last_copy else "no fresh assignments show another live copy"
        return _refuse(p, "assigned", f"{fact}, and {copies}", "add --even-last-copy if the data may be lost for good")
    return None


def _stray(p: Proposal, facts: Facts) -> Refusal | None:
    ruling = facts.strays.get((p.dir.log_dir, p.dir.name))
    if ruling is not None and ruling.may_go:
        return None
    fact = "nobody asked whose it is" if ruling is None else ruling.detail
    hint = "it stays until fresh assignments or another copy show that it may go; logagent restore brings it back"
    return _refuse(p, "assigned", fact, hint)


def lock(p: Proposal, facts: Facts) -> Refusal | None:
    """It can be told who holds the log dir, and nobody hides. (Held in the open: see `window`.)"""
    for where in _places(p, facts):
        holder = where.holder
        detail = f": {holder.detail}" if holder.detail else ""
        if holder.state is HolderState.HIDDEN:
            fact = f"nobody holds .lock, but process {holder.pid} uses the log dir{detail}"
            hint = "stop that process; a broker that gave the dir up may keep files open until it stops"
            return _refuse(p, "lock", fact, hint)
        if holder.state is HolderState.UNREADABLE:
            fact = f"who holds .lock cannot be told{detail}"
            return _refuse(p, "lock", fact, "run as the broker's own user")
    return None


def window(p: Proposal, facts: Facts) -> Refusal | None:
    """What a live or starting broker forbids (table of windows in the README)."""
    for where in _places(p, facts):
        holder = where.holder
        if holder.state not in (HolderState.HELD, HolderState.STARTING):
            continue
        if p.action is ActionKind.REMOVE and p.dir.kind is Kind.STRAY and holder.state is HolderState.HELD:
            continue
        state = "is live" if holder.state is HolderState.HELD else "may still be starting"
        detail = f" ({holder.detail})" if holder.detail else ""
        fact = f"the broker (process {holder.pid}) {state} and holds the log dir{detail}"
        if p.action is ActionKind.REMOVE and p.dir.kind is Kind.DELETE:
            return _refuse(p, "window", fact, "nothing to do: the broker removes what is marked for deletion itself")
        hint = "stop the broker first, or let `logagent prestart` act between its stop and its start"
        return _refuse(p, "window", fact, hint)
    return None


def version(p: Proposal, facts: Facts) -> Refusal | None:
    """A broker before 3.6.1 (or of unknown version) does not start with a `-stray` dir in a log dir."""
    if p.action is not ActionKind.QUARANTINE:
        return None
    known = facts.kafka_version
    if known is not None and known >= STRAY_SINCE:
        return None
    if p.new_dir is not None:
        return None
    which = "of unknown version" if known is None else version_text(known)
    hint = "set kafka.version if it is 3.6.1 or later; else set cleanup.quarantine_dirs to a directory on the same file"
    return _refuse(
        p, "version", f"a broker {which} may not start with a -stray dir", f"{hint} system, outside log.dirs"
    )


def policy(p: Proposal, facts: Facts) -> Refusal | None:
    """`delete.topic.enable=false` and internal topics."""
    going = p.action is ActionKind.REMOVE and p.dir.kind is Kind.STRAY and not p.begun
    if p.action not in _RENAMES_AWAY and not going:
        return None
    if p.flags.by_topic and not facts.delete_topic_enable:
        fact = "the broker's configuration says delete.topic.enable=false"
        return _refuse(p, "policy", fact, "set delete.topic.enable=true in server.properties if deletion is wanted")
    topic = p.full_topic or p.dir.topic
    if topic is not None and names.is_internal(topic) and not p.flags.include_internal:
        which = "logagent cleanup --include-internal" if going else "add --include-internal"
        return _refuse(p, "policy", f"{topic} is an internal topic", f"{which} if it is really to go")
    return None


def journal(p: Proposal, facts: Facts) -> Refusal | None:
    """The intent can be made durable before the act."""
    if facts.journal_problem is None:
        return None
    return _refuse(p, "journal", facts.journal_problem, "nothing is done without the journal: mend the state dir first")


Guard = Callable[[Proposal, Facts], Refusal | None]

# In the order in which an operator wants to hear of them.
GUARDS: tuple[Guard, ...] = (inside, online, cluster, lock, window, in_use, version, policy, assigned, journal)

_KIND_WORDS = {
    Kind.METADATA: "KRaft's own metadata log",
    Kind.CACHE: "the remote log index cache",
    Kind.INVALID: "no partition dir by its name",
}


def _stray_of_serving_holder(p: Proposal, where: LogDirFacts, pids: tuple[int, ...]) -> bool:
    return (
        p.action is ActionKind.REMOVE
        and p.dir.kind is Kind.STRAY
        and where.holder.state is HolderState.HELD
        and where.holder.pid is not None
        and set(pids) == {where.holder.pid}
    )


def _places(p: Proposal, facts: Facts) -> tuple[LogDirFacts, ...]:
    """The log dirs that an action touches: where the directory lies, and where it goes if that is another one."""
    here = _where(p.dir.log_dir, facts)
    return (here,) if p.new_dir is None else (here, _where(p.new_dir, facts))


def _where(path: str, facts: Facts) -> LogDirFacts:
    """The log dir's facts. One that is not among them counts as offline, so that a missing fact never permits."""
    known = facts.log_dirs.get(path)
    if known is not None:
        return known
    return LogDirFacts(path, None, Health.OFFLINE, "it was not looked at", Holder(HolderState.UNREADABLE))


def _refuse(p: Proposal, guard: GuardName, fact: str, hint: str) -> Refusal:
    return Refusal(p.dir.log_dir, p.dir.name, guard, fact, hint, p.dir.bytes)
