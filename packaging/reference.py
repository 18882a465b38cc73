"""The pages of docs/reference that are made from the program itself:

    python packaging/reference.py

commands.md from `--help`, settings.md from config/logagent.toml, findings.md from the table in
advice/check/rules/linter.py, report.md from fleet/report/columns.py, fidelity.md from
tests/fixtures/kafka-suites.tsv, exit-statuses.md, documents.md and store.md. They are in the repository, so that
they can be read there; a test compares them with what this makes.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from logagent.advice.check.rules import linter  # noqa: E402
from logagent.base.errors import Exit  # noqa: E402
from logagent.cli import COMMANDS, cli  # noqa: E402
from logagent.deletion.store.answers import ANSWER_SCHEMA, SEEN_SCHEMA  # noqa: E402
from logagent.deletion.store.requests import DECISION_SCHEMA, OUTCOME_SCHEMA, REQUEST_SCHEMA  # noqa: E402
from logagent.fleet.documents import SCHEMAS as OF_THE_FLEET  # noqa: E402
from logagent.fleet.report.columns import NO_CSV, STAMP, UNITS  # noqa: E402
from logagent.fleet.report.columns import TABLES as REPORT  # noqa: E402
from logagent.schemas import SCHEMAS as OF_A_HOST  # noqa: E402

REFERENCE = ROOT / "docs/reference"
MADE = "<!-- Made by packaging/reference.py. -->"
_AS_HERE: dict[str, Any] = {"terminal_width": 80, "max_content_width": 80}
# Documents whose schema is checked before they are read as such.
_NAMED_ELSEWHERE = {
    "request": REQUEST_SCHEMA, "decision": DECISION_SCHEMA, "outcome": OUTCOME_SCHEMA, "seen": SEEN_SCHEMA,
    "answer": ANSWER_SCHEMA,
}  # fmt: skip
# What stands next to a document in no other place: who prints or writes it.
PRINTED_BY = {
    "scan": "`logagent scan --json`",
    "plan": "`--json` of `cleanup`, `delete`, `restore` and `rescue`",
    "queue": "`logagent queue --json`",
    "history": "`logagent history --json`; with `--jsonl` one entry a line",
    "check": "`logagent check --json`",
    "leave": "`logagent check --leave LOG_DIR --json`",
    "prestart": "`logagent prestart --json`",
    "doctor": "`logagent doctor --json`",
    "status": "`logagent status --json`, and `logagent run --json` at its end",
    "explain": "`logagent explain --json`",
    "explain-name": "`logagent explain --names NAME --json`",
    "assignments": "`logagent assignments export`; `assignments show --json`",
    "topics": "`logagent topics status --json`, and `run --json`",
    "topics-plan": "`logagent topics delete --json`, and in `topics-plans`",
    "topics-plans": "`logagent topics purge --json`: a plan for each cluster",
    "signed": "the envelope of what is signed in `control/` of the fleet store",
    "request": "`control/` of the fleet store: what was asked for",
    "decision": "`control/`: what was decided on a request, once",
    "outcome": "`control/`: what came of it, which closes the request",
    "seen": "`answers/`: which requests an agent has verified, open and ended ones",
    "answer": "`answers/`: what an agent did for a request",
    "fleet-report": "`report.json` of a fleet report",
    "fleet-ingest": "`logagent fleet ingest --json`",
    "snapshot": "`landing/`: one line of a snapshot (JSON lines, gzip)",
    "manifest": "`landing/`: size and SHA-256 of a snapshot, written after it",
}


def pages() -> dict[str, str]:
    """File name below docs/reference → text."""
    return {
        "commands.md": _commands(),
        "settings.md": _settings(),
        "exit-statuses.md": _exit_statuses(),
        "documents.md": _documents(),
        "findings.md": _findings(),
        "store.md": _store(),
        "report.md": _report(),
        "fidelity.md": _fidelity(),
    }


def _page(title: str, *blocks: str) -> str:
    return "\n\n".join([MADE, f"# {title}", *blocks]) + "\n"


def _commands() -> str:
    context = click.Context(cli, info_name="logagent", **_AS_HERE, **cli.context_settings)
    rows = "\n".join(f"| [`{name}`](#logagent-{name}) | {line} |" for name, (_, _, line) in COMMANDS.items())
    blocks = ["What `logagent COMMAND --help` prints.", f"| command | |\n| --- | --- |\n{rows}"]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        for path, text in _helps(command, context, name):
            blocks += [f"{'#' * len(path.split())} {path}", f"```text\n{text}\n```"]
    return _page("Commands", *blocks)


def _helps(command: click.Command, above: click.Context, name: str) -> Iterator[tuple[str, str]]:
    context = click.Context(command, info_name=name, parent=above, **_AS_HERE)
    text = "\n".join(line.rstrip() for line in command.get_help(context).strip().splitlines())
    yield context.command_path, text
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from _helps(found, context, inner)


def settings() -> Iterator[tuple[str, str, str, str]]:
    """(section, name, value, what its comment says) of each setting of config/logagent.toml, in its order."""
    section, said = "", [""]
    for line in (ROOT / "config/logagent.toml").read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            section, said = heading[1], []
        elif section and (setting := re.fullmatch(r"# (\w+) = (.+)", line)):
            yield section, setting[1], setting[2], " ".join(said)
            said = []
        elif section and line:
            said.append(line.removeprefix("#").strip())


def _settings() -> str:
    text = (ROOT / "config/logagent.toml").read_text(encoding="utf-8")
    introduction = re.sub(r"^# ?", "", text.partition("\n[")[0].strip(), flags=re.MULTILINE)
    blocks = [
        "The file is `/etc/logagent/logagent.toml`. What it holds, with every default:",
        introduction.partition("\n\n")[2] or introduction,
    ]
    last = ""
    for section, name, value, says in settings():
        if section != last:
            blocks.append(f"## [{section}]")
            last = section
        blocks.append(f"### {section}.{name}")
        blocks.append(f"`{name} = {value}`")
        blocks.append(re.sub(r"<", r"\\<", says) or "See the setting before it.")
    return _page("Settings", *blocks)


def _exit_statuses() -> str:
    rows = "\n".join(f"| {int(status)} | {status.meaning} |" for status in Exit)
    return _page(
        "Exit statuses",
        "The same for every command. If several apply, `logagent` ends with the one that says most: an interruption, a"
        " usage error, missing permission and a wrong configuration come before what happened to a single directory.",
        f"| status | meaning |\n| --- | --- |\n{rows}",
        "A name that nothing on the host has: `delete` and `explain` end with 0 and say so on stderr, as it is gone"
        " already, and a script may ask every host. `restore` ends with 2, as it cannot bring back what is not here,"
        " and so does `delete` with a shortened name of a stray that means none, or several.",
        "Results go to stdout, messages to stderr. A message says what is wrong, then `hint:` what to do.",
    )


def _documents() -> str:
    from pydantic import TypeAdapter

    rows = []
    for name, document in {**OF_A_HOST, **OF_THE_FLEET}.items():
        named = _NAMED_ELSEWHERE.get(name) or _schema_name(TypeAdapter(document).json_schema())
        rows.append(f"| `{name}` | {named and f'`{named}`'} | {PRINTED_BY[name]} |")
    return _page(
        "JSON documents",
        "`logagent schema NAME` prints the JSON Schema of a document, with every field and what it means. Times are RFC"
        " 3339 in UTC with milliseconds, sizes are integers in bytes, durations are in the unit that the name ends with"
        " (`_ms`, `_seconds`). Fields may be added; what is removed or changes its meaning gets a new number.",
        "| name | `schema` | where |\n| --- | --- | --- |\n" + "\n".join(rows),
    )


def _schema_name(schema: dict[str, Any]) -> str:
    """What the document's field `schema` holds; "" for what has none."""
    return str(schema.get("properties", {}).get("schema", {}).get("const", ""))


def _findings() -> str:
    """The table of the linter's docstring, whose columns are as wide as its rules."""
    doc = linter.__doc__ or ""
    rules = list(re.finditer(r"^=+(?: +=+)+$", doc, re.MULTILINE))
    widths = [match.span() for match in re.finditer("=+", rules[0][0])]
    rows = []
    for line in doc[rules[1].end() : rules[2].start()].strip().splitlines():
        code, severity, releases, condition = (line[a : b if b < 50 else None].strip() for a, b in widths)
        codes = ", ".join(f"`{one}`" for one in code.split(", "))
        rows.append(f"| {codes} | {severity} | {releases.replace('<', '&lt;')} | {condition.replace('<', '&lt;')} |")
    notes = re.split(r"\n\n|\n(?=\[)", doc[rules[2].end() :].strip())
    return _page(
        "Findings of check",
        "What `logagent check` and `prestart` say of a broker's next start, as seen on real brokers. Each finding says"
        " what to do; the codes are stable, and stand in `check --json`. *fatal*: the broker does not start, takes a"
        " log dir offline, or loses records.",
        "| code | severity | releases | condition |\n| --- | --- | --- | --- |\n" + "\n".join(rows),
        "\n\n".join(notes),
    )


def _store() -> str:
    from logagent.fleet.tables.frames import STORE, fields

    blocks = [
        "What `logagent fleet ingest` keeps in the fleet store: Parquet, in `tables/<table>/run=<run>/`. A date counts"
        " once `commits/<date>/<n>.json` names its files; the newest number is the date's. A run that no date needs"
        " goes 24 hours after it was superseded; dates stay. Sizes are in bytes, times are timestamps in UTC. `others`"
        " has the rows of `dirs` that are not current directories, or that their agent does not call assigned. `absent`"
        " has the replicas that were assigned before an inventory and after it, and that their agent found nowhere;"
        " `acts` what logagent did in the eight days before a snapshot, the same on each date;"
        " `earlier` assignments that newer ones of their date superseded, for hosts that have read none. What the"
        " columns mean is in [the report's tables](report.md) and in `logagent schema snapshot`.",
        "`tables/<table>` is a Delta table, too ([examples](../how-to/fleet-report.md#tables-for-other-programs)): what"
        " counts for every date, with `date` as the partition column (type date) behind the columns below. Each commit"
        " of a date is one version of `_delta_log/`; after 50 versions comes a checkpoint, and what is before a"
        " checkpoint that is 30 days old goes. The protocol is reader version 1, writer version 7 with a feature of our"
        " own, so that nobody else writes.",
    ]
    for table, ddl in STORE.items():
        rows = "\n".join(f"| `{name}` | {kind.replace('<', ' of ').replace('>', '')} |" for name, kind in fields(ddl))
        blocks += [f"## {table}", f"| column | type |\n| --- | --- |\n{rows}"]
    return _page("The store's tables", *blocks)


def _report() -> str:
    intro = (
        "`logagent fleet report --out DIR` writes each table as `DIR/<run>/parquet/<table>/` and"
        " `DIR/<run>/<table>.csv` (RFC 4180, UTF-8; times as RFC 3339, null as an empty field). `logagent schema"
        " fleet-tables` prints the same as JSON Schema. Every row has the report's `date` and `run_id`, so"
        " that all reports in DIR can be read as one:"
    )
    example = '```python\nspark.read.parquet("DIR/20*/parquet/usage_log_dirs")  # `latest` is one of them already\n```'
    blocks = [intro, example, "Rows are in the order that the table names; `-` is descending."]
    for name, table in REPORT.items():
        only = " Parquet only, with `--with-partitions`." if name in NO_CSV else ""
        order = ", ".join(f"`{column}`" for column in table.order)
        columns = (*table.columns, *STAMP)
        rows = [f"| `{c.name}` | {UNITS[c.unit][0]} | {UNITS[c.unit][1]} | {c.meaning} |" for c in columns]
        head = "| column | type | unit | meaning |\n| --- | --- | --- | --- |\n"
        blocks += [f"## {name}", f"{table.title}.{only} Order: {order}.", head + "\n".join(rows)]
    return _page("Tables of a fleet report", *blocks)


def _fidelity() -> str:
    with (ROOT / "tests/fixtures/kafka-suites.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    counts = Counter((row["suite"], row["ours"].partition(":")[0]) for row in rows)
    figures = []
    for suite in [*dict.fromkeys(row["suite"] for row in rows), None]:
        of = Counter[str]()
        for (name, where), number in counts.items():
            of[where if where in ("on purpose", "not ours") else "as here"] += number if suite in (name, None) else 0
        figures.append(f"| {suite or 'all'} | {of.total()} | {of['as here']} | {of['on purpose']} | {of['not ours']} |")
    intro = (
        "logagent touches what brokers read, so it has to read names, files and settings as they do, and to foresee"
        " what they delete. Apache Kafka's own test suites say what that is. Each of their cases is a row of"
        " `tests/fixtures/kafka-suites.tsv`, with the test here that holds logagent to the same, or with the reason why"
        " there is none; a test checks that each of these exists, and that no row has neither: none is a fault that"
        " stands. That the named test fails once logagent does otherwise is shown for 40 rows that a seed draws, each"
        " with a change of the product (`tests/fixtures/kafka-suites-broken.tsv`); and in the long form of the tests,"
        " classes of Kafka 4.3.1 and 4.4.0 are asked what they make of the same names, files and logs, for more than"
        " 20 of the cases (`tests/broker/fidelity`). The names are those of Kafka's trunk of October 2024, and of the"
        " controller's three suites those before ZooKeeper was taken out of Kafka."
    )
    table = (
        "`as here`: a test here holds logagent to what Kafka does. `on purpose`: logagent does otherwise, see below."
        " `not ours`: what a running broker does and logagent never does, such as appending records.\n\n"
        "| suite | cases | as here | on purpose | not ours |\n| --- | --- | --- | --- | --- |\n" + "\n".join(figures)
    )
    other = [
        f"| `{row['suite']}.{row['case']}` | {row['Kafka']} | {row['ours'].removeprefix('on purpose: ')} |"
        for row in rows
        if row["ours"].startswith("on purpose: ")
    ]
    head = "## Other than Kafka, on purpose\n\n| case | Kafka | logagent |\n| --- | --- | --- |\n"
    return _page("Kafka's own tests", intro, table, head + "\n".join(other))


def main(folder: str | Path = REFERENCE) -> None:
    """Write the pages, into another folder if one is named."""
    for name, text in pages().items():
        (Path(folder) / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
