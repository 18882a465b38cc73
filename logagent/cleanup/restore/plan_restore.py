"""The plan of `logagent restore`: what is restored, what it displaces, and what disk and cluster were asked first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from logagent.base.dir_names import LOG_START_OFFSET
from logagent.base.errors import LogAgentError
from logagent.base.kafka_version import Version, deletes_strays
from logagent.base.records import DirKey, Kind, PartitionDir, TopicPartition
from logagent.base.times import rfc3339
from logagent.cleanup.execute.checkpoint_entries import saved_entries
from logagent.cleanup.plan.plan import Plan
from logagent.cleanup.plan.queue import full_topic
from logagent.cleanup.restore.rules import CopyRead, Owner, RestoreOptions, Wanted, restorations
from logagent.cleanup.session.session import Session, new_uuid
from logagent.disk.log_dir import OpenLogDir
from logagent.kafka.extents import EpochEnd
from logagent.kafka.files.log_extent import read_log_extent
from logagent.kafka.files.segment_files import indexes_to_rebuild, read_segment_files, rebuilt_segment_times
from logagent.kafka.retention.topic_retention import FirstCheck, SegmentAge, TopicConfigs, as_answered, first_check
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

    def deletes(self, topic: str, segments: Iterable[SegmentAge], sizes: Sequence[int]) -> FirstCheck | None:
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
    known = Wanted(wanted, session.dirs, marks, copies, session.recalled.removal_intents)
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
    as_of = f"; retention settings as of {rfc3339(log.at_ms)}, where the metadata log ends"
    return {topic: as_of for topic in topics if topic is not None and topic not in answered}


def _why_unknown(session: Session, *, zookeeper: bool) -> str:
    """Why the topics' settings are not known now, where they are not."""
    if zookeeper:
        why = "in ZooKeeper mode the settings of topics are not on this host"
    elif (log := session.assignments.own_log) is None:
        why = "the settings of topics are in the metadata log, which was not read here"
    else:
        why = f"the metadata log here ends at {rfc3339(log.at_ms)}, and its topic may have other settings since"
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
            standing = next((read_log(opened[s.log_dir], s) for s in named if s.log_dir in opened), None)
            copy = replace(copy, log_start_back=offset, standing=standing)
        found[d.key] = copy
    return found


def _read_copy(log_dir: OpenLogDir, d: PartitionDir, topic: str | None, retention: Retention) -> CopyRead:
    with log_dir.acting("look", d.name):
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
