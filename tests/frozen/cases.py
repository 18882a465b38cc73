"""The cases: what is run on a scratch host, by name. `only` of the command line filters these names."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from typing import Any

from tests.frozen.hosts import DISKS, FIXTURES, ScratchHost, locked
from tests.waiting import pause, wait_until

Case = Callable[[ScratchHost], None]
CASES: dict[str, Case] = {}

ALL_DUE = {
    "cleanup.stray_retention": "0s",
    "cleanup.leftover_grace": "0s",
    "cleanup.sightings": 1,
    "cleanup.min_age": "0s",
    "delete.file_delete_delay_ms": 0,
}
NO_LIMITS = {"cleanup.max_fraction": 1.0, "cleanup.max_dirs": 1000}
# However slow the machine.
PATIENTLY: tuple[str, ...] = ("--budget", "1m")
PRESTART: tuple[str, ...] = ("prestart", "--dry-run", *PATIENTLY)
CUT = 200
FREELY = ("--allow-assigned", "--even-last-copy")

# Those with an answer beside them: what tests/damages starts from has none.
EVERY_DISK = sorted(f"{path.parent.name}/{path.name.split('.')[0]}" for path in DISKS.glob("*/*.expected.json"))
# One of each kind, for what would only be repeated on the others.
ONE_EACH = ("3.9.1/node3-dir-returned", "3.5.2-zookeeper/broker-clean", "2.5.1-zookeeper/broker-killed")
MAIN = ONE_EACH[0]


def on(*disks: str) -> Callable[[Case], Case]:
    """A case on each of these disks, or on none."""

    def add(make: Case) -> Case:
        name = make.__name__.strip("_").replace("_", "-")

        def case(host: ScratchHost, disk: str | None = None) -> None:
            if disk is not None:
                host.extract(disk)
                host.configure(NO_LIMITS)
            make(host)

        for disk in disks:
            CASES[f"{name}/{disk.replace('/', '-')}"] = lambda host, disk=disk: case(host, disk)  # type: ignore[misc]
        if not disks:
            CASES[name] = case
        return make

    return add


# What nobody's disk has to do with


@on()
def _help(host: ScratchHost) -> None:
    """Of every command and subcommand, as the help texts themselves name them."""
    left: list[tuple[str, ...]] = [()]
    while left:
        command = left.pop(0)
        out = host.run(*command, "--help", COLUMNS="80").out
        _, _, names = out.partition("\nCommands:\n")
        left += [(*command, name) for name in re.findall(r"^  ([a-z][a-z-]*)(?:  |$)", names.split("\n\n")[0], re.M)]
    host.run("--version")


@on()
def _schemas(host: ScratchHost) -> None:
    for name in host.run("schema").out.split():
        host.run("schema", name)


@on()
def _names(host: ScratchHost) -> None:
    """What Kafka itself was asked about, and what is no name at all."""
    asked = (FIXTURES / "kafka-answers" / "dir_names.jsonl").read_text().splitlines()
    names = [json.loads(line)["name"] for line in asked]
    host.run("explain", "--jsonl", "-0", "-", stdin="\0".join(n for n in names if "\0" not in n))
    for arguments in (("orders-1",), ("lost+found", "a-0.b-delete", "x-0.c-stray"), ("/data/d1/x-0-0", "--json")):
        host.run("explain", "--names", *arguments)


@on()
def _usage(host: ScratchHost) -> None:
    """Wrong usage and wrong configurations: statuses, messages, hints."""
    for arguments in (
        ("nonsense",),
        ("scan", "--nonsense"),
        ("schema", "nonsense"),
        ("delete",),
        ("restore",),
        ("explain", "--names"),
        ("history", "--limit", "0"),
        ("history", "--since", "yesterday"),
        ("rescue", "--need", "much"),
        ("prestart", "--budget", "long"),
        ("scan", "--log-dir", str(host.root / "nowhere")),
        ("scan", "--kafka-config", str(host.root / "nowhere")),
        ("scan", "--config", str(host.root / "nowhere")),
        ("topics", "status", "--store", str(host.root / "nowhere"), "--cluster", "x"),
        ("fleet", "report", "--store", "s", "--out", "o", "--max-snapshot-age", "26"),
    ):
        host.run(*arguments)
    host.toml.write_text('[cleanup]\nmode = "sometimes"\ninterval = "x"\n[nonsense]\na = 1\n[delete]\nworkers = 0\n')
    for command in (("config", "check"), ("scan",), ("doctor",), ("run", "--once")):
        host.run(*command, "--json")
        host.run(*command)


# Every disk, looked at


@on(*EVERY_DISK)
def _look(host: ScratchHost) -> None:
    """Commands that change nothing, with the assignments that the host itself has: for these disks, old ones."""
    for command in (("scan",), ("scan", "--all"), ("queue",), ("cleanup",), ("rescue",), ("check",), ("status",)):
        host.both(*command)
    for command in (("history",), ("doctor",), ("assignments", "show")):
        host.both(*command)
    host.both(*PRESTART)
    host.run("assignments", "export", "-")
    host.run("scan", "--jsonl")
    host.run("check", "--quick", "--json")
    for version in ("2.5.1", "3.5.2", "4.1.0"):
        host.run("check", "--kafka-version", version)
    host.run("config", "check")
    host.run("config", "show")


@on(*EVERY_DISK)
def _judged(host: ScratchHost) -> None:
    """With assignments of now: verdicts, what waits, and what would be refused."""
    host.with_assignments(NO_LIMITS)
    for command in (
        ("scan", "--all"),
        ("cleanup",),
        ("rescue",),
        PRESTART,
        ("assignments", "show"),
    ):
        host.both(*command)
    host.both("delete", "--topic", ".*")
    host.both("delete", "--topic", ".*", *FREELY, "--include-internal")
    host.both("delete", "--topic", ".*", "--future", *FREELY)
    host.both("restore", *host.find("", "-stray"), *host.find("", "-delete"))
    host.run("doctor")
    # Narrow tables with assignments of now only: there, an age would decide where a line is broken.
    for command in (("scan",), ("cleanup",), ("queue",), ("rescue",), ("check",)):
        host.run(*command, COLUMNS="80")


@on(*EVERY_DISK)
def _due(host: ScratchHost) -> None:
    """Nothing waits: two cleanups that act, and what they leave behind."""
    host.with_assignments(NO_LIMITS, ALL_DUE)
    for command in (("cleanup",), PRESTART, ("rescue",)):
        host.both(*command)
    host.run("cleanup", "--execute", "--json")
    host.show_disk()
    host.both("cleanup")
    host.run("cleanup", "--execute")
    host.show_disk()
    for command in (("cleanup",), ("queue",), ("scan", "--all"), ("history",)):
        host.both(*command)
    host.run("history", "--jsonl", "--limit", "3")
    host.show_journal()


# One disk of each kind: what acts


@on(*ONE_EACH)
def _gone(host: ScratchHost) -> None:
    """Every topic of the cluster was deleted since."""
    # Names that are cut at the same place are told apart by random uuids only, and are sorted by them: one of each.
    seen = set()
    for path in host.directories():
        if len(path.name) > CUT and (start := (path.parent, path.name[:CUT])) in seen:
            shutil.rmtree(path)
        elif len(path.name) > CUT:
            seen.add(start)
    host.with_assignments(NO_LIMITS, ALL_DUE, gone=True)
    host.both("scan", "--all")
    host.both("cleanup")
    host.both("rescue", "--include-internal")
    host.run("cleanup", "--execute", "--json")
    host.run("rescue", "--execute", "--json")
    approve = host.run("rescue", "--json").json["plan_id"]
    host.run("rescue", "--execute", "--approve", approve)
    host.both("history")
    host.show_disk()


@on(*ONE_EACH)
def _acts(host: ScratchHost) -> None:
    """Marked, set aside, brought back."""
    host.with_assignments(NO_LIMITS)
    topic = "orders|ledger|plant.*"
    host.run("delete", "--topic", topic, "--execute", "--json")
    host.run("delete", "--topic", "__.*", "--execute", *FREELY)
    plan = host.run("delete", "--topic", topic, "--execute", *FREELY, "--json").json["plan_id"]
    host.both("queue")
    host.both("cleanup")
    host.run("restore", "--plan", plan)
    host.run("restore", *host.find("ledger-", "-delete"), "--execute", "--json")
    host.run("restore", "--plan", plan, "--execute")
    host.run("restore", "--plan", "0000000000000000", "--json")
    host.run("delete", "--partition", "eu.west_payments-v2-0", "--quarantine", "--execute", *FREELY)
    host.run("restore", *host.find("eu.west_payments-v2-0.", "-stray"), "--execute")
    host.run("delete", "--topic", ".*", "--future", "--execute", *FREELY, "--json")
    for name in host.find("", "-stray")[:2]:
        host.run("restore", name, "--replace", "--json")
        host.run("restore", name, "--replace", "--even-last-copy", "--leader-will-truncate", "--execute", "--json")
    host.both("history")
    host.show_disk()


@on(*ONE_EACH)
def _limits(host: ScratchHost) -> None:
    """The blast radius of the defaults, and its approval."""
    host.with_assignments(ALL_DUE)
    host.run("cleanup", "--execute", "--json")
    host.both("cleanup")
    host.run("cleanup", "--execute", "--approve", "0000000000000000")
    plan = host.run("cleanup", "--json").json["plan_id"]
    host.run("cleanup", "--execute", "--approve", plan, "--json")
    host.run("delete", "--topic", ".*", *FREELY)
    host.run("delete", "--topic", ".*", *FREELY, "--execute", "--json")
    host.both("history")
    host.show_disk()


@on(*ONE_EACH)
def _held(host: ScratchHost) -> None:
    """Somebody holds the locks of the log dirs; then of one only."""
    host.with_assignments(NO_LIMITS, ALL_DUE)
    for log_dirs in (host.log_dirs(), host.log_dirs()[:1]):
        with locked(*log_dirs):
            for command in (
                ("scan",),
                ("cleanup", "--execute"),
                ("prestart", *PATIENTLY),
                ("rescue",),
                ("check",),
                ("doctor",),
            ):
                host.both(*command)
            host.both("delete", "--topic", "orders", "--execute", *FREELY)
            host.both("restore", *host.find("", "-delete"), "--execute")
            host.both("queue")
    host.show_disk()


@on(*ONE_EACH)
def _prestart(host: ScratchHost) -> None:
    host.with_assignments(NO_LIMITS, ALL_DUE)
    host.run("prestart", *PATIENTLY, "--json")
    host.run("prestart", *PATIENTLY)
    host.run("cleanup", "--execute", "--json")
    host.run("prestart", *PATIENTLY, "--json")
    host.both("history")
    host.show_disk()
    (host.log_dirs()[0] / "meta.properties").write_text("version=1\nnode.id=77\ncluster.id=another\n")
    host.run("prestart", *PATIENTLY, "--strict")
    host.run("prestart", *PATIENTLY, "--strict", "--json")
    host.run("check", "--json")


# The daemon, its metrics, and what it publishes


@on(*ONE_EACH)
def _once(host: ScratchHost) -> None:
    """One cycle that reports, one that acts and publishes; the metrics of both."""
    host.store.mkdir()
    host.run("fleet", "init", "--store", str(host.store))
    textfile = host.root / "logagent.prom"
    wanted = {**NO_LIMITS, **ALL_DUE, "metrics.textfile": str(textfile), "publish.store": str(host.store)}
    host.with_assignments(wanted)
    host.run("run", "--once", "--log-format", "json")
    host.say("metrics, cleanup.mode = report", textfile.read_text())
    host.with_assignments(wanted, {"cleanup.mode": "enforce"})
    host.run("run", "--once")
    host.run("run", "--once", "--log-format", "json")
    host.say("metrics, cleanup.mode = enforce", textfile.read_text())
    host.both("history")
    host.show_store()


@on(*ONE_EACH)
def _daemon(host: ScratchHost) -> None:
    """A daemon that has settled: its status and its metrics."""
    textfile = host.root / "logagent.prom"
    host.with_assignments(NO_LIMITS, {"metrics.textfile": str(textfile), "health.probe_interval": "1s"})
    with host.daemon("--log-format", "json"):
        settled = _wait_until(host, lambda status: _settled(status) and textfile.exists())
        marked = settled["queue"]["entries"] + 1
        # Whether the first look at the queue came before the log dirs were watched is chance, and decides when the next
        # one comes. A directory that is marked now has it look once more.
        late = host.disk / "late-0"
        late.mkdir()
        late.rename(host.log_dirs()[0] / "late-0.0123456789abcdef0123456789abcdef-delete")
        _wait_until(host, lambda status: _settled(status) and status["queue"]["entries"] == marked)
        pause(1.5, "a probe comes every second")
        host.both("status")
        host.run("doctor")
        host.run("cleanup", "--execute", "--json")
    host.run("status")
    host.say("metrics", textfile.read_text())


def _wait_until(host: ScratchHost, condition: Callable[[Any], bool]) -> Any:
    """The first status document of the daemon that fulfils it."""

    def fulfilled() -> Any:
        ran = host.quietly("status", "--json")
        return ran.json if ran.status == 0 and condition(ran.json) else None

    return wait_until(fulfilled, "the daemon settles", interval=0.2)


def _settled(status: Any) -> bool:
    """Both first cycles are over, and what is marked will be heard of."""
    over = {cycle["job"]: cycle["waiting"] for cycle in status["cycles"]}
    return (
        status["running"] is None
        and status["queue"] is not None
        and over.get("queue") == status["queue"]["entries"]
        and "cleanup" in over
        and all(log_dir["watch"] == "inotify" for log_dir in status["log_dirs"])
    )


# Disks and evidence that something is wrong with


def _sick(host: ScratchHost) -> None:
    for command in (
        ("scan", "--all"),
        ("check",),
        ("cleanup",),
        ("rescue",),
        PRESTART,
        ("doctor",),
    ):
        host.both(*command)
    host.both("delete", "--topic", ".*", *FREELY)
    host.run("cleanup", "--execute", "--json")


@on(MAIN)
def _foreign_assignments(host: ScratchHost) -> None:
    host.with_assignments(NO_LIMITS, ALL_DUE, cluster="AnotherAnotherAnotherA")
    _sick(host)


@on(MAIN)
def _damaged_assignments(host: ScratchHost) -> None:
    host.with_assignments(NO_LIMITS, ALL_DUE)
    file = host.root / "assignments.json"
    file.write_bytes(file.read_bytes()[:-300])
    _sick(host)


@on(MAIN)
def _a_log_dir_is_gone(host: ScratchHost) -> None:
    host.with_assignments(NO_LIMITS, ALL_DUE)
    shutil.rmtree(host.disk / "d2")
    for command in (("scan", "--all"), ("check",), ("cleanup",), ("rescue",), ("doctor",)):
        host.both(*command)
    host.run("cleanup", "--execute", "--json")


@on(MAIN)
def _odd_things_in_a_log_dir(host: ScratchHost) -> None:
    """Names that are none, empty directories, links, what cannot be parsed."""
    host.with_assignments(NO_LIMITS, ALL_DUE)
    d1 = host.disk / "d1"
    for name in (
        "lost+found",
        "junk",
        "orders-99",
        "-5",
        "a b-0",
        "x-0.0123456789abcdef0123456789abcdef-delete",
        "\xe9-1",
    ):
        (d1 / name).mkdir()
    (d1 / "file-0").write_text("no directory")
    (d1 / "link-0").symlink_to(host.disk / "d2")
    (d1 / "orders-99" / "partition.metadata").write_text("version: 7\ntopic_id: none")
    (d1 / "recovery-point-offset-checkpoint").write_text("0\n1\nnonsense\n")
    (host.disk / "d2" / "meta.properties").write_text("")
    _sick(host)
    host.show_disk()


@on(MAIN)
def _other_settings(host: ScratchHost) -> None:
    """Settings that change what is planned: by mode, by limits, by who may be deleted."""
    asks = (("cleanup",), PRESTART, ("rescue",))
    for settings in (
        {"cleanup.mode": "enforce"},
        {"kafka.version": "3.5.2"},
        {"kafka.version": "4.1.0"},
        {"cleanup.sightings": 2, "cleanup.min_age": "1h"},
        {"cleanup.max_dirs": 3},
    ):
        host.with_assignments(NO_LIMITS, ALL_DUE, settings)
        host.say(f"settings {settings}")
        for command in asks:
            host.run(*command, "--json")
    (host.disk / "server.properties").open("a").write("\ndelete.topic.enable=false\nlog.segment.delete.delay.ms=5\n")
    host.with_assignments(NO_LIMITS, ALL_DUE)
    host.say("delete.topic.enable=false")
    for command in asks:
        host.run(*command, "--json")
    host.run("delete", "--topic", "orders", *FREELY, "--json")
    host.run("cleanup", "--execute", "--json")
