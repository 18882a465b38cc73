"""`logagent restore`: undo -stray, and -delete as long as the directory exists. Its plan: what is restored, what it
displaces, and what disk and cluster were asked first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import click

from logagent.base.console.options import Call, Consent, carries_out, common, gathered, reads_assignments
from logagent.base.dir_names import LOG_START_OFFSET, classify, validate_topic
from logagent.base.errors import LogAgentError, UsageError
from logagent.base.kafka_version import Version, deletes_strays
from logagent.base.records import ActionKind, DirKey, Kind, Outcome, PartitionDir, Reason, TopicPartition
from logagent.base.units import human_time
from logagent.cleanup.commands.names import exactly, meant, no_such, restorable
from logagent.cleanup.execute.renames import saved_entries
from logagent.cleanup.plan.plan import Plan
from logagent.cleanup.plan.queue import full_topic
from logagent.cleanup.restore.rules import CopyRead, Owner, RestoreOptions, Wanted, restorations
from logagent.cleanup.run_plan import run_plan
from logagent.cleanup.session.of_command import needs_log_dirs
from logagent.cleanup.session.recall import renamed_by
from logagent.cleanup.session.session import Session, new_uuid
from logagent.cleanup.state.journal import Journal
from logagent.disk.log_dir import OpenLogDir
from logagent.kafka.extents import EpochEnd
from logagent.kafka.files.log_extent import read_log_extent
from logagent.kafka.files.segment_files import indexes_to_rebuild, read_segment_files, rebuilt_segment_times
from logagent.kafka.retention.settings import SegmentAge, TopicConfigs, as_answered, first_check
from logagent.verdict.evidence.stray_questions import read_log
from logagent.verdict.facts import Facts
from logagent.verdict.marks import Mark


@dataclass(frozen=True, slots=True)
class Retention:
    """What is known of the topics' retention at `now_ms`. `answered`: of the topics that another broker described now,
    which counts before `configs`. `why_incomplete`: why it is not known, if `configs` are not complete."""

    configs: TopicConfigs
    answered: Mapping[str, TopicConfigs]
    now_ms: int
    why_incomplete: str

    def deletes(self, topic: str, segments: Iterable[SegmentAge], sizes: Sequence[int]) -> Reason | None:
        configs = self.answered.get(topic, self.configs)
        return first_check(topic, segments, sizes, self.now_ms, configs, self.why_incomplete)


def plan_restore(
    session: Session,
    facts: Facts,
    chosen: Iterable[PartitionDir],
    options: RestoreOptions,
    *,
    approve: str | None = None,
) -> Plan:
    """`chosen` back to their full names, marked ones first."""
    wanted = sorted(chosen, key=lambda d: (d.kind is Kind.STRAY, d.log_dir, d.name))
    zookeeper = session.target.config is not None and not session.target.server.process_roles
    marks = session.recalled.marks
    answered = _ask_settings(session, wanted, marks, options)
    why = _why_unknown(session, zookeeper=zookeeper)
    retention = Retention(session.assignments.topic_configs, answered, facts.now_ms, why)
    copies = _read_copies(session, wanted, marks, options, retention)
    leaders = _ask_leaders(session, wanted, marks, copies, options)
    owner = Owner(
        session.assignments.first,
        session.log_dirs.cluster.node_id,
        leaders,
        deletes_unassigned=any(deletes_strays(v, zookeeper=zookeeper) for v in _possible_versions(facts)),
        version_doubt=facts.known_version.doubt(),
        zookeeper=zookeeper,
        settings_as_of=_as_of(session, wanted, marks, options, answered),
    )
    asked = [d for d in wanted if d.kind is Kind.CURRENT]
    found = {d.key: removed_before(session.journal, d.name, f"{d.topic}-{d.partition}") for d in asked}
    removed = {key: said for key, said in found.items() if said is not None}
    known = Wanted(wanted, session.dirs, marks, copies, session.recalled.removal_intents, removed)
    proposals, refusals = restorations(known, facts, owner, options, new_uuid)
    return session.plan(proposals, refusals=refusals, facts=facts, approve=approve)


def _possible_versions(facts: Facts) -> set[Version | None]:
    """What is the oldest release is not always the one that deletes."""
    return {facts.kafka_version, *facts.known_version.possible}


def _ask_leaders(
    session: Session,
    chosen: Sequence[PartitionDir],
    marks: Mapping[DirKey, Mark],
    copies: Mapping[DirKey, CopyRead],
    options: RestoreOptions,
) -> dict[DirKey, EpochEnd]:
    """Where the leaders end the last leader epoch of each; empty if no broker may answer for this cluster."""
    wanted: dict[DirKey, tuple[TopicPartition, int]] = {}
    topic_ids: dict[str, str] = {}
    for d in chosen:
        key = d.key
        copy, topic = copies.get(key), full_topic(d, marks.get(key)) or options.topic
        epoch = copy.log.last_epoch if copy is not None else None
        if topic is not None and d.partition is not None and d.topic_id is not None and epoch is not None:
            wanted[key] = TopicPartition(topic, d.partition), epoch
            # Of two incarnations the existing topic; the other one is refused because of its id.
            living = session.assignments.first.by_name.get(topic) if session.assignments.first is not None else None
            topic_ids[topic] = living.topic_id if living is not None and living.topic_id is not None else d.topic_id
    reader = session.brokers.leaders() if wanted and session.brokers is not None else None
    return reader.epoch_ends(wanted, topic_ids) if reader is not None else {}


def _ask_settings(
    session: Session, chosen: Sequence[PartitionDir], marks: Mapping[DirKey, Mark], options: RestoreOptions
) -> dict[str, TopicConfigs]:
    """What a broker of this cluster says now of the topics' settings; empty if none may answer for it. Asked however
    fresh the metadata log here is: it ends when its broker stopped."""
    topics = (full_topic(d, marks.get(d.key)) or options.topic for d in chosen)
    names = {topic for topic in topics if topic is not None}
    reader = session.brokers.leaders() if names and session.brokers is not None else None
    answers = reader.topic_settings(names) if reader is not None else {}
    defaults = session.assignments.broker_defaults
    return {topic: as_answered(topic, found, defaults) for topic, found in answers.items()}


def _as_of(
    session: Session,
    chosen: Sequence[PartitionDir],
    marks: Mapping[DirKey, Mark],
    options: RestoreOptions,
    answered: Mapping[str, TopicConfigs],
) -> dict[str, str]:
    """A remark for each topic whose settings are known only from the metadata log here, which ends when its broker
    stopped.

    They count as long as assignments do (`assignments.max_age`, 15 minutes), by decision. Where nobody else can be
    asked, as on a cluster of one node, nobody else can have changed them either; and elsewhere what can have been
    changed since is a topic's retention, in the minutes in which an operator brings that topic back. Older than that,
    they are unknown, and the restore is refused.
    """
    log = session.assignments.own_log
    if log is None or not session.assignments.topic_configs.complete:
        return {}
    topics = (full_topic(d, marks.get(d.key)) or options.topic for d in chosen)
    as_of = f"Retention settings as of {human_time(log.at_ms)}, where the metadata log ends."
    return {topic: as_of for topic in topics if topic is not None and topic not in answered}


def _why_unknown(session: Session, *, zookeeper: bool) -> str:
    """Why the topics' settings are not known now, where they are not."""
    if zookeeper:
        why = "in ZooKeeper mode the settings of topics are not on this host"
    elif (log := session.assignments.own_log) is None:
        why = "the settings of topics are in the metadata log, which was not read here"
    else:
        why = f"the metadata log here ends at {human_time(log.at_ms)}, and its topic may have other settings since"
    problem = session.brokers.leader_problem if session.brokers is not None else None
    if problem is not None:
        return f"{why}; no living broker could be asked: {problem}"
    return f"{why}, and no other broker described it (DESCRIBE_CONFIGS on the topic)"


def _read_copies(
    session: Session,
    chosen: Sequence[PartitionDir],
    marks: Mapping[DirKey, Mark],
    options: RestoreOptions,
    retention: Retention,
) -> dict[DirKey, CopyRead]:
    """What the disk (and, for the log start offset, the journal) shows of each; those that cannot be read are
    missing."""
    found: dict[DirKey, CopyRead] = {}
    opened = session.log_dirs.opened()
    for d in chosen:
        if d.kind not in (Kind.STRAY, Kind.DELETE) or d.log_dir not in opened:
            continue
        try:
            topic = full_topic(d, marks.get(d.key)) or options.topic
            copy = _read_copy(opened[d.log_dir], d, topic, retention)
            saved = saved_entries(session.journal, opened[d.log_dir], d) if session.journal_problem is None else ()
        except LogAgentError:
            continue
        starts = [(e.topic, e.partition, e.offset) for e in saved if e.file == LOG_START_OFFSET]
        for topic, partition, offset in starts:
            named = (s for s in session.of_kind(Kind.CURRENT) if (s.topic, s.partition) == (topic, partition))
            in_place = next((read_log(opened[s.log_dir], s) for s in named if s.log_dir in opened), None)
            copy = replace(copy, log_start_back=offset, in_place=in_place)
        found[d.key] = copy
    return found


def _read_copy(log_dir: OpenLogDir, d: PartitionDir, topic: str | None, retention: Retention) -> CopyRead:
    with log_dir.acting("read", d.name):
        fd = log_dir.open_child(d.name, d.identity)
        try:
            segments = read_segment_files(fd)
            some = indexes_to_rebuild(segments, every_segment=False)
            every = indexes_to_rebuild(segments, every_segment=True)
            sizes = [segment.log_bytes for segment in segments.segments]
            goes = retention.deletes(topic, rebuilt_segment_times(fd), sizes) if topic is not None else None
            return CopyRead(
                read_log_extent(fd),
                some.bytes,
                every.bytes,
                segments.without_log,
                segments.deleted,
                first_check=goes,
                segments=tuple((int(segment.base), segment.log_bytes) for segment in segments.segments),
            )
        finally:
            os.close(fd)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=restorable)
@click.option("--plan", "plan_id", metavar="PLAN_ID", help="Everything this plan marked or set aside.")
@click.option(
    "--topic-name", "topic", metavar="TOPIC", help="The full topic of a truncated name, where it is not known."
)
@click.option("--replace", is_flag=True, help="Swap with the directory that has the name now.")
@click.option("--even-last-copy", is_flag=True, help="With --replace: even if that is the last live copy.")
@click.option("--leader-will-truncate", is_flag=True, help="Even if the leader has fewer records and truncates it.")
@click.option("--broker-will-delete", is_flag=True, help="Even if the broker deletes it at its next start.")
@click.option(
    "--retention-will-delete", is_flag=True, help="Even if the broker's retention deletes it after its start."
)
@carries_out
@reads_assignments
@gathered("options", RestoreOptions)
@gathered("consent", Consent)
@common
@needs_log_dirs
def restore(call: Call, names: tuple[str, ...], plan_id: str | None, options: RestoreOptions, consent: Consent) -> None:
    """Rename marked and stray directories back to their full names.

    NAME is a directory's name or path, the same as a table prints it (with its …), TOPIC-PARTITION, or a beginning that
    only one of them has.
    """
    if not names and plan_id is None:
        raise UsageError("say what to restore: directory names, or --plan PLAN_ID", hint="logagent queue shows them")
    if options.topic is not None and (len(names) != 1 or plan_id is not None):
        raise UsageError("--topic-name goes with exactly one NAME", hint="logagent restore --help")
    if options.even_last_copy and not options.replace:
        raise UsageError("--even-last-copy goes with --replace", hint="without it, nothing that has the name is moved")
    if options.topic is not None:
        try:
            validate_topic(options.topic)
        except ValueError as e:
            raise UsageError(f"--topic-name: {e}", hint="name the topic as Kafka knows it, in full") from e

    def make_plan(session: Session, facts: Facts) -> Plan:
        moved = set(renamed_by(session.journal, session.dirs, plan_id)) if plan_id is not None else set()
        candidates = [d for d in session.dirs if d.log_dir not in session.spared]
        if plan_id is not None and not moved:
            raise UsageError(f"plan {plan_id} left nothing that could be restored", hint="logagent history shows it")
        chosen = {d.key: d for d in candidates if d.key in moved}
        for name in names:
            chosen |= {d.key: d for d in _named(name, candidates, session.journal)}
        return plan_restore(session, facts, chosen.values(), options, approve=consent.approve)

    run_plan(call, make_plan, execute=consent.execute)


def removed_before(journal: Journal, *names: str) -> str | None:
    """What the journal says of the newest removal of a directory that has one of `names`, or whose partition has."""
    for e in reversed(journal.history()):
        i = e.intent
        if i.action is not ActionKind.REMOVE or e.outcome is not Outcome.DONE or e.finished_at_ms is None:
            continue
        if not {i.name, f"{i.topic}-{i.partition}"}.isdisjoint(names):
            kind = "stray" if classify(i.name).kind is Kind.STRAY else "-delete directory"
            return f"its {kind} was removed at {human_time(e.finished_at_ms)}, plan {i.plan_id}"
    return None


def _named(name: str, dirs: Sequence[PartitionDir], journal: Journal) -> list[PartitionDir]:
    """The directories that this names. A marked directory may be a stray by now, with the same UUID, if a restore was
    cut short. Raises UsageError if it names none, or does not decide between several."""
    matches = exactly(name, dirs)
    movable = [d for d in dirs if d.kind in (Kind.STRAY, Kind.DELETE)]
    if not matches or all(d.kind is Kind.CURRENT for d in matches):
        # Of a partition that is current again, what is to be restored is the other one.
        one = meant(name, movable)
        matches = [one] if one is not None else matches
    parsed = classify(os.path.basename(name))
    if not matches and parsed.kind is Kind.DELETE and parsed.uuid is not None:
        same = (parsed.uuid, parsed.partition)
        matches = [d for d in dirs if d.kind is Kind.STRAY and (d.uuid, d.partition) == same]
    if not matches:
        removed = removed_before(journal, os.path.basename(name))
        if removed is not None:
            raise UsageError(f"{name}: {removed}", hint="nothing brings back what was removed: logagent history")
        raise no_such(name, movable)
    return matches
