"""The last chapter of `logagent demo`: one request, carried out on three hosts by their own agents.

The hosts are three copies of the demo's disk with node ids of their own, and the store is a directory. What a fleet
report would list (making one takes Spark) is written from what the three hosts themselves say they have.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

from logagent.broker.files.meta_properties import META_PROPERTIES, parse_meta_properties
from logagent.demo.host import CONFIG, LOG_DIRS, STATE_DIR, export_assignments, lay_out, read_tree
from logagent.demo.stage import Stage
from logagent.store.signing import load_private_key

NODES = (1, 2, 3)
FLEET, KEY, STORE, REPORT = "fleet", "orders.key", "store", "report"
TOPIC = "returns"
_COLUMNS = ("cluster_id", "node_id", "host", "log_dir", "name", "topic", "topic_id", "partition", "reason", "bytes",
            "inode")  # fmt: skip
_ORDERS = """
[metrics]
listen = ""

[publish]
store = "{store}"

[orders]
accept = true
keys = ["{key}"]
"""


def show_fleet(stage: Stage) -> None:
    """Raises StepFailed for the first step that does not go as announced."""
    stage.chapter(
        "Across the fleet: one request for every host",
        f"""Three hosts now, each with this disk and a node id of its own, below {FLEET}/. Nobody logs in to them: a
        signed request goes into a store that they share, and the agent of each host carries out what concerns it, under
        all its guards. The key is made once; its public half and orders.accept = true are in each host's
        configuration.""",
    )
    fleet = stage.folder / FLEET
    (fleet / STORE).mkdir(parents=True)
    stage.typed("topics", "keygen", f"{FLEET}/{KEY}")
    key = load_private_key(fleet / KEY).public()
    stage.check((fleet / KEY).stat().st_mode & 0o777 == 0o600, "only you can read the private key")
    stage.typed("fleet", "init", "--store", f"{FLEET}/{STORE}")
    for node in NODES:
        _host(fleet, node, key)
    _agents(stage)
    cluster = _report(stage, fleet)
    _ask(stage, cluster)
    _see_through(stage, cluster)


def _host(fleet: Path, node: int, key: str) -> None:
    folder = fleet / str(node)
    folder.mkdir()
    lay_out(folder)
    for path in (folder / "server.properties", *(folder / d / META_PROPERTIES for d in ("meta", *LOG_DIRS))):
        text = path.read_text("latin-1")
        path.write_text(re.sub(r"(?m)^(node|broker)\.id=3$", rf"\g<1>.id={node}", text), "latin-1")
    export_assignments(folder)
    with (folder / CONFIG).open("a", encoding="utf-8") as file:
        file.write(_ORDERS.format(store=fleet / STORE, key=key))


def _at(node: int) -> tuple[str, ...]:
    return ("--config", f"{FLEET}/{node}/{CONFIG}", "--state-dir", f"{FLEET}/{node}/{STATE_DIR}")


def _place(cluster: str) -> tuple[str, ...]:
    return ("--store", f"{FLEET}/{STORE}", "--cluster", cluster, "--key", f"{FLEET}/{KEY}")


def _agents(stage: Stage) -> None:
    """What the daemon of each host does at its next tick."""
    for node in NODES:
        stage.typed("run", "--once", *_at(node))


def _report(stage: Stage, fleet: Path) -> str:
    """The tables of a fleet report that `topics purge` reads; the cluster's id."""
    folder = fleet / REPORT
    folder.mkdir()
    cluster = parse_meta_properties((fleet / "1" / LOG_DIRS[0] / META_PROPERTIES).read_bytes()).cluster_id or ""
    orphans, hosts = list[dict[str, Any]](), list[dict[str, Any]]()
    for node in NODES:
        host = {"cluster_id": cluster, "node_id": node, "host": f"kafka-{node}"}
        dirs = stage.document_of("scan", *_at(node))["dirs"]
        orphans += [{**d, **host, "inode": _inode(stage, d)} for d in dirs if d["verdict"] == "orphan"]
        hosts.append({**host, "dirs": len(dirs)})
    for name, columns, rows in (
        ("orphans", _COLUMNS, orphans),
        ("leftovers", (*_COLUMNS, "kind"), []),
        ("usage_hosts", ("cluster_id", "node_id", "dirs"), hosts),
    ):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, columns, extrasaction="ignore")
            table.writeheader()
            table.writerows(rows)
    (folder / "report.json").write_text(json.dumps({"schema": "logagent.fleet-report/1"}))
    return cluster


def _inode(stage: Stage, directory: dict[str, Any]) -> int:
    path: Path = stage.folder / directory["log_dir"] / directory["name"]
    return path.stat().st_ino


def _ask(stage: Stage, cluster: str) -> None:
    stage.explain(
        f"""A fleet report lists the orphans of all hosts; those of topic {TOPIC} shall go. As no copy of their
        partitions would be left, the plan needs an approval."""
    )
    purge = ("topics", "purge", "--report", f"{FLEET}/{REPORT}", "--topic", TOPIC, *_place(cluster))
    stage.typed(*purge, expect=4)
    plan_id = stage.document_of(*purge)["plan_id"]
    stage.typed(*purge, "--execute", "--approve", f"{plan_id}:only-copy", "--timeout", "0")


def _see_through(stage: Stage, cluster: str) -> None:
    stage.explain(
        """Each agent finds the request, makes sure that it is exactly the directory that was shown, and quarantines it
        under all its guards. A request proves nothing: whatever the host's own facts call assigned would stay. At the
        end somebody with the key closes the request."""
    )
    before = {node: read_tree(stage.folder / FLEET / str(node)) for node in NODES}
    place = _place(cluster)
    stage.typed("topics", "status", *place)
    _agents(stage)
    stage.typed("topics", "run", "--once", *place)
    stage.typed("topics", "status", *place)
    for node in NODES:
        now = read_tree(stage.folder / FLEET / str(node))
        gone, new = before[node].dirs.keys() - now.dirs.keys(), now.dirs.keys() - before[node].dirs.keys()
        aside = {name for name in new if name.partition("/")[2].startswith(f"{TOPIC}-") and name.endswith("-stray")}
        stage.check(
            len(gone) == len(new) == len(aside) > 0, f"node {node}: {', '.join(gone)} was quarantined, nothing else"
        )
    (request,) = stage.document_of("topics", "status", *place)["requests"]
    stage.check(request["state"] == "done" and request["bytes_quarantined"] > 0, "the request is done")
    stage.explain("Each host can still give back what it quarantined, and its history names the request:")
    stage.typed("history", *_at(1))
