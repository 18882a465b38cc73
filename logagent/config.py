"""Loads `logagent.toml`, the environment and the broker's `server.properties`: the one place that does.

Every problem is found before anything is said: `ConfigError.problems` lists them all, each with its place.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from logagent.errors import ConfigError
from logagent.settings import Settings

DEFAULT_CONFIG = Path("/etc/logagent/logagent.toml")
ENV_PREFIX = "LOGAGENT_"

# Where distributions, Confluent's packages and people who unpack a tarball keep server.properties.
USUAL_SERVER_PROPERTIES = (
    "/etc/kafka/server.properties",
    "/etc/kafka/kraft/server.properties",
    "/etc/kafka/kraft/broker.properties",
    "/etc/kafka/broker.properties",
    "/opt/kafka/config/server.properties",
    "/opt/kafka/config/kraft/server.properties",
    "/opt/kafka/config/broker.properties",
    "/usr/local/kafka/config/server.properties",
    "/usr/share/kafka/config/server.properties",
)

SOURCES = ("kraft-log", "admin", "file")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Validated settings and where each came from (file path or None, names of environment variables)."""

    settings: Settings
    file: str | None
    environment: tuple[str, ...]


def load(path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] = os.environ) -> Loaded:
    """Settings from `path` (default: `/etc/logagent/logagent.toml` if it is there) and the environment over it.

    Raises ConfigError with every problem at once: unreadable or malformed TOML (with its line), unknown keys,
    values of the wrong form, unknown `LOGAGENT_SECTION__KEY` variables.
    """
    file = Path(path) if path is not None else DEFAULT_CONFIG
    raw: dict[str, Any] = {}
    used: str | None = None
    if path is not None or file.exists():
        raw = _read_toml(file)
        used = str(file)
    problems: list[str] = []
    names = _overlay_environment(raw, environ, problems)
    if not raw and not problems:
        return Loaded(Settings(), used, ())
    settings = _validate(raw, used, names, problems)
    return Loaded(settings, used, tuple(sorted(names.values())))


def _read_toml(file: Path) -> dict[str, Any]:
    hint = "logagent config check --config FILE shows every problem of a file"
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as e:
        problem = f"{file}: {e.strerror}"
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        problem = f"{file}: {e}"
    raise ConfigError(f"cannot read the configuration: {problem}", problems=(problem,), hint=hint)


def _overlay_environment(
    raw: dict[str, Any], environ: Mapping[str, str], problems: list[str]
) -> dict[tuple[str, str], str]:
    """Put `LOGAGENT_SECTION__KEY` values into `raw`; the result maps (section, key) to the variable's name."""
    hints = get_type_hints(Settings)
    known = {(s.name, k.name) for s in fields(Settings) for k in fields(hints[s.name])}
    names: dict[tuple[str, str], str] = {}
    for variable, text in environ.items():
        if not variable.startswith(ENV_PREFIX) or "__" not in variable:
            continue
        section, _, key = variable.removeprefix(ENV_PREFIX).lower().partition("__")
        if (section, key) not in known:
            problems.append(f"environment variable {variable}: there is no setting {section}.{key}")
            continue
        names[section, key] = variable
        table = raw.setdefault(section, {})
        if isinstance(table, dict):
            table[key] = text
    return names


def _validate(
    raw: dict[str, Any], file: str | None, names: dict[tuple[str, str], str], problems: list[str]
) -> Settings:
    from pydantic import TypeAdapter, ValidationError

    settings: Settings | None = None
    try:
        settings = TypeAdapter(Settings).validate_python(raw)
    except ValidationError as e:
        for error in e.errors():
            place = tuple(str(part) for part in error["loc"] if not str(part).startswith(("function-", "nullable")))
            where = names.get(place[:2]) if len(place) >= 2 else None  # type: ignore[arg-type]
            prefix = f"environment variable {where}" if where else f"{file}: {'.'.join(place)}"
            problems.append(f"{prefix}: {_plain(error)}")
    if settings is not None:
        problems += [f"{file or 'environment'}: {problem}" for problem in _cross_checks(settings)]
    if problems or settings is None:
        text = "; ".join(problems)
        raise ConfigError(f"the configuration is wrong: {text}", problems=tuple(problems), hint=_HINT)
    return settings


_HINT = "the keys, their form and their defaults stand in the commented config/logagent.toml (logagent config show)"


def _plain(error: Any) -> str:
    if error["type"] == "unexpected_keyword_argument":
        return "there is no such setting"
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _cross_checks(s: Settings) -> list[str]:
    found = []
    unknown = [source for source in s.assignments.sources if source not in SOURCES]
    if unknown:
        found.append(f"assignments.sources: {', '.join(unknown)} is none of {', '.join(SOURCES)}")
    if "file" in s.assignments.sources and s.assignments.file is None:
        found.append('assignments.sources: "file" needs assignments.file')
    if s.delete.bytes_per_second is not None and s.delete.bytes_per_second < 1024:
        found.append("delete.bytes_per_second: less than 1KiB would never finish")
    if s.publish.store is not None and "://" in s.publish.store:
        found.append("publish.store: must be a mounted path; the fleet job reads URIs, the agent does not write them")
    found += [f"cleanup.quarantine_dirs: {d} is no absolute path" for d in s.cleanup.quarantine_dirs if d[:1] != "/"]
    if s.metrics.listen:
        found += _listen_problems(s.metrics.listen)
    return found


def _listen_problems(listen: str) -> list[str]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        return [f"metrics.listen: {listen!r} is no HOST:PORT"]
    return []


def as_document(settings: Settings) -> dict[str, dict[str, Any]]:
    """Section → key → effective value (durations in ms, sizes in bytes), for `logagent config show`."""
    return {
        s.name: {k.name: _json_value(getattr(section, k.name)) for k in fields(section)}
        for s in fields(settings)
        if is_dataclass(section := getattr(settings, s.name))
    }


def _json_value(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def find_server_properties(configured: str | None, root: str = "/") -> str:
    """The broker's `server.properties`: the configured one, else the only usual place that exists.

    Raises ConfigError where none or more than one is found: guessing between two brokers is not ours to do.
    """
    if configured is not None:
        return configured
    found: list[str] = []
    for place in USUAL_SERVER_PROPERTIES:
        candidate = os.path.join(root, place.lstrip("/"))
        if os.path.isfile(candidate) and not any(os.path.samefile(candidate, other) for other in found):
            found.append(candidate)
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            f"several broker configurations were found: {', '.join(found)}",
            problems=tuple(f"{p}: one of several" for p in found),
            hint="say which one with --kafka-config or kafka.config",
        )
    raise ConfigError(
        "no server.properties was found in the usual places",
        problems=tuple(f"{p}: not there" for p in USUAL_SERVER_PROPERTIES),
        hint="name it with --kafka-config FILE, or the log dirs with --log-dir DIR",
    )
