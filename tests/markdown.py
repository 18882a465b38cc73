"""The Markdown of the project as tests read it: fenced blocks, links, anchors and what stands between backticks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from logagent.cli import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", *DOCS]
"""What users read. A test's id is the path of its page."""
ALL = [*PAGES, *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md")),
       ROOT / "packaging/README.md"]  # fmt: skip
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, and its text without the indentation of its fence. `follows`: right after another
    one."""

    language: str
    text: str
    follows: bool


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text, found, end = page.read_text(encoding="utf-8"), [], 0
    for fence in _FENCE.finditer(text):
        indent, language, body = fence.groups()
        follows = end > 0 and not text[end : fence.start()].strip()
        found.append(Block(language, re.sub(rf"^{indent}", "", body, flags=re.MULTILINE), follows))
        end = fence.end()
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def inline_code(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def links(page: Path) -> list[str]:
    """Targets of links and pictures."""
    return re.findall(r"\]\(([^()\s]+)\)", prose(page).replace("\n", " "))


def anchors(page: Path) -> set[str]:
    """What `#…` may name: headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


def commands(text: str) -> Iterator[list[str]]:
    """The words of each `logagent …` in shell text, without what comes after a pipe, a redirection or `;`."""
    for line in text.replace("\\\n", " ").splitlines():
        for command in _divided(_words(line)):
            start = _start(command)
            if start is not None:
                yield command[start + 1 :]


def _start(words: list[str]) -> int | None:
    """Where `logagent` is run: first, after variables that are set, behind `sudo -u USER` or `--`."""
    for at, word in enumerate(words):
        if word.rsplit("/", 1)[-1] == "logagent":
            before = words[:at]
            if all("=" in w for w in before) or before[-1] == "--" or before[0] == "sudo":
                return at
    return None


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>()")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    return list(lexer)


def _divided(words: list[str]) -> Iterator[list[str]]:
    command: list[str] = []
    for word in words:
        if word and set(word) <= set("|;&<>()"):
            yield command
            command = []
        else:
            command.append(word)
    yield command


def why_not_a_command(words: list[str]) -> str | None:
    """What is wrong with `logagent WORDS`: no such command or option. None if the command line knows all of it."""
    if words[:1] == ["--version"]:
        return None
    if not words or words[0] not in COMMANDS:
        return f"no such command: logagent {' '.join(words[:1])}"
    with click.Context(cli, info_name="logagent", **cli.context_settings) as context:
        command: click.Command | None = cli.get_command(context, words[0])
        rest = words[1:]
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            command, rest = command.get_command(context, rest[0]), rest[1:]
        if command is None:
            return f"no such command: logagent {' '.join(words)}"
        options = {option for p in command.get_params(context) for option in (*p.opts, *p.secondary_opts)} | {"-h"}
        given = [word.partition("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)]
        unknown = [option for option in given if option not in options]
        return f"logagent {' '.join(words)}: no such option: {', '.join(unknown)}" if unknown else None
