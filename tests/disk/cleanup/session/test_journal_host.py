"""The journal of another host is refused: swapped state dirs settled each other's intents."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from logagent.base.records import ActionKind, Identity
from logagent.cleanup.state.journal import Intent, Journal
from tests.host import ALL_DUE, NO_LIMITS, Host
from tests.hosts import HEX


def test_a_swapped_state_dir_is_refused(tmp_path: Path) -> None:
    one, other = Host.from_disk(tmp_path / "one"), Host.from_disk(tmp_path / "other")
    for host in (one, other):
        host.configure(**NO_LIMITS, **ALL_DUE)
    for meta in other.disk.glob("*/meta.properties"):
        meta.write_text(re.sub(r"cluster\.id=.*", "cluster.id=AnotherClusterAnother1", meta.read_text()))
    assert one.run("cleanup", "--execute").status in (0, 3)  # 3: the disk has strays of topics that live here
    before = other.partitions()
    one.state.rename(other.state)
    # What --execute refuses, the dry run refuses, and believes nothing that the journal says.
    for command in ("cleanup", "rescue", "delete --topic orders --allow-assigned --even-last-copy", "restore {stray}"):
        stray = next(iter(other.find("", "-stray")))
        words = command.format(stray=stray).split()
        shown, done = other.run(*words, "--json"), other.run(*words, "--json", "--execute")
        assert "acting would fail: the journal" in shown.err and "is of another host" in shown.err
        assert shown.json["actions"] == [] and done.status == 1 and "is of another host" in done.err, command
        wanted = [r for r in shown.json["refusals"] if r["guard"] == "journal"]
        assert [r for r in wanted if not ("is of another host" in r["fact"] and "--state-dir" in r["hint"])] == []
        assert wanted or command.split()[0] in ("rescue", "restore"), command  # refused for more reasons
    assert "is of another host" in other.run("scan").err
    ran = other.run("cleanup", "--execute")
    assert ran.status == 1 and "is of another host" in ran.err and "AnotherClusterAnother1" in ran.err
    assert other.partitions() == before
    other.state.rename(one.state)
    assert one.run("cleanup", "--execute").status in (0, 3)  # 3: the disk has strays of topics that live here


def test_also_where_a_disk_of_the_host_is_not_mounted(tmp_path: Path) -> None:
    """One log dir without `meta.properties` was enough for any journal to be taken for this host's, and settled."""
    one, other = Host.from_disk(tmp_path / "one"), Host.from_disk(tmp_path / "other")
    for host in (one, other):
        host.configure(**NO_LIMITS, **ALL_DUE)
    first, *others = sorted(other.disk.glob("*/meta.properties"))
    first.unlink()
    assert others
    for meta in others:
        meta.write_text(re.sub(r"cluster\.id=.*", "cluster.id=AnotherClusterAnother1", meta.read_text()))
    assert one.run("cleanup", "--execute").status in (0, 3)  # 3: the disk has strays of topics that live here
    one.state.rename(other.state)
    ran = other.run("cleanup", "--execute")
    assert ran.status == 1 and "is of another host" in ran.err and "AnotherClusterAnother1" in ran.err


def test_one_dead_disk_beside_a_new_one_is_still_this_host(tmp_path: Path) -> None:
    """Not one directory id is known then. It goes on, but settles nothing on a disk that the journal does not know."""
    host = Host.from_disk(tmp_path)
    host.configure(**NO_LIMITS, **ALL_DUE)
    assert host.run("cleanup", "--execute").status in (0, 3)  # 3: the disk has strays of topics that live here
    shutil.move(host.d2, tmp_path / "broken")
    meta = host.d1 / "meta.properties"
    meta.write_text(re.sub(r"directory\.id=.*", "directory.id=NewDiskNewDiskNewDiskA", meta.read_text()))
    (intent,) = planted(host)
    ran = host.run("cleanup", "--execute")
    assert "is of another host" not in ran.err and ran.status == 5
    with Journal.open_read_only(str(host.state)) as journal:
        assert [e.id for e in journal.unsettled()] == [intent]


def planted(host: Host) -> list[int]:
    """An intent that a crash left open, of a directory that is there."""
    name = host.find_in(host.d1, "-0")[0]
    found = os.stat(host.d1 / name)
    intent = Intent(
        action=ActionKind.MARK,
        log_dir=str(host.d1),
        name=name,
        new_name=f"{name}.{HEX}-delete",
        topic="x",
        partition=0,
        topic_id=None,
        identity=Identity(found.st_dev, found.st_ino),
        bytes=0,
        plan_id="test",
        actor="test",
    )
    with Journal.open(str(host.state)) as journal:
        return journal.begin([intent], 0)
