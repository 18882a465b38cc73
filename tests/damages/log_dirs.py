"""Damages of whole log dirs: their paths and disks, whose they are, and what the configuration says of them."""

from __future__ import annotations

import shutil
from pathlib import Path

from logagent.base.records import id_to_text
from tests.damages.disk import METADATA_LOG, OTHER_TOPIC_ID, TOPIC, UUID, Disk
from tests.damages.hows import (
    edited,
    empty,
    in_each,
    in_metadata_dir,
    in_turn,
    moved_away,
    removed,
    with_settings,
    written,
    zeroed,
)
from tests.damages.row import Damage, Doing, Where, to
from tests.disk.conftest import run
from tests.needs import need_command


def meta_of_second(disk: Disk) -> Path:
    return disk.d2 / "meta.properties"


def meta_of_metadata_dir(disk: Disk) -> Path:
    return disk.meta / "meta.properties"


def _link_to_log_dir(disk: Disk) -> None:
    link = disk.root / "link"
    link.symlink_to(disk.d1)
    disk.log_dirs(disk.d1, disk.d2, link)


def _log_dir_inside(disk: Disk) -> None:
    """A formatted one whose name parses: nothing but its place is wrong."""
    shutil.copytree(disk.d2, disk.d1 / "inner-1")
    shutil.rmtree(disk.d2)
    disk.log_dirs(disk.d1, disk.d1 / "inner-1")


def _new(disk: Disk) -> Path:
    new = disk.root / "new"
    disk.log_dirs(disk.d1, disk.d2, new)
    return new


def _leaves(disk: Disk) -> None:
    disk.log_dirs(disk.other(disk.partition()))


def _moves(disk: Disk) -> None:
    """The log dir as a whole, to another path."""
    log_dir = disk.partition().parent
    other = disk.other(disk.partition())
    shutil.move(log_dir, disk.root / "moved")
    disk.log_dirs(other, disk.root / "moved")


def _cordoned(text: str) -> Doing:
    return lambda disk: disk.node.configure({"cordoned.log.dirs": text.format(d2=disk.d2)})


PATHS = [
    Damage("a log dir twice", lambda disk: disk.log_dirs(disk.d1, disk.d2, disk.d1)),
    Damage("a log dir and a symlink to it", _link_to_log_dir),
    Damage("a log dir with a slash at its end", lambda disk: disk.log_dirs(f"{disk.d1}/", f"{disk.root}//d2")),
    Damage(
        "a log dir with and without a slash at its end", lambda disk: disk.log_dirs(disk.d1, disk.d2, f"{disk.d1}/")
    ),
    Damage("an empty item", lambda disk: disk.log_dirs(disk.d1, "", disk.d2)),
    Damage("a log dir in a log dir", _log_dir_inside),
    Damage("a log dir is not there", _new),
    Damage("a log dir is a dangling link", lambda disk: _new(disk).symlink_to("/nonexistent/x")),
    Damage("a log dir is a file", lambda disk: _new(disk).touch()),
    Damage("a log dir leaves", _leaves, cure=lambda disk: disk.log_dirs(disk.d1, disk.d2)),
    Damage("a log dir leaves and is gone", in_turn(_leaves, lambda disk: moved_away(disk, disk.partition().parent))),
    Damage("a log dir at another path", _moves),
    Damage("metadata dir not there", lambda disk: moved_away(disk, disk.meta)),
    Damage("lost+found in the metadata dir", lambda disk: disk.make("lost+found", disk.meta)),
    Damage("a cordon", _cordoned("{d2}")),
    Damage("a cordon of no log dir", _cordoned("/gone")),
    Damage("a cordon with a slash", _cordoned("{d2}/")),
    Damage("a cordon of all and more", _cordoned("*,{d2}")),
    Damage("a cordon with an empty item", _cordoned("{d2},")),
]


def _same_directory_id(disk: Disk) -> None:
    lines = (disk.d1 / "meta.properties").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("directory.id="))
    disk.edit(meta_of_second(disk), "directory.id=.*", line.replace("\\", "\\\\"))


def _other_node(disk: Disk) -> None:
    if disk.kraft:
        voters = disk.node.properties["controller.quorum.voters"]
        disk.node.configure({"node.id": "9", "controller.quorum.voters": "9" + voters.lstrip("0123456789")})
    else:
        disk.node.configure({"broker.id": "9"})


META = [
    Damage("meta.properties missing", to(meta_of_second, removed)),
    Damage("meta.properties missing beside the metadata log", to(meta_of_metadata_dir, removed)),
    Damage("meta.properties of a later version", to(meta_of_second, written("version=7\n"))),
    Damage("meta.properties empty", to(meta_of_second, written(""))),
    Damage("meta.properties of the metadata dir empty", to(in_metadata_dir("meta.properties"), empty)),
    Damage("meta.properties of the metadata dir zeroed", to(in_metadata_dir("meta.properties"), zeroed)),
    Damage("another cluster", edited(meta_of_second, "cluster.id=.*", f"cluster.id={OTHER_TOPIC_ID}")),
    Damage("another node in one log dir", edited(meta_of_second, "(node|broker).id=.*", r"\1.id=7")),
    Damage("another node in the configuration", _other_node),
    Damage("a directory id twice", _same_directory_id),
    Damage("no process.roles", with_settings(process_roles=None)),
]


def _reserved(number: int, where: Where) -> Doing:
    return edited(
        lambda disk: where(disk) / "meta.properties",
        "directory.id=.*",
        f"directory.id={id_to_text(number.to_bytes(16, 'big'))}",
    )


RESERVED = [
    *(
        Damage(
            f"directory.id {number} of a log dir",
            _reserved(number, lambda disk: disk.partition().parent),
            cure=Disk.put_meta_properties_back,
        )
        for number in (0, 1, 2, 3, 99)
    ),
    *(
        Damage(
            f"directory.id {number} of the metadata dir",
            _reserved(number, lambda disk: disk.meta),
            cure=Disk.put_meta_properties_back,
        )
        for number in (1, 99, 100)
    ),
]

_generated = with_settings(broker_id=None)
_few_reserved = with_settings(reserved_broker_max_id="0")
_generate_none = with_settings(broker_id_generation_enable="false")


_lost = in_each("meta.properties", removed)


def _write_back(disk: Disk) -> None:
    for log_dir in (disk.d1, disk.d2):
        (log_dir / "meta.properties").write_text(f"version=0\nbroker.id={disk.node.node_id}\n")


def _as_kraft_writes_it(disk: Disk) -> None:
    for log_dir in (disk.d1, disk.d2):
        lines = (log_dir / "meta.properties").read_text().replace("version=0", "version=1")
        (log_dir / "meta.properties").write_text(lines.replace("broker.id=", "node.id="))


IDS = [
    Damage("an id generated earlier", _generated),
    Damage("a generated id lost everywhere", in_turn(_generated, _lost), cure=_write_back),
    Damage("a generated id lost in one log dir", in_turn(_generated, to(meta_of_second, removed))),
    Damage("meta.properties as KRaft writes it", _as_kraft_writes_it, cure=_write_back),
    Damage("meta.properties lost everywhere, the id configured", _lost),
    Damage(
        "a configured id above the reserved ones", with_settings(broker_id="1001"), cure=with_settings(broker_id="1")
    ),
    # The broker's own id is above the reserved ones.
    Damage("its own id above the reserved ones", _few_reserved, cure=_generate_none),
    Damage("its own id above the reserved ones, none generated", in_turn(_few_reserved, _generate_none)),
    Damage("the lowest reserved id", with_settings(reserved_broker_max_id="1")),
    Damage("no id and none generated", in_turn(_generated, _generate_none), cure=with_settings(broker_id="1")),
    Damage("a metadata log in a log dir, ZooKeeper mode", lambda disk: disk.make(METADATA_LOG)),
    Damage("reserved.broker.max.id in KRaft mode", _few_reserved),
]


def _full(disk: Disk) -> None:
    disk.mount("size=8m")
    disk.fill()


def _full_metadata_dir(disk: Disk) -> None:
    disk.mount("size=24m", disk.meta)
    disk.fill(disk.meta)


def _no_inodes(disk: Disk) -> None:
    disk.mount("size=64m")
    used = sum(1 for _ in disk.d1.rglob("*")) + 1
    run("mount", "-o", f"remount,nr_inodes={used}", disk.d1)


def _read_only(where: Where) -> Doing:
    def do(disk: Disk) -> None:
        disk.mount("size=64m", where(disk))
        run("mount", "-o", "remount,ro", where(disk))

    return do


def _failed(disk: Disk) -> None:
    need_command("mkfs.xfs", "xfs_io")
    disk.mount_image("xfs")
    run("sync", "-f", disk.d1)
    run("xfs_io", "-x", "-c", "shutdown", disk.d1)


DISKS = [
    Damage("a failed disk", _failed),
    Damage("no free block", _full, patience=20, write=True),
    Damage("no free inode", _no_inodes, patience=20, write=True),
    Damage("a read-only mount", _read_only(lambda disk: disk.d1)),
    Damage("metadata dir full", _full_metadata_dir, patience=10),
    Damage("metadata dir read-only", _read_only(lambda disk: disk.meta), patience=10),
    Damage("a lock held", lambda disk: disk.hold_lock(True)),
    Damage("a shared lock held", lambda disk: disk.hold_lock(False)),
]


def _fails_for_brokers(disk: Disk) -> None:
    """All at once what no broker starts with, and a controller never looks at."""
    disk.make("bar")
    disk.make("lost+found", disk.meta)
    disk.make("lost+found", disk.d2)
    for log_dir in (disk.d1, disk.d2):
        disk.make(f"{TOPIC}-7", log_dir)
    (disk.d1 / "recovery-point-offset-checkpoint").write_text("garbage\n")
    partition = disk.make(f"zzz-0.{UUID}-delete")
    (partition / "backup.log").write_text("")
    (partition / "partition.metadata").write_text("")


def _of_root(where: Where, mode: int) -> Doing:
    def do(disk: Disk) -> None:
        path = where(disk)
        if not path.exists():
            path.touch()
        run("chown", "root:root", path)
        path.chmod(mode)

    return do


ACCESS = [
    Damage("a log dir of root", _of_root(lambda disk: disk.d1, 0o755)),
    Damage("a partition directory of root", _of_root(lambda disk: disk.partition(), 0o700)),
    Damage("a segment of root", _of_root(lambda disk: disk.partition() / "00000000000000000000.log", 0o644)),
    Damage("an unreadable file in a partition directory", _of_root(lambda disk: disk.partition() / "note.txt", 0o600)),
    Damage("meta.properties of root", _of_root(lambda disk: disk.d1 / "meta.properties", 0o600)),
    Damage("a checkpoint of root", _of_root(lambda disk: disk.d1 / "replication-offset-checkpoint", 0o600)),
    Damage(
        "a temp checkpoint of root",
        _of_root(lambda disk: disk.d1 / "replication-offset-checkpoint.tmp", 0o644),
        patience=10,
    ),
    Damage("a metadata log of root", _of_root(lambda disk: disk.metadata_log, 0o700)),
    Damage(
        "root's, but readable where reading is enough",
        _of_root(lambda disk: disk.partition() / "partition.metadata", 0o644),
    ),
]

OF_LOG_DIRS = [
    *PATHS,
    *META,
    *RESERVED,
    *IDS,
    *DISKS,
    Damage("what stops brokers only", _fails_for_brokers),
    *ACCESS,
]
