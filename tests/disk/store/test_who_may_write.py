"""Who may write to a shared store, as real users: nobody renames or removes what is others', and key holders need not
be root."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from logagent.base.errors import ConfigError, ServiceUnreachable
from logagent.base.units import instant
from logagent.cli import run
from logagent.deletion.store.answers import Answers, Seen
from logagent.deletion.store.requests import ControlFolder, Request, write_request
from logagent.store import landing_files
from logagent.store.landing_files import ManifestHead
from logagent.store.shared import init_store
from logagent.store.signing import NotSigned, PrivateKey
from logagent.store.tree import StoreTree
from tests.disk.conftest import run as command
from tests.disk.conftest import unmount
from tests.needs import need_command, need_root
from tests.real_users import User, reachable_folder

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
KEY = PrivateKey("ops", b"\x01" * 32)
SHARED, KEY_HOLDERS = 4100, 4200
AGENT, OTHER = User(4001, 4001, [SHARED]), User(4009, 4009, [SHARED])
OPERATOR, COLLEAGUE = User(4011, KEY_HOLDERS, [SHARED]), User(4012, 4012, [SHARED, KEY_HOLDERS])
NEVER = Request(CLUSTER, "topics", "0" * 16, "ops", "2026-11-21T00:00:00.000Z", "2026-11-22T00:00:00.000Z", "0" * 32)


@pytest.fixture
def store() -> Iterator[Path]:
    need_root()
    with reachable_folder() as folder:
        made = folder / "store"
        made.mkdir()
        yield made


def shared(store: Path, mode: int) -> Path:
    os.chown(store, -1, SHARED)
    store.chmod(mode)
    return store


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def looks(node: int, store: Path) -> None:
    at = instant(datetime.now(UTC))
    Answers(store, CLUSTER).write_seen(Seen(CLUSTER, node, f"kafka-{node}", f"{node:032x}", at, at))


@pytest.mark.parametrize(
    ("had", "has"),
    [(0o2770, 0o3770), (0o770, 0o3770), (0o2775, 0o3775), (0o777, 0o1777), (0o1777, 0o1777), (0o755, 0o755)],
)
def test_what_others_may_write_to_is_made_sticky(store: Path, had: int, has: int) -> None:
    shared(store, had)
    init_store(str(store))
    assert (mode_of(store), mode_of(store / "landing")) == (has, has)


@pytest.mark.parametrize("mode", [0o3770, 0o1777])
def test_nobody_renames_what_another_has_in_the_store(store: Path, mode: int) -> None:
    init_store(str(shared(store, mode)))
    with AGENT.acting():
        looks(1, store)
    with OPERATOR.acting():
        ControlFolder(store, CLUSTER).prepare()
    answers = store / "answers" / CLUSTER / "1"
    with OTHER.acting():
        for taken in (store / "control", store / "answers", store / "landing", answers):
            with pytest.raises(PermissionError):
                taken.rename(taken.with_name("aside"))
        for closed in (store / "control", store / "control" / CLUSTER):
            with pytest.raises(PermissionError):
                (closed / "x").mkdir()
        with pytest.raises(PermissionError):
            (answers / "seen.json").unlink()


def test_a_seen_file_that_is_another_user_s_than_its_folder_is_none(store: Path) -> None:
    init_store(str(shared(store, 0o1777)))
    with AGENT.acting():
        looks(1, store)
    answers = Answers(store, CLUSTER)
    assert answers.seen(1) is not None
    os.chown(store / "answers" / CLUSTER / "1" / "seen.json", OTHER.uid, -1)
    with pytest.raises(NotSigned, match="another user"):
        answers.seen(1)


@pytest.mark.parametrize("mode", [0o3770, 0o1777])
def test_nobody_publishes_for_another_node_once_it_has_its_folder(store: Path, mode: int) -> None:
    """Nor takes away what it published. Who is the first of a day can put folders aside: the next snapshot of that host
    is there again. Who makes a node's folder first keeps its agent out, which fails and says so."""
    init_store(str(shared(store, mode)))
    day = store / "landing" / CLUSTER / "2026-11-22"

    def publishes(node: int, number: int) -> None:
        claim = ManifestHead(f"s-{number}", "snapshot", CLUSTER, node, "h", datetime(2026, 11, 22, tzinfo=UTC))
        with reachable_folder() as spool, StoreTree(store) as tree:
            data = landing_files.put(spool / "s", claim, ['{"row": "x"}'])
            landing_files.deliver(tree, claim, data, landing_files.manifest_of(data).read_bytes(), lambda: None)

    with OTHER.acting():
        publishes(9, 1)
    with AGENT.acting():
        publishes(1, 1)
        for forbidden in (partial(publishes, 9, 2), (day / "9" / "s-1.manifest.json").unlink, (day / "9").rmdir):
            with pytest.raises(PermissionError):
                forbidden()
        with pytest.raises(PermissionError):
            (day / "9").rename(day / "aside")
    with OTHER.acting():
        with pytest.raises(PermissionError):
            publishes(1, 2)
        (day / "1").rename(day / "aside")
        (day / "2").mkdir()
    with AGENT.acting():
        publishes(1, 3)
        assert [path.name for path in (day / "1").glob("*.json")] == ["s-3.manifest.json"]
        with pytest.raises(PermissionError):
            publishes(2, 1)


@pytest.mark.parametrize("who", [OPERATOR, User(0, 0)], ids=["operator", "root"])
def test_a_store_in_which_others_may_rename_is_refused_with_what_mends_it(store: Path, who: User) -> None:
    init_store(str(shared(store, 0o2770)))
    with AGENT.acting():
        looks(1, store)
    for folder in (store, store / "landing", store / "answers", store / "answers" / CLUSTER):
        folder.chmod(0o2770)
    with who.acting(), pytest.raises(ConfigError, match="are not sticky") as raised:
        ControlFolder(store, CLUSTER).prepare()
    hint = raised.value.hint or ""
    assert hint.startswith("chmod 3770 ") and not (store / "control").exists()
    subprocess.run(["sh", "-ec", hint], check=True)  # as pasted
    with who.acting():
        assert ControlFolder(store, CLUSTER).prepare()
    assert mode_of(store) == mode_of(store / "answers" / CLUSTER) == 0o3770


def test_a_control_folder_that_somebody_made_before_is_refused_by_root_too(store: Path) -> None:
    """Where a key holder who is not root cannot write at all, root could, and its decisions would be that user's."""
    init_store(str(shared(store, 0o1777)))
    with OTHER.acting():
        for folder in (store / "control", store / "control" / CLUSTER):
            folder.mkdir()
            folder.chmod(0o2775)
    control = ControlFolder(store, CLUSTER)
    with OPERATOR.acting(), pytest.raises(ServiceUnreachable, match="Permission denied"):
        control.prepare()
    closed_as_told(control, "belongs to user 4009", times=2)


@pytest.mark.parametrize("mode", [0o2770, 0o777])
def test_a_control_folder_that_others_may_write_to_is_closed_as_told(store: Path, mode: int) -> None:
    init_store(str(shared(store, 0o3770)))
    control = ControlFolder(store, CLUSTER)
    control.prepare()
    os.chown(store / "control", -1, SHARED)
    (store / "control").chmod(mode)
    closed_as_told(control, "may write to it")


def closed_as_told(control: ControlFolder, why: str, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(ConfigError, match=why) as raised:
            control.prepare()
        subprocess.run(["sh", "-ec", raised.value.hint or "false"], check=True)  # as pasted
    assert control.prepare()


def test_who_may_not_change_the_mode_is_told_what_its_owner_runs(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared(store, 0o2770)
    with OPERATOR.acting():
        assert run(["fleet", "init", "--store", str(store)]) == ConfigError.exit_status
    told = capsys.readouterr().err
    assert f"hint: chmod 3770 {shlex.quote(str(store))}" in " ".join(told.split()), told
    assert list(store.iterdir()) == []
    store.chmod(0o3770)
    with OPERATOR.acting():
        assert run(["fleet", "init", "--store", str(store)]) == 0
    assert "cannot publish" not in capsys.readouterr().err


def test_init_says_whose_the_folders_are_if_no_other_user_can_publish_there(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared(store, 0o755)
    assert run(["fleet", "init", "--store", str(store)]) == 0
    told = capsys.readouterr().err
    assert "its folders belong to user root, and agents of other users cannot publish there" in told, told
    assert f"chmod 3770 {store} {store}/landing {store}/answers" in told
    for folder in (store, store / "landing", store / "answers"):
        shared(folder, 0o3770)
    assert run(["fleet", "init", "--store", str(store)]) == 0
    assert "cannot publish" not in capsys.readouterr().err


def test_key_holders_share_the_control_folder_by_their_group(store: Path) -> None:
    """The first one makes it, with its primary group; who is in the group writes there, and no other user."""
    init_store(str(shared(store, 0o1777)))
    control = ControlFolder(store, CLUSTER)
    with OPERATOR.acting():
        number = write_request(control, NEVER, KEY)
    assert (mode_of(store / "control"), (store / "control").stat().st_gid) == (0o2775, KEY_HOLDERS)
    with COLLEAGUE.acting():
        assert control.prepare() and control.create(f"requests/{number}", "decision.json", b"")
    with OTHER.acting(), pytest.raises(ServiceUnreachable, match="Permission denied"):
        control.prepare()


def test_an_export_that_has_one_user_and_one_group_for_all_takes_a_request(store: Path) -> None:
    """Its server changes no group."""
    need_command("bindfs")
    os.chown(store, 4000, 4000)
    point = store.with_name("mnt")
    point.mkdir()
    command("bindfs", "-o", "allow_other", "--force-group=4000", "--chgrp-deny", store, point)
    try:
        with User(4000, KEY_HOLDERS).acting():
            init_store(str(point))
            assert write_request(ControlFolder(point, CLUSTER), NEVER, KEY)
            assert ControlFolder(point, CLUSTER).prepare()
    finally:
        unmount(point)


def test_root_of_an_export_that_squashes_it_has_its_own_control_folder(store: Path) -> None:
    """What it makes there is nobody's, and is its own all the same."""
    need_command("bindfs")
    store.chmod(0o1777)
    point = store.with_name("mnt")
    point.mkdir()
    command("bindfs", "-o", "allow_other", "--create-for-user=65534", "--create-for-group=65534", store, point)
    try:
        init_store(str(point))
        control = ControlFolder(point, CLUSTER)
        assert control.prepare() and (store / "control").stat().st_uid == 65534
        assert write_request(control, NEVER, KEY) and control.prepare()
    finally:
        unmount(point)
