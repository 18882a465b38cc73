"""`logagent run`: the daemon."""

from __future__ import annotations

import pickle
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal

import click

from logagent.base.clock import SystemClock
from logagent.base.config.config import Loaded
from logagent.base.config.config import load as load_settings
from logagent.base.console.options import Call, common, reads_assignments
from logagent.base.console.render import dump
from logagent.base.errors import Exit, Halted
from logagent.base.linux.child import Child, work_in_child
from logagent.base.linux.state_dir import LogDirSeen, prepare_state_dir, stat_directory
from logagent.base.linux.syscalls import share_one_arena
from logagent.cleanup.session.of_command import unusable_file
from logagent.cleanup.state.executor_lock import ExecutorLock
from logagent.disk.wrong_user import needs_log_dirs
from logagent.kafka.processes.target import named_target
from logagent.service.daemon.running import Running
from logagent.service.daemon.scheduling import RunConfig

if TYPE_CHECKING:
    from logagent.service.daemon.scheduling import RunConfig

DAEMON_LOCK = "daemon.lock"
_LOADING_SECONDS = 60.0


@click.command()
@click.option("--once", is_flag=True, help="Do what is due now, then exit.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Format of the log lines.")
@reads_assignments
@common
@needs_log_dirs
def run(call: Call, once: bool, log_format: Literal["text", "json"]) -> None:
    """Watch the log dirs, remove what is due from the delete queue, clean up every cleanup.interval.

    Log lines go to stderr; --json prints the state at the end, as `status --json` does. SIGTERM stops it at the next
    file, SIGHUP reloads the configuration.
    """
    share_one_arena()
    # The configuration is about to be read: a reload this early has nothing to do, and must not kill the daemon.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    clock = SystemClock()
    config = load(call)
    state_dir = call.state_dir
    prepare_state_dir(state_dir, answering(config))
    with ExecutorLock(
        state_dir, "logagent run", wait_seconds=0, monotonic=clock.monotonic, sleep=clock.sleep, name=DAEMON_LOCK
    ):
        running = Running(
            config,
            load=lambda: load(call, reread=True),
            state_dir=state_dir,
            clock=clock,
            out=sys.stderr,
            form=log_format,
            host=call.host,
        )
        status = running.once() if once else running.stay(signal.SIGTERM, signal.SIGINT, reload=signal.SIGHUP)
        if call.json:
            dump(running.status())
    if status is Exit.HALTED:
        raise Halted("all log dirs are offline", hint="logagent check says why; health.on_all_offline can make it wait")
    call.record_status(status)
    cleanup = running.daemon.last.get("cleanup")
    if once and cleanup is not None and not cleanup.assignments.usable:
        # A daemon waits for a file that does not exist yet; this is a single command, which did nothing without it.
        unusable = unusable_file(call, [cleanup.assignments.problem or ""])
        if unusable is not None:
            raise unusable


def answering(config: RunConfig) -> dict[str, LogDirSeen | None]:
    """What the log dirs are now: a disk that already hangs must not keep the daemon from starting.

    Each is read by a child. A thread would do unless started as root: `setresuid` waits for every thread, and a
    thread stuck in a call to a dead disk never answers.
    """
    paths = config.target.log_dirs
    children = {path: Child(partial(_pickled, path)) for path in paths}
    deadline = time.monotonic() + config.settings.health.probe_timeout / 1000
    statuses: dict[str, LogDirSeen | None] = dict.fromkeys(paths)
    for path, child in children.items():
        with suppress(OSError):  # TimeoutError is one, too
            statuses[path] = pickle.loads(child.answer(max(0.0, deadline - time.monotonic())))
    return statuses


def _pickled(path: str) -> bytes:
    return pickle.dumps(stat_directory(path))


def load(call: Call, *, reread: bool = False) -> RunConfig:
    """The configuration to run with. Raises ConfigError. `reread`: from the files as they are now."""
    call.loaded_settings = None if reread else _loaded_in_child(call.config_file)
    settings = call.settings()
    loaded = call.loaded_settings
    return RunConfig(settings, named_target(settings, call.log_dirs), loaded.file if loaded is not None else None)


def _loaded_in_child(file: str | None) -> Loaded:
    """The settings, read by a child that takes pydantic with it when it ends: 6 MB for as long as the daemon lives. A
    reload comes when there are threads, and no fork should read files beside them: it imports pydantic here."""
    try:
        return work_in_child(partial(load_settings, file), _LOADING_SECONDS)
    except OSError:  # there is no process to be had, or the disk is slow
        return load_settings(file)
