"""Commands that change something, and their plans, name the broker; commands that only look find it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import Ran
from tests.disk.doctor_host import D1, D2, PROPERTIES, TOML, DoctorHost, doctor_host

ACT = (
    "cleanup", "cleanup --execute", "delete --partition payments-0", "delete --topic payments", "restore payments-0",
    "rescue", "rescue --execute", "prestart --budget 10m",
    "prestart --budget 10m --dry-run", "run --once",
)  # fmt: skip
LOOK = (
    "scan",
    "check",
    "doctor",
    "queue",
    "history",
    "status",
    "explain payments-0",
    "assignments show",
    "config check",
)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[DoctorHost]:
    """Its broker's configuration is in a usual place, and nothing names it."""
    with doctor_host(tmp_path / "host") as made:
        made.configure(kafka__config=None)
        yield made


def named(ran: Ran) -> bool:
    assert "Traceback" not in ran.err
    return "kafka.config: not set" not in ran.err


@pytest.mark.parametrize("command", ACT)
def test_what_acts_says_which_option_to_copy(host: DoctorHost, command: str) -> None:
    before = sorted(p.name for p in host.path(D1).iterdir())
    refused = host.logagent(*command.split(), user="kafka")
    assert refused.status == 78 and not named(refused), refused.err
    assert f"--kafka-config {PROPERTIES}" in refused.err
    assert sorted(p.name for p in host.path(D1).iterdir()) == before
    assert named(host.logagent(*command.split(), "--kafka-config", PROPERTIES, user="kafka"))
    host.configure()
    assert named(host.logagent(*command.split(), user="kafka"))
    host.path(TOML).unlink()
    assert named(host.logagent(*command.split(), "--log-dir", D1, "--log-dir", D2, user="kafka"))


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoctorHost]:
    """The same, for those that only read."""
    with doctor_host(tmp_path_factory.mktemp("untouched") / "host") as made:
        made.configure(kafka__config=None)
        yield made


@pytest.mark.parametrize("command", LOOK)
def test_commands_that_only_read_find_the_broker(untouched: DoctorHost, command: str) -> None:
    ran = untouched.logagent(*command.split(), user="kafka")
    assert ran.status != 78 and named(ran), ran.err


def test_a_strict_prestart_keeps_no_broker_down_for_want_of_a_name(host: DoctorHost) -> None:
    ran = host.logagent("prestart", "--budget", "10m", "--strict", user="kafka")
    assert ran.status == 0 and f"--kafka-config {PROPERTIES}" in ran.err
