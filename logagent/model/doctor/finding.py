"""One finding of `logagent doctor`, and the line that mends it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum

from logagent.model.doctor.facts import ConfigLook, ServiceLook


class State(StrEnum):
    """WORKS and INFO need nothing. WARNING: it works, with less than it could. FAILS: something that is needed does not
    work."""

    WORKS = "works"
    INFO = "info"
    WARNING = "warning"
    FAILS = "fails"


class Area(StrEnum):
    CONFIGURATION = "configuration"
    BROKER = "broker"
    RIGHTS = "rights"
    LOG_DIRS = "log dirs"
    FILES = "files"
    SERVICE = "service"
    DAEMON = "daemon"
    STATE_DIR = "state dir"
    ASSIGNMENTS = "assignments"
    METRICS = "metrics"
    INSTANCES = "instances"


@dataclass(frozen=True, slots=True)
class Change:
    """The exact line (or lines): `line` goes into `file`, in place of line `number` where that is known, below
    `section`. Without a file it is a command for root. then: what makes it effective."""

    line: str
    file: str | None = None
    number: int | None = None
    section: str | None = None
    then: str | None = None

    @property
    def where(self) -> str:
        """`FILE:NUMBER, [section]`, or how to run it."""
        if self.file is None:
            return "as root"
        place = self.file if self.number is None else f"{self.file}:{self.number}"
        return place if self.section is None else f"{place}, [{self.section}]"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that was looked at. path: what it is about. hint: what can be done, empty where nothing need be."""

    area: Area
    state: State
    code: str
    path: str
    says: str
    hint: str = ""
    change: Change | None = None


def works(area: Area, code: str, path: str, says: str) -> DoctorFinding:
    return DoctorFinding(area, State.WORKS, code, path, says)


def info(area: Area, code: str, path: str, says: str, hint: str, change: Change | None = None) -> DoctorFinding:
    return DoctorFinding(area, State.INFO, code, path, says, hint, change)


def warning(area: Area, code: str, path: str, says: str, hint: str, change: Change | None = None) -> DoctorFinding:
    return DoctorFinding(area, State.WARNING, code, path, says, hint, change)


def fails(area: Area, code: str, path: str, says: str, hint: str, change: Change | None = None) -> DoctorFinding:
    return DoctorFinding(area, State.FAILS, code, path, says, hint, change)


def shell_word(text: str) -> str:
    """`text` as one word of a shell's command line."""
    return text if re.fullmatch(r"[\w@%+=:,./-]+", text, re.ASCII) else "'" + text.replace("'", "'\"'\"'") + "'"


def unit_word(path: str) -> str:
    """`path` as one word of a unit file, where `%` begins a specifier."""
    word = path.replace("%", "%%")
    return word if re.fullmatch(r"[\w@%+=:,./-]+", word) else '"' + word.replace("\\", r"\\").replace('"', r"\"") + '"'


def toml_change(c: ConfigLook, key: str, value: str) -> Change:
    """The line of logagent.toml that sets `section.key` to `value`: in place of the one that is there, commented out or
    not."""
    section, _, name = key.partition(".")
    unit = f"logagent@{c.instance}" if c.instance else "logagent"
    then = f"systemctl reload {unit}, if it runs" if section != "metrics" else f"systemctl restart {unit}, if it runs"
    # A basic string of TOML is written like one of JSON.
    line = f"{name} = {json.dumps(value)}"
    return Change(line=line, file=c.file or c.default, number=c.keys.get(key), section=section, then=then)


def unit_change(service: ServiceLook, line: str) -> Change:
    """The line for the administrator's own drop-in of our unit, or in place of the one there that sets it now."""
    place = service.user_place if line.startswith("User=") else None
    then = f"systemctl daemon-reload && systemctl restart {service.unit}"
    if place is not None and place.file.startswith("/etc/"):
        return Change(line=line, file=place.file, number=place.number, section="Service", then=then)
    file = f"/etc/systemd/system/{service.unit}.d/override.conf"
    return Change(line=line, file=file, section="Service", then=then)
