"""How a broker was, or will be, started: its configuration and class path, read from a command line."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# The second is used by Confluent's packages up to 5.x.
MAIN_CLASSES = frozenset({"kafka.Kafka", "io.confluent.support.metrics.SupportedKafka"})
START_SCRIPTS = frozenset({"kafka-server-start.sh", "kafka-server-start"})

_CLASS_PATH = ("-cp", "-classpath", "--class-path")
_SHELLS = frozenset({"sh", "bash", "dash"})
# The prefixes that systemd permits before the path of a command.
_PREFIXES = "@-:+!|"
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True, slots=True)
class Launch:
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
    found: dict[str, str] = {}
    for n, word in enumerate(arguments):
        pair = word.removeprefix("--override=") if word.startswith("--override=") else None
        if word == "--override" and n + 1 < len(arguments):
            pair = arguments[n + 1]
        if pair is not None:
            key, _, value = pair.partition("=")
            found[key.strip()] = value.strip()
    return found


def _class_path(words: Sequence[str]) -> tuple[str, ...]:
    for n, word in enumerate(words):
        if word in _CLASS_PATH and n + 1 < len(words):
            return tuple(words[n + 1].split(":"))
        if word.startswith("--class-path="):
            return tuple(word.partition("=")[2].split(":"))
    return ()
