"""Where the files of a node are, and what may become of a file: for the rows of the table."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.damages.disk import Disk
from tests.damages.row import Doing, How, Where, to

CLEAN = ".kafka_cleanshutdown"
FIRST = "0" * 20

# What becomes of a file that was not written through when the power went.


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


def holding(data: bytes) -> How:
    return lambda path: path.write_bytes(data)


def as_directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def behind(data: bytes) -> How:
    return lambda path: path.write_bytes(path.read_bytes() + data)


# Of a file that is a link, leads nowhere, or is something else.


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


NO_FILE = {"a link to nowhere": leading_nowhere, "a directory": as_directory, "a FIFO": as_fifo}


# Where it is.


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


def edited(where: Where, pattern: str, replacement: str) -> Doing:
    return lambda disk: disk.edit(where(disk), pattern, replacement)


def with_settings(**changes: str | None) -> Doing:
    """`server.properties` changed; an underscore stands for a dot, None removes a key."""
    return lambda disk: disk.node.configure({name.replace("_", "."): value for name, value in changes.items()})


def moved_away(disk: Disk, path: Path) -> None:
    shutil.move(path, disk.root / "aside")


def in_turn(*doings: Doing) -> Doing:
    return lambda disk: [do(disk) for do in doings]


def in_each(name: str, how: How) -> Doing:
    """In both log dirs."""
    return in_turn(to(lambda disk: disk.d1 / name, how), to(lambda disk: disk.d2 / name, how))
