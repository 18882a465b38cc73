"""`logagent rescue` killed, or failed, at each call on an ext4 without a free byte or inode, the state dir on it too.

`python -m tests.disk.killed_on_full_disk [--every]`; what has to hold afterwards is as in `killed`. Needs root.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from logagent.cleanup.state.reserve import RESERVE_BYTES, RESERVE_NAME
from tests.disk.killed import HEX, SCENARIOS, run_all
from tests.disk.messes import fill_bytes, fill_inodes
from tests.waiting import wait_until

SIZE = 192 << 20
INODES = 256


def _full(root: Path) -> list[str]:
    """A host on a file system of its own, filled after logagent was there once: by then it has its reserve."""
    root.mkdir()
    image = _image(root)
    with image.open("wb") as file:
        file.truncate(SIZE)
    _run("mkfs.ext4", "-q", "-b", "4096", "-N", str(INODES), str(image))
    _run("mount", "-o", "loop", str(image), str(root))
    own = SCENARIOS["rescue"].prepare(root)
    # Larger than what one step frees, so that a kill finds it half removed.
    large = root / "d1" / f"gone-7.{HEX}-delete" / f"{200:020d}.log"
    large.write_bytes(os.urandom(3 << 20))
    os.utime(large.parent, (1, 1))
    assert (root / "state" / RESERVE_NAME).stat().st_blocks * 512 >= RESERVE_BYTES
    (root / "ballast").touch()
    fill_inodes(root)
    fill_bytes(root)
    room = os.statvfs(root)
    assert (room.f_bavail, room.f_favail) == (0, 0), room
    return own


def _image(root: Path) -> Path:
    return root.with_name(f"{root.name}.img")


def _remove(root: Path) -> None:
    command = ["umount", str(root)]
    wait_until(lambda: not subprocess.run(command, capture_output=True, check=False).returncode, "it is unmounted")
    root.rmdir()
    _image(root).unlink()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)


FULL_DISK = replace(SCENARIOS["rescue"], name="rescue-on-full-disk", prepare=_full, remove=_remove, mounted=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.disk.killed_on_full_disk")
    parser.add_argument("--every", action="store_true", help="every call, every errno")
    sys.exit(1 if run_all([FULL_DISK], every=parser.parse_args().every) else 0)
