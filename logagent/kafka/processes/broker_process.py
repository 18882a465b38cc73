"""A broker's process: which version of Kafka it runs, from its jars; and what an operator would say of it, read with
psutil for `status` and the metrics.

No decision depends on those figures. Who holds a log dir and what is open in it is read elsewhere, in a faster way
(`disk/holders.py`).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from logagent.base.config.settings import without_secrets
from logagent.base.errors import UnreadableError
from logagent.base.files.safe_open import SCRIPT, read_regular
from logagent.base.kafka_version import apache_version

_T = TypeVar("_T")

_START_TOLERANCE_MS = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProcess:
    """One look at a process. A field is None if this user may not read it, such as the I/O counters of another user's
    process.

    start_time_ms: milliseconds since the epoch. command: its command line without the values of secrets. read_bytes,
    write_bytes: bytes read from and written to disks on its behalf since it started. open_files: descriptors in use
    (sockets too, because the limit counts them). open_files_limit: the soft limit, which is the one that takes effect;
    None also means "unlimited".
    """

    pid: int
    start_time_ms: int
    user: str
    command: tuple[str, ...]
    cpu_seconds: float | None = None
    resident_bytes: int | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None
    open_files: int | None = None
    open_files_limit: int | None = None

    @property
    def short_command(self) -> str:
        """Program, main class and arguments, without the options in between (a broker's class path alone is 10 KB)."""
        program, rest = os.path.basename(self.command[0]) if self.command else "?", self.command[1:]
        start = next((n for n, word in enumerate(rest) if word.startswith(("kafka.", "org.apache.kafka"))), None)
        return " ".join((program, *rest)) if start is None else " ".join((program, "...", *rest[start:]))


def inspect_process(pid: int, start_time_ms: int | None = None) -> BrokerProcess | None:
    """The process `pid`; None if it does not exist or (with `start_time_ms`) is a different process with the same PID.

    A process is identified by PID and start time, because PIDs are reused. Start times may differ by a second, because
    they are counted from a rounded boot time.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        started = int(process.create_time() * 1000)
        if start_time_ms is not None and abs(started - start_time_ms) > _START_TOLERANCE_MS:
            return None
        with process.oneshot():
            times, memory = process.cpu_times(), process.memory_info()
            io = _allowed(process.io_counters)
            limit = _allowed(lambda: process.rlimit(psutil.RLIMIT_NOFILE)[0])
            return BrokerProcess(
                pid=pid,
                start_time_ms=started,
                user=process.username(),
                command=tuple(without_secrets(process.cmdline())),
                cpu_seconds=times.user + times.system,
                resident_bytes=memory.rss,
                read_bytes=io.read_bytes if io is not None else None,
                write_bytes=io.write_bytes if io is not None else None,
                open_files=_descriptors(pid),
                open_files_limit=limit if limit is not None and limit >= 0 else None,
            )
    except (psutil.Error, OSError):
        return None  # it has ended, or we may not even read its name


def _allowed(read: Callable[[], _T]) -> _T | None:
    """What `read` returns; None if this user may not read it."""
    import psutil

    try:
        return read()
    except (psutil.AccessDenied, PermissionError):
        return None


def _descriptors(pid: int) -> int | None:
    """How many descriptors it has. Linux 6.2 and later report it as the size of the directory, to every user and
    without a listing."""
    path = f"/proc/{pid}/fd"
    try:
        return os.stat(path).st_size or len(os.listdir(path))
    except OSError:
        return None


# The second is used by Confluent's packages up to 5.x.
MAIN_CLASSES = frozenset({"kafka.Kafka", "io.confluent.support.metrics.SupportedKafka"})
START_SCRIPTS = frozenset({"kafka-server-start.sh", "kafka-server-start"})

_CLASS_PATH = ("-cp", "-classpath", "--class-path")
_SHELLS = frozenset({"sh", "bash", "dash"})
# The prefixes that systemd permits before the path of a command.
_PREFIXES = "@-:+!|"
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class Launch(NamedTuple):
    """A broker's command line. `config`: its server.properties as written there (may be relative to the working
    directory). `overrides`: the settings from `--override`. `class_path`: the entries, if this is a Java command line.
    `script`: the start script, if the command line calls one."""

    config: str
    overrides: Mapping[str, str]
    class_path: tuple[str, ...] = ()
    script: str | None = None


def launch_of_java(words: Sequence[str]) -> Launch | None:
    """The broker that runs with this command line (`/proc/PID/cmdline`); None if it is not a Kafka broker."""
    start = next((n for n, word in enumerate(words) if word in MAIN_CLASSES), None)
    if start is None or start == 0:
        return None
    arguments = list(words[start + 1 :])
    config = _configuration(arguments)
    return None if config is None else Launch(config, _overrides(arguments), _class_path(words[:start]))


def launch_of_process(pid: int, proc: str = "/proc") -> Launch | None:
    """The broker that the process `pid` is; None if it is none, or its command line cannot be read."""
    try:
        with open(f"{proc}/{pid}/cmdline", "rb") as file:
            line = file.read()
    except OSError:
        return None
    return launch_of_java([os.fsdecode(word) for word in line.rstrip(b"\0").split(b"\0")])


def launch_of_script(command: str, environment: Mapping[str, str]) -> Launch | None:
    """The broker that `ExecStart=command` of a unit would start; None if it does not call Kafka's start script."""
    words = _words(command, environment)
    start = next((n for n, word in enumerate(words) if os.path.basename(word) in START_SCRIPTS), None)
    if start is None:
        return None
    arguments = words[start + 1 :]
    config = _configuration(arguments)
    return None if config is None else Launch(config, _overrides(arguments), script=words[start])


def _words(command: str, environment: Mapping[str, str]) -> list[str]:
    """The words of a command line as systemd splits it; for `sh -c COMMAND`, those of COMMAND."""
    try:
        words = shlex.split(command.lstrip(_PREFIXES))
        if len(words) > 2 and os.path.basename(words[0]) in _SHELLS and "c" in words[1].lstrip("-"):
            words = shlex.split(words[2])
    except ValueError:
        return []
    return [_VARIABLE.sub(lambda m: environment.get(m[1] or m[2], m[0]), word) for word in words]


def _configuration(arguments: Sequence[str]) -> str | None:
    """The first argument that is a file. The start script has options that come before it (`-daemon`, `-name X`)."""
    skip = False
    for word in arguments:
        if skip:
            skip = False
        elif word == "-name" or word == "--override":
            skip = True
        elif not word.startswith("-"):
            return word or None
    return None


def _overrides(arguments: Sequence[str]) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for n, word in enumerate(arguments):
        pair = word.removeprefix("--override=") if word.startswith("--override=") else None
        if word == "--override" and n + 1 < len(arguments):
            pair = arguments[n + 1]
        if pair is not None:
            key, _, value = pair.partition("=")
            overrides[key.strip()] = value.strip()
    return overrides


def _class_path(words: Sequence[str]) -> tuple[str, ...]:
    for n, word in enumerate(words):
        if word in _CLASS_PATH and n + 1 < len(words):
            return tuple(words[n + 1].split(":"))
        if word.startswith("--class-path="):
            return tuple(word.partition("=")[2].split(":"))
    return ()


_JAR = re.compile(
    r"(?:^|/)kafka(?:_2\.1[0-9]|-server-common|-clients|-storage)-(\d+)\.(\d+)\.(\d+)(?:[-.][\w.]+)?\.jar$"
)

# Jars that only brokers have: the clients' jar comes with many programs.
_BROKER_JAR = re.compile(r"(?:^|/)kafka(?:_2\.1[0-9]|-server-common|-storage)-")

# Where the jars are, relative to the directory of server.properties (the last two: Confluent's archive, whose
# configuration is in etc/kafka), and relative to that of a start script (Apache's archive, Confluent's packages).
_BESIDE = ("../libs", "../../libs", "libs", "../../share/java/kafka", "../../../share/java/kafka")
_BY_SCRIPT = ("../libs", "../share/java/kafka")

# A start script in /usr/bin may just call the installation's own script.
_CALLED = re.compile(rb"(?<![\w./+-])(/[\w./+-]+/kafka-server-start(?:\.sh)?)\b")


def version_of_jars(names: Iterable[str]) -> tuple[int, int, int] | None:
    """The version that all of Kafka's own jars among `names` (paths or file names) agree on, else None. The clients'
    jar alone does not count."""
    jars = [(name, m) for name in names if (m := _JAR.search(name))]
    versions = {apache_version(int(m[1]), int(m[2]), int(m[3])) for _, m in jars}
    return next(iter(versions)) if len(versions) == 1 and any(_BROKER_JAR.search(name) for name, _ in jars) else None


def version_beside(config: str | None) -> tuple[int, int, int] | None:
    """The version of the installation that `server.properties` belongs to, judging by its path.

    A Kafka elsewhere on the host proves nothing: it may be unpacked for the next upgrade, or belong to another broker.
    """
    if config is None:
        return None
    folder = os.path.dirname(os.path.realpath(config))
    return next((v for place in _BESIDE if (v := _version_in(os.path.join(folder, place))) is not None), None)


def version_of_process(pid: int, proc: str = "/proc") -> tuple[int, int, int] | None:
    """The version of a running broker: from the jars that it has open, else (if those cannot be read) from the jars on
    its command line; None if neither shows it."""
    version = _version_of_open_files(f"{proc}/{pid}/fd")
    launch = launch_of_process(pid, proc) if version is None else None
    return version_of_class_path(launch.class_path) if launch is not None else version


def _version_of_open_files(directory: str) -> tuple[int, int, int] | None:
    names = []
    try:
        for number in os.listdir(directory):
            try:
                names.append(os.readlink(f"{directory}/{number}"))
            except OSError:
                continue
    except OSError:
        return None
    return version_of_jars(names)


def version_of_class_path(entries: Iterable[str]) -> tuple[int, int, int] | None:
    """The version of the jars on a running broker's command line (which everybody may read).

    `DIRECTORY/*` is ignored: what is there now need not be what the broker loaded.
    """
    return version_of_jars(entry for entry in entries if entry.endswith(".jar"))


def version_of_script(script: str) -> tuple[int, int, int] | None:
    """The version that a start script (`kafka-server-start.sh`) would start: that of the jars in its own installation,
    or in the one whose script it calls."""
    for path in (script, *_called_by(script)):
        folder = os.path.dirname(os.path.realpath(path))
        version = next((v for place in _BY_SCRIPT if (v := _version_in(os.path.join(folder, place))) is not None), None)
        if version is not None:
            return version
    return None


def _called_by(script: str) -> list[str]:
    try:
        text = read_regular(script, SCRIPT, follow=True)
    except (OSError, UnreadableError):
        return []
    called = {os.fsdecode(path) for path in _CALLED.findall(text)}
    return list(called) if len(called) == 1 else []


def _version_in(directory: str) -> tuple[int, int, int] | None:
    try:
        return version_of_jars(os.listdir(directory))
    except OSError:
        return None
