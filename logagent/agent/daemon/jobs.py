"""The jobs that the daemon schedules; `host_jobs` does them on a real host."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, Protocol

from logagent.agent.daemon.run_config import RunConfig
from logagent.model.daemon_summary import CycleSummary, HealthSummary, PublishSummary


class Jobs(Protocol):
    """Each job is called by its own loop only; `configure` and `status` by others."""

    def queue(self) -> CycleSummary: ...

    def cleanup(self) -> CycleSummary: ...

    def inventory(self) -> CycleSummary: ...

    def health(self) -> HealthSummary: ...

    def publish(self) -> PublishSummary | None: ...

    def takes_orders(self) -> bool:
        """Whether orders of the fleet can arrive: a store and keys are configured."""
        ...

    def orders(self) -> Literal["new", "standing"] | None:
        """Send the answers, and look which orders are in the store."""
        ...

    def obey(self) -> CycleSummary: ...

    def configure(self, config: RunConfig) -> None:
        """Use this configuration from now on. Raises LogAgentError if it cannot be used; then nothing changes."""
        ...

    def reload_failed(self) -> None: ...

    def want_snapshot(self) -> bool:
        """Have the next inventory published; whether there is a store for it."""
        ...

    def came_back(self, paths: Collection[str]) -> None:
        """These log dirs were offline and are online again."""
        ...

    def unwatched(self) -> Mapping[str, str]:
        """Log dirs where inotify does not report newly marked directories, and why."""
        ...

    def status(self) -> dict[str, Any]: ...

    def close(self) -> None: ...
