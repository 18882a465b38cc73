"""The health of the log dirs, round by round: detects a failing disk, and brings the log dir back when the disk is good
again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from logagent.agent.clock import Clock
from logagent.agent.target import Target
from logagent.host.brokers.holders import open_lock_files, shares_our_mounts
from logagent.host.inventory.scan import LogDirInventory, scan_log_dir
from logagent.host.log_dir.bounded_calls import Task
from logagent.host.log_dir.calls import DirectCalls, DiskCalls
from logagent.host.log_dir.log_dir import LogDirFailures, OpenLogDir
from logagent.host.log_dir.probe import Prober, Visit
from logagent.model.daemon_summary import HealthSummary, LogDirSummary
from logagent.model.health.states import LockFacts, LogDirState, ProbeOutcome, Seen, given_up, next_state
from logagent.model.records import Health, Identity
from logagent.settings import Settings


class LogDirHealth:
    """Probes every log dir of `target` (and the quarantine directories) and records in `failures` which are offline.

    It keeps nothing in a log dir open between two rounds, so that it can be unmounted. A log dir is scanned in full
    before it comes back; that inventory replaces the old one in `known`. `calls`: a log dir with a call that still
    hangs does not come back. Use it from one thread.
    """

    def __init__(
        self,
        target: Target,
        clock: Clock,
        failures: LogDirFailures,
        settings: Settings,
        prober: Prober | None = None,
        *,
        calls: DiskCalls | None = None,
        known: dict[str, LogDirInventory] | None = None,
    ) -> None:
        self._target = target
        self._clock = clock
        self._failures = failures
        self._settings = settings
        self._prober = prober if prober is not None else Prober()
        self._calls = calls if calls is not None else DirectCalls()
        self._known = known if known is not None else {}
        self._states: dict[str, LogDirState] = {}
        self._visits: dict[str, Visit] = {}
        self._scans: dict[str, _FreshScan] = {}

    def states(self) -> Mapping[str, LogDirState]:
        """The log dirs after the last round."""
        return {path: self._states[path] for path in self._target.log_dirs if path in self._states}

    def reconfigure(self, target: Target, settings: Settings) -> None:
        """Takes effect at the next round; what is known about log dirs that stay is kept."""
        self._target, self._settings = target, settings

    def round(self) -> HealthSummary:
        """Probe every log dir once and act on the results; takes at most `health.probe_timeout`."""
        started, at_ms = self._clock.monotonic(), self._clock.now_ms()
        before = dict(self._states)
        self._visits = dict(self._prober.visit_all(self._paths(), self._settings.health.probe_timeout / 1000))
        given_up = self._given_up()
        for path, visit in self._visits.items():
            self._judge(path, visit, given_up.get(path), at_ms)
        self._states = {path: self._states[path] for path in self._visits}
        return HealthSummary(
            at_ms=at_ms,
            seconds=self._clock.monotonic() - started,
            log_dirs=tuple(self._summary(path) for path in self._target.log_dirs),
            changed=tuple(path for path in self._target.log_dirs if self._is_news(before.get(path), path)),
        )

    def _paths(self) -> list[str]:
        return list(dict.fromkeys((*self._target.log_dirs, *self._settings.cleanup.quarantine_dirs)))

    def _is_news(self, before: LogDirState | None, path: str) -> bool:
        return self._states[path].health is not (before.health if before is not None else Health.ONLINE)

    def _judge(self, path: str, visit: Visit, given_up: str | None, at_ms: int) -> None:
        failed, scan = self._failures.reason(path), self._scans.get(path)
        seen = Seen(
            probe=visit.result,
            identity=visit.identity,
            meta=visit.meta,
            given_up=given_up,
            failed=failed,
            hanging=self._calls.hanging(path),
            scanned=scan.identity if scan is not None else None,
        )
        recovery_probes = self._settings.health.recovery_probes
        state = next_state(path, self._states.get(path), seen, at_ms, recovery_probes)
        self._states[path] = state
        if state.health is Health.OFFLINE:
            self._failures.mark_offline(path, state.reason or "the probe failed")
            self._scan_if_due(path, state, recovery_probes)
        elif failed is not None:
            if scan is not None and scan.inventory is not None:
                self._known[path] = scan.inventory
            else:
                self._known.pop(path, None)
            self._scans.pop(path, None)
            self._failures.recovered(path, failed)

    def _scan_if_due(self, path: str, state: LogDirState, recovery_probes: int) -> None:
        """Start a scan once enough probes were good; discard a scan if a probe has failed since."""
        scan = self._scans.get(path)
        if scan is not None and not scan.running and (scan.failed or not state.good_probes):
            del self._scans[path]
            scan = None
        if scan is not None and not state.good_probes:
            scan.overtaken = True
        if scan is None and state.wants_scan(recovery_probes):
            with suppress(RuntimeError):  # the thread limit; the next round tries again
                self._scans[path] = _FreshScan(path)

    def _given_up(self) -> dict[str, str]:
        """Why the running broker seems to have given up a log dir, by path. Touches no disk."""
        locks = {p: v.lock for p, v in self._visits.items() if v.lock is not None and p in self._target.log_dirs}
        held = [lock for lock in locks.values() if lock.held]
        if not held or len(held) == len(locks):
            return {}
        pids = {lock.pid for lock in held if lock.pid is not None}
        has_open = {pid: open_lock_files(pid) or frozenset() for pid in pids}
        # Paths differ in a container: a log dir open there that matches none of ours may be any of these.
        elsewhere = any(not shares_our_mounts(pid) for pid in pids)
        unclear = elsewhere and len(frozenset[str]().union(*has_open.values())) > len(held)
        facts = {}
        for path, lock in locks.items():
            names = {f"{self._visits[path].real}/.lock", f"{path}/.lock"}
            open_by = frozenset(pid for pid, files in has_open.items() if not names.isdisjoint(files))
            held_now = lock.held if lock.readable else None
            facts[path] = LockFacts(held_now, lock.pid, open_by=None if unclear else open_by)
        return {path: lost.reason for path, lost in given_up(facts).items()}

    def _summary(self, path: str) -> LogDirSummary:
        state, result = self._states[path], self._visits[path].result
        return LogDirSummary(
            path=path,
            health=state.health,
            reason=state.reason,
            since_ms=state.since_ms,
            probe_ms=round(result.ms, 3),
            wrote=result.wrote,
            limited=result.limited,
            good_probes=state.good_probes,
            probed=result.outcome is not ProbeOutcome.GOOD or result.errno is None,
        )


class _FreshScan:
    """A full scan of a log dir that is about to come back, without using any earlier inventory.

    `inventory`, `identity`: of the directory, once it has been scanned without a failed probe in between.
    """

    def __init__(self, path: str) -> None:
        self.overtaken = False
        self._task = Task(f"logagent-scan {path}", partial(_scan, path))
        self._task.start()

    @property
    def running(self) -> bool:
        return not self._task.done.is_set()

    @property
    def inventory(self) -> LogDirInventory | None:
        return None if self.running or self._task.error is not None else self._task.outcome()

    @property
    def identity(self) -> Identity | None:
        inventory = self.inventory
        return inventory.identity if inventory is not None and not self.overtaken else None

    @property
    def failed(self) -> bool:
        return self.overtaken or (not self.running and self._task.error is not None)


def _scan(path: str) -> LogDirInventory:
    with OpenLogDir(path, LogDirFailures()) as log_dir:
        return scan_log_dir(log_dir)
