"""Orders of the fleet from a real S3 server: obeyed and answered there, and gone with the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from logagent.errors import ServiceUnreachable
from tests import object_servers
from tests.disk.agent.orders.test_orders import ORPHAN, OrderedHost
from tests.object_servers import BUCKET


def test_an_order_is_obeyed_and_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with object_servers.s3(tmp_path / "s3") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        host = OrderedHost(tmp_path / "host", f"s3://{BUCKET}/fleet")
        order = host.order("delete", host.identity(ORPHAN))
        host.obey()
        assert host.results(order) == [("renamed", None)]
        assert len(host.host.find("returns-2.", "-stray")) == 1 and host.host.find("returns-2", "returns-2") == []
        host.obey(restart=True)
        assert host.results(order) == [("renamed", None)], "answered from memory"
    with pytest.raises(ServiceUnreachable):
        host.obey()
