"""Manual pages, and completion for three shells, made from the command line itself and the commented configuration.

What `logagent COMMAND --help` says and what the page says cannot differ: both come from the same click commands.
"""

from __future__ import annotations

import gzip
import re
import tomllib
from datetime import UTC, datetime
from inspect import cleandoc
from pathlib import Path

import click

from logagent.base.console import options
from logagent.base.errors import Exit
from logagent.cli import COMMANDS, GROUPS, cli

ROOT = Path(__file__).resolve().parents[1]
# Where each shell of a distribution looks.
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/logagent",
    "zsh": "usr/share/zsh/site-functions/_logagent",
    "fish": "usr/share/fish/vendor_completions.d/logagent.fish",
}


def write_manual(to: Path, version: str, epoch: int) -> None:
    """Write man1/logagent*.1.gz, man5/logagent.toml.5.gz and the completions below `to`."""
    day = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d")
    context = click.Context(cli, info_name="logagent", **cli.context_settings)
    commands = {name: cli.get_command(context, name) for name in COMMANDS}
    pages = {"man1/logagent.1": _main_page(context, version, day)}
    for name, command in commands.items():
        assert command is not None
        if not command.hidden:
            pages[f"man1/logagent-{name}.1"] = _command_page(name, command, context, version, day)
    pages["man5/logagent.toml.5"] = _configuration_page(version, day)
    for place, text in pages.items():
        path = to / "usr/share/man" / f"{place}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(_tidy(text).encode(), 9, mtime=0))
    for shell, place in COMPLETIONS.items():
        path = to / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{options.completion_script(cli, shell).strip()}\n")


def _tidy(page: str) -> str:
    """Without paragraphs that begin where one begins anyway, or that hold nothing."""
    lines = [line for line in page.splitlines() if line]
    starts = (".PP", ".SH", ".TP")
    kept = [
        line
        for before, line, after in zip(["", *lines], lines, [*lines[1:], ".SH"], strict=False)
        if line != ".PP" or not (before.startswith(".SH") or after.startswith(starts))
    ]
    return "\n".join(kept) + "\n"


def roff(text: str) -> str:
    """Plain text as roff shows it unchanged."""
    text = text.replace("\b", "").replace("\r", "").replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in text.splitlines())


def _head(title: str, section: int, version: str, day: str) -> list[str]:
    return [f'.TH "{roff(title.upper())}" "{section}" "{day}" "logagent {version}" "logagent"', ".nh", ".ad l"]


def _main_page(context: click.Context, version: str, day: str) -> str:
    lines = [*_head("logagent", 1, version, day), ".SH NAME"]
    lines += ["logagent \\- log directory deletion agent for Apache Kafka", ".SH SYNOPSIS"]
    lines += [".B logagent", ".I COMMAND", "[\\fIOPTIONS\\fR]", ".SH DESCRIPTION", roff(cli.help or ""), ".SH COMMANDS"]
    for title, group in GROUPS.items():
        lines += [f".SS {roff(title)}"]
        for name, (_, _, line) in group.items():
            lines += [".TP", f".BR logagent\\-{roff(name)} (1)", roff(line)]
    lines += [".SH EXIT STATUS"]
    for status in Exit:
        lines += [".TP", f".B {status}", roff(status.meaning)]
    files = {
        "/etc/logagent/logagent.toml": "The configuration; see logagent.toml(5).",
        "/etc/logagent/NAME.toml": "The configuration of logagent@NAME.service, where a host has several brokers.",
        "/var/lib/logagent": "The journal: what was done, and what is needed to undo it (/var/lib/logagent-NAME).",
    }
    lines += [".SH FILES"]
    for path, what in files.items():
        lines += [".TP", f".I {roff(path)}", roff(what)]
    lines += [".SH SEE ALSO", ".BR logagent.toml (5),", ".BR systemctl (1)"]
    return "\n".join(lines) + "\n"


def _command_page(name: str, command: click.Command, above: click.Context, version: str, day: str) -> str:
    context = click.Context(command, info_name=name, parent=above)
    lines = [*_head(f"logagent-{name}", 1, version, day), ".SH NAME"]
    lines += [f"logagent\\-{roff(name)} \\- {roff(COMMANDS[name][2].rstrip('.'))}", ".SH SYNOPSIS"]
    lines += _usage(command, context)
    lines += [".SH DESCRIPTION", *_paragraphs(cleandoc(command.help or ""))]
    lines += _options(command, context, ".SH OPTIONS")
    if isinstance(command, click.Group):
        for inner_name in command.list_commands(context):
            inner = command.get_command(context, inner_name)
            assert inner is not None
            below = click.Context(inner, info_name=inner_name, parent=context)
            lines += [f".SH {roff(inner_name.upper())}", *_usage(inner, below), ".PP"]
            lines += [*_paragraphs(cleandoc(inner.help or "")), *_options(inner, below, ".PP")]
    lines += [".SH EXAMPLES", *_paragraphs((command.epilog or "").removeprefix("\b\nExamples:\n").join(("\b\n", "")))]
    lines += [
        ".SH EXIT STATUS",
        "See",
        ".BR logagent (1).",
        ".SH SEE ALSO",
        ".BR logagent (1),",
        ".BR logagent.toml (5)",
    ]
    return "\n".join(lines) + "\n"


def _usage(command: click.Command, context: click.Context) -> list[str]:
    return [f".B {roff(context.command_path)}", roff(" ".join(command.collect_usage_pieces(context)))]


def _paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines += [".PP", *([".nf", *roff(block).splitlines(), ".fi"] if "\b" in block else [roff(block)])]
    return lines


def _options(command: click.Command, context: click.Context, heading: str) -> list[str]:
    lines: list[str] = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            lines += [".TP", f".B {roff(record[0])}", roff(record[1])]
    return [heading, *lines] if lines else []


def _configuration_page(version: str, day: str) -> str:
    text = (ROOT / "config/logagent.toml").read_text()
    introduction, *sections = re.split(r"^\[(\w+)\]$", text, flags=re.MULTILINE)
    lines = [*_head("logagent.toml", 5, version, day), ".SH NAME", "logagent.toml \\- configuration of logagent"]
    lines += [".SH DESCRIPTION", roff(re.sub(r"^# ?", "", introduction.strip(), flags=re.MULTILINE))]
    for section, body in zip(sections[::2], sections[1::2], strict=True):
        lines.append(f".SH {section.upper()}")
        said: list[str] = []
        for line in body.strip().splitlines():
            plain = line.removeprefix("#").removeprefix(" ")
            setting = re.fullmatch(r"(\w+) = (.+)", plain)
            if setting is None:
                said += [plain] if plain else []
                continue
            tomllib.loads(plain)  # what looks like a setting is one
            lines += [".TP", f".B {section}.{setting[1]} = {roff(setting[2])}", roff(" ".join(said)) or "See above."]
            said = []
    lines += [".SH SEE ALSO", ".BR logagent (1),", ".BR logagent\\-config (1)"]
    return "\n".join(lines) + "\n"
