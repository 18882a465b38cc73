"""Exchanges the names of two directories in one step, so that the current name exists at every moment."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from logagent.broker.process.lock import Watch
from logagent.errors import NotAsPlanned
from logagent.host.linux.syscalls import rename_exchange
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.model.records import Identity


class Place(NamedTuple):
    """A directory by its name, and which one it should be (`check` raises if it is not)."""

    log_dir: OpenLogDir
    name: str
    identity: Identity
    check: Callable[[int], None]


def exchange(one: Place, other: Place, interlock: Watch) -> None:
    """`renameat2(RENAME_EXCHANGE)` of two directories, if they are the ones that were planned; no fsync.

    `interlock.before()` is the last check before the call. If a process swapped one of them between our look and the
    call, they are exchanged back. Raises NotAsPlanned, BrokerHoldsLogDir, ItemFailed (EXDEV: they are on two file
    systems; nothing was renamed) or KafkaStorageError.
    """
    with one.log_dir.acting("exchange", one.name):
        for place in (one, other):
            fd = place.log_dir.open_child(place.name, place.identity)
            try:
                place.check(fd)
            finally:
                os.close(fd)
        interlock.before()
        rename_exchange(one.log_dir.fd, one.name, other.name, other.log_dir.fd)
        if _stands(one.log_dir, one.name, other.identity) and _stands(other.log_dir, other.name, one.identity):
            return
        interlock.before()
        rename_exchange(one.log_dir.fd, one.name, other.name, other.log_dir.fd)
    raise NotAsPlanned(
        f"{one.log_dir.path}/{one.name} or {other.name} was replaced by something else; they were put back",
        hint="find out what is replacing directories there",
    )


def _stands(log_dir: OpenLogDir, name: str, identity: Identity) -> bool:
    found = os.stat(name, dir_fd=log_dir.fd, follow_symlinks=False)
    return (found.st_dev, found.st_ino) == (identity.device, identity.inode)
