"""The one `server.properties` of a host, looked for on a real file system below a root of our own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logagent.base.errors import ConfigError
from logagent.kafka.processes.discovery import find_server_properties, newest_change_ms


def test_the_only_server_properties_is_found_and_of_two_none_is_guessed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no Kafka broker on this host"):
        find_server_properties(None, str(tmp_path))
    one = tmp_path / "etc/kafka/server.properties"
    one.parent.mkdir(parents=True)
    one.touch()
    assert find_server_properties(None, str(tmp_path)) == str(one)
    two = tmp_path / "opt/kafka/config/server.properties"
    two.parent.mkdir(parents=True)
    two.symlink_to(one)
    assert find_server_properties(None, str(tmp_path)) == str(one)
    two.unlink()
    two.touch()
    with pytest.raises(ConfigError, match="several broker configurations") as caught:
        find_server_properties(None, str(tmp_path))
    assert len(caught.value.problems) == 2
    assert find_server_properties("/anything", str(tmp_path)) == "/anything"


def test_the_newest_change_is_that_of_the_file_and_of_every_link_to_it(tmp_path: Path) -> None:
    """A mounted ConfigMap changes by a link of its folder, without a newer file."""
    old = tmp_path / "..2026"
    old.mkdir()
    file = old / "server.properties"
    file.write_text("node.id=1\n")
    (tmp_path / "..data").symlink_to(old.name)
    (tmp_path / "conf").mkdir()
    link = tmp_path / "conf" / "server.properties"
    link.symlink_to("../..data/server.properties")
    assert newest_change_ms(str(link)) == max(p.lstat().st_ctime_ns for p in (file, tmp_path / "..data", link)) // 10**6
    os.utime(tmp_path / "..data", ns=(1 << 61, 1 << 61), follow_symlinks=False)
    assert newest_change_ms(str(link)) == (1 << 61) // 10**6 > (newest_change_ms(str(file)) or 0)
    file.unlink()
    assert newest_change_ms(str(link)) is None
    link.unlink()
    link.symlink_to(link.name)
    assert newest_change_ms(str(link)) is None
