"""One ingest at a time for a store: two would remove each other's half-written dates.

The lock is a file in the store, so it holds between machines. What it can promise is what the file system promises:

- local and mounted ones create a file only if there is none, atomically (`O_EXCL`);
- others (HDFS, object stores) are asked first and written to then: there two that start within the same second can both
  believe that they were first. Each reads the lock again after writing it, before it replaces a date and before it
  marks one as ingested, and stops where it is another's. What is left then is a date that does not count as ingested,
  never one that mixes both.

The holder writes the lock again every minute. One that was not written for `STALE_SECONDS` on the store's own clock, or
whose process is gone from this machine, is taken over.
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

from logagent.errors import LogAgentError
from logagent.fleet.tables.files import Files
from logagent.fleet.tables.store import Store

NAME = ".ingest-lock"
REFRESH_SECONDS = 60.0
STALE_SECONDS = 600.0


def machine() -> str:
    """This boot of this machine and its process ids: where a PID of the lock means what it means here."""
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
        self._refresher = threading.Thread(target=self._refresh, name="logagent-ingest-lock", daemon=True)

    def __enter__(self) -> IngestLock:
        if not self._files.create_new(self._uri, b""):
            self._take_over()
        try:
            self._write()
        except (OSError, Py4JError):
            # A full store: an empty lock would keep everybody out until it is stale.
            with suppress(OSError, Py4JError):
                self._files.delete(self._uri)
            raise
        self.check()
        self._refresher.start()
        # Only the holder makes these, so they are what a killed ingest has left.
        for name in self._files.names(self._store.uri):
            if name.startswith(".scratch-"):
                self._files.delete(f"{self._store.uri}/{name}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._refresher.join(REFRESH_SECONDS)
        # The error that brought us here says more than one about cleaning up after it.
        with suppress(OSError, Py4JError):
            if self._holder().get("id") == self._id:
                self._files.delete(self._uri)

    def check(self) -> None:
        """Raises `LogAgentError` if the lock is another's by now."""
        holder = self._holder()
        if holder.get("id") != self._id:
            raise LogAgentError(
                f"another ingest has taken the lock of this store: {_in_words(holder)}",
                hint="let one finish, then run `logagent fleet ingest` again: dates that are not whole are repeated",
            )

    def _write(self) -> None:
        content = {"id": self._id, "machine": machine(), "host": socket.gethostname(), "pid": os.getpid()}
        content["at"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        self._files.overwrite(self._uri, json.dumps(content).encode())

    def _refresh(self) -> None:
        while not self._stop.wait(REFRESH_SECONDS):
            with suppress(OSError, Py4JError):
                if self._holder().get("id") != self._id:
                    return
                self._write()

    def _holder(self) -> dict[str, object]:
        """What the lock says; nothing where it is absent or just being written."""
        if not self._files.exists(self._uri):
            return {}
        try:
            said = json.loads(self._files.read(self._uri))
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}

    def _take_over(self) -> None:
        holder = self._holder()
        probe = f"{self._uri}.{self._id}"
        self._files.overwrite(probe, b"")
        try:
            silent = (self._files.modified_ms(probe) - self._files.modified_ms(self._uri)) / 1000
        finally:
            self._files.delete(probe)
        gone = holder.get("machine") == machine() and not _runs(holder.get("pid"))
        if not gone and silent < STALE_SECONDS:
            raise LogAgentError(
                f"another ingest of this store is running: {_in_words(holder)}, heard from {silent:.0f} s ago",
                hint=f"wait for it; one that is silent for {STALE_SECONDS:.0f} s is taken to be dead ({self._uri})",
            )
        self._say(f"taking over from an ingest that is no more: {_in_words(holder)}")
        # Renamed first: of two that take over one gets it, and the other finds out that it moved a fresh lock.
        self._files.move(self._uri, probe)
        said = json.loads(self._files.read(probe) or b"{}")
        self._files.delete(probe)
        if said.get("id") != holder.get("id") or not self._files.create_new(self._uri, b""):
            raise LogAgentError("another ingest of this store has just begun", hint="wait for it")


def _runs(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _in_words(holder: dict[str, object]) -> str:
    if not holder:
        return "one that has not said its name yet"
    return f"process {holder.get('pid')} on {holder.get('host')}, {holder.get('at')}"
