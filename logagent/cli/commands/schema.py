"""`logagent schema`: the JSON Schema of a document."""

from __future__ import annotations

import click
from pydantic import TypeAdapter

from logagent.cli.render import dump
from logagent.documents import SCHEMAS as OF_A_HOST
from logagent.errors import UsageError
from logagent.fleet.documents import SCHEMAS as OF_THE_FLEET
from logagent.store.meanings import json_schema

TABLES = "fleet-tables"


@click.command()
@click.argument("name", required=False)
def schema(name: str | None) -> None:
    """Print the JSON Schema of the document NAME; without NAME, list the documents.

    fleet-tables: the tables of a fleet report, with type, unit and meaning of every column.
    """
    documents = {**OF_A_HOST, **OF_THE_FLEET}
    if name is None:
        click.echo("\n".join([*documents, TABLES]))
        return
    if name == TABLES:
        dump(json_schema())
        return
    if name not in documents:
        raise UsageError(f"no such document: {name!r}", hint=f"one of {', '.join([*documents, TABLES])}")
    dump(TypeAdapter(documents[name]).json_schema())
