"""What guards refuse, on real disks: each refusal names guard, fact and hint, and the disk stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import LOCKER, process
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host, delete

READER = """
import sys
files = [open(path) for path in sys.argv[1:]]
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


@pytest.fixture
def judged(tmp_path: Path) -> Host:
    """A host whose verdicts come from fresh assignments."""
    host = Host.from_disk(tmp_path)
    host.with_assignments(**NO_LIMITS)
    return host


def test_nothing_goes_without_proof_or_the_operators_word(judged: Host) -> None:
    before = judged.partitions()
    ran = delete(judged, "--partition", "orders-1")
    assert ran.status == 3 and ran.guards() == {"orders-1": "assigned"}
    assert ran.json["refusals"][0]["fact"] == "its verdict is assigned"
    assert "--allow-assigned" in ran.json["refusals"][0]["hint"]
    assert judged.partitions() == before
    # A living ISR is not enough: the leader must have all of it, and nobody can be asked here.
    ran = delete(judged, "--partition", "orders-1", "--allow-assigned")
    assert ran.status == 3 and ran.json["refusals"][0]["claim"] == "covered"
    assert "--even-last-copy" in ran.json["refusals"][0]["hint"] and judged.partitions() == before
    ran = delete(judged, "--partition", "orders-1", "--allow-assigned", "--even-last-copy")
    assert ran.status == 0 and ran.outcomes() == {"orders-1": "done"}
    ran = delete(judged, "--partition", "returns-2")
    assert ran.status == 0 and ran.outcomes() == {"returns-2": "done"}


def test_the_last_copy_needs_a_word_of_its_own(host: Host) -> None:
    ran = delete(host, "--partition", "orders-1", "--allow-assigned")
    assert ran.status == 3 and ran.guards() == {"orders-1": "assigned"}
    assert "--even-last-copy" in ran.json["refusals"][0]["hint"]


def test_a_copy_that_has_moved_goes_only_if_another_one_has_all_of_it(judged: Host) -> None:
    before = judged.partitions()
    ran = delete(judged, "--partition", "invoices-0")
    assert ran.status == 3 and ran.guards() == {"invoices-0": "assigned"}
    (refusal,) = ran.json["refusals"]
    assert refusal["claim"] == "covered" and refusal["fact"].startswith("not-a-replica: its replicas are 2, 1")
    assert "no copy is known to cover it" in refusal["fact"]
    assert refusal["hint"].startswith("its leader could not be asked: node 1 ")
    assert "; or add --even-last-copy" in refusal["hint"] and judged.partitions() == before
    ran = delete(judged, "--partition", "invoices-0", "--even-last-copy")
    assert ran.status == 0 and ran.outcomes() == {"invoices-0": "done"}


def test_while_a_broker_holds_the_log_dirs_every_deed_is_refused(host: Host) -> None:
    host.configure(**NO_LIMITS, **ALL_DUE)
    delete(host, "--partition", "clicks-0", *FREELY)
    (marked,) = host.find("clicks-0.", "-delete")
    host.run("delete", "--partition", "x-0", "--quarantine", *FREELY, "--execute")
    with process(LOCKER, host.d1, host.d2) as pid:
        before = host.partitions()
        checkpoints = host.checkpoints()
        for ran in (
            delete(host, "--topic", "orders|visits", *FREELY),
            host.run("restore", "--retention-will-delete", "--json", marked, "--execute"),
            host.run("cleanup", "--json", "--execute"),
        ):
            assert ran.status == 3 and not ran.json["actions"]
            assert set(ran.guards().values()) == {"window"}
            assert [r for r in ran.json["refusals"] if str(pid) not in r["fact"]] == []
        assert host.partitions() == before and host.checkpoints() == checkpoints
        scan = host.run("scan", "--json")
        assert {(d["holder"]["state"], d["holder"]["pid"]) for d in scan.json["log_dirs"]} == {("starting", pid)}
    assert host.run("restore", "--retention-will-delete", "--json", marked, "--execute").status == 0
    assert (host.d1 / ".lock").exists(), "whose lock it was is not for us to tidy up"


def test_a_process_without_the_lock_that_has_files_open_stops_it_too(host: Host) -> None:
    (log,) = (host.d2 / "orders-1").glob("*.log")
    with process(READER, log) as pid:
        before = host.partitions()
        ran = delete(host, "--partition", "orders-1", *FREELY)
        assert ran.status == 3 and ran.guards() == {"orders-1": "lock"}
        assert str(pid) in ran.json["refusals"][0]["fact"]
        assert host.partitions() == before
    assert delete(host, "--partition", "orders-1", *FREELY).outcomes() == {"orders-1": "done"}


def test_nothing_is_guessed_about_log_dirs_of_two_nodes(host: Host) -> None:
    meta = host.d2 / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=3", "node.id=4"))
    before = host.partitions()
    ran = delete(host, "--topic", "orders", *FREELY)
    assert ran.status == 3 and "cluster" in set(ran.guards().values())
    assert [a for a in ran.json["actions"] if a["log_dir"] == str(host.d2)] == []
    changed = {path for path in host.partitions().keys() ^ before.keys() if path.startswith("d2/")}
    assert not changed


def test_an_unformatted_log_dir_is_listed_and_left_alone(host: Host) -> None:
    (host.d2 / "meta.properties").unlink()
    ran = delete(host, "--topic", "orders", *FREELY)
    assert ran.guards() == {"orders-1": "online", "orders-2": "online"}
    assert {d["path"]: d["health"] for d in host.run("scan", "--json").json["log_dirs"]} == {
        str(host.d1): "online",
        str(host.d2): "unformatted",
    }


@pytest.mark.parametrize("version", [None, "2.8.2", "3.6.0"])
def test_brokers_that_do_not_know_strays_get_none(host: Host, version: str | None) -> None:
    host.configure(**NO_LIMITS, **({} if version is None else {"kafka.version": version}))
    if version is None:
        # Nor does the metadata.version of the cluster say it.
        host.configure(**NO_LIMITS, **{"assignments.sources": ["file"], "assignments.file": str(host.root / "absent")})
        lines = host.toml.read_text().splitlines()
        host.toml.write_text("\n".join(line for line in lines if not line.startswith("version")))
    before = host.partitions()
    ran = delete(host, "--partition", "orders-1", "--quarantine", *FREELY)
    assert ran.status == 3 and ran.guards() == {"orders-1": "version"}
    assert "cleanup.quarantine_dirs" in ran.json["refusals"][0]["hint"]
    assert host.partitions() == before


def test_without_a_journal_nothing_is_done(host: Host) -> None:
    host.state.write_text("in the way")
    before = host.partitions()
    ran = delete(host, "--partition", "orders-1", *FREELY)
    assert ran.status == 1 and "state dir" in ran.err and "hint:" in ran.err
    host.state.unlink()
    host.state.mkdir()
    (host.state / "journal.db").write_bytes(b"no database at all" * 100)
    ran = delete(host, "--partition", "orders-1", *FREELY)
    assert ran.status == 1 and "journal.db" in ran.err
    dry = delete(host, "--partition", "orders-1", *FREELY, execute=False)
    assert dry.guards() == {"orders-1": "journal"}
    assert host.partitions() == before


def test_two_never_act_at_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waits ten seconds; its clock runs fast here."""
    import logagent.cleanup.session.of_command
    from logagent.base.clock import SystemClock

    class Hasty(SystemClock):
        ahead = 0.0

        def monotonic(self) -> float:
            return super().monotonic() + self.ahead

        def sleep(self, seconds: float) -> None:
            self.ahead += seconds

    host.state.mkdir()
    holder = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); "
    holder += "f.write('4711 cli:somebody'); f.flush(); print('ready', flush=True); sys.stdin.read()"
    monkeypatch.setattr(logagent.cleanup.session.of_command, "SystemClock", Hasty)
    with process(holder, host.state / "executor.lock"):
        before = host.partitions()
        ran = delete(host, "--partition", "orders-1", *FREELY)
        assert ran.status == 75 and "cli:somebody (process 4711)" in ran.err
        assert host.partitions() == before
        assert delete(host, "--partition", "orders-1", *FREELY, execute=False).status == 0
    assert delete(host, "--partition", "orders-1", *FREELY).status == 0


def test_before_3_6_1_quarantine_is_a_place_outside_the_log_dirs(host: Host) -> None:
    aside = host.disk / "aside"
    aside.mkdir()
    host.configure(**NO_LIMITS, **{"kafka.version": "2.8.2", "cleanup.quarantine_dirs": [str(aside)]})
    before, checkpoints = host.partitions(), host.checkpoints()
    ran = delete(host, "--partition", "orders-1", "--quarantine", *FREELY)
    assert ran.status == 0 and ran.outcomes() == {"orders-1": "done"}
    (name,) = [entry.name for entry in aside.iterdir()]
    assert name.startswith("orders-1.") and name.endswith("-stray") and not (host.d2 / "orders-1").exists()
    assert host.find("orders-1.") == []
    # No log dir: nothing of it keeps a broker from starting.
    assert {d["path"] for d in host.run("check", "--json").json["log_dirs"]} == {str(host.d1), str(host.d2)}
    # A KRaft broker of that release deletes what is not assigned to it, and nothing says that this is.
    refused = host.run("restore", "--json", name, "--execute")
    assert refused.status == 3 and "--broker-will-delete" in refused.out
    back = host.run("restore", "--retention-will-delete", "--json", name, "--broker-will-delete", "--execute")
    assert back.status == 0 and back.outcomes() == {name: "done"}
    host.check_back(before)
    assert host.checkpoints() == checkpoints
