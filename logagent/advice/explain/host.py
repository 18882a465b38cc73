"""`logagent explain` of a host: every byte of its log dirs has a reason and, where there is one, a date. Here what is
asked and printed; `inspection` reads, and what is decided about a log is in `kafka/retention/reasons.py`.

`--what-if` asks the same rules twice: with the settings of now, and with topics having others of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import click

from logagent.advice.explain.inspection import BROKER_RUNS, CHECKPOINTS, Explainer
from logagent.advice.explain.rules import (
    BY_LOGAGENT,
    SET_ASIDE,
    Explained,
    FileSystem,
    OtherLogDirDoc,
    OutsideDoc,
    PlaceKind,
    Sum,
    Whose,
    merged,
)
from logagent.base.claims import of_ruling, since_when
from logagent.base.clock import SystemClock
from logagent.base.console.options import Call
from logagent.base.console.render import did_you_mean, dump, human_bytes, show_line, table, until_in_words, visible
from logagent.base.errors import ConfigError
from logagent.base.records import ConfigEntry, DirKey, Health, Kind, PartitionDir, Reason, SetBy, TopicPartition
from logagent.base.units import counted, human_time, rfc3339, rfc3339_or_none
from logagent.cleanup.commands.names import CUT, possible
from logagent.cleanup.plan.queue import full_topic
from logagent.cleanup.rescue.plan_rescue import to_set
from logagent.cleanup.session.of_command import (
    NETWORK_SECONDS,
    note_health,
    read_assignments,
    refuse_wrong_user,
    say_where_they_end,
    session_of,
    take_inventory,
)
from logagent.cleanup.session.session import Session
from logagent.kafka.admin.responses import HeldLog
from logagent.kafka.processes.target import resolve_target
from logagent.kafka.retention.reasons import (
    Group,
    RetentionReason,
    settings_of,
)
from logagent.kafka.retention.settings import (
    CLEANER_BACKOFF_MS,
    RETENTION_CHECK_MS,
    Layers,
    NotConsidered,
)
from logagent.verdict.evidence.brokers_to_ask import IN_FORCE_SECONDS
from logagent.verdict.facts import unread_processes, unread_words

if TYPE_CHECKING:
    from logagent.advice.explain.documents import (
        ExplainDoc,
        ExplainedDirDoc,
        ExplainedLogDirDoc,
        FileSystemDoc,
        GroupDoc,
        NameDoc,
        ReasonSumDoc,
        SettingDoc,
        WhatIfDoc,
    )

# They say what happens, not what must happen before.
_NO_CONDITIONS: Final = ("or ", "never ", SET_ASIDE)
Role = Literal["leader", "follower"]
# What the next checks delete.
_DUE: Final = frozenset({RetentionReason.DUE, RetentionReason.BELOW_LOG_START})
_NAMED_TOPICS: Final = 3


def explain_host(
    call: Call,
    names: Sequence[str],
    parsed: Sequence[NameDoc],
    show_names: Callable[[Iterable[NameDoc]], None],
    *,
    outside: bool,
    offline: bool,
    own: Mapping[str, str],
) -> None:
    """Print it for `names`, or for all file systems, with what is `outside` the log dirs on them. Where there is no
    broker, only how names are `parsed`, each. `own`: instead, what would go if topics (without names all) had these
    settings."""
    refuse_wrong_user(call)
    try:
        resolve_target(call.settings(), call.log_dirs)
    except ConfigError as e:
        if (
            not names
            or own
            or call.kafka_config is not None
            or call.settings().kafka.config is not None
            or call.log_dirs
        ):
            raise
        call.say(f"only the names are explained: {e}")
        if call.json:
            dump(_head(call, None, parsed))
        else:
            show_names(parsed)
        return
    with session_of(call) as session:
        session.ask_leaders = not offline
        if offline:
            sources = tuple(s for s in session.settings.assignments.sources if s != "admin")
            session.settings = replace(
                session.settings, assignments=replace(session.settings.assignments, sources=sources)
            )
        # What a broker that hangs costs is bounded, whatever is asked: 2 s are left for what runs.
        session.patience.left = NETWORK_SECONDS
        with session.patience.asking(session.clock.monotonic, most := NETWORK_SECONDS - IN_FORCE_SECONDS):
            read_assignments(session, call, quiet=True, seconds=most)
        take_inventory(session, call)
        facts = session.facts(ask_broker=not offline)
        note_health(call, facts)
        _say_what_is_not_known(call, session)
        wanted, unmatched = _named(session, names, parsed)
        held_up = partial(_with_transactions, wanted if names else session.dirs)
        layers, not_in_force, says = session.layers_in_force(facts, held_up, ask=not offline)
        for line in filter(None, (not_in_force, *says.unknown)):
            call.say(line, folded=True)
        explainer = Explainer.of(session, facts, layers, says)
        places = [path for path, f in facts.log_dirs.items() if f.health is not Health.OFFLINE and not f.quarantine]
        known = [d.name for d in session.dirs]
        known += [text for d in session.dirs if d.topic is not None for text in (d.topic, f"{d.topic}-{d.partition}")]
        for name, _ in unmatched:
            near = did_you_mean(name, known)
            call.say(f"{name}: there is no such directory, partition or topic in {', '.join(places)}{near}")
        dirs = explainer.dirs(wanted if names or not own else session.dirs)
        systems = explainer.file_systems(outside=outside) if not names and not own else []
        _say_what_was_not_read(call, explainer, systems)
        explained = {d.topic for d in (wanted if names else session.dirs) if d.kind is Kind.CURRENT and d.topic}
        answers = _what_if(explainer, dirs, own) if own else []
        if call.json:
            document = _document(call, session, explainer, parsed, dirs if names else [], systems, explained)
            document["settings_unknown"], document["broker_unknown"] = not_in_force, list(says.unknown)
            if own:
                document["what_if"] = [answer for answer, *_ in answers]
            dump(document)
            return
        if unmatched:
            show_names(as_parsed for _, as_parsed in unmatched)
        if own:
            _show_what_if(call, answers, own, facts.now_ms)
        else:
            _show_dirs(call, dirs, facts.now_ms)
        _show_file_systems(call, session, systems, facts.now_ms)
        _say_what_belongs_to_it(call, explainer, dirs, systems, explained)
        whole = {path for fs in systems for path in fs.log_dirs}
        shown = whole | {e.dir.log_dir for e in dirs}
        by_broker = whole | {e.dir.log_dir for e in dirs if any(g.why.code not in BY_LOGAGENT for g in e.groups)}
        for log_dir in _log_dirs(session, explainer):
            waits = log_dir["waits_for"]
            if waits is not None and log_dir["path"] in (by_broker if waits == BROKER_RUNS else shown):
                call.say(f"{log_dir['path']}: nothing is deleted there until {log_dir['waits_for']}")
            if log_dir["cordoned"] and log_dir["path"] in shown:
                call.say(f"{log_dir['path']}: it is cordoned: it gets no new partitions, and retention goes on")


def _with_transactions(dirs: Iterable[PartitionDir], layers: Layers) -> list[TopicPartition]:
    """The partitions here in which an open transaction holds something up."""
    by_topic: dict[str, set[int]] = {}
    for d in dirs:
        if d.kind is Kind.CURRENT and d.topic is not None and d.partition is not None:
            by_topic.setdefault(d.topic, set()).add(d.partition)
    held_up = (topic for topic in sorted(by_topic) if settings_of(layers, topic).reads_transactions)
    return [TopicPartition(topic, partition) for topic in held_up for partition in sorted(by_topic[topic])]


def _say_what_is_not_known(call: Call, session: Session) -> None:
    layers = session.assignments.layers
    if not layers.complete:
        call.say(
            "the settings of topics are not known here (no metadata log that is ours was read): the broker's defaults "
            "are taken for them, and a topic may have others"
        )
    if session.journal_problem is not None:
        call.say(f"dates and full topic names may be others: {session.journal_problem.fact}")
    say_where_they_end(session, call)
    if session.assignments.ends_at_stop is None and layers.as_of_ms is not None:
        call.detail(
            f"the settings of topics are those of {human_time(layers.as_of_ms)}, when the metadata log here ends"
        )


def _say_what_was_not_read(call: Call, explainer: Explainer, systems: Sequence[FileSystem]) -> None:
    for path, names in explainer.unread.items():
        for name in names:
            call.say(f"{path}/{name} is damaged: reasons and dates there ignore {CHECKPOINTS[name]}")
    unread = unread_words(unread_processes(explainer.facts.log_dirs))
    if unread and systems:
        call.say(f"{unread}: removed files that they keep open count as outside the log dirs", folded=True)


def _say_what_belongs_to_it(
    call: Call,
    explainer: Explainer,
    dirs: Iterable[Explained],
    systems: Iterable[FileSystem],
    topics: Collection[str],
) -> None:
    """Settings that may keep or take segments, too (reasons and dates hold as far as they change nothing of it), what
    "at the next check" means, and which topics are not tiered although they ask for it."""
    by_key: dict[tuple[str, str], list[NotConsidered]] = {}
    for one in explainer.layers.not_considered(topics) if topics else ():
        by_key.setdefault((one.setting.key, one.setting.source), []).append(one)
    if by_key:
        words = "; ".join(map(_not_considered_in_words, by_key.values()))
        call.say(f"not considered, and may change reasons and dates: {words}", folded=True)
    codes = {g.why.code for e in dirs for g in e.groups} | {s.why.code for fs in systems for s in fs.sums}
    if codes & {RetentionReason.DUE, RetentionReason.BELOW_LOG_START}:
        check, round_ = (explainer.layers.default(name) for name in (RETENTION_CHECK_MS, CLEANER_BACKOFF_MS))
        call.say(f"the broker checks retention every {check}, and compacts every {round_}", folded=True)
    untiered: dict[str, list[str]] = {}
    for topic in sorted(topics):
        if (why := explainer.settings(topic).not_tiered) is not None:
            untiered.setdefault(why, []).append(topic)
    for why, named in untiered.items():
        more = f" and {len(named) - _NAMED_TOPICS} more" if len(named) > _NAMED_TOPICS else ""
        call.say(f"{', '.join(named[:_NAMED_TOPICS])}{more}: not tiered, in spite of remote.storage.enable: {why}")


def _not_considered_in_words(same: Sequence[NotConsidered]) -> str:
    """One setting, and the topics that have it with any of its values."""
    setting, topics = same[0].setting, [topic for one in same for topic in one.topics]
    if not topics:
        return str(setting)
    of = ", ".join(topics[:_NAMED_TOPICS])
    more = f" and {len(topics) - _NAMED_TOPICS} more" if len(topics) > _NAMED_TOPICS else ""
    value = f"={setting.text}" if len(same) == 1 else ""
    return f"{setting.key}{value} ({'topic' if len(topics) == 1 else 'topics'} {of}{more})"


def _named(
    session: Session, names: Sequence[str], parsed: Sequence[NameDoc]
) -> tuple[list[PartitionDir], list[tuple[str, NameDoc]]]:
    """The directories that `names` mean, each once, and the names that mean none. As `restore` and `delete` take them:
    also as a table prints them, and a beginning that only one has."""
    marks = session.recalled.marks
    by_key: dict[DirKey, PartitionDir] = {}
    unmatched: list[tuple[str, NameDoc]] = []
    for name, as_parsed in zip(names, parsed, strict=True):
        matching = [d for d in session.dirs if _means(name, as_parsed, d, full_topic(d, marks.get(d.key)))]
        if not matching and (shortened := possible(name, session.dirs)) and (CUT in name or len(shortened) == 1):
            matching = shortened
        by_key |= {d.key: d for d in matching}
        unmatched += [] if matching else [(name, as_parsed)]
    return list(by_key.values()), unmatched


def _means(name: str, parsed: NameDoc, d: PartitionDir, topic: str | None) -> bool:
    stem = name.rstrip("/") or name
    if stem.startswith("/"):
        return os.path.normpath(stem) in (f"{d.log_dir}/{d.name}", d.log_dir)
    if parsed["name"] in (d.name, topic):
        return True
    same = (parsed["topic"], parsed["partition"]) == (topic, d.partition)
    return same and parsed["uuid"] is None and parsed["topic"] is not None


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
        "checks": [_setting(explainer.layers.default(name)) for name in (RETENTION_CHECK_MS, CLEANER_BACKOFF_MS)],
        "dirs": [_dir(e, _role(session, e.dir), explainer.held_log(e.dir)) for e in dirs],
        "file_systems": [_file_system(fs) for fs in systems],
        "not_considered": [
            {"setting": _setting(one.setting), "topics": list(one.topics)}
            for one in (explainer.layers.not_considered(topics) if topics else ())
        ],
    }


def _log_dirs(session: Session, explainer: Explainer) -> list[ExplainedLogDirDoc]:
    cordoned = explainer.layers.cordoned
    return [
        {
            "path": path,
            "health": where.health,
            "waits_for": explainer.waits_for(where),
            "cordoned": path in cordoned or "*" in cordoned,
            "unread": explainer.unread.get(path, []),
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


def _dir(explained: Explained, role: Role | None, held: HeldLog | None) -> ExplainedDirDoc:
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
        "broker": None if held is None else {"bytes": held.size, "offset_lag": held.lag},
    }


def _group(group: Group) -> GroupDoc:
    return {
        "reason": RetentionReason(group.why.code),
        "bytes": group.bytes,
        "allocated": group.allocated,
        "segments": group.segments,
        "first_offset": group.base,
        "at": rfc3339_or_none(group.why.until_ms),
        "last_at": rfc3339_or_none(group.last_at_ms),
        "setting": _setting(group.why.setting) if group.why.setting is not None else None,
        "first": group.why.until,
    }


def _setting(setting: ConfigEntry) -> SettingDoc:
    return {"key": setting.key, "value": setting.text, "source": setting.source}


def _file_system(fs: FileSystem) -> FileSystemDoc:
    document: FileSystemDoc = {
        "log_dirs": fs.log_dirs,
        "size": fs.size,
        "used": fs.used,
        "free": fs.free,
        "reasons": [_sum(s) for s in fs.sums],
    }
    if fs.outside is not None:
        document["outside"] = fs.outside
    return document


def _sum(s: Sum) -> ReasonSumDoc:
    return {
        "reason": RetentionReason(s.why.code),
        "bytes": s.bytes,
        "allocated": s.allocated,
        "segments": s.segments,
        "directories": s.dirs,
        "at": rfc3339_or_none(s.why.until_ms),
        "last_at": rfc3339_or_none(s.last_at_ms),
        "setting": _setting(s.why.setting) if s.why.setting is not None else None,
        "first": s.why.until,
        "largest": f"{s.largest.log_dir}/{s.largest.name}" if s.largest is not None else None,
    }


def _show_file_systems(call: Call, session: Session, systems: Iterable[FileSystem], now_ms: int) -> None:
    columns = [("why", "text"), ("allocated", "right"), ("dirs", "right?"), ("goes", "text"), ("largest", "path?")]
    for fs in systems:
        share = f", {100 * fs.used // fs.size}%" if fs.size else ""
        title = f"{' '.join(fs.log_dirs)}: {human_bytes(fs.used)} used of {human_bytes(fs.size)}{share}"
        rows = [
            [
                why_in_words(s.why),
                human_bytes(s.allocated),
                str(s.dirs) if s.dirs else "",
                goes_in_words(s, now_ms),
                s.largest.name if s.largest is not None else "",
            ]
            for s in fs.sums
        ]
        table(title, columns, rows, color=call.color)
        if fs.outside is not None:
            _show_outside(call, fs.outside)


def _show_dirs(call: Call, dirs: Iterable[Explained], now_ms: int) -> None:
    columns = [("why", "text"), ("allocated", "right"), ("segments", "right?"), ("goes", "text")]
    for explained in dirs:
        d, ruling = explained.dir, explained.ruling
        rows = [
            [
                why_in_words(g.why),
                human_bytes(g.allocated),
                f"{g.segments} from {g.base}" if g.segments else "",
                goes_in_words(g, now_ms),
            ]
            for g in explained.groups
        ]
        verdict = [ruling.verdict.value, *filter(None, (ruling.reason, ruling.detail))] if ruling is not None else []
        title = f"{d.log_dir}/{d.name} ({', '.join(verdict) or d.kind.value})"
        table(title, columns, rows, color=call.color)


def why_in_words(why: Reason) -> str:
    return why.fact if why.setting is None else f"{why.fact}: {why.setting}"


def goes_in_words(stays: Group | Sum, now_ms: int) -> str:
    """The date, and what must happen before."""
    why, last_at_ms, differs = stays.why, stays.last_at_ms, isinstance(stays, Sum) and stays.differs
    at_ms, until = why.until_ms, why.until or ""
    if at_ms is None:
        return "differs: logagent explain NAME" if differs else _once(why, "")
    due = "now" if why.code in BY_LOGAGENT else "at the next check"
    date = due if at_ms <= now_ms else human_time(at_ms)
    if last_at_ms is not None and last_at_ms > max(at_ms, now_ms) and (last := human_time(last_at_ms)) != date:
        date += f" to {last}"
    if differs:
        date += " or later"
    if why.code == RetentionReason.ORPHAN:
        when = date if date == due == "now" else f"after {date}"
        return (until or f"{SET_ASIDE}, removed after that").replace(SET_ASIDE, f"set aside by cleanup {when}", 1)
    return _once(why, date)


def _once(why: Reason, date: str) -> str:
    return until_in_words(why, date, once="" if (why.until or "").startswith(_NO_CONDITIONS) else "once ")


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


def _show_outside(call: Call, outside: OutsideDoc) -> None:
    """Log dirs and other places in one table, largest first; and what is missing from it."""
    lines = [(d.allocated, d.path, _of_log_dir(d)) for d in outside.log_dirs]
    lines += [(p.allocated, p.path, _KINDS[p.kind].format(files=f"{p.files:,}")) for p in outside.places]
    lines.sort(key=lambda line: -line[0])
    if outside.rest:
        lines.append((outside.rest, "", f"everything else, {outside.rest_files:,} files"))
    columns = [("allocated", "right"), ("what", "text"), ("path", "long")]
    rows = [[human_bytes(allocated), what, path] for allocated, path, what in lines]
    if rows:
        table(f"Outside the log dirs, below {outside.root}", columns, rows, color=call.color)
    if outside.unfinished is not None:
        where = f" (below {outside.root})" if outside.root else ""
        call.say(f"outside the log dirs{where}: totals are partial ({outside.unfinished})")
    if outside.unread_directories:
        folders = counted(outside.unread_directories, "folder")
        call.say(f"not counted, because they could not be read, below {outside.root}: {folders}")


def _of_log_dir(d: OtherLogDirDoc) -> str:
    words = _WHOSE[d.whose].format(node="?" if d.node_id is None else d.node_id, cluster=d.cluster_id or "?")
    return f"{words}, {counted(d.partitions, 'partition')}{', in use' if d.in_use else ''}"


# The document, and why the rest stays, and until when, otherwise than now or as now.
_WhatIf = tuple["WhatIfDoc", Sequence[Sum], Sequence[Sum]]


def _what_if(explainer: Explainer, wanted: Sequence[Explained], own: Mapping[str, str]) -> list[_WhatIf]:
    """For each topic and log dir of `wanted`, which is what `explainer` said of it, what the rules say with `own`; what
    frees most first."""
    by_place: dict[tuple[str, str], list[Explained]] = {}
    for e in wanted:
        if e.dir.kind is Kind.CURRENT and e.dir.topic is not None:
            by_place.setdefault((e.dir.topic, e.dir.log_dir), []).append(e)
    then = replace(explainer, layers=explainer.layers.with_own({t for t, _ in by_place}, own))
    after = {e.dir.key: e.groups for e in then.dirs(e.dir for of_place in by_place.values() for e in of_place)}
    answers: list[_WhatIf] = []
    for (topic, log_dir), dirs in by_place.items():
        changed: list[Sum] = []
        unchanged: list[Sum] = []
        goes = anyway = after_all = 0
        for e in dirs:
            before, groups = ([g for g in of if g.segments] for of in (e.groups, after.get(e.dir.key, ())))
            due, due_then = (sum(g.allocated for g in of if g.why.code in _DUE) for of in (before, groups))
            # Segments go from the oldest on: what goes in one case is the beginning of what goes in the other.
            goes, anyway = goes + max(due_then - due, 0), anyway + min(due, due_then)
            after_all += max(due - due_then, 0)
            as_now = {_without_value(g) for g in before}
            for g in groups:
                if g.why.code not in _DUE:
                    one = Sum(g.why)
                    one.add(g, e.dir.key)
                    (unchanged if _without_value(g) in as_now else changed).append(one)
        changed, unchanged = merged(changed), merged(unchanged)
        document: WhatIfDoc = {
            "topic": topic,
            "log_dir": log_dir,
            "directories": len(dirs),
            "settings": [{"key": key, "value": text, "source": SetBy.TOPIC} for key, text in own.items()],
            "goes": goes,
            "goes_anyway": anyway,
            "stays_after_all": after_all,
            "changed": [_sum(s) for s in changed],
            "unchanged": [_sum(s) for s in unchanged],
            "command": to_set(explainer.session, topic, own),
        }
        answers.append((document, changed, unchanged))
    return sorted(answers, key=lambda w: (-w[0]["goes"], w[0]["topic"], w[0]["log_dir"]))


def _without_value(group: Group) -> tuple[object, ...]:
    why = group.why
    return why.code, why.setting and why.setting.key.removeprefix("log."), why.until_ms, why.until


def _show_what_if(call: Call, answers: Sequence[_WhatIf], own: Mapping[str, str], now_ms: int) -> None:
    columns = [("topic", "dir"), ("would", "left"), ("allocated", "right"), ("when, or why not", "text")]
    rows: list[list[str]] = []
    for document, changed, unchanged in answers:
        topic = f"{document['log_dir']}/{document['topic']}"
        due = [("go", document["goes"]), ("go anyway", document["goes_anyway"])]
        rows += [[topic, would, human_bytes(size), "at the next check"] for would, size in due if size]
        if document["stays_after_all"]:
            rows.append([topic, "not go", human_bytes(document["stays_after_all"]), "it would now"])
        for would, sums in (("stay, but", changed), ("stay as now", unchanged)):
            for s in sums:
                goes = goes_in_words(s, now_ms)
                why = f"{why_in_words(s.why)}{f': {goes}' if goes else ''}"
                rows.append([topic, would, human_bytes(s.allocated), why])
    if not rows:
        return
    what = ", ".join(f"{key}={text}" for key, text in own.items())
    table(f"If topics had {what} (nothing is changed)", columns, rows, color=call.color)
    does = [d["command"] for d, changed, _ in answers if d["goes"] or d["stays_after_all"] or changed]
    if does:
        show_line("To set it, for all replicas:")
        for line in dict.fromkeys(does):
            click.echo(visible(line))
