"""Every supported Kafka passes over the mark that a removal has begun, and the mark outlives its start.

One directory of each kind bears it; half of the marked one is gone already. The default run takes the newest version;
`tests/run --full` takes them all. The brokers are their own, as they are stopped and killed.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from kafka import TopicPartition

from logagent.base.records import ActionKind
from logagent.cleanup.state.journal import Journal
from logagent.disk.scan import is_started, mark_started
from tests.broker.evidence.test_orphans_live import logagent
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.long_form import long_form, versions

VERSIONS = versions("4.3.1", "4.4.0", "3.9.1", "3.5.2", "2.5.1")
NO_LIMITS = {"LOGAGENT_CLEANUP__MAX_FRACTION": "1.0", "LOGAGENT_CLEANUP__MAX_DIRS": "100"}
HEX = "0123456789abcdef" * 2


def mark(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    mark_started(fd, lambda: None)
    os.close(fd)


def marked(path: Path) -> bool:
    return is_started(path.stat().st_mode)


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_passes_over_the_mark(kafka: Callable[..., KafkaNode], version: str) -> None:
    old = version < "3.6.1"
    node = kafka(version, log_dirs=1, mode="zookeeper" if old else "kraft")
    node.configure({"log.segment.delete.delay.ms": "1000", "log.initial.task.delay.ms": "500"}).start()
    for topic in ("kept", "going"):
        node.create_topic(topic)
    values = node.produce("kept", n=20)
    node.produce("going", n=20)
    node.stop()
    (log_dir,) = node.log_dirs
    current, going, stray = log_dir / "kept-0", log_dir / f"going-0.{HEX}-delete", log_dir / f"gone-0.{HEX}-stray"
    shutil.copytree(log_dir / "going-0", going)
    (going / "00000000000000000000.log").unlink()
    directories = [current, going]
    if not old:
        shutil.copytree(log_dir / "going-0", stray)
        (stray / "00000000000000000000.log").unlink()
        directories.append(stray)
    for path in directories:
        mark(path)

    node.start()
    assert node.offline_dirs() == []
    assert [r.value for r in node.read_all("kept")] == values
    wait_until(lambda: not going.exists(), 90, "Kafka purges the directory whose removal had begun")
    assert marked(current) and (old or marked(stray))
    node.stop()
    assert node.start().offline_dirs() == []
    assert marked(current) and (old or marked(stray))
    assert "Stopping serving logs" not in node.log_text(every_run=True)


@pytest.mark.parametrize("version", versions("3.9.1", "4.4.0", "4.3.1"))
def test_after_chmod_on_everything_what_was_set_aside_comes_back_with_every_record(
    kafka: Callable[..., KafkaNode], version: str
) -> None:
    """It was called half removed, and its operator was sent to a replica that nobody had asked."""
    node = kafka(version, log_dirs=1).start()
    for topic in ("kept", "orders"):
        node.create_topic(topic)
    values = node.produce("orders", n=200)
    node.stop()
    for when in ("before", "after"):
        if when == "before":
            subprocess.run(["chmod", "-R", "ug+s", *map(str, node.log_dirs)], check=True)
        freely = ("--allow-assigned", "--even-last-copy")
        taken = logagent(node, "delete", "--partition", "orders-0", "--quarantine", *freely, "--execute")
        (away,) = (a["new_name"] for a in taken["actions"] if a["new_name"])
        if when == "after":
            subprocess.run(["chmod", "-R", "ug+s", *map(str, node.log_dirs)], check=True)
            (refusal,) = logagent(node, "restore", away, "--execute", allow=(3,))["refusals"]
            assert "replica" not in refusal["hint"] and "chmod" not in refusal["hint"]
            subprocess.run(["chmod", "u-s", str(node.log_dirs[0] / away)], check=True)
        restored = logagent(node, "restore", away, "--execute")["actions"]
        assert [a["outcome"] for a in restored if a["action"] == "restore"] == ["done"]
        node.start()
        assert node.offline_dirs() == []
        assert [r.value for r in node.read_all("orders")] == values
        node.stop()
        subprocess.run(["chmod", "-R", "ug-s", *map(str, node.log_dirs)], check=True)


@pytest.mark.parametrize(
    ("version", "after_a_crash", "copy"),
    [(v, *each) for each, several in (
        ((False, "cp -r"), versions("4.3.1", "4.4.0", "3.9.1")),
        ((True, "tar"), versions("3.9.1", "4.4.0", "4.3.1")),
    ) for v in several],
)  # fmt: skip
def test_after_a_killed_batch_of_removals_and_a_start_the_untouched_come_back_and_the_cut_do_not(
    kafka: Callable[..., KafkaNode], version: str, after_a_crash: bool, copy: str
) -> None:
    """The broker stretches the indexes of the strays that it loads, and writes a snapshot of producers into those that
    it recovers after a crash. Then everything is copied, and the copy has neither the inodes nor (`cp -r`) the mark: a
    partition that had lost segments was served, and nobody said so."""
    node = kafka(version, log_dirs=1).start()
    for topic in ("kept", "cut", "whole"):
        node.create_topic(topic, config={"segment.bytes": "1048576"})
    values = {topic: node.produce(topic, n=300, size=10_000) for topic in ("kept", "cut", "whole")}
    node.kill() if after_a_crash else node.stop()
    (log_dir,) = node.log_dirs
    freely = ("--allow-assigned", "--even-last-copy")
    for topic in ("cut", "whole"):
        logagent(node, "delete", "--partition", f"{topic}-0", "--quarantine", *freely, "--execute", settings=NO_LIMITS)
    killed_batch(node, cut="cut")
    cut, whole = (next(log_dir.glob(f"{topic}-0.*-stray")) for topic in ("cut", "whole"))
    before = {path.name: path.stat().st_size for path in whole.iterdir()}
    node.start()
    after = {path.name: path.stat().st_size for path in whole.iterdir()}
    assert node.offline_dirs() == [] and after != before, "the broker has changed something in it"
    assert (len(after) > len(before)) is after_a_crash
    node.stop()
    copied(log_dir, copy)
    replace_it = ("--replace", "--even-last-copy")  # the broker made both anew, empty
    (refusal,) = logagent(node, "restore", cut.name, *replace_it, "--execute", allow=(3,))["refusals"]
    assert refusal["guard"] == "journal" and "its removal has started" in refusal["fact"]
    assert "chmod" not in refusal["hint"] and "restore" not in refusal["hint"]
    restored = logagent(node, "restore", whole.name, *replace_it, "--execute")["actions"]
    assert {a["outcome"] for a in restored} == {"done"}
    node.start()
    assert node.offline_dirs() == []
    for topic in ("kept", "whole"):
        assert [r.value for r in node.read_all(topic)] == values[topic]


@long_form
@pytest.mark.parametrize("version", ("4.3.1", "3.9.1", "4.4.0"))
def test_a_plan_comes_back_from_a_copy_with_its_log_start_offsets(
    kafka: Callable[..., KafkaNode], version: str
) -> None:
    """`delete` was killed right before it noted what it had done, and `cp -a` gave everything other inodes: otherwise
    `restore --plan` does not know its directories, and deleted records show again."""
    node = kafka(version, log_dirs=1).start()
    for topic in ("kept", "orders"):
        node.create_topic(topic)
    values = node.produce("orders", n=200)
    node.ask(lambda admin: admin.delete_records({TopicPartition("orders", 0): 150}))
    assert [r.value for r in node.read_all("orders")] == values[150:]
    node.stop()
    (log_dir,) = node.log_dirs
    freely = ("--allow-assigned", "--even-last-copy")
    taken = logagent(
        node, "delete", "--partition", "orders-0", "--quarantine", *freely, "--execute", settings=NO_LIMITS
    )
    with closing(sqlite3.connect(node.root / "state" / "journal.db")) as journal, journal:
        journal.execute("UPDATE actions SET outcome=NULL, finished_at_ms=NULL")
    copied(log_dir, "cp -a")
    restored = logagent(node, "restore", "--plan", taken["plan_id"], "--execute")["actions"]
    assert {a["outcome"] for a in restored} == {"done"}
    node.start()
    assert node.offline_dirs() == []
    assert [r.value for r in node.read_all("orders")] == values[150:]


def copied(log_dir: Path, how: str) -> None:
    """The log dir comes to another disk: everything in it has another inode."""
    original = log_dir.with_name("original")
    log_dir.rename(original)
    if how == "tar":
        log_dir.mkdir()
        packed = subprocess.run(["tar", "-C", original, "-c", "."], check=True, capture_output=True).stdout
        # As nobody but root: without the mode bits that only root gets back.
        subprocess.run(["tar", "-C", log_dir, "-x", "--no-same-permissions"], input=packed, check=True)
    else:
        subprocess.run([*how.split(), original, log_dir], check=True)
    shutil.rmtree(original)


def killed_batch(node: KafkaNode, cut: str) -> None:
    """What a removal of all strays leaves that is killed: every intent and mark, and one directory without its first
    segment."""
    (log_dir,) = node.log_dirs
    with Journal.open(str(node.root / "state")) as journal:
        renames = [e.intent for e in journal.renames().values()]
        meant = [
            replace(i, action=ActionKind.REMOVE, name=i.new_name or "", new_name=None, checkpoint_entries=())
            for i in renames
            if (log_dir / (i.new_name or "")).exists()
        ]
        journal.begin(meant, time.time_ns() // 1_000_000)
    for intent in meant:
        mark(log_dir / intent.name)
        if intent.name.startswith(cut):
            for path in (log_dir / intent.name).glob("00000000000000000000.*"):
                path.unlink()
