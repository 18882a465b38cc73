"""What other users of this machine do: in a child process that has become one of them."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.needs import need_root


class User(NamedTuple):
    """`groups`: beside its primary one."""

    uid: int
    gid: int
    groups: Sequence[int] = ()

    def does(self, what: Callable[[], Any]) -> Any:
        """What `what` returns when this user calls it with a umask of 077. Raises AssertionError with its traceback if
        it raises."""
        need_root()
        here, there = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(here)
                os.umask(0o077)
                os.setgroups([*self.groups])
                os.setresgid(self.gid, self.gid, self.gid)
                os.setresuid(self.uid, self.uid, self.uid)
                try:
                    answer = (True, what())
                except BaseException:
                    answer = (False, traceback.format_exc())
                with open(there, "wb") as pipe:
                    pickle.dump(answer, pipe)
                status = 0
            finally:
                os._exit(status)
        os.close(there)
        with open(here, "rb") as pipe:
            said = pipe.read()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, self
        ended, answer = pickle.loads(said)
        assert ended, f"{self}: {answer}"
        return answer


def open_the_way(folder: Path) -> None:
    """Let other users reach a folder of a test, which pytest keeps for its own user."""
    for each in (folder, *folder.parents):
        found = each.stat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o055 != 0o055:
            each.chmod(found.st_mode & 0o7777 | 0o055)
