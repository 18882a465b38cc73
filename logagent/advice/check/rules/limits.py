"""Settings with a number that one release accepts and another does not.

`release_table.py` has the range of each, from Kafka's own `ConfigDef`. Seen on real nodes: with a number outside of it
in `server.properties` a node of any role ends; with one of a topic a broker does ("Error starting LogManager"), whether
or not the topic is on it, and a controller does not. A dynamic one of brokers is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from logagent.advice.check.rules.start_facts import Mode, StartFacts
from logagent.advice.finding import Finding, Releases, fatal, warning
from logagent.base.dir_names import METADATA_DIR
from logagent.base.kafka_version import Version, version_text
from logagent.kafka.release_table import RELEASES, Limits
from logagent.kafka.retention.settings import parsed_ms

_BROKER = {minor: row.broker_limits for minor, row in RELEASES.items()}
_TOPIC = {minor: row.topic_limits for minor, row in RELEASES.items()}
_OPEN: Limits = (None, None)
_SHOWN = 3


def check_limits(facts: StartFacts, version: Version | None) -> Iterator[Finding]:
    """Findings for every release that is known, worded for `version` if that is one."""
    for name, text in sorted((facts.settings.file or {}).items()):
        for releases, limits in _refusing(_BROKER, name, text, version):
            yield fatal(
                "setting-refused",
                facts.server.config or name,
                f"{name}={text}, and Kafka {_which(releases, version)} accepts {_range(limits)}:"
                " the node does not start",
                f"set it to {_range(limits)}, or take it out",
                releases=releases,
            )
    if facts.server.mode is Mode.ZOOKEEPER or facts.server.controller_only:
        return
    for s in facts.log_dirs:
        if s.levels is not None and not s.levels.empty:
            yield from _of_topics(f"{s.path}/{METADATA_DIR}", facts, version)


def _of_topics(log: str, facts: StartFacts, version: Version | None) -> Iterator[Finding]:
    for name in sorted({name for limits in _TOPIC.values() for name in limits}):
        by_value: dict[tuple[Releases, Limits], list[str]] = {}
        for topic, text in sorted(facts.settings.topics.get(name, {}).items()):
            for refused in _refusing(_TOPIC, name, text, version):
                by_value.setdefault(refused, []).append(f"{topic} ({text})")
        for (releases, limits), topics in by_value.items():
            named = ", ".join(topics[:_SHOWN]) + (f" and {len(topics) - _SHOWN} more" * (len(topics) > _SHOWN))
            yield fatal(
                "setting-refused",
                log,
                f"{name} of {len(topics)} topics is not what Kafka {_which(releases, version)} accepts"
                f" ({_range(limits)}): {named}; a broker does not start, whether they are on it or not",
                "on the release that runs now, of each: kafka-configs.sh --bootstrap-server HOST:PORT --alter"
                f" --entity-type topics --entity-name TOPIC --add-config {name}={limits[0] or limits[1]}",
                releases=releases,
            )
    limits_now = _TOPIC.get((version[0], version[1])) if version is not None else None
    if version is not None and limits_now not in (None, _TOPIC[min(_TOPIC)]) and not facts.settings.complete:
        yield warning(
            "settings-not-compared",
            log,
            f"the settings of topics could not be read: with {', '.join(sorted(limits_now or ()))} of one outside of"
            f" what it accepts, Kafka {version_text(version)} does not start",
            "logagent doctor says why the metadata log could not be used",
        )


def _refusing(
    table: Mapping[tuple[int, int], Mapping[str, Limits]], name: str, text: str, version: Version | None
) -> Iterator[tuple[Releases, Limits]]:
    """The releases, one after the other, that do not accept it, and what they do: `version`, if it is one of them."""
    number = parsed_ms(text)
    if number is None:
        return  # filled in by a config provider, or accepted by nobody
    minors = sorted(table)
    for refused, run in groupby(minors, lambda minor: not _accepts(table[minor].get(name, _OPEN), number)):
        of: Sequence[tuple[int, int]] = list(run)
        if refused:
            after = next((minor for minor in minors if minor > of[-1]), None)
            named = version[:2] if version is not None and version[:2] in of else of[-1]
            yield Releases((*of[0], 0), (*after, 0) if after else None), table[named[0], named[1]][name]


def _accepts(limits: Limits, number: int) -> bool:
    low, high = limits
    return (low is None or number >= low) and (high is None or number <= high)


def _which(releases: Releases, version: Version | None) -> str:
    return version_text(version) if version is not None and releases.includes(version) else str(releases)


def _range(limits: Limits) -> str:
    low, high = limits
    return f"{low} or more" if high is None else f"{high} or less" if low is None else f"{low} to {high}"
