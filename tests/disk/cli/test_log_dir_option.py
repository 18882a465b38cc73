"""`--log-dir` narrows what is acted on, never what is known of the broker's other log dirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli_host import ALL_DUE, FREELY, NO_LIMITS, CliHost, delete


@pytest.fixture
def host(tmp_path: Path) -> CliHost:
    made = CliHost(tmp_path)
    made.configure(**NO_LIMITS, **ALL_DUE)
    return made


def test_only_the_named_log_dir_is_acted_on(host: CliHost) -> None:
    before = host.partitions()
    shown = host.run("cleanup", "--json", "--log-dir", str(host.d1)).json
    done = host.run("cleanup", "--json", "--execute", "--log-dir", str(host.d1)).json
    assert shown["plan_id"] == done["plan_id"] and done["actions"]
    assert {a["log_dir"] for a in done["actions"]} == {str(host.d1)}
    assert {p: v for p, v in host.partitions().items() if p.startswith("d2")} == {
        p: v for p, v in before.items() if p.startswith("d2")
    }


def test_a_dead_log_dir_that_was_left_out_still_keeps_what_may_come_from_a_move(host: CliHost) -> None:
    """The source of a move between log dirs is marked by the broker; where its target is dead it is the only copy.
    With `--log-dir d1` alone it went."""
    by_broker = [path.name for path in host.d1.iterdir() if path.name.endswith("-delete")]
    if not by_broker:
        by_broker = [f"moved-0.{'ab' * 16}-delete"]
        (host.d1 / by_broker[0]).mkdir()
        (host.d1 / by_broker[0] / f"{0:020d}.log").write_bytes(b"x")
    host.d2.rename(host.disk / "elsewhere")
    before = host.find_in(host.d1, "-delete")
    ran = host.run("cleanup", "--json", "--execute", "--log-dir", str(host.d1))
    assert ran.status == 5, ran.err
    assert host.find_in(host.d1, "-delete") == before
    waiting = [w for w in ran.json["waiting"] if w["name"] in by_broker]
    assert waiting and all(str(host.d2) in w["reason"] for w in waiting)


def test_restore_knows_what_is_current_in_the_log_dir_left_out(host: CliHost) -> None:
    delete(host, "--partition", "orders-1", *FREELY)
    (marked,) = host.find("orders-1.", "-delete")
    here, other = (host.d1, host.d2) if (host.d1 / marked).exists() else (host.d2, host.d1)
    (other / "orders-1").mkdir()
    (other / "orders-1" / f"{0:020d}.log").write_bytes(b"")
    ran = host.run("restore", "--json", "--execute", "--log-dir", str(here), marked)
    assert ran.status == 3 and ran.json["actions"] == []
    assert any(str(other) in r["fact"] for r in ran.json["refusals"]), ran.json["refusals"]
    assert (here / marked).exists()
