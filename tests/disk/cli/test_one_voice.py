"""One voice: what two commands print of one directory agrees, in verdict, bytes, date and next step.

Each command runs in a process of its own; what is compared is what it prints. hypothesis prints the seed of a failure.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.command_line import LOCKER, process
from tests.disk.messes import SORTS, Thing, make
from tests.host import NO_LIMITS, Host
from tests.long_form import FULL

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
