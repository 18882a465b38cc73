"""How work on a log dir is controlled from outside: when it ends, how fast it goes, with how many threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from logagent.errors import RemovalStopped
from logagent.host.log_dir.calls import Stop, never
from logagent.host.removal.budget import MAX_CHUNK, ByteBudget

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class WorkControl:
    """Passed from the command or the daemon down to the last file.

    stop: asked between two actions and between two files; work ends there, and the rest stays queued. given_up: asked
    before each change, even in the middle of a file; true when nobody waits for this work any more because its log dir
    hung. budget: bytes per second, shared by all workers. workers: threads for one large directory. on_progress(files,
    bytes): what was removed since its last call.
    """

    stop: Stop = never
    given_up: Stop = never
    budget: ByteBudget | None = None
    workers: int = 1
    on_progress: Progress | None = None

    @property
    def chunk(self) -> int:
        """How many bytes of a file one call may free."""
        return MAX_CHUNK if self.budget is None else self.budget.chunk

    def check(self) -> None:
        """Raises RemovalStopped if work must end here."""
        if self.stop():
            raise RemovalStopped("stopped on request; the rest stays queued")

    def wait_for_budget(self, count: int, look: Callable[[], None]) -> None:
        """Wait until `count` bytes may be freed; meanwhile `look` is called again and again, to raise if a broker
        starts. Raises RemovalStopped if work must end first."""
        if self.budget is not None and not self.budget.take(count, self.stop, look):
            raise RemovalStopped("stopped on request; the rest stays queued")
