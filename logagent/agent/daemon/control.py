"""What a daemon and its work agree on: configuration, how to stop, and what can be asked of whoever does the work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from logagent.agent.session.target import Target
from logagent.model.summary import CycleSummary, HealthSummary, PublishSummary
from logagent.settings import Settings


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What a daemon runs with: validated, and replaced as a whole by a reload."""

    settings: Settings
    target: Target
    file: str | None = None


@dataclass(slots=True)
class Control:
    """How the loops' work is told to stop, and says that it is alive. `interrupted`: the present cycle ends early."""

    stopping: bool = False
    interrupted: bool = False
    beat: Callable[[], None] = field(default=lambda: None)

    def stop(self) -> bool:
        self.beat()
        return self.stopping or self.interrupted

    def aborting(self) -> bool:
        self.beat()
        return self.stopping


class Work(Protocol):
    """What the loops do. Each method is called by its own loop only, but for `configure` and `status`."""

    def queue(self) -> CycleSummary: ...

    def cleanup(self) -> CycleSummary: ...

    def inventory(self) -> CycleSummary: ...

    def health(self) -> HealthSummary: ...

    def publish(self) -> PublishSummary | None: ...

    def configure(self, config: RunConfig) -> None:
        """From now on work with this configuration. Raises LogAgentError where it cannot be used: nothing changed."""
        ...

    def want_snapshot(self) -> bool:
        """The next inventory is published; whether there is a store for it."""
        ...

    def came_back(self, paths: Collection[str]) -> None:
        """These log dirs were offline and are no longer."""
        ...

    def unwatched(self) -> Mapping[str, str]:
        """Where inotify does not tell of newly marked directories, and why."""
        ...

    def reload_failed(self) -> None: ...

    def status(self) -> dict[str, Any]: ...

    def close(self) -> None: ...


def changed_keys(old: RunConfig, new: RunConfig) -> list[str]:
    """`section.key` of every setting that differs, and "log dirs" where the broker's did."""
    from logagent.config import as_document

    before, after = as_document(old.settings), as_document(new.settings)
    found = [f"{s}.{k}" for s, keys in after.items() for k, value in keys.items() if before[s][k] != value]
    return [*found, *(["log dirs"] if old.target != new.target else [])]
