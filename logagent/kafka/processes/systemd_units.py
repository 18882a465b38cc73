"""systemd units: as files, as `systemctl show` reports them, and which of them start a Kafka broker.

The files are read if systemd does not run or answer, and to name the exact line that sets something.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from logagent.base.errors import LogAgentError, UnreadableError
from logagent.base.files.safe_open import UNIT, listed, read_regular
from logagent.kafka.processes.broker_process import Launch, launch_of_script

# In the order in which a unit's own file is looked for; drop-ins of all of them apply, by name.
UNIT_DIRS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
_SYSTEMCTL_SECONDS = 5.0
Content = Callable[[str], bytes]
_SPECIFIER = re.compile(r"%(.)")


class Setting(NamedTuple):
    """One `key=value` line of a unit file or drop-in."""

    value: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class UnitFile:
    """A unit according to its files. `settings`: by key, every line in the order in which systemd reads them."""

    name: str
    file: str
    settings: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)

    def last(self, key: str) -> Setting | None:
        """The line that takes effect for a key whose last line wins (`User=`)."""
        lines = self.settings.get(key, ())
        return lines[-1] if lines else None

    def listed(self, key: str) -> str:
        """The value of a key whose lines add up; an empty line resets it."""
        values: list[str] = []
        for setting in self.settings.get(key, ()):
            values = [*values, setting.value] if setting.value else []
        return " ".join(values)


@dataclass(frozen=True, slots=True)
class BrokerUnit:
    """A service that starts a Kafka broker. `enabled`: a target or another unit wants it."""

    name: str
    file: str
    launch: Launch
    user: str | None
    group: str | None
    enabled: bool


def under(root: str, path: str) -> str:
    """`path` on the host whose root directory is `root`."""
    return path if root == "/" else os.path.join(root, path.lstrip("/"))


def read_unit(name: str, root: str = "/", content: Content | None = None) -> UnitFile | None:
    """The unit `name` (for a template: `kafka@1.service`) with its drop-ins; None if there is no such file.

    `content` reads each file; what it raises is passed on. By default a file that cannot be read counts as empty.
    """
    content = content if content is not None else _content
    template = re.sub(r"@[^.]*\.", "@.", name)
    names = dict.fromkeys((name, template))
    file = next((f for n in names for d in UNIT_DIRS if os.path.isfile(f := f"{under(root, d)}/{n}")), None)
    if file is None:
        return None
    drop_ins: dict[str, str] = {}
    for place in [d for d in reversed(UNIT_DIRS) if os.path.isdir(under(root, d))]:
        for n in reversed(names):
            for drop_in in listed(f"{under(root, place)}/{n}.d"):
                if drop_in.endswith(".conf"):
                    drop_ins[drop_in] = f"{under(root, place)}/{n}.d/{drop_in}"
    settings: dict[str, list[Setting]] = {}
    specified = partial(_specified, name.partition("@")[2].removesuffix(".service"))
    for path in (file, *(drop_ins[n] for n in sorted(drop_ins))):
        for key, setting in _lines(path, content):
            value = _SPECIFIER.sub(specified, setting.value)
            settings.setdefault(key, []).append(setting._replace(value=value))
    return UnitFile(name, file, {key: tuple(lines) for key, lines in settings.items()})


def broker_units(root: str = "/", content: Content | None = None) -> list[BrokerUnit]:
    """Every service on this host that starts a Kafka broker; of a template, the enabled instances.

    `content` as for `read_unit`; a unit with a file that must not be read is left out.
    """
    content = content if content is not None else _content
    wanted = _wanted(root)
    names: dict[str, None] = {}
    for place in UNIT_DIRS:
        directory = under(root, place)
        for name in listed(directory):
            if name.endswith(".service") and _names_kafka(f"{directory}/{name}", content):
                instances = [w for w in sorted(wanted) if w.startswith(name[: -len(".service")]) and "@." in name]
                names.update(dict.fromkeys(instances or ([] if "@." in name else [name])))
    found = []
    for name in names:
        try:
            unit = read_unit(name, root, content)
            launch = _launch(unit, root, content) if unit is not None else None
        except (OSError, LogAgentError):
            continue
        if unit is not None and launch is not None:
            found.append(
                BrokerUnit(name, unit.file, launch, _value(unit, "User"), _value(unit, "Group"), name in wanted)
            )
    return found


def systemd_runs(root: str = "/") -> bool:
    """Whether systemd is the init system, as `sd_booted(3)` checks."""
    return os.path.isdir(under(root, "/run/systemd/system"))


def show_unit(name: str) -> dict[str, str] | None:
    """The settings of a unit that are in force in the running systemd (`systemctl show`); None if it does not
    answer."""
    import subprocess

    command = ["systemctl", "show", "--no-pager", name]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SYSTEMCTL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = done.stdout.decode("utf-8", "replace")
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return found if done.returncode == 0 and found else None


def _names_kafka(path: str, content: Content) -> bool:
    try:
        return b"kafka" in content(path)
    except (OSError, LogAgentError):
        return False


def _value(unit: UnitFile, key: str) -> str | None:
    line = unit.last(key)
    return line.value or None if line is not None else None


def _launch(unit: UnitFile, root: str, content: Content) -> Launch | None:
    environment = _environment(unit, root, content)
    starts = unit.settings.get("ExecStart", ())
    lines = [s.value for s in starts]
    for n in reversed(range(len(lines))):
        if not lines[n]:  # an empty one resets the list
            lines = lines[n + 1 :]
            break
    for line in lines:
        launch = launch_of_script(line, environment)
        if launch is not None:
            return launch
    return None


def _specified(instance: str, match: re.Match[str]) -> str:
    return {"i": instance, "I": instance, "%": "%"}.get(match[1], match[0])


def _environment(unit: UnitFile, root: str, content: Content) -> dict[str, str]:
    found: dict[str, str] = {}
    for setting in unit.settings.get("EnvironmentFile", ()):
        optional = setting.value.startswith("-")
        try:
            data = content(under(root, setting.value.lstrip("-")))
        except FileNotFoundError:
            if not optional:
                raise
            continue
        lines = data.decode("utf-8", "replace").splitlines()
        found.update(_assignment(line) for line in lines if "=" in line and not line.lstrip().startswith(("#", ";")))
    for setting in unit.settings.get("Environment", ()):
        words = re.findall(r'"[^"]*"|\'[^\']*\'|\S+', setting.value)
        found.update(_assignment(word.strip("\"'")) for word in words if "=" in word)
    return found


def _assignment(text: str) -> tuple[str, str]:
    key, _, value = text.strip().partition("=")
    return key.strip().removeprefix("export "), value.strip().strip("\"'")


def _wanted(root: str) -> frozenset[str]:
    """Names in every `*.wants` and `*.requires` directory: the units that are started automatically."""
    return frozenset(
        unit
        for place in UNIT_DIRS
        for name in listed(under(root, place))
        if name.endswith((".wants", ".requires"))
        for unit in listed(f"{under(root, place)}/{name}")
    )


def _lines(path: str, content: Content) -> Iterator[tuple[str, Setting]]:
    """Key and setting of every line; a backslash at its end joins it with the next one."""
    continued, first = "", 0
    for number, line in enumerate(content(path).decode("utf-8", "replace").splitlines(), 1):
        if line.lstrip().startswith(("#", ";")):
            continue
        first = first or number
        if line.endswith("\\"):
            continued += line[:-1] + " "
            continue
        text, number, continued, first = (continued + line).strip(), first, "", 0
        if "=" in text and not text.startswith("["):
            key, _, value = text.partition("=")
            yield key.strip(), Setting(value.strip(), path, number)


def _content(path: str) -> bytes:
    try:
        return read_regular(path, UNIT, follow=True)
    except (OSError, UnreadableError):
        return b""
