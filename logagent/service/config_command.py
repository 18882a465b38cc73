"""`logagent config`: what is configured, and whether it is valid."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from logagent.base.config.config import as_document, key_lines
from logagent.base.console.options import Call, common, reads_assignments
from logagent.base.console.render import dump, table
from logagent.base.errors import ConfigError, ServiceUnreachable
from logagent.kafka.processes.target import Target, refuse_switch, resolve_target
from logagent.service.status.command import ask_status
from logagent.verdict.evidence.other_brokers import client_config


@click.group()
def config() -> None:
    """Check or show the configuration."""


@config.command()
@common
def check(call: Call) -> None:
    """Check logagent.toml, the environment, server.properties and the file of kafka.client; list every error at once
    (exit status 78).

    What the running daemon would not take in a reload is an error, too.
    """
    target = _target(call)
    if not call.log_dirs:  # a reload knows no --log-dir
        _ask_the_daemon(call.state_dir, target)
    loaded = call.loaded_settings
    document = {
        "schema": "logagent.config-check/1",
        "config": loaded.file if loaded is not None else None,
        "environment": list(loaded.environment) if loaded is not None else [],
        "kafka_config": target.config,
        "log_dirs": list(target.log_dirs),
        "state_dir": call.state_dir,
    }
    if call.json:
        dump(document)
    else:
        call.say(f"configuration: {document['config'] or 'defaults'}: no problem found")
        call.say(f"broker: {target.config or 'log dirs from the command line'}")
        call.say(f"log dirs: {', '.join(target.log_dirs)}")
        call.say(f"state dir: {call.state_dir}")
        if target.config is not None and call.settings().kafka.config is None:
            call.say("the broker was found, not named: what acts needs kafka.config or --kafka-config FILE")


def _ask_the_daemon(state_dir: str, target: Target) -> None:
    """Raises ConfigError for what the daemon that serves this broker from this state dir would keep out. Where none
    answers, nothing is kept out."""
    try:
        status = ask_status(state_dir)
    except ServiceUnreachable:
        return
    served, config = status.get("log_dirs"), status.get("kafka_config")
    same = (
        isinstance(config, str)
        and target.config is not None
        and os.path.realpath(config) == os.path.realpath(target.config)
    )
    if not same or not isinstance(served, list):
        return
    paths = [row["path"] for row in served if isinstance(row, dict) and isinstance(row.get("path"), str)]
    refuse_switch(paths, target)


def _target(call: Call) -> Target:
    """The broker. Raises ConfigError with the problems of our configuration, of the broker's and of kafka.client
    together."""
    wrong: list[ConfigError] = []
    try:
        settings = call.settings()
    except ConfigError as e:
        settings = call.valid_part()
        wrong.append(e)
    target = None
    try:
        target = resolve_target(settings, call.log_dirs)
    except ConfigError as e:
        wrong.append(e)
    try:
        client_config(settings.kafka)
    except ConfigError as e:
        wrong.append(e)
    if target is None or len(wrong) > 1:
        problems = tuple(problem for e in wrong for problem in e.problems or (str(e),))
        raise ConfigError(str(wrong[0]), problems=problems, hint=next((e.hint for e in wrong if e.hint), None))
    if wrong:
        raise wrong[0]
    return target


@config.command()
@reads_assignments
@common
def show(call: Call) -> None:
    """Show every setting in effect, as it is written in logagent.toml, and where it comes from.

    --json has durations in milliseconds and sizes in bytes.
    """
    settings = call.settings()
    document, state_dir, log_dirs = as_document(settings), call.state_dir, list(call.log_dirs)
    origins = _origins(call, document)
    if call.json:
        shown = {"schema": "logagent.config/1", "settings": document, "state_dir": state_dir, "log_dirs": log_dirs}
        dump({**shown, "origins": origins})
        return
    rows = [
        [f"{section}.{key}", settings.written(section, key), origins[f"{section}.{key}"]]
        for section, values in document.items()
        for key in values
    ]
    rows.append(["--state-dir", state_dir, "default" if call.state_dir_named is None else "--state-dir"])
    rows += [["--log-dir", path, "--log-dir"] for path in log_dirs]
    table("Settings", [("key", "left"), ("value", "text"), ("from", "path")], rows, color=call.color)


def _origins(call: Call, document: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Of each `section.key`: `default`, the variable, FILE:LINE, or the option that says it."""
    loaded = call.loaded_settings
    found = dict(loaded.origins) if loaded is not None else {}
    if loaded is not None and loaded.file is not None:
        lines = key_lines(loaded.file)
        found = {k: f"{o}:{lines[k]}" if o == loaded.file and k in lines else o for k, o in found.items()}
    if call.kafka_config is not None:
        found["kafka.config"] = "--kafka-config"
    if call.assignments is not None:
        found["assignments.sources"] = found["assignments.file"] = "--assignments"
    return {k: found.get(k, "default") for k in (f"{s}.{key}" for s, keys in document.items() for key in keys)}
