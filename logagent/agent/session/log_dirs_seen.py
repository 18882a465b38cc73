"""Whether the broker's configuration still names every log dir that the state dir remembers.

A `server.properties` that is being written may be empty (then Kafka's default is in effect) or end in the middle of
`log.dirs`, and is valid all the same. What is in a log dir that is forgotten is then neither a copy nor a partition
that is current: so what rests on having seen all of them waits (`Facts.not_seen`), until the file names it again, or
the daemon is restarted (`host.state.version_seen.forget_other_log_dirs`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from shlex import quote

from logagent.agent.session.opened_log_dirs import STAT_SECONDS, LogDirs
from logagent.agent.target import Target
from logagent.errors import KafkaStorageError
from logagent.host.state.version_seen import read_log_dirs_seen, write_log_dirs_seen
from logagent.model.facts import LogDirFacts, NotSeen
from logagent.model.records import Identity


def forgotten_log_dir(
    target: Target, log_dirs: LogDirs, state_dir: str | None, looked: Mapping[str, LogDirFacts]
) -> NotSeen | None:
    """The log dir that the configuration of `target` has lost since the state dir saw it; None if it names all."""
    cluster = log_dirs.cluster
    seen = read_log_dirs_seen(state_dir, cluster.cluster_id, cluster.node_id)
    if seen.unread is not None:
        fact = f"{seen.file}, which says which log dirs this broker has, {seen.unread}"
        return NotSeen(fact, f"if {target.config or 'what is named'} has all of them, remove it")
    here = {f.directory_id for f in looked.values() if f.directory_id is not None}
    named = {*target.log_dirs, *target.left_out, *target.spared}
    lost = next((path for path in seen.left_out(named, here) if not _is_here(log_dirs, path)), None)
    if lost is None:
        return None
    if target.config is None:
        hint = "name all log dirs of the broker with --log-dir, or its configuration with --kafka-config"
        return NotSeen(f"log dir {lost} was not named", hint)
    hint = "put it back into log.dirs; if the broker really lost it, restart logagent (systemctl restart logagent)"
    hint += f", or without a daemon remove {quote(seen.file or '')}"
    return NotSeen(f"{target.config} does not name log dir {lost} any more", hint)


def _is_here(log_dirs: LogDirs, path: str) -> bool:
    """Whether it is one of the open log dirs, by another path."""
    opened = log_dirs.online()
    try:
        found = log_dirs.calls.ask(f"a look at {path}", lambda: os.stat(path), of=tuple(opened), limit=STAT_SECONDS)
    except (OSError, ValueError, KafkaStorageError):
        return False
    return Identity(found.st_dev, found.st_ino) in {d.identity for d in opened.values()}


def remember_log_dirs(log_dirs: LogDirs, state_dir: str | None, looked: Mapping[str, LogDirFacts]) -> None:
    """Of a configuration that has lost none of them."""
    cluster, target = log_dirs.cluster, log_dirs.target
    if state_dir is None or target.config is None or cluster.memory_id is None or cluster.node_id is None:
        return
    before = read_log_dirs_seen(state_dir, cluster.cluster_id, cluster.node_id).dirs
    paths = [path for path in (*target.log_dirs, *target.left_out) if path not in target.unconfigured]
    ids = {path: f.directory_id for path, f in looked.items()}
    now = {path: ids.get(path) or before.get(path) for path in paths}
    if now != before:
        write_log_dirs_seen(state_dir, cluster.memory_id, cluster.node_id, now)
