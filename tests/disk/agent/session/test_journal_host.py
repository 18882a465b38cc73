"""The journal of another host is refused: swapped state dirs settled each other's intents."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli_host import ALL_DUE, NO_LIMITS, CliHost


def test_a_swapped_state_dir_is_refused(tmp_path: Path) -> None:
    one, other = CliHost(tmp_path / "one"), CliHost(tmp_path / "other")
    for host in (one, other):
        host.configure(**NO_LIMITS, **ALL_DUE)
    for meta in other.disk.glob("*/meta.properties"):
        meta.write_text(re.sub(r"cluster\.id=.*", "cluster.id=AnotherClusterAnother1", meta.read_text()))
    assert one.run("cleanup", "--execute").status in (0, 3)  # 3: the disk has strays of topics that live here
    before = other.partitions()
    one.state.rename(other.state)
    ran = other.run("cleanup", "--execute")
    assert ran.status == 1 and "is of another host" in ran.err and "AnotherClusterAnother1" in ran.err
    assert other.partitions() == before
    other.state.rename(one.state)
    assert one.run("cleanup", "--execute").status in (0, 3)  # 3: the disk has strays of topics that live here


def test_also_where_a_disk_of_the_host_is_not_mounted(tmp_path: Path) -> None:
    """One log dir without `meta.properties` was enough for any journal to be taken for this host's, and settled."""
    one, other = CliHost(tmp_path / "one"), CliHost(tmp_path / "other")
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
