"""Whether a release of Kafka can read what the metadata log of this node says is finalised, upwards and downwards.

`release_table.py` has what each release supports, by its own classes. What a start makes of a level outside was seen on
real nodes (tests/broker/releases): a controller refuses each record of such a level that it reads, also one that was
taken back later; a broker is refused by the controllers for what is finalised, and ends. Before 4.0 both also end over
a `metadata.version` in `bootstrap.checkpoint` that they have no name for, and that file never changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from logagent.advice.check.rules.start_facts import Mode, StartFacts, StartLogDirFacts
from logagent.advice.finding import Finding, Releases, Severity, fatal, info, warning
from logagent.base.dir_names import METADATA_DIR
from logagent.base.kafka_version import Version, version_text
from logagent.kafka.levels import KRAFT_VERSION, METADATA_VERSION
from logagent.kafka.metadata_versions import level_name
from logagent.kafka.node_files import BOOTSTRAP, FeatureLevels, StartLevels
from logagent.kafka.release_table import METADATA_VERSIONS, RELEASES, Release
from logagent.kafka.retention.topic_retention import may_be_true

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
    says = f"{finding.says}, unless {UNSTABLE}, which is set, lets it"
    return replace(finding, severity=Severity.WARNING, says=says)


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
