"""The host of the tests: what it sees of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import private_host
from tests.disk.conftest import LoopFs


def test_a_checkout_on_a_mount_of_its_own_is_there_and_stays_as_it_is(
    loop_fs: LoopFs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = loop_fs("tmpfs") / "checkout"
    checkout.mkdir(mode=0o700)
    (checkout / "file").write_text("seen")
    monkeypatch.setattr(private_host, "REPOSITORY", checkout)
    with private_host.private_host(tmp_path / "host", private_host.PrivateHost) as host:
        assert host.run("cat", str(checkout / "file"), user="kafka").stdout == "seen"
    assert checkout.stat().st_mode & 0o777 == 0o700
