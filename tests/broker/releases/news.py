"""What changes for logagent from one release of Kafka to the next, from their jars: lines to read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import logagent
from logagent.kafka.admin import responses
from logagent.kafka.metadata_log.metadata_records import DECODERS
from logagent.kafka.retention.settings import OF_NO_ACCOUNT
from tests.broker.releases.facts import record_schemas, release_facts

# Of the settings that we do not read, those that may belong to what we explain or check.
_NEAR = re.compile(
    r"retention|remote\.|log\.|cleaner|cordon|segment|delete|directory|compaction|tier|quorum|features?\b"
)
_READ, _NEAR_OURS = "READ HERE", "near ours"


def news(old: str, new: str) -> Iterator[str]:
    """Headings and lines; what concerns what logagent reads is marked."""
    before, after = release_facts(old), release_facts(new)
    yield from _section("Features: lowest and highest level", _changes(before["features"], after["features"]))
    levels = _changes(before["metadata_versions"], after["metadata_versions"])
    yield from _section("Levels of metadata.version (a new one may not be stable yet)", levels)
    yield from _section("Files: oldest and newest version", _changes(before["files"], after["files"]))
    yield from _section("Metadata records", _records(record_schemas(old), record_schemas(new)))
    yield from _section("Error codes", _errors(before["errors"], after["errors"]))
    for kind in ("broker", "topic"):
        yield from _section(f"Configs of a {kind}", _configs(before["configs"][kind], after["configs"][kind]))
        ranges = _configs(before["limits"][kind], after["limits"][kind])
        yield from _section(f"Numbers that configs of a {kind} accept: lowest and highest", ranges)


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    listed = list(lines)
    yield f"## {title}: {len(listed) or 'no'} changes"
    yield from (f"- {line}" for line in listed)


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            yield f"{name}: new, {after[name]}"
        elif name not in after:
            yield f"{name}: gone, was {before[name]}"
        elif before[name] != after[name]:
            yield f"{name}: {before[name]} -> {after[name]}"


def _records(before: Mapping[str, dict[str, Any]], after: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        schema = after.get(name) or before[name]
        key = schema["apiKey"]
        mark = f" {_READ}" if key in DECODERS else ""
        if name not in before or name not in after:
            yield f"{name} ({key}): {'new' if name in after else 'gone'}, versions {schema['validVersions']}{mark}"
            continue
        yield from (f"{name} ({key}): {line}{mark}" for line in _record(before[name], after[name]))
        highest = int(schema["validVersions"].rpartition("-")[2])
        if key in DECODERS and highest > DECODERS[key][1]:
            yield f"{name} ({key}): version {highest} is above {DECODERS[key][1]}, the highest that is decoded{mark}"


def _record(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    if before["validVersions"] != after["validVersions"]:
        yield f"versions {before['validVersions']} -> {after['validVersions']}"
    yield from (f"field {line}" for line in _changes(_fields(before["fields"]), _fields(after["fields"])))


def _fields(fields: Iterable[dict[str, Any]], within: str = "") -> dict[str, dict[str, Any]]:
    """By name, with those of nested structures; without what only explains them."""
    found: dict[str, dict[str, Any]] = {}
    for field in fields:
        name = f"{within}{field['name']}"
        found[name] = {key: str(value) for key, value in field.items() if key not in ("name", "about", "fields")}
        found |= _fields(field.get("fields", ()), f"{name}.")
    return found


def _errors(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[str]:
    ours = {code for name, code in vars(responses).items() if name.isupper() and isinstance(code, int)}
    codes = {**before, **after}
    for line in _changes(before, after):
        name = line.partition(":")[0]
        yield f"{line}{f' {_READ}' if codes[name] in ours else ''}"


def _configs(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for line in _changes(before, after):
        name = line.partition(":")[0]
        read = f'"{name}"' in _source() and name not in OF_NO_ACCOUNT
        mark = f" {_READ}" if read else f" {_NEAR_OURS}" if _NEAR.search(name) else ""
        yield f"{line}{mark}"


@cache
def _source() -> str:
    return "\n".join(path.read_text() for path in sorted(Path(logagent.__file__).parent.rglob("*.py")))


def differing_starts(before: Iterable[dict[str, Any]], after: Iterable[dict[str, Any]]) -> Iterator[str]:
    """What a start makes of the same damage, from two files of `python -m tests.broker.check --out`."""
    outcomes = {(row["kind"], row["damage"]): row["outcome"] for row in before}
    for row in after:
        was = outcomes.pop((row["kind"], row["damage"]), None)
        if was is None or was != row["outcome"]:
            yield f"{row['kind']}: {row['damage']}: {was or 'not tried'} -> {row['outcome']}"
        if not row["agrees"]:
            said = " ".join(row["fatal"]) or "nothing fatal"
            yield f"{row['kind']}: {row['damage']}: {row['outcome']}, and check says {said}"
    yield from (f"{kind}: {damage}: {was} -> not tried" for (kind, damage), was in outcomes.items())
