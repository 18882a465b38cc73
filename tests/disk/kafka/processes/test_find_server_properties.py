"""The one `server.properties` of a host, looked for on a real file system below a root of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from logagent.base.errors import ConfigError
from logagent.kafka.processes.discovery import find_server_properties


def test_the_only_server_properties_is_found_and_of_two_none_is_guessed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no server"):
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
