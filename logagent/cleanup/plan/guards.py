"""The guards, in one list. Each checks one proposal against the facts and lets it pass (None) or refuses and says why.

They run when a plan is made and again, on fresh facts, right before each rename and each removal. For the microseconds
in between, descriptors and the interlock protect what no fact can promise (`disk.log_dir`,
`kafka.processes.lock`). The blast radius, which checks a whole plan, is in `cleanup.plan.assemble`.

Which claims an act needs, and which witnesses are enough for them, is in one table (`base.claims`). Here is where each
claim is found in the facts, and in which words it is refused. `policy` and `journal` are no claims: they are what the
operator allows, and what we can write.
"""

from __future__ import annotations

from collections.abc import Callable

from logagent.base import dir_names
from logagent.base.claims import JUST, Act, Claim, Unmet, Witness, met
from logagent.base.kafka_version import STRAY_SINCE, version_text
from logagent.base.records import LIVE_KINDS, ActionKind, Health, Holder, HolderState, Kind, Reason, Verdict
from logagent.cleanup.plan.plan import Guard, PlanGuard, Proposal, refused
from logagent.cleanup.plan.proposals import OWNERSHIP, act_of, by_holder, by_rulings, need_of, not_online
from logagent.verdict.copies import needs_cover
from logagent.verdict.facts import Facts, LogDirFacts
from logagent.verdict.rules import VerdictReason

_BECOMES = {
    ActionKind.MARK: (Kind.DELETE,),
    ActionKind.QUARANTINE: (Kind.STRAY,),
    ActionKind.RESTORE: LIVE_KINDS,
}
_ACTS_ON = {
    ActionKind.MARK: (*LIVE_KINDS, Kind.STRAY),
    # A marked directory only while being restored: the broker would purge whatever is swapped with it.
    ActionKind.QUARANTINE: (*LIVE_KINDS, Kind.DELETE),
    ActionKind.RESTORE: (Kind.STRAY, Kind.DELETE),
    ActionKind.REMOVE: (Kind.STRAY, Kind.DELETE),
    ActionKind.REMOVE_LEFTOVERS: LIVE_KINDS,
}


def _unless_seen(p: Proposal, facts: Facts, claim: Claim, witness: Witness, guard: PlanGuard) -> Reason | None:
    """What was looked at and was right, counts for as long as its witness does."""
    if need_of(p, facts, JUST[claim]) is None:
        return None
    unmet = facts.why_too_late(claim, witness)
    return None if unmet is None else _too_late(guard, unmet)


def _too_late(guard: PlanGuard, unmet: Unmet) -> Reason:
    fact = f"the evidence for it is no longer valid ({unmet.claim.value}: {unmet.late})"
    return _refuse(guard, fact, "run it again: it gathers all evidence anew", unmet.claim)


def inside(p: Proposal, facts: Facts) -> Reason | None:
    """The directory is a direct child of a configured log dir, on its device, and of a kind that may be touched."""
    d = p.dir
    where = facts.log_dirs.get(d.log_dir)
    if where is None:
        return _refuse("inside", f"{d.log_dir} is not a configured log dir", "name the log dirs the broker uses")
    if not d.name or "/" in d.name or d.name in (".", ".."):
        return _refuse(
            "inside", f"{d.name!r} is not the name of a direct child", "nothing outside a log dir is touched"
        )
    if d.kind in (Kind.METADATA, Kind.CACHE, Kind.INVALID):
        return _refuse("inside", f"it is {_KIND_WORDS[d.kind]}", "logagent never touches it")
    if d.kind not in _ACTS_ON.get(p.action, ()):
        return _refuse("inside", f"{p.action.value} does not apply to a {d.kind.value} dir", "this is a bug: report it")
    if d.error is not None:
        return _refuse("inside", f"it cannot be trusted: {d.error}", "inspect it; logagent will not touch it")
    if where.identity is not None and d.device != where.identity.device:
        return _refuse("inside", "it is on another file system than its log dir", "unmount what is mounted there")
    return _misread(p) or _unless_seen(p, facts, Claim.SAME_DIRECTORY, Witness.INVENTORY, "inside")


def _misread(p: Proposal) -> Reason | None:
    """Refuses a new name that Kafka would not read as intended. A topic with whitespace is valid in a current name, but
    invalid in a marked one, and no broker starts with an invalid name."""
    if p.new_name is None:
        return None
    read = dir_names.classify(p.new_name)
    if read.kind in _BECOMES.get(p.action, ()) and read.partition == p.dir.partition:
        return None
    why = read.error or f"Kafka would read {p.new_name} as a {read.kind.value} dir"
    return _refuse("inside", f"no broker would start with it under a new name: {why}", "move it away by hand")


def cluster(p: Proposal, facts: Facts) -> Reason | None:
    """The log dir is formatted, and all log dirs and the broker's configuration agree on cluster and node."""
    for where in _places(p, facts):
        problem = facts.cluster_problems.get(where.path)
        if problem is not None:
            hint = "check that --kafka-config belongs to the broker that wrote these log dirs"
            return _refuse("cluster", problem, hint)
    return _unless_seen(p, facts, Claim.OUR_BROKER, Witness.META_PROPERTIES, "cluster")


def online(p: Proposal, facts: Facts) -> Reason | None:
    """The log dir is not offline and can be written to. A full log dir passes: deleting is what helps there."""
    found = (why for where in _places(p, facts) if (why := not_online(where)) is not None)
    return next(found, None) or _unless_seen(p, facts, Claim.ONLINE, Witness.PROBE, "online")


def _to_see(fact: str) -> str:
    """What to do about a process of which it is not known whether it uses a log dir."""
    if "cannot be read" in fact:
        return "run as the broker's own user (or as root, which switches to it)"
    return "wait until that process ends or closes the file"


def in_use(p: Proposal, facts: Facts) -> Reason | None:
    """No process has anything below the directory open or mapped, and we were able to see that.

    Exception: removing a stray that only the serving holder has open (Kafka keeps strays open and never writes them).
    """
    where = _where(p.dir.log_dir, facts)
    if where.open_files_unreadable is not None:
        return _refuse("in-use", where.open_files_unreadable, _to_see(where.open_files_unreadable))
    pids = where.open_by.get(p.dir.name, ())
    if not pids or _stray_of_serving_holder(p, where, pids):
        return _unless_seen(p, facts, Claim.NOT_OPEN, Witness.PROCESSES, "in-use")
    who = ", ".join(str(pid) for pid in pids)
    return _refuse(
        "in-use",
        f"process {who} has files below it open",
        "nothing is done with a directory that a process has open",
    )


def assigned(p: Proposal, facts: Facts) -> Reason | None:
    """Only proven orphans are renamed away, unless the operator explicitly takes responsibility; and what cannot be
    undone needs another copy of all of it, too, unless its topic is proven to be gone.

    A stray is checked again before it is removed: it may have been assigned again since it was set aside, and then it
    stays unless another copy covers it. A removal that has started continues: the directory is no longer complete.
    """
    if p.action is ActionKind.REMOVE_LEFTOVERS and not _are_leftovers(p):
        return _refuse("assigned", "these are not files that a start drops", "this is a bug: report it")
    act, need = act_of(p, facts), need_of(p, facts, OWNERSHIP)
    if act is None or need is None:
        return None
    found = met(need, by_rulings(p, facts))
    if not isinstance(found, Unmet):
        return None
    refusal = _IN_WORDS.get(act, _by_verdict)(p, facts, found)
    return refusal if found.late is None else _too_late("assigned", found)


_WHAT_IS_WRONG = "logagent assignments show says what is wrong with the sources"


def _by_verdict(p: Proposal, facts: Facts, unmet: Unmet) -> Reason:
    ruling = facts.ruling(p.dir)
    fact = f"its verdict is {ruling.verdict.value}"
    if ruling.reason is not None:
        fact += f" ({ruling.reason}{': ' + ruling.detail if ruling.detail else ''})"
    if ruling.verdict is Verdict.ORPHAN:
        fact += f", but no source that can prove it says so ({unmet.claim.value})"
        return _refuse("assigned", fact, _WHAT_IS_WRONG, unmet.claim)
    if not p.flags.allow_assigned:
        hint = "add --allow-assigned if you really mean to delete this copy"
        if ruling.verdict is Verdict.UNKNOWN:
            hint = f"{_WHAT_IS_WRONG}; --allow-assigned acts although nobody knows whose it is"
        return _refuse("assigned", fact, hint, unmet.claim)
    copies = "it is the last live copy" if ruling.last_copy else "no current assignments show another live copy"
    hint = "add --even-last-copy if the data may be lost forever"
    return _refuse("assigned", f"{fact}, and {copies}", hint, unmet.claim)


def _assigned_mark(p: Proposal, facts: Facts, unmet: Unmet) -> Reason:
    """A living ISR is not enough: after an unclean election, all of its members can have none of these records."""
    if unmet.claim is not Claim.COVERED:
        return _by_verdict(p, facts, unmet)
    stray, ruling = facts.strays.get(p.dir.key), facts.ruling(p.dir)
    why = stray.why if stray is not None else _NOT_CHECKED
    verdict = f"its verdict is {ruling.verdict.value}{f' ({ruling.reason})' if ruling.reason is not None else ''}"
    asked = f"its leader could not be asked: {why.hint}; or " if why.hint else ""
    hint = f"{asked}add --even-last-copy if the data may be lost forever"
    return _refuse("assigned", f"{verdict}; {why.fact}", hint, unmet.claim)


_NOT_CHECKED = Reason("nobody checked whether another copy has all of it")


def _stray(p: Proposal, facts: Facts, unmet: Unmet) -> Reason:
    ruling = facts.strays.get(p.dir.key)
    if ruling is not None and ruling.may_go and p.flags.only_deleted and ruling.covered is not None:
        return _refuse(
            "assigned", f"its topic is not deleted: {ruling.why.fact}", "nothing to do: it stays", unmet.claim
        )
    fact = "nobody checked who owns its partition" if ruling is None else ruling.why.fact
    hint = "it stays until fresh assignments or another copy show that it may go; logagent restore brings it back"
    if ruling is not None and ruling.ruling is not None and ruling.ruling.reason == VerdictReason.NO_TOPIC_ID:
        hint = "nothing can show that it may go; if its data may be lost forever: logagent delete --even-last-copy"
        hint += f" --partition {p.dir.name}; logagent restore brings it back"
    if ruling is not None and ruling.why.hint:
        hint = f"it stays until its leader can be asked: {ruling.why.hint}"
    return _refuse("assigned", fact, hint, unmet.claim)


def _marked_orphan(p: Proposal, facts: Facts, unmet: Unmet) -> Reason:
    """Of a topic that lives on other nodes, whose copies may lack what is here."""
    if not needs_cover(facts.ruling(p.dir)):
        return _by_verdict(p, facts, unmet)
    ruling = facts.strays.get(p.dir.key)
    why = ruling.why if ruling is not None else _NOT_CHECKED
    hint = "add --even-last-copy if the data may be lost forever; logagent cleanup only sets it aside"
    asked = f"its leader could not be asked: {why.hint}; or " if why.hint else ""
    return _refuse("assigned", why.fact, asked + hint, unmet.claim)


def _are_leftovers(p: Proposal) -> bool:
    """Whoever approves is shown each file."""
    return bool(p.leftovers) and dir_names.leftovers(p.leftovers) == sorted(p.leftovers)


def _leftovers(p: Proposal, facts: Facts, unmet: Unmet) -> Reason:
    """Only of what this broker loads, and what it drops then."""
    fact = f"its verdict is {facts.ruling(p.dir).verdict.value}, so nothing shows that its broker loads it"
    return _refuse("assigned", fact, "nothing to do: an orphan goes as a whole", unmet.claim)


def _duplicate(p: Proposal, facts: Facts, unmet: Unmet) -> Reason:
    ruling = facts.duplicates.get(p.dir.key)
    fact = "the other copy was not checked" if ruling is None else ruling.why.fact
    return _refuse("assigned", fact, "it stays: it may be the only copy of some of its records", unmet.claim)


_IN_WORDS: dict[Act, Callable[[Proposal, Facts, Unmet], Reason]] = {
    Act.REMOVE_STRAY: _stray,
    Act.MARK_STRAY: _stray,
    Act.MARK_ORPHAN: _marked_orphan,
    Act.SET_ASIDE_TO_REMOVE: _marked_orphan,
    Act.MARK_ASSIGNED: _assigned_mark,
    Act.SET_ASIDE_DUPLICATE: _duplicate,
    Act.REMOVE_LEFTOVERS: _leftovers,
    Act.REMOVE_DUPLICATE: _duplicate,
}


def lock(p: Proposal, facts: Facts) -> Reason | None:
    """It is known who holds the log dir, and no holder is hidden. (For one that is openly held see `window`.)"""
    for where in _places(p, facts):
        holder = where.holder
        detail = f": {holder.detail}" if holder.detail else ""
        if holder.state is HolderState.HIDDEN:
            fact = f"nobody holds .lock, but process {holder.pid} uses the log dir{detail}"
            hint = "stop that process; a broker that gave the dir up may keep files open until it stops"
            return _refuse("lock", fact, hint)
        if holder.state is HolderState.UNREADABLE:
            fact = f"cannot tell who holds .lock{detail}"
            return _refuse("lock", fact, _to_see(fact))
    return _unless_seen(p, facts, Claim.HOLDER_KNOWN, Witness.LOCK, "lock")


def window(p: Proposal, facts: Facts) -> Reason | None:
    """No live or starting broker forbids the action (table of windows in docs/index.md)."""
    need = need_of(p, facts, JUST[Claim.STOPPED])
    for where in _places(p, facts):
        holder = where.holder
        found = met(need, by_holder(where.holder, p, facts)) if need is not None else ()
        if not isinstance(found, Unmet):
            continue
        if not holder.state.is_broker:
            return _too_late("window", found)
        state = "is live" if holder.state is HolderState.HELD else "may still be starting"
        detail = f" ({holder.detail})" if holder.detail else ""
        fact = f"the broker (process {holder.pid}) {state} and holds the log dir{detail}"
        if holder.pid is None and holder.state is not HolderState.HELD:
            fact = holder.in_words
        if p.action is ActionKind.REMOVE and p.dir.kind is Kind.DELETE:
            hint = "nothing to do: the broker removes what is marked for deletion itself"
            return _refuse("window", fact, hint, found.claim)
        hint = "stop the broker first, or let `logagent prestart` act between its stop and its start"
        if p.action is ActionKind.REMOVE_LEFTOVERS:
            hint = "stop the broker first; it drops these files itself when it loads the directory"
        if p.action is ActionKind.REMOVE:
            hint = (
                "nothing to do: it goes once the broker has served this log dir for guard.settle. If logagent cannot"
                " ask the broker at its listeners, set kafka.bootstrap_servers (and kafka.client)"
            )
        return _refuse("window", fact, hint, found.claim)
    return None


def version(p: Proposal, facts: Facts) -> Reason | None:
    """Refuses to create a `-stray` dir in a log dir for brokers before 3.6.1 (or of unknown version): they would not
    start."""
    known = facts.kafka_version
    if need_of(p, facts, JUST[Claim.VERSION]) is None:
        return None
    if p.new_dir is not None:
        return _unless_seen(p, facts, Claim.VERSION, Witness.QUARANTINE_DIR, "version")
    if known is not None and known >= STRAY_SINCE:
        return _unless_seen(p, facts, Claim.VERSION, Witness.VERSION_SOURCES, "version")
    which = "Kafka's version is unknown" if known is None else f"this is Kafka {version_text(known)}"
    fact = f"{which}; brokers before 3.6.1 fail to start with a -stray directory"
    hint = "set kafka.version if it is 3.6.1 or later"
    doubt = facts.known_version.doubt() or facts.known_version.only_ran_as(facts.now_ms)
    if doubt is not None:
        fact, hint = f"{fact} ({doubt.fact})", doubt.hint
    hint += "; else set cleanup.quarantine_dirs to a directory on the same file system, outside log.dirs"
    return _refuse("version", fact, hint)


def policy(p: Proposal, facts: Facts) -> Reason | None:
    """`delete.topic.enable=false`, internal topics, and topics that are never deleted, whoever marked them."""
    if p.action in (ActionKind.RESTORE, ActionKind.REMOVE_LEFTOVERS) or p.on_the_way_back or p.removal_started:
        return None
    topic = p.full_topic or p.dir.topic or ""
    why = dir_names.why_spared(topic, include_internal=p.flags.include_internal)
    if topic in dir_names.NEVER_DELETED and why is not None:
        return _refuse("policy", why, "restore it, or leave it to the broker")
    if p.action is ActionKind.REMOVE and p.dir.kind is not Kind.STRAY:
        return None
    if p.flags.by_topic and not facts.delete_topic_enable:
        fact = "the broker's configuration says delete.topic.enable=false"
        return _refuse("policy", fact, "set delete.topic.enable=true in server.properties if deletion is wanted")
    if why is not None:
        # `prestart` runs unattended and has no such option: strays of internal topics wait for `cleanup`.
        which = "logagent cleanup --include-internal" if p.dir.kind is Kind.STRAY else "add --include-internal"
        return _refuse("policy", why, f"{which} to delete it anyway")
    return None


def changeable(p: Proposal, facts: Facts) -> Reason | None:
    """Nothing is known that the kernel would not let us change: what a dry run shows is what `--execute` does.

    Looked at when a plan is made (`cleanup.execute.changeable`), in what every other guard lets pass."""
    found = facts.unchangeable.get(p.key)
    if found is not None:
        return _refuse("changeable", found.fact, found.hint)
    return _unless_seen(p, facts, Claim.CHANGEABLE, Witness.KERNEL, "changeable")


def journal(p: Proposal, facts: Facts) -> Reason | None:
    """The intent can be written durably before the action."""
    problem = facts.journal_problem
    return None if problem is None else _refuse("journal", problem.fact, problem.hint)


# In the order most useful to operators: the first refusal is the one that is shown.
GUARDS: tuple[Guard, ...] = (
    inside,
    online,
    cluster,
    lock,
    window,
    in_use,
    version,
    policy,
    assigned,
    changeable,
    journal,
)

_KIND_WORDS = {
    Kind.METADATA: "KRaft's own metadata log",
    Kind.CACHE: "the remote log index cache",
    Kind.INVALID: "not named like a partition dir",
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
    """The log dirs that an action touches: the directory's own, and the target if that is another one."""
    here = _where(p.dir.log_dir, facts)
    return (here,) if p.new_dir is None else (here, _where(p.new_dir, facts))


def _where(path: str, facts: Facts) -> LogDirFacts:
    """The facts of a log dir. An unknown log dir counts as offline, so that a missing fact never permits anything."""
    known = facts.log_dirs.get(path)
    if known is not None:
        return known
    return LogDirFacts(path, None, Health.OFFLINE, "it was not inspected", Holder(HolderState.UNREADABLE))


_CLAIM_OF: dict[PlanGuard, Claim] = {
    "inside": Claim.SAME_DIRECTORY,
    "online": Claim.ONLINE,
    "cluster": Claim.OUR_BROKER,
    "lock": Claim.HOLDER_KNOWN,
    "in-use": Claim.NOT_OPEN,
    "version": Claim.VERSION,
    "changeable": Claim.CHANGEABLE,
}


def _refuse(guard: PlanGuard, fact: str, hint: str, claim: Claim | None = None) -> Reason:
    return refused(guard, fact, hint, claim=claim or _CLAIM_OF.get(guard))
