"""The configuration that a daemon runs with."""

from __future__ import annotations

from dataclasses import dataclass

from logagent.agent.target import Target
from logagent.settings import Settings


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Validated, and replaced as a whole by a reload. `file`: the logagent.toml that was read, None if there is
    none."""

    settings: Settings
    target: Target
    file: str | None = None


def changed_keys(old: RunConfig, new: RunConfig) -> list[str]:
    """`section.key` of every setting that differs, and "log dirs" if the broker's differ."""
    from logagent.config import as_document

    before, after = as_document(old.settings), as_document(new.settings)
    found = [f"{s}.{k}" for s, keys in after.items() for k, value in keys.items() if before[s][k] != value]
    return [*found, *(["log dirs"] if old.target != new.target else [])]
