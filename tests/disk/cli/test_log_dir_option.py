"""`--log-dir` narrows what is acted on, never what is known of the broker's other log dirs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.kafka.files.properties import parse_meta_properties
from tests.command_line import run_here
from tests.disk.conftest import LoopFs
from tests.disk.messes import Thing, make
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host, delete
from tests.hosts import OF_PLACES


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host.from_disk(tmp_path)
    made.configure(**NO_LIMITS, **ALL_DUE)
    return made


def test_only_the_named_log_dir_is_acted_on(host: Host) -> None:
    before = host.partitions()
    shown = host.run("cleanup", "--json", "--log-dir", str(host.d1)).json
    done = host.run("cleanup", "--json", "--execute", "--log-dir", str(host.d1)).json
    assert shown["plan_id"] == done["plan_id"] and done["actions"]
    assert {a["log_dir"] for a in done["actions"]} == {str(host.d1)}
    assert {p: v for p, v in host.partitions().items() if p.startswith("d2")} == {
        p: v for p, v in before.items() if p.startswith("d2")
    }


def test_a_dead_log_dir_that_was_left_out_still_keeps_what_may_come_from_a_move(host: Host) -> None:
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
    assert waiting
    assert [w for w in waiting if str(host.d2) not in w["reason"]] == []


def test_without_a_configuration_the_assignments_say_which_log_dirs_there_are(host: Host) -> None:
    """With nothing but `--log-dir d1`, the same only copy went: no configuration named the dead log dir."""
    stray, marked = (f"moved-0.{'ab' * 16}-{suffix}" for suffix in ("stray", "delete"))
    for name in (stray, marked):
        (host.d1 / name).mkdir()
        (host.d1 / name / f"{0:020d}.log").write_bytes(b"x")
    host.with_assignments(**NO_LIMITS, **ALL_DUE)
    toml = host.toml.read_text()
    host.toml.write_text(toml.replace(f'config = "{host.properties}"\n', ""))
    missing = parse_meta_properties((host.d2 / "meta.properties").read_bytes()).directory_id
    host.d2.rename(host.disk / "elsewhere")
    d1 = ("--log-dir", str(host.d1))
    cleaned = host.run("cleanup", "--json", "--execute", *d1)
    (why,) = [w["reason"] for w in cleaned.json["waiting"] if w["name"] == marked]
    assert f"directory.id {missing}" in why and "--kafka-config" in why and (host.d1 / marked).exists()
    assert [a for a in host.run("rescue", "--json", *d1).json["actions"] if a["name"] == marked] == []
    refused = host.run("restore", "--json", "--execute", *d1, stray)
    assert refused.guards() == {stray: "online"} and (host.d1 / stray).exists()
    # As soon as it is named, too.
    (host.disk / "elsewhere").rename(host.d2)
    cleaned = host.run("cleanup", "--json", "--execute", *d1, "--log-dir", str(host.d2))
    assert cleaned.outcomes()[marked] == "done"


def test_restore_knows_what_is_current_in_the_log_dir_left_out(host: Host) -> None:
    delete(host, "--partition", "orders-1", *FREELY)
    (marked,) = host.find("orders-1.", "-delete")
    here, other = (host.d1, host.d2) if (host.d1 / marked).exists() else (host.d2, host.d1)
    (other / "orders-1").mkdir()
    (other / "orders-1" / f"{0:020d}.log").write_bytes(b"")
    ran = host.run("restore", "--json", "--execute", "--log-dir", str(here), marked)
    assert ran.status == 3 and ran.json["actions"] == []
    assert any(str(other) in r["fact"] for r in ran.json["refusals"]), ran.json["refusals"]
    assert (here / marked).exists()


@pytest.mark.parametrize("typo", ["d1x", "", "d1/x-1", "../etc"])
def test_what_is_no_log_dir_is_reported(host: Host, typo: str) -> None:
    before = host.partitions()
    ran = host.run("cleanup", "--execute", "--log-dir", f"{host.disk}/{typo}")
    assert ran.status == 78 and "it is not a log dir" in ran.err and str(host.d1) in ran.err
    assert host.partitions() == before


def test_one_by_a_symlink_a_slash_or_a_relative_path_is_the_same(host: Host, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(host.d1)
    plans = {
        host.run("cleanup", "--json", "--log-dir", spelling).json["plan_id"]
        for spelling in (f"{host.d1}/", str(host.d1), os.path.relpath(host.d1))
    }
    assert len(plans) == 1
    linked = host.run("cleanup", "--json", "--log-dir", str(tmp_path / "link")).json
    assert {a["name"] for a in linked["actions"]} == {
        a["name"] for a in host.run("cleanup", "--json", "--log-dir", str(host.d1)).json["actions"]
    }


@pytest.mark.parametrize("kind", ["symlink", "bind mount"])
def test_one_log_dir_under_two_paths_counts_once_and_is_reported(
    host: Host, tmp_path: Path, bind_mount: Callable[[Path, Path], None], kind: str
) -> None:
    """Every directory was listed and removed twice ("20 of 20 done"). No broker starts with it."""
    second = tmp_path / "second"
    if kind == "symlink":
        second.symlink_to(host.d1)
    else:
        second.mkdir()
        bind_mount(host.d1, second)
    log_dirs = [word for path in (host.d1, second, host.d2) for word in ("--log-dir", str(path))]
    once = host.run("scan", "--json").json
    twice = host.run("scan", "--json", *log_dirs)
    assert twice.status == 5 and f"{second} is offline: it is the same directory as {host.d1}" in twice.err
    names = [[(d["log_dir"], d["name"]) for d in scan["dirs"]] for scan in (once, twice.json)]
    assert names[0] == names[1] and names[0]
    # As beside any log dir that is offline: what may be the target of a move from there waits.
    plan = host.run("cleanup", "--json", "--execute", *log_dirs).json
    listed = [(e["log_dir"], e["name"]) for part in ("actions", "waiting", "refusals") for e in plan[part] if e["name"]]
    assert listed
    assert [(log_dir, _) for log_dir, _ in listed if log_dir == str(second)] == []
    found = [f for f in host.run("check", "--json", *log_dirs).json["findings"] if f["path"] == str(second)]
    assert [f["code"] for f in found if f["code"] not in OF_PLACES] == ["duplicate-log-dir"]


def test_the_history_of_one_log_dir(host: Host) -> None:
    done = host.run("cleanup", "--json", "--execute").json
    assert {a["log_dir"] for a in done["actions"]} == {str(host.d1), str(host.d2)}
    entries = {d: host.run("history", "--json", "--log-dir", f"{d}/").json["entries"] for d in (host.d1, host.d2)}
    for log_dir, of in entries.items():
        assert of and {e["log_dir"] for e in of} == {str(log_dir)}
        assert host.run("history", "--json", "--log-dir", str(log_dir), "--limit", "1").json["entries"] == of[-1:]
    assert sum(map(len, entries.values())) == len(host.run("history", "--json").json["entries"])
    assert "no entries of these log dirs" in host.run("history", "--log-dir", str(host.root)).err


def test_a_budget_of_days_is_a_typo(host: Host) -> None:
    for budget in ("30d", "61m"):
        ran = host.run("prestart", "--budget", budget)
        assert ran.status == 2 and "the maximum is an hour" in ran.err


def test_a_quarantine_directory_of_another_disk_is_left_out_too(loop_fs: LoopFs) -> None:
    """Strays of brokers before 3.6.1 are in one directory per file system, not in the log dirs."""
    here, other = loop_fs("ext4"), loop_fs("ext4")
    orphans = [Thing("orphan"), Thing("orphan", second_dir=True)]
    mess = make(here, [*orphans, Thing("assigned"), Thing("assigned", second_dir=True)])
    d1, d2 = mess.log_dirs[0], other / "d2"
    shutil.move(mess.log_dirs[1], d2)
    asides = [point / "aside" for point in (here, other)]
    for aside in asides:
        aside.mkdir()
    properties, toml = here / "server.properties", here / "logagent.toml"
    properties.write_text(f"log.dirs={d1},{d2}\n")
    toml.write_text(
        f'[kafka]\nversion = "3.5.2"\nconfig = "{properties}"\n'
        f'[assignments]\nsources = ["file"]\nfile = "{mess.assignments}"\n'
        '[cleanup]\nmax_fraction = 1.0\nmin_age = "0s"\nsightings = 1\n'
        f'quarantine_dirs = ["{asides[0]}", "{asides[1]}"]\n'
    )
    common = ("--config", str(toml), "--state-dir", str(here / "state"), "--json")
    assert run_here("cleanup", *common, "--execute").status == 0
    assert [len(list(aside.iterdir())) for aside in asides] == [1, 1]
    for arguments, places in (((), set(map(str, asides))), (("--log-dir", str(d1)), {str(asides[0])})):
        shown = run_here("rescue", *common, *arguments)
        assert {a["log_dir"] for a in shown.json["actions"]} == places, shown.err
