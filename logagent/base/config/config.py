"""Loads `logagent.toml` and the environment; no other module does.

All problems are reported together: `ConfigError.problems` lists them, each with its place.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from logagent.base.config.settings import Settings, problem_of
from logagent.base.errors import ConfigError, UnreadableError
from logagent.base.files.safe_open import CONFIG, read_regular
from logagent.base.kafka_version import parse_version

DEFAULT_CONFIG = Path("/etc/logagent/logagent.toml")
ENV_PREFIX = "LOGAGENT_"
# `logagent@NAME.service` uses the file NAME.toml in this folder, one instance for each broker on a host.
INSTANCE_DIR = DEFAULT_CONFIG.parent
_INSTANCE = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)

# tomllib takes the square of the parts of a dotted key: an hour for one of a megabyte.
_MOST_DOTS = 500

SOURCES = ("kraft-log", "admin", "file")

_NO_PRESSURE = (
    "this setting was removed: strays are kept for cleanup.stray_retention, however full the disk is; delete the line, "
    "lower stray_retention if they are kept too long, and free space with `logagent rescue` when the alert "
    "LogagentDiskFullSoonReclaimable fires"
)
_REMOVED: dict[tuple[str, ...], str] = {
    ("cleanup", "pressure"): _NO_PRESSURE,
    ("cleanup", "pressure_floor"): _NO_PRESSURE,
}
"""Settings that existed once, with what to use instead. They are errors like any unknown key."""


_OURS = re.compile(r"logagent[_.]", re.IGNORECASE)
# Variables that are no settings: a command's own, and those of the tests.
_NO_SETTINGS = re.compile(r"LOGAGENT_(ORDERS_KEY_FILE|TESTS?_\w+)")
# What Kubernetes sets in each container for every service that is called logagent or logagent-NAME: known by name and
# value, or a setting that somebody meant to make (LOGAGENT_METRICS_PORT=9640) would silently not be in effect.
_OF_A_SERVICE = re.compile(
    r"LOGAGENT_([A-Z0-9_]+_)?"
    r"(SERVICE_HOST=[0-9a-fA-F.:]+|SERVICE_PORT(_[A-Z0-9_]+)?=\d+|PORT=(tcp|udp|sctp)://\S+"
    r"|PORT_\d+_(TCP|UDP|SCTP)(=(tcp|udp|sctp)://\S+|_ADDR=[0-9a-fA-F.:]+|_PORT=\d+|_PROTO=(tcp|udp|sctp)))"
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Validated settings and where they came from (file path or None, names of environment variables); `origins`: of
    each `section.key` that is set, the variable or the file."""

    settings: Settings
    file: str | None
    environment: tuple[str, ...]
    origins: Mapping[str, str] = field(default_factory=dict)


def load(path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] = os.environ) -> Loaded:
    """Settings from `path` (default: `/etc/logagent/logagent.toml` if it exists), overridden by the environment.

    Raises ConfigError with every problem at once: unreadable or malformed TOML (with its line), unknown keys, malformed
    values, unknown `LOGAGENT_SECTION__KEY` variables.
    """
    loaded, problems = load_valid_part(path, environ)
    if problems:
        text = "; ".join(problems)
        raise ConfigError(f"the configuration is wrong: {text}", problems=tuple(problems), hint=_HINT)
    return loaded


def load_valid_part(
    path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] = os.environ
) -> tuple[Loaded, list[str]]:
    """As `load`, with defaults in place of invalid values, and the list of problems; for looking, not for acting.

    Raises ConfigError if the file is not readable TOML.
    """
    file = Path(path) if path is not None else DEFAULT_CONFIG
    raw: dict[str, Any] = {}
    used: str | None = None
    if path is not None or file.exists():
        raw = _read_toml(file)
        used = str(file)
    problems: list[str] = []
    tables = {section: table for section, table in raw.items() if isinstance(table, dict)}
    origins = {f"{section}.{key}": str(used) for section, table in tables.items() for key in table}
    names = _overlay_environment(raw, environ, problems)
    origins |= {f"{section}.{key}": variable for (section, key), variable in names.items()}
    # Without any configuration pydantic need not be imported.
    settings = _validate(raw, used, names, problems) if raw else Settings()
    return Loaded(settings, used, tuple(sorted(names.values())), origins), problems


def _read_toml(file: Path) -> dict[str, Any]:
    hint = "logagent config check --config FILE shows every problem of a file"
    cause: Exception
    try:
        text = read_regular(file, CONFIG, follow=True).decode("utf-8")
        if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
            raise ValueError(f"a line has more than {_MOST_DOTS} dots")
        return tomllib.loads(text)
    except RecursionError as e:
        problem, cause = f"{file}: it is nested too deeply", e
    except UnicodeDecodeError as e:
        problem, cause = f"{file}: byte {e.start + 1} is not UTF-8", e
    # ValueError: malformed TOML, numbers with thousands of digits.
    except (OSError, UnreadableError, ValueError) as e:
        problem = str(e) if isinstance(e, UnreadableError) else f"{file}: {getattr(e, 'strerror', None) or e}"
        cause = e
        if not isinstance(e, ValueError):
            hint = "name a file that can be read"
    raise ConfigError(f"cannot read the configuration: {problem}", problems=(problem,), hint=hint) from cause


def known_settings() -> set[tuple[str, str]]:
    """(section, key) of each setting that there is."""
    hints = get_type_hints(Settings)
    return {(s.name, k.name) for s in fields(Settings) for k in fields(hints[s.name])}


def _overlay_environment(
    raw: dict[str, Any], environ: Mapping[str, str], problems: list[str]
) -> dict[tuple[str, str], str]:
    """Put `LOGAGENT_SECTION__KEY` values into `raw`; the result maps (section, key) to the variable's name."""
    known = known_settings()
    names: dict[tuple[str, str], str] = {}
    for variable, text in environ.items():
        if _OURS.match(variable) is None or _is_no_setting(variable, text):
            continue
        section, _, key = variable.removeprefix(ENV_PREFIX).lower().partition("__")
        if not variable.startswith(ENV_PREFIX) or (section, key) not in known:
            problem = _REMOVED.get((section, key)) or _no_such_variable(variable, known)
            problems.append(f"environment variable {variable}: {problem}")
            continue
        names[section, key] = variable
        table = raw.setdefault(section, {})
        if isinstance(table, dict):
            table[key] = text
    return names


def _is_no_setting(variable: str, text: str) -> bool:
    return any(p.fullmatch(x) for p, x in ((_NO_SETTINGS, variable), (_OF_A_SERVICE, f"{variable}={text}")))


def _no_such_variable(variable: str, known: Collection[tuple[str, str]]) -> str:
    """One underscore, a dot or a small letter, and a setting would silently not be in effect."""
    names = {f"{section}_{key}": f"{ENV_PREFIX}{section}__{key}".upper() for section, key in known}
    meant = re.sub(r"[_.]+", "_", variable.lower()).removeprefix("logagent_")
    return f"there is no such setting, so it would not be in effect{_nearest(meant, names, 0.5)}"


def _no_such_key(place: tuple[str, ...]) -> str:
    """Of the file. A key without its section, or in another one, is met with the section that has it."""
    known = sorted(known_settings())
    full = {f"{section}.{key}": f"{section}.{key}" for section, key in known}
    bare = {key: name for name in full for key in name.split(".")[1:]}
    bare |= {section: f"[{section}]" for section, _ in known} if len(place) == 1 else {}
    exact = f"; did you mean {bare[place[-1]]}?" if place[-1] in bare else ""
    near = exact or _nearest(".".join(place), full, 0.8) or _nearest(place[-1], bare, 0.7)
    return f"there is no such setting{near}"


def _nearest(meant: str, names: Mapping[str, str], cutoff: float) -> str:
    import difflib

    near = difflib.get_close_matches(meant, names, n=1, cutoff=cutoff)
    return f"; did you mean {names[near[0]]}?" if near else ""


def _validate(
    raw: dict[str, Any], file: str | None, names: dict[tuple[str, str], str], problems: list[str]
) -> Settings:
    """The settings in `raw` without the invalid ones, which go to `problems`."""
    from pydantic import TypeAdapter, ValidationError

    wrong: set[tuple[str, ...]] = set()
    adapter = TypeAdapter(Settings)
    try:
        settings = adapter.validate_python(raw)
    except ValidationError as e:
        for error in e.errors():
            place = tuple(str(part) for part in error["loc"] if not str(part).startswith(("function-", "nullable")))
            wrong.add(place[:2])
            problems.append(f"{_place(file, names, place)}: {_REMOVED.get(place[:2]) or _plain(error, place)}")
        # The valid values are still cross-checked, so that all errors are reported at once.
        settings = adapter.validate_python(_without(raw, wrong))
    for keys, problem in list(_cross_checks(settings)):
        if not any(key in wrong or key[:1] in wrong for key in keys):
            problems.append(f"{_place(file, names, keys[0])}: {problem}")
            wrong.add(keys[0])
    return adapter.validate_python(_without(raw, wrong)) if wrong else settings


def _place(file: str | None, names: Mapping[tuple[str, str], str], place: tuple[str, ...]) -> str:
    """Where a value was set: the environment variable, or the key in the file."""
    variable = names.get((place[0], place[1])) if len(place) >= 2 else None
    return f"environment variable {variable}" if variable else f"{file}: {'.'.join(place)}"


def _without(raw: Mapping[str, Any], wrong: Collection[tuple[str, ...]]) -> dict[str, Any]:
    """`raw` without the places in `wrong`: (section,) or (section, key)."""
    return {
        section: {k: v for k, v in table.items() if (section, k) not in wrong} if isinstance(table, dict) else table
        for section, table in raw.items()
        if (section,) not in wrong
    }


_HINT = "the keys, their format and their defaults are in the commented config/logagent.toml (logagent config show)"


def _plain(error: Any, place: tuple[str, ...]) -> str:
    if error["type"] == "unexpected_keyword_argument":
        return _no_such_key(place)
    # Of pydantic's own: "Input should be a valid integer, unable to parse string as an integer".
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    message = message.partition(", unable to parse")[0]
    return message[:1].lower() + message[1:]


_Key = tuple[str, str]
_NO_PAUSE = "must be at least 100ms: less would be no pause"
# By duration: the least (ms), and what 0 would not mean.
_LEAST: Mapping[_Key, tuple[int, str]] = {
    ("assignments", "max_age"): (
        1000,
        "must be at least 1s: 0 is not no limit; no assignments would ever count",
    ),
    ("cleanup", "interval"): (100, _NO_PAUSE),
    ("health", "probe_interval"): (100, _NO_PAUSE),
    ("health", "probe_timeout"): (
        100,
        "must be at least 100ms: 0 is not no limit; every disk would be offline",
    ),
    ("publish", "interval"): (100, _NO_PAUSE),
    ("orders", "interval"): (100, _NO_PAUSE),
    ("orders", "silent_after"): (1000, "must be at least 1s: 0 is not never; every host would count as silent"),
}
# Where "" is a value that means something: no metrics.
_MAY_BE_EMPTY: _Key = ("metrics", "listen")


def _cross_checks(s: Settings) -> Iterator[tuple[tuple[_Key, ...], str]]:
    """Problems that involve several values: the keys concerned (the first is where to fix it), and the message."""
    sources: _Key = ("assignments", "sources")
    unknown = [source for source in s.assignments.sources if source not in SOURCES]
    if unknown:
        yield (sources,), f"{', '.join(unknown)} is not one of {', '.join(SOURCES)}"
    if "file" in s.assignments.sources and s.assignments.file is None:
        yield (sources, ("assignments", "file")), '"file" needs assignments.file'
    if s.kafka.version and parse_version(s.kafka.version) is None:
        yield (("kafka", "version"),), f"{s.kafka.version!r} is not a Kafka version such as 3.9.1"
    if 0 < s.delete.bytes_per_second < 1024:
        yield (("delete", "bytes_per_second"),), "less than 1KiB would never finish; 0 is no limit"
    problem = problem_of(s.publish.store) if s.publish.store else None
    if problem is not None:
        yield (("publish", "store"),), problem
    for place, (least_ms, why) in _LEAST.items():
        value = getattr(getattr(s, place[0]), place[1])
        if value is not None and value < least_ms:
            yield (place,), why
    for section, keys in as_document(s).items():
        for key, value in keys.items():
            if isinstance(value, str) and not value.strip() and (section, key) != _MAY_BE_EMPTY:
                yield ((section, key),), "it is empty: leave it out to have the default"
    for directory in s.cleanup.quarantine_dirs:
        if directory[:1] != "/":
            yield (("cleanup", "quarantine_dirs"),), f"{directory} is not an absolute path"
    if s.metrics.listen and not _is_address(s.metrics.listen):
        yield (("metrics", "listen"),), f"{s.metrics.listen!r} is not HOST:PORT"


def _is_address(listen: str) -> bool:
    host, _, port = listen.rpartition(":")
    return bool(host) and port.isascii() and port.isdecimal() and int(port) <= 65535


def instance_of(path: str | os.PathLike[str] | None) -> str | None:
    """NAME of `/etc/logagent/NAME.toml`, an instance with its own state dir; None for any other file."""
    if path is None:
        return None
    file = Path(os.path.abspath(path))
    if file.parent != INSTANCE_DIR or file.suffix != ".toml" or file.name == DEFAULT_CONFIG.name:
        return None
    return file.stem if _INSTANCE.fullmatch(file.stem) else None


def key_lines(path: str | os.PathLike[str]) -> dict[str, int]:
    """The line of each `section.key` in a TOML file: where it is set, else where it is commented out."""
    found: dict[str, int] = {}
    commented: dict[str, int] = {}
    section = ""
    try:
        lines = read_regular(path, CONFIG, follow=True).decode("utf-8", "replace").splitlines()
    except (OSError, UnreadableError):
        return {}
    for number, line in enumerate(lines, 1):
        if header := re.match(r"\s*\[\s*(\w+)\s*\]", line):
            section = header[1]
        elif key := re.match(r"\s*(#?)\s*(\w+)\s*=", line):
            (commented if key[1] else found).setdefault(f"{section}.{key[2]}", number)
    return commented | found


def as_document(settings: Settings) -> dict[str, dict[str, Any]]:
    """Section → key → effective value (durations in ms, sizes in bytes), for `logagent config show`."""
    return {
        s.name: {k.name: _json_value(getattr(section, k.name)) for k in fields(section)}
        for s in fields(settings)
        if is_dataclass(section := getattr(settings, s.name))
    }


def _json_value(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
