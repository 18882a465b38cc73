"""Gathers the evidence that the guards decide on, in the order that it demands, and remembers what it shows.

The holders of the log dirs are looked at before their brokers are asked: an answer that comes after the look is of that
process, or of one that has started and loaded everything since (a broker that stops answers nobody once it has unlocked
its log dirs). Nothing is written but by `remember`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from logagent.base.claims import Witness
from logagent.base.errors import ConfigError
from logagent.base.kafka_version import LastRun, which_version
from logagent.base.records import DirKey, HolderState, Kind, PartitionDir, Verdict
from logagent.base.units import DAY_MS, HOUR_MS
from logagent.cleanup.plan.assemble import RecentDirs, dirs_of_a_day, on_disk
from logagent.cleanup.plan.plan import Proposal
from logagent.cleanup.plan.proposals import needs_ruling
from logagent.cleanup.plan.queue import Recalled
from logagent.cleanup.session.open_host import OpenHost, forgotten_log_dir, remember_log_dirs
from logagent.cleanup.session.recall import marks, proven_absent, todays_sightings
from logagent.disk.calls import Stop
from logagent.disk.log_dir import OpenLogDir
from logagent.kafka.admin.responses import BrokerSays
from logagent.kafka.commitment import remember as lineage_of
from logagent.kafka.identity import BrokerPlace, directory_ids
from logagent.kafka.image import BrokerRegistration
from logagent.kafka.retention.settings import Layers
from logagent.verdict.brokers import mark_serving, registered_by
from logagent.verdict.clock_doubt import reaching_back
from logagent.verdict.copies import needs_cover
from logagent.verdict.evidence.assignment_sources import Assignments
from logagent.verdict.evidence.brokers_to_ask import HeldUp, RunningBroker, brokers_to_ask
from logagent.verdict.evidence.judge import absent_ids, gather_versions, identify, judge
from logagent.verdict.evidence.stray_questions import CYCLE_BYTES, CopyReads, StrayQuestions, rule_on_duplicates
from logagent.verdict.evidence.version_seen import (
    is_noted,
    note_config,
    read_brokers_seen,
    read_version_seen,
    write_brokers_seen,
    write_lineage,
    write_version_seen,
)
from logagent.verdict.facts import Facts, LogDirFacts, SeenHolder, StrayRuling
from logagent.verdict.rules import Host


def gather(
    host: OpenHost, dirs: Sequence[PartitionDir] | None = None, *, to_plan: bool = True, ask_broker: bool = True
) -> Facts:
    """Everything that guards look at, gathered now; verdicts for `dirs`, which are about to be acted on (default: all,
    to plan or to show).

    `to_plan`: also gather what the blast radius of a plan needs, which `dirs` no longer need. `ask_broker`: whether our
    own broker may be asked if it serves; to show what is on the disk, it need not. Raises JournalError.
    """
    now = host.clock.now_ms()
    booted_ms = now - int(host.clock.boottime() * 1000)
    jumps = host.clock_watch.jumps()
    sightings = host.recall().sightings if dirs is None else todays_sightings(host.journal, host.dirs, jumps)
    looked = host.log_dirs.log_dir_facts("now" if dirs is None else "held")
    # From here on all sources of assignments are of this host's own cluster.
    assignments, node, inventory = host.assignments, node_of(host), host.dirs
    identify(assignments, node, inventory, looked, _brokers_seen(host), now)
    log_dirs, serving = _mark_serving(host, node, looked, now) if ask_broker else (looked, None)
    cluster = host.log_dirs.cluster
    holders = [f.holder.pid for f in log_dirs.values() if f.holder.pid is not None]
    last_run = read_version_seen(host.state_dir, cluster.cluster_id, cluster.node_id)
    versions = gather_versions(host.target, holders, assignments, cluster.cluster_id, last_run)
    version = which_version(versions)
    proven = proven_absent(sightings.values(), host.settings.cleanup)
    judged = inventory if dirs is None else dirs
    rulings = judge(judged, assignments, node, log_dirs, now, inventory=inventory, proven_absent=proven)
    images = (*assignments.usable, *assignments.unusable)
    facts = replace(
        host.log_dirs.facts(log_dirs),
        cluster_problems=cluster.problems_for(version, zookeeper=not host.target.server.process_roles),
        rulings=rulings,
        kafka_version=version.version,
        known_version=version,
        quarantine_dirs=host.log_dirs.quarantine_by_log_dir(),
        forgotten=forgotten_log_dir(host.target, host.log_dirs, host.state_dir, looked),
        directory_ids=cache(partial(directory_ids, images, node.cluster_id, node.node_id)),
        journal_problem=host.journal_problem,
        versions=versions,
        serving=serving,
        max_age_ms=node.max_age_ms,
        booted_ms=booted_ms,
    )
    if dirs is not None:
        going = [
            d
            for d in dirs
            if d.kind is Kind.STRAY or ((key := d.key) in host.marked and key in rulings and needs_cover(rulings[key]))
        ]
        rename_marks = marks(host.journal.renames(), going) if going else {}
        recalled = replace(host.recalled, marks=rename_marks, sightings=sightings)
        strays = rule_on_strays(host, going, now, recalled=recalled, to_act=True)
        return replace(facts, strays=strays, duplicates=_duplicates(host, dirs, now, to_act=True))
    # Ages are counted to `facts.now_ms`, and the brokers may have taken a minute to answer: a clock that was set
    # meanwhile is seen only after it.
    host.recalled = replace(host.recalled, doubt=host.clock_watch.doubt())
    set_aside, image = host.of_kind(Kind.STRAY), assignments.first
    questions = _questions(host, set_aside, now, host.recalled, to_act=False) if set_aside else None
    facts = replace(
        facts,
        stray_verdicts=questions.verdicts(set_aside) if questions is not None else {},
        never_shown=frozenset(
            i for d in set_aside if (i := d.topic_id) and image is not None and image.never_showed(i)
        ),
        duplicates=_duplicates(host, inventory, now, to_act=False),
    )
    if not to_plan:
        return facts
    # By the journal, and by what is in the log dirs (and in quarantine directories, whoever put it there).
    since = reaching_back(now - DAY_MS, jumps)
    by_journal = host.journal.taken_since(since) if host.journal_problem is None else ()
    seen = (d for scanned in host.inventory.by_log_dir.values() for d in scanned.dirs)
    recent = (*by_journal, *on_disk(seen, RecentDirs(by_journal), since))
    had_dirs, had_bytes = dirs_of_a_day(inventory, RecentDirs(recent))

    # What counts as assigned for the blast radius: by verdict, or every current directory if nothing is known.
    def assigned() -> Iterable[DirKey]:
        if assignments.usable:
            return (key for key, ruling in rulings.items() if ruling.verdict is not Verdict.ORPHAN)
        return (d.key for d in inventory if d.kind is Kind.CURRENT)

    return replace(facts, recent=recent, partition_dirs=had_dirs, partition_bytes=had_bytes, assigned_dirs=assigned)


def again(host: OpenHost, dirs: Sequence[PartitionDir], stop: Stop) -> Facts:
    """The evidence on `dirs` right before they are acted on, remembered where this session acts. The cluster is read
    again if the last reading is too old. `stop` ends the reading of copies.

    Copies may take hours to read. Then everything is gathered once more, and what was not read, or has changed since,
    does not count."""
    with reads_of(host).allowed(stop) as has_read:
        facts = _again(host, dirs)
    return _again(host, dirs) if has_read() else facts


def _again(host: OpenHost, dirs: Sequence[PartitionDir]) -> Facts:
    try:
        host.read_assignments_again()
    except ConfigError as e:  # the client's file, which was valid when the plan was made
        host.assignments = Assignments(problems=[str(e)])
    facts = gather(host, dirs)
    remember(host, facts)
    return facts


def ask_about(host: OpenHost, proposals: Sequence[Proposal], facts: Facts) -> Facts:
    """`facts`, with the rulings on what of `proposals` goes for good: whether another copy has all of it."""
    going = [p for p in proposals if needs_ruling(p, facts)]
    host.marked |= {p.key for p in going if p.dir.kind is not Kind.STRAY}
    duplicates = _duplicates(host, [p.dir for p in proposals if p.duplicate], facts.now_ms, to_act=False)
    strays = rule_on_strays(host, [p.dir for p in going], facts.now_ms)
    return replace(facts, strays=strays, duplicates=duplicates)


# What is remembered


def remember(host: OpenHost, facts: Facts) -> None:
    """Write down what `facts` show, for later sessions, if this one acts (the daemon in report mode does, too): who
    serves, which version runs, the brokers of the cluster, how far its metadata log reaches, and which log dirs the
    configuration names. Raises JournalError."""
    state_dir, versions = host.state_dir, facts.versions
    if not host.acting or versions is None:
        return
    cluster, assignments, journal = host.log_dirs.cluster, host.assignments, host.journal
    registration = _registration(host)
    incarnation = registration.incarnation if registration is not None else None
    if facts.serving is not None:
        if incarnation is not None and incarnation not in journal.incarnations():
            journal.note_incarnation(incarnation, facts.now_ms)
        if facts.serving != journal.serving():
            journal.note_serving(facts.serving)
    answering = assignments.answering
    places = answering.places if answering is not None and answering.own else None
    if places is not None and cluster.cluster_id is not None and places != _brokers_seen(host):
        write_brokers_seen(os.path.dirname(journal.path), cluster.cluster_id, places)
    if state_dir is None:
        return
    _remember_lineage(host, state_dir)
    if any(f.holder.state.is_broker for f in facts.log_dirs.values()):
        note_config(state_dir, host.target.config, *facts.process())
    if facts.forgotten is None:
        remember_log_dirs(host.log_dirs, state_dir, facts.log_dirs)
    running, before = versions.running, versions.last_run
    if running is None or cluster.memory_id is None or cluster.node_id is None:
        return
    if running == before.version:
        if facts.now_ms - (before.seen_ms or 0) >= HOUR_MS:
            seen = cluster.memory_id, cluster.node_id, running, facts.now_ms
            write_version_seen(state_dir, *seen, again=True)
        return
    # A newer version only once it serves: a start that fails says nothing about the next one.
    serving = {f.holder.pid for f in facts.log_dirs.values() if f.holder.state is HolderState.HELD}
    older = before.version is not None and running < before.version
    if older or before == LastRun(file=before.file) or versions.pid in serving:
        write_version_seen(state_dir, cluster.memory_id, cluster.node_id, running, facts.now_ms)


def _remember_lineage(host: OpenHost, state_dir: str) -> None:
    """How far the metadata log reaches, and which topic ids of this host it had, for later readings; or that it is of
    another history than that."""
    read, own, cluster = host.assignments, host.assignments.own_log, host.log_dirs.cluster
    if own is None or not read.mode_known:
        return
    if cluster.cluster_id is None or cluster.node_id is None or own.cluster_id != cluster.cluster_id:
        return
    if read.other_history is not None:
        # However little of the host was seen: soon a snapshot hides it.
        known = replace(read.lineage, other_history=read.other_history)
    elif read.lineage_problem is not None or not host.inventory.whole:
        return
    else:
        here = {d.topic_id for d in host.dirs if d.topic_id is not None}
        known = lineage_of(read.lineage, read.newest_committed, own.by_id, here)
    if known != read.lineage:
        write_lineage(state_dir, cluster.cluster_id, cluster.node_id, known)
        read.lineage = known


# What it consists of


def node_of(host: OpenHost) -> Host:
    cluster = host.log_dirs.cluster
    return Host(cluster.node_id, cluster.cluster_id, host.settings.assignments.max_age)


def reads_of(host: OpenHost) -> CopyReads:
    """What reads copies here, within the limits of who waits: a command's user can press Ctrl-C."""
    if host.reads is None:
        shared = host.segments_read
        host.reads = CopyReads() if shared is None else CopyReads(shared, left=CYCLE_BYTES)
    return host.reads


def own_log_dirs(host: OpenHost) -> dict[str, OpenLogDir]:
    """The readable log dirs that have this broker's ids, and that it uses as far as we know: nothing may rest on a copy
    in another one."""
    cluster = host.log_dirs.cluster
    others = {*cluster.problems, *cluster.copied, *host.target.unconfigured}
    return {path: d for path, d in host.log_dirs.online().items() if path not in others}


def rule_on_strays(
    host: OpenHost,
    strays: Sequence[PartitionDir],
    now_ms: int,
    *,
    recalled: Recalled | None = None,
    to_act: bool = False,
) -> dict[DirKey, StrayRuling]:
    """Whether the strays that are about to be removed may be; `to_act`: right now."""
    if not strays:
        return {}
    return _questions(host, strays, now_ms, recalled or host.recalled, to_act=to_act).rule_on(strays)


def _questions(
    host: OpenHost, strays: Sequence[PartitionDir], now_ms: int, recalled: Recalled, *, to_act: bool
) -> StrayQuestions:
    node, assignments = node_of(host), host.assignments
    proven = proven_absent(recalled.sightings.values(), host.settings.cleanup)
    return StrayQuestions(
        assignments,
        node,
        absent_ids(strays, assignments, node, now_ms, proven, host.dirs),
        host.log_dirs.opened(),
        own_log_dirs(host),
        host.calls,
        host.dirs,
        recalled.marks,
        now_ms,
        host.ask_leaders,
        reads_of(host),
        to_act,
        host.brokers,
    )


def _duplicates(
    host: OpenHost, dirs: Sequence[PartitionDir], now_ms: int, *, to_act: bool
) -> dict[DirKey, StrayRuling]:
    asked = [(d, other) for d in dirs if (other := host.duplicates.get(d.key)) is not None]
    if not asked:
        return {}
    reads = reads_of(host)
    return rule_on_duplicates(asked, own_log_dirs(host), host.calls, reads, to_act=to_act, now_ms=now_ms)


def layers_in_force(
    host: OpenHost, facts: Facts, held_up: HeldUp | None, *, ask: bool
) -> tuple[Layers, str | None, BrokerSays]:
    """What is set, as it is in force for this host's broker, what is not known of it, in words, and what that broker
    says of its logs if `held_up` is given (`BrokersToAsk.ask_running`). `ask`: that broker, if it runs."""
    node, layers = node_of(host), host.assignments.layers
    brokers = brokers_to_ask(
        host.assignments,
        host.target,
        host.settings,
        node,
        host.dirs,
        facts.log_dirs,
        facts.now_ms,
        host.patience,
    )
    if not brokers.held_by:
        return layers, None, BrokerSays()
    brokers.not_again(host.brokers)
    asked = (
        brokers.ask_running(layers, held_up) if ask and not brokers.stopped else RunningBroker(None, None, BrokerSays())
    )
    if asked.layers is not None:
        return asked.layers, None, asked.says
    pid, first = facts.process()
    noted = is_noted(host.state_dir, host.target.config, pid, first)
    return *brokers.by_file(layers, first, asked.why_not, noted=noted), asked.says


def _brokers_seen(host: OpenHost) -> frozenset[BrokerPlace]:
    state_dir = os.path.dirname(host.journal.path)
    return read_brokers_seen(state_dir, host.log_dirs.cluster.cluster_id) if state_dir else frozenset()


def _registration(host: OpenHost) -> BrokerRegistration | None:
    """This broker's, by the metadata log on this host."""
    own_log, cluster = host.assignments.own_log, host.log_dirs.cluster
    if own_log is None or own_log.cluster_id != cluster.cluster_id or host.assignments.lineage_problem:
        return None
    # What a registration means is known of tested levels only (`levels`).
    if own_log.untested_because is not None or cluster.node_id is None:
        return None
    return own_log.brokers.get(cluster.node_id)


def _mark_serving(
    host: OpenHost, node: Host, looked: Mapping[str, LogDirFacts], now_ms: int
) -> tuple[Mapping[str, LogDirFacts], Mapping[str, SeenHolder]]:
    """The log dirs, with brokers that serve distinguished from those that may still be starting, and the former."""
    target, settings = host.target, host.settings
    brokers = brokers_to_ask(host.assignments, target, settings, node, host.dirs, looked, now_ms, host.patience)
    if host.brokers is None or not host.brokers.same_as(brokers):
        host.close_questions()
        host.brokers = brokers
    brokers = host.brokers
    registration, journal, known = _registration(host), host.journal, host.journal.serving()
    if all(f.holder.state is not HolderState.STARTING for f in looked.values()):
        return looked, known
    # What is noticed of it now counts as seen now, whether this session writes it down or not.
    incarnations = dict(journal.incarnations())
    if registration is not None and registration.incarnation is not None:
        incarnations.setdefault(registration.incarnation, now_ms)

    def who_says(where: LogDirFacts) -> Witness | str:
        if registered_by(where.holder, registration, incarnations, where.directory_id):
            return Witness.REGISTRATION
        if brokers.serves(where.path):
            return Witness.DESCRIBE_LOG_DIRS
        why = f": {brokers.broker_problem}" if brokers.broker_problem is not None else ""
        return f"it does not say yet that it serves this log dir{why}"

    return mark_serving(looked, known, who_says, host.settings.guard.settle, now_ms, registration)
