"""What the kernel does not let us change is refused in the dry run as in `--execute`, by name and before anything is
done: real file systems, `chattr`, overlays, other owners, mounts."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logagent.base.dir_names import CLEANER
from logagent.cleanup.execute.changeable import takes_noreplace
from logagent.cleanup.execute.renames import ENTRY_FILES
from tests.command_line import Ran
from tests.disk.conftest import LoopFs, run, unmount
from tests.disk.copies import run_in_a_copy
from tests.disk.failing import hanging_fs
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host
from tests.needs import need_command, need_root

USER = 54321
LOG = f"{0:020d}.log"
INDEX = f"{0:020d}.index"


@pytest.fixture
def host(loop_fs: LoopFs) -> Host:
    return on(loop_fs("ext4"))


def on(where: Path) -> Host:
    where.chmod(0o755)
    host = Host.from_disk(where)
    host.configure(**NO_LIMITS, **ALL_DUE)
    return host


@contextmanager
def fixed(path: Path, how: str) -> Iterator[None]:
    need_command("chattr")
    run("chattr", f"+{how}", path)
    try:
        yield
    finally:
        run("chattr", f"-{how}", path)


def copy(host: Host, *arguments: str) -> Ran:
    return run_in_a_copy(host, *arguments, alone=True)


def both(host: Host, *arguments: str) -> tuple[Ran, Ran]:
    """The dry run and then `--execute`, which has to do exactly what was shown. Each may become another user."""
    before = host.partitions()
    shown = copy(host, *arguments, "--json")
    assert host.partitions() == before
    done = copy(host, *arguments, "--json", "--execute")
    assert shown.guards() == done.guards() and found(shown) == found(done)
    assert shown.json["plan_id"] == done.json["plan_id"]
    assert set(done.outcomes().values()) <= {"done"}, done.outcomes()
    return shown, done


def found(ran: Ran) -> list[dict[str, str]]:
    return [r for r in ran.json["refusals"] if r["guard"] == "changeable"]


def refusal(ran: Ran, name: str) -> tuple[str, str]:
    """Fact and hint of the only such refusal."""
    (r,) = found(ran)
    assert (r["name"], r["claim"]) == (name, "changeable")
    return r["fact"], r["hint"]


@pytest.mark.parametrize("how", ["i", "a"])
def test_a_directory_that_may_not_change_is_refused_and_the_others_go(host: Host, how: str) -> None:
    with fixed(host.d2 / "orders-1", how):
        shown, done = both(host, "delete", "--partition", "orders-1", "--partition", "orders-3", *FREELY)
    fact, hint = refusal(shown, "orders-1")
    assert "is immutable" in fact or "is append-only" in fact
    assert f"chattr -{how} {host.d2}/orders-1" in hint
    assert done.status == 3 and done.outcomes() == {"orders-3": "done"}


@pytest.mark.parametrize("how", ["i", "a"])
def test_a_log_dir_that_may_not_change_keeps_all_that_is_in_it(host: Host, how: str) -> None:
    with fixed(host.d2, how):
        shown, done = both(host, "delete", "--partition", "orders-1", "--partition", "orders-3", *FREELY)
    fact, hint = refusal(shown, "orders-1")
    assert fact.startswith(f"{host.d2} is ") and f"chattr -{how} {host.d2}" in hint
    assert done.outcomes() == {"orders-3": "done"}


@pytest.mark.parametrize("how", ["i", "a"])
@pytest.mark.parametrize("where", [LOG, "below/deeper/file"])
def test_no_removal_begins_that_could_not_end(host: Host, where: str, how: str) -> None:
    """It would have unlinked what it could, with the mark that keeps the rest from being restored."""
    name, other = marked(host, "orders-1"), marked(host, "orders-3")
    file = host.d2 / name / where
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    before = sorted((host.d2 / name).rglob("*"))
    with fixed(file, how):
        shown, done = both(host, "cleanup")
        assert refusal(shown, name)[0].startswith(str(file))
    assert done.outcomes()[other] == "done"
    assert sorted((host.d2 / name).rglob("*")) == before and not (host.d2 / name).stat().st_mode & 0o4000
    assert host.run("cleanup", "--json", "--execute").outcomes()[name] == "done"


def marked(host: Host, partition: str) -> str:
    assert copy(host, "delete", "--partition", partition, *FREELY, "--execute").status == 0
    (name,) = host.find(f"{partition}.", "-delete")
    return name


@pytest.mark.parametrize("which", [".", INDEX])
def test_a_restore_foresees_it_too(host: Host, which: str) -> None:
    name = marked(host, "orders-1")
    restore = ("restore", name, "--retention-will-delete")
    with fixed(host.d2 / name / which, "i"):
        shown, done = both(host, *restore)
    assert "is immutable" in refusal(shown, name)[0] and done.status == 3
    assert both(host, *restore)[1].outcomes() == {name: "done"}


def test_a_restore_by_way_of_a_swap_is_refused_as_a_whole(host: Host) -> None:
    name = marked(host, "orders-1")
    shutil.copytree(host.d2 / name, host.d2 / "orders-1")
    with fixed(host.d2 / name / INDEX, "i"):
        shown, done = both(host, "restore", name, "--replace", "--even-last-copy", "--retention-will-delete")
    assert shown.guards()[name] == "changeable" and shown.deeds == done.deeds == []
    assert (host.d2 / "orders-1").is_dir() and (host.d2 / name).is_dir()


def test_a_rescue_promises_no_room_that_it_cannot_make(host: Host) -> None:
    name = marked(host, "orders-1")
    with fixed(host.d2 / name / LOG, "i"):
        shown = copy(host, "rescue", "--json")
        done = copy(host, "rescue", "--json", "--execute")
    for ran in (shown, done):
        assert name not in {a["name"] for a in ran.deeds}
        assert {r["name"]: r["guard"] for r in ran.json["refusals"]}[name] == "changeable"


@pytest.fixture
def others() -> Iterator[Host]:
    """A host where all is a user's, as a broker's disk is: that user acts when root asks."""
    need_root()
    with tempfile.TemporaryDirectory() as made:  # one that other users reach
        yield of_user(on(Path(made)))


def test_the_daemon_says_it_too(host: Host) -> None:
    name = marked(host, "orders-1")
    host.configure(**NO_LIMITS, **ALL_DUE, **{"cleanup.mode": "enforce", "metrics.listen": ""})
    with fixed(host.d2 / name / LOG, "i"):
        ran = copy(host, "run", "--once", "--json")
    (cycle,) = [c for c in ran.json["cycles"] if c["job"] == "cleanup"]
    (said,) = [r for r in cycle["refused_because"] if r["guard"] == "changeable"]
    assert said["fact"] == f"{host.d2}/{name}/{LOG} is immutable" and "chattr -i" in said["hint"]
    assert [r for r in cycle["results"] if r["outcome"] == "failed"] == []


def of_user(host: Host) -> Host:
    for warm_up in ((), ("--execute",)):  # that user may not read root's Python
        host.run("cleanup", *warm_up)
    run("chown", "-R", f"{USER}:{USER}", host.disk, host.state)
    return host


def test_what_belongs_to_another_user_is_known_beforehand(others: Host) -> None:
    host = others
    name = marked(host, "orders-1")
    os.chown(host.d2 / name, 0, 0)
    shown, done = both(host, "cleanup")
    fact, hint = refusal(shown, name)
    assert f"user {USER}" in fact and "owner root" in fact and f"chown {USER}" in hint
    assert done.status == 3 and (host.d2 / name / LOG).exists()


@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_a_log_dir_of_another_user_keeps_all_that_is_in_it(others: Host, mode: int) -> None:
    host = others
    os.chown(host.d2, 0, 0)
    host.d2.chmod(mode)
    os.chown(host.d2 / "orders-1", 0, 0)
    shown, done = both(host, "delete", "--partition", "orders-1", "--partition", "orders-3", *FREELY)
    fact, _ = refusal(shown, "orders-1")
    assert f"{host.d2} is sticky" in fact if mode & 0o1000 else f"may not change {host.d2} (owner root" in fact
    assert done.outcomes() == {"orders-3": "done"}


@pytest.mark.parametrize("how", ["of root", "immutable"])
def test_a_checkpoint_that_cannot_be_replaced_keeps_what_it_has_an_entry_for(others: Host, how: str) -> None:
    """As after a broker that was started as root once: each rename in the batch failed because of it."""
    host, checkpoint = others, others.d2 / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\norders 1 0\n")
    os.chown(checkpoint, *((0, 0) if how == "of root" else (USER, USER)))
    asked = ("delete", "--partition", "orders-1", "--partition", "orders-3", *FREELY)
    if how == "immutable":
        with fixed(checkpoint, "i"):
            shown, done = both(host, *asked)
    else:
        shown, done = both(host, *asked)
    assert str(checkpoint) in refusal(shown, "orders-1")[0]
    assert done.outcomes() == {"orders-3": "done"}


IN_PLACE_OF_A_FILE: dict[str, Callable[[Path], object]] = {
    "a directory": Path.mkdir,
    "a FIFO": os.mkfifo,
    "a symlink": lambda path: path.symlink_to("nowhere"),
    "unrecognised version 7": lambda path: path.write_text("7\n0\n"),
}


@pytest.mark.parametrize("what, name", [*zip(IN_PLACE_OF_A_FILE, (CLEANER, *ENTRY_FILES), strict=True)])
def test_a_checkpoint_that_cannot_be_read_keeps_what_may_have_an_entry_in_it(
    tmp_path: Path, name: str, what: str
) -> None:
    """All were promised, and each failed in the batch; what is marked already has no entries there."""
    host = on(tmp_path)
    gone = marked(host, "orders-2")
    checkpoint = host.d2 / name
    checkpoint.unlink(missing_ok=True)
    IN_PLACE_OF_A_FILE[what](checkpoint)
    shown, done = both(host, "delete", "--partition", "orders-1", "--partition", "orders-3", *FREELY)
    fact, hint = refusal(shown, "orders-1")
    assert what in fact and str(host.d2) in fact and str(checkpoint) in hint
    assert done.outcomes() == {"orders-3": "done"}
    restored, _ = both(host, "restore", gone, "--retention-will-delete")
    assert what in refusal(restored, gone)[0]
    assert both(host, "cleanup")[1].outcomes()[gone] == "done"


def test_what_an_access_control_list_permits_is_done(others: Host) -> None:
    """The kernel is asked, not the mode."""
    host = others
    os.chown(host.d2, 0, 0)
    # Owner rwx, this user rwx, group rx, mask rwx, others rx.
    entries = ((1, 7, -1), (2, 7, USER), (4, 5, -1), (16, 7, -1), (32, 5, -1))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    os.setxattr(host.d2, "system.posix_acl_access", acl)
    shown, done = both(host, "delete", "--partition", "orders-1", *FREELY)
    assert found(shown) == [] and done.outcomes() == {"orders-1": "done"}


@pytest.fixture
def overlay(loop_fs: LoopFs) -> Iterator[Callable[[str], Host]]:
    """A host on an image, whose log dirs are in its lower layer."""
    need_root()
    base = loop_fs("ext4")
    points: list[Path] = []

    def make(options: str) -> Host:
        lower, upper, work, merged = (base / name for name in ("lower", "upper", "work", "merged"))
        for folder in (lower, upper, work, merged):
            folder.mkdir()
        host = Host.from_disk(lower)
        text = host.properties.read_text(encoding="latin-1")
        host.properties.write_text(text.replace(str(lower), str(merged)), encoding="latin-1")
        layers = f"lowerdir={lower},upperdir={upper},workdir={work}"
        run("mount", "-t", "overlay", "overlay", "-o", f"{layers},{options}", merged)
        points.append(merged)
        host = host
        host.root, host.disk, host.toml, host.state = (
            merged,
            merged / "host",
            merged / "logagent.toml",
            merged / "state",
        )
        host.d1, host.d2, host.properties = host.disk / "d1", host.disk / "d2", host.disk / "server.properties"
        host.configure(**NO_LIMITS, **ALL_DUE)
        return host

    yield make
    for point in points:
        unmount(point)


@pytest.mark.parametrize("merged", [False, True])
def test_the_lower_layer_of_an_overlay_renames_nothing(overlay: Callable[[str], Host], merged: bool) -> None:
    host = overlay("redirect_dir=off")
    if tuple(int(part) for part in os.uname().release.split(".")[:2]) < (6, 6):
        pytest.skip("before Linux 6.6 nothing says on which layer a directory is")
    if merged:
        (host.d2 / "orders-1" / "written").touch()
    upper = host.d1 / "orders-3"
    shutil.copytree(upper, host.disk / "copy", symlinks=True)
    shutil.rmtree(upper)
    shutil.copytree(host.disk / "copy", upper)
    shown, done = both(host, "delete", "--partition", "orders-1", "--partition", "orders-3", *FREELY)
    fact, hint = refusal(shown, "orders-1")
    assert "lower layer of an overlay" in fact and "redirect_dir=on" in hint
    assert done.outcomes() == {"orders-3": "done"}


def test_nor_does_it_refuse_where_the_overlay_moves_them(overlay: Callable[[str], Host]) -> None:
    host = overlay("redirect_dir=on")
    shown, done = both(host, "delete", "--partition", "orders-1", *FREELY)
    assert found(shown) == [] and done.outcomes() == {"orders-1": "done"}


def test_a_quarantine_directory_on_another_mount_of_the_same_disk(
    host: Host, bind_mount: Callable[[Path, Path], None]
) -> None:
    """The device is the same, and `rename` answers EXDEV all the same."""
    there, aside = host.root / "there", host.root / "aside"
    for folder in (there, aside):
        folder.mkdir()
    bind_mount(there, aside)
    host.configure(**NO_LIMITS, **{"kafka.version": "2.8.2", "cleanup.quarantine_dirs": [str(aside)]})
    asked = ("delete", "--partition", "orders-1", "--quarantine", *FREELY)
    shown, _ = both(host, *asked)
    assert "on another mount" in refusal(shown, "orders-1")[0]
    run("mount", "-o", "remount,bind,ro", aside)
    shown, _ = both(host, *asked)
    assert "mounted read-only" in refusal(shown, "orders-1")[0]


def test_nothing_is_said_of_what_may_be_done(others: Host) -> None:
    """Read-only files go as any others do; a sticky log dir of our own is one."""
    host = others
    name = marked(host, "orders-1")
    host.d2.chmod(0o1755)
    (host.d2 / name / LOG).chmod(0o400)
    shown, done = both(host, "cleanup")
    assert found(shown) == [] and done.outcomes()[name] == "done"


@pytest.mark.parametrize(
    "kind, zfs, takes",
    [
        *((kind, "", True) for kind in ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "cifs", "smb3", "virtiofs", "")),
        *((kind, "", False) for kind in ("nfs", "nfs4", "ceph", "9p", "fuse", "fuseblk", "fuse.sshfs", "fuse.bindfs")),
        *(("zfs", version, False) for version in ("", "unknown", "0.8.6-1", "2.1.11-1~bpo", "1.99")),
        *(("zfs", version, True) for version in ("2.2.0-rc4", "2.2.2-0ubuntu9", "2.10.1", "3.0")),
    ],
)
def test_which_file_systems_rename_without_replacing(kind: str, zfs: str, takes: bool) -> None:
    """By the sources of Linux and OpenZFS: there is nothing to try it with that changes nothing."""
    assert takes_noreplace(kind, lambda: zfs) is takes


def test_a_file_system_in_user_space_renames_nothing_and_the_dry_run_says_so(tmp_path: Path) -> None:
    """bindfs knows no RENAME_NOREPLACE: three were promised, and all three failed with EINVAL."""
    with hanging_fs(tmp_path / "fuse") as fuse:
        host = Host.from_disk(fuse.point)
        host.configure(**NO_LIMITS, **ALL_DUE)
        words = ("delete", "--topic", "orders", *FREELY, "--json")
        shown, done = host.run(*words), host.run(*words, "--execute")
        for ran in (shown, done):
            assert ran.json["actions"] == [] and set(ran.guards().values()) == {"changeable"}, ran.out
            assert [r for r in found(ran) if "RENAME_NOREPLACE" not in r["fact"]] == []
        assert (shown.status, done.status) == (0, 3)
