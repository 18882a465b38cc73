"""`logagent config`: what is configured, and whether it holds together."""

from __future__ import annotations

import click

from logagent.agent.target import resolve_target
from logagent.cli.options import Call, common
from logagent.cli.render import dump, table
from logagent.config import as_document


@click.group()
def config() -> None:
    """Check or show the configuration."""


@config.command()
@common
def check(call: Call) -> None:
    """Read logagent.toml, the environment and server.properties; every error at once (exit status 78)."""
    settings = call.settings()
    target = resolve_target(settings, call.log_dirs)
    loaded = call.loaded_settings
    document = {
        "schema": "logagent.config-check/1",
        "config": loaded.file if loaded is not None else None,
        "environment": list(loaded.environment) if loaded is not None else [],
        "kafka_config": target.config,
        "log_dirs": list(target.log_dirs),
    }
    if call.json:
        dump(document)
    else:
        call.say(f"configuration: {document['config'] or 'defaults'}")
        call.say(f"broker: {target.config or 'log dirs named on the command line'}")
        call.say(f"log dirs: {', '.join(target.log_dirs)}")


@config.command()
@common
def show(call: Call) -> None:
    """Show every setting as it is in force: durations in milliseconds, sizes in bytes."""
    document = as_document(call.settings())
    if call.json:
        dump({"schema": "logagent.config/1", "settings": document})
        return
    rows = [
        [f"{section}.{key}", "" if value is None else str(value)]
        for section, values in document.items()
        for key, value in values.items()
    ]
    table("Settings", [("key", "left"), ("value", "text")], rows, color=call.color)
