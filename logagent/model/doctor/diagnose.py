"""`logagent doctor`: from what was seen of a host to what works, what does not yet, and the exact line to change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from logagent.model.doctor.daemon import daemon, metrics, siblings, state_dir
from logagent.model.doctor.facts import BrokerLook, ConfigLook, DoctorFacts, HolderLook
from logagent.model.doctor.finding import Area, Change, DoctorFinding, State, fails, info, toml_change, warning, works
from logagent.model.doctor.rights import rights
from logagent.model.doctor.service import service
from logagent.model.doctor.storage import files, log_dirs
from logagent.model.health.kafka_version import version_text
from logagent.model.records import HolderState

# What a broker's command line may set without our reading anything wrong from its file.
_HARMLESS_PREFIXES = ("listeners", "advertised.", "ssl.", "sasl.", "num.", "socket.", "zookeeper.", "metric", "auto.")
_HELD = (HolderState.HELD, HolderState.STARTING)


def diagnose(facts: DoctorFacts) -> tuple[DoctorFinding, ...]:
    """Every finding, by area: what works too, so that a person sees what was looked at."""
    parts: Iterable[Iterator[DoctorFinding]] = (
        configuration(facts),
        brokers(facts),
        rights(facts),
        log_dirs(facts),
        files(facts),
        service(facts),
        daemon(facts),
        state_dir(facts),
        assignments(facts),
        metrics(facts),
        siblings(facts),
    )
    return tuple(finding for part in parts for finding in part)


def configuration(f: DoctorFacts) -> Iterator[DoctorFinding]:
    c = f.config
    path = c.file or c.default
    for problem in c.problems:
        yield fails(Area.CONFIGURATION, "configuration", path, problem, c.hint or "mend it and run doctor again")
    if c.kafka_config is None:
        if not c.log_dirs_named:
            yield from _which_broker(f.brokers, c)
        return
    if not c.problems:
        mode = "reports what it would do" if c.mode == "report" else "acts (cleanup.mode is enforce)"
        yield works(Area.CONFIGURATION, "configuration", path, f"{c.file or 'the defaults'}; the daemon {mode}")
    chosen = next((b for b in f.brokers if b.chosen), None)
    how = "named" if c.named else f"found: {chosen.how}" if chosen is not None else "found"
    yield works(Area.CONFIGURATION, "server-properties", c.kafka_config, f"the broker's configuration ({how})")
    for b in f.brokers:
        if not b.chosen and b.candidate:
            yield info(
                Area.CONFIGURATION,
                "other-broker",
                b.config,
                f"another configuration of a broker on this host: {b.how}",
                f"its log dirs are none of this agent's: it needs an instance of its own, {_instance_of(b)}",
            )


def _which_broker(found: Iterable[BrokerLook], c: ConfigLook) -> Iterator[DoctorFinding]:
    """No broker was named, and none or several were found: one finding for each, with the line that picks it."""
    candidates = [b for b in found if b.candidate]
    if not candidates:
        yield fails(
            Area.CONFIGURATION,
            "broker-not-found",
            c.file or c.default,
            "no broker was found: none runs, no unit starts one, and no usual place has a server.properties",
            "name it, or the log dirs with --log-dir DIR",
            toml_change(c, "kafka.config", "/path/to/server.properties"),
        )
    for b in candidates:
        if len(candidates) > 1 or c.instance is not None:
            yield fails(
                Area.CONFIGURATION,
                "broker-ambiguous",
                b.config,
                f"one of {len(candidates)} brokers on this host: {b.how}",
                "say which one is meant; logagent@NAME with /etc/logagent/NAME.toml serves one broker of several",
                toml_change(c, "kafka.config", b.config),
            )


def _instance_of(b: BrokerLook) -> str:
    name = "second" if b.unit is None else b.unit.removesuffix(".service").replace("@", "-")
    return f"such as logagent@{name} with /etc/logagent/{name}.toml"


def brokers(f: DoctorFacts) -> Iterator[DoctorFinding]:
    if f.config.kafka_config is None and not f.log_dirs:
        return
    for holder in f.holders:
        yield from _holder(f, holder)
    if not f.holders:
        yield from _no_holder(f)
    known = f.kafka_version
    if known.version is None:
        yield warning(
            Area.BROKER,
            "version-unknown",
            f.config.kafka_config or "",
            "the version of Kafka was not found, so the rules of the oldest supported one hold: nothing is set aside in"
            " the log dirs",
            "name it; it is found by itself from the jars of the running broker, of the installation that"
            " server.properties lies in, or of the one that the broker's unit starts",
            toml_change(f.config, "kafka.version", "3.9.1"),
        )
    else:
        least = " or later" if known.exact is None else ""
        says = f"Kafka {version_text(known.version)}{least} ({known.says()})"
        yield works(Area.BROKER, "version", f.config.kafka_config or "", says)
        if known.contradicted is not None:
            yield warning(
                Area.BROKER,
                "version-contradicted",
                f.config.kafka_config or "",
                f"kafka.version is {version_text(known.contradicted)}, but {known.says()} are"
                f" {version_text(known.version)}",
                "the running broker counts, but as soon as it is stopped kafka.version does",
                toml_change(f.config, "kafka.version", version_text(known.version)),
            )
    if f.cluster_id is not None and not f.cluster_problems:
        yield works(Area.BROKER, "cluster", "", f"node {f.node_id} of cluster {f.cluster_id}")
    for problem in f.cluster_problems:
        yield fails(
            Area.BROKER,
            "cluster",
            "",
            problem,
            "nothing is acted on while it is unclear whose log dirs these are: compare meta.properties of every log dir"
            " with node.id in server.properties",
        )


def _holder(f: DoctorFacts, h: HolderLook) -> Iterator[DoctorFinding]:
    held = [d.path for d in f.log_dirs if d.pid == h.pid]
    who = f"process {h.pid} ({h.command}) of user {h.user or h.uid}"
    where = ", ".join(held)
    if not h.kafka:
        yield fails(
            Area.BROKER,
            "other-holder",
            where,
            f"{who} has the lock, or files open, and is no Kafka broker that can be told",
            "end it, or name the right log dirs: nothing is done in a log dir that a stranger works in",
        )
    elif h.ours is False:
        yield fails(
            Area.BROKER,
            "other-config",
            where,
            f"{who} holds it, and runs with {h.config}, not with {f.config.kafka_config}",
            "name the configuration that the broker of these log dirs runs with",
            toml_change(f.config, "kafka.config", h.config or ""),
        )
    else:
        yield works(Area.BROKER, "broker", where, f"{who} holds {len(held)} of {len(f.log_dirs)} log dirs")
    for pair in h.overrides:
        key = pair.partition("=")[0]
        if not key.startswith(_HARMLESS_PREFIXES):
            yield fails(
                Area.BROKER,
                "broker-overrides",
                f.config.kafka_config or where,
                f"process {h.pid} was started with --override {pair}, which only its command line tells",
                "logagent reads the file: write it there, and start the broker without the override",
                Change(line=pair, file=h.config or f.config.kafka_config, then="restart the broker"),
            )


def _no_holder(f: DoctorFacts) -> Iterator[DoctorFinding]:
    nameless = next((d for d in f.log_dirs if d.holder in _HELD), None)
    running = next((b for b in f.brokers if b.chosen and b.pid is not None), None)
    if nameless is not None:
        yield warning(
            Area.BROKER,
            "holder-nameless",
            nameless.path,
            "it is held by a process that has no number here (a container, or another host over the network)",
            "run logagent where the broker runs: what it has open cannot be seen from here",
        )
    elif running is not None and f.log_dirs:
        yield fails(
            Area.BROKER,
            "broker-elsewhere",
            running.config,
            f"process {running.pid} runs with this configuration, but holds none of its log dirs",
            "it was started before the file was changed, still starts, or gave them all up: look at its log",
        )
    elif f.log_dirs:
        yield info(Area.BROKER, "broker", f.config.kafka_config or "", "no broker holds a log dir: it is stopped", "")


def assignments(f: DoctorFacts) -> Iterator[DoctorFinding]:
    a = f.assignments
    if a is None:
        return
    if a.usable:
        age = "" if a.age_seconds is None else f", {a.age_seconds:.0f} s old"
        yield works(Area.ASSIGNMENTS, "assignments", a.source, f"{a.partitions} partitions from {a.source}{age}")
    for problem in a.problems if a.usable else ():
        if a.bootstrap_set or not problem.startswith("admin:"):
            yield info(Area.ASSIGNMENTS, "assignments-other", problem.partition(":")[0], problem, "")
    if not a.usable:
        yield _no_assignments(f)


def _no_assignments(f: DoctorFacts) -> DoctorFinding:
    a = f.assignments
    assert a is not None
    says = f"no source can be used, so every verdict is unknown and nothing is an orphan: {'; '.join(a.problems)}"
    stale = a.age_seconds is not None and a.age_seconds > a.max_age_seconds
    if a.empty and not stale:
        hint = 'an empty answer is never taken for "all orphans"; it is usable as soon as the cluster has a topic'
        return warning(Area.ASSIGNMENTS, "assignments-empty", a.source, says, hint)
    if a.stopped and (stale or a.bootstrap_set or a.kraft):
        hint = "that is so while the broker is stopped; `logagent assignments export` on another host of the cluster"
        hint += " gives a file for --assignments"
        return warning(Area.ASSIGNMENTS, "assignments-stopped", a.source, says, hint)
    if a.bootstrap_set or a.bootstrap is None:
        hint = "see what is wrong with each source (logagent assignments show -v)"
        return fails(Area.ASSIGNMENTS, "assignments-none", a.source, says, hint)
    hint = "let it ask the cluster"
    if a.secure:
        hint += "; its listener wants security settings too: a client properties file, named as kafka.client"
    return fails(
        Area.ASSIGNMENTS,
        "assignments-none",
        a.source,
        says,
        hint,
        toml_change(f.config, "kafka.bootstrap_servers", a.bootstrap),
    )


def exit_config(facts: DoctorFacts) -> bool:
    """Whether the configuration is wrong or ambiguous (exit status 78)."""
    c = facts.config
    return bool(c.problems) or (c.kafka_config is None and not c.log_dirs_named)


def any_fails(findings: Iterable[DoctorFinding]) -> bool:
    """Whether something does not work (exit status 1)."""
    return any(finding.state is State.FAILS for finding in findings)
