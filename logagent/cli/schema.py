"""`logagent schema`: the JSON Schema of a document."""

from __future__ import annotations

import click

from logagent.cli.render import dump
from logagent.errors import UsageError


@click.command()
@click.argument("name", required=False)
def schema(name: str | None) -> None:
    """Print the JSON Schema of the document NAME (without it: the names)."""
    from logagent.documents import SCHEMAS

    if name is None:
        click.echo("\n".join(SCHEMAS))
        return
    if name not in SCHEMAS:
        raise UsageError(f"there is no document {name!r}", hint=f"one of {', '.join(SCHEMAS)}")
    dump(SCHEMAS[name].model_json_schema(by_alias=True))
