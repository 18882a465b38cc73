"""The pre-start window: a clock that was set, and a network that does not answer."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.agent.clock import SystemClock
from logagent.agent.session.clocks import clocks_now
from logagent.host.state.journal import Journal
from tests.cli_host import ALL_DUE, NO_LIMITS, CliHost


@pytest.fixture
def host(tmp_path: Path) -> CliHost:
    return CliHost(tmp_path)


def cycle_was(host: CliHost, *, wall_ms_ahead: int) -> None:
    """The journal says that in this boot, at this moment, the wall clock was so much ahead of what it is now."""
    host.state.mkdir(exist_ok=True)
    now = clocks_now(SystemClock())
    with Journal.open(str(host.state)) as journal:
        journal.note_clocks(replace(now, wall_ms=now.wall_ms + wall_ms_ahead))


@pytest.mark.parametrize("hours", [-48, 48])
def test_after_a_clock_was_set_nothing_is_marked(host: CliHost, hours: int) -> None:
    host.configure(**NO_LIMITS, **ALL_DUE)
    cycle_was(host, wall_ms_ahead=hours * 3_600_000)
    before = host.partitions()
    ran = host.run("prestart", "--budget", "60s", "--json")
    assert host.partitions() == before
    assert ran.json["plan"]["actions"] == []
    assert any("clock" in w["reason"] for w in ran.json["plan"]["waiting"])


def test_with_true_clocks_strays_past_their_retention_are_marked(host: CliHost) -> None:
    host.configure(**NO_LIMITS, **ALL_DUE)
    cycle_was(host, wall_ms_ahead=0)
    assert host.find("", "-stray")
    host.run("prestart", "--budget", "60s", "--json")
    assert not host.find("", "-stray")


def test_a_network_that_does_not_answer_does_not_outlast_the_budget(host: CliHost) -> None:
    """The broker waits behind prestart: looking has to end in time whatever is being asked."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host.configure(
            **NO_LIMITS,
            **{
                "assignments.sources": ["admin"],
                "kafka.bootstrap_servers": f"127.0.0.1:{silent.getsockname()[1]}",
            },
        )
        import kafka.net.manager  # noqa: F401  what is measured is the waiting, not the import on a busy machine

        started = time.monotonic()
        ran = host.run("prestart", "--budget", "1s", "--json")
        assert time.monotonic() - started < 8
    assert "budget" in ran.json["skipped"]
