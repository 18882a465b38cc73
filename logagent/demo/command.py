"""`logagent demo`: the whole story on a temporary host made from a real broker's disk. Each chapter explains, runs real
commands, and checks on disk what they did.

In the last chapter one request is carried out on three hosts by their own agents. They are three copies of the demo's
disk with node ids of their own, and the store is a directory. What a fleet report would list (making one takes Spark)
is written from what the three hosts themselves say they have.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import click

from logagent.base.errors import LogAgentError
from logagent.cli import run
from logagent.demo.host import (
    CONFIG,
    LOG_DIRS,
    SHELL,
    STATE_DIR,
    Stage,
    StepFailed,
    Tree,
    broker_holds,
    export_assignments,
    lay_out,
    make_folder,
    own_environment,
    read_tree,
    within,
)
from logagent.kafka.files.properties import META_PROPERTIES, parse_meta_properties
from logagent.store.signing import load_private_key

NODES = (1, 2, 3)
FLEET, KEY, STORE, REPORT = "fleet", "orders.key", "store", "report"
TOPIC = "returns"
_COLUMNS = ("cluster_id", "node_id", "host", "log_dir", "name", "topic", "topic_id", "partition", "reason", "allocated",
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
    plan_id = stage.document_of(*purge)["plans"][0]["plan_id"]
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


LONG_TOPIC = r"plant\..*\.sold-since"
TOPICS = rf"returns|invoices|{LONG_TOPIC}"
LONGEST_TOPIC = 249
LONGEST_NAME = 255
# The directories on this disk that nobody needs, as Kafka itself decided when it started on it.
ORPHANS = 8


def run_story(stage: Stage) -> None:
    """Everything, in order, up to the first step that does not do what was announced, which is then in
    `stage.failures`.

    Raises LogAgentError if this machine does not let us see whether a broker is running.
    """
    # A process that was just ending cannot be read, either; the second attempt does not see it.
    if _hidden_brokers(stage) and (hidden := _hidden_brokers(stage)):
        raise LogAgentError(
            f"a broker (process {hidden[0]}) is running on this machine and its open files cannot be seen, so logagent"
            " would refuse everything",
            hint="run the demo as that broker's user or as root, or on a machine without a broker",
        )
    try:
        _chapters(stage)
    except StepFailed:
        stage.explain("The demo ends here; see above for why.")


def _hidden_brokers(stage: Stage) -> list[int]:
    document = stage.document("scan")
    return [d["holder"]["pid"] for d in document["log_dirs"] if d["holder"]["state"] != "free"]


def _chapters(stage: Stage) -> None:
    original = read_tree(stage.folder)
    _inventory(stage)
    stage.chapter(
        "While a broker holds the log dirs, nothing is touched",
        """Another process now takes the lock of both log dirs, as a broker does. An operator who deletes an orphan all
        the same is refused, with the guard, what it saw, and what to do.""",
    )
    arguments = ("delete", "--partition", "returns-2", "--execute")
    with broker_holds([stage.folder / d for d in LOG_DIRS]) as pid, stage.watching() as before:
        stage.command(*arguments, expect=3)
        document = stage.document(*arguments)
        refusals = document["refusals"]
        named = len(refusals) > 0 and all(r["guard"] == "window" and str(pid) in r["fact"] for r in refusals)
        stage.check(named, f"guard `window` named process {pid}")
        stage.check(read_tree(stage.folder) == before, "the disk is as it was, down to every ctime")
    stage.explain("That process is gone again: from here on, the broker is stopped.")
    _assigned(stage)
    _planned(stage)
    plan_id = _deleted(stage)
    _restored(stage, plan_id, original)
    _waits(stage)
    _removed(stage)
    _orphans(stage)
    _history(stage)
    show_fleet(stage)


def _inventory(stage: Stage) -> None:
    stage.chapter(
        "Topics were deleted, created again and reassigned while this broker was down",
        """The log dirs of a real Kafka 3.9.1 broker that is stopped. An orphan is what it should no longer have, by
        what the cluster has decided since (topic-absent, topic-recreated, not-a-replica). The broker's own tools show
        current and future logs only, but what is marked for deletion (-delete) or set aside (-stray) takes up space
        as well.""",
    )
    stage.command("scan", "--all")
    document = stage.document("scan")
    seen = {f"{Path(d['log_dir']).name}/{d['name']}" for d in document["dirs"]}
    stage.check(seen == set(read_tree(stage.folder).dirs), f"all {len(seen)} directories were seen")
    orphans = _orphans_in(document)
    reasons = {d["reason"] for d in orphans}
    stage.check(
        len(orphans) == ORPHANS and reasons == {"topic-absent", "topic-recreated", "not-a-replica"},
        f"{len(orphans)} that are not set aside are orphans, of each kind",
    )
    stage.check(not (stage.folder / STATE_DIR).exists(), "scanning wrote nothing, not even a state dir")


def _assigned(stage: Stage) -> None:
    stage.chapter(
        "An assigned partition is not deleted by mistake",
        """orders-1 is one of this broker's replicas. To throw away a damaged copy, so that the broker fetches a new
        one, the operator has to say so explicitly; and again, because its leader cannot be asked here whether it has
        all of these records. Its log start offset (25: earlier records were deleted) is removed from the checkpoint
        with it, and kept in the journal.""",
    )
    orders = ("delete", "--partition", "orders-1", "--execute")
    for words in (), ("--allow-assigned",):
        stage.unchanged("refused, and the disk is as it was", *orders, *words, expect=3)
    with stage.watching() as before:
        stage.command(*orders, "--allow-assigned", "--even-last-copy")
        now = read_tree(stage.folder)
        stage.check([*_new(before, now)] == [*_marked(now, "d2/orders-1.")], "now orders-1 is marked")


def _planned(stage: Stage) -> None:
    stage.chapter(
        "A plan, and nothing but a plan",
        f"""Three orphans now. One belongs to a topic whose name has {LONGEST_TOPIC} characters, the most Kafka
        allows. Without --execute, a command only shows what it would do.""",
    )
    stage.unchanged("the disk is as it was, down to every ctime", "delete", "--topic", TOPICS)


def _deleted(stage: Stage) -> str:
    stage.chapter(
        "Delete: rename first, remove later",
        """LogManager.asyncDelete by hand: each directory is renamed to TOPIC-PARTITION.UNIQUE-delete, cut to 255 bytes
        if it would be longer, and removed from the checkpoints. The journal had each one before the first rename.
        invoices lives on other brokers, which may have been elected without these records: its leader has to have all
        of them, and it cannot be asked here, so the operator has to say that they may go.""",
    )
    stage.unchanged("refused, and the disk is as it was", "delete", "--topic", "invoices", "--execute", expect=3)
    with stage.watching() as before:
        stage.command("delete", "--topic", TOPICS, "--even-last-copy", "--execute")
        now = read_tree(stage.folder)
        gone, new = set(before.dirs) - set(now.dirs), _new(before, now)
        stage.check(len(gone) == 3 and new == _marked(now, "d2/") & new, "three directories are marked")
        longest = max(len(name.partition("/")[2].encode()) for name in new)
        stage.check(longest == LONGEST_NAME, f"the longest new name has {longest} bytes: the topic's end was cut off")
        stage.check(_contents(before, gone) == _contents(now, new), "no file in them changed")
    stage.explain("The names on disk are the queue, and the journal knows the full topics:")
    stage.command("queue")
    document = stage.document("queue")
    known = {len(e["full_topic"]) for e in document["entries"] if e["owner"] == "logagent"}
    stage.check(LONGEST_TOPIC in known, f"the {LONGEST_TOPIC}-character topic is known in full")
    document = stage.document("history")
    return str(document["entries"][-1]["plan_id"])


def _restored(stage: Stage, plan_id: str, original: Tree) -> None:
    stage.chapter(
        "Restore: all of it back, under its full names",
        """As long as the directories exist they can be restored, with their checkpoint entries: a whole plan, or
        directory by directory. Only their .index files go: the broker rebuilds those from the records. orders-1
        is in sync on another broker by now. Nobody here can ask its leader whether it has all of these records (that
        takes the Admin API), and a follower is truncated to what its leader has, so this one
        needs --leader-will-truncate.""",
    )
    (orders,) = _marked(read_tree(stage.folder), "d2/orders-1.")
    with stage.watching():
        stage.command("restore", "--plan", plan_id, "--execute")
        name = orders.partition("/")[2]
        stage.command("restore", name, "--execute", expect=3)
        stage.command("restore", name, "--leader-will-truncate", "--execute")
        now = read_tree(stage.folder)
        same = now.without_indexes() == original.without_indexes()
        stage.check(same, "every name, byte of a record and modification time is as it was at the start")
        stage.check(now.checkpoints == original.checkpoints, "and so is every entry of the checkpoints")
        longest = max(len(name.partition("/")[2]) for name in now.dirs if name.endswith("sold-since-0"))
        stage.check(longest == LONGEST_TOPIC + 2, f"the {LONGEST_TOPIC}-character topic has its full name again")


def _waits(stage: Stage) -> None:
    stage.chapter(
        "Mark again: what is marked waits until it is due",
        """Only the long topic this time. What is marked is kept for file.delete.delay.ms, a day on this broker; what
        the broker set aside, for cleanup.stray_retention; and other orphans have to be seen three times over 24 hours
        before cleanup sets them aside.""",
    )
    with stage.watching() as before:
        stage.command("delete", "--topic", LONG_TOPIC, "--execute")
        stage.check(len(_new(before, read_tree(stage.folder))) == 1, "one directory is marked")
    stage.unchanged("cleanup did nothing: nothing is due", "cleanup", "--execute")


def _removed(stage: Stage) -> None:
    stage.chapter(
        "Removal: what is due is removed",
        f"""A day is long for a demo, so {CONFIG} now sets delete.file_delete_delay_ms = 0. What the broker marked
        itself is left to it for cleanup.leftover_grace longer.""",
    )
    _configure(stage, "[delete]\nfile_delete_delay_ms = 0\n")
    (name,) = (e["name"] for e in stage.document("queue")["entries"] if e["owner"] == "logagent")
    with stage.watching() as before:
        stage.command("cleanup", "--execute")
        gone = set(before.dirs) - set(read_tree(stage.folder).dirs)
        stage.check(gone == {f"d2/{name}"}, "exactly the directory that was marked is gone")
    stage.explain("What is removed cannot be restored:")
    stage.command("restore", name, "--execute", expect=2)


def _orphans(stage: Stage) -> None:
    stage.chapter(
        "Orphans: set aside, and not too many at once",
        f"""{CONFIG} now requires two sightings and no age, so the other orphans are due: they become -stray, which a
        broker keeps and never deletes. That is more than a tenth of this small host, so the guard `blast-radius`
        requires the operator's approval of exactly this plan (exit status 4).""",
    )
    _configure(stage, '[cleanup]\nsightings = 2\nmin_age = "0s"\n')
    stage.unchanged("nothing was done", "cleanup", "--execute", expect=4)
    plan_id = stage.document("cleanup")["plan_id"]
    with stage.watching() as before:
        stage.command("cleanup", "--execute", "--approve", plan_id)
        now = read_tree(stage.folder)
        aside = {name for name in _new(before, now) if name.endswith("-stray")}
        stage.check(len(aside) == len(before.dirs.keys() - now.dirs.keys()) == ORPHANS - 1, "all are set aside now")
    stage.check(not _orphans_in(stage.document("scan")), "and no orphan is left that is not")


def _history(stage: Stage) -> None:
    stage.chapter("History: who did what, when, and the outcome", "The journal, oldest first.")
    stage.command("history")
    document = stage.document("history")
    done = [e["action"] for e in document["entries"] if e["outcome"] == "done"]
    wanted = ["mark"] * 4 + ["restore"] * 4 + ["mark", "remove"] + ["quarantine"] * (ORPHANS - 1)
    stage.check(done == wanted, f"{len(wanted)} actions, each with its outcome")


def _orphans_in(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that nobody has set aside yet: strays have a verdict, too."""
    return [d for d in document["dirs"] if d["verdict"] == "orphan" and d["kind"] != "stray"]


def _configure(stage: Stage, lines: str) -> None:
    with (stage.folder / CONFIG).open("a", encoding="utf-8") as file:
        file.write("\n" + lines)


def _new(before: Tree, after: Tree) -> set[str]:
    return set(after.dirs) - set(before.dirs)


def _marked(tree: Tree, prefix: str) -> set[str]:
    return {name for name in tree.dirs if name.startswith(prefix) and name.endswith("-delete")}


def _contents(tree: Tree, names: set[str]) -> list[str]:
    return sorted(str(sorted(tree.dirs[name].items())) for name in names)


@click.command()
@click.option("--dir", "wanted", metavar="DIR", help="Where to create the host (a new or empty directory).")
@click.option("--keep/--no-keep", default=True, help="Keep the directory afterwards (the default) or remove it.")
@click.option("--only-host", is_flag=True, help="Only create the host, and leave the commands to you.")
@click.option("--no-color", is_flag=True, help="No colors (same as NO_COLOR).")
def demo(wanted: str | None, keep: bool, only_host: bool, no_color: bool) -> None:
    """Run scan, plan, delete, restore, queue and removal on a temporary host, and show what each changes on disk; then
    one request that the agents of three hosts carry out.

    The host is the disk of a real Kafka 3.9.1 broker that comes with this package. Everything printed was done by the
    real commands and checked: the exit status is 0 only if every step did what it should. It needs no broker, no root
    and no network, and touches nothing outside the directory. With --only-host the host is as the broker left it, for
    the tutorial of the first day.
    """
    started = time.monotonic()
    color = not no_color and "NO_COLOR" not in os.environ and sys.stdout.isatty()
    folder = make_folder(wanted)
    lay_out(folder)
    if only_host:
        click.echo(f"A Kafka host to try things on: cd {folder} && . ./{SHELL}")
        click.echo("From then on, logagent means this host in that shell. Remove the directory when you are done.")
        return
    stage = Stage(folder, run, color)
    try:
        with own_environment(color=color), within(folder):
            stage.explain(f"A Kafka host to try things on, in {folder} (all commands below run there):")
            click.echo(f"\n$ cd {folder}")
            run_story(stage)
    finally:
        if not keep:
            shutil.rmtree(folder)
    seconds = time.monotonic() - started
    click.echo(f"\n{stage.checks} checks in {seconds:.1f} s, {len(stage.failures)} failed.")
    if keep:
        click.echo(
            f"Look around in {folder}: log dirs d1 and d2, the journal in state/, more hosts in fleet/."
            " Remove it when you are done."
        )
    if stage.failures:
        for failure in stage.failures:
            click.echo(f"failed: {failure}", err=True)
        click.get_current_context().exit(1)
