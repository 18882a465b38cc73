"""The names of the levels of `metadata.version`, and the releases that they are of."""

from __future__ import annotations

from logagent.base.kafka_version import Version
from logagent.kafka.release_table import METADATA_VERSIONS


def level_name(level: int) -> str:
    return METADATA_VERSIONS[level].name


def oldest_release(metadata_version: int) -> Version | None:
    """The oldest release that a node with this `metadata.version` may be of, by the name of the level; None for a level
    of no release (0)."""
    level = max((known for known in METADATA_VERSIONS if known <= metadata_version), default=None)
    if level is None:
        return None
    major, minor = level_name(level).partition("-")[0].split(".")
    return int(major), int(minor), 0
