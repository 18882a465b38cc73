"""A log dir can have another path tomorrow (a symlink, a mount point that was renamed): what was set aside in it is
still known, with its log start offset."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.host import FREELY, NO_LIMITS, Host, delete

LOG_START_OFFSET = "log-start-offset-checkpoint"
CHECKPOINT = "0\n1\nshipments 0 1\n"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


@pytest.mark.parametrize("how", [Path.rename, lambda d1, new: new.symlink_to(d1)], ids=["renamed", "symlink"])
def test_what_comes_back_has_its_log_start_offset(host: Host, how: Callable[[Path, Path], object]) -> None:
    """Records that `deleteRecords` had removed were served again."""
    (host.d1 / LOG_START_OFFSET).write_text(CHECKPOINT)
    set_aside = delete(host, "--partition", "shipments-0", "--quarantine", *FREELY)
    assert set_aside.status == 0 and (host.d1 / LOG_START_OFFSET).read_text() == "0\n0\n"
    new = host.disk / "data1"
    how(host.d1, new)
    text = host.properties.read_text(encoding="latin-1")
    host.properties.write_text(text.replace(str(host.d1), str(new)), encoding="latin-1")
    back = host.run("restore", "--retention-will-delete", "--json", "--plan", set_aside.json["plan_id"], "--execute")
    assert back.status == 0 and set(back.outcomes().values()) == {"done"}, back.out
    assert (new / "shipments-0").is_dir() and (new / LOG_START_OFFSET).read_text() == CHECKPOINT
    assert "log start offset" not in back.json["actions"][0]["reason"]


def test_from_a_quarantine_directory_that_was_renamed_too(host: Host) -> None:
    (host.d1 / LOG_START_OFFSET).write_text(CHECKPOINT)
    for quarantine in (host.root / "old", host.root / "new"):
        host.configure(**NO_LIMITS, **{"kafka.version": "3.5.2", "cleanup.quarantine_dirs": [str(quarantine)]})
        if quarantine.name == "old":
            quarantine.mkdir()
            assert delete(host, "--partition", "shipments-0", "--quarantine", *FREELY).status == 0
            quarantine.rename(host.root / "new")
    (name,) = os.listdir(host.root / "new")
    # A KRaft broker of that release deletes what is not assigned to it.
    assert host.run("restore", "--retention-will-delete", name, "--broker-will-delete", "--execute").status == 0
    assert (host.d1 / "shipments-0").is_dir() and (host.d1 / LOG_START_OFFSET).read_text() == CHECKPOINT


def test_one_that_is_named_by_a_symlink_has_the_path_of_the_configuration(host: Host) -> None:
    """A crash is settled by that path: under the other one nobody would put back what the checkpoints lost."""
    (host.root / "link").symlink_to(host.d1)
    shown = host.run("cleanup", "--json", "--log-dir", str(host.root / "link")).json
    listed = [e for part in ("actions", "waiting", "refusals") for e in shown[part]]
    assert {e["log_dir"] for e in listed} <= {str(host.d1)}
    assert shown["plan_id"] == host.run("cleanup", "--json", "--log-dir", str(host.d1)).json["plan_id"]


def test_without_its_journal_it_is_reported_that_deleted_records_may_come_back(host: Host) -> None:
    delete(host, "--partition", "orders-1", "--quarantine", *FREELY)
    (name,) = host.find("orders-1.", "-stray")
    known = host.run("restore", "--retention-will-delete", "--json", name)
    assert "log start offset" not in known.json["actions"][0]["reason"]
    shutil.rmtree(host.state)
    shown = host.run("restore", "--retention-will-delete", "--json", name, "--execute")
    assert shown.status == 0
    assert "log start offset: records deleted before it may come back" in shown.json["actions"][0]["reason"]
