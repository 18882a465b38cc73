"""Damaged files and layouts whose outcome nobody writes down: a real start says what comes of each.

A `Damage` names what is done to a stopped node's disk, on which kinds of node, and the finding that must tell of it
wherever the start fails. `cure` is what the finding's hint advises: after it the same node must start and serve
everything. `python -m tests.broker.check` tries them all.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from logagent.model.naming.topic_ids import to_text
from tests.broker.check.starts import METADATA_LOG, OTHER_TOPIC_ID, RECORDS, TOPIC, UUID, Disk, Kind
from tests.disk.conftest import run, unmount

NEWEST = "4.4.0"
KRAFT = ("3.7.0", "3.9.1", "4.3.1", NEWEST)
ZOOKEEPER = ("3.5.2",)
EVERYWHERE = (*ZOOKEEPER, *KRAFT)
# Only where a release in between may differ from the one before it.
BETWEEN = ("3.6.0", "3.8.1")
DYNAMIC_SINCE = ("3.9.1", "4.3.1", NEWEST)
CORDONS = ("4.3.1", NEWEST)

Doing = Callable[[Disk], object]
How = Callable[[Path], object]


@dataclass(frozen=True)
class Damage:
    """`codes`: the fatal findings, any of which tells of it where a start fails. `versions`: where it applies; a kind
    of node applies where its mode does. `trimmed`: on a disk whose metadata log begins at a snapshot. `patience` and
    `write`: as for `starts.outcome`. `starts`: how many starts in a row; the last one counts."""

    id: str
    do: Doing
    codes: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ("combined",)
    cure: Doing | None = None
    versions: tuple[str, ...] = EVERYWHERE
    trimmed: bool = False
    patience: float = 0
    write: bool = False
    starts: int = 1

    @property
    def quick(self) -> frozenset[tuple[str, Kind]]:
        """The releases and kinds of node of a default run."""
        return QUICK.get(self.id, frozenset())

    def tries(self, version: str) -> tuple[Kind, ...]:
        """The kinds of node to try it on with that release."""
        if version not in self.versions:
            return ()
        kinds = (kind for kind in self.kinds if (version in ZOOKEEPER) == (kind == "zookeeper"))
        return tuple(kind for kind in kinds if kind != "dynamic" or version in DYNAMIC_SINCE)


# What becomes of a file that was not written through when the power went.


def empty(path: Path) -> None:
    assert path.exists(), path
    path.write_bytes(b"")


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(max(path.stat().st_size, 1)))


def halved(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def padded(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(100))


def without_footer(path: Path) -> None:
    """Without its last batch."""
    data, position, last = path.read_bytes(), 0, 0
    while position < len(data):
        last, position = position, position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    path.write_bytes(data[:last])


def removed(path: Path) -> None:
    path.unlink()


def written(text: str) -> How:
    return lambda path: path.write_text(text)


def moved_away(disk: Disk, path: Path) -> None:
    shutil.move(path, disk.root / "aside")


Where = Callable[[Disk], Path]


def in_metadata_log(name: str) -> Where:
    return lambda disk: disk.metadata_log / name


def in_metadata_dir(name: str) -> Where:
    return lambda disk: disk.meta / name


def newest_snapshot(disk: Disk) -> Path:
    return disk.snapshots()[-1]


def only_snapshot(disk: Disk) -> Path:
    """The newest one, after the others were removed."""
    *others, newest = disk.snapshots()
    for other in others:
        other.unlink()
    return newest


def last_segment(disk: Disk) -> Path:
    return sorted(disk.metadata_log.glob("*.log"))[-1]


def in_partition(name: str) -> Where:
    return lambda disk: disk.partition() / name


def to(where: Where, how: How) -> Doing:
    return lambda disk: how(where(disk))


def each(
    what: str,
    where: Where,
    hows: dict[str, How],
    codes: tuple[str, ...],
    cure: How | None = None,
    kinds: tuple[Kind, ...] = ("combined",),
    versions: tuple[str, ...] = EVERYWHERE,
    trimmed: bool = False,
) -> list[Damage]:
    """One file damaged in several ways."""
    return [
        Damage(
            f"{what} {how}",
            to(where, damage),
            codes,
            kinds,
            to(where, cure) if cure is not None else None,
            versions,
            trimmed,
        )
        for how, damage in hows.items()
    ]


ANY: tuple[Kind, ...] = ("combined", "broker", "controller")
TORN = {"empty": empty, "zeroed": zeroed, "cut in half": halved}
DYNAMIC = '{"leaderId":-1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
OTHER_VOTERS = (
    '{"clusterId":"","leaderId":-1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
    '"currentVoters":[{"voterId":7}],"data_version":0}'
)
ELECTION = (
    '{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[],"data_version":9}'
)

METADATA = [
    *each(
        "quorum-state",
        in_metadata_log("quorum-state"),
        {"empty": empty, "zeroed": zeroed},
        ("broken-metadata-log",),
        removed,
        ANY,
    ),
    *each(
        "quorum-state",
        in_metadata_log("quorum-state"),
        {
            "cut in half": halved,
            "of a later version": written(ELECTION),
            "of no object": written("[]"),
            "without fields": written('{"data_version":0}'),
            "with zeros behind": padded,
            "of other voters": written(OTHER_VOTERS),
            "of a dynamic quorum": written(DYNAMIC),
            "missing": removed,
        },
        ("broken-metadata-log",),
        removed,
    ),
    *each(
        "epochs of the metadata log",
        in_metadata_log("leader-epoch-checkpoint"),
        {"empty": empty, "zeroed": zeroed},
        ("broken-metadata-log",),
        removed,
        ANY,
    ),
    *each(
        "epochs of the metadata log",
        in_metadata_log("leader-epoch-checkpoint"),
        {
            "missing": removed,
            "without entries": written("0\n0\n"),
            "with a word": written("0\n1\na 0\n"),
            "of a later version": written("1\n0\n"),
        },
        ("broken-metadata-log",),
        removed,
    ),
    *each(
        "epochs of a trimmed metadata log",
        in_metadata_log("leader-epoch-checkpoint"),
        {"empty": empty, "missing": removed, "zeroed": zeroed},
        ("broken-metadata-log",),
        None,
        ("combined",),
        trimmed=True,
    ),
    *each(
        "partition.metadata of the metadata log",
        in_metadata_log("partition.metadata"),
        {"empty": empty, "zeroed": zeroed},
        ("broken-metadata-log",),
        removed,
        ANY,
    ),
    *each(
        "partition.metadata of the metadata log",
        in_metadata_log("partition.metadata"),
        {"missing": removed, "of another topic": written("version: 0\ntopic_id: Xs6gS0pIR5yNqcAe2bBqwQ")},
        ("broken-metadata-log",),
        removed,
    ),
    *each(
        "newest snapshot", newest_snapshot, {"empty": empty, "zeroed": zeroed}, ("broken-metadata-log",), removed, ANY
    ),
    *each(
        "newest snapshot",
        newest_snapshot,
        {
            "cut in half": halved,
            "with a flipped bit": flipped,
            "without its footer": without_footer,
            "with zeros behind": padded,
            "cut at its end": cut_off,
            "missing": removed,
        },
        ("broken-metadata-log",),
        removed,
    ),
    *each(
        "only snapshot",
        only_snapshot,
        {"alone": lambda path: path, "empty": empty, "zeroed": zeroed, "missing": removed},
        ("broken-metadata-log",),
        None,
        ("combined",),
        trimmed=True,
    ),
    *each(
        "bootstrap.checkpoint",
        in_metadata_dir("bootstrap.checkpoint"),
        {"empty": empty, "zeroed": zeroed},
        ("broken-metadata-log",),
        removed,
        ANY,
    ),
    *each(
        "bootstrap.checkpoint",
        in_metadata_dir("bootstrap.checkpoint"),
        {
            "cut in half": halved,
            "cut at its end": cut_off,
            "with a flipped bit": flipped,
            "with zeros behind": padded,
            "missing": removed,
        },
        ("broken-metadata-log",),
        removed,
    ),
    *each("last metadata segment", last_segment, {"cut in half": halved, "empty": empty}, ("broken-metadata-log",)),
]


def only_snapshot_of_a_broker(disk: Disk) -> None:
    empty(only_snapshot(disk))


METADATA += [
    Damage(
        "only snapshot empty, of a broker",
        only_snapshot_of_a_broker,
        ("broken-metadata-log",),
        ("broker",),
        lambda disk: moved_away(disk, disk.metadata_log),
        trimmed=True,
    ),
    Damage("metadata log missing", lambda disk: moved_away(disk, disk.metadata_log), (), ("broker",)),
    Damage(
        "odd file in the metadata log",
        to(in_metadata_log("backup.log"), written("")),
        ("odd-segment-file",),
        ANY,
        to(in_metadata_log("backup.log"), removed),
    ),
    Damage(
        "odd snapshot in the metadata log",
        to(in_metadata_log("backup.checkpoint"), written("x")),
        ("broken-metadata-log",),
        ("combined",),
        to(in_metadata_log("backup.checkpoint"), removed),
    ),
    Damage(
        "partial snapshot in the metadata log",
        to(in_metadata_log("00000000000000000099-0000000001.checkpoint.part"), written("x")),
        (),
        ("combined",),
    ),
    Damage("directory in the metadata log", lambda disk: (disk.metadata_log / "backup").mkdir(), ()),
]


def _stray_metadata_log(disk: Disk) -> None:
    shutil.copytree(disk.metadata_log, disk.d2 / METADATA_LOG)


def _back_to_first(disk: Disk) -> None:
    """metadata.log.dir was given up again: the log is in the first log dir, and in the former metadata dir nothing."""
    shutil.move(disk.metadata_log, disk.d1 / METADATA_LOG)
    disk.node.configure({"metadata.log.dir": None})


def _first_after_all(disk: Disk) -> None:
    """The other way: the log is still in the first log dir, where it was before metadata.log.dir was set."""
    shutil.copytree(disk.metadata_log, disk.d1 / METADATA_LOG)


def _metadata_dir_spelled(text: str) -> Doing:
    def do(disk: Disk) -> None:
        shutil.move(disk.metadata_log, disk.d1 / METADATA_LOG)
        disk.node.configure({"metadata.log.dir": text.format(d1=disk.d1)})

    return do


def _metadata_dir_linked(disk: Disk) -> None:
    shutil.move(disk.metadata_log, disk.d1 / METADATA_LOG)
    link = disk.root / "link"
    link.symlink_to(disk.d1)
    disk.node.configure({"metadata.log.dir": str(link)})


def _metadata_dir_inside(disk: Disk) -> None:
    shutil.move(disk.meta, disk.d1 / "meta")
    disk.node.configure({"metadata.log.dir": f"{disk.d1}/meta"})


def _metadata_dir_inside_named(disk: Disk) -> None:
    """With a name that parses."""
    shutil.move(disk.meta, disk.d1 / "meta-1")
    disk.node.configure({"metadata.log.dir": f"{disk.d1}/meta-1"})


def _cordon(disk: Disk, text: str) -> None:
    disk.node.configure({"cordoned.log.dirs": text})


def _log_dir_inside_metadata_dir(disk: Disk) -> None:
    shutil.move(disk.d2, disk.meta / "d2")
    disk.log_dirs(disk.d1, disk.meta / "d2")


PLACES = [
    Damage(
        "a metadata log in another log dir",
        _stray_metadata_log,
        ("stray-metadata-log",),
        ANY,
        lambda disk: moved_away(disk, disk.d2 / METADATA_LOG),
        versions=(*EVERYWHERE, *BETWEEN),
    ),
    Damage(
        "a metadata log left in the first log dir",
        _first_after_all,
        ("stray-metadata-log",),
        ("combined",),
        lambda disk: moved_away(disk, disk.d1 / METADATA_LOG),
        versions=(*EVERYWHERE, *BETWEEN),
    ),
    Damage(
        "a file of the metadata log's name",
        lambda disk: (disk.d2 / METADATA_LOG).write_text(""),
        ("stray-metadata-log",),
        ("combined",),
        lambda disk: (disk.d2 / METADATA_LOG).unlink(),
    ),
    Damage("the metadata log back in the first log dir", _back_to_first, (), versions=(*EVERYWHERE, *BETWEEN)),
    Damage(
        "metadata.log.dir with a slash",
        _metadata_dir_spelled("{d1}/"),
        ("stray-metadata-log",),
        ("combined", "controller"),
        lambda d: d.node.configure({"metadata.log.dir": str(d.d1)}),
    ),
    Damage(
        "metadata.log.dir with a dot",
        _metadata_dir_spelled("{d1}/."),
        ("stray-metadata-log",),
        ("combined",),
        lambda d: d.node.configure({"metadata.log.dir": str(d.d1)}),
    ),
    Damage(
        "metadata.log.dir through a link",
        _metadata_dir_linked,
        ("stray-metadata-log", "duplicate-log-dir"),
        ("combined", "controller"),
        lambda d: d.node.configure({"metadata.log.dir": str(d.d1)}),
    ),
    Damage("metadata.log.dir in a log dir", _metadata_dir_inside, ("nested-log-dir",), ANY),
    Damage(
        "metadata.log.dir in a log dir, as a partition",
        _metadata_dir_inside_named,
        ("nested-log-dir", "no-topic-id"),
        ANY,
        starts=2,
    ),
    Damage(
        "a log dir in the metadata dir", _log_dir_inside_metadata_dir, ("nested-log-dir",), ("combined", "controller")
    ),
]


def _full_metadata_dir(disk: Disk) -> None:
    disk.mount("size=24m", disk.meta)
    disk.fill(disk.meta)


def _read_only_metadata_dir(disk: Disk) -> None:
    disk.mount("size=64m", disk.meta)
    run("mount", "-o", "remount,ro", disk.meta)


def _full(disk: Disk) -> None:
    disk.mount("size=8m")
    disk.fill()


def _read_only(disk: Disk) -> None:
    disk.mount("size=64m")
    run("mount", "-o", "remount,ro", disk.d1)


def _copy(disk: Disk) -> None:
    (disk.d1 / f"{TOPIC}-7").mkdir()
    (disk.d2 / f"{TOPIC}-7").mkdir()


def _fails_for_brokers(disk: Disk) -> None:
    """All at once what no broker starts with, and a controller never looks at."""
    disk.make("bar")
    disk.make("lost+found", disk.meta)
    disk.make("lost+found", disk.d2)
    _copy(disk)
    (disk.d1 / "recovery-point-offset-checkpoint").write_text("garbage\n")
    partition = disk.make(f"zzz-0.{UUID}-delete")
    (partition / "backup.log").write_text("")
    (partition / "partition.metadata").write_text("")


def _missing(disk: Disk) -> None:
    disk.log_dirs(disk.d1, disk.d2, disk.root / "new")


def _file(disk: Disk) -> None:
    (disk.root / "new").write_text("")
    _missing(disk)


def _linked_twice(disk: Disk) -> None:
    link = disk.root / "link"
    link.symlink_to(disk.d1)
    disk.log_dirs(disk.d1, disk.d2, link)


def _meta_edit(where: Where, pattern: str, replacement: str) -> Doing:
    return lambda disk: disk.edit(where(disk), pattern, replacement)


CONTROLLERS = [
    Damage("what stops brokers only", _fails_for_brokers, (), ("controller",)),
    Damage("lost+found in the metadata dir", lambda disk: disk.make("lost+found", disk.meta), (), ANY),
    Damage("a log dir is not there", _missing, ("log-dir-missing",), ("controller",)),
    Damage("a log dir is a file", _file, ("log-dir-not-a-directory",), ("controller",)),
    Damage(
        "a log dir without meta.properties",
        lambda d: (d.d2 / "meta.properties").unlink(),
        ("unformatted",),
        ("controller",),
    ),
    Damage(
        "a log dir of another cluster",
        _meta_edit(lambda d: d.d2 / "meta.properties", "cluster.id=.*", "cluster.id=Xs6gS0pIR5yNqcAe2bBqwQ"),
        ("foreign-cluster",),
        ("controller",),
    ),
    Damage(
        "a log dir with meta.properties of a later version",
        lambda d: (d.d2 / "meta.properties").write_text("version=7\n"),
        ("meta-properties-malformed",),
        ("controller",),
    ),
    Damage("a log dir whose lock is held", lambda d: d.hold_lock(True), ("lock-held",), ("controller",)),
    Damage("a log dir read-only", _read_only, ("read-only",), ("controller",)),
    Damage("a log dir full", _full, ("full",), ("controller",)),
    Damage("a log dir twice", lambda d: d.log_dirs(d.d1, d.d2, d.d1), ("duplicate-log-dir",), ("controller",)),
    Damage(
        "a log dir and a symlink to it",
        _linked_twice,
        ("duplicate-log-dir", "duplicate-directory-id"),
        ("controller",),
    ),
    Damage("metadata dir full", _full_metadata_dir, ("full",), ("controller", "combined"), patience=10),
    Damage("metadata dir read-only", _read_only_metadata_dir, ("read-only",), ("controller", "combined"), patience=10),
    Damage("metadata dir not there", lambda d: moved_away(d, d.meta), ("log-dir-missing",), ("controller", "combined")),
    Damage(
        "meta.properties of the metadata dir empty",
        to(in_metadata_dir("meta.properties"), empty),
        ("meta-properties-malformed", "unformatted"),
        ("controller", "combined"),
    ),
    Damage(
        "meta.properties of the metadata dir zeroed",
        to(in_metadata_dir("meta.properties"), zeroed),
        ("meta-properties-malformed", "unformatted"),
        ("controller", "combined"),
    ),
]

BOTH: tuple[Kind, ...] = ("combined", "zookeeper")
PARTITIONS = [
    *each(
        "epochs of a partition",
        in_partition("leader-epoch-checkpoint"),
        {"zeroed": zeroed, "of a word": written("garbage\n")},
        ("broken-epochs",),
        empty,
        BOTH,
    ),
    *each(
        "epochs of a partition",
        in_partition("leader-epoch-checkpoint"),
        {
            "empty": empty,
            "missing": removed,
            "with a word": written("0\n1\na 0\n"),
            "with a number out of range": written("0\n1\n0 99999999999999999999\n"),
            "with an entry too few": written("0\n2\n0 0\n"),
            "with three fields": written("0\n1\n0 0 0\n"),
            "of a later version": written("1\n0\n"),
            "descending": written("0\n2\n5 3\n1 0\n"),
            "negative": written("0\n1\n-1 -1\n"),
            "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe0\n"),
            "without count": written("0\n"),
        },
        ("broken-epochs",),
        empty,
        BOTH,
    ),
    Damage(
        "epochs of a -delete directory zeroed",
        lambda d: (d.make(f"zzz-0.{UUID}-delete") / "leader-epoch-checkpoint").write_bytes(bytes(10)),
        ("broken-epochs",),
        BOTH,
    ),
    *each(
        "partition.metadata of a partition",
        in_partition("partition.metadata"),
        {"zeroed": zeroed},
        ("broken-partition-metadata",),
        None,
        BOTH,
    ),
    *each(
        "producer snapshot",
        lambda d: sorted(d.partition().glob("*.snapshot"))[-1],
        {"empty": empty, "zeroed": zeroed},
        (),
        None,
        BOTH,
    ),
    *each(
        "index",
        in_partition("00000000000000000000.index"),
        {"cut short": lambda path: path.write_bytes(b"abc") and None},
        (),
        None,
        BOTH,
    ),
]


def _generated(disk: Disk) -> None:
    disk.node.configure({"broker.id": None})


def _none_generated(disk: Disk) -> None:
    disk.node.configure({"broker.id": None, "broker.id.generation.enable": "false"})


def _generated_and_lost(*names: str) -> Doing:
    def do(disk: Disk) -> None:
        _generated(disk)
        for name in names:
            (disk.root / name / "meta.properties").unlink()

    return do


def _lost(disk: Disk) -> None:
    for log_dir in (disk.d1, disk.d2):
        (log_dir / "meta.properties").unlink()


def _write_back(disk: Disk) -> None:
    for log_dir in (disk.d1, disk.d2):
        (log_dir / "meta.properties").write_text(f"version=0\nbroker.id={disk.node.node_id}\n")


def _as_kraft_writes_it(disk: Disk) -> None:
    for log_dir in (disk.d1, disk.d2):
        lines = (log_dir / "meta.properties").read_text().replace("version=0", "version=1")
        (log_dir / "meta.properties").write_text(lines.replace("broker.id=", "node.id="))


def _write_id(disk: Disk) -> None:
    disk.node.configure({"broker.id": str(disk.node.node_id)})


def _few_reserved(disk: Disk) -> None:
    """The broker's own id is above the reserved ones."""
    disk.node.configure({"reserved.broker.max.id": "0"})


def _generate_none(disk: Disk) -> None:
    disk.node.configure({"broker.id.generation.enable": "false"})


def _few_reserved_none_generated(disk: Disk) -> None:
    _few_reserved(disk)
    _generate_none(disk)


ZK: tuple[Kind, ...] = ("zookeeper",)
IDS = [
    Damage("an id generated earlier", _generated, (), ZK),
    Damage("a generated id lost everywhere", _generated_and_lost("d1", "d2"), ("lost-broker-id",), ZK, _write_back),
    Damage("meta.properties as KRaft writes it", _as_kraft_writes_it, ("meta-properties-malformed",), ZK, _write_back),
    Damage("a generated id lost in one log dir", _generated_and_lost("d2"), (), ZK),
    Damage("meta.properties lost everywhere, the id configured", _lost, (), ZK),
    Damage(
        "a configured id above the reserved ones",
        lambda d: d.node.configure({"broker.id": "1001"}),
        ("reserved-broker-id", "foreign-node"),
        ZK,
        lambda d: d.node.configure({"broker.id": "1"}),
    ),
    Damage("its own id above the reserved ones", _few_reserved, ("reserved-broker-id",), ZK, _generate_none),
    Damage("its own id above the reserved ones, none generated", _few_reserved_none_generated, (), ZK),
    Damage("the lowest reserved id", lambda d: d.node.configure({"reserved.broker.max.id": "1"}), (), ZK),
    Damage("no id and none generated", _none_generated, ("no-broker-id",), ZK, _write_id),
    Damage("a metadata log in a log dir, ZooKeeper mode", lambda d: d.make(METADATA_LOG), (), ZK),
    Damage(
        "reserved.broker.max.id in KRaft mode",
        lambda d: d.node.configure({"reserved.broker.max.id": "0"}),
        (),
        versions=("3.7.0", "3.9.1"),
    ),
]

FIRST_VOTERS = "00000000000000000000-0000000000.checkpoint"
STATIC = (
    '{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
    '"currentVoters":[{"voterId":1}],"data_version":0}'
)
OF_DYNAMIC: tuple[Kind, ...] = ("dynamic",)


def _voters_named(*ids: int) -> Doing:
    """`controller.quorum.voters`, beside `controller.quorum.bootstrap.servers`."""

    def do(disk: Disk) -> None:
        port = disk.node._properties_file["controller.quorum.bootstrap.servers"].rpartition(":")[2]
        disk.node.configure(
            {"controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{int(port) + i}" for i, n in enumerate(ids))}
        )

    return do


def _voters_only(*ids: int) -> Doing:
    def do(disk: Disk) -> None:
        _voters_named(*ids)(disk)
        disk.node.configure({"controller.quorum.bootstrap.servers": None})

    return do


def only_first_snapshot(disk: Disk) -> Path:
    """What formatting wrote, after the later ones were removed: the log begins at its first record."""
    for snapshot in disk.snapshots():
        if snapshot.name != FIRST_VOTERS:
            snapshot.unlink()
    return disk.metadata_log / FIRST_VOTERS


# The voters and their directory ids are in the log, or in the snapshot at offset 0 that formatting wrote (KIP-853).
DYNAMIC_QUORUM = [
    *each(
        "quorum-state of a dynamic quorum",
        in_metadata_log("quorum-state"),
        {
            "alone": lambda path: path,
            "empty": empty,
            "zeroed": zeroed,
            "cut in half": halved,
            "of a later version": written(ELECTION),
            "of a static one": written(STATIC),
            "missing": removed,
        },
        ("broken-metadata-log",),
        removed,
        OF_DYNAMIC,
    ),
    *each(
        "first voters",
        in_metadata_log(FIRST_VOTERS),
        {"empty": empty, "zeroed": zeroed, "cut in half": halved, "missing": removed},
        ("broken-metadata-log",),
        removed,
        OF_DYNAMIC,
    ),
    *each(
        "newest snapshot of a dynamic quorum",
        newest_snapshot,
        {"empty": empty, "missing": removed},
        ("broken-metadata-log",),
        removed,
        OF_DYNAMIC,
    ),
    *each(
        "only snapshot of a dynamic quorum",
        only_snapshot,
        {"alone": lambda path: path, "missing": removed},
        ("broken-metadata-log",),
        None,
        OF_DYNAMIC,
        trimmed=True,
    ),
    *each(
        "first voters alone",
        only_first_snapshot,
        {
            "whole": lambda path: path,
            "empty": empty,
            "zeroed": zeroed,
            "cut in half": halved,
            "missing": removed,
        },
        ("broken-metadata-log",),
        None,
        OF_DYNAMIC,
    ),
    *each(
        "first records alone",
        only_first_snapshot,
        {"whole": lambda path: path, "empty": empty, "zeroed": zeroed, "missing": removed},
        ("broken-metadata-log",),
        None,
        ("combined", "controller"),
        ("4.4.0",),
    ),
    Damage("voters named beside a dynamic quorum", _voters_named(1), (), OF_DYNAMIC),
    Damage("other voters named beside a dynamic quorum", _voters_named(1, 7), (), OF_DYNAMIC),
    Damage("a dynamic quorum, static in the configuration", _voters_only(1), (), OF_DYNAMIC),
    Damage(
        "no quorum in the configuration",
        lambda disk: disk.node.configure({"controller.quorum.bootstrap.servers": None}),
        ("no-quorum",),
        OF_DYNAMIC,
    ),
    Damage(
        "another directory.id than the voter's",
        _meta_edit(lambda d: d.meta / "meta.properties", "directory.id=.*", "directory.id=Xs6gS0pIR5yNqcAe2bBqwQ"),
        ("other-directory-id",),
        OF_DYNAMIC,
        lambda disk: shutil.copy(disk.root.parent / "kept" / "meta" / "meta.properties", disk.meta),
    ),
    Damage(
        "meta.properties of a voter's metadata dir lost",
        lambda disk: (disk.meta / "meta.properties").unlink(),
        ("unformatted",),
        OF_DYNAMIC,
    ),
]

# What a start meets in partition directories: torn tails, foreign files, directories in places of files.

CLEAN = ".kafka_cleanshutdown"


def unclean(do: Doing) -> Doing:
    """The same after a stop that was not clean: everything behind the recovery points is recovered."""

    def both(disk: Disk) -> None:
        do(disk)
        for log_dir in (disk.d1, disk.d2):
            (log_dir / CLEAN).unlink()

    return both


def behind(data: bytes) -> How:
    return lambda path: path.write_bytes(path.read_bytes() + data)


def holding(data: bytes) -> How:
    return lambda path: path.write_bytes(data)


def as_directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def without_index(disk: Disk) -> None:
    in_partition(f"{FIRST}.index")(disk).unlink()
    behind(bytes(300))(in_partition(f"{FIRST}.log")(disk))


def recovered(disk: Disk) -> None:
    (disk.partition().parent / CLEAN).unlink()


def without_indexes(disk: Disk) -> None:
    for suffix in (".txnindex", ".index"):
        in_partition(FIRST + suffix)(disk).unlink()


def swapped(path: Path) -> None:
    shutil.copy(path, f"{path}.swap")


def of_two_gib(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(2**31)


def cure_of(name: str) -> Doing | None:
    """Where nothing is lost for good: not the only segment, not the topic id."""
    return to(in_partition(name), Path.rmdir) if name not in (f"{FIRST}.log", "partition.metadata") else None


FIRST = "0" * 20
TOO_HIGH = str(2**63).zfill(20)
# `AbortedTxn`: version, producer id, first and last offset, last stable offset.
ABORTED = struct.Struct(">hqqqq")
TAILS = {
    "zeros": bytes(300),
    "16 zeros": bytes(16),
    "17 zeros": bytes(17),
    "a torn batch": struct.pack(">qi", 5, 500) + bytes(100),
    "letters": b"x" * 300,
    "all ones": b"\xff" * 300,
}
FOREIGN = {
    "of a later version": ABORTED.pack(1, 7, 0, 1, 1),
    "of a negative version": ABORTED.pack(-1, 7, 0, 1, 1),
    "of this version": ABORTED.pack(0, 7, 0, 1, 1),
    "below its segment": ABORTED.pack(0, 7, -9, -8, -8),
    "of zeros": bytes(ABORTED.size),
    "torn": bytes(ABORTED.size - 1),
    "empty": b"",
}
PLACES_OF_FILES = (
    f"{FIRST}.log",
    f"{FIRST}.index",
    f"{FIRST}.timeindex",
    f"{FIRST}.txnindex",
    f"{FIRST}.snapshot",
    f"{RECORDS:020}.snapshot",
    f"{FIRST}.log.swap",
    f"{FIRST}.log.cleaned",
    f"{FIRST}.log.deleted",
    f"{RECORDS:020}.log",
    "leader-epoch-checkpoint",
    "leader-epoch-checkpoint.tmp",
    "partition.metadata",
    "partition.metadata.tmp",
    f"{TOO_HIGH}.log",
    "backup.log",
)
NUMBERED = (
    f"{TOO_HIGH}.log",
    f"{TOO_HIGH}.index",
    f"{TOO_HIGH}.snapshot",
    f"{TOO_HIGH}.log.swap",
)
IN_FILES = ("broken-segment", "broken-epochs", "broken-partition-metadata", "odd-segment-file", "not-a-file")

SEGMENTS = [
    *(
        Damage(f"{what} at the end of a log", to(in_partition(f"{FIRST}.log"), behind(data)), IN_FILES, BOTH, recovered)
        for what, data in TAILS.items()
    ),
    Damage(
        "zeros at the end of a log, unclean", unclean(to(in_partition(f"{FIRST}.log"), behind(bytes(300)))), (), BOTH
    ),
    Damage("zeros at the end of a log without index", without_index, IN_FILES, BOTH),
    Damage("zeros for a log", to(in_partition(f"{FIRST}.log"), holding(bytes(300))), IN_FILES, BOTH),
    *(
        Damage(
            f"txnindex {what}", to(in_partition(f"{FIRST}.txnindex"), holding(data)), IN_FILES, BOTH, without_indexes
        )
        for what, data in FOREIGN.items()
    ),
    *(
        Damage(
            f"txnindex {what}, unclean", unclean(to(in_partition(f"{FIRST}.txnindex"), holding(data))), IN_FILES, BOTH
        )
        for what, data in FOREIGN.items()
    ),
    *(
        Damage(f"a directory for {name}", to(in_partition(name), as_directory), IN_FILES, BOTH, cure_of(name))
        for name in PLACES_OF_FILES
    ),
    *(
        Damage(f"a directory for {name}, unclean", unclean(to(in_partition(name), as_directory)), IN_FILES, BOTH)
        for name in PLACES_OF_FILES
    ),
    *(
        Damage(
            f"a swapped segment {what}",
            to(in_partition(f"{FIRST}.log.swap"), holding(data)),
            IN_FILES,
            BOTH,
            to(in_partition(f"{FIRST}.log.swap"), removed),
        )
        for what, data in {"of zeros": bytes(300), "of letters": b"x" * 300}.items()
    ),
    Damage("a swapped segment, whole", to(in_partition(f"{FIRST}.log"), swapped), (), BOTH),
    *(
        Damage(f"a {suffix} of 2 GiB", to(in_partition(FIRST + suffix), of_two_gib), IN_FILES, BOTH)
        for suffix in (".log", ".index")
    ),
    *(
        Damage(f"a file {name}", to(in_partition(name), holding(b"")), IN_FILES, BOTH, to(in_partition(name), removed))
        for name in NUMBERED
    ),
]


# Files that are links, lead nowhere, or are something else.


def linked_file(path: Path) -> None:
    """The file is elsewhere, and whole."""
    aside = path.parent.parent / f"aside-{path.name}"
    shutil.move(path, aside)
    path.symlink_to(aside)


def leading_nowhere(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/nonexistent/x")


def as_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def in_log_dir(name: str) -> Where:
    return lambda disk: disk.partition().parent / name


# 3.5.2 begins its first tasks 30 seconds after its start: it knows no log.initial.task.delay.ms.
FIRST_TASKS = 40.0
OFTEN_WRITTEN = {
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
}


def written_often(do: Doing) -> Doing:
    def both(disk: Disk) -> None:
        disk.node.configure(OFTEN_WRITTEN)
        do(disk)

    return both


OFFSETS = ("recovery-point", "log-start", "replication", "cleaner")
AS_WRITTEN = (f"{FIRST}.log", f"{FIRST}.index", f"{FIRST}.timeindex", f"{RECORDS:020}.snapshot", "partition.metadata")
NO_FILE = (*IN_FILES, "broken-checkpoint", "no-topic-id", "unparsable-name", "unformatted", "meta-properties-malformed")

NO_FILES = [
    *(Damage(f"a link for {name}", to(in_partition(name), linked_file), NO_FILE, BOTH) for name in AS_WRITTEN),
    *(
        Damage(f"a link to nowhere for {name}", to(in_partition(name), leading_nowhere), NO_FILE, BOTH)
        for name in (*AS_WRITTEN, f"{FIRST}.txnindex", "leader-epoch-checkpoint", "leader-epoch-checkpoint.tmp")
    ),
    *(
        Damage(f"a FIFO for {name}", to(in_partition(name), as_fifo), NO_FILE, BOTH)
        for name in (f"{FIRST}.log", f"{FIRST}.index", f"{FIRST}.txnindex", "leader-epoch-checkpoint.tmp")
    ),
    *(
        Damage(f"a link for the {name} checkpoint", to(in_log_dir(f"{name}-offset-checkpoint"), linked_file), (), BOTH)
        for name in OFFSETS
    ),
    *(
        Damage(
            f"a link to nowhere for the {name} checkpoint",
            to(in_log_dir(f"{name}-offset-checkpoint"), leading_nowhere),
            NO_FILE,
            BOTH,
            to(in_log_dir(f"{name}-offset-checkpoint"), removed),
        )
        for name in OFFSETS
    ),
    *(
        Damage(
            f"a link to nowhere for the {name} checkpoint as it is written",
            written_often(to(in_log_dir(f"{name}-offset-checkpoint.tmp"), leading_nowhere)),
            NO_FILE,
            BOTH,
            to(in_log_dir(f"{name}-offset-checkpoint.tmp"), removed),
            patience=FIRST_TASKS,
        )
        for name in OFFSETS
    ),
    *(
        Damage(f"a link to nowhere for {name}", to(in_log_dir(name), leading_nowhere), NO_FILE, BOTH)
        for name in (".lock", CLEAN, "meta.properties")
    ),
    *(
        Damage(f"a directory for {name}", to(in_log_dir(name), as_directory), NO_FILE, BOTH)
        for name in (".lock", "meta.properties", "replication-offset-checkpoint", "replication-offset-checkpoint.tmp")
    ),
    Damage(
        "a FIFO for the clean-shutdown marker",
        to(in_log_dir(CLEAN), as_fifo),
        NO_FILE,
        cure=to(in_log_dir(CLEAN), removed),
    ),
    Damage(
        "a cordon of no log dir",
        lambda d: _cordon(d, "/gone"),
        ("stale-cordon",),
        ("combined", "controller"),
        versions=CORDONS,
    ),
    Damage(
        "a cordon with a slash",
        lambda d: _cordon(d, f"{d.d2}/"),
        ("stale-cordon",),
        ("combined", "controller"),
        versions=CORDONS,
    ),
    Damage("a cordon of all and more", lambda d: _cordon(d, f"*,{d.d2}"), ("stale-cordon",), versions=CORDONS),
    Damage("a cordon with an empty item", lambda d: _cordon(d, f"{d.d2},"), ("stale-cordon",), versions=CORDONS),
    Damage("a cordon", lambda d: _cordon(d, str(d.d2)), versions=CORDONS),
    Damage("a log dir with a slash at its end", lambda d: d.log_dirs(f"{d.d1}/", f"{d.root}//d2"), (), BOTH),
    Damage(
        "a log dir with and without a slash at its end",
        lambda d: d.log_dirs(d.d1, d.d2, f"{d.d1}/"),
        ("duplicate-log-dir",),
        ("combined", "zookeeper", "controller"),
    ),
]


def as_full_directory(path: Path) -> None:
    as_directory(path)
    (path / "x").touch()


def compacted(do: Doing) -> Doing:
    def both(disk: Disk) -> None:
        disk.node.configure({"log.cleanup.policy": "compact", "log.cleaner.backoff.ms": "500"})
        do(disk)

    return both


def _first_log_dir_and_epochs_nowhere(disk: Disk) -> None:
    _back_to_first(disk)
    leading_nowhere(disk.d1 / METADATA_LOG / "leader-epoch-checkpoint")


# Files of the metadata log that a start opens, makes or writes.
OF_METADATA = (
    f"{FIRST}.log",
    f"{FIRST}.index",
    f"{FIRST}.timeindex",
    f"{FIRST}.txnindex",
    f"{FIRST}.snapshot",
    f"{RECORDS:020}.log",
    "leader-epoch-checkpoint",
    "leader-epoch-checkpoint.tmp",
    "partition.metadata",
    "partition.metadata.tmp",
    "quorum-state",
    "quorum-state.tmp",
    f"{RECORDS:020}-0000000001.checkpoint.part",
)
IN_METADATA = ("broken-metadata-log", "not-a-file", "odd-segment-file")

METADATA_PLACES = [
    *(
        Damage(
            f"{what} for {name} of the metadata log",
            to(in_metadata_log(name), how),
            IN_METADATA,
            cure=to(in_metadata_log(name), removed) if name.endswith(".tmp") and what != "a directory" else None,
        )
        for what, how in {"a link to nowhere": leading_nowhere, "a directory": as_directory, "a FIFO": as_fifo}.items()
        for name in OF_METADATA
    ),
    *(
        Damage(f"{what} for the newest metadata snapshot", to(newest_snapshot, how), IN_METADATA)
        for what, how in {"a link to nowhere": leading_nowhere, "a directory": as_directory, "a FIFO": as_fifo}.items()
    ),
    *(
        Damage(
            f"{what} for the last producer snapshot of the metadata log",
            to(lambda disk: sorted(disk.metadata_log.glob("*.snapshot"))[-1], how),
            IN_METADATA,
        )
        for what, how in {"a link to nowhere": leading_nowhere, "a directory": as_directory}.items()
    ),
    *(
        Damage(
            f"a swapped segment {what} of the metadata log",
            to(in_metadata_log(f"{FIRST}.log.swap"), holding(data)),
            ("broken-segment",),
        )
        for what, data in {"of zeros": bytes(300), "of letters": b"x" * 300}.items()
    ),
    Damage(
        "a link to nowhere for the newest snapshot of a trimmed metadata log",
        to(newest_snapshot, leading_nowhere),
        IN_METADATA,
        trimmed=True,
    ),
    Damage(
        "a link to nowhere for leader-epoch-checkpoint of the metadata log, in a log dir",
        _first_log_dir_and_epochs_nowhere,
        IN_METADATA,
    ),
]

MARKERS = [
    *(
        Damage(f"{what} for .lock of the metadata dir", to(in_metadata_dir(".lock"), how), NO_FILE)
        for what, how in {"a link to nowhere": leading_nowhere, "a directory": as_directory, "a FIFO": as_fifo}.items()
    ),
    Damage("an empty directory for the clean-shutdown marker", to(in_log_dir(CLEAN), as_directory), NO_FILE, BOTH),
    Damage("a directory for the clean-shutdown marker", to(in_log_dir(CLEAN), as_full_directory), NO_FILE, BOTH),
    *(
        Damage(f"a FIFO for the {name} checkpoint", to(in_log_dir(f"{name}-offset-checkpoint"), as_fifo), NO_FILE)
        for name in OFFSETS
    ),
    Damage(
        "a FIFO for the cleaner checkpoint, compacted",
        compacted(to(in_log_dir("cleaner-offset-checkpoint"), as_fifo)),
        NO_FILE,
        patience=10,
    ),
]


def reserved(number: int, where: Where) -> Doing:
    return _meta_edit(
        lambda disk: where(disk) / "meta.properties",
        "directory.id=.*",
        f"directory.id={to_text(number.to_bytes(16, 'big'))}",
    )


def ids_put_back(disk: Disk) -> None:
    for log_dir in (disk.d1, disk.d2, disk.meta):
        shutil.copy(disk.root.parent / "kept" / log_dir.name / "meta.properties", log_dir)


def a_log_dir(disk: Disk) -> Path:
    return disk.partition().parent


RESERVED = [
    *(
        Damage(
            f"directory.id {number} of a log dir",
            reserved(number, a_log_dir),
            ("reserved-directory-id",),
            cure=ids_put_back,
        )
        for number in (0, 1, 2, 3, 99)
    ),
    *(
        Damage(
            f"directory.id {number} of the metadata dir",
            reserved(number, lambda d: d.meta),
            ("reserved-directory-id", "other-directory-id"),
            ("combined", "controller", "dynamic"),
            ids_put_back,
        )
        for number in (1, 99, 100)
    ),
]


# The same partition twice: by a link, by a mount; and log dirs that leave.


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


def leaves(disk: Disk) -> None:
    disk.log_dirs(disk.other(disk.partition()))


def leaves_and_gone(disk: Disk) -> None:
    leaves(disk)
    moved_away(disk, disk.partition().parent)


def moves(disk: Disk) -> None:
    """The log dir as a whole, to another path."""
    log_dir = disk.partition().parent
    other = disk.other(disk.partition())
    shutil.move(log_dir, disk.root / "moved")
    disk.log_dirs(other, disk.root / "moved")


def comes_back(disk: Disk) -> None:
    disk.log_dirs(disk.d1, disk.d2)


SINCE_IDS = ("3.7.0", "3.8.1", "3.9.1", "4.1.0", "4.3.1", "4.4.0")
SINCE_STRAYS = ("3.8.1", "3.9.1", "4.1.0", "4.3.1", "4.4.0")
TWICE = [
    Damage("a link to the same partition", linked(Disk.partition), ("duplicate-partition",), BOTH, without_link),
    Damage("a link to a copy elsewhere", linked(copied_aside), ("duplicate-partition",), BOTH),
    Damage("a link to one of another topic id", linked(of_another_id), ("duplicate-partition",), BOTH),
    Damage("a link to one without topic id", linked(without_id), ("duplicate-partition", "no-topic-id"), BOTH),
    Damage("two links to one partition", both_linked, ("duplicate-partition",), BOTH),
    Damage("the same partition mounted", mounted, ("duplicate-partition",), BOTH),
    Damage(
        "a file with the name of an assigned partition",
        replaced_by(written("")),
        ("name-taken",),
        versions=SINCE_IDS,
    ),
    Damage(
        "a link to nowhere with the name of an assigned partition",
        replaced_by(leading_nowhere),
        ("name-taken",),
        versions=SINCE_IDS,
    ),
    Damage(
        "a file with the name of a partition in the other log dir",
        lambda disk: (disk.other(disk.partition()) / f"{TOPIC}-0").write_text(""),
        (),
        BOTH,
    ),
    Damage(
        "a -delete directory that is a mount point", delete_mounted, ("mounted-partition",), BOTH, patience=FIRST_TASKS
    ),
    Damage("a linked future beside its current", future_linked, ("future-beside-current",), BOTH, patience=10),
    Damage(
        "one that is not ours is a mount point",
        not_ours_mounted(True),
        ("mounted-partition",),
        versions=SINCE_STRAYS,
        patience=10,
    ),
    Damage(
        "one without topic id is a mount point",
        not_ours_mounted(False),
        ("mounted-partition",),
        versions=SINCE_STRAYS,
        patience=10,
    ),
    Damage(
        "only a future, in the other log dir",
        as_future_elsewhere,
        ("future-without-current",),
        cure=futures_renamed,
        versions=SINCE_IDS,
        patience=8,
    ),
    Damage("only a future, where it is assigned to", as_future_here, versions=SINCE_STRAYS, patience=8),
    Damage("a linked partition.metadata", id_linked, (), BOTH),
    Damage("a copy, and a linked partition.metadata", id_linked_twice, ("duplicate-partition",), BOTH),
    Damage("a log dir leaves", leaves, ("log-dir-forgotten",), ("combined", "broker"), comes_back, versions=SINCE_IDS),
    Damage("a log dir leaves and is gone", leaves_and_gone, ("log-dir-forgotten",), ("combined",), versions=SINCE_IDS),
    Damage("a log dir at another path", moves, (), ("combined",), versions=SINCE_IDS),
]


def _harmless(disk: Disk) -> None:
    """What starts, in one start."""
    linked_file(in_log_dir("replication-offset-checkpoint")(disk))
    as_directory(in_log_dir(CLEAN)(disk))
    id_linked(disk)


HARMLESS = Damage("links and an empty directory that harm nothing", _harmless)

CORPUS = [
    HARMLESS,
    *DYNAMIC_QUORUM,
    *METADATA,
    *PLACES,
    *CONTROLLERS,
    *PARTITIONS,
    *IDS,
    *SEGMENTS,
    *NO_FILES,
    *METADATA_PLACES,
    *MARKERS,
    *RESERVED,
    *TWICE,
]

# One of many alike.
QUICK: dict[str, frozenset[tuple[str, Kind]]] = {
    "what stops brokers only": frozenset({(NEWEST, "controller")}),
    "metadata.log.dir in a log dir": frozenset({(NEWEST, "controller")}),
    **dict.fromkeys(
        (
            "quorum-state zeroed",
            "newest snapshot empty",
            "a metadata log in another log dir",
            "epochs of a partition zeroed",
            "zeros at the end of a log",
            "txnindex of a later version",
            "a directory for leader-epoch-checkpoint.tmp",
            "a link to nowhere for leader-epoch-checkpoint of the metadata log",
            "a link to nowhere for the replication checkpoint as it is written",
            "a swapped segment of zeros",
            "directory.id 99 of a log dir",
            "a link to the same partition",
            "links and an empty directory that harm nothing",
            "only a future, in the other log dir",
            "a log dir leaves",
        ),
        frozenset({(NEWEST, "combined")}),
    ),
}
assert {*QUICK} <= {damage.id for damage in CORPUS}
