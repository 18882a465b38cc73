"""What the README says about exit statuses, commands and places is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

from logagent.cli.main import COMMANDS
from logagent.errors import Exit

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _code() -> list[str]:
    """What stands in code blocks and between backticks."""
    return [block or inline for block, inline in re.findall(r"```sh\n(.*?)```|`([^`\n]+)`", README, re.DOTALL)]


def test_every_exit_status_stands_in_the_table_once() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", README, re.MULTILINE)
    assert [(int(number), meaning.replace("`", "")) for number, meaning in rows] == [(int(e), e.meaning) for e in Exit]


def test_every_command_that_is_shown_exists() -> None:
    shown = set(re.findall(r"(?:^|[;/ ])logagent ([a-z]+)", "\n".join(_code()), re.MULTILINE))
    assert {"scan", "cleanup", "delete", "restore", "demo", "fleet"} <= shown
    assert shown <= COMMANDS.keys()


def test_every_place_in_the_source_map_is_there() -> None:
    places = re.findall(r"^\| `([a-z/]+)` \|", README, re.MULTILINE)
    assert len(places) > 4
    assert [place for place in places if not (ROOT / place).is_dir()] == []
