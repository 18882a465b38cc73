"""The daemon and what it needs: its status, the state dir, the metrics port, other instances."""

from __future__ import annotations

import json
from collections.abc import Iterator
from shlex import quote

from logagent.model.doctor.doctor_facts import DoctorFacts
from logagent.model.doctor.fixes import toml_change
from logagent.model.finding import Change, Finding, fatal, info, warning, works


def daemon(f: DoctorFacts) -> Iterator[Finding]:
    d = f.daemon
    if d is None:
        return
    if d.state == "running":
        ours = {path.rstrip("/") for path in (x.path for x in f.log_dirs)}
        theirs = None if d.log_dirs is None else {path.rstrip("/") for path in d.log_dirs}
        if theirs is not None and ours and theirs != ours:
            yield fatal(
                "other-daemon",
                d.socket,
                f"the daemon there (process {d.pid}) serves {', '.join(sorted(theirs)) or 'no log dir'}, not the log"
                " dirs of this configuration",
                "give the state dir of the right daemon (--state-dir), or reload it if its configuration changed",
            )
        else:
            yield works("daemon", d.socket, f"process {d.pid} is running and answers")
    elif d.state == "refused":
        hint = "run doctor as root or as the daemon's user"
        yield info("daemon-closed", d.socket, f"not permitted to ask the daemon: {d.detail}", hint)
    elif d.state == "silent":
        says = f"the daemon does not answer: {d.detail}"
        yield fatal("daemon-silent", d.socket, says, "see its log; its watchdog restarts it as well")
    else:
        yield info("daemon-stopped", d.socket, "no daemon is running with this state dir")


def state_dir(f: DoctorFacts) -> Iterator[Finding]:
    s = f.state
    if s is None:
        return
    found = list(_state_problems(f))
    if not found:
        what = "the journal exists" if s.journal else "the first command that acts creates the journal"
        found = [works("state-dir", s.path, what)]
    yield from found
    if s.service_path is not None and s.service_path != s.path:
        says = f"{f.service.unit if f.service else 'the service'} keeps its journal in {s.service_path}, not here"
        yield info("other-state-dir", s.path, says, f"add --state-dir {quote(s.service_path)}")


def _state_problems(f: DoctorFacts) -> Iterator[Finding]:
    s, name = f.state, f.subject.name
    assert s is not None
    if s.in_log_dir is not None:
        yield fatal(
            "state-in-log-dir",
            s.path,
            f"it is inside the log dir {s.in_log_dir}: no broker would start with it there",
            "use a state dir elsewhere (--state-dir)",
        )
    if s.access is not None and s.access.lacks is not None and not (s.made_by_unit and not s.exists):
        at = s.access.at or s.path
        says = (
            f"user {name} lacks {s.access.lacks} permission on {at} (owner {s.access.owner}): nothing is done without"
        )
        says += " a journal"
        path = quote(s.path)
        change = Change(
            line=f"install -d -m 0750 -o {quote(name)} {path}" if not s.exists else f"chown -R {quote(name)} {path}"
        )
        yield fatal("state-closed", s.path, says, "give it to the user the agent runs as", change=change)
    if s.full:
        says = "its file system is full: nothing is done while the journal cannot be written"
        yield fatal("state-full", s.path, says, "free some space there")
    elif s.no_reserve:
        says = "it has no journal.reserve, and no room for one: once its disk is full nothing may be removed any more"
        yield warning("no-reserve", s.path, says, "free some space there, or use a state dir on another disk")
    if s.journal_schema is not None and s.journal_schema > s.known_schema:
        yield fatal(
            "journal-newer",
            s.path,
            f"its journal was written by a newer logagent (schema {s.journal_schema}; this one knows {s.known_schema})",
            "install that version again",
        )
    if s.foreign:
        yield warning(
            "journal-of-others",
            s.path,
            f"its journal also has entries about log dirs of another broker: {', '.join(s.foreign[:4])}",
            "use one state dir per broker: the blast radius counts everything in a journal",
        )


def metrics(f: DoctorFacts) -> Iterator[Finding]:
    p = f.port
    if p is None:
        return
    if p.problem is None or p.ours:
        says = "the daemon serves its metrics there" if p.ours else "free for the metrics"
        yield works("metrics", p.listen, says)
        return
    host = p.listen.rpartition(":")[0]
    better = f"{host if p.problem != 'not-local' else '127.0.0.1'}:{p.next_free}"
    words = {
        "taken": f"the port is in use{f' by {p.by}' if p.by else ''}",
        "not-local": "not an address of this host",
        "not-permitted": f"user {f.subject.name} may not use a privileged port",
    }
    yield fatal(
        f"port-{p.problem}" if p.problem in words else "port",
        p.listen,
        words.get(p.problem, p.problem),
        "use another one",
        change=toml_change(f.config, "metrics.listen", better) if p.next_free is not None else None,
    )


def siblings(f: DoctorFacts) -> Iterator[Finding]:
    others = [b.config for b in f.brokers if b.candidate and not b.chosen]
    for s in f.siblings:
        if s.log_dirs:
            line = f"config = {json.dumps(others[0])}" if len(others) == 1 else None
            yield fatal(
                "shared-log-dirs",
                s.file,
                f"it serves the same log dirs as this one: {', '.join(s.log_dirs)}",
                "use one instance per broker: remove one of the two, or configure its own broker in it",
                change=Change(line=line, file=s.file, number=s.number, section="kafka") if line is not None else None,
            )
        if s.listen:
            free = f.port.next_free if f.port is not None and f.port.next_free is not None else 9641
            host = f.port.listen.rpartition(":")[0] if f.port is not None else "127.0.0.1"
            yield fatal(
                "shared-port",
                s.file,
                f"it serves its metrics on the same address as this one, {f.port.listen if f.port else ''}",
                "give each instance its own port",
                change=toml_change(f.config, "metrics.listen", f"{host}:{free}"),
            )
        if s.problem is not None:
            yield info("instance-wrong", s.file, s.problem, f"logagent doctor --config {quote(s.file)}")
