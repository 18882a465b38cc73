"""What a release of Kafka says of itself through its own classes (`ReleaseFacts.java`), and the table from that."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import logagent
from logagent.kafka.release_table import Limits, Release
from tests.broker.rig.jars import QUICK_FLAGS, cache_dir, kafka_jars, version_tuple

HERE = Path(__file__).resolve().parent
TABLE = Path(logagent.__file__).parent / "kafka/release_table.py"
# The newest patch of each minor release from 3.5 on that Maven Central has.
TABLED = ("3.5.2", "3.6.2", "3.7.2", "3.8.1", "3.9.2", "4.0.2", "4.1.2", "4.2.2", "4.3.1", "4.4.0")

_HEAD = '''"""What each release of Kafka supports, by its own classes. Do not edit.

Made by `python -m tests.broker.releases table`; a test compares it with the jars.

METADATA_VERSIONS: the name of each level of `metadata.version`, and whether records of it cannot be read below it, so
that no way leads back (`changed`). RELEASES: by minor release, the patch that was read, the
lowest and highest level of each feature (`QuorumFeatures`), the oldest and newest version of each file's format,
the highest `metadata.version` that it has a name for, if only as one that is not stable, and the lowest and highest
value (None: open) of settings of brokers and topics, where releases differ in what they accept (`ConfigDef`).
"""

from __future__ import annotations

from typing import NamedTuple


class MetadataVersion(NamedTuple):
    name: str
    changed: bool


Limits = tuple[int | None, int | None]


class Release(NamedTuple):
    patch: str
    features: dict[str, tuple[int, int]]
    files: dict[str, tuple[int, int]]
    named: int
    broker_limits: dict[str, Limits]
    topic_limits: dict[str, Limits]


'''


@cache
def release_facts(version: str) -> dict[str, Any]:
    """The document that `ReleaseFacts.java` writes for that release. About two seconds; a JDK is needed."""
    jars = kafka_jars(version)
    command = ["java", *QUICK_FLAGS, "-cp", jars.classpath, str(HERE / "ReleaseFacts.java")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the classes of Kafka {version} could not be read:\n{done.stderr}")
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


@cache
def changing_limits(kind: str) -> tuple[str, ...]:
    """The settings of which releases accept different numbers."""
    limits: dict[str, set[Limits]] = {}
    for version in TABLED:
        facts = release_facts(version)
        for name in facts["configs"][kind]:
            low, high = facts["limits"][kind].get(name, (None, None))
            limits.setdefault(name, set()).add((low, high))
    return tuple(sorted(name for name, found in limits.items() if len(found) > 1))


def release_row(version: str, limited: Callable[[str], Iterable[str]] = changing_limits) -> Release:
    """That release, as a row of the table has it. `limited`: the settings of a kind of which it has the limits, else by
    the jars of all releases."""
    facts = release_facts(version)
    missing = [name for name, versions in facts["files"].items() if versions is None]
    if missing:
        raise RuntimeError(f"Kafka {version} has other classes for {', '.join(missing)}: teach ReleaseFacts.java")
    features, files = ({name: (v[0], v[1]) for name, v in facts[what].items()} for what in ("features", "files"))
    limits = (_limits(facts, kind, limited(kind)) for kind in ("broker", "topic"))
    return Release(version, features, files, max(map(int, facts["metadata_versions"])), *limits)


def _limits(facts: dict[str, Any], kind: str, names: Iterable[str]) -> dict[str, Limits]:
    ranges = facts["limits"][kind]
    return {name: (ranges[name][0], ranges[name][1]) for name in names if name in ranges}


def metadata_versions() -> dict[int, tuple[str, bool]]:
    """By level. A release may still change what it does not yet call stable, so a level is taken from the last release
    that has it."""
    levels: dict[int, tuple[str, bool]] = {}
    for version in TABLED:
        highest = release_facts(version)["features"]["metadata.version"][1]
        known = {int(level): found for level, found in release_facts(version)["metadata_versions"].items()}
        levels |= {level: (f["name"], f["changed"]) for level, f in known.items() if level <= highest}
    return levels


def made_table() -> str:
    """The text of `release_table.py`, before ruff formats it."""
    lines = ["METADATA_VERSIONS: dict[int, MetadataVersion] = {\n"]
    lines += [
        f"{level}: MetadataVersion({name!r}, {changed}),\n" for level, (name, changed) in metadata_versions().items()
    ]
    lines.append("}\n\n")
    lines.append("RELEASES: dict[tuple[int, int], Release] = {\n")
    for version in TABLED:
        row = ", ".join(map(repr, release_row(version)))
        lines.append(f"{version_tuple(version)[:2]}: Release({row}),\n")
    return _HEAD + "".join(lines) + "}\n"


def write_table() -> None:
    TABLE.write_text(made_table())
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", str(TABLE)], check=True)


def cached() -> list[str]:
    """The releases from 3.5 on whose jars are here already."""
    found = (re.fullmatch(r"kafka-([0-9.]+)", p.name) for p in cache_dir().iterdir() if p.is_dir())
    versions = sorted((m[1] for m in found if m is not None), key=version_tuple)
    return [version for version in versions if version_tuple(version) >= (3, 5)]


def record_schemas(version: str) -> dict[str, dict[str, Any]]:
    """The JSON schemas of the metadata records, by name, from the jar of that release."""
    (jar,) = (Path(p) for p in kafka_jars(version).classpath.split(":") if Path(p).name.startswith("kafka-metadata-"))
    with zipfile.ZipFile(jar) as archive:
        names = [n for n in archive.namelist() if n.startswith("common/metadata/") and n.endswith("Record.json")]
        texts = [re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE) for name in names]
    schemas = map(json.loads, texts)
    return {schema["name"]: schema for schema in schemas if schema["type"] == "metadata"}
