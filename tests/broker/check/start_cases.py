"""What is done to a disk, what `check` says to it, and what a real broker of each version makes of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.broker.check.starts import OTHER_TOPIC_ID, OTHER_UUID, TOPIC, UUID, Disk, Outcome
from tests.disk.conftest import run
from tests.needs import need_command

REFUSES, OFFLINE, UNSERVED, STARTS, _ = Outcome
KRAFT = ("3.6.0", "3.7.0", "3.9.1", "4.3.1", "4.4.0")
ZOOKEEPER = ("2.5.1", "3.5.2")
EVERY = (*ZOOKEEPER, *KRAFT)
NEW = ("3.9.1", "4.3.1", "4.4.0")


@dataclass(frozen=True)
class Case:
    """`outcomes`: what was seen, by version. `codes`: the fatal findings there must be where it is not STARTS, no
    other. `quick`: the versions of a default run. `also`: findings of any severity that must be there if it starts.
    `where`: the path of a finding. `patience`: seconds in which it may go wrong after it serves; `write`: records
    are written meanwhile."""

    id: str
    damage: Callable[[Disk], object]
    codes: tuple[str, ...]
    outcomes: Mapping[str, Outcome]
    quick: tuple[str, ...] = ()
    also: tuple[str, ...] = field(default=())
    where: str | None = None
    patience: float = 0
    write: bool = False


def on(outcome: Outcome, *versions: str) -> dict[str, Outcome]:
    return dict.fromkeys(versions, outcome)


def _named(name: str) -> Callable[[Disk], Path]:
    return lambda disk: disk.make(name)


def _names_case(name: str, code: str = "unparsable-name", quick: tuple[str, ...] = (), label: str = "") -> Case:
    return Case(f"name {label or name}", _named(name), (code,), on(REFUSES, *EVERY), quick, where=f"d1/{name}")


NAMES = [
    _names_case("bar", quick=("4.4.0",)),
    _names_case(".trash"),
    _names_case("-0"),
    _names_case("zzz-0-delete"),
    _names_case("zzz-2147483648"),
    _names_case(f"a-0.x.{UUID}-delete", label="with two dots"),
    _names_case("bär", label="not ascii"),
    _names_case("lost+found", "lost-and-found", quick=("4.4.0",)),
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


def _metadata(text: str, name: str | None = None) -> Callable[[Disk], object]:
    def damage(disk: Disk) -> None:
        where = disk.partition() if name is None else disk.make(name)
        (where / "partition.metadata").write_text(text)

    return damage


def _side_by_side(*damages: Callable[[Disk], object]) -> Callable[[Disk], object]:
    """What harms nothing is shown by one start."""
    return lambda disk: [damage(disk) for damage in damages]


def _without_metadata(disk: Disk) -> None:
    (disk.partition() / "partition.metadata").unlink()


def _odd(name: str) -> Callable[[Disk], object]:
    return lambda disk: (disk.partition() / name).write_text("")


def _odd_in_deleted(disk: Disk) -> None:
    (disk.make(f"zzz-0.{UUID}-delete") / "backup.log").write_text("")


BOTH = ("duplicate-future", "future-beside-current")
DIRECTORIES = [
    Case(
        "strays",
        _strays,
        ("stray-unsupported",),
        {**on(REFUSES, "2.5.1", "3.5.2", "3.6.0"), **on(STARTS, "3.6.1", "3.7.0", *NEW)},
    ),
    Case("harmless things", _harmless, (), on(STARTS, *EVERY), also=("leftover-temp-file", "undecodable-name")),
    Case(
        "strays and an old incarnation beside harmless things",
        _side_by_side(_harmless, _strays, _copy_with_other_id),
        (),
        on(STARTS, *NEW),
        ("4.4.0",),
        ("leftover-temp-file", "undecodable-name", "duplicate-partition"),
    ),
    Case(
        "the cache of tiered storage",
        _named("remote-log-index-cache"),
        ("cache-unsupported",),
        {**on(REFUSES, "2.5.1"), **on(STARTS, "3.5.2", *KRAFT)},
    ),
    Case("a partition behind a symlink", _linked_partition, (), on(STARTS, *EVERY), (), ("linked-partition",)),
    Case("a copy in the other log dir", _copy, ("duplicate-partition",), on(REFUSES, *EVERY), ("4.4.0",)),
    Case(
        "an old incarnation in the other log dir",
        _copy_with_other_id,
        ("duplicate-partition",),
        {**on(REFUSES, "2.5.1", "3.5.2", "3.6.0", "3.7.0"), **on(STARTS, "3.7.1", *NEW)},
        (),
        ("duplicate-partition",),
    ),
    Case(
        "two spellings of one partition",
        _two_unassigned,
        ("duplicate-partition",),
        {**on(REFUSES, "2.5.1", "3.5.2", "3.6.0", "3.7.0"), **on(STARTS, "3.7.1", *NEW)},
        (),
        ("duplicate-partition",),
    ),
    Case(
        "two futures of one partition",
        _two_futures,
        ("duplicate-future", "future-beside-current"),
        on(REFUSES, *EVERY),
        ("4.4.0",),
    ),
    Case(
        "a future beside its current",
        _future_beside_current,
        ("future-beside-current",),
        {**on(OFFLINE, "2.5.1", "3.5.2", "3.6.0", "3.7.0"), **on(REFUSES, "3.7.1", *NEW)},
        ("4.4.0",),
        patience=10,
    ),
    Case(
        "partition.metadata malformed",
        _metadata("garbage\n"),
        ("broken-partition-metadata",),
        {**on(STARTS, "2.5.1"), **on(OFFLINE, "3.5.2", *KRAFT)},
    ),
    Case(
        "partition.metadata empty",
        _metadata(""),
        ("broken-partition-metadata",),
        {**on(STARTS, "2.5.1"), **on(REFUSES, "3.5.2", *KRAFT)},
        ("4.4.0",),
    ),
    Case(
        "partition.metadata malformed in a -delete directory",
        _metadata("x\n", f"zzz-0.{UUID}-delete"),
        ("broken-partition-metadata",),
        {**on(STARTS, "2.5.1"), **on(OFFLINE, "3.5.2", *KRAFT)},
    ),
    Case(
        "partition.metadata missing, assigned",
        _without_metadata,
        ("no-topic-id",),
        {**on(STARTS, "3.5.2", "3.6.0"), **on(REFUSES, "3.7.0"), **on(UNSERVED, "3.7.1", *NEW)},
        ("4.4.0",),
    ),
    Case(
        "partition.metadata missing, not assigned",
        _named("zzz-0"),
        ("no-topic-id",),
        {**on(STARTS, "3.5.2", "3.6.0", "3.7.1", *NEW), **on(REFUSES, "3.7.0")},
    ),
    Case("backup.log in a partition", _odd("backup.log"), ("odd-segment-file",), on(REFUSES, *EVERY), ("4.4.0",)),
    Case("backup.snapshot in a partition", _odd("backup.snapshot"), ("odd-segment-file",), on(REFUSES, *EVERY)),
    Case(
        "backup.swap in a partition",
        _odd("backup.swap"),
        ("odd-segment-file",),
        {**on(STARTS, "2.5.1"), **on(REFUSES, "3.5.2", *KRAFT)},
    ),
    Case("backup.log in a -delete directory", _odd_in_deleted, ("odd-segment-file",), on(REFUSES, *EVERY)),
]


def _link_to_log_dir(disk: Disk) -> None:
    link = disk.root / "link"
    link.symlink_to(disk.d1)
    disk.log_dirs(disk.d1, disk.d2, link)


def _metadata_dir_inside(disk: Disk) -> None:
    shutil.move(disk.meta, disk.d1 / "meta")
    disk.node.configure({"metadata.log.dir": f"{disk.d1}/meta"})


def _log_dir_inside(disk: Disk) -> None:
    """A formatted one whose name parses: nothing but its place is wrong."""
    shutil.copytree(disk.d2, disk.d1 / "inner-1")
    shutil.rmtree(disk.d2)
    disk.log_dirs(disk.d1, disk.d1 / "inner-1")


def _new(disk: Disk) -> Path:
    new = disk.root / "new"
    disk.log_dirs(disk.d1, disk.d2, new)
    return new


def _dangling(disk: Disk) -> None:
    _new(disk).symlink_to("/nonexistent/x")


PATHS = [
    Case(
        "a log dir named twice",
        lambda disk: disk.log_dirs(disk.d1, disk.d2, disk.d1),
        ("duplicate-log-dir",),
        {**on(REFUSES, "2.5.1", "3.5.2", "3.6.0", "3.7.0", "3.9.1", "4.1.0"), **on(STARTS, "4.2.0", "4.3.1", "4.4.0")},
    ),
    Case("a log dir and a symlink to it", _link_to_log_dir, ("duplicate-log-dir",), on(REFUSES, *EVERY), ("4.4.0",)),
    Case(
        "an empty item",
        lambda disk: disk.log_dirs(disk.d1, "", disk.d2),
        ("empty-log-dirs-item",),
        {**on(STARTS, "2.5.1", "3.5.2", "3.6.0", "3.7.0", "3.9.1", "4.1.0"), **on(REFUSES, "4.2.0", "4.3.1", "4.4.0")},
        ("4.4.0",),
    ),
    Case("metadata.log.dir in a log dir", _metadata_dir_inside, ("nested-log-dir",), on(REFUSES, *KRAFT), ("4.4.0",)),
    Case("a log dir in a log dir", _log_dir_inside, ("nested-log-dir",), on(REFUSES, *NEW)),
    Case(
        "no such log dir",
        _new,
        ("log-dir-missing",),
        {**on(STARTS, *ZOOKEEPER), **on(REFUSES, *KRAFT)},
        ("4.4.0",),
        ("log-dir-missing",),
    ),
    Case("a dangling log dir", _dangling, ("log-dir-missing",), on(REFUSES, *KRAFT)),
    Case("a file as log dir", lambda d: _new(d).touch(), ("log-dir-not-a-directory",), on(OFFLINE, *EVERY), ("4.4.0",)),
]


def _edit_meta(pattern: str, replacement: str) -> Callable[[Disk], object]:
    return lambda disk: disk.edit(disk.d2 / "meta.properties", pattern, replacement)


def _write_meta(text: str) -> Callable[[Disk], object]:
    return lambda disk: (disk.d2 / "meta.properties").write_text(text)


def _same_directory_id(disk: Disk) -> None:
    lines = (disk.d1 / "meta.properties").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("directory.id="))
    disk.edit(disk.d2 / "meta.properties", "directory.id=.*", line.replace("\\", "\\\\"))


def _other_node(disk: Disk) -> None:
    if disk.kraft:
        address = f"127.0.0.1:{disk.node.controller[1]}"  # type: ignore[attr-defined]
        disk.node.configure({"node.id": "9", "controller.quorum.voters": f"9@{address}"})
    else:
        disk.node.configure({"broker.id": "9"})


def _zookeeper_mode(disk: Disk) -> None:
    disk.node.configure({"process.roles": None})


META = [
    Case(
        "meta.properties missing",
        lambda disk: (disk.d2 / "meta.properties").unlink(),
        ("unformatted",),
        {**on(STARTS, *ZOOKEEPER), **on(REFUSES, *KRAFT)},
        ("4.4.0",),
        ("unformatted",),
    ),
    Case(
        "meta.properties missing beside the metadata log",
        lambda disk: (disk.meta / "meta.properties").unlink(),
        ("unformatted",),
        on(REFUSES, *KRAFT),
    ),
    Case(
        "meta.properties of a later version",
        _write_meta("version=7\n"),
        ("meta-properties-malformed",),
        {**on(REFUSES, "3.5.2", "3.6.0"), **on(OFFLINE, "2.5.1", "3.7.0", *NEW)},
        ("4.4.0",),
    ),
    Case(
        "meta.properties empty",
        _write_meta(""),
        ("meta-properties-malformed",),
        on(REFUSES, *KRAFT),
    ),
    Case(
        "another cluster",
        _edit_meta("cluster.id=.*", f"cluster.id={OTHER_TOPIC_ID}"),
        ("foreign-cluster",),
        on(REFUSES, *EVERY),
        ("4.4.0",),
    ),
    Case(
        "another node in one log dir",
        _edit_meta("(node|broker).id=.*", r"\1.id=7"),
        ("foreign-node",),
        on(REFUSES, *EVERY),
    ),
    Case("another node in the configuration", _other_node, ("foreign-node",), on(REFUSES, *EVERY), ("4.4.0",)),
    Case(
        "a directory id twice",
        _same_directory_id,
        ("duplicate-directory-id",),
        on(REFUSES, "3.7.0", *NEW),
        ("4.4.0",),
    ),
    Case(
        "no process.roles", _zookeeper_mode, ("no-process-roles",), on(REFUSES, "4.1.0", "4.3.1", "4.4.0"), ("4.4.0",)
    ),
]


def _checkpoint(name: str, text: str) -> Callable[[Disk], object]:
    return lambda disk: (disk.partition().parent / f"{name}-offset-checkpoint").write_text(text)


def _checkpoints(text: str, outcomes: Mapping[str, Mapping[str, Outcome]], kind: str) -> list[Case]:
    return [
        Case(
            f"{name} checkpoint {kind}",
            _checkpoint(name, text),
            ("broken-checkpoint",),
            seen,
            quick=("4.4.0",) if (name, kind) == ("replication", "malformed") else (),
            also=("broken-checkpoint",),
        )
        for name, seen in outcomes.items()
    ]


MALFORMED = on(OFFLINE, *EVERY)
PASSED_OVER = {**on(OFFLINE, "2.5.1"), **on(STARTS, "3.5.2", *KRAFT)}
CHECKPOINTS = [
    *_checkpoints(
        "0\n1\nbroken\n",
        {"recovery-point": MALFORMED, "log-start": MALFORMED, "replication": MALFORMED, "cleaner": MALFORMED},
        "malformed",
    ),
    *_checkpoints(
        f"0\n1\n{TOPIC} 99999999999 1\n",
        {
            "recovery-point": PASSED_OVER,
            "log-start": PASSED_OVER,
            "replication": {**on(OFFLINE, "2.5.1"), **on(UNSERVED, "3.5.2", *KRAFT)},
            "cleaner": PASSED_OVER,
        },
        "out of range",
    ),
]


def _full(disk: Disk) -> None:
    disk.mount("size=8m")
    disk.fill()


def _no_inodes(disk: Disk) -> None:
    disk.mount("size=64m")
    used = sum(1 for _ in disk.d1.rglob("*")) + 1
    run("mount", "-o", f"remount,nr_inodes={used}", disk.d1)


def _read_only(disk: Disk) -> None:
    disk.mount("size=64m")
    run("mount", "-o", "remount,ro", disk.d1)


def _failed(disk: Disk) -> None:
    need_command("mkfs.xfs", "xfs_io")
    disk.mount_image("xfs")
    run("sync", "-f", disk.d1)
    run("xfs_io", "-x", "-c", "shutdown", disk.d1)


# 2.5.1 writes a leader-epoch-checkpoint while it loads.
FULL_DISK = {**on(REFUSES, "2.5.1"), **on(OFFLINE, "3.5.2", *KRAFT)}
DISK = [
    Case("a failed disk", _failed, ("log-dir-failed",), on(OFFLINE, *KRAFT), ("4.4.0",)),
    Case("no free block", _full, ("full",), FULL_DISK, ("4.4.0",), patience=20, write=True),
    Case("no free inode", _no_inodes, ("full",), FULL_DISK, patience=20, write=True),
    Case("a read-only mount", _read_only, ("read-only",), on(OFFLINE, *EVERY), ("4.4.0",)),
    Case("a lock held", lambda d: d.hold_lock(True), ("lock-held",), on(REFUSES, *EVERY), ("4.4.0",)),
    Case("a shared lock held", lambda d: d.hold_lock(False), ("lock-held",), on(REFUSES, *EVERY)),
]

CASES = [*NAMES, *DIRECTORIES, *PATHS, *META, *CHECKPOINTS, *DISK]


def _chown(path: Path, mode: int) -> None:
    run("chown", "root:root", path)
    path.chmod(mode)


def _only_root(name: str, mode: int) -> Callable[[Disk], object]:
    def damage(disk: Disk) -> None:
        _chown(disk.d1 / name if name else disk.d1, mode)

    return damage


def _temp_of_root(disk: Disk) -> None:
    path = disk.d1 / "replication-offset-checkpoint.tmp"
    path.touch()
    _chown(path, 0o644)


ACCESS = [
    Case(
        "a log dir of root",
        _only_root("", 0o755),
        ("access-denied",),
        on(OFFLINE, "3.9.1", "4.3.1", "4.4.0"),
    ),
    Case(
        "a partition directory of root",
        lambda disk: _chown(disk.partition(), 0o700),
        ("access-denied",),
        on(OFFLINE, "3.9.1", "4.3.1", "4.4.0"),
    ),
    Case(
        "a segment of root",
        lambda disk: _chown(disk.partition() / "00000000000000000000.log", 0o644),
        ("access-denied",),
        on(OFFLINE, "3.9.1", "4.3.1", "4.4.0"),
        ("4.4.0",),
    ),
    Case(
        "an unreadable file in a partition directory",
        lambda disk: _chown(_touched(disk.partition() / "note.txt"), 0o600),
        ("access-denied",),
        on(OFFLINE, "3.9.1", "4.3.1", "4.4.0"),
    ),
    Case(
        "meta.properties of root",
        _only_root("meta.properties", 0o600),
        ("access-denied",),
        on(OFFLINE, "3.9.1", "4.3.1", "4.4.0"),
    ),
    Case(
        "a checkpoint of root",
        _only_root("replication-offset-checkpoint", 0o600),
        ("access-denied",),
        on(OFFLINE, "3.9.1", "4.3.1", "4.4.0"),
    ),
    Case(
        "a temp checkpoint of root",
        _temp_of_root,
        ("access-denied",),
        on(OFFLINE, "3.9.1", "4.3.1", "4.4.0"),
        patience=10,
    ),
    Case(
        "a metadata log of root",
        lambda disk: _chown(disk.meta / "__cluster_metadata-0", 0o700),
        ("access-denied",),
        on(REFUSES, "3.9.1", "4.3.1", "4.4.0"),
    ),
    Case(
        "root's, but readable where reading is enough",
        lambda disk: _chown(disk.partition() / "partition.metadata", 0o644),
        (),
        on(STARTS, "3.9.1", "4.3.1", "4.4.0"),
    ),
]


def _touched(path: Path) -> Path:
    path.touch()
    return path
