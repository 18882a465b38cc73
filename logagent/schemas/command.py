"""`logagent schema`: the JSON Schema of a document."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import click
from pydantic import TypeAdapter

from logagent.base.console.options import items
from logagent.base.console.render import did_you_mean, dump
from logagent.base.errors import UsageError
from logagent.fleet.documents import SCHEMAS as OF_THE_FLEET
from logagent.fleet.report.columns import json_schema
from logagent.schemas import SCHEMAS as OF_A_HOST

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

TABLES = "fleet-tables"


def _names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return items([*OF_A_HOST, *OF_THE_FLEET], incomplete)


@click.command()
@click.argument("name", required=False, shell_complete=_names)
def schema(name: str | None) -> None:
    """Print the JSON Schema of the document NAME (plan, or logagent.plan/1); without NAME, list the documents.

    fleet-tables: the tables of a fleet report, with type, unit and meaning of every column.
    """
    documents = {**OF_A_HOST, **OF_THE_FLEET}
    if name is None:
        click.echo("\n".join([*documents, TABLES]))
        return
    if name == TABLES:
        dump(json_schema())
        return
    # As the documents call themselves.
    name, _, number = name.removeprefix("logagent.").partition("/")
    if name not in documents:
        near = did_you_mean(name, [*documents, TABLES])
        raise UsageError(f"no such document: {name!r}{near}", hint=f"one of {', '.join([*documents, TABLES])}")
    made = TypeAdapter(documents[name]).json_schema()
    numbers = re.findall(rf"logagent\.{re.escape(name)}/(\d+)", json.dumps(made))
    if number and number not in numbers:
        written = " and ".join(sorted({f"logagent.{name}/{n}" for n in numbers})) or "a document without a number"
        raise UsageError(f"no such document: logagent.{name}/{number}", hint=f"this logagent writes {written}")
    dump(made)
