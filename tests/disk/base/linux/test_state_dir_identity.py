"""Attacks on the state dir: where it lies, what it has forgotten, and two of them at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.host import FREELY, Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


@pytest.mark.parametrize("where", ["state", ".local/state/logagent", "orders-1/state"])
def test_no_state_dir_is_made_in_a_log_dir(host: Host, where: str) -> None:
    """A broker refuses to start with a directory such as `state` or `.local` in a log dir."""
    host.state = host.d1 / where
    before = host.snapshot()
    ran = host.run("cleanup", "--json", "--execute")
    assert ran.status == 1 and "is inside the log dir" in ran.err
    assert host.snapshot() == before


def test_no_state_dir_is_made_in_a_log_dir_that_has_another_name(host: Host) -> None:
    (host.root / "home").symlink_to(host.d1)
    host.state = host.root / "home" / ".local" / "state" / "logagent"
    before = host.snapshot()
    ran = host.run("delete", "--partition", "orders-1", *FREELY, "--execute")
    assert ran.status == 1 and "is inside the log dir" in ran.err
    assert host.snapshot() == before


def test_no_state_dir_is_made_below_a_bind_mount_of_a_log_dir(
    host: Host, bind_mount: Callable[[Path, Path], None]
) -> None:
    home = host.root / "home"
    home.mkdir()
    bind_mount(host.d2, home)
    host.state = home / "state"
    assert "is inside the log dir" in host.run("cleanup", "--execute").err
    assert not (host.d2 / "state").exists()
