"""What `logagent setup` writes: the drop-in of logagent.service (which user it runs as, and the only places it may
write to), the broker's name in `logagent.toml`, and the drop-in of the broker's own unit. Pure decisions.

ReadWritePaths= names the mount point, not the log dir below it: systemd would bind-mount the log dir into the service's
own namespace, where it stays writable after the host has unmounted the disk and keeps the device busy. The `-` prefix,
and After= instead of RequiresMountsFor=, because a missing or dying disk must neither prevent the service from starting
nor stop it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

NAME = "50-logagent-setup.conf"
PRESTART_NAME = "50-logagent-prestart.conf"
CONFIG_VARIABLE = "LOGAGENT_KAFKA__CONFIG"
# These and everything below are never opened for writing, whatever server.properties says.
SYSTEM_PATHS = (
    "/bin", "/boot", "/dev", "/efi", "/etc", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/usr",
)  # fmt: skip
# These are shared by many programs: a directory below one is fine, the directory itself is not.
SHARED_PATHS = ("/", "/home", "/media", "/mnt", "/opt", "/srv", "/tmp", "/var", "/var/lib", "/var/log", "/var/tmp")
_TMP = ("/tmp/", "/var/tmp/")


@dataclass(frozen=True, slots=True, kw_only=True)
class DropInFacts:
    """The drop-in of `logagent setup`. state: "missing" (the unit does not start without it), "differs" (setup would
    write another one now), or "refused" (setup would not write it; see `why`). command: the command that writes it."""

    place: str
    state: Literal["fits", "missing", "differs", "refused"]
    command: str
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupFacts:
    """What a drop-in is made from.

    command: the command that writes it again. config: the server.properties. user, group: names or numbers, never
    root's. paths: every directory to be written to, absolute, without symlinks. mounts: every mount point of the host,
    now or at boot.
    """

    command: str
    config: str
    user: str
    group: str
    paths: tuple[str, ...]
    mounts: tuple[str, ...]


def drop_in(facts: SetupFacts) -> str:
    """The text of the drop-in. Every path in `facts` must be `allowed`."""
    points = dict.fromkeys(p for path in facts.paths if (p := mount_point(path, facts.mounts)) is not None)
    lines = [
        f"# Written by `{facts.command}`, from {quoted(facts.config)}.",
        "# Run it again when log.dirs, the broker's user or kafka.config has changed.",
        "# What you add belongs in another drop-in.",
        "[Unit]",
        *(f"After={unit_of_mount(point)}" for point in points),
        "",
        "[Service]",
        f"User={facts.user}",
        f"Group={facts.group}",
    ]
    opened = dict.fromkeys(writable(path, facts.mounts) for path in facts.paths)
    lines += [f"ReadWritePaths={quoted(f'-{path}')}" for path in opened]
    if any(path.startswith(_TMP) for path in facts.paths):
        lines.append("PrivateTmp=no")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrestartFacts:
    """What the drop-in of the broker's unit is made from.

    command: the command that writes it again. program: the path of logagent. config: the server.properties that the
    unit's broker starts with. instance: the configuration file of the instance, None for the only one. state_dir: of
    the service. strict: the unit may write only where it says so (`ProtectSystem=strict`).
    """

    command: str
    program: str
    config: str
    instance: str | None
    state_dir: str
    strict: bool


def prestart_drop_in(facts: PrestartFacts) -> str:
    """The text of the drop-in that runs `logagent prestart` before each start of the broker.

    The "-": whatever it finds, and even if logagent is gone, the broker starts.
    """
    own = (
        ""
        if facts.instance is None
        else f"--config {_argument(facts.instance)} --state-dir {_argument(facts.state_dir)} "
    )
    lines = [
        f"# Written by `{facts.command}`, from {quoted(facts.config)}.",
        "# logagent prestart renames what is due, within its budget; the broker starts afterwards, whatever it finds.",
        "[Service]",
        f"ExecStartPre=-{facts.program} prestart {own}--kafka-config {_argument(facts.config)}",
    ]
    if facts.strict:  # elsewhere it would put the broker into a mount namespace of its own
        lines.append(f"ReadWritePaths={quoted(f'-{facts.state_dir}')}")
    return "\n".join(lines) + "\n"


_KAFKA = re.compile(r"^[ \t]*\[[ \t]*kafka[ \t]*\][^\n]*\n?", re.MULTILINE)
_EXAMPLE = re.compile(r"^#[ \t]*config[ \t]*=[^\n]*$", re.MULTILINE)


def naming(text: str, config: str) -> str:
    """The `logagent.toml` with this `text`, which does not set `kafka.config`, once it does. In place of the commented
    line, if there is one. Raises ValueError if that cannot be done without changing anything else."""
    line = f"config = {json.dumps(config, ensure_ascii=False)}"
    section = _KAFKA.search(text)
    if section is None:
        made = f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}\n[kafka]\n{line}\n".lstrip("\n")
    else:
        end = next((m.start() for m in re.finditer(r"^[ \t]*\[", text[section.end() :], re.MULTILINE)), len(text))
        example = _EXAMPLE.search(text, section.end(), section.end() + end)
        if example is not None:
            made = text[: example.start()] + line + text[example.end() :]
        else:
            made = f"{text[: section.end()].rstrip(chr(10))}\n{line}\n{text[section.end() :]}"
    before, after = tomllib.loads(text), tomllib.loads(made)
    if after != {**before, "kafka": {**before.get("kafka", {}), "config": config}}:
        raise ValueError("it would change something else")
    return made


def allowed(path: str) -> bool:
    """Whether `path` may be opened for writing: absolute, plain, neither a system path nor a shared one."""
    if not path.startswith("/") or ".." in path.split("/") or has_control(path):
        return False
    path = "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
    return path not in SHARED_PATHS and not any(path == s or path.startswith(f"{s}/") for s in SYSTEM_PATHS)


def has_control(text: str) -> bool:
    """Whether anything in `text` could end a line of a unit file, or is not valid text.

    systemd also ends lines at CR and NUL, and expects UTF-8.
    """
    return not text.isprintable() or any("\ud800" <= c <= "\udfff" for c in text)


def mount_point(path: str, mounts: Sequence[str]) -> str | None:
    """The mount point of `path`, None for the root file system."""
    above = [m for m in mounts if m != "/" and (path == m or path.startswith(f"{m.rstrip('/')}/"))]
    return max(above, key=len, default=None)


def writable(path: str, mounts: Sequence[str]) -> str:
    """What to open for `path`: its mount point, unless others use that too."""
    point = mount_point(path, mounts)
    return point if point is not None and allowed(point) else path


def unit_of_mount(path: str) -> str:
    """The name of the mount unit for `path`, as printed by `systemd-escape --path --suffix=mount`."""
    escaped = ""
    for i, byte in enumerate(path.strip("/").encode("utf-8", "surrogateescape")):
        character = chr(byte)
        if character == "/":
            escaped += "-"
        elif (character.isascii() and character.isalnum()) or character in ":_" or (character == "." and i > 0):
            escaped += character
        else:
            escaped += f"\\x{byte:02x}"
    return f"{escaped}.mount"


def quoted(path: str) -> str:
    """`path` (or `NAME=path`) as one word of a unit file, where `%` starts a specifier and whitespace ends a word."""
    word = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{word}"'


def _argument(word: str) -> str:
    """`word` as one argument of an Exec line, where `$` is a variable, too."""
    return quoted(word).replace("$", "$$")
