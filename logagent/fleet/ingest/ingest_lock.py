"""One ingest at a time per store: two would remove each other's half-written dates.

The lock is a file in the store, so it holds between machines. What it can promise is what the file system promises:

- created only if there is none (`Files.create_new`): `link()` on local and mounted ones, a rename on HDFS, a
  conditional write in object stores;
- taken over from a dead holder by a rename, which in object stores is a copy and a removal: if two take over there at
  the same moment, the one that creates the new lock wins.

The lock is only a courtesy that saves work. What keeps a date from mixing two ingests is its commit, which is created
only if absent (`tables/store.py`).

The holder rewrites the lock every minute. A lock that was not written for `STALE_SECONDS` by the store's own clock, or
whose process no longer runs on this machine, is taken over. So is one that is `AHEAD_SECONDS` ahead of that clock:
somebody gave it its time, or the clock was set back, and a holder that lives writes it again within a minute.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from uuid import uuid4

from py4j.protocol import Py4JError

from logagent.base.errors import Busy, LogAgentError, UnreadableError
from logagent.base.files.safe_open import parse_json
from logagent.fleet.tables.files import Files
from logagent.fleet.tables.store import Store

NAME = ".ingest-lock"
REFRESH_SECONDS = 60.0
STALE_SECONDS = 600.0
AHEAD_SECONDS = 300.0


def machine() -> str:
    """Identifies the boot and PID namespace of this machine: where it matches, the PID in the lock is one of ours."""
    found = [socket.gethostname()]
    with suppress(OSError):
        found.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        found.append(os.readlink("/proc/self/ns/pid"))
    return "|".join(found)


class IngestLock:
    """Held inside `with`. Entering raises `LogAgentError` while another holds it, and what the file system raises."""

    def __init__(self, store: Store, say: Callable[[str], None] = lambda _: None) -> None:
        self._files: Files = store.files
        self._uri = f"{store.uri}/{NAME}"
        self._store = store
        self._say = say
        self._id = uuid4().hex
        self._stop = threading.Event()
        # A file that this process is writing is not another's.
        self._writing = threading.Lock()
        self._refresher = threading.Thread(target=self._refresh, name="logagent-ingest-lock", daemon=True)

    def __enter__(self) -> IngestLock:
        # Complete at once: an empty lock of a killed ingest would keep everybody out until it is stale.
        if not self._files.create_new(self._uri, self._content()):
            self._take_over()
        self.check()
        try:
            self._refresher.start()
        except RuntimeError as e:  # no thread: an exit is not called for what was not entered
            self._files.delete(self._uri)
            raise LogAgentError(f"cannot keep the lock of the store: {e}", hint="raise the limit of threads") from e
        # Only the holder creates these, so they were left by a killed ingest.
        for name in self._files.names(self._store.uri):
            if name.startswith(".scratch-"):
                self._files.delete(f"{self._store.uri}/{name}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._refresher.join(REFRESH_SECONDS)
        # The original error matters more than one from cleaning up.
        with suppress(OSError, Py4JError, UnreadableError):
            if self._holder().get("id") == self._id:
                self._files.delete(self._uri)

    def check(self) -> None:
        """Raises `LogAgentError` if another ingest has the lock by now."""
        with self._writing:
            holder = self._holder()
        if holder.get("id") != self._id:
            raise Busy(
                f"another ingest has taken the lock of this store: {_in_words(holder)}",
                hint="let one finish, then run `logagent fleet ingest` again: incomplete dates are repeated",
            )

    def _content(self) -> bytes:
        content = {"id": self._id, "machine": machine(), "host": socket.gethostname(), "pid": os.getpid()}
        return json.dumps(content | {"at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}).encode()

    def _write(self) -> None:
        with self._writing:
            self._files.overwrite(self._uri, self._content())

    def _refresh(self) -> None:
        while not self._stop.wait(REFRESH_SECONDS):
            with suppress(OSError, Py4JError, UnreadableError):
                if self._holder().get("id") != self._id:
                    return
                self._write()

    def _holder(self) -> dict[str, object]:
        """The content of the lock; empty if it is absent or being written."""
        return self._read(self._uri) if self._files.exists(self._uri) else {}

    def _read(self, uri: str) -> dict[str, object]:
        try:
            content = parse_json(self._files.read(uri))
        except ValueError:
            return {}
        return content if isinstance(content, dict) else {}

    def _take_over(self) -> None:
        holder = self._holder()
        probe = f"{self._uri}.{self._id}"
        self._files.overwrite(probe, b"")
        try:
            silent = (self._files.modified_ms(probe) - self._files.modified_ms(self._uri)) / 1000
        finally:
            self._files.delete(probe)
        gone = holder.get("machine") == machine() and not _runs(holder.get("pid"))
        if not gone and -AHEAD_SECONDS <= silent < STALE_SECONDS:
            raise Busy(
                f"another ingest of this store is running: {_in_words(holder)}, heard from {max(silent, 0):.0f} s ago",
                hint=f"wait for it; one that is silent for {STALE_SECONDS:.0f} s is considered dead ({self._uri})",
            )
        self._say(f"taking over from a dead ingest: {_in_words(holder)}")
        # Renamed first: of two that take over, one gets it, and the other finds that it has moved a fresh lock.
        self._files.move(self._uri, probe)
        current = self._read(probe)
        self._files.delete(probe)
        if current.get("id") != holder.get("id") or not self._files.create_new(self._uri, self._content()):
            raise Busy("another ingest of this store has just started", hint="wait for it")


def _runs(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _in_words(holder: dict[str, object]) -> str:
    if not holder:
        return "one that has not identified itself yet"
    return f"process {holder.get('pid')} on {holder.get('host')}, {holder.get('at')}"
