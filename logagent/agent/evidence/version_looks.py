"""Asks every source which version of Kafka this is; `model.health.kafka_version` decides which answer counts."""

from __future__ import annotations

from collections.abc import Iterable

from logagent.agent.evidence.assignment_sources import Assignments
from logagent.agent.target import Target
from logagent.broker.process.version import at_least, version_of_process
from logagent.host.brokers.discovery import version_installed
from logagent.model.health.kafka_version import LastRun, VersionLook


def look_at_versions(
    target: Target,
    broker_pids: Iterable[int],
    assignments: Assignments | None,
    cluster_id: str | None,
    last_run: LastRun,
) -> VersionLook:
    """broker_pids: the processes that hold the log dirs, or (before they do) that run with this configuration."""
    # Also from assignments too old for verdicts: only an operator's downgrade lowers a metadata.version, and if nothing
    # fresh is known only what an operator names is set aside (and `check` says "at least").
    image = assignments.shown if assignments is not None else None
    if image is not None and image.cluster_id != cluster_id:
        image = None
    running = ((version_of_process(pid), pid) for pid in dict.fromkeys(broker_pids))
    version, pid = min(((v, pid) for v, pid in running if v is not None), default=(None, None))
    return VersionLook(
        running=version,
        pid=pid,
        last_run=last_run,
        configured=target.kafka_version,
        # Only before the next start, which it is about: it reads the start scripts of units.
        installed=version_installed(target.config) if version is None else None,
        metadata=at_least(image.metadata_version) if image is not None else None,
    )
