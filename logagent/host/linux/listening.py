"""Whether a certain process is the one that listens on a port of this host."""

from __future__ import annotations

import os
from contextlib import suppress

_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp


def process_listens(pid: int, port: int) -> bool:
    """Whether process `pid` has a TCP socket that listens on `port`, in our network namespace; False if unknown.

    A port that a starting broker has not bound yet can be taken by any local user, who could then answer in its place.
    """
    try:
        if os.stat(f"/proc/{pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino:
            return False
        wanted = _listening_inodes(pid, port)
        return bool(wanted) and not wanted.isdisjoint(_socket_inodes(pid))
    except OSError:
        return False


def _listening_inodes(pid: int, port: int) -> frozenset[str]:
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError), open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
            for fields in (line.split() for line in lines):
                # sl, local address, remote address, state, queues, timer, retransmits, uid, timeout, inode
                if len(fields) > 9 and fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return frozenset(found)


def _socket_inodes(pid: int) -> set[str]:
    directory = f"/proc/{pid}/fd"
    found: set[str] = set()
    for number in os.listdir(directory):
        with suppress(FileNotFoundError):
            link = os.readlink(f"{directory}/{number}")
            if link.startswith("socket:["):
                found.add(link[len("socket:[") : -1])
    return found
