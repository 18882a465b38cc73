"""What `logagent explain` shows of a host: its log dirs, their bytes and why they are still there, and what else is on
their file systems."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal

from logagent.advice.explain.explain import Explained, Explainer, FileSystem, Sum
from logagent.advice.explain.names import explain_document, last_part, show_names
from logagent.advice.explain.rules import Group, OtherLogDir, Outside, PlaceKind, RetentionReason, Whose, whose
from logagent.base.claims import of_ruling, since_when
from logagent.base.clock import SystemClock
from logagent.base.console.options import Call
from logagent.base.console.render import did_you_mean, dump, human_bytes, human_time, table
from logagent.base.dir_names import classify
from logagent.base.errors import ConfigError
from logagent.base.records import DirKey, Health, Kind, PartitionDir
from logagent.base.times import rfc3339, rfc3339_or_none
from logagent.cleanup.plan.queue import full_topic
from logagent.cleanup.session.of_command import note_health, session_of, take_inventory, unusable_assignments_file
from logagent.cleanup.session.session import Session
from logagent.disk.wrong_user import refuse_wrong_user
from logagent.kafka.processes.target import resolve_target
from logagent.kafka.retention.settings import NotConsidered, Setting
from logagent.verdict.facts import Facts

if TYPE_CHECKING:
    from logagent.advice.explain.documents import (
        ExplainDoc,
        ExplainedDirDoc,
        ExplainedLogDirDoc,
        FileSystemDoc,
        GroupDoc,
        NameDoc,
        OutsideDoc,
        ReasonSumDoc,
        SettingDoc,
    )

Role = Literal["leader", "follower"]

IN_WORDS: Final = {
    RetentionReason.DUE: "past its retention",
    RetentionReason.RETENTION: "retention not reached",
    RetentionReason.ACTIVE: "active segment",
    RetentionReason.OLDER_SEGMENT: "behind an older segment",
    RetentionReason.FUTURE_TIMESTAMPS: "timestamps in the future",
    RetentionReason.SIZE: "retention.bytes not reached",
    RetentionReason.UNLIMITED: "kept for ever",
    RetentionReason.COMPACTED: "compacted",
    RetentionReason.NOT_YET_COMPACTED: "not yet compacted",
    RetentionReason.BELOW_LOG_START: "below the log start offset",
    RetentionReason.ABOVE_HIGH_WATERMARK: "above the high watermark",
    RetentionReason.NOT_YET_TIERED: "local retention",
    RetentionReason.COPY_DELAYED: "copy to remote storage delayed",
    RetentionReason.SETTINGS_UNKNOWN: "settings unknown",
    RetentionReason.UNREADABLE: "unreadable",
    RetentionReason.DELETED_FILES: "deleted segments' files",
    RetentionReason.ACTIVE_INDEXES: "active segment's indexes",
    RetentionReason.PARTITION_FILES: "other files of partitions",
    RetentionReason.ORPHAN: "orphan",
    RetentionReason.STRAY: "stray",
    RetentionReason.MARKED: "marked for deletion",
    RetentionReason.MOVE: "move between log dirs",
    RetentionReason.METADATA_LOG: "KRaft metadata log",
    RetentionReason.INDEX_CACHE: "remote index cache",
    RetentionReason.NOT_A_LOG: "not a partition",
    RetentionReason.LOG_DIR_FILES: "files beside partitions",
    RetentionReason.OPEN_REMOVED: "removed but open files",
    RetentionReason.UNEXPLAINED: "outside the log dirs",
}


_NAMED_TOPICS: Final = 3


def explain_host(call: Call, names: Sequence[str], *, outside: bool) -> None:
    """Print it for `names`, or for all file systems, with what is `outside` the log dirs on them. Where there is no
    broker, only how names are parsed."""
    parsed = [explain_document(last_part(name)) for name in names]
    refuse_wrong_user(call)
    try:
        resolve_target(call.settings(), call.log_dirs)
    except ConfigError as e:
        if not names or call.kafka_config is not None or call.settings().kafka.config is not None or call.log_dirs:
            raise
        call.say(f"only the names are explained: {e}")
        _print_names(call, parsed)
        return
    with session_of(call) as session:
        # What this host's disks say: nobody is asked.
        session.read_assignments(tuple(s for s in session.settings.assignments.sources if s != "admin"))
        if (unusable := unusable_assignments_file(session, call)) is not None:
            raise unusable
        session.ask_leaders = False
        take_inventory(session, call)
        facts = session.facts(to_plan=False, ask_broker=False)
        note_health(call, facts)
        _say_what_is_not_known(call, session)
        explainer = Explainer(session, facts)
        wanted, unmatched = _named(session, names)
        _say_unmatched(call, session, facts, unmatched)
        dirs = explainer.dirs(wanted)
        systems = explainer.file_systems(outside=outside) if not names else []
        explained = {d.topic for d in (wanted if names else session.dirs) if d.kind is Kind.CURRENT and d.topic}
        if call.json:
            dump(_document(call, session, explainer, parsed, dirs, systems, explained))
            return
        if unmatched:
            show_names(map(explain_document, map(last_part, unmatched)), color=call.color)
        _show_dirs(call, dirs, facts.now_ms)
        _show_file_systems(call, session, systems, facts.now_ms)
        _say_what_is_not_considered(call, session, explained)
        for log_dir in _log_dirs(session, explainer):
            if log_dir["waits_for"] is not None:
                call.say(f"{log_dir['path']}: nothing is deleted there until {log_dir['waits_for']}")
            if log_dir["cordoned"]:
                call.say(f"{log_dir['path']}: it is cordoned: it gets no new partitions, and retention goes on")


def _say_unmatched(call: Call, session: Session, facts: Facts, unmatched: Sequence[str]) -> None:
    places = [path for path, f in facts.log_dirs.items() if f.health is not Health.OFFLINE and not f.quarantine]
    for name in unmatched:
        near = did_you_mean(name, _known_names(session.dirs))
        call.say(f"{name}: there is no such directory, partition or topic in {', '.join(places)}{near}")


def _known_names(dirs: Iterable[PartitionDir]) -> Iterator[str]:
    for d in dirs:
        yield d.name
        if d.topic is not None:
            yield from (d.topic, f"{d.topic}-{d.partition}")


def _print_names(call: Call, parsed: Sequence[NameDoc]) -> None:
    if call.json:
        dump(_head(call, None, parsed))
    else:
        show_names(parsed, color=call.color)


def _say_what_is_not_known(call: Call, session: Session) -> None:
    layers = session.assignments.layers
    if not layers.complete:
        call.say(
            "the settings of topics are not known here (no metadata log that is ours was read): the broker's defaults "
            "are taken for them, and a topic may have others"
        )
    if (note := session.assignments.ends_at_stop) is not None:
        call.say(note, folded=True)
        call.say("  hint: logagent scan asks the other brokers what came after")
    elif layers.as_of_ms is not None:
        call.detail(f"the settings of topics are those of {rfc3339(layers.as_of_ms)}, when the metadata log here ends")


def _say_what_is_not_considered(call: Call, session: Session, topics: Collection[str]) -> None:
    """Settings that may keep or take segments too: reasons and dates hold as far as they change nothing of it."""
    by_key: dict[tuple[str, str], list[NotConsidered]] = {}
    for found in session.assignments.layers.not_considered(topics) if topics else ():
        by_key.setdefault((found.setting.key, found.setting.source), []).append(found)
    if by_key:
        words = "; ".join(map(_not_considered_in_words, by_key.values()))
        call.say(f"not considered, and may change reasons and dates: {words}", folded=True)


def _not_considered_in_words(found: Sequence[NotConsidered]) -> str:
    """One setting, and the topics that have it with any of its values."""
    setting, topics = found[0].setting, [topic for one in found for topic in one.topics]
    if not topics:
        return str(setting)
    of = ", ".join(topics[:_NAMED_TOPICS])
    more = f" and {len(topics) - _NAMED_TOPICS} more" if len(topics) > _NAMED_TOPICS else ""
    value = f"={setting.text}" if len(found) == 1 else ""
    return f"{setting.key}{value} ({'topic' if len(topics) == 1 else 'topics'} {of}{more})"


def _named(session: Session, names: Sequence[str]) -> tuple[list[PartitionDir], list[str]]:
    """The directories that `names` mean, each once, and the names that mean none."""
    marks = session.marks()
    found: dict[DirKey, PartitionDir] = {}
    unmatched: list[str] = []
    for name in names:
        matching = [d for d in session.dirs if _means(name, d, full_topic(d, marks.get(d.key)))]
        found |= {d.key: d for d in matching}
        unmatched += [] if matching else [name]
    return list(found.values()), unmatched


def _means(name: str, d: PartitionDir, topic: str | None) -> bool:
    stem = name.rstrip("/") or name
    if stem.startswith("/"):
        return os.path.normpath(stem) in (f"{d.log_dir}/{d.name}", d.log_dir)
    stem = last_part(name)
    if stem in (d.name, topic):
        return True
    parsed = classify(stem)
    return parsed.uuid is None and parsed.topic is not None and (parsed.topic, parsed.partition) == (topic, d.partition)


def _head(call: Call, session: Session | None, parsed: Sequence[NameDoc]) -> ExplainDoc:
    cluster = session.log_dirs.cluster if session is not None else None
    now_ms = (session.clock if session is not None else SystemClock()).now_ms()
    return {
        "schema": "logagent.explain/2",
        "at": rfc3339(now_ms),
        "host": call.host,
        "cluster_id": cluster.cluster_id if cluster is not None else None,
        "node_id": cluster.node_id if cluster is not None else None,
        "settings_as_of": rfc3339_or_none(session.assignments.layers.as_of_ms) if session is not None else None,
        "as_of": {},
        "names": list(parsed),
        "log_dirs": [],
        "dirs": [],
        "file_systems": [],
        "not_considered": [],
    }


def _document(
    call: Call,
    session: Session,
    explainer: Explainer,
    parsed: Sequence[NameDoc],
    dirs: Sequence[Explained],
    systems: Sequence[FileSystem],
    topics: Collection[str],
) -> ExplainDoc:
    proofs = (e.ruling.proof for e in dirs if e.ruling is not None)
    return {
        **_head(call, session, parsed),
        "as_of": {witness: rfc3339(ms) for witness, ms in since_when(proofs).items()},
        "log_dirs": _log_dirs(session, explainer),
        "dirs": [_dir(e, _role(session, e.dir)) for e in dirs],
        "file_systems": [_file_system(session, fs) for fs in systems],
        "not_considered": [
            {"setting": _setting(found.setting), "topics": list(found.topics)}
            for found in (session.assignments.layers.not_considered(topics) if topics else ())
        ],
    }


def _log_dirs(session: Session, explainer: Explainer) -> list[ExplainedLogDirDoc]:
    cordoned = session.assignments.layers.cordoned
    return [
        {
            "path": path,
            "health": where.health,
            "waits_for": explainer.waits_for(where),
            "cordoned": path in cordoned or "*" in cordoned,
        }
        for path, where in explainer.facts.log_dirs.items()
        if not where.quarantine
    ]


def _role(session: Session, d: PartitionDir) -> Role | None:
    image, node_id = session.assignments.shown, session.log_dirs.cluster.node_id
    if image is None or node_id is None or d.kind is not Kind.CURRENT or d.topic is None or d.partition is None:
        return None
    topic = image.by_id.get(d.topic_id) if d.topic_id is not None else image.by_name.get(d.topic)
    partition = topic.partitions.get(d.partition) if topic is not None else None
    if partition is None or node_id not in partition.replicas:
        return None
    return "leader" if partition.leader == node_id else "follower"


def _dir(explained: Explained, role: Role | None) -> ExplainedDirDoc:
    d, ruling = explained.dir, explained.ruling
    says = of_ruling(ruling.proof) if ruling is not None else None
    return {
        "log_dir": d.log_dir,
        "name": d.name,
        "kind": d.kind,
        "topic": d.topic,
        "partition": d.partition,
        "topic_id": d.topic_id,
        "role": role,
        "allocated": sum(g.allocated for g in explained.groups),
        "verdict": ruling.verdict if ruling is not None else None,
        "reason": ruling.reason if ruling is not None else None,  # type: ignore[typeddict-item]
        "claim": says.claim if says is not None else None,
        "witness": says.witness if says is not None else None,
        "groups": [_group(g) for g in explained.groups],
    }


def _group(group: Group) -> GroupDoc:
    return {
        "reason": group.reason,
        "bytes": group.bytes,
        "allocated": group.allocated,
        "segments": group.segments,
        "first_offset": group.base,
        "at": rfc3339_or_none(group.at_ms),
        "last_at": rfc3339_or_none(group.last_at_ms),
        "setting": _setting(group.setting) if group.setting is not None else None,
        "first": group.first,
    }


def _setting(setting: Setting) -> SettingDoc:
    return {"key": setting.key, "value": setting.text, "source": setting.source}


def _file_system(session: Session, fs: FileSystem) -> FileSystemDoc:
    document: FileSystemDoc = {
        "log_dirs": fs.log_dirs,
        "size": fs.size,
        "used": fs.used,
        "free": fs.free,
        "reasons": [_sum(s) for s in fs.sums],
    }
    if fs.outside is not None:
        document["outside"] = outside_document(session, fs.outside)
    return document


def _sum(s: Sum) -> ReasonSumDoc:
    return {
        "reason": s.reason,
        "bytes": s.bytes,
        "allocated": s.allocated,
        "segments": s.segments,
        "directories": s.dirs,
        "at": rfc3339_or_none(s.at_ms),
        "last_at": rfc3339_or_none(s.last_at_ms),
        "setting": _setting(s.setting) if s.setting is not None else None,
        "first": s.first,
        "largest": f"{s.largest.log_dir}/{s.largest.name}" if s.largest is not None else None,
    }


def _show_file_systems(call: Call, session: Session, systems: Iterable[FileSystem], now_ms: int) -> None:
    columns = [("why", "text"), ("allocated", "right"), ("dirs", "right?"), ("goes", "text"), ("largest", "path?")]
    for fs in systems:
        share = f", {100 * fs.used // fs.size}%" if fs.size else ""
        title = f"{' '.join(fs.log_dirs)}: {human_bytes(fs.used)} used of {human_bytes(fs.size)}{share}"
        rows = [
            [
                _why(s.reason, s.setting),
                human_bytes(s.allocated),
                str(s.dirs) if s.dirs else "",
                _goes(s.at_ms, s.last_at_ms, s.first, now_ms),
                s.largest.name if s.largest is not None else "",
            ]
            for s in fs.sums
        ]
        table(title, columns, rows, color=call.color)
        if fs.outside is not None:
            show_outside(call, session, fs.outside)


def _show_dirs(call: Call, dirs: Iterable[Explained], now_ms: int) -> None:
    columns = [("why", "text"), ("allocated", "right"), ("segments", "right?"), ("goes", "text")]
    for explained in dirs:
        d, ruling = explained.dir, explained.ruling
        rows = [
            [
                _why(g.reason, g.setting),
                human_bytes(g.allocated),
                f"{g.segments} from {g.base}" if g.segments else "",
                _goes(g.at_ms, g.last_at_ms, g.first, now_ms),
            ]
            for g in explained.groups
        ]
        verdict = [ruling.verdict.value, *filter(None, (ruling.reason, ruling.detail))] if ruling is not None else []
        title = f"{d.log_dir}/{d.name} ({', '.join(verdict) or d.kind.value})"
        table(title, columns, rows, color=call.color)


def _why(reason: RetentionReason, setting: Setting | None) -> str:
    return IN_WORDS[reason] if setting is None else f"{IN_WORDS[reason]}: {setting}"


def _goes(at_ms: int | None, last_at_ms: int | None, first: str | None, now_ms: int) -> str:
    """The date, and what must happen before."""
    once = f"once {first}" if first is not None else ""
    if at_ms is None:
        return once
    date = "at the next check" if at_ms <= now_ms else human_time(at_ms)
    if last_at_ms is not None and last_at_ms > max(at_ms, now_ms):
        date += f" to {human_time(last_at_ms)}"
    return f"{date}, {once}" if once else date


_WHOSE: Final = {
    Whose.METADATA_LOG_DIR: "metadata.log.dir of this node",
    Whose.THIS_NODE: "log dir of this node, not in its log.dirs",
    Whose.OTHER_NODE: "log dir of node {node} of this cluster",
    Whose.OTHER_CLUSTER: "log dir of node {node} of cluster {cluster}",
    Whose.UNKNOWN: "log dir without meta.properties",
}
_KINDS: Final = {
    PlaceKind.DIRECTORY: "{files} files",
    PlaceKind.REMAINDER: "{files} files (the rest of it)",
    PlaceKind.FILE: "file",
}


def outside_document(session: Session, outside: Outside) -> OutsideDoc:
    return {
        "root": outside.root,
        "log_dirs": [
            {
                "path": d.path,
                "whose": _whose(session, d),
                "cluster_id": d.cluster_id,
                "node_id": d.node_id,
                "partitions": d.partitions,
                "allocated": d.allocated,
                "in_use": d.in_use,
            }
            for d in outside.log_dirs
        ],
        "places": [
            {"path": p.path, "kind": p.kind, "allocated": p.allocated, "files": p.files} for p in outside.places
        ],
        "rest": outside.rest,
        "rest_files": outside.rest_files,
        "unread_directories": outside.unread,
        "unfinished": outside.unfinished,
    }


def show_outside(call: Call, session: Session, outside: Outside) -> None:
    """Log dirs and other places in one table, largest first; and what is missing from it."""
    lines = [(d.allocated, d.path, _of_log_dir(session, d)) for d in outside.log_dirs]
    lines += [(p.allocated, p.path, _KINDS[p.kind].format(files=f"{p.files:,}")) for p in outside.places]
    lines.sort(key=lambda line: -line[0])
    if outside.rest:
        lines.append((outside.rest, "", f"everything else, {outside.rest_files:,} files"))
    columns = [("allocated", "right"), ("what", "text"), ("path", "path")]
    rows = [[human_bytes(allocated), what, path] for allocated, path, what in lines]
    if rows:
        table(f"Outside the log dirs, below {outside.root}", columns, rows, color=call.color)
    if outside.unfinished is not None:
        where = f" (below {outside.root})" if outside.root else ""
        call.say(f"not everything outside the log dirs was counted{where}: {outside.unfinished}")
    if outside.unread:
        call.say(f"{outside.unread} directories below {outside.root} could not be read, and are not counted")


def _of_log_dir(session: Session, d: OtherLogDir) -> str:
    words = _WHOSE[_whose(session, d)].format(node="?" if d.node_id is None else d.node_id, cluster=d.cluster_id or "?")
    return f"{words}, {d.partitions} partitions{', in use' if d.in_use else ''}"


def _whose(session: Session, d: OtherLogDir) -> Whose:
    cluster, target = session.log_dirs.cluster, session.target
    metadata_log_dir = target.server.metadata_log_dir if target.config is not None else None
    return whose(d, cluster.cluster_id, cluster.node_id, metadata_log_dir)
