"""Damages of a node's metadata log and of the directory it is in."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.damages.disk import METADATA_LOG, RECORDS, Disk
from tests.damages.hows import (
    FIRST,
    NO_FILE,
    as_directory,
    cut_off,
    edited,
    empty,
    flipped,
    halved,
    holding,
    in_metadata_dir,
    in_metadata_log,
    last_segment,
    leading_nowhere,
    moved_away,
    newest_snapshot,
    only_snapshot,
    padded,
    removed,
    with_settings,
    without_footer,
    written,
    zeroed,
)
from tests.damages.row import Damage, Doing, each, to

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
        {
            "empty": empty,
            "zeroed": zeroed,
            "cut in half": halved,
            "of a later version": written(ELECTION),
            "of no object": written("[]"),
            "without fields": written('{"data_version":0}'),
            "with zeros behind": padded,
            "of other voters": written(OTHER_VOTERS),
            "of a dynamic quorum": written(DYNAMIC),
            "missing": removed,
        },
        cure=removed,
    ),
    *each(
        "epochs of the metadata log",
        in_metadata_log("leader-epoch-checkpoint"),
        {
            "empty": empty,
            "zeroed": zeroed,
            "missing": removed,
            "without entries": written("0\n0\n"),
            "with a word": written("0\n1\na 0\n"),
            "of a later version": written("1\n0\n"),
        },
        cure=removed,
    ),
    *each(
        "epochs of a trimmed metadata log",
        in_metadata_log("leader-epoch-checkpoint"),
        {"empty": empty, "missing": removed, "zeroed": zeroed},
        trimmed=True,
    ),
    *each(
        "partition.metadata of the metadata log",
        in_metadata_log("partition.metadata"),
        {
            "empty": empty,
            "zeroed": zeroed,
            "missing": removed,
            "of another topic": written("version: 0\ntopic_id: Xs6gS0pIR5yNqcAe2bBqwQ"),
        },
        cure=removed,
    ),
    *each(
        "newest snapshot",
        newest_snapshot,
        {
            "empty": empty,
            "zeroed": zeroed,
            "cut in half": halved,
            "with a flipped bit": flipped,
            "without its footer": without_footer,
            "with zeros behind": padded,
            "cut at its end": cut_off,
            "missing": removed,
        },
        cure=removed,
    ),
    *each(
        "only snapshot",
        only_snapshot,
        {"alone": lambda path: path, "empty": empty, "zeroed": zeroed, "missing": removed},
        trimmed=True,
    ),
    *each(
        "bootstrap.checkpoint",
        in_metadata_dir("bootstrap.checkpoint"),
        {
            "empty": empty,
            "zeroed": zeroed,
            "cut in half": halved,
            "cut at its end": cut_off,
            "with a flipped bit": flipped,
            "with zeros behind": padded,
            "missing": removed,
        },
        cure=removed,
    ),
    *each("last metadata segment", last_segment, {"cut in half": halved, "empty": empty}),
    Damage(
        "only snapshot empty, of a broker",
        to(only_snapshot, empty),
        cure=lambda disk: moved_away(disk, disk.metadata_log),
        trimmed=True,
    ),
    Damage("metadata log missing", lambda disk: moved_away(disk, disk.metadata_log)),
    Damage(
        "odd file in the metadata log",
        to(in_metadata_log("backup.log"), written("")),
        cure=to(in_metadata_log("backup.log"), removed),
    ),
    Damage(
        "odd snapshot in the metadata log",
        to(in_metadata_log("backup.checkpoint"), written("x")),
        cure=to(in_metadata_log("backup.checkpoint"), removed),
    ),
    Damage(
        "partial snapshot in the metadata log",
        to(in_metadata_log("00000000000000000099-0000000001.checkpoint.part"), written("x")),
    ),
    Damage("directory in the metadata log", lambda disk: (disk.metadata_log / "backup").mkdir()),
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


def _log_dir_inside_metadata_dir(disk: Disk) -> None:
    shutil.move(disk.d2, disk.meta / "d2")
    disk.log_dirs(disk.d1, disk.meta / "d2")


def _metadata_dir_first(disk: Disk) -> None:
    disk.node.configure({"metadata.log.dir": str(disk.d1)})


PLACES = [
    Damage(
        "a metadata log in another log dir",
        _stray_metadata_log,
        cure=lambda disk: moved_away(disk, disk.d2 / METADATA_LOG),
    ),
    Damage(
        "a metadata log left in the first log dir",
        _first_after_all,
        cure=lambda disk: moved_away(disk, disk.d1 / METADATA_LOG),
    ),
    Damage(
        "a file of the metadata log's name",
        lambda disk: (disk.d2 / METADATA_LOG).write_text(""),
        cure=lambda disk: (disk.d2 / METADATA_LOG).unlink(),
    ),
    Damage("the metadata log back in the first log dir", _back_to_first),
    Damage(
        "metadata.log.dir with a slash",
        _metadata_dir_spelled("{d1}/"),
        cure=_metadata_dir_first,
    ),
    Damage(
        "metadata.log.dir with a dot",
        _metadata_dir_spelled("{d1}/."),
        cure=_metadata_dir_first,
    ),
    Damage(
        "metadata.log.dir through a link",
        _metadata_dir_linked,
        cure=_metadata_dir_first,
    ),
    Damage("metadata.log.dir in a log dir", _metadata_dir_inside),
    Damage("metadata.log.dir in a log dir, as a partition", _metadata_dir_inside_named, starts=2),
    Damage("a log dir in the metadata dir", _log_dir_inside_metadata_dir),
]


FIRST_VOTERS = "00000000000000000000-0000000000.checkpoint"
STATIC = (
    '{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
    '"currentVoters":[{"voterId":1}],"data_version":0}'
)


def _voters_named(*ids: int) -> Doing:
    """`controller.quorum.voters`, beside `controller.quorum.bootstrap.servers`."""

    def do(disk: Disk) -> None:
        port = disk.node.properties["controller.quorum.bootstrap.servers"].rpartition(":")[2]
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
        cure=removed,
    ),
    *each(
        "first voters",
        in_metadata_log(FIRST_VOTERS),
        {"empty": empty, "zeroed": zeroed, "cut in half": halved, "missing": removed},
        cure=removed,
    ),
    *each("newest snapshot of a dynamic quorum", newest_snapshot, {"empty": empty, "missing": removed}, cure=removed),
    *each(
        "only snapshot of a dynamic quorum",
        only_snapshot,
        {"alone": lambda path: path, "missing": removed},
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
    ),
    *each(
        "first records alone",
        only_first_snapshot,
        {"whole": lambda path: path, "empty": empty, "zeroed": zeroed, "missing": removed},
    ),
    Damage("voters named beside a dynamic quorum", _voters_named(1)),
    Damage("other voters named beside a dynamic quorum", _voters_named(1, 7)),
    Damage("a dynamic quorum, static in the configuration", _voters_only(1)),
    Damage(
        "no quorum in the configuration",
        with_settings(controller_quorum_bootstrap_servers=None),
    ),
    Damage(
        "another directory.id than the voter's",
        edited(lambda d: d.meta / "meta.properties", "directory.id=.*", "directory.id=Xs6gS0pIR5yNqcAe2bBqwQ"),
        cure=Disk.put_meta_properties_back,
    ),
    Damage("meta.properties of a voter's metadata dir lost", lambda disk: (disk.meta / "meta.properties").unlink()),
]


def _first_log_dir_and_epochs_nowhere(disk: Disk) -> None:
    _back_to_first(disk)
    leading_nowhere(disk.d1 / METADATA_LOG / "leader-epoch-checkpoint")


# Files of the metadata log that a start opens, makes or writes.
METADATA_FILES = (
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

METADATA_PLACES = [
    *(
        Damage(
            f"{what} for {name} of the metadata log",
            to(in_metadata_log(name), how),
            cure=to(in_metadata_log(name), removed) if name.endswith(".tmp") and what != "a directory" else None,
        )
        for what, how in NO_FILE.items()
        for name in METADATA_FILES
    ),
    *(Damage(f"{what} for the newest metadata snapshot", to(newest_snapshot, how)) for what, how in NO_FILE.items()),
    *(
        Damage(
            f"{what} for the last producer snapshot of the metadata log",
            to(lambda disk: sorted(disk.metadata_log.glob("*.snapshot"))[-1], how),
        )
        for what, how in {"a link to nowhere": leading_nowhere, "a directory": as_directory}.items()
    ),
    *(
        Damage(f"a swapped segment {what} of the metadata log", to(in_metadata_log(f"{FIRST}.log.swap"), holding(data)))
        for what, data in {"of zeros": bytes(300), "of letters": b"x" * 300}.items()
    ),
    Damage(
        "a link to nowhere for the newest snapshot of a trimmed metadata log",
        to(newest_snapshot, leading_nowhere),
        trimmed=True,
    ),
    Damage(
        "a link to nowhere for leader-epoch-checkpoint of the metadata log, in a log dir",
        _first_log_dir_and_epochs_nowhere,
    ),
]

OF_METADATA = [*METADATA, *PLACES, *DYNAMIC_QUORUM, *METADATA_PLACES]
