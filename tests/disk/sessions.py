"""Sessions of the daemon's kind on log dirs that fail: with failures, calls and inventories that outlive them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from logagent.base.clock import Clock
from logagent.base.config.settings import AssignmentsSettings, CleanupSettings, DeleteSettings, HealthSettings, Settings
from logagent.base.records import Health
from logagent.cleanup.commands.cleanup import plan_cleanup
from logagent.cleanup.plan.plan import Execution
from logagent.cleanup.session.session import Session, Shared
from logagent.disk.bounded_calls import BoundedCalls
from logagent.disk.calls import DiskCalls
from logagent.disk.log_dir import LogDirFailures
from logagent.disk.scan import LogDirInventory
from logagent.kafka.files.properties import parse_server_properties
from logagent.kafka.image import PartitionAssignment, Topic
from logagent.kafka.processes.target import Target
from logagent.service.daemon.host_jobs import LogDirMonitor
from logagent.service.summary import HealthSummary
from logagent.verdict.rules import CLOCK_TOLERANCE_MS
from tests.host import Host
from tests.host_files import write_export
from tests.waiting import wait_until

# Nothing waits for its age, and no plan is too large.
SETTINGS = replace(
    Settings(),
    cleanup=CleanupSettings(mode="enforce", stray_retention=0, leftover_grace=0, max_fraction=1.0, max_dirs=1000),
    delete=DeleteSettings(file_delete_delay_ms=0),
    health=HealthSettings(probe_timeout=30_000, recovery_probes=2),
)
# For disks that hang: nobody waits long for those. (Long enough for one that does not, on a busy machine.)
HANGS = replace(SETTINGS, health=HealthSettings(probe_timeout=3_000, recovery_probes=2))


class FailingHost(Host):
    """The log dirs `paths` of one broker that is stopped, and what the daemon keeps of them. Nothing is configured in a
    file: its disks may hang."""

    def __init__(self, state: Path, *paths: Path, settings: Settings = SETTINGS) -> None:
        super().__init__(state.parent, *paths)
        self.state, self.assignments = state, Path(f"{state}-assignments.json")
        self.paths = [str(path) for path in paths]
        self.target = Target(None, parse_server_properties(b"", "(none)"), tuple(self.paths), (3, 9, 1))
        self.settings = replace(
            settings, assignments=AssignmentsSettings(sources=("file",), file=str(self.assignments))
        )
        self.failures = LogDirFailures()
        self.calls: DiskCalls = BoundedCalls(self.failures, limit_seconds=settings.health.probe_timeout / 1000)
        self.known: dict[str, LogDirInventory] = {}
        self.health = LogDirMonitor(
            self.target, self.clock, self.failures, settings, calls=self.calls, known=self.known
        )

    @contextmanager
    def session(
        self, *, clock: Clock | None = None, act: bool = True, actor: str = "test", inventory: bool = False
    ) -> Iterator[Session]:
        """A session that has read what the cluster has: one topic, elsewhere."""
        write_topic_elsewhere(self.assignments, (clock or self.clock).now_ms())
        with super().session(clock=clock, act=act, actor=actor, inventory=inventory) as session:
            if not inventory:
                session.read_assignments()
            yield session

    def configured(self) -> tuple[Target, Settings]:
        return self.target, self.settings

    def shared(self) -> Shared:
        return Shared(self.failures, self.calls, self.known)

    def clean(self, on_progress: Callable[[int, int], None] | None = None) -> Execution:
        """One cleanup cycle: everything that is due."""
        with self.session() as session:
            session.take_inventory()
            plan = plan_cleanup(session, session.facts())
            return session.log_manager(on_progress=on_progress).execute(plan)

    def round(self) -> dict[str, Health]:
        """One round of probes."""
        return {d.path: d.health for d in self.health.round().log_dirs}

    def rounds_until(self, path: Path, health: Health) -> HealthSummary:
        """Rounds of probes until `path` is in this state; the last one."""
        last: list[HealthSummary] = []

        def there() -> bool:
            last.append(self.health.round())
            return next(d.health for d in last[-1].log_dirs if d.path == str(path)) is health

        wait_until(there, f"{path} is {health}")
        return last[-1]

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Rounds of probes in a thread of their own, as in the daemon."""
        ending = threading.Event()

        def work() -> None:
            while not ending.wait(0.1):
                self.health.round()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()


def write_topic_elsewhere(file: Path, now_ms: int, node: int = 3) -> None:
    """Assignments of this moment, with one topic that lives elsewhere: the strays of `partition` are nobody's."""
    elsewhere = Topic("elsewhere", "ElseElseElseElseElseEA", {0: PartitionAssignment((node, node + 1), (node + 1,))})
    write_export(file, elsewhere, at_ms=in_a_moment(now_ms))


def in_a_moment(now_ms: int) -> int:
    """When assignments have to be from, for what is made in a moment to be judged, too."""
    return now_ms + CLOCK_TOLERANCE_MS - 5_000


def outcomes(execution: Execution) -> Sequence[str]:
    return sorted(result.outcome.value for result in execution.results.values())
