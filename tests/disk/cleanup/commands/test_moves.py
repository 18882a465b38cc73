"""`queue` and `check --leave` show both sides of a move, on a real broker's disk that has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import assert_promised
from tests.host import Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


def test_queue_and_leave_say_the_same_of_a_move(host: Host) -> None:
    name = host.find("shipments-1.", "-future")[0]
    to, source = (host.d1, host.d2) if (host.d1 / name).exists() else (host.d2, host.d1)
    queue = host.run("queue", "--json").json
    assert_promised(queue, "queue")
    moves = {move["partition"]: move for move in queue["moves"]}
    wanted = {"name": name, "partition": "shipments-1", "source": str(source), "to": str(to)}
    copied, of = (sum(p.stat().st_size for p in d.glob("*.log")) for d in (to / name, source / "shipments-1"))
    assert moves["shipments-1"] == {**wanted, "copied_bytes": copied, "bytes": of}
    # Its topic is deleted: what it was a copy of is gone.
    assert (moves["labels-0"]["source"], moves["labels-0"]["bytes"]) == (None, None)
    said = host.run("queue").err
    assert f"shipments-1 moves from {source} to {to}: " in said and "it continues when the broker runs" in said
    for log_dir in (to, source):
        left = host.run("check", "--leave", str(log_dir), "--json").json
        assert_promised(left, "leave")
        assert moves["shipments-1"] in left["moves"]
    assert f"shipments-1 moves from {source} to {to}: " in host.run("check", "--leave", str(source)).err


def test_a_queue_without_a_move_has_none(host: Host) -> None:
    for name in host.find("", "-future"):
        (host.d1 if (host.d1 / name).exists() else host.d2).joinpath(name).rename(host.disk / name)
    assert host.run("queue", "--json").json["moves"] == [] and "moves" not in host.run("queue").err
