"""What a daemon runs with."""

from __future__ import annotations

from dataclasses import dataclass

from logagent.agent.session.target import Target
from logagent.settings import Settings


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Validated, and replaced as a whole by a reload. `file`: the logagent.toml that was read, None for none."""

    settings: Settings
    target: Target
    file: str | None = None


def changed_keys(old: RunConfig, new: RunConfig) -> list[str]:
    """`section.key` of every setting that differs, and "log dirs" where the broker's did."""
    from logagent.config import as_document

    before, after = as_document(old.settings), as_document(new.settings)
    found = [f"{s}.{k}" for s, keys in after.items() for k, value in keys.items() if before[s][k] != value]
    return [*found, *(["log dirs"] if old.target != new.target else [])]
