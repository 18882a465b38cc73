"""A private host with a real broker's disk on it, for `doctor`: `/etc/kafka`, `/srv/kafka`, a unit, a user `kafka`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.host_files import toml
from tests.kafka_disks import extract
from tests.private_host import KAFKA_UID, PrivateHost, private_host

PROPERTIES = "/etc/kafka/server.properties"
TOML = "/etc/logagent/logagent.toml"
STATE = "/var/lib/logagent"
DISK = "/srv/kafka"
D1, D2 = f"{DISK}/d1", f"{DISK}/d2"
UNIT = """[Unit]
Description=Log directory deletion agent for Apache Kafka
[Service]
User=kafka
Group=kafka
ExecStart=/usr/bin/logagent run
StateDirectory=logagent
ProtectSystem=strict
ReadWritePaths=-/srv/kafka
"""


@dataclass(frozen=True)
class Diagnosis:
    """What doctor said: exit status, the whole document, its findings by code."""

    status: int
    document: dict[str, Any]

    @property
    def findings(self) -> list[dict[str, Any]]:
        return list(self.document["findings"])

    def codes(self, *states: str) -> set[str]:
        """Codes of the findings in these states (default: what fails)."""
        return {f["code"] for f in self.findings if f["state"] in (states or ("fails",))}

    def of(self, code: str) -> dict[str, Any]:
        """The only finding with this code."""
        (finding,) = (f for f in self.findings if f["code"] == code)
        return finding

    def change(self, code: str) -> dict[str, Any]:
        change = self.of(code)["change"]
        assert isinstance(change, dict), self.of(code)
        return change


class DoctorHost(PrivateHost):
    """Everything is as it should be, until a test changes it."""

    def lay_out(self, disk: str = "3.9.1/node3-dir-returned") -> None:
        where = self.path(DISK)
        where.mkdir(parents=True)
        extract(disk, where)
        text = (where / "server.properties").read_text(encoding="latin-1").replace("@ROOT@", DISK)
        (where / "server.properties").unlink()
        self.write(PROPERTIES, text)
        self.own(DISK)
        self.path(STATE).mkdir(parents=True)
        self.own(STATE)
        self.configure()
        self.write("/usr/lib/systemd/system/logagent.service", UNIT)

    def own(self, path: str, uid: int = KAFKA_UID) -> None:
        """Give a tree to a user."""
        for folder, names, files in os.walk(self.path(path)):
            for name in (*names, *files, "."):
                os.chown(os.path.join(folder, name), uid, uid, follow_symlinks=False)

    def configure(self, file: str = TOML, **settings: object) -> None:
        """Write a configuration: `section__key` to value."""
        wanted: dict[str, object] = {"kafka__config": PROPERTIES, "kafka__version": "3.9.1", **settings}
        known = {key.replace("__", ".", 1): value for key, value in wanted.items() if value is not None}
        self.write(file, toml(known))

    def diagnose(self, *words: str, user: str | None = None) -> Diagnosis:
        """As where systemd booted the host, though it does not answer."""
        booted = self.path("/run/systemd/system")
        booted.mkdir(parents=True, exist_ok=True)
        try:
            return Diagnosis(*self.doctor(*words, user=user))
        finally:
            booted.rmdir()


@contextmanager
def doctor_host(scratch: Path, disk: str = "3.9.1/node3-dir-returned") -> Iterator[DoctorHost]:
    with private_host(scratch, DoctorHost) as host:
        host.lay_out(disk)
        yield host
