"""`logagent config`: what is configured, and whether it is valid."""

from __future__ import annotations

import click

from logagent.agent.config import as_document
from logagent.agent.target import Target, resolve_target
from logagent.cli.options import Call, common, reads_assignments
from logagent.cli.render import dump, table
from logagent.errors import ConfigError


@click.group()
def config() -> None:
    """Check or show the configuration."""


@config.command()
@common
def check(call: Call) -> None:
    """Check logagent.toml, the environment and server.properties; list every error at once (exit status 78)."""
    target = _target(call)
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
        call.say(f"configuration: {document['config'] or 'defaults'}")
        call.say(f"broker: {target.config or 'log dirs from the command line'}")
        call.say(f"log dirs: {', '.join(target.log_dirs)}")
        call.say(f"state dir: {call.state_dir}")
        if target.config is not None and call.settings().kafka.config is None:
            call.say("the broker was found, not named: what acts needs kafka.config or --kafka-config FILE")


def _target(call: Call) -> Target:
    """The broker. Raises ConfigError with the problems of our configuration and of the broker's together."""
    try:
        settings, wrong = call.settings(), None
    except ConfigError as e:
        settings, wrong = call.valid_part(), e
    try:
        target = resolve_target(settings, call.log_dirs)
    except ConfigError as e:
        if wrong is None:
            raise
        raise ConfigError(str(wrong), problems=wrong.problems + e.problems, hint=wrong.hint or e.hint) from e
    if wrong is not None:
        raise wrong
    return target


@config.command()
@reads_assignments
@common
def show(call: Call) -> None:
    """Show every setting in effect: durations in milliseconds, sizes in bytes."""
    document, state_dir, log_dirs = as_document(call.settings()), call.state_dir, list(call.log_dirs)
    if call.json:
        dump({"schema": "logagent.config/1", "settings": document, "state_dir": state_dir, "log_dirs": log_dirs})
        return
    rows = [
        [f"{section}.{key}", "" if value is None else str(value)]
        for section, values in document.items()
        for key, value in values.items()
    ]
    rows += [["--state-dir", state_dir], *(["--log-dir", path] for path in log_dirs)]
    table("Settings", [("key", "left"), ("value", "text")], rows, color=call.color)
