"""A purge of a directory whose disk has another path by now is never called done."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from logagent.controller.rounds import DeletionRounds
from logagent.controller.setting import Setting
from logagent.store.deletion import Request, RequestedDirectory
from logagent.store.landing_files import Claim, land
from logagent.store.orders import instant, write_request
from logagent.store.signing import public_key
from tests.disk.agent.orders.test_orders import KEY, ORPHAN, OrderedHost
from tests.disk.controller.small_fleet import Admin


@pytest.mark.parametrize(("gone", "why"), [(False, "d2/returns-2 now"), (True, "this host has no log dir ")])
def test_a_purge_of_a_path_of_before_stays_open_and_says_why(tmp_path: Path, gone: bool, why: str) -> None:
    host = OrderedHost(tmp_path)
    if gone:
        (host.host.d2 / "returns-2").rename(host.host.root / "away")
    now = datetime.now(UTC)
    row = RequestedDirectory(
        host.node, f"{host.host.disk}/before/d2", "returns-2", "returns", ORPHAN[1], ORPHAN[2], "orphan", 10, True
    )
    until = instant(now + timedelta(days=7))
    request = Request("request-1", host.cluster, "directories", "a" * 16, "ops", instant(now), until, 1, True,
                      directories=(row,))  # fmt: skip
    write_request(host.control, request, KEY)
    claim = Claim("s1", "snapshot", host.cluster, host.node, "kafka-3", now)
    land(host.store, claim, [json.dumps({"row": "snapshot", "schema": "logagent.snapshot/1"})], received_at=now)
    keys = (public_key(KEY.public()),)
    setting = Setting(host.control, KEY, keys, Admin(), lambda: datetime.now(UTC), "ops", "shell", warn=print)
    rounds = DeletionRounds(setting)
    rounds.start()
    for _ in range(5):
        rounds.round()
        host.obey()
    rounds.round()
    ((replica, known),) = rounds.manager.context.replicas.items()
    assert rounds.states.of("request-1") == "open" and replica.name == "returns-2"
    assert known.reason is not None and known.reason.guard == "identity" and why in known.reason.why, known
    assert gone or host.host.find("returns-2") == ["returns-2"]
    # Asked again a few times at once, then after growing pauses.
    assert known.attempts == 4 and known.retry_at is not None and known.retry_at > datetime.now(UTC)
