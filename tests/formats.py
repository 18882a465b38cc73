"""Samples of what this version writes, which every later 1.x reads: `python -m tests.formats` makes them again.

They lie in tests/fixtures/formats/1.0, are made by the commands themselves on a real broker's disk and in a store that
a Spark job has ingested, and are never made again once 1.0.0 is published: `tests/disk/test_formats.py` and
`tests/spark/test_formats.py` read them. What no command writes within a minute comes from the functions that write it.

Needs Java. Two inventories have to be of one day in UTC: not to be started right before midnight.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter

from logagent.base.config.config import as_document, load
from logagent.base.config.settings import Settings
from logagent.base.errors import Exit
from logagent.base.records import ActionKind, DirKey, Identity, Outcome
from logagent.base.units import instant
from logagent.cleanup.plan.plan import plan_id
from logagent.cleanup.state.journal import Journal
from logagent.cleanup.state.journal_schema import CheckpointEntry, Intent
from logagent.cli import cli
from logagent.deletion.store.requests import (
    ControlFolder,
    Decision,
    Request,
    RequestedPartition,
    RequestedTopic,
    RequestOutcome,
    TopicOutcome,
    decide,
    write_outcome,
    write_request,
)
from logagent.fleet.demo import Fleet, generate
from logagent.fleet.documents import SCHEMAS as OF_THE_FLEET
from logagent.fleet.report.columns import json_schema
from logagent.kafka.identity import BrokerPlace
from logagent.schemas import SCHEMAS as OF_A_HOST
from logagent.service.metrics import METRICS
from logagent.store.signing import load_private_key, public_key
from logagent.verdict.clock_doubt import ClockDoubt, ClockJump, Clocks
from logagent.verdict.evidence import version_seen
from logagent.verdict.facts import SeenHolder
from tests.command_line import Ran, run_apart, run_here
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host
from tests.hosts import directory, proposal

ROOT = Path(__file__).resolve().parents[1]
FORMATS = Path(__file__).with_name("fixtures") / "formats"
SAMPLES = FORMATS / "1.0"
WRITERS = ("0.1.0", "1.0")
"""Of 0.1.0 there are only the state dir and the store, as the builds right before 1.0 left them."""
CLUSTER = "8o3B_-jNSz218yyfPu-6Pg"
NODE = 3
NOT_UTF8 = "caf\udce9-0"
"""A name with a byte that is not UTF-8, as Python and the documents have it."""
TOPIC_ID = "A" * 22
AT = 1_790_000_000_000
INTENT = Intent(
    ActionKind.MARK, "/kafka/d\udce9", NOT_UTF8, f"{NOT_UTF8}.{'0' * 32}-delete", "clicks", 0, TOPIC_ID,
    Identity(2**64 - 1, 2**63 + 5), 4096, "0123456789abcdef", "caf\u00e9", approved=True, new_dir="/kafka/d\udce9/q",
    checkpoint_entries=(CheckpointEntry("log-start-offset-checkpoint", "clicks", 0, 25),), reason="topic-absent",
    through=DirKey("/kafka/d\udce9", "clicks-0.on-its-way"), closed_cleanly=False, files=3, removal_started=False,
    segments=1, claims=(("topic-absent", "kraft-log", AT),), allocated=8192, log_bytes=4000,
)  # fmt: skip
"""What the journal is given of every kind and with every outcome, after what the commands did."""
ERROR = "caf\udce9: Input/output error"
SERVING = SeenHolder(4711, AT, AT + 500)
INCARNATION, VERSION = "Pb0u5pBPQ8mGLQ2h2C7kPQ", (3, 9, 1)
BROKERS = frozenset({BrokerPlace(1, "kafka-1", 9092)})
CLOCKS, JUMP = Clocks("boot", AT, 60_000), ClockJump(1_780_000_000_000, 3_600_000)
DOUBT = ClockDoubt("", "boot", AT, -3_600_000)
HOST = {**ALL_DUE, **NO_LIMITS, "cleanup.sightings": 1, "cleanup.min_age": "0s", "cleanup.mode": "enforce"}


def make(samples: Path) -> None:
    """Write all samples anew."""
    shutil.rmtree(samples, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="logagent-formats-") as folder:
        host = _Made(Path(folder), samples)
        host.documents_of_a_host()
        host.act()
        host.publish()
        host.ingest()
        host.requests()
        host.clean_up()
        host.rest_of_the_state()
        host.write("host.tar.xz", packed(host.state, skip=("journal.reserve", "executor.lock", "daemon.lock", "spool")))
        host.write("store.tar.xz", packed(host.store, skip=("staging",)))
        host.tables()


class _Made:
    """One host, the fleet store to which it publishes, and what its commands print."""

    def __init__(self, folder: Path, samples: Path) -> None:
        self.folder, self.samples = folder, samples
        self.store, self.key, self.reports = folder / "store", folder / "ops.key", folder / "reports"
        self.ok("topics", "keygen", str(self.key))
        self.public = load_private_key(self.key).public()
        self.store.mkdir()
        self.ok("fleet", "init", "--store", str(self.store))
        self.host = Host.from_disk(folder / "host")
        self.state = self.host.state
        Path(self.host.d1, NOT_UTF8).mkdir()
        self.configure()

    def configure(self, **settings: object) -> None:
        shared = {"publish.store": str(self.store), "orders.accept": True, "orders.keys": [self.public]}
        self.host.with_assignments(**shared, **{"metrics.listen": "", **settings})

    def ok(self, *arguments: str, status: int = 0, run: Any = run_here) -> Ran:
        ran: Ran = run(*arguments)
        if ran.status != status:
            sys.exit(f"{' '.join(arguments)} ended with {ran.status}:\n{ran.out[-600:]}{ran.err[-2000:]}")
        return ran

    def write(self, name: str, content: bytes | str) -> None:
        path = self.samples / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def document(self, name: str, *arguments: str, status: int = 0) -> Any:
        """What a command of this host prints with `--json`, as `documents/NAME.json`."""
        ran = self.ok(*self.host.arguments(*arguments, "--json"), status=status)
        self.write(f"documents/{name}.json", ran.out)
        return ran.json

    def documents_of_a_host(self) -> None:
        self.document("scan", "scan")
        self.document("check", "check")
        self.document("explain", "explain")
        self.write("documents/explain-name.json", self.ok("explain", "--names", NOT_UTF8, "--json").out)
        self.document("leave", "check", "--leave", str(self.host.d1), status=3)
        self.document("prestart", "prestart", "--dry-run", "--budget", "10m")
        self.document("doctor", "doctor")
        self.document("plan", "delete", "--topic", "clicks|x", *FREELY, status=4)
        exported = self.folder / "exported.json"
        place = ("--config", str(self.host.toml), "--state-dir", str(self.state))
        self.ok("assignments", "export", str(exported), *place)
        self.write("documents/assignments.json", exported.read_bytes())

    def publish(self) -> None:
        """Whole, and as the changes of that."""
        self.document("status", "run", "--once")
        written = min(self.host.d1.glob("orders-*/*.log"))
        os.utime(written, (1_790_000_000, 1_790_000_000))
        (self.host.d1 / "added-0").mkdir()
        self.ok(*self.host.arguments("run", "--once"))
        kinds = [json.loads(p.read_bytes())["kind"] for p in sorted(self.store.rglob(f"{NODE}/*.manifest.json"))]
        assert kinds == ["snapshot", "delta"], kinds

    def ingest(self) -> None:
        """Two dates, the first of a fleet that is made up."""
        generate(self.store, Fleet(datetime.now(UTC), clusters=1, hosts=3, partitions=90, days=2, sick=0.1, broken=0.0))
        job = ("--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=1", "--json")
        where = ("--store", str(self.store), "--report", str(self.reports), "--keep-landing", "off")
        ingested = self.ok("fleet", "ingest", *where, *job, run=run_apart)
        self.write("documents/fleet-ingest.json", ingested.out)
        self.write("documents/fleet-report.json", (self.reports / "latest/report.json").read_bytes())

    def requests(self) -> None:
        """One for directories that is carried out and closed, one that is cancelled, and one for topics."""
        place = ("--store", str(self.store), "--cluster", CLUSTER, "--key", str(self.key))
        for topic in ("returns", "invoices"):
            purge = ("topics", "purge", "--report", str(self.reports), "--topic", topic, *place, "--json")
            shown = self.ok(*purge, status=4)
            self.write("documents/topics-plans.json", shown.out)
            plan = shown.json["plans"][0]["plan_id"]
            self.ok(*purge, "--execute", "--approve", f"{plan}:only-copy", "--timeout", "0")
            if topic == "returns":
                self.configure(**NO_LIMITS, **ALL_DUE)
                self.ok(*self.host.arguments("run", "--once"))
                self.ok("topics", "run", "--once", *place)
        status = self.ok("topics", "status", *place, "--json")
        (open_one,) = (r["request_id"] for r in status.json["requests"] if r["state"] != "done")
        self.ok("topics", "cancel", open_one, *place)
        self._topics_request()
        self.write("documents/topics.json", self.ok("topics", "status", *place, "--json").out)
        self.write("orders.keys", self.public + "\n")

    def _topics_request(self) -> None:
        """As the controller writes them, which has no cluster here to ask."""
        control, key = ControlFolder(str(self.store), CLUSTER), load_private_key(self.key)
        now = datetime.now(UTC)
        topic = RequestedTopic("clicks", TOPIC_ID, (RequestedPartition(0, (1, 2, NODE)),), 4096)
        request = Request(
            CLUSTER, "topics", "0" * 16, "caf\u00e9 operator", instant(now), instant(now + timedelta(hours=24)),
            nonce="5" * 32, approvals=("limit",), topics=(topic,),
        )  # fmt: skip
        number = write_request(control, request, key)
        decision = Decision(number, CLUSTER, "delete", "operator", instant(now), topics=(topic,))
        decide(control, decision, key, (public_key(self.public),))
        result = TopicOutcome(TOPIC_ID, "deleted", "every replica is gone")
        write_outcome(control, RequestOutcome(number, CLUSTER, "operator", instant(now), topics=(result,)), key)

    def act(self) -> None:
        act = self.host.arguments
        self.configure(**NO_LIMITS)
        self.ok(*act("delete", "--topic", "clicks|plant.*", *FREELY, "--execute"))
        self.ok(*act("delete", "--partition", "x-0", "--quarantine", *FREELY, "--execute"))
        self.document("queue", "queue")
        self.ok(
            *act(
                "restore",
                *self.host.find("clicks-0.", "-delete"),
                "--leader-will-truncate",
                "--retention-will-delete",
                "--execute",
            )
        )

    def clean_up(self) -> None:
        """Set aside and removed at once."""
        self.configure(**HOST)
        self.ok(*self.host.arguments("cleanup", "--execute"), status=3)
        self.document("history", "history")

    def rest_of_the_state(self) -> None:
        """What only a running broker, a crash, a wrong clock or an older name would leave."""
        state = str(self.state)
        with Journal.open(state) as journal:
            for kind in ActionKind:
                for outcome in (None, *Outcome):
                    (number,) = journal.begin([replace(INTENT, action=kind)], AT)
                    if outcome is not None:
                        journal.finish([(number, outcome, ERROR)], AT + 500)
            journal.end_permissions({number: "it was restored"})
            journal.record_failure(INTENT.log_dir, INTENT.name, ERROR, AT)
            journal.note_serving({INTENT.log_dir: SERVING})
            journal.note_incarnation(INCARNATION, AT)
            journal.trust_clocks(CLOCKS, JUMP)
            journal.note_clock_doubt(DOUBT)
        version_seen.write_version_seen(state, CLUSTER, NODE, VERSION)
        version_seen.write_brokers_seen(state, CLUSTER, BROKERS)

    def tables(self) -> None:
        """What is promised and lies in no file: settings, exit statuses, metrics, options, schemas, ids of plans."""
        sample = (ROOT / "config/logagent.toml").read_text(encoding="utf-8")
        settings = re.sub(r"^# (\w+ = .*)$", r"\1", sample, flags=re.MULTILINE)
        settings = settings.replace("\nkeys = []", f'\nkeys = ["{self.public}", "{self.public}@{CLUSTER}:retired"]')
        self.write("settings.toml", "".join(line + "\n" for line in settings.splitlines() if line[:1] not in ("#", "")))
        (self.folder / "settings.toml").write_text(settings)
        read = as_document(load(str(self.folder / "settings.toml"), {}).settings)
        self.write("settings.json", json.dumps({"read": read, "defaults": as_document(Settings())}, indent=1) + "\n")
        self.write("exit-statuses.tsv", "".join(f"{status.value}\t{status.name}\n" for status in Exit))
        metrics = (f"{name}\t{m.type}\t{' '.join(m.labels)}\n" for name, m in sorted(METRICS.items()))
        self.write("metrics.tsv", "".join(metrics))
        self.write("options.tsv", "".join(f"{line}\n" for line in sorted(options())))
        self.write("plan-ids.json", json.dumps(plan_ids(), indent=1) + "\n")
        for name, form in {**OF_A_HOST, **OF_THE_FLEET}.items():
            self.write(f"schemas/{name}.json", json.dumps(TypeAdapter(form).json_schema()) + "\n")
        self.write("schemas/fleet-tables.json", json.dumps(json_schema()) + "\n")


def options(command: click.Command = cli, path: str = "logagent") -> Iterator[str]:
    """A line for each command and each name of an option."""
    yield path
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from (f"{path} {name}" for name in (*parameter.opts, *parameter.secondary_opts))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from options(found, f"{path} {name}")


def plan_ids() -> dict[str, str]:
    """The ids of plans with one action each, by its kind, and of one with all: an approval outlives an upgrade."""
    names = {ActionKind.REMOVE: f"orders-1.{'0' * 32}-delete", ActionKind.RESTORE: f"orders-1.{'0' * 32}-stray"}
    proposals = {
        kind.value: proposal(kind, directory(names.get(kind, "orders-1"), inode=1000 + at, topic_id=TOPIC_ID))
        for at, kind in enumerate(ActionKind)
    }
    return {name: plan_id([one]) for name, one in proposals.items()} | {"all": plan_id(proposals.values())}


def packed(folder: Path, skip: Collection[str]) -> bytes:
    """Of a folder, without what is called as in `skip`: the same content gives the same bytes."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not {*path.relative_to(folder).parts} & {*skip}:
                info = tar.gettarinfo(str(path), path.relative_to(folder).as_posix())
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                with path.open("rb") as file:
                    tar.addfile(info, file)
    return lzma.compress(raw.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def unpacked(archive: Path, to: Path) -> Path:
    """A sample that is an archive, in a new folder."""
    to.mkdir()
    with tarfile.open(archive) as tar:
        tar.extractall(to, filter="data")
    return to


if __name__ == "__main__":
    make(SAMPLES)
