"""What doctor finds around the daemon: its status, the state dir, the metrics port, other instances."""

from __future__ import annotations

import json
from collections.abc import Iterator

from logagent.model.doctor.facts import DoctorFacts
from logagent.model.doctor.finding import (
    Area,
    Change,
    DoctorFinding,
    fails,
    info,
    shell_word,
    toml_change,
    warning,
    works,
)


def daemon(f: DoctorFacts) -> Iterator[DoctorFinding]:
    d = f.daemon
    if d is None:
        return
    if d.state == "running":
        ours = {path.rstrip("/") for path in (x.path for x in f.log_dirs)}
        theirs = None if d.log_dirs is None else {path.rstrip("/") for path in d.log_dirs}
        if theirs is not None and ours and theirs != ours:
            yield fails(
                Area.DAEMON,
                "other-daemon",
                d.socket,
                f"the daemon there (process {d.pid}) serves {', '.join(sorted(theirs)) or 'no log dir'}: not the log"
                " dirs of this configuration",
                "name the state dir of the daemon that is meant (--state-dir), or reload it: its configuration changed",
            )
        else:
            yield works(Area.DAEMON, "daemon", d.socket, f"process {d.pid} runs and answers")
    elif d.state == "refused":
        hint = "run doctor as root or as the daemon's user"
        yield info(Area.DAEMON, "daemon-closed", d.socket, f"its daemon may not be asked: {d.detail}", hint)
    elif d.state == "silent":
        says = f"a daemon is there, but does not answer: {d.detail}"
        yield fails(Area.DAEMON, "daemon-silent", d.socket, says, "look at its log; its watchdog restarts it, too")
    else:
        yield info(Area.DAEMON, "daemon-stopped", d.socket, "no daemon runs with this state dir", "")


def state_dir(f: DoctorFacts) -> Iterator[DoctorFinding]:
    s = f.state
    if s is None:
        return
    found = list(_state_problems(f))
    if not found:
        what = "the journal is there" if s.journal else "the first command that acts makes the journal there"
        found = [works(Area.STATE_DIR, "state-dir", s.path, what)]
    yield from found
    if s.service_path is not None and s.service_path != s.path:
        says = f"{f.service.unit if f.service else 'the service'} keeps its journal in {s.service_path}, not here"
        yield info(Area.STATE_DIR, "other-state-dir", s.path, says, f"add --state-dir {s.service_path}")


def _state_problems(f: DoctorFacts) -> Iterator[DoctorFinding]:
    s, name = f.state, f.subject.name
    assert s is not None
    if s.in_log_dir is not None:
        yield fails(
            Area.STATE_DIR,
            "state-in-log-dir",
            s.path,
            f"it lies in the log dir {s.in_log_dir}, where no broker would start with it",
            "name a state dir elsewhere with --state-dir",
        )
    if s.access is not None and s.access.lacks is not None and not (s.made_by_unit and not s.exists):
        at = s.access.at or s.path
        says = (
            f"user {name} lacks {s.access.lacks} permission on {at} (owner {s.access.owner}): nothing is done without"
        )
        says += " a journal"
        path = shell_word(s.path)
        change = Change(line=f"install -d -m 0750 -o {name} {path}" if not s.exists else f"chown -R {name} {path}")
        yield fails(Area.STATE_DIR, "state-closed", s.path, says, "give it to the user that the agent runs as", change)
    if s.full:
        says = "its file system has no free block: nothing is done while the journal cannot be written"
        yield fails(Area.STATE_DIR, "state-full", s.path, says, "make room there")
    if s.journal_schema is not None and s.journal_schema > s.known_schema:
        yield fails(
            Area.STATE_DIR,
            "journal-newer",
            s.path,
            f"its journal was written by a newer logagent (schema {s.journal_schema}; this one knows {s.known_schema})",
            "install that version again",
        )
    if s.foreign:
        yield warning(
            Area.STATE_DIR,
            "journal-of-others",
            s.path,
            f"its journal also tells of log dirs that are none of this broker's: {', '.join(s.foreign[:4])}",
            "one state dir for each broker: the blast radius counts over all that a journal holds",
        )


def metrics(f: DoctorFacts) -> Iterator[DoctorFinding]:
    p = f.port
    if p is None:
        return
    if p.problem is None or p.ours:
        says = "the daemon offers its metrics there" if p.ours else "free for the metrics"
        yield works(Area.METRICS, "metrics", p.listen, says)
        return
    host = p.listen.rpartition(":")[0]
    better = f"{host if p.problem != 'not-local' else '127.0.0.1'}:{p.next_free}"
    words = {
        "taken": f"the port is taken{f' by {p.by}' if p.by else ''}",
        "not-local": "this host has no such address",
        "not-permitted": f"user {f.subject.name} may not use a port that low",
    }
    yield fails(
        Area.METRICS,
        f"port-{p.problem}" if p.problem in words else "port",
        p.listen,
        words.get(p.problem, p.problem),
        "take another one",
        toml_change(f.config, "metrics.listen", better) if p.next_free is not None else None,
    )


def siblings(f: DoctorFacts) -> Iterator[DoctorFinding]:
    others = [b.config for b in f.brokers if b.candidate and not b.chosen]
    for s in f.siblings:
        if s.log_dirs:
            line = f"config = {json.dumps(others[0])}" if len(others) == 1 else None
            yield fails(
                Area.INSTANCES,
                "shared-log-dirs",
                s.file,
                f"it serves the same log dirs as this one: {', '.join(s.log_dirs)}",
                "one instance for one broker: take one of the two away, or name its own broker in it",
                Change(line=line, file=s.file, number=s.number, section="kafka") if line is not None else None,
            )
        if s.listen:
            free = f.port.next_free if f.port is not None and f.port.next_free is not None else 9641
            host = f.port.listen.rpartition(":")[0] if f.port is not None else "127.0.0.1"
            yield fails(
                Area.INSTANCES,
                "shared-port",
                s.file,
                f"it offers its metrics at the same address as this one, {f.port.listen if f.port else ''}",
                "give each instance a port of its own",
                toml_change(f.config, "metrics.listen", f"{host}:{free}"),
            )
        if s.problem is not None:
            yield info(Area.INSTANCES, "instance-wrong", s.file, s.problem, f"logagent doctor --config {s.file}")
