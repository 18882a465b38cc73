"""Every file that we did not write, replaced by what never ends, is not a file, or is far too large: a sentence and a
documented status, at once and without memory."""

from __future__ import annotations

import resource
import shutil
import time
from pathlib import Path

import pytest

from logagent.errors import Exit
from tests.cli_host import CliHost
from tests.disk.hostile_files import FILES, KINDS, Opened, changing

# Generous for two busy cores; what hung did so for good, what grew did so by gigabytes.
_SECONDS = 5.0
_BYTES = 200_000_000
_STATUSES = {int(status) for status in Exit}


def host_with(tmp_path: Path, name: str, file: Opened) -> CliHost:
    host = CliHost(tmp_path)
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
    if file.where(host).parent == host.state:
        assert host.run("cleanup", "--execute").status == Exit.OK
    return host


def put_away(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_a_sentence_and_a_status(tmp_path: Path, name: str) -> None:
    file = FILES[name]
    host = host_with(tmp_path, name, file)
    path = file.where(host)
    # SQLite makes the files beside a journal anew, but not of a journal's own remains.
    saved = {p: p.read_bytes() for p in path.parent.glob("journal.db*")} if path.parent == host.state else {}
    for kind, make in KINDS.items():
        for beside, content in saved.items():
            beside.write_bytes(content)
        put_away(path)
        make(path)
        for command in file.commands:
            check_one(host, command, kind)
        for leftover in (path, *saved):
            put_away(leftover)
    path.touch()
    with changing(path):
        for command in file.commands:
            check_one(host, command, "changing")


def check_one(host: CliHost, command: str, kind: str) -> None:
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    ran = host.run(*command.split())
    what = f"{command} with {kind}: {ran.status} {ran.err}"
    assert time.monotonic() - started < _SECONDS, what
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < _BYTES, what
    assert ran.status in _STATUSES and "Traceback" not in ran.err, what
    assert ran.status == Exit.OK or ran.err.strip() or ran.out.strip(), what
