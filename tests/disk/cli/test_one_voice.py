"""One voice: what two commands print of one directory agrees, in verdict, bytes, date and next step.

Each command runs in a process of its own; what is compared is what it prints. hypothesis prints the seed of a failure.
"""

from __future__ import annotations

import shutil
import socket
import threading
from contextlib import ExitStack
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from logagent.kafka.image import PartitionAssignment, Topic
from tests.command_line import LOCKER, process
from tests.disk.messes import SORTS, Thing, make
from tests.host import NO_LIMITS, Host
from tests.long_form import FULL
from tests.metadata_writer import id_of

DURATIONS = st.sampled_from(["0s", "3h", "40d"])


class Said(NamedTuple):
    """What one command says of one directory; None: nothing. `goes`: when it goes. `why`: why it does not."""

    verdict: str | None = None
    reason: str | None = None
    allocated: int | None = None
    goes: str | None = None
    why: str | None = None


Voice = dict[tuple[str, str], Said]


def listed(rows: list[dict[str, Any]], **more: str) -> Voice:
    """`more`: by field of `Said`, the key that has it."""
    keys = {field: field for field in Said._fields} | more
    return {(r["log_dir"], r["name"]): Said(*(r.get(keys[field]) for field in Said._fields)) for r in rows}


def of_explain(document: Any) -> Voice:
    said = {}
    for d in document["dirs"]:
        whole = d["groups"][0] if d["kind"] in ("stray", "delete") or d["verdict"] == "orphan" else {}
        at, first = whole.get("at"), whole.get("first")
        said[d["log_dir"], d["name"]] = Said(d["verdict"], d["reason"], d["allocated"], at, first)
    return said


def of_plan(document: Any) -> Voice:
    # A directory of which only some files go keeps its own size.
    acted = [a for a in document["actions"] if a["action"] not in ("drop-checkpoint-entry", "remove-leftovers")]
    acted = [a | {"reason": None} for a in acted]
    waits = [w | {"why": w["reason"] if w["until"] is None else None, "reason": None} for w in document["waiting"]]
    refused = [r | {"why": r["fact"]} for r in document["refusals"] if r["name"]]
    return {**listed(waits, goes="until"), **listed(refused), **listed(acted, goes="due_at")}


def of_rescue(document: Any) -> Voice:
    kept = [
        {**k, "allocated": k["bytes"], "verdict": word, "reason": None}
        for k in document["rescue"]["kept"]
        for word in [next((v for v in ("assigned", "unknown", "orphan") if k["reason"].startswith(v)), None)]
    ]
    plan = {key: said._replace(why=None) for key, said in of_plan(document).items()}
    return listed(kept) | plan


def voices(host: Host) -> dict[str, Voice]:
    log_dirs = [str(path) for path in host.log_dirs]
    printed = {
        name: host.spawn(name, *more, "--json")
        for name, more in (("scan", ()), ("explain", log_dirs), ("queue", ()), ("cleanup", ()), ("rescue", ()))
    }
    assert {ran.status for ran in printed.values()} <= {0, 3, 4, 5}, {name: ran.err for name, ran in printed.items()}
    return {
        "scan": listed(printed["scan"].json["dirs"]),
        "explain": of_explain(printed["explain"].json),
        "queue": listed(printed["queue"].json["entries"], goes="due_at"),
        "cleanup": of_plan(printed["cleanup"].json),
        "rescue": of_rescue(printed["rescue"].json),
    }


def differences(one: Said, other: Said) -> list[str]:
    """The fields of which both say something, and not the same. A wait that begins with this inventory ends so much
    later in the command that ran later."""
    fields = [f for f in Said._fields if f not in ("goes", "why") and None not in (getattr(one, f), getattr(other, f))]
    found = [f for f in fields if getattr(one, f) != getattr(other, f)]
    if one.goes is not None and other.goes is not None:
        apart = datetime.fromisoformat(one.goes) - datetime.fromisoformat(other.goes)
        found += ["goes"] if abs(apart.total_seconds()) > 60 else []
    if one.why is not None and other.why is not None and one.why not in other.why and other.why not in one.why:
        found.append("why")
    return found


# One that fails is not made smaller, which takes minutes on real disks.
@settings(
    max_examples=60 if FULL else 4,
    phases=[Phase.explicit, Phase.generate],
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
        said = voices(host)
    dirs = said["scan"].keys()
    assert said["explain"].keys() == dirs
    assert dirs - said["rescue"].keys() == set(), "rescue leaves out"
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
    stopped = voices(host)
    with process(LOCKER, *host.log_dirs):
        runs = voices(host)
    for said, seconds in ((stopped, 5 * 3600), (runs, 1800)):
        goes = [only(said[name]).goes for name in ("explain", "queue", "cleanup")]
        assert len(set(goes)) == 1 and goes[0] is not None
        assert abs(datetime.fromisoformat(goes[0]).timestamp() - marked.stat().st_ctime - seconds) < 60


def test_a_file_that_fills_a_log_dir_is_named(tmp_path: Path) -> None:
    host = plain_host(tmp_path)
    dump = host.d1 / "java_pid1.hprof"
    dump.write_bytes(b"x" * (1 << 20))
    (system,) = host.spawn("explain", "--log-dirs-only", "--json").json["file_systems"]
    assert [r["largest"] for r in system["reasons"] if r["reason"] == "log-dir-files"] == [str(dump)]
    kept = host.spawn("rescue", "--json").json["rescue"]["kept"]
    assert [k["bytes"] for k in kept if k["name"] == dump.name] == [dump.stat().st_blocks * 512]


@pytest.mark.parametrize("command", [("scan",), ("explain", "--log-dirs-only"), ("rescue",), ("cleanup",)])
def test_whose_a_directory_is_the_same_source_is_asked(tmp_path: Path, command: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = plain_host(tmp_path)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        host.configure(**{"kafka.bootstrap_servers": address, "assignments.sources": ["admin"]})
        asked = threading.Thread(target=lambda: server.accept()[0].close(), daemon=True)
        asked.start()
        host.spawn(*command, "--json")
        asked.join(1)
        assert not asked.is_alive()
