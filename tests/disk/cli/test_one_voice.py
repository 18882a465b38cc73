"""One voice: what two commands print of one directory agrees, in verdict, bytes, date and next step.

Each command runs in a process of its own, a fork of this one; what is compared is what it prints. The short form is
the same in each run: hosts with one of each sort, in the states that were told apart. The long form draws hosts at
random, by its seed (`--hypothesis-seed`), which hypothesis prints with a failure.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import threading
import time
from contextlib import ExitStack
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from logagent.base.dir_names import classify, current_name
from logagent.base.records import Kind
from logagent.base.units import HOUR_MS, rfc3339_or_none
from logagent.kafka.image import PartitionAssignment, Topic
from logagent.store.shared import init_store
from logagent.verdict.evidence.version_seen import write_version_seen
from tests.command_line import LOCKER, process
from tests.disk.messes import SORTS, Thing, make
from tests.host import FREELY, NO_LIMITS, Host
from tests.long_form import FULL
from tests.metadata_writer import id_of
from tests.publish_host import data_files

# As a broker's command line is read, with its configuration first.
BROKER = LOCKER.replace("sys.argv[1:]", "sys.argv[3:]")
DURATIONS = st.sampled_from(["0s", "3h", "40d"])


class Said(NamedTuple):
    """What one command says of one directory; None: nothing. `goes`: when it goes. `why`: why it does not. `at`: when
    it was said."""

    verdict: str | None = None
    reason: str | None = None
    allocated: int | None = None
    goes: str | None = None
    why: str | None = None
    at: str | None = None

    @staticmethod
    def when(time: str | None) -> float:
        return datetime.fromisoformat(str(time)).timestamp()


Voice = dict[tuple[str, str], Said]


def listed(rows: list[dict[str, Any]], **more: str) -> Voice:
    """`more`: by field of `Said`, the key that has it."""
    keys = {field: field for field in Said._fields} | more
    return {(r["log_dir"], r["name"]): Said(*(r.get(keys[field]) for field in Said._fields)) for r in rows}


def of_explain(document: Any) -> Voice:
    said = {}
    for d in document["dirs"]:
        whole = d["groups"][0] if d["kind"] in ("stray", "delete") or d["verdict"] == "orphan" else {}
        goes, first = whole.get("at"), whole.get("first")
        why = first if goes is None else None
        said[d["log_dir"], d["name"]] = Said(d["verdict"], d["reason"], d["allocated"], goes, why)
    return said


def of_queue(document: Any) -> Voice:
    entries = [e | {"goes": e["due_at"] if e["waits_for"] is None else None} for e in document["entries"]]
    return listed(entries, why="waits_for")


def of_plan(document: Any, *, counts_this_look: bool = True) -> Voice:
    """`prestart` says what a start may do, for which only the looks of runs that act count; the others say what is so
    with this look: a wait for one more look is in the answer to one of the two questions only."""
    # A directory of which only some files go keeps its own size.
    acted = [a for a in document["actions"] if a["action"] not in ("drop-checkpoint-entry", "remove-leftovers")]
    acted = [a | {"reason": None} for a in acted]
    waits = [w | {"why": w["reason"] if w["until"] is None else None, "reason": None} for w in document["waiting"]]
    waits = [w for w in waits if counts_this_look or ": seen " not in str(w["why"])]
    refused = [r | {"why": r["fact"]} for r in document["refusals"] if r["name"]]
    return at(document, {**listed(waits, goes="until"), **listed(refused), **listed(acted, goes="due_at")})


def of_rescue(document: Any) -> Voice:
    kept = [
        {**k, "allocated": k["bytes"], "verdict": word, "reason": None}
        for k in document["rescue"]["kept"]
        for word in [next((v for v in ("assigned", "unknown", "orphan") if k["reason"].startswith(v)), None)]
    ]
    plan = {key: said._replace(why=None) for key, said in of_plan(document).items()}
    return listed(kept) | plan


def at(document: Any, said: Voice) -> Voice:
    return {key: each._replace(at=document["at"]) for key, each in said.items()}


def of_leave(document: Any) -> Voice:
    return listed([d | {"log_dir": document["log_dir"], "reason": None} for d in document["dirs"]])


def snapshot(host: Host) -> Voice:
    """What the daemon publishes. A key that a row has not is null."""
    store = host.root / "store"
    store.mkdir()
    init_store(str(store))
    report = {"LOGAGENT_PUBLISH__STORE": str(store), "LOGAGENT_CLEANUP__MODE": "report"}
    ran = host.spawn("run", "--once", LOGAGENT_METRICS__LISTEN="", **report)
    assert ran.status in (0, 5), ran.err
    (published,) = data_files(store, "snapshot")
    head, *rows = [json.loads(line) for line in gzip.decompress(published.read_bytes()).splitlines()]
    rows = [r | {"goes": rfc3339_or_none(r.get("due_at")), "at": head["at"]} for r in rows if r.get("row") == "dir"]
    return listed([r | {"why": r.get("obstacle_detail") if r["goes"] is None else None} for r in rows])


def voices(host: Host) -> dict[str, Voice]:
    """What each command says, by its name. `delete` and `restore` answer what would be if they were asked for it: only
    whose it is, and its bytes, are compared."""
    log_dirs = [str(path) for path in host.log_dirs]
    there = [path for log_dir in host.log_dirs for path in sorted(log_dir.iterdir()) if path.is_dir()]
    of_kind: dict[Kind, list[Path]] = {kind: [p for p in there if classify(p.name).kind is kind] for kind in Kind}
    asked: dict[str, tuple[str, ...]] = {
        "scan": (),
        "explain": (*log_dirs, "--log-dirs-only"),
        "queue": (),
        "cleanup": (),
        "rescue": (),
        "prestart": ("--dry-run", "--budget", "10m"),
        "restore": tuple(map(str, [*of_kind[Kind.STRAY], *of_kind[Kind.DELETE]])),
        "delete": named(*of_kind[Kind.CURRENT], *of_kind[Kind.STRAY]),
        "delete --future": named(*of_kind[Kind.FUTURE]),
        **{f"check --leave {log_dir}": () for log_dir in log_dirs},
    }
    asked = {name: more for name, more in asked.items() if more or name not in ("restore", "delete", "delete --future")}
    # One after the other: what another process reads just then is in use.
    printed = {name: host.fork(*name.split(), *more, "--json") for name, more in asked.items()}
    assert {ran.status for ran in printed.values()} <= {0, 3, 4, 5}, {name: ran.err for name, ran in printed.items()}
    said = {
        "scan": listed(printed["scan"].json["dirs"]),
        "explain": at(explained := printed["explain"].json, of_explain(explained)),
        "queue": at(queued := printed["queue"].json, of_queue(queued)),
        "cleanup": of_plan(printed["cleanup"].json),
        "rescue": of_rescue(printed["rescue"].json),
        "prestart": of_plan(printed["prestart"].json["plan"], counts_this_look=False),
    }
    for name in printed.keys() - said.keys():
        if name.startswith("check"):
            said[name] = of_leave(printed[name].json)
        else:
            plan = of_plan(printed[name].json)
            said[name] = {key: each._replace(goes=None, why=None) for key, each in plan.items()}
    return said


def named(*dirs: Path) -> tuple[str, ...]:
    parsed = {d.name: classify(d.name) for d in dirs}
    names = {n if p.kind is Kind.STRAY else current_name(p.topic or "", p.partition or 0) for n, p in parsed.items()}
    return tuple(word for name in sorted(names) for word in ("--partition", name))


def differences(one: Said, other: Said) -> list[str]:
    """The fields of which both say something, and not the same; a date beside a reason why there is none, too. A wait
    that begins with this inventory ends so much later in the command that ran later: then it takes as long in both."""
    plain = ((f, getattr(one, f), getattr(other, f)) for f in ("verdict", "reason", "allocated"))
    found = [f for f, mine, yours in plain if None not in (mine, yours) and mine != yours]
    if one.goes is not None and other.goes is not None:
        goes, at = one.when(one.goes) - other.when(other.goes), one.when(one.at) - other.when(other.at)
        found += ["goes"] if min(abs(goes), abs(goes - at)) > 60 else []
    elif (one.goes and other.why) or (other.goes and one.why):
        found.append("goes")
    if None not in (one.why, other.why) and one.goes == other.goes is None:
        found += [] if str(one.why) in str(other.why) or str(other.why) in str(one.why) else ["why"]
    return found


def all_waits(seconds: str, sightings: int, delay_ms: int) -> dict[str, object]:
    durations = {f"cleanup.{name}": seconds for name in ("stray_retention", "leftover_grace", "min_age")}
    return {**durations, "cleanup.sightings": sightings, "delete.file_delete_delay_ms": delay_ms}


def each_sort(first: int) -> list[Thing]:
    return [Thing(sort, 16, second_dir=n % 2 == first) for n, sort in enumerate(SORTS)]


# One that fails is not made smaller, which takes minutes on real disks.
@pytest.mark.timeout(7200 if FULL else 1200)
# Beside a broker that gave the other log dir up; the same, set aside before; and stopped.
@example(things=each_sort(0), waits=all_waits("0s", 1, 3_600_000), held=1, acted=False)
@example(things=each_sort(1), waits=all_waits("3h", 1, 0), held=1, acted=True)
@example(things=each_sort(1), waits=all_waits("40d", 3, 3_600_000), held=0, acted=False)
@settings(
    max_examples=60,
    phases=[Phase.explicit, Phase.generate] if FULL else [Phase.explicit],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    print_blob=True,
)
@given(
    things=st.lists(
        st.builds(
            Thing,
            sort=st.sampled_from(SORTS),
            kib=st.sampled_from([16, 64]),
            second_dir=st.booleans(),
            age_days=st.sampled_from([0.0, 1.0, 30.0]),
        ),
        min_size=8,
        max_size=16,
    ),
    waits=st.fixed_dictionaries(
        {
            "cleanup.stray_retention": DURATIONS,
            "cleanup.leftover_grace": DURATIONS,
            "cleanup.min_age": DURATIONS,
            "cleanup.sightings": st.sampled_from([1, 3]),
            "delete.file_delete_delay_ms": st.sampled_from([0, 3_600_000]),
        }
    ),
    held=st.sampled_from([0, 1, 2]),
    acted=st.booleans(),
)
def test_what_two_commands_say_of_a_directory_agrees(
    tmp_path: Path, things: list[Thing], waits: dict[str, object], held: int, acted: bool
) -> None:
    root = tmp_path / "host"
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root)
        root.mkdir()
        mess = make(root, things)
        host = Host(root, *mess.log_dirs)
        host.properties.write_text(f"node.id={host.node_id}\nlog.dirs={','.join(map(str, host.log_dirs))}\n")
        export = {"assignments.sources": ["file"], "assignments.file": str(mess.assignments)}
        host.configure(**export, **NO_LIMITS, **waits)
        if acted:
            host.run("cleanup", "--execute")
        if held:
            stack.enter_context(process(LOCKER, *mess.log_dirs[:held]))
        said = {**voices(host), "snapshot": snapshot(host)}
    dirs = said["scan"].keys()
    assert said["explain"].keys() == said["snapshot"].keys() == dirs
    assert dirs - said["rescue"].keys() == set(), "rescue leaves out"
    assert {key for name in said if name.startswith("check") for key in said[name]} == dirs
    apart = {
        (key[1], one, other): (said[one][key], said[other][key])
        for one, other in combinations(said, 2)
        for key in said[one].keys() & said[other].keys()
        if differences(said[one][key], said[other][key])
    }
    assert apart == {}


def only(said: Voice) -> Said:
    (one,) = said.values()
    return one


def plain_host(root: Path, **waits: object) -> Host:
    host = Host(root).format()
    host.properties.write_text(f"node.id={host.node_id}\nlog.dirs={','.join(map(str, host.log_dirs))}\n")
    host.export(Topic("elsewhere", id_of(1000), {0: PartitionAssignment((4,), (4,))}))
    host.configure(**{"assignments.sources": ["file"], "assignments.file": str(host.assignments), **waits})
    return host


def test_what_cleanup_does_not_let_go_has_no_date(tmp_path: Path) -> None:
    """A stray without a topic id: a retention that ends changes nothing, so nobody names its end."""
    host = plain_host(tmp_path, **{"cleanup.stray_retention": "3h"})
    host.partition(f"zookeeper-3.{'a' * 32}-stray")
    said = voices(host)
    assert [only(said[name]).verdict for name in ("scan", "explain")] == ["unknown", "unknown"]
    assert [only(said[name]).goes for name in ("explain", "cleanup")] == [None, None]
    assert str(only(said["cleanup"]).why) in str(only(said["explain"]).why)


def test_beside_a_running_broker_its_own_delay_is_named(tmp_path: Path) -> None:
    host = plain_host(tmp_path, **{"cleanup.leftover_grace": "3h", "delete.file_delete_delay_ms": 7_200_000})
    host.set_property("log.segment.delete.delay.ms=1800000")
    marked = host.partition(f"orders-0.{'b' * 32}-delete", topic_id=id_of(1))
    stopped, ctime, began = voices(host), marked.stat().st_ctime, time.time()
    with process(LOCKER, *host.log_dirs):
        up, runs = time.time(), voices(host)
    # A broker counts from its start what was marked before it.
    for said, first, last, seconds in ((stopped, ctime, ctime, 5 * 3600), (runs, began, up, 1800)):
        goes = [only(said[name]).goes for name in ("explain", "queue", "cleanup")]
        assert len(set(goes)) == 1 and goes[0] is not None
        assert first - 2 <= datetime.fromisoformat(goes[0]).timestamp() - seconds <= last + 2


def test_a_file_that_fills_a_log_dir_is_named(tmp_path: Path) -> None:
    host = plain_host(tmp_path)
    dump = host.d1 / "java_pid1.hprof"
    dump.write_bytes(b"x" * (1 << 20))
    (system,) = host.fork("explain", "--log-dirs-only", "--json").json["file_systems"]
    assert [r["largest"] for r in system["reasons"] if r["reason"] == "log-dir-files"] == [str(dump)]
    kept = host.fork("rescue", "--json").json["rescue"]["kept"]
    assert [k["bytes"] for k in kept if k["name"] == dump.name] == [dump.stat().st_blocks * 512]


@pytest.mark.parametrize("command", [("scan",), ("explain", "--log-dirs-only"), ("rescue",), ("cleanup",)])
def test_whose_a_directory_is_the_same_source_is_asked(tmp_path: Path, command: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = plain_host(tmp_path)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        host.configure(**{"kafka.bootstrap_servers": address, "assignments.sources": ["admin"]})
        asked = threading.Thread(target=lambda: server.accept()[0].close(), daemon=True)
        asked.start()
        host.fork(*command, "--json")
        asked.join(30)
        assert not asked.is_alive()


def test_the_version_that_was_seen_is_named_with_its_age(tmp_path: Path) -> None:
    """`delete` and `doctor`, on a stopped broker of which nothing says what it is now."""
    host = plain_host(tmp_path)
    host.defaults.pop("kafka.version")
    host.configure(**{"assignments.sources": ["file"], "assignments.file": str(host.assignments)}, **NO_LIMITS)
    both = {n: PartitionAssignment((host.node_id,), (host.node_id,)) for n in (0, 1)}
    host.export(Topic("orders", id_of(1), both), metadata_version=None)
    for number in (0, 1):
        host.partition(f"orders-{number}", topic_id=id_of(1))
    host.state.mkdir(exist_ok=True)
    seen_ms = int(time.time() * 1000) - 3 * HOUR_MS - 60_000
    write_version_seen(str(host.state), host.cluster_id, host.node_id, (4, 3, 1), seen_ms)
    host.fork("cleanup", "--execute")  # a look later, it was seen no later
    refusals = host.fork("delete", "--partition", "orders-0", "--quarantine", *FREELY, "--json").json["refusals"]
    (refused,) = (r for r in refusals if r["guard"] == "version")
    (finding,) = (f for f in host.fork("doctor", "--json").json["findings"] if f["code"] == "version-unknown")
    for says, hint in ((refused["fact"], refused["hint"]), (finding["says"], finding["hint"])):
        assert "the broker last ran as 4.3.1, seen 3 h ago," in says and 'set kafka.version = "4.3.1"' in hint
    assert "4.3.1" in finding["change"]["line"]


def config_doubts(host: Host) -> list[bool]:
    """Whether each of three commands doubts that the file says what runs."""
    checked, examined = (host.fork(name, "--json").json["findings"] for name in ("check", "doctor"))
    found = [any(f["code"] == "config-changed" for f in findings) for findings in (checked, examined)]
    return [*found, host.fork("explain", "--offline", "--log-dirs-only", "--json").json["settings_unknown"] is not None]


def test_the_file_that_was_noted_for_the_process_is_what_runs(tmp_path: Path) -> None:
    """Where the broker is not asked: touched since, or written anew with what it had, it is the same file."""
    host = plain_host(tmp_path)
    host.partition("orders-0", topic_id=id_of(1))
    text = host.properties.read_text()
    later = time.time_ns() + 3 * 3600 * 10**9

    def write(content: str) -> None:
        host.properties.write_text(content)
        os.utime(host.properties, ns=(later, later))

    broker: list[str | Path] = ["kafka.Kafka", host.properties, *host.log_dirs]
    with process(BROKER, *broker):
        write(text)
        assert config_doubts(host) == [True] * 3, "nobody noted it"
        host.fork("cleanup", "--execute")
        assert config_doubts(host) == [True] * 3, "what had changed before is not noted"
    host.properties.write_text(text)
    with process(BROKER, *broker):
        host.fork("cleanup", "--execute")
        write(text)
        assert config_doubts(host) == [False] * 3
        write(f"{text}\nlog.retention.hours=7\n")
        assert config_doubts(host) == [True] * 3
    with process(BROKER, *broker):
        write(text)
        assert config_doubts(host) == [True] * 3, "it was noted for another process"
