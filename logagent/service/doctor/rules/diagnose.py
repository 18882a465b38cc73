"""`logagent doctor`: turns facts about a host into what works, what does not yet, and the exact line to change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from logagent.advice.check.rules.start_facts import concerns_us
from logagent.advice.finding import Area, Change, Finding, fatal, info, warning, works
from logagent.base.kafka_version import version_text
from logagent.base.records import Holder, HolderState, LogDoubt
from logagent.kafka.image import Source
from logagent.service.doctor.rules.facts import BrokerFacts, ConfigFacts, DoctorFacts, HolderFacts
from logagent.service.doctor.rules.service import daemon, metrics, service, siblings, state_dir
from logagent.service.doctor.rules.storage import files, log_dirs, rights, toml_change
from logagent.verdict.answerer import WHAT_HELPS

_HELD = (HolderState.HELD, HolderState.STARTING)


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
            yield info(
                "other-broker",
                b.config,
                f"another broker configuration on this host: {b.how}",
                f"this agent does not serve its log dirs: it needs its own instance, {_instance_of(b)}",
            )


def _which_broker(known: Iterable[BrokerFacts], c: ConfigFacts) -> Iterator[Finding]:
    """No broker is configured, and none or several were found: a finding for each, with the line that selects it."""
    candidates = [b for b in known if b.candidate]
    if not candidates:
        yield fatal(
            "broker-not-found",
            c.file or c.default,
            "no broker found: none is running, no unit starts one, and no usual place has a server.properties",
            "configure its server.properties, or name the log dirs with --log-dir DIR",
            change=toml_change(c, "kafka.config", "/path/to/server.properties"),
        )
    for b in candidates:
        if len(candidates) > 1 or c.instance is not None:
            yield fatal(
                "broker-ambiguous",
                b.config,
                f"one of {len(candidates)} brokers on this host: {b.how}",
                "say which one; with several brokers, logagent@NAME with /etc/logagent/NAME.toml serves one of them",
                change=toml_change(c, "kafka.config", b.config),
            )


def _instance_of(b: BrokerFacts) -> str:
    name = "second" if b.unit is None else b.unit.removesuffix(".service").replace("@", "-")
    return f"such as logagent@{name} with /etc/logagent/{name}.toml"


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
    if known.version is None:
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
        yield works("broker", where, f"{who} holds {len(held)} of {len(f.log_dirs)} log dirs")
    for pair in h.overrides:
        if concerns_us(pair.partition("=")[0]):
            yield fatal(
                "broker-overrides",
                f.config.kafka_config or where,
                f"process {h.pid} was started with --override {pair}, which is not in its configuration file",
                "logagent reads the file: put the setting there, and start the broker without the override",
                change=Change(line=pair, file=h.config or f.config.kafka_config, then="restart the broker"),
            )


def _no_holder(f: DoctorFacts) -> Iterator[Finding]:
    nameless = next((d for d in f.log_dirs if d.holder in _HELD), None)
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


def assignments(f: DoctorFacts) -> Iterator[Finding]:
    a = f.assignments
    if a is None:
        return
    if a.log_doubt is not None:
        yield _log_doubt(f, a.log_doubt)
    if a.ends_at_stop is not None and not a.empty:
        yield warning("assignments-stopped", a.source, a.ends_at_stop, WHAT_HELPS)
        return
    if a.usable and not (a.log_doubt is not None and a.log_doubt.proves != "all" and a.source is Source.KRAFT_LOG):
        age = "" if a.age_seconds is None else f", {a.age_seconds:.0f} s old"
        yield works("assignments", a.source, f"{a.partitions} partitions from {a.source}{age}")
    for problem in a.problems if a.usable else ():
        if a.log_doubt is not None and problem.startswith("kraft-log:"):
            continue
        if a.bootstrap_set or not problem.startswith("admin:"):
            yield info("assignments-other", problem.partition(":")[0], problem)
    if not a.usable:
        yield _no_assignments(f)


def _log_doubt(f: DoctorFacts, doubt: LogDoubt) -> Finding:
    a = f.assignments
    assert a is not None
    if doubt.proves == "all":
        return info("metadata-log", Source.KRAFT_LOG, doubt.says, doubt.hint)
    change = None
    if not a.bootstrap_set and a.bootstrap is not None:
        change = toml_change(f.config, "kafka.bootstrap_servers", a.bootstrap)
    return warning("metadata-log", Source.KRAFT_LOG, doubt.says, doubt.hint, change=change)


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


def exit_config(facts: DoctorFacts) -> bool:
    """Whether the configuration is wrong or ambiguous (exit status 78)."""
    c = facts.config
    return bool(c.problems) or (c.kafka_config is None and not c.log_dirs_named)
