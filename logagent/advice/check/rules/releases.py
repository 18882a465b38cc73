"""What one release of Kafka takes and another does not: of its metadata log, of settings, of long names.

What is finalised. `release_table.py` has what each release supports, by its own classes. What a start makes of a level
outside was seen on real nodes (tests/broker/releases): a controller refuses each record of such a level that it reads,
also one that was taken back later; a broker is refused by the controllers for what is finalised, and ends. Before 4.0
both also end over a `metadata.version` in `bootstrap.checkpoint` that they have no name for, and that file never
changes.

Settings with a number. `release_table.py` has the range of each, from Kafka's own `ConfigDef`. Seen on real nodes: with
a number outside of it in `server.properties` a node of any role ends; with one of a topic a broker does ("Error
starting LogManager"), whether or not the topic is on it, and a controller does not. A dynamic one of brokers is passed
over.

Names that brokers before 2.2.2 cannot mark for deletion: KAFKA-4893. They rename `TOPIC-0` to `TOPIC-0.UUID-delete`
without cutting it. If that is too long for the file system, the log dir goes offline, and with its only log dir the
broker exits. From then on it dies at every start: the controller has the directory made anew, also if somebody renamed
or removed it meanwhile, and then deletes the topic again. (2.2.1 does not cut the name yet, 2.2.2 and 2.3.0 do: seen in
their jars. Seen with 2.1.0: the end, and both cures.)

The files of a metadata log: where it is, and those beside it that a start reads. What each release makes of them was
seen on real nodes (tests/damages/metadata.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from logagent.advice.check.rules.start_facts import LoadFault, LoadFile, Mode, StartFacts, StartLogDirFacts
from logagent.advice.finding import ALL, Finding, Releases, Severity, fatal, info, warning
from logagent.base.dir_names import DELETE_SUFFIX, MAX_NAME, METADATA_DIR
from logagent.base.kafka_version import Version, version_text
from logagent.base.records import DirKey, HolderState, Kind
from logagent.base.units import counted
from logagent.kafka.image import (
    BOOTSTRAP,
    KRAFT_VERSION,
    METADATA_VERSION,
    FeatureLevels,
    MetadataFault,
    MetadataFile,
    StartLevels,
    level_name,
)
from logagent.kafka.release_table import METADATA_VERSIONS, RELEASES, Limits, Release
from logagent.kafka.retention.settings import may_be_true, parsed_ms

UNSTABLE = "unstable.feature.versions.enable"
_OLDEST, _NEWEST = min(RELEASES), max(RELEASES)
_KNOWN = f"Kafka {version_text(_OLDEST)} to {version_text(_NEWEST)}"
# Of a feature that a release does not know it supports "versions 0" (seen: 3.9.1, 4.1.0).
_NOT_KNOWN = (0, 0)
_FEATURES = frozenset(name for row in RELEASES.values() for name in row.features)
# From this release on `bootstrap.checkpoint` is of no account once there is a log (seen: 4.0.2, 4.1.0).
_BOOTSTRAP_PASSES: Version = (4, 0, 0)
# From this release on the format writes the first records into a snapshot, which earlier ones ignore (seen: 4.3.1).
_FORMATS_A_SNAPSHOT: Version = (4, 4, 0)
_TOOL = "kafka-features.sh --bootstrap-server HOST:PORT"
_DESCRIBE = f"on a running broker of the cluster, `{_TOOL} describe` shows them"
_INTERVAL = "metadata.log.max.snapshot.interval.ms, 1 h by default"


@dataclass(frozen=True, slots=True)
class _Refused:
    """A level that a start reads and `releases` do not support: `supported` is what the nearest of them does.
    finalised: it is the one that counts now."""

    feature: str
    level: int
    releases: Releases
    supported: tuple[int, int]
    finalised: bool = True


def check_releases(facts: StartFacts, version: Version | None) -> Iterator[Finding]:
    """Findings for every release that is known, worded for `version` if that is one."""
    if facts.server.mode is Mode.ZOOKEEPER:
        return
    unstable = may_be_true((facts.settings.file or {}).get(UNSTABLE))
    for s in facts.log_dirs:
        if s.levels is not None and s.answers:
            found = _of_log_dir(s, s.levels, facts, version)
            yield from (_if_unstable_are_not(f) for f in found) if unstable else found


def _if_unstable_are_not(finding: Finding) -> Finding:
    """What a release supports beyond its stable levels is not in the table (seen: 4.4.0 starts with 34)."""
    if finding.severity is not Severity.FATAL:
        return finding
    why = replace(finding.why, fact=f"{finding.why.fact}, unless {UNSTABLE}, which is set, lets it")
    return replace(finding, severity=Severity.WARNING, why=why)


def _of_log_dir(
    s: StartLogDirFacts, levels: StartLevels, facts: StartFacts, version: Version | None
) -> Iterator[Finding]:
    log = f"{s.path}/{METADATA_DIR}"
    of = f"Kafka {version_text(version)}" if version is not None else "any release"
    yield from _log_not_compared(log, levels, facts, of)
    if version is not None and _row(version) is None and not levels.empty:
        yield _release_not_known(log, levels, of)
    for name, found in sorted(levels.log.items()):
        yield from _unknown_feature(log, name, found[-1], of)
    if levels.formatted:
        yield _format_ignored(log, levels.formatted)
    refused = list(_refused(levels.log))
    stuck = [r for r in refused if r.finalised and _for_good(r, version)]
    yield from (_in_log(log, r, stuck, facts, version) for r in refused)
    # While there is no record, a controller writes all that the format asked for.
    written = levels.empty and (facts.server.runs_controller or facts.server.mode is None)
    bootstrap = _refused(levels.bootstrap) if written else _not_named(levels.bootstrap)
    yield from (_in_bootstrap(f"{s.path}/{BOOTSTRAP}", r, written, version) for r in bootstrap)


def _log_not_compared(log: str, levels: StartLevels, facts: StartFacts, of: str) -> Iterator[Finding]:
    if levels.unread is not None:
        says = f"not all features that a start reads could be read, so not all are compared with {of}: {levels.unread}"
        yield warning("features-not-compared", log, says, _DESCRIBE)
    elif levels.empty and not facts.server.runs_controller and not facts.about_to_start:
        says = f"this broker has no metadata yet: what its cluster has finalised is not compared with {of}"
        yield info("features-not-compared", log, says, "nothing to do: it is compared once the broker has run")
    elif not levels.empty and METADATA_VERSION not in levels.log:
        says = f"no metadata.version is in the metadata log: it is not compared with {of}"
        yield warning("features-not-compared", log, says, _DESCRIBE)


def _format_ignored(log: str, formatted: FeatureLevels) -> Finding:
    asked = ", ".join(_named(name, found[-1]) for name, found in sorted(formatted.items()))
    return warning(
        "format-ignored",
        log,
        f"formatted by Kafka 4.4 or later, and never started: an older release starts and ignores what the format asked"
        f" for ({asked}; SCRAM users)",
        "nothing is in its metadata log yet: empty the log dirs and format them with the release that is to run",
        releases=Releases(before=_FORMATS_A_SNAPSHOT),
    )


def _release_not_known(log: str, levels: StartLevels, of: str) -> Finding:
    finalised = ", ".join(_named(name, found[-1]) for name, found in sorted(levels.log.items())) or "its features"
    says = f"{finalised}: not compared with {of}, since what a release supports is known here of {_KNOWN} only"
    return warning(
        "features-not-compared", log, says, f"read the upgrade notes of {of} first; a newer logagent may know it"
    )


def _unknown_feature(log: str, name: str, level: int, of: str) -> Iterator[Finding]:
    if name not in _FEATURES and level > 0:
        says = (
            f"{_named(name, level)} is finalised, and none of {_KNOWN} has this feature: it is not compared with {of}"
        )
        hint = "before another release starts, read the notes of the one that has it"
        yield warning("features-not-compared", log, says, hint)


def _refused(levels: FeatureLevels) -> Iterator[_Refused]:
    """By feature: what is finalised, then what is not any more, as far as further releases refuse it."""
    for name, found in sorted(levels.items(), key=lambda item: (item[0] != METADATA_VERSION, item[0])):
        if name not in _FEATURES:
            continue
        refused = list(_refusing(name, found[-1], finalised=True))
        for level in sorted(found[:-1], reverse=True):
            more = _refusing(name, level, finalised=False)
            refused += [r for r in more if not any(_covers(other.releases, r.releases) for other in refused)]
        yield from refused


def _not_named(bootstrap: FeatureLevels) -> Iterator[_Refused]:
    """Releases before 4.0 end over a `metadata.version` that they have no name for, wherever it is written."""
    level = max(bootstrap.get(METADATA_VERSION, (0,)))
    refusing = [minor for minor, row in RELEASES.items() if minor < _BOOTSTRAP_PASSES[:2] and row.named < level]
    if refusing:
        able = min((minor for minor in RELEASES if minor > max(refusing)), default=_BOOTSTRAP_PASSES)
        supported = _range(RELEASES[max(refusing)], METADATA_VERSION)
        yield _Refused(METADATA_VERSION, level, Releases(before=(able[0], able[1], 0)), supported)


def _covers(one: Releases, other: Releases) -> bool:
    if one.before is not None and other.before is not None:
        return one.before >= other.before
    return one.since is not None and other.since is not None and one.since <= other.since


def _refusing(name: str, level: int, *, finalised: bool) -> Iterator[_Refused]:
    able = [minor for minor, row in RELEASES.items() if _supports(row, name, level)]
    older = [minor for minor in RELEASES if not able or minor < min(able)]
    newer = [minor for minor in RELEASES if able and minor > max(able)]
    if older:
        before = (*min(able), 0) if able else (_NEWEST[0], _NEWEST[1] + 1, 0)
        yield _Refused(name, level, Releases(before=before), _range(RELEASES[max(older)], name), finalised)
    if newer:
        yield _Refused(name, level, Releases(since=(*min(newer), 0)), _range(RELEASES[min(newer)], name), finalised)


def _supports(row: Release, name: str, level: int) -> bool:
    low, high = _range(row, name)
    return low <= level <= high


def _range(row: Release, name: str) -> tuple[int, int]:
    return row.features.get(name, _NOT_KNOWN)


def _row(version: Version) -> Release | None:
    return RELEASES.get((version[0], version[1]))


def _in_log(log: str, r: _Refused, stuck: list[_Refused], facts: StartFacts, version: Version | None) -> Finding:
    named, what = _named(r.feature, r.level), _what_it_supports(r, version)
    only_broker = not facts.server.runs_controller and facts.server.mode is not None
    if r.finalised:
        says = f"{named} is finalised, and {what}: the node does not start"
        if only_broker:
            says += " (the controllers refuse it, and it ends after initial.broker.registration.timeout.ms)"
        # What else would have to be lowered helps nobody if one of them cannot be.
        why = next((s for s in stuck if _covers(s.releases, r.releases)), None)
        hint = _remedy(r, version) if why is None else _stay(why)
        return fatal("feature-unsupported", log, says, hint, releases=r.releases)
    says = f"{named} is no longer finalised, but a start still reads its record, and {what}: the node"
    hint = f"start the release that ran last once more, wait for a metadata snapshot ({_INTERVAL}), and check again"
    if only_broker:
        return warning(
            "feature-unsupported", log, f"{says} starts all the same, as it is no controller", hint, releases=r.releases
        )
    return fatal("feature-unsupported", log, f"{says} does not start", hint, releases=r.releases)


def _in_bootstrap(path: str, r: _Refused, written: bool, version: Version | None) -> Finding:
    says = f"formatted with {_named(r.feature, r.level)}, and {_what_it_supports(r, version)}: the node does not start"
    hint = (
        "nothing is in its metadata log yet: empty the log dirs and format them with the release that is to run"
        if written
        else "with the node stopped, move the file out of the directory (keep it): it only counts while the metadata"
        " log is still empty"
    )
    return fatal("feature-unsupported", path, says, hint, releases=r.releases)


def _remedy(r: _Refused, version: Version | None) -> str:
    low, high = _supported(r, version)
    if r.level < low:
        return f"before the upgrade, on the release that runs now: {_TOOL} upgrade --metadata {level_name(low)}"
    change = f"--metadata {level_name(high)}" if r.feature == METADATA_VERSION else f"--feature {r.feature}={high}"
    return (
        f"on the release that runs now: {_TOOL} downgrade {change}; then wait for a metadata snapshot on each node"
        f" ({_INTERVAL}), and check again"
    )


def _for_good(r: _Refused, version: Version | None) -> bool:
    """Whether no command lowers it to what is supported. `FeatureControlManager.updateMetadataVersion`: not beneath a
    level that changed what is written, and no option helps (seen: 4.3.1 and 4.4.0, `--unsafe` too)."""
    _, high = _supported(r, version)
    if r.feature != METADATA_VERSION:
        return r.feature == KRAFT_VERSION
    passed = range(high + 1, r.level + 1)
    return r.level > high and any(n not in METADATA_VERSIONS or METADATA_VERSIONS[n].changed for n in passed)


def _stay(stuck: _Refused) -> str:
    if stuck.feature == KRAFT_VERSION:
        return "stay with a release that supports it: kraft.version cannot be lowered"
    return (
        f"stay with a release that supports {_named(stuck.feature, stuck.level)}: Kafka refuses to lower it so far,"
        " because what is written has changed since"
    )


def _what_it_supports(r: _Refused, version: Version | None) -> str:
    if version is not None and _row(version) is not None:
        who = f"Kafka {version_text(version)}"
    elif r.releases.before is not None:
        who = f"Kafka before {version_text(r.releases.before[:2])}"
    else:
        who = f"Kafka from {version_text((r.releases.since or _OLDEST)[:2])} on"
    low, high = _supported(r, version)
    if high == 0:
        return f"{who} does not know this feature"
    return f"{who} supports {_level(r.feature, low)} to {_level(r.feature, high)}"


def _supported(r: _Refused, version: Version | None) -> tuple[int, int]:
    row = _row(version) if version is not None else None
    return _range(row, r.feature) if row is not None else r.supported


def _named(feature: str, level: int) -> str:
    return f"{feature} {_level(feature, level)}"


def _level(feature: str, level: int) -> str:
    named = feature == METADATA_VERSION and level in METADATA_VERSIONS
    return f"{level} ({level_name(level)})" if named else str(level)


_BROKER_LIMITS = {minor: row.broker_limits for minor, row in RELEASES.items()}
_TOPIC_LIMITS = {minor: row.topic_limits for minor, row in RELEASES.items()}
_ANY_NUMBER: Limits = (None, None)
_SHOWN_TOPICS = 3


def check_limits(facts: StartFacts, version: Version | None) -> Iterator[Finding]:
    """Findings for every release that is known, worded for `version` if that is one."""
    for name, text in sorted((facts.settings.file or {}).items()):
        for releases, limits in _refusing_number(_BROKER_LIMITS, name, text, version):
            yield fatal(
                "setting-refused",
                facts.server.config or name,
                f"{name}={text}, and Kafka {_which_releases(releases, version)} accepts {_number_range(limits)}:"
                " the node does not start",
                f"set it to {_number_range(limits)}, or take it out",
                releases=releases,
            )
    if facts.server.mode is Mode.ZOOKEEPER or facts.server.controller_only:
        return
    for s in facts.log_dirs:
        if s.levels is not None and not s.levels.empty:
            yield from _limits_of_topics(f"{s.path}/{METADATA_DIR}", facts, version)


def _limits_of_topics(log: str, facts: StartFacts, version: Version | None) -> Iterator[Finding]:
    for name in sorted({name for limits in _TOPIC_LIMITS.values() for name in limits}):
        by_value: dict[tuple[Releases, Limits], list[str]] = {}
        for topic, text in sorted(facts.settings.topics.get(name, {}).items()):
            for refused in _refusing_number(_TOPIC_LIMITS, name, text, version):
                by_value.setdefault(refused, []).append(f"{topic} ({text})")
        for (releases, limits), topics in by_value.items():
            named = ", ".join(topics[:_SHOWN_TOPICS]) + (
                f" and {len(topics) - _SHOWN_TOPICS} more" * (len(topics) > _SHOWN_TOPICS)
            )
            yield fatal(
                "setting-refused",
                log,
                f"{name} of {counted(len(topics), 'topic')} is not what Kafka {_which_releases(releases, version)}"
                f" accepts ({_number_range(limits)}): {named}; a broker does not start, whether they are on it or not",
                "on the release that runs now, of each: kafka-configs.sh --bootstrap-server HOST:PORT --alter"
                f" --entity-type topics --entity-name TOPIC --add-config {name}={limits[0] or limits[1]}",
                releases=releases,
            )
    limits_now = _TOPIC_LIMITS.get((version[0], version[1])) if version is not None else None
    if (
        version is not None
        and limits_now not in (None, _TOPIC_LIMITS[min(_TOPIC_LIMITS)])
        and not facts.settings.complete
    ):
        yield warning(
            "settings-not-compared",
            log,
            f"the settings of topics could not be read: with {', '.join(sorted(limits_now or ()))} of one outside of"
            f" what it accepts, Kafka {version_text(version)} does not start",
            "logagent doctor says why the metadata log could not be used",
        )


def _refusing_number(
    table: Mapping[tuple[int, int], Mapping[str, Limits]], name: str, text: str, version: Version | None
) -> Iterator[tuple[Releases, Limits]]:
    """The releases, one after the other, that do not accept it, and what they do: `version`, if it is one of them."""
    number = parsed_ms(text)
    if number is None:
        return  # filled in by a config provider, or accepted by nobody
    minors = sorted(table)
    for refused, run in groupby(minors, lambda minor: not _accepts(table[minor].get(name, _ANY_NUMBER), number)):
        of: Sequence[tuple[int, int]] = list(run)
        if refused:
            after = next((minor for minor in minors if minor > of[-1]), None)
            named = version[:2] if version is not None and version[:2] in of else of[-1]
            yield Releases((*of[0], 0), (*after, 0) if after else None), table[named[0], named[1]][name]


def _accepts(limits: Limits, number: int) -> bool:
    low, high = limits
    return (low is None or number >= low) and (high is None or number <= high)


def _which_releases(releases: Releases, version: Version | None) -> str:
    return version_text(version) if version is not None and releases.includes(version) else str(releases)


def _number_range(limits: Limits) -> str:
    low, high = limits
    return f"{low} or more" if high is None else f"{high} or less" if low is None else f"{low} to {high}"


# KIP-853: up to 3.7 a quorum-state that cannot be read is started anew, and its voters must be the configured ones.
QUORUM_STATE_COUNTS = (3, 8, 0)
# Observed: 4.2.2 does not start with a snapshot at offset 0 that is empty or cut off, 4.3.1 and 4.4.0 do.
FIRST_SNAPSHOT_SPARE = (4, 3, 0)
# Observed: 3.7.0, 3.9.1 and 4.1.0 do not start with a link to nowhere for the newest snapshot; 4.3.1 and 4.4.0 do,
# where the log begins at 0.
LOST_SNAPSHOT_SPARE = (4, 2, 0)
# Observed: 3.9.1 does not start with something else in the place of the last snapshot of producers; 4.1.0 does.
PRODUCERS_SPARE = (4, 0, 0)
# Observed: 2.5.1 ignores a swap file without an offset, 3.5.2 does not start with it.
SWAP_NEEDS_OFFSET = (2, 6, 0)


def check_metadata(facts: StartFacts) -> Iterator[Finding]:
    """Findings about metadata logs, of nodes in KRaft mode only."""
    if facts.server.mode is Mode.ZOOKEEPER:
        return
    if facts.server.config is not None and not facts.server.names_quorum:
        yield fatal(
            "no-quorum",
            facts.server.config,
            "neither controller.quorum.bootstrap.servers nor controller.quorum.voters is set: the node does not start",
            "copy the line that the other nodes have",
        )
    for s in facts.log_dirs:
        if s.answers:
            yield from _stray_log(s, facts)
            for broken in s.metadata_faults:
                yield _broken_file(s, broken, facts)
                if broken.file is MetadataFile.LOST_SNAPSHOT:
                    yield _lost_snapshot(s, broken)
            yield from (odd_file(s.path, name) for name in s.odd_files if in_metadata_log(name))
            for fault in s.load_faults:
                yield from _load_fault(s, fault, facts) if _is_of_the_node(s, fault) else ()


def _stray_log(s: StartLogDirFacts, facts: StartFacts) -> Iterator[Finding]:
    """`KafkaRaftServer.initializeLogDirs` compares log dirs with `metadata.log.dir` by how they are spelled."""
    wanted = facts.server.metadata_log_dir
    if not s.metadata_log or not s.holds_logs or wanted is None or _spelled(s, facts) == wanted:
        return
    path = f"{s.path}/{METADATA_DIR}"
    if s.holds_metadata:
        says = f"metadata.log.dir={wanted} is this log dir, but log.dirs spells it {_spelled(s, facts)}: the node takes"
        yield fatal(
            "stray-metadata-log",
            path,
            f"{says} its own metadata log for one in the wrong place, and does not start",
            "spell metadata.log.dir exactly as in log.dirs",
        )
        return
    elsewhere = any(o.holds_metadata and o.metadata_log for o in facts.log_dirs)
    hint = (
        "this is not the one the node uses: move it out of the log dir, and keep it until the node is up"
        if elsewhere
        else f"there is none in {wanted}: move it there while the node is stopped, or set metadata.log.dir={s.path}"
    )
    yield fatal(
        "stray-metadata-log", path, f"a metadata log outside metadata.log.dir ({wanted}): the node does not start", hint
    )


def _spelled(s: StartLogDirFacts, facts: StartFacts) -> str:
    """The log dir as `log.dirs` spells it."""
    items = (item.strip() for item in (facts.server.log_dirs_text or "").split(","))
    return next((item for item in items if (item.rstrip("/") or "/") == s.path), s.path)


def _broken_file(s: StartLogDirFacts, fault: MetadataFault, facts: StartFacts) -> Finding:
    spare = fault.spare or fault.file is MetadataFile.FIRST_SNAPSHOT
    hint = _HINTS[fault.file] if spare else _whole_log(facts)
    path = f"{s.path}/{fault.name}"
    if fault.file is MetadataFile.DIRECTORY_ID:
        return fatal(
            "other-directory-id", path, f"{fault.error}: the node starts, and no controller is ever elected", hint
        )
    if fault.file is MetadataFile.SNAPSHOT_END:
        says = f"{fault.error}: the node starts with what is there, and misses the topics that are not"
        return warning("broken-metadata-log", path, says, hint)
    releases = ALL
    if fault.file is MetadataFile.FIRST_SNAPSHOT:
        releases = Releases(before=FIRST_SNAPSHOT_SPARE)
    if fault.file is MetadataFile.LOST_SNAPSHOT:
        releases = Releases(before=LOST_SNAPSHOT_SPARE)
    if fault.file is MetadataFile.QUORUM_STATE and not fault.refused:
        releases = Releases(since=QUORUM_STATE_COUNTS)
    elif fault.file in (MetadataFile.VOTERS, MetadataFile.DYNAMIC):
        releases = Releases(before=QUORUM_STATE_COUNTS)
    return fatal(
        "broken-metadata-log",
        path,
        f"{fault.error}: the node does not start{_OR_WORSE if fault.file is MetadataFile.SNAPSHOT else ''}",
        hint,
        releases=releases,
    )


def _lost_snapshot(s: StartLogDirFacts, fault: MetadataFault) -> Finding:
    says = f"{fault.error}: the node starts without it, and without the log it has nothing else to start from"
    since = Releases(since=LOST_SNAPSHOT_SPARE)
    return warning("broken-metadata-log", f"{s.path}/{fault.name}", says, _HINTS[fault.file], releases=since)


def _is_of_the_node(s: StartLogDirFacts, fault: LoadFault) -> bool:
    """Whether it is in the metadata log, or is the lock of a directory in which the node loads nothing else."""
    return in_metadata_log(fault.name) or (s.metadata_only and fault.name == ".lock")


def _load_fault(s: StartLogDirFacts, fault: LoadFault, facts: StartFacts) -> Iterator[Finding]:
    """A metadata log is loaded as a partition's is, but the node has no other log dir to go on with."""
    path = f"{s.path}/{fault.name}"
    hint = f"{_AWAY}the node makes it again"
    if path.endswith(".log"):
        hint = f"put the file that was there back in its place; without it: {_whole_log(facts)}"
    releases = Releases(before=PRODUCERS_SPARE) if path.endswith(".snapshot") else ALL
    if fault.file is LoadFile.PLACE:
        says = f"{fault.error}, and the node needs a file there: it does not start, or waits for ever"
        yield fatal("not-a-file", path, says, hint, releases=releases)
    if fault.file is LoadFile.AHEAD or releases is not ALL:
        says = f"{fault.error}: once the node needs a file there, it ends"
        since = Releases(since=PRODUCERS_SPARE) if fault.file is LoadFile.PLACE else ALL
        yield warning("not-a-file", path, says, hint, releases=since)
    if fault.file in (LoadFile.PLACE, LoadFile.AHEAD):
        return
    hint = f"{_AWAY}what it should have replaced is still there" if path.endswith(".swap") else _whole_log(facts)
    if fault.file is LoadFile.SWAP:
        yield fatal("broken-segment", path, f"{fault.error}: the node does not start", hint)
    else:
        says = f"{fault.error}: the node may not start, or miss a part of its log"
        yield warning("broken-segment", path, says, hint)


# What is cut off within a batch is passed over, and a broker sets aside the directories of topics that it misses.
_OR_WORSE = ", or starts without some of its topics"
_AWAY = "with the node stopped, move the file out of the directory (keep it): "
_HINTS = {
    MetadataFile.FIRST_SNAPSHOT: f"{_AWAY}the log itself has all that it has",
    MetadataFile.LOST_SNAPSHOT: f"{_AWAY}the log itself has all that it had",
    MetadataFile.QUORUM_STATE: f"{_AWAY}the node begins a new one from its log; of several controllers, start this one"
    " only while a majority of the others runs, since it forgets whom it voted for",
    MetadataFile.EPOCHS: f"{_AWAY}the node writes it again from the records of its log",
    MetadataFile.TOPIC_ID: f"{_AWAY}the node writes it again",
    MetadataFile.SNAPSHOT: f"{_AWAY}an older snapshot or the log itself has all that it has",
    MetadataFile.SNAPSHOT_END: f"{_AWAY}an older snapshot or the log itself has all that it should have",
    MetadataFile.BOOTSTRAP: f"{_AWAY}it only counts while the metadata log is still empty",
    MetadataFile.VOTERS: "correct controller.quorum.voters, which is the same on every node; if the voters were changed"
    f" on purpose: {_AWAY}the node begins a new one",
    MetadataFile.DYNAMIC: "start it with 3.8 or later: earlier releases know no dynamic quorums",
    MetadataFile.DIRECTORY_ID: "write the directory.id of the voter into it again, or put back the one that it had",
    MetadataFile.ODD_NAME: f"{_AWAY}it is not Kafka's",
}


def _whole_log(facts: StartFacts) -> str:
    """What helps where the log cannot be read without the file."""
    if facts.server.mode is None or facts.server.runs_controller:
        return (
            "if a majority of the other controllers runs: with this one stopped, move the whole directory away (keep"
            " it), and it fetches the metadata again; if this is the only controller, restore the directory from a"
            " backup, since without it the cluster has lost its topics"
        )
    return "with the broker stopped, move the whole directory away (keep it): it fetches the metadata from a controller"


def odd_file(log_dir: str, name: str) -> Finding:
    return fatal(
        "odd-segment-file",
        f"{log_dir}/{name}",
        "named like a segment file, but without an offset before the first dot: no broker starts with it"
        " in a partition directory",
        "move it out of the partition directory",
        releases=Releases(since=SWAP_NEEDS_OFFSET) if name.endswith(".swap") else ALL,
    )


def in_metadata_log(name: str) -> bool:
    """Whether an odd file (`DIRECTORY/FILE`) is in a metadata log."""
    return name.startswith(f"{METADATA_DIR}/")


CUTS_SINCE: Version = (2, 2, 2)
_LONGEST_MARKABLE = MAX_NAME - len(".") - 32 - len(DELETE_SUFFIX)
_TOO_LONG = "too-long-to-delete"


def check_long_names(facts: StartFacts) -> Iterator[Finding]:
    """A warning for each directory whose topic must not be deleted yet; fatal where that has been tried.

    Right before a start only a warning: nothing on this host shows whether the marker has been removed since, and a
    `prestart --strict` would hold back the very start that the cure calls for.
    """
    too_long = {d.key: d.topic for d in facts.dirs if d.kind is Kind.CURRENT and too_long_to_mark(d.name)}
    for where in facts.log_dirs:
        if not where.holds_logs:
            continue
        failed = {name: log for key, log in facts.failed_marks.items() if (name := _name_in(where, key)) is not None}
        for name, log in failed.items():
            if not _serves(where):
                yield _mark_failed(facts, where, name, f"{log} shows it, since the broker's last start")
        for log_dir, name in too_long:
            if log_dir != where.path or (name in failed and not _serves(where)):
                continue
            if where.given_up_by is not None:
                yield _mark_failed(facts, where, name, f"process {where.given_up_by} runs without this log dir")
            else:
                yield _too_long(f"{log_dir}/{name}")


def too_long_to_mark(name: str) -> bool:
    """Whether `name` with `.UUID-delete` is longer than a file system takes, if nobody cuts it."""
    return len(name.encode(errors="surrogateescape")) > _LONGEST_MARKABLE


def _name_in(where: StartLogDirFacts, key: DirKey) -> str | None:
    return key.name if key.log_dir in (where.path, where.canonical) else None


def _serves(where: StartLogDirFacts) -> bool:
    """A log dir that the broker has now: what its log says of it is over."""
    return where.given_up_by is None and where.holder.state is HolderState.HELD and where.holder_is_broker is True


def _too_long(path: str) -> Finding:
    return warning(
        _TOO_LONG,
        path,
        "its name is too long to be marked for deletion: deleting this topic takes the log dir offline, and with one"
        " log dir the broker does not come up again (KAFKA-4893)",
        "upgrade to 2.2.2 or later before anybody deletes the topic",
        releases=Releases(before=CUTS_SINCE),
    )


def _mark_failed(facts: StartFacts, where: StartLogDirFacts, name: str, shown: str) -> Finding:
    topic = name.rpartition("-")[0]
    return (warning if facts.about_to_start else fatal)(
        _TOO_LONG,
        f"{where.path}/{name}",
        "its topic is being deleted, and its name is too long to be marked: each start takes the log dir offline"
        f" again, and with one log dir the broker exits (KAFKA-4893; {shown}). Renaming or removing the directory does"
        " not help: it is made anew",
        "start 2.2.2 or later on this log dir: it finishes the deletion; or, if the topic should live, remove the"
        f" marker while no controller runs on an old release: zookeeper-shell ZOOKEEPER delete"
        f" /admin/delete_topics/{topic}",
        releases=Releases(before=CUTS_SINCE),
    )
