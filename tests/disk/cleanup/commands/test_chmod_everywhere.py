"""`chmod -R ug+s` on the log dirs sets the mark that a removal has started, everywhere: it starts none, and nothing
that is whole is given up because of it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from logagent.base.records import ActionKind, Identity, Outcome
from logagent.cleanup.state.journal import Intent, Journal
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host

WEEK = {**NO_LIMITS, "cleanup.stray_retention": "7d", "delete.file_delete_delay_ms": 7 * 86_400_000}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


def chmod_everywhere(host: Host) -> None:
    subprocess.run(["chmod", "-R", "ug+s", str(host.d1), str(host.d2)], check=True)


def logs(host: Host) -> dict[str, bytes]:
    (where,) = (d / "shipments-0" for d in (host.d1, host.d2) if (d / "shipments-0").is_dir())
    return {path.name: path.read_bytes() for path in where.glob("*.log")}


def taken(host: Host, kind: str) -> tuple[Path, str]:
    quarantine = ("--quarantine",) if kind == "-stray" else ()
    host.run("delete", "--partition", "shipments-0", *FREELY, *quarantine, "--execute")
    (name,) = host.find("shipments-0.", kind)
    return next(d for d in (host.d1, host.d2) if (d / name).exists()), name


@pytest.mark.parametrize("kind", ["-stray", "-delete"])
def test_what_had_the_bit_before_it_was_taken_comes_back(host: Host, kind: str) -> None:
    before = logs(host)
    chmod_everywhere(host)
    _, name = taken(host, kind)
    back = host.run("restore", "--json", name, "--retention-will-delete", "--execute")
    assert back.status == 0 and set(back.outcomes().values()) == {"done"}, back.out
    assert logs(host) == before


@pytest.mark.parametrize("kind", ["-stray", "-delete"])
def test_what_got_the_bit_later_is_refused_and_nothing_leads_around_that(host: Host, kind: str) -> None:
    _, name = taken(host, kind)
    chmod_everywhere(host)
    refused = host.run("restore", "--json", name, "--execute")
    assert refused.guards() == {name: "journal"}
    (refusal,) = refused.json["refusals"]
    assert "replica" not in refusal["hint"] and "chmod" not in refusal["hint"]


@pytest.mark.parametrize("kind", ["-stray", "-delete"])
def test_it_makes_nothing_due_not_even_beside_a_removal_that_once_failed(host: Host, kind: str) -> None:
    """With an intent in the journal the bit was enough: due at once, and no question asked about its owner."""
    where, name = taken(host, kind)
    found = (where / name).stat()
    files = sum(1 for _ in (where / name).iterdir())
    meant = Intent(
        ActionKind.REMOVE, str(where), name, None, "shipments", 0, None, Identity(found.st_dev, found.st_ino),
        bytes=1 << 40, plan_id="", actor="cli:me", files=files,
    )  # fmt: skip
    with Journal.open(str(host.state)) as journal:
        (number,) = journal.begin([meant], time.time_ns() // 1_000_000)
        journal.finish([(number, Outcome.FAILED, "Operation not permitted")], time.time_ns() // 1_000_000)
    chmod_everywhere(host)
    host.configure(**WEEK)
    ran = host.run("cleanup", "--json", "--execute")
    assert name not in ran.outcomes() and name in {w["name"] for w in ran.json["waiting"]}, ran.out
    if kind == "-stray":
        # Once it is due, its owner is asked for as ever: nobody says here that it may go.
        host.configure(**NO_LIMITS, **ALL_DUE)
        ran = host.run("cleanup", "--json", "--execute")
        assert name not in ran.outcomes() and ran.guards()[name] == "assigned", ran.out
    assert (where / name).is_dir() and sum(1 for _ in (where / name).iterdir()) == files
