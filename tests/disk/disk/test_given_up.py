"""Attacks on a log dir that its living broker has given up: nobody locks it, and yet the broker is not stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import LOCKER, process
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host


@pytest.mark.parametrize(
    "arguments",
    [
        ("delete", "--partition", "orders-1", *FREELY),
        ("delete", "--partition", "orders-1", "--quarantine", *FREELY),
        ("cleanup",),
    ],
    ids=" ".join,
)
def test_a_log_dir_that_the_living_broker_gave_up_is_offline(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    host = Host.from_disk(tmp_path)
    host.run("delete", "--partition", "orders-2", *FREELY, "--execute")
    host.with_assignments(topics_gone=True, **NO_LIMITS, **ALL_DUE)
    # `LogManager.handleLogDirFailure` closes the logs of the dir, and its lock goes; that of the other stays.
    with process(LOCKER, host.d1) as pid:
        before = host.partitions()
        ran = host.run(arguments[0], "--json", *arguments[1:], "--execute")
        assert host.partitions() == before
        assert ran.status == 5
        facts = [r["fact"] for r in ran.json["refusals"] if r["log_dir"] == str(host.d2)]
        assert facts
        assert [fact for fact in facts if not (f"process {pid}" in fact and "gave it up" in fact)] == []
    assert host.run(arguments[0], "--json", *arguments[1:], "--execute").status == 0
