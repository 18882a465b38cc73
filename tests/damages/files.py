"""Damages of the files in a partition directory, and of those beside it in a log dir."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from tests.damages.disk import RECORDS, TOPIC, UUID, Disk
from tests.damages.hows import (
    CLEAN,
    FIRST,
    NO_FILE,
    as_directory,
    as_fifo,
    behind,
    empty,
    holding,
    in_each,
    in_log_dir,
    in_metadata_dir,
    in_partition,
    in_turn,
    leading_nowhere,
    linked_file,
    removed,
    with_settings,
    written,
    zeroed,
)
from tests.damages.row import Damage, Doing, each, to

PARTITIONS = [
    *each(
        "epochs of a partition",
        in_partition("leader-epoch-checkpoint"),
        {
            "zeroed": zeroed,
            "of a word": written("garbage\n"),
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
        cure=empty,
    ),
    Damage(
        "epochs of a -delete directory zeroed",
        lambda d: (d.make(f"zzz-0.{UUID}-delete") / "leader-epoch-checkpoint").write_bytes(bytes(10)),
    ),
    *each("partition.metadata of a partition", in_partition("partition.metadata"), {"zeroed": zeroed}),
    *each(
        "producer snapshot", lambda d: sorted(d.partition().glob("*.snapshot"))[-1], {"empty": empty, "zeroed": zeroed}
    ),
    *each("index", in_partition(f"{FIRST}.index"), {"cut short": holding(b"abc")}),
]


def unclean(do: Doing) -> Doing:
    """The same after a stop that was not clean: everything behind the recovery points is recovered."""

    return in_turn(do, in_each(CLEAN, removed))


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
NUMBERED = (f"{TOO_HIGH}.log", f"{TOO_HIGH}.index", f"{TOO_HIGH}.snapshot", f"{TOO_HIGH}.log.swap")

SEGMENTS = [
    *(
        Damage(f"{what} at the end of a log", to(in_partition(f"{FIRST}.log"), behind(data)), cure=recovered)
        for what, data in TAILS.items()
    ),
    Damage("zeros at the end of a log, unclean", unclean(to(in_partition(f"{FIRST}.log"), behind(bytes(300))))),
    Damage("zeros at the end of a log without index", without_index),
    Damage("zeros for a log", to(in_partition(f"{FIRST}.log"), holding(bytes(300)))),
    *(
        Damage(f"txnindex {what}", to(in_partition(f"{FIRST}.txnindex"), holding(data)), cure=without_indexes)
        for what, data in FOREIGN.items()
    ),
    *(
        Damage(f"txnindex {what}, unclean", unclean(to(in_partition(f"{FIRST}.txnindex"), holding(data))))
        for what, data in FOREIGN.items()
    ),
    *(
        Damage(f"a directory for {name}", to(in_partition(name), as_directory), cure=cure_of(name))
        for name in PLACES_OF_FILES
    ),
    *(
        Damage(f"a directory for {name}, unclean", unclean(to(in_partition(name), as_directory)))
        for name in PLACES_OF_FILES
    ),
    *(
        Damage(
            f"a swapped segment {what}",
            to(in_partition(f"{FIRST}.log.swap"), holding(data)),
            cure=to(in_partition(f"{FIRST}.log.swap"), removed),
        )
        for what, data in {"of zeros": bytes(300), "of letters": b"x" * 300}.items()
    ),
    Damage("a swapped segment, whole", to(in_partition(f"{FIRST}.log"), swapped)),
    *(Damage(f"a {suffix} of 2 GiB", to(in_partition(FIRST + suffix), of_two_gib)) for suffix in (".log", ".index")),
    *(
        Damage(f"a file {name}", to(in_partition(name), holding(b"")), cure=to(in_partition(name), removed))
        for name in NUMBERED
    ),
]


# 3.5.2 begins its first tasks 30 seconds after its start: it knows no log.initial.task.delay.ms.
FIRST_TASKS = 40.0
WRITTEN_OFTEN = with_settings(
    log_flush_offset_checkpoint_interval_ms="1000",
    log_flush_start_offset_checkpoint_interval_ms="1000",
    replica_high_watermark_checkpoint_interval_ms="1000",
    log_initial_task_delay_ms="500",
)


OFFSETS = ("recovery-point", "log-start", "replication", "cleaner")
AS_WRITTEN = (f"{FIRST}.log", f"{FIRST}.index", f"{FIRST}.timeindex", f"{RECORDS:020}.snapshot", "partition.metadata")

NO_FILES = [
    *(Damage(f"a link for {name}", to(in_partition(name), linked_file)) for name in AS_WRITTEN),
    *(
        Damage(f"a link to nowhere for {name}", to(in_partition(name), leading_nowhere))
        for name in (*AS_WRITTEN, f"{FIRST}.txnindex", "leader-epoch-checkpoint", "leader-epoch-checkpoint.tmp")
    ),
    *(
        Damage(f"a FIFO for {name}", to(in_partition(name), as_fifo))
        for name in (f"{FIRST}.log", f"{FIRST}.index", f"{FIRST}.txnindex", "leader-epoch-checkpoint.tmp")
    ),
    *(
        Damage(f"a link for the {name} checkpoint", to(in_log_dir(f"{name}-offset-checkpoint"), linked_file))
        for name in OFFSETS
    ),
    *(
        Damage(
            f"a link to nowhere for the {name} checkpoint",
            to(in_log_dir(f"{name}-offset-checkpoint"), leading_nowhere),
            cure=to(in_log_dir(f"{name}-offset-checkpoint"), removed),
        )
        for name in OFFSETS
    ),
    *(
        Damage(
            f"a link to nowhere for the {name} checkpoint as it is written",
            in_turn(WRITTEN_OFTEN, to(in_log_dir(f"{name}-offset-checkpoint.tmp"), leading_nowhere)),
            cure=to(in_log_dir(f"{name}-offset-checkpoint.tmp"), removed),
            patience=FIRST_TASKS,
        )
        for name in OFFSETS
    ),
    *(
        Damage(f"a link to nowhere for {name}", to(in_log_dir(name), leading_nowhere))
        for name in (".lock", CLEAN, "meta.properties")
    ),
    *(
        Damage(f"a directory for {name}", to(in_log_dir(name), as_directory))
        for name in (".lock", "meta.properties", "replication-offset-checkpoint", "replication-offset-checkpoint.tmp")
    ),
    Damage("a FIFO for the clean-shutdown marker", to(in_log_dir(CLEAN), as_fifo), cure=to(in_log_dir(CLEAN), removed)),
]


def as_full_directory(path: Path) -> None:
    as_directory(path)
    (path / "x").touch()


COMPACTED = with_settings(log_cleanup_policy="compact", log_cleaner_backoff_ms="500")
MARKERS = [
    *(
        Damage(f"{what} for .lock of the metadata dir", to(in_metadata_dir(".lock"), how))
        for what, how in NO_FILE.items()
    ),
    Damage("an empty directory for the clean-shutdown marker", to(in_log_dir(CLEAN), as_directory)),
    Damage("a directory for the clean-shutdown marker", to(in_log_dir(CLEAN), as_full_directory)),
    *(
        Damage(f"a FIFO for the {name} checkpoint", to(in_log_dir(f"{name}-offset-checkpoint"), as_fifo))
        for name in OFFSETS
    ),
    Damage(
        "a FIFO for the cleaner checkpoint, compacted",
        in_turn(COMPACTED, to(in_log_dir("cleaner-offset-checkpoint"), as_fifo)),
        patience=10,
    ),
]


CHECKPOINTS = [
    Damage(f"{name} checkpoint {what}", to(in_log_dir(f"{name}-offset-checkpoint"), written(text)))
    for what, text in {"malformed": "0\n1\nbroken\n", "out of range": f"0\n1\n{TOPIC} 99999999999 1\n"}.items()
    for name in OFFSETS
]

IN_FILES = [*PARTITIONS, *SEGMENTS, *NO_FILES, *MARKERS, *CHECKPOINTS]
