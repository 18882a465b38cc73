"""`logagent doctor`: turns facts about a host into what works, what does not yet, and the exact line to change.

Whether the daemon's unit hides what the daemon must see, or blocks what it must write to, and what else it needs: its
state dir, the metrics port, no other instance on the same log dirs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from shlex import quote

from logagent.advice.check.rules.start_facts import CHANGED_HINT, concerns_us
from logagent.advice.finding import Area, Finding, Remedy, Severity, fatal, info, warning, works
from logagent.base.errors import way_back
from logagent.base.kafka_version import version_text
from logagent.base.records import Holder, Reason
from logagent.base.units import counted
from logagent.kafka.identity import why_no_broker
from logagent.kafka.image import Source
from logagent.service.doctor.rules.host import (
    AssignmentsFacts,
    BrokerFacts,
    ConfigFacts,
    DoctorFacts,
    HolderFacts,
    ServiceFacts,
    files,
    log_dirs,
    rights,
    toml_change,
    unit_change,
    unit_word,
)
from logagent.service.setup.rules import CONFIG_VARIABLE
from logagent.verdict.brokers import what_helps
from logagent.verdict.clock_doubt import TRUST_CLOCK


def diagnose(facts: DoctorFacts) -> tuple[Finding, ...]:
    """All findings by area, including what works, so that operators see what was checked."""
    parts = (
        (Area.CONFIGURATION, configuration),
        (Area.BROKER, brokers),
        (Area.RIGHTS, rights),
        (Area.LOG_DIRS, log_dirs),
        (Area.FILES, files),
        (Area.SERVICE, service),
        (Area.DAEMON, daemon),
        (Area.STATE_DIR, state_dir),
        (Area.ASSIGNMENTS, assignments),
        (Area.METRICS, metrics),
        (Area.INSTANCES, siblings),
    )
    return tuple(replace(finding, area=area) for area, part in parts for finding in part(facts))


def exit_config(facts: DoctorFacts) -> bool:
    """Whether the configuration is wrong or ambiguous (exit status 78)."""
    c = facts.config
    return bool(c.problems) or (c.kafka_config is None and not c.log_dirs_named)


def configuration(f: DoctorFacts) -> Iterator[Finding]:
    c = f.config
    path = c.file or c.default
    for problem in c.problems:
        yield fatal("configuration", path, problem, c.hint or "fix it and run doctor again")
    if c.kafka_config is None:
        if not c.log_dirs_named:
            yield from _which_broker(f.brokers, c)
        return
    if not c.problems:
        mode = "only reports (cleanup.mode is report)" if c.mode == "report" else "acts (cleanup.mode is enforce)"
        yield works("configuration", path, f"{c.file or 'the defaults'}; the daemon {mode}")
    chosen = next((b for b in f.brokers if b.chosen), None)
    how = "named" if c.named else f"found: {chosen.how}" if chosen is not None else "found"
    yield works("server-properties", c.kafka_config, f"the broker's configuration ({how})")
    if not c.named and not c.log_dirs_named:
        says = "commands that act need it named: --kafka-config FILE, LOGAGENT_KAFKA__CONFIG, or this line"
        yield info("broker-unnamed", c.kafka_config, says, change=toml_change(c, "kafka.config", c.kafka_config))
    for b in f.brokers:
        if b.ignored is not None:
            says = f"process {b.pid} is not treated as a broker: {b.ignored}"
            yield info("ignored-process", b.config, says, "if it is one, name its configuration with kafka.config")
        if not b.chosen and b.candidate:
            name = "second" if b.unit is None else b.unit.removesuffix(".service").replace("@", "-")
            yield info(
                "other-broker",
                b.config,
                f"another broker configuration on this host: {b.how}",
                "this agent does not serve its log dirs: it needs its own instance, such as"
                f" logagent@{name} with /etc/logagent/{name}.toml",
            )


def _which_broker(known: Iterable[BrokerFacts], c: ConfigFacts) -> Iterator[Finding]:
    """No broker is configured, and none or several were found: a finding for each, with the line that selects it."""
    candidates = [b for b in known if b.candidate]
    if not candidates:
        # What is neither a broker's nor ignored is a controller's.
        says, hint = why_no_broker([b.config for b in known if b.ignored is None])
        change = toml_change(c, "kafka.config", "/path/to/server.properties")
        yield fatal("broker-not-found", c.file or c.default, says, hint, change=change)
    for b in candidates:
        if len(candidates) > 1 or c.instance is not None:
            yield fatal(
                "broker-ambiguous",
                b.config,
                f"one of {len(candidates)} brokers on this host: {b.how}",
                "say which one; with several brokers, logagent@NAME with /etc/logagent/NAME.toml serves one of them",
                change=toml_change(c, "kafka.config", b.config),
            )


def brokers(f: DoctorFacts) -> Iterator[Finding]:
    if f.config.kafka_config is None and not f.log_dirs:
        return
    for holder in f.holders:
        yield from _holder(f, holder)
    if not f.holders:
        yield from _no_holder(f)
    yield from _version(f)
    if f.cluster_id is not None and not f.cluster_problems:
        yield works("cluster", "", f"node {f.node_id} of cluster {f.cluster_id}")
    elif f.by_node and not f.cluster_problems:
        says = "its log dirs have no cluster.id, as brokers before 2.4 leave them: verdicts stay unknown"
        yield works("cluster", "", f"node {f.node_id}; {says}")
    elif not f.cluster_problems and f.log_dirs:
        says = "which node and cluster the log dirs belong to is unknown: verdicts stay unknown"
        yield warning("cluster", f.log_dirs[0].path, says, "logagent check says what is wrong with meta.properties")
    for path, problem in f.cluster_problems.items():
        yield fatal(
            "cluster",
            path,
            problem,
            "nothing is done until it is clear which broker these log dirs belong to: compare the meta.properties of"
            " every log dir with node.id in server.properties",
        )


def _version(f: DoctorFacts) -> Iterator[Finding]:
    known, path = f.kafka_version, f.config.kafka_config or ""
    ran = known.last_run.version
    if (seen := known.only_ran_as(f.now_ms)) is not None and ran is not None:
        says = f"{seen.fact}: the rules of the oldest supported release apply, and nothing is set aside in the log dirs"
        line = toml_change(f.config, "kafka.version", version_text(ran))
        yield warning("version-unknown", path, says, seen.hint, change=line)
    elif known.version is None:
        yield warning(
            "version-unknown",
            path,
            "the Kafka version is unknown, so the rules of the oldest supported release apply: nothing is set aside in"
            " the log dirs",
            "configure it; it is otherwise found from the jars of the running broker, of the installation that"
            " server.properties belongs to, or of the one the broker's unit starts",
            change=toml_change(f.config, "kafka.version", "3.9.1"),
        )
    else:
        least = " or later" if known.exact is None else ""
        yield works("version", path, f"Kafka {version_text(known.version)}{least} ({known.says()})")
    if (doubt := known.doubt()) is not None:
        right = known.right_setting()
        change = toml_change(f.config, "kafka.version", version_text(right)) if right is not None else None
        yield warning("version-contradicted", path, doubt.fact, doubt.hint, change=change)


def _holder(f: DoctorFacts, h: HolderFacts) -> Iterator[Finding]:
    held = [d.path for d in f.log_dirs if d.pid == h.pid]
    who = f"process {h.pid} ({h.command}) of user {h.user or h.uid}"
    where = ", ".join(held)
    if not h.kafka:
        yield fatal(
            "other-holder",
            where,
            f"{who} holds the lock or has files open, and does not look like a Kafka broker",
            "stop it, or configure the right log dirs: nothing is done in a log dir another program is using",
        )
    elif h.same_config is False:
        yield fatal(
            "other-config",
            where,
            f"{who} holds it and runs with {h.config}, not with {f.config.kafka_config}",
            "use the configuration that the broker of these log dirs runs with",
            change=toml_change(f.config, "kafka.config", h.config or ""),
        )
    else:
        yield works("broker", where, f"{who} holds {len(held)} of {counted(len(f.log_dirs), 'log dir')}")
    if h.in_doubt is not None:
        yield warning("config-changed", h.config or where, h.in_doubt, CHANGED_HINT)
    for pair in h.overrides:
        if concerns_us(pair.partition("=")[0]):
            yield fatal(
                "broker-overrides",
                f.config.kafka_config or where,
                f"process {h.pid} was started with --override {pair}, which is not in its configuration file",
                "logagent reads the file: put the setting there, and start the broker without the override",
                change=Remedy(line=pair, file=h.config or f.config.kafka_config, then="restart the broker"),
            )


def _no_holder(f: DoctorFacts) -> Iterator[Finding]:
    nameless = next((d for d in f.log_dirs if d.holder.is_broker), None)
    running = next((b for b in f.brokers if b.chosen and b.pid is not None), None)
    if nameless is not None:
        yield warning(
            "holder-nameless",
            nameless.path,
            Holder(nameless.holder).in_words,
            "run logagent where the broker runs, if that is who holds it: its open files cannot be seen from here",
        )
    elif running is not None and f.log_dirs:
        yield fatal(
            "broker-elsewhere",
            running.config,
            f"process {running.pid} runs with this configuration but holds none of its log dirs",
            "it was started before the file was changed, is still starting, or took them all offline: see its log",
        )
    elif f.log_dirs:
        yield info("broker", f.config.kafka_config or "", "no broker holds a log dir: it is stopped")


_SYSTEM = {"yes": ("/usr", "/boot", "/efi"), "full": ("/usr", "/boot", "/efi", "/etc"), "strict": ("/",)}
# What `ProtectSystem=strict` leaves writable.
_API = ("/dev", "/proc", "/sys")
_HOMES = ("/home", "/root", "/run/user")
_TMP = ("/tmp", "/var/tmp")
# Unit settings that hide the broker or parts of /proc: key, the value that works, those that do not (None: all others).
_BLINDING: tuple[tuple[str, str, tuple[str, ...] | None], ...] = (
    ("ProtectProc", "default", None),
    ("ProcSubset", "all", None),
    ("PrivateUsers", "no", None),
    ("PrivatePIDs", "no", None),
    ("DynamicUser", "no", None),
    ("RootDirectory", "", None),
    ("RootImage", "", None),
)


def service(f: DoctorFacts) -> Iterator[Finding]:
    s = f.service
    if s is None:
        if not f.config.systemd:
            return
        hint = "the commands work without it; the packages install logagent.service"
        yield info("no-service", "", "the daemon's unit is not installed", hint)
        return
    problems = [*_setup(s), *_unnamed(f, s), *_blind(s), *_paths(f, s)]
    if s.active == "failed":
        result = s.properties.get("Result", "unknown")
        status = s.properties.get("ExecMainStatus", "unknown")
        says = f"the service failed (result {result}, exit status {status})"
        change = Remedy(line=f"systemctl restart {quote(s.unit)}")
        hint = f"journalctl --unit {quote(s.unit)} says why"
        problems.append(fatal("service-failed", s.unit, says, hint, change=change))
    if not problems:
        state = s.active or "state unknown: systemd does not answer"
        yield works("service", s.unit, f"{state}; user {s.user or 'root'}; nothing in the unit blocks the agent")
    yield from problems


def _setup(s: ServiceFacts) -> Iterator[Finding]:
    """Whether the drop-in is still what `logagent setup` would write."""
    setup = s.setup
    if setup is None or setup.state == "fits":
        return
    says = {
        "missing": f"{s.unit} is not set up yet: it does not start without a drop-in",
        "differs": "it no longer fits server.properties, the broker's user, the mounts or kafka.config",
        "refused": f"it could not be written again: {setup.why}",
    }[setup.state]
    hint = f"read what `{setup.command.removesuffix(' --execute')}` shows first"
    then = f"systemctl daemon-reload && systemctl restart {quote(s.unit)}"
    change = Remedy(line=setup.command, then=then) if setup.state != "refused" else None
    yield fatal("setup-outdated" if setup.state != "missing" else "not-set-up", setup.place, says, hint, change=change)


def _unnamed(f: DoctorFacts, s: ServiceFacts) -> Iterator[Finding]:
    """The daemon does not search for a broker: where nothing names one, it does not start."""
    p, c = s.properties, f.config
    named = (
        c.named_in_file
        or CONFIG_VARIABLE in p.get("Environment", "")
        or "EnvironmentFile" in p
        or "EnvironmentFiles" in p
    )
    named = named or any(option in p.get("ExecStart", "") for option in ("--kafka-config", "--log-dir"))
    setup_names_it = s.setup is not None and s.setup.state != "fits"  # setup names it, once it is run
    if not named and not setup_names_it and c.kafka_config is not None:
        change = toml_change(c, "kafka.config", c.kafka_config)
        change = replace(change, then=f"systemctl restart {quote(s.unit)}")
        says = "nothing names the broker to the daemon: it does not start (exit status 78)"
        yield fatal("daemon-unnamed", s.unit, says, "name it", change=change)


def _blind(s: ServiceFacts) -> Iterator[Finding]:
    for key, good, bad in _BLINDING:
        value = s.properties.get(key, good)
        if value and value != good and (bad is None or value in bad):
            yield fatal(
                "unit-blinds",
                s.unit,
                f"{key}={value}: the daemon would not see the broker's real processes, users or files",
                "it does nothing without seeing them",
                change=unit_change(s, f"{key}={good}"),
            )


def _paths(f: DoctorFacts, s: ServiceFacts) -> Iterator[Finding]:
    written = [d.path for d in f.log_dirs] + [a.path for a in f.files if a.write]
    # A log dir that is listed itself is bind-mounted into the service's namespace and keeps an unmounted disk busy.
    points = {d.path: d.mount.point for d in f.log_dirs if d.mount is not None and d.mount.point != "/"}
    if f.state is not None and f.state.service_path is not None:
        written.append(f.state.service_path)
    for path in dict.fromkeys(written):
        reason, line = _blocked(s, path, points.get(path, path))
        if reason is not None:
            yield fatal(
                "unit-blocks",
                path,
                f"{reason}: {s.unit} cannot write there",
                "`logagent setup` (as root) opens what server.properties names; it leaves out system paths:"
                " open those yourself",
                change=unit_change(s, line),
            )
            continue
        seen = s.sandbox.get(path)
        if seen is not None and (seen.read_only or seen.device_read_only):
            yield fatal(
                "service-read-only",
                path,
                f"read-only for the running daemon (process {s.main_pid}), mounted at {seen.point}",
                "it was started before the path was made writable, or before its disk was mounted",
                change=Remedy(line=f"systemctl restart {quote(s.unit)}"),
            )
    if s.properties.get("PrivateTmp") in ("yes", "connected", "disconnected"):
        for path in [p for p in (f.config.kafka_config,) if p and _below(p, _TMP)]:
            says = f"PrivateTmp={s.properties['PrivateTmp']}: the daemon would not find {path}"
            yield fatal("unit-blocks", path, says, change=unit_change(s, "PrivateTmp=no"))


def _blocked(s: ServiceFacts, path: str, point: str) -> tuple[str | None, str]:
    """Why the unit makes `path` (on the mount `point`) unwritable, and the line that makes it writable."""
    p = s.properties
    open_line = f"ReadWritePaths={unit_word(f'-{point}')}"
    if p.get("PrivateTmp") in ("yes", "connected", "disconnected") and _below(path, _TMP):
        return f"PrivateTmp={p['PrivateTmp']}", "PrivateTmp=no"
    for key in ("InaccessiblePaths", "TemporaryFileSystem"):
        if _below(path, _listed(p.get(key, ""))):
            return f"{key}={p[key]}", f"{key}="
    opened = _listed(p.get("ReadWritePaths", "")) + [f"/var/lib/{d}" for d in p.get("StateDirectory", "").split()]
    home = p.get("ProtectHome", "no")
    if home in ("yes", "tmpfs") and _below(path, _HOMES):
        return f"ProtectHome={home}", "ProtectHome=no"
    best = max((len(o) for o in opened if _below(path, (o,))), default=-1)
    closed = list(_listed(p.get("ReadOnlyPaths", "")))
    if any(_below(path, (c,)) and len(c) >= best for c in closed):
        return f"ReadOnlyPaths={p['ReadOnlyPaths']}", open_line
    if best >= 0:
        return None, ""
    if home == "read-only" and _below(path, _HOMES):
        return f"ProtectHome={home}", open_line
    system = p.get("ProtectSystem", "no")
    if _below(path, _SYSTEM.get(system, ())) and not (system == "strict" and _below(path, _API)):
        return f"ProtectSystem={system}, and no ReadWritePaths= covers it", open_line
    return None, ""


def _listed(text: str) -> list[str]:
    """The paths in a unit's list, without the prefixes that systemd permits and without what follows a colon."""
    words = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', text)
    return [(quoted or plain).lstrip("-+").split(":")[0] for quoted, plain in words]


def _below(path: str, places: tuple[str, ...] | list[str]) -> bool:
    return any(path == p or path.startswith(f"{p.rstrip('/')}/") for p in places)


def daemon(f: DoctorFacts) -> Iterator[Finding]:
    d = f.daemon
    if d is None:
        return
    if d.state == "running":
        configured = {path.rstrip("/") for path in (x.path for x in f.log_dirs)}
        served = None if d.log_dirs is None else {path.rstrip("/") for path in d.log_dirs}
        if served is not None and configured and served != configured:
            yield fatal(
                "other-daemon",
                d.socket,
                f"the daemon there (process {d.pid}) serves {', '.join(sorted(served)) or 'no log dir'}, not the log"
                " dirs of this configuration",
                "give the state dir of the right daemon (--state-dir), or reload it if its configuration changed",
            )
        else:
            yield works("daemon", d.socket, f"process {d.pid} is running and answers")
        if d.clock_doubt is not None:
            says = f"it does nothing that depends on an age: {d.clock_doubt}"
            yield warning("clock-doubted", d.socket, says, TRUST_CLOCK)
        if d.reload_failed is not None:
            says = f"it runs with its configuration of before; the last reload failed: {d.reload_failed}"
            hint = "mend the configuration and reload it (systemctl reload logagent)"
            yield warning("reload-failed", d.socket, says, hint)
        for why in d.failing:
            yield warning(
                "daemon-failing", d.socket, f"its last {why}", "logagent status shows it, and its log the first"
            )
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
    problems = list(_state_problems(f))
    if not problems:
        what = "the journal exists" if s.journal else "the first command that acts creates the journal"
        problems = [works("state-dir", s.path, what)]
    yield from problems
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
        lacks = f"user {name} lacks {s.access.lacks} permission on {at} (owner {s.access.owner})"
        give = f"chown -R {quote(name)}" if s.exists else f"install -d -m 0750 -o {quote(name)}"
        change = Remedy(line=f"{give} {quote(s.path)}")
        says = f"{lacks}: nothing is done without a journal"
        yield fatal("state-closed", s.path, says, "give it to the user the agent runs as", change=change)
    if s.access is not None and not s.access.answered:
        says = f"it did not answer in time, so what user {name} may do there is unknown"
        yield warning("state-closed", s.path, says, "see whether its disk works (dmesg), and run doctor again")
    yield from (Finding(Severity.FATAL, s.path, why) for why in s.refused)
    if s.full:
        says = "its file system is full: nothing is done while the journal cannot be written"
        change = Remedy(
            line=f"install -d -m 0750 -o {quote(name)} /run/logagent\nlogagent rescue --state-dir /run/logagent",
            then="what its plan offers makes room: add --execute to it, and the --approve PLAN_ID that it names",
        )
        yield fatal("state-full", s.path, says, "free space there with a journal in memory", change=change)
    elif s.no_reserve:
        says = "it has no journal.reserve, and no room for one: once its disk is full nothing may be removed any more"
        yield warning("no-reserve", s.path, says, "free some space there, or use a state dir on another disk")
    if s.journal_schema is not None and s.journal_schema > s.known_schema:
        yield fatal(
            "journal-newer",
            s.path,
            f"its journal was written by a newer logagent (schema {s.journal_schema}; this one knows {s.known_schema})",
            way_back(s.path),
        )
    if s.journal_schema is not None and 0 < s.journal_schema < s.known_schema:
        yield fatal(
            "journal-older",
            s.path,
            "its journal was written by a build from before the first release (schema"
            f" {s.journal_schema}; this one reads {s.known_schema})",
            "install that build again, or move the journal away: its undo information is lost with it",
        )
    if s.forgotten is not None:
        says = f"{s.forgotten.fact}: restores and removals that depend on it wait"
        yield warning("log-dir-forgotten", s.path, says, s.forgotten.hint)
    if s.foreign:
        yield warning(
            "journal-of-others",
            s.path,
            f"its journal also has entries about log dirs of another broker: {', '.join(s.foreign[:4])}",
            "use one state dir per broker: the blast radius counts everything in a journal",
        )


def assignments(f: DoctorFacts) -> Iterator[Finding]:
    a = f.assignments
    if a is None:
        return
    if a.log_doubt is not None:
        yield _log_doubt(f, a.log_doubt)
    yield from _admin(f, a)
    if a.ends_at_stop is not None and not a.empty:
        yield warning("assignments-stopped", a.source, a.ends_at_stop, what_helps(a.asked))
        return
    if a.usable and not (a.log_doubt is not None and a.log_doubt.code != "all" and a.source is Source.KRAFT_LOG):
        age = "" if a.age_seconds is None else f", {round(a.age_seconds)} s old"
        yield works("assignments", a.source, f"{counted(a.partitions, 'partition')} from {a.source}{age}")
    for problem in a.problems if a.usable else ():
        if a.log_doubt is not None and problem.startswith("kraft-log:"):
            continue
        if not problem.startswith("admin:"):
            yield info("assignments-other", problem.partition(":")[0], problem)
    if not a.usable:
        yield _no_assignments(f)


def _admin(f: DoctorFacts, a: AssignmentsFacts) -> Iterator[Finding]:
    """Whether the address, the file of kafka.client and the rights are right shows only when a broker answers."""
    if a.untried and a.bootstrap_set:
        says = "kafka.client is set, but assignments.sources lacks admin: no broker was asked"
        says += ", and whether it works is not known"
        yield info("admin-untried", Source.ADMIN, says, "add admin to assignments.sources, and doctor asks")
    elif a.untried:
        says = "kafka.client is set, but no address to try it with: whether it works is not known"
        change = toml_change(f.config, "kafka.bootstrap_servers", a.bootstrap) if a.bootstrap is not None else None
        yield info("admin-untried", Source.ADMIN, says, "set kafka.bootstrap_servers, and doctor asks", change=change)
    if a.asked is not None and a.no_answer is not None:
        yield warning("admin", Source.ADMIN, a.no_answer.fact, a.no_answer.hint)
    elif a.asked is not None and a.answered_as is not None:
        yield works("admin", Source.ADMIN, f"{a.asked} answered as {a.answered_as}")


def _log_doubt(f: DoctorFacts, doubt: Reason) -> Finding:
    a = f.assignments
    assert a is not None
    if doubt.code == "all":
        return info("metadata-log", Source.KRAFT_LOG, doubt.fact, doubt.hint)
    change = None
    if not a.bootstrap_set and a.bootstrap is not None:
        change = toml_change(f.config, "kafka.bootstrap_servers", a.bootstrap)
    return warning("metadata-log", Source.KRAFT_LOG, doubt.fact, doubt.hint, change=change)


def _no_assignments(f: DoctorFacts) -> Finding:
    a = f.assignments
    assert a is not None
    says = f"no usable source, so every verdict is unknown and nothing is an orphan: {'; '.join(a.problems)}"
    stale = a.age_seconds is not None and a.age_seconds > a.max_age_seconds
    if a.empty and not stale:
        hint = 'an empty answer is never taken to mean "all orphans"; it is usable once the cluster has a topic'
        return warning("assignments-empty", a.source, says, hint)
    if a.not_our_lineage:
        hint = "bring the true metadata back, or say as described that this is it; nothing is an orphan until then"
        return fatal("assignments-none", a.source, says, hint)
    if a.stopped and (stale or a.bootstrap_set or a.kraft):
        hint = "expected while the broker is stopped; `logagent assignments export` on another host of the cluster"
        hint += " writes a file for --assignments"
        return warning("assignments-stopped", a.source, says, hint)
    if a.bootstrap_set or a.bootstrap is None:
        hint = "logagent assignments show -v says what is wrong with each source"
        return fatal("assignments-none", a.source, says, hint)
    hint = "let logagent ask the cluster"
    if a.secure:
        hint += "; its listener also needs security settings: a client properties file, set as kafka.client"
    return fatal(
        "assignments-none", a.source, says, hint, change=toml_change(f.config, "kafka.bootstrap_servers", a.bootstrap)
    )


def metrics(f: DoctorFacts) -> Iterator[Finding]:
    p = f.port
    if p is None:
        return
    if p.problem is None or p.by_daemon:
        says = "the daemon serves its metrics there" if p.by_daemon else "free for the metrics"
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
                change=Remedy(line=line, file=s.file, number=s.number, section="kafka") if line is not None else None,
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
