"""Start-up problems of the log dirs themselves: disks, locks, owners and modes, checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from logagent.advice.check.rules.start_facts import PathProblem, StartFacts, StartLogDirFacts
from logagent.advice.finding import ALL, Finding, Releases, Severity, fatal, info, warning
from logagent.base.records import Denied, Health, HolderState
from logagent.kafka.node_files import CheckpointFault

SPACE_CODES = frozenset({"full", "low-space", "low-inodes"})
"""What a removal can settle."""
LOW_FRACTION = 0.02
"""Below this fraction of free blocks or inodes there is a warning."""

REPLICATION = "replication-offset-checkpoint"
LOG_START_OFFSET = "log-start-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
_SHOWN_DENIED = 3
# Observed: 2.5.1 takes a log dir offline for an out-of-range number in a checkpoint, 3.5.2 does not.
NUMBERS_PASSED_OVER = (3, 5, 0)


def check_log_dirs(facts: StartFacts) -> Iterator[Finding]:
    """Findings about each log dir by itself."""
    yield from _running(facts)
    for s in facts.log_dirs:
        if not facts.needs(s):
            continue
        if s.problem is None and not facts.about_to_start:
            yield from _place(s, facts)
        if s.problem is PathProblem.UNREADABLE:
            yield _failed(s)
        elif s.problem is PathProblem.CLOSED:
            yield from _access(s, facts) if s.denied else [_closed(s)]
        elif s.problem is None:
            yield from check_disk(s)
        if not s.answers:
            continue
        yield from _lock(s, facts)
        yield from _access(s, facts)
        yield from _not_seen(s)
        yield from _checkpoints(s)
        for name in s.leftovers:
            yield info(
                "leftover-temp-file",
                f"{s.path}/{name}",
                "logagent was killed while rewriting a checkpoint; the checkpoint itself is intact",
                "nothing to do: the broker ignores it and the next rewrite removes it",
            )


# `systemd-tmpfiles` removes what is older than 10 and 30 days there, unless a host's own settings say otherwise. It
# leaves alone what is mounted below.
_TEMPORARY = ("/tmp/", "/var/tmp/")
ROOT = "/"


def _place(s: StartLogDirFacts, facts: StartFacts) -> Iterator[Finding]:
    """Where a log dir should not be. No broker fails to start for it, so before a start it is no finding."""
    path = f"{s.canonical or s.path}/"
    mounted = s.mount_point or ROOT
    temporary = next((t.rstrip("/") for t in _TEMPORARY if path.startswith(t) and not mounted.startswith(t)), None)
    if temporary is not None:
        default = " (Kafka's default, where log.dirs is not set)" if facts.server.log_dirs_text is None else ""
        yield warning(
            "temporary-log-dir",
            s.path,
            f"it is below {temporary}{default}, from which files are removed by age, or at each boot: segments may be"
            " removed under the broker",
            "stop the broker, move the log dir to a file system of its own, and set log.dirs",
        )
    elif s.mount_point == ROOT and s.holds_logs:
        yield warning(
            "log-dir-on-root",
            s.path,
            "it is on the root file system: whatever else fills that takes the log dir offline, and what the broker"
            " writes may leave no room for the system",
            "put log dirs on file systems of their own",
        )


def _failed(s: StartLogDirFacts) -> Finding:
    return fatal(
        "log-dir-failed",
        s.path,
        f"{s.detail or 'it cannot be read'}: the broker takes the log dir offline, or does not start",
        "check the kernel log (dmesg) and repair or replace the disk; once every partition in it has another replica in"
        " sync, the broker can start without it: remove it from log.dirs",
    )


def _closed(s: StartLogDirFacts) -> Finding:
    """Rights are no fault of a disk: nobody replaces one for them."""
    return warning(
        "not-verified",
        s.path,
        f"{s.detail or 'it cannot be opened'}: what is in it, and whether its disk works, is unknown",
        "run check as root or as the broker's user",
    )


_ROOM = "free some space: logagent rescue shows what can be removed"
# A rescue finds nothing here, and what is removed by hand keeps the node from starting.
_METADATA_ROOM = (
    "free space that something else takes on this file system, or enlarge it; metadata.max.retention.bytes and"
    " metadata.max.retention.ms bound what the metadata log and its snapshots take: lower them in server.properties;"
    " never remove files of __cluster_metadata-0 by hand"
)


def check_disk(s: StartLogDirFacts) -> Iterator[Finding]:
    match s.health:
        case Health.OFFLINE if s.given_up_by is None:
            yield _failed(s)
        case Health.READ_ONLY:
            yield fatal(
                "read-only",
                s.path,
                f"{s.detail or 'its file system is read-only'}: the broker takes the log dir offline",
                "find out why (check dmesg: the kernel remounts a damaged file system read-only), then remount it",
            )
        case Health.FULL:
            yield fatal(
                "full",
                s.path,
                f"{s.detail or 'its file system is full'}: the broker takes the log dir offline on its first write, or"
                " does not start",
                _METADATA_ROOM if s.metadata_only else _ROOM,
            )
        case _:
            yield from _low_room(s)


def _low_room(s: StartLogDirFacts) -> Iterator[Finding]:
    if s.room is None:
        return
    for what, free, total in (
        ("space", s.room.free, s.room.size),
        ("inodes", s.room.inodes_free, s.room.inodes),
    ):
        if total > 0 and free < total * LOW_FRACTION:
            unit = "bytes" if what == "space" else "inodes"
            yield warning(
                f"low-{what}",
                s.path,
                f"{free} of {total} {unit} free; when none are left, the broker takes the log dir offline",
                _METADATA_ROOM if s.metadata_only else _ROOM,
            )


def _running(facts: StartFacts) -> Iterator[Finding]:
    """One finding if the broker in question is running."""
    held = [s for s in facts.log_dirs if s.holder_is_broker]
    if held and not facts.about_to_start:
        yield info(
            "broker-running",
            held[0].path,
            f"this broker is running (process {held[0].holder.pid}) and holds its log dirs; these findings are about"
            " its next start",
            "nothing to do",
        )


def _lock(s: StartLogDirFacts, facts: StartFacts) -> Iterator[Finding]:
    holder = s.holder
    if holder.shared_lock is not None:
        yield fatal(
            "lock-held",
            f"{s.path}/.lock",
            f"{holder.shared_lock} has a shared lock on it, which is no broker's: a broker started now exits at once",
            "stop that process; let only the broker's user read the log dir (chmod 0750) if it comes back",
        )
    if s.given_up_by is not None:
        yield warning(
            "given-up",
            s.path,
            f"the running broker (process {s.given_up_by}) does not hold the lock: it took this log dir offline",
            "see its server.log for the reason; only a restart brings the log dir back",
        )
    elif holder.state in (HolderState.HELD, HolderState.STARTING):
        if facts.about_to_start or not s.holder_is_broker:
            yield fatal(
                "lock-held",
                f"{s.path}/.lock",
                holder.in_words,
                "stop that process, or wait for it to exit",
            )
    elif holder.state is HolderState.HIDDEN:
        yield Finding(
            Severity.FATAL if facts.about_to_start else Severity.WARNING,
            "hidden-holder",
            s.path,
            f"{holder.detail or 'a process has files open here'}: a broker started now would share its files with it",
            "stop that process before the broker starts",
        )
    elif holder.state is HolderState.UNREADABLE:
        yield warning(
            "not-verified",
            f"{s.path}/.lock",
            f"cannot determine who holds the log dir: {holder.detail or 'unreadable'}",
            "run check as root or as the broker's user",
        )


def _access(s: StartLogDirFacts, facts: StartFacts) -> Iterator[Finding]:
    """One finding per log dir, since the owner is rarely wrong for a single file."""
    if not s.denied:
        return
    shown = "; ".join(_in_words(d) for d in s.denied[:_SHOWN_DENIED])
    more = f"; and {len(s.denied) - _SHOWN_DENIED} more" if len(s.denied) > _SHOWN_DENIED else ""
    yield fatal(
        "access-denied",
        s.denied[0].path,
        f"{facts.user} lacks access: {shown}{more}: the broker takes the log dir offline, or does not start",
        f"give the files named back to their owner (chown -R to {facts.user})",
    )


def _not_seen(s: StartLogDirFacts) -> Iterator[Finding]:
    if s.not_seen:
        yield warning(
            "not-verified",
            f"{s.path}/{s.not_seen[0]}",
            f"{len(s.not_seen)} partition directories could not be inspected from here",
            "run check as root or as the broker's user",
        )


def _in_words(d: Denied) -> str:
    return f"{d.path} ({d.wants}; owner {d.owner}:{d.group}, mode {d.mode & 0o7777:o})"


def _checkpoints(s: StartLogDirFacts) -> Iterator[Finding]:
    for name, (fault, error) in s.checkpoints.items():
        if fault is CheckpointFault.FIFO and name == CLEANER:
            says = f"{error}: the broker starts, its log cleaner waits there for ever: nothing is compacted, and a"
            says += " stop may not end"
            yield warning("broken-checkpoint", f"{s.path}/{name}", says, _AWAY)
        elif fault is not CheckpointFault.NUMBER:
            consequence = "waits there for ever" if fault is CheckpointFault.FIFO else "takes the log dir offline"
            yield _unreadable_checkpoint(s, name, f"{error}: the broker {consequence}", ALL)
        else:
            says = f"{error}: the broker takes the log dir offline"
            yield _unreadable_checkpoint(s, name, says, Releases(before=NUMBERS_PASSED_OVER))
            yield _number_out_of_range(s, name, error)


_AWAY = "move the file away while the broker is stopped; the broker recreates it"


def _unreadable_checkpoint(s: StartLogDirFacts, name: str, says: str, releases: Releases) -> Finding:
    hint = "move the file away; the broker recreates it (logs are then recovered from their start)"
    if name == LOG_START_OFFSET:
        hint = "move the file away; records deleted by deleteRecords then come back"
    return fatal("broken-checkpoint", f"{s.path}/{name}", says, hint, releases=releases)


def _number_out_of_range(s: StartLogDirFacts, name: str, error: str) -> Finding:
    severity = Severity.WARNING
    consequence = "the broker treats it as empty, recovers every log and may bring deleted records back"
    if name == CLEANER:
        consequence = "the log cleaner stops, and nothing is compacted until the next start"
    elif name == REPLICATION:
        severity, consequence = Severity.FATAL, "the broker does not serve the partitions of this log dir"
    return Finding(
        severity,
        "broken-checkpoint",
        f"{s.path}/{name}",
        f"{error}: {consequence}",
        _AWAY,
        releases=Releases(since=NUMBERS_PASSED_OVER),
    )
