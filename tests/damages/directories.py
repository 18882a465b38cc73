"""Damages of directories: names, the same partition twice, what has no topic id."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.damages.disk import OTHER_TOPIC_ID, OTHER_UUID, TOPIC, UUID, Disk
from tests.damages.files import FIRST_TASKS
from tests.damages.hows import (
    CLEAN,
    as_directory,
    in_log_dir,
    in_partition,
    in_turn,
    leading_nowhere,
    linked_file,
    moved_away,
    removed,
    written,
)
from tests.damages.row import Damage, Doing, How, Where, to
from tests.disk.conftest import run, unmount

NAMES_OF_NOTHING = ("bar", ".trash", "-0", "zzz-0-delete", "zzz-2147483648", "lost+found")


def _named(name: str) -> Doing:
    return lambda disk: disk.make(name)


NAMES = [
    *(Damage(f"name {name}", _named(name)) for name in NAMES_OF_NOTHING),
    Damage("name with two dots", _named(f"a-0.x.{UUID}-delete")),
    Damage("name not ascii", _named("bär")),
]


def _harmless(disk: Disk) -> None:
    """All in one start: files, links that lead to no directory, marked directories in numbers, names of no UTF-8."""
    for d in (disk.d1, disk.d2):
        (d / "README").write_text("x")
        (d / "zzz-0-delete").write_text("x")
        (d / ".logagent-recovery-point-offset-checkpoint").write_text("x")
        (d / "dangling").symlink_to("/nonexistent/x")
        (d / "to-a-file").symlink_to(d / "README")
        if disk.node.version != "2.5.1":
            disk.make("remote-log-index-cache", d)
        disk.make(f"zzz-0.{UUID}-delete", d)
        disk.make(f"zzz-0.{OTHER_UUID}-delete", d)
    disk.make("zzz-0.nohex-delete")
    (disk.d1 / "bar\udcff").mkdir()
    partition = disk.partition()
    (partition / "README.txt").write_text("x")
    (partition / "backup.deleted").write_text("x")
    (partition / "00000000000000000000.log.bak").write_text("x")
    (partition / "backup.log").mkdir()


def _strays(disk: Disk) -> None:
    disk.make(f"zzz-0.{UUID}-stray")
    disk.make(f"zzz-0.{OTHER_UUID}-stray")


def _linked_partition(disk: Disk) -> None:
    partition = disk.partition()
    shutil.move(partition, disk.root / "elsewhere")
    partition.symlink_to(disk.root / "elsewhere")


def _copy(disk: Disk) -> Path:
    partition = disk.partition()
    return Path(shutil.copytree(partition, disk.other(partition) / partition.name))


def _copy_with_other_id(disk: Disk) -> None:
    (_copy(disk) / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_TOPIC_ID}")


def _two_unassigned(disk: Disk) -> None:
    for name, topic_id in (("zzz-1", OTHER_TOPIC_ID), ("zzz-01", OTHER_TOPIC_ID.replace("X", "Y"))):
        (disk.make(name) / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")


def _two_futures(disk: Disk) -> None:
    partition = disk.partition()
    for where, uuid in ((disk.d1, UUID), (disk.d2, OTHER_UUID)):
        shutil.copytree(partition, where / f"{TOPIC}-0.{uuid}-future")


def _future_beside_current(disk: Disk) -> None:
    partition = disk.partition()
    shutil.copytree(partition, partition.parent / f"{TOPIC}-0.{UUID}-future")


def _metadata(text: str, name: str | None = None) -> Doing:
    def damage(disk: Disk) -> None:
        where = disk.partition() if name is None else disk.make(name)
        (where / "partition.metadata").write_text(text)

    return damage


def _odd_in_deleted(disk: Disk) -> None:
    (disk.make(f"zzz-0.{UUID}-delete") / "backup.log").write_text("")


DIRECTORIES = [
    Damage("strays", _strays),
    Damage("harmless things", _harmless),
    Damage("strays and an old incarnation beside harmless things", in_turn(_harmless, _strays, _copy_with_other_id)),
    Damage("the cache of tiered storage", _named("remote-log-index-cache")),
    Damage("a partition behind a symlink", _linked_partition),
    Damage("a copy in the other log dir", _copy),
    Damage("an old incarnation in the other log dir", _copy_with_other_id),
    Damage("two spellings of one partition", _two_unassigned),
    Damage("two futures of one partition", _two_futures),
    Damage("a future beside its current", _future_beside_current, patience=10),
    Damage("partition.metadata malformed", _metadata("garbage\n")),
    Damage("partition.metadata empty", _metadata("")),
    Damage("partition.metadata malformed in a -delete directory", _metadata("x\n", f"zzz-0.{UUID}-delete")),
    Damage("partition.metadata missing, assigned", to(in_partition("partition.metadata"), removed)),
    Damage("partition.metadata missing, not assigned", _named("zzz-0")),
    *(
        Damage(f"backup.{suffix} in a partition", to(in_partition(f"backup.{suffix}"), written("")))
        for suffix in ("log", "snapshot", "swap")
    ),
    Damage("backup.log in a -delete directory", _odd_in_deleted),
]


# The same partition twice: by a link, by a mount.


def linked(target: Where) -> Doing:
    def do(disk: Disk) -> None:
        partition = target(disk)
        (disk.other(disk.partition()) / f"{TOPIC}-0").symlink_to(partition)

    return do


def without_link(disk: Disk) -> None:
    for log_dir in (disk.d1, disk.d2):
        if (log_dir / f"{TOPIC}-0").is_symlink():
            (log_dir / f"{TOPIC}-0").unlink()


def both_linked(disk: Disk) -> None:
    partition = disk.partition()
    aside = disk.root / "aside"
    shutil.move(partition, aside)
    for log_dir in (disk.d1, disk.d2):
        (log_dir / f"{TOPIC}-0").symlink_to(aside)


def copied_aside(disk: Disk) -> Path:
    return Path(shutil.copytree(disk.partition(), disk.root / "aside"))


def of_another_id(disk: Disk) -> Path:
    aside = copied_aside(disk)
    (aside / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_TOPIC_ID}\n")
    return aside


def without_id(disk: Disk) -> Path:
    aside = copied_aside(disk)
    (aside / "partition.metadata").unlink()
    return aside


def mounted(disk: Disk) -> None:
    partition = disk.partition()
    place = disk.other(partition) / partition.name
    place.mkdir()
    run("mount", "--bind", partition, place)
    disk.undo.callback(unmount, place)


def delete_mounted(disk: Disk) -> None:
    place = disk.make(f"zzz-0.{UUID}-delete")
    run("mount", "-t", "tmpfs", "tmpfs", place)
    disk.undo.callback(unmount, place)
    disk.node.configure({"log.segment.delete.delay.ms": "500", "log.initial.task.delay.ms": "500"})


def replaced_by(how: How) -> Doing:
    def do(disk: Disk) -> None:
        partition = disk.partition()
        moved_away(disk, partition)
        how(partition)

    return do


def not_ours_mounted(with_id: bool) -> Doing:
    def do(disk: Disk) -> None:
        place = disk.make("zzz-0")
        run("mount", "-t", "tmpfs", "tmpfs", place)
        disk.undo.callback(unmount, place)
        if with_id:
            (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_TOPIC_ID}")

    return do


def as_future_elsewhere(disk: Disk) -> None:
    partition = disk.partition()
    shutil.move(partition, disk.other(partition) / f"{TOPIC}-0.{UUID}-future")


def as_future_here(disk: Disk) -> None:
    partition = disk.partition()
    partition.rename(partition.parent / f"{TOPIC}-0.{UUID}-future")


def futures_renamed(disk: Disk) -> None:
    for log_dir in (disk.d1, disk.d2):
        for future in log_dir.glob("*-future"):
            future.rename(log_dir / future.name.partition(".")[0])


def future_linked(disk: Disk) -> None:
    aside = copied_aside(disk)
    (disk.partition().parent / f"{TOPIC}-0.{UUID}-future").symlink_to(aside)


def id_linked(disk: Disk) -> None:
    metadata = disk.partition() / "partition.metadata"
    shutil.move(metadata, disk.root / "aside")
    metadata.symlink_to(disk.root / "aside")


def id_linked_twice(disk: Disk) -> None:
    shutil.copytree(disk.partition(), disk.other(disk.partition()) / f"{TOPIC}-0")
    id_linked(disk)


TWICE = [
    Damage("a link to the same partition", linked(Disk.partition), cure=without_link),
    Damage("a link to a copy elsewhere", linked(copied_aside)),
    Damage("a link to one of another topic id", linked(of_another_id)),
    Damage("a link to one without topic id", linked(without_id)),
    Damage("two links to one partition", both_linked),
    Damage("the same partition mounted", mounted),
    Damage("a file with the name of an assigned partition", replaced_by(written(""))),
    Damage("a link to nowhere with the name of an assigned partition", replaced_by(leading_nowhere)),
    Damage(
        "a file with the name of a partition in the other log dir",
        lambda disk: (disk.other(disk.partition()) / f"{TOPIC}-0").write_text(""),
    ),
    Damage("a -delete directory that is a mount point", delete_mounted, patience=FIRST_TASKS),
    Damage("a linked future beside its current", future_linked, patience=10),
    Damage("one that is not ours is a mount point", not_ours_mounted(True), patience=10),
    Damage("one without topic id is a mount point", not_ours_mounted(False), patience=10),
    Damage("only a future, in the other log dir", as_future_elsewhere, cure=futures_renamed, patience=8),
    Damage("only a future, where it is assigned to", as_future_here, patience=8),
    Damage("a linked partition.metadata", id_linked),
    Damage("a copy, and a linked partition.metadata", id_linked_twice),
]


# What starts, in one start.
HARMLESS = Damage(
    "links and an empty directory that harm nothing",
    in_turn(
        to(in_log_dir("replication-offset-checkpoint"), linked_file), to(in_log_dir(CLEAN), as_directory), id_linked
    ),
)

OF_DIRECTORIES = [HARMLESS, *NAMES, *DIRECTORIES, *TWICE]
