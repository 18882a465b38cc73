"""The exact changes that `logagent doctor` suggests: lines of logagent.toml, of units, and shell commands."""

from __future__ import annotations

import json
import re
from shlex import quote

from logagent.model.doctor.doctor_facts import ConfigLook, ServiceLook
from logagent.model.finding import Change


def unit_word(path: str) -> str:
    """`path` as one word of a unit file, where `%` starts a specifier."""
    word = path.replace("%", "%%")
    return word if re.fullmatch(r"[\w@%+=:,./-]+", word) else '"' + word.replace("\\", r"\\").replace('"', r"\"") + '"'


def toml_change(c: ConfigLook, key: str, value: str) -> Change:
    """The line of logagent.toml that sets `section.key` to `value`, replacing an existing one even if that is commented
    out."""
    section, _, name = key.partition(".")
    unit = quote(f"logagent@{c.instance}" if c.instance else "logagent")
    then = f"systemctl reload {unit}, if it runs" if section != "metrics" else f"systemctl restart {unit}, if it runs"
    # A basic string in TOML is written like one in JSON.
    line = f"{name} = {json.dumps(value)}"
    return Change(line=line, file=c.file or c.default, number=c.keys.get(key), section=section, then=then)


def unit_change(service: ServiceLook, line: str) -> Change:
    """The line for the administrator's drop-in of our unit, replacing the one there that sets it now."""
    place = service.user_place if line.startswith("User=") else None
    then = f"systemctl daemon-reload && systemctl restart {quote(service.unit)}"
    if place is not None and place.file.startswith("/etc/"):
        return Change(line=line, file=place.file, number=place.number, section="Service", then=then)
    file = f"/etc/systemd/system/{service.unit}.d/override.conf"
    return Change(line=line, file=file, section="Service", then=then)
