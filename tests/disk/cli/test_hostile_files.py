"""Every file that we did not write, replaced by what never ends, is not a file, or is far too large: a sentence and a
documented status, for at most a second of work more than the same command has without it, and without memory.

Commands run in copies of this process that cannot read what its owner may not: to root all is readable.
"""

from __future__ import annotations

import csv
import ctypes
import gc
import json
import os
import shutil
import signal
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

from logagent.base.errors import Exit
from logagent.store.shared import init_store
from tests.command_line import Ran, run_here
from tests.disk.hostile_files import FILES, KINDS, Opened, changing
from tests.forked import import_product
from tests.host import Host
from tests.long_form import FULL
from tests.needs import need_root

# capset(2): two words of each set, version 3; CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
_CAPABILITIES_3 = 0x20080522
_READS_ALL = 1 << 1 | 1 << 2
# Of work; of waiting, for disks too, which a busy machine makes longer; and after so many it is ended.
_SECONDS, _WAITING, _END = 1.0, 20.0, 120
_BYTES = 200_000_000
_STATUSES = {int(status) for status in Exit}
# The first command of each file; the others with `tests/run --full`.
_COMMANDS = None if FULL else 1
# What each file is replaced by, whatever opens it: what hangs, never ends, is no file, is too much, or is no text. The
# rest is for the first file of each reader, and in the long form for all.
_EACH = ("unreadable", "fifo", "directory", "device", "sparse", "large", "garbage", "deep")


def host_with(path: Path, name: str, file: Opened) -> Host:
    host = Host.from_disk(path)
    host.with_assignments()
    if "assignments" not in name:
        host.configure()
    if name in ("client.properties", "truststore.pem"):
        (host.root / "client.properties").write_text(
            f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={host.root}/trust.pem\n"
        )
        (host.root / "trust.pem").touch()
        host.configure(**{
            "assignments.sources": ["admin"],
            "kafka.bootstrap_servers": "127.0.0.1:1",
            "kafka.client": str(host.root / "client.properties"),
        })  # fmt: skip
    if "purge" in file.commands[0]:
        lay_out_report(host)
    if file.where(host).parent == host.state:
        assert host.run("cleanup", "--execute").status == Exit.OK
    return host


def lay_out_report(host: Host) -> None:
    store, report = host.root / "store", host.root / "report"
    store.mkdir()
    init_store(str(store))
    (report / "run").mkdir(parents=True)
    for folder in (report, report / "run"):
        for table in ("orphans", "leftovers", "usage_hosts"):
            with (folder / f"{table}.csv").open("w", newline="") as file:
                csv.writer(file).writerow(["cluster_id", "node_id", "host", "kind", "reason", "allocated", "topic"])
    (report / "run/report.json").write_text("{}")
    assert run_here("topics", "keygen", str(host.root / "key"), "--key-id", "ops").status == Exit.OK


def put_away(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Took:
    ran: Ran
    seconds: float
    """Of this process's work."""
    whole: float
    """All of them."""
    grown: int


def run_copy(host: Host, command: str) -> Took:
    words = command.format(root=host.root).split()
    arguments = words if words[0] == "topics" else host.arguments(*words)
    import_product()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            gc.freeze()  # or collecting garbage copies all that this process has
            os.close(reader)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_END)
            respect_modes()
            before, worked, began = memory("VmRSS"), time.process_time(), time.monotonic()
            ran = run_here(*arguments)
            took = time.process_time() - worked, time.monotonic() - began, memory("VmHWM") - before
            os.write(writer, json.dumps([ran.status, ran.out[-2000:], ran.err[-2000:], *took]).encode())
        except BaseException:
            os.write(2, traceback.format_exc().encode())  # what the command let through
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    assert answer, f"{command} ended without an answer"
    status, out, err, *took = json.loads(answer)
    return Took(Ran(status, out, err), *took)


def memory(which: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(which))


def respect_modes() -> None:
    """Give up the capabilities for which modes of files mean nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) == 0:
        for n in range(3):
            sets[n] &= ~_READS_ALL
        if libc.capset(header, sets) == 0:
            return
    raise OSError(ctypes.get_errno(), "capset")


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_a_sentence_and_a_status(tmp_path: Path, name: str) -> None:
    need_root()
    file = FILES[name]
    host = host_with(tmp_path, name, file)
    commands = file.commands[:_COMMANDS]
    clean = {command: run_copy(host, command) for command in commands}
    path = file.where(host)
    # SQLite makes the files beside a journal anew, but not of a journal's own remains.
    saved = {p: p.read_bytes() for p in path.parent.glob("journal.db*")} if path.parent == host.state else {}
    first = FULL or all(FILES[other].kind != file.kind for other in before(name))
    for kind, make in KINDS.items():
        if not first and kind not in _EACH:
            continue
        for beside, content in saved.items():
            beside.write_bytes(content)
        put_away(path)
        make(path)
        for command in commands:
            check_one(host, command, kind, clean[command])
        for leftover in (path, path.with_name("a-fifo"), *saved):
            put_away(leftover)
    if name.endswith("-shm"):
        # SQLite maps it, and shortening it under a command ends that with SIGBUS, as a kill would (the kill runs show
        # what that leaves). Only the owner of the state dir can.
        return
    if not first:
        return
    path.touch()
    with changing(path):
        for command in commands:
            check_one(host, command, "changing", clean[command])


def before(name: str) -> list[str]:
    """The files that stand before it in the list."""
    return list(FILES)[: list(FILES).index(name)]


def check_one(host: Host, command: str, kind: str, clean: Took) -> None:
    took = run_copy(host, command)
    ran, what = took.ran, f"{command} with {kind}: {took}, and without it {clean.seconds:.2f} of {clean.whole:.2f} s"
    assert took.grown < _BYTES, what
    assert ran.status in _STATUSES and "Traceback" not in ran.err, what
    assert ran.status == Exit.OK or ran.err.strip() or ran.out.strip(), what
    assert took.seconds < clean.seconds + _SECONDS and took.whole < clean.whole + _WAITING, what
