"""A process whose removal hangs and is given up: `python -m tests.disk.sleeper STATE LOG_DIR PID`, for strace.

PID is the server of the file system under LOG_DIR. It says on stdout how far it is.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.disk.sessions import HANGS, FailingHost
from tests.waiting import wait_until

HANG_AFTER = 200


def say(what: str) -> None:
    os.write(1, f"{what}\n".encode())


def main(state: str, log_dir: str, server: int) -> None:
    host = FailingHost(Path(state), Path(log_dir), settings=HANGS)
    removed = 0

    def progress(files: int, size: int) -> None:
        nonlocal removed
        removed += files
        if removed == HANG_AFTER:
            os.kill(server, signal.SIGSTOP)

    with host.probing():
        host.clean(progress)
    say("session ended")
    # What the sleeper's descriptor would be if it had been closed too early.
    others = [os.open("/", os.O_RDONLY | os.O_DIRECTORY) for _ in range(20)]
    os.kill(server, signal.SIGCONT)
    wait_until(lambda: not host.calls.hanging(log_dir), "the sleeper returns")
    say("sleeper returned")
    for fd in others:
        os.close(fd)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
