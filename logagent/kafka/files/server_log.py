"""The end of a broker's own log (`server.log`): what it could not mark for deletion since its last start."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from logagent.base.dir_names import MAX_NAME
from logagent.base.errors import UnreadableError
from logagent.base.files.safe_open import FileLimit, open_regular
from logagent.base.records import DirKey

_TAIL = 4 << 20
_SERVER_LOG = FileLimit("a broker's log", 1 << 40)
_STARTS = re.compile(rb"\bstarting \(kafka\.server\.KafkaServer\)")
# The reason is in the words of the host's language; the length of the name is the same in all of them.
_RENAME = re.compile(rb"FileSystemException: (/[^\n]+) -> (/[^\n]+\.[0-9a-f]{32}-delete): ")
# Where a broker logs to by default, relative to the directory of server.properties (Apache's archive) and of the start
# script; the last one is that of packages.
_BESIDE_CONFIG = ("../logs", "../../logs")
_BY_SCRIPT = ("../logs",)
_PACKAGED = "/var/log/kafka"
_LOGS_DIR = b"-Dkafka.logs.dir="


def log_places(config: str | None, scripts: Iterable[str], pid: int | None, proc: str = "/proc") -> list[str]:
    """Where the log of this broker may be: what its running process says, or else the usual places."""
    if pid is not None and (logs_dir := _of_process(pid, proc)) is not None:
        return [f"{logs_dir}/server.log"]
    dirs = [os.path.join(os.path.dirname(os.path.realpath(script)), p) for script in scripts for p in _BY_SCRIPT]
    if config is not None:
        dirs += [os.path.join(os.path.dirname(os.path.realpath(config)), p) for p in _BESIDE_CONFIG]
    return list(dict.fromkeys(f"{os.path.normpath(d)}/server.log" for d in (*dirs, _PACKAGED)))


def _of_process(pid: int, proc: str) -> str | None:
    try:
        with open(f"{proc}/{pid}/cmdline", "rb") as file:
            words = file.read(1 << 20).split(b"\0")
    except OSError:
        return None
    return next((os.fsdecode(w[len(_LOGS_DIR) :]) for w in words if w.startswith(_LOGS_DIR + b"/")), None)


def failed_marks(paths: Iterable[str], log_dirs: Iterable[str]) -> dict[DirKey, str]:
    """The directories of `log_dirs` that could not be marked since the last start, with the log that says so. A log
    that cannot be read says nothing. `log_dirs`: as configured, and with links resolved."""
    wanted = frozenset(log_dirs)
    return {key: path for path in paths for key in _failed_in(path) if key.log_dir in wanted}


def _failed_in(path: str) -> Iterator[DirKey]:
    try:
        fd = open_regular(path, _SERVER_LOG, follow=True)
    except (OSError, UnreadableError):
        return
    try:
        size = os.fstat(fd).st_size
        text = os.pread(fd, _TAIL, max(0, size - _TAIL))
    except OSError:
        return
    finally:
        os.close(fd)
    start = max((match.end() for match in _STARTS.finditer(text)), default=0)
    for match in _RENAME.finditer(text, start):
        log_dir, _, name = os.fsdecode(match[1]).rpartition("/")
        if len(os.path.basename(match[2])) > MAX_NAME:
            yield DirKey(log_dir, name)
