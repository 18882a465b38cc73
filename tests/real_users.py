"""Other users of this machine: the kernel asks for their permissions while a test acts as one of them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.needs import need_root


class User(NamedTuple):
    """`groups`: beside its primary one."""

    uid: int
    gid: int
    groups: Sequence[int] = ()

    @contextmanager
    def acting(self) -> Iterator[None]:
        """This process is that user, with a umask of 077; its capabilities are gone meanwhile."""
        need_root()
        gid, groups, umask = os.getegid(), os.getgroups(), os.umask(0o077)
        os.setgroups([*self.groups])
        os.setegid(self.gid)
        os.seteuid(self.uid)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(gid)
            os.setgroups(groups)
            os.umask(umask)


@contextmanager
def reachable_folder(where: str | None = None) -> Iterator[Path]:
    """A folder that other users can reach. Below pytest's own they cannot: each session closes that again."""
    folder = Path(tempfile.mkdtemp(prefix="logagent-users-", dir=where))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder)
