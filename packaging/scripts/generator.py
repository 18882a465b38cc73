"""systemd generator: opens to logagent.service exactly the log dirs that the broker's `server.properties` names.

systemd runs it at boot and at every `daemon-reload`, with three directories; it writes into the first:

    logagent.service.d/00-log-dirs.conf     ReadWritePaths=-…, After=….mount, User= and Group=

and the same for `logagent@NAME.service` and every `/etc/logagent/NAME.toml`. At boot no disk is mounted yet and no
broker runs, so mount points also come from /etc/fstab and mount units, and the user from the broker's own unit.

The mount point is opened, not the log dir below it: systemd would bind the log dir into the service's own namespace,
where it stays writable after the host unmounted the disk and keeps the device busy. `-`, and After= in place of
RequiresMountsFor=: a missing or dying disk must neither keep the service from starting nor stop it.

A drop-in of the administrator in /etc has the last word, as always. What cannot be found out is left to the unit file;
the service itself then says what is wrong (`logagent doctor`).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

# The folder of this file: with -I, Python leaves it out.
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from start import prepare

prepare()

from logagent.agent.session.target import resolve_target  # noqa: E402
from logagent.config import find_server_properties, load  # noqa: E402
from logagent.errors import LogAgentError  # noqa: E402
from logagent.host.brokers.discovery import find_brokers  # noqa: E402
from logagent.settings import Settings  # noqa: E402

# Nothing here, nor below, is ever opened for writing, whatever server.properties says.
SYSTEM_PATHS = (
    "/bin",
    "/boot",
    "/dev",
    "/efi",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
)
# These hold more than one program's things: a directory below is fine, the directory itself is not.
SHARED_PATHS = ("/", "/home", "/media", "/mnt", "/opt", "/srv", "/tmp", "/var", "/var/lib", "/var/log", "/var/tmp")
UNIT_FOLDERS = ("etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system",
                "lib/systemd/system")  # fmt: skip


def allowed(path: str) -> bool:
    """Whether `path` may be opened: absolute, plain, no place of the system's and none that many share."""
    if not path.startswith("/") or ".." in path.split("/") or any(ord(c) < 32 or ord(c) == 127 for c in path):
        return False
    path = os.path.normpath(path)
    return path not in SHARED_PATHS and not any(path == s or path.startswith(f"{s}/") for s in SYSTEM_PATHS)


def mount_point(path: str, mounts: Sequence[str]) -> str | None:
    """The mount point that `path` lies on, None for the root file system."""
    above = [m for m in mounts if m != "/" and (path == m or path.startswith(f"{m.rstrip('/')}/"))]
    return max(above, key=len, default=None)


def writable(path: str, mounts: Sequence[str]) -> str:
    """What to open for `path`: its mount point, unless that belongs to others too."""
    point = mount_point(path, mounts)
    return point if point is not None and allowed(point) else path


def mounts_of(root: Path) -> list[str]:
    """Every mount point that is, or that fstab and mount units say will be."""
    found = [_unescaped(line.split()[4]) for line in _lines(root / "proc/self/mountinfo") if len(line.split()) > 4]
    for line in _lines(root / "etc/fstab"):
        fields = line.split()
        if len(fields) > 2 and not line.lstrip().startswith("#"):
            found.append(_unescaped(fields[1]))
    for folder in UNIT_FOLDERS:
        for unit in sorted((root / folder).glob("*.mount")):
            found += [line.partition("=")[2].strip() for line in _lines(unit) if line.startswith("Where=")]
    return [os.path.normpath(m) for m in found if m.startswith("/")]


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def unit_of_mount(path: str) -> str:
    """The name of the mount unit of `path`, as `systemd-escape --path --suffix=mount` says it."""
    escaped = ""
    for i, byte in enumerate(os.fsencode(path.strip("/"))):
        character = chr(byte)
        if character == "/":
            escaped += "-"
        elif (character.isascii() and character.isalnum()) or character in ":_" or (character == "." and i > 0):
            escaped += character
        else:
            escaped += f"\\x{byte:02x}"
    return f"{escaped}.mount"


def quoted(path: str) -> str:
    """`path` as a word of a unit file: `%` starts a specifier there, and white space ends a word."""
    word = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"-{word}"'


def broker_user(root: Path, config: str, log_dirs: Sequence[str], state_dir: str) -> str | None:
    """The name of the user that the broker runs as; None where nothing tells, and for root.

    In this order: the running broker with this configuration, the unit that starts it, the owner of a log dir, the
    owner of our state dir (whom we ran as before).
    """
    brokers = [b for b in find_brokers(str(root)) if os.path.realpath(b.config) == os.path.realpath(config)]
    for uid in (b.user for b in brokers if b.user is not None):
        return _name(uid)
    for unit in (b.unit for b in brokers if b.unit is not None):
        return _known(unit.user)
    for place in (*log_dirs, state_dir):
        with contextlib.suppress(OSError):
            uid = os.stat(root / place.lstrip("/")).st_uid
            if uid != 0:
                return _name(uid)
    return None


def _known(user: str | None) -> str | None:
    """The name of the user that a unit says, by name or number."""
    if user is None:
        return None
    with contextlib.suppress(KeyError):
        return _name(int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid)
    return None


def _name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name if uid != 0 else None
    except KeyError:
        return None


def drop_in(root: Path, config_file: Path, state_dir: str) -> str:
    """The drop-in for one service. Raises LogAgentError where the configuration says nothing usable."""
    settings = load(config_file, environ={}).settings if config_file.exists() else Settings()
    config = find_server_properties(settings.kafka.config, str(root))
    target = resolve_target(replace(settings, kafka=replace(settings.kafka, config=config)))
    wanted = [*target.log_dirs, *settings.cleanup.quarantine_dirs]
    if settings.metrics.textfile is not None:
        wanted.append(os.path.dirname(settings.metrics.textfile))
    if settings.publish.store is not None:
        wanted.append(settings.publish.store)
    # Where a path leads is what is opened: its symlinks must not lead to what may not be opened.
    paths = [os.path.realpath(p) for p in wanted if allowed(p) and allowed(os.path.realpath(p))]
    mounts = mounts_of(root)
    points = dict.fromkeys(filter(None, (mount_point(p, mounts) for p in paths)))
    lines = [f"# By logagent-generator, from {config}".replace("\n", " "), "[Unit]"]
    lines += [f"After={unit_of_mount(point)}" for point in points]
    lines += ["", "[Service]"]
    lines += [f"ReadWritePaths={quoted(p)}" for p in dict.fromkeys(writable(p, mounts) for p in paths)]
    if any(p.startswith(("/tmp/", "/var/tmp/")) for p in paths):
        lines.append("PrivateTmp=no")
    user = broker_user(root, config, target.log_dirs, state_dir)
    if user is not None:
        lines += [f"User={user}", f"Group={_group(user)}"]
    return "\n".join(lines) + "\n"


def _group(user: str) -> int:
    return pwd.getpwnam(user).pw_gid


def services(root: Path) -> dict[str, tuple[Path, str]]:
    """Every service and its configuration file and state dir."""
    found = {"logagent.service": (root / "etc/logagent/logagent.toml", "/var/lib/logagent")}
    for file in sorted((root / "etc/logagent").glob("*.toml")):
        if file.stem != "logagent" and re.fullmatch(r"[A-Za-z0-9_.-]+", file.stem):
            found[f"logagent@{file.stem}.service"] = (file, f"/var/lib/logagent-{file.stem}")
    return found


def main(arguments: Sequence[str], root: Path = Path("/")) -> int:
    """Write the drop-ins; with `--user`, print the user that logagent.service would run as."""
    status = 0
    for service, (config_file, state_dir) in services(root).items():
        try:
            text = drop_in(root, config_file, state_dir)
        except LogAgentError as e:
            # Nothing is opened then. Not an error of the boot: a host may get its broker later.
            print(f"logagent-generator: {service}: {e}", file=sys.stderr)
            continue
        if arguments[:1] == ["--user"]:
            if service == "logagent.service":
                print(next((line[5:] for line in text.splitlines() if line.startswith("User=")), ""))
            continue
        place = Path(arguments[0]) / f"{service}.d"
        try:
            place.mkdir(parents=True, exist_ok=True)
            (place / "00-log-dirs.conf").write_text(text, encoding="utf-8", errors="surrogateescape")
        except OSError as e:
            print(f"logagent-generator: {place}: {e.strerror}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["--user"]))
