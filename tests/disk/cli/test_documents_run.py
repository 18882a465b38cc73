"""Every ```sh block of the README and of docs is run on a scratch host, as the broker's user.

The host is a real broker's disk (tests/fixtures/disks: node 3 of a 3.9.1 cluster, stopped while topics were deleted,
created again and reassigned) below /data, and what its cluster says now. A line ends with 0, or with the `exit status
N` of its comment. `PLAN_ID` stands for the id of a plan that the page has shown. A ```text block right after a ```sh
block is compared with what that printed: the words of each of its lines stand, in this order, in one line; `…` stands
for anything.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli_host import CliHost
from tests.markdown import PAGES, Block, blocks, name_of
from tests.private_host import KAFKA_UID, REPOSITORY, PrivateHost, private_host

SHOWN = [page for page in PAGES if any(block.language == "sh" for block in blocks(page))]
HOME, STORE = "/home/kafka", "/mnt/logagent-fleet"
LAUNCHER = f"""#!/bin/sh
exec {sys.executable} -P -c 'import sys
sys.path.insert(0, "{REPOSITORY}")
from logagent.cli.main import main
main()' "$@"
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[PrivateHost]:
    disk = CliHost(tmp_path / "disk")
    disk.with_assignments()
    with private_host(tmp_path / "host", PrivateHost) as one:
        one.run("cp", "-a", str(disk.disk), "/data")
        properties = disk.properties.read_text("latin-1").replace(str(disk.disk), "/data")
        one.write("/etc/kafka/server.properties", properties)
        one.write("/var/lib/logagent/assignments.json", (disk.root / "assignments.json").read_text())
        one.write("/etc/logagent/logagent.toml", _toml())
        one.write("/usr/local/bin/logagent", LAUNCHER, 0o755)
        one.run("mkdir", "-p", HOME, STORE)
        one.run("chmod", "1777", STORE)
        one.run("chown", "-R", f"{KAFKA_UID}:{KAFKA_UID}", "/data", "/var/lib/logagent", HOME)
        yield one


def _toml() -> str:
    return (
        '[kafka]\nconfig = "/etc/kafka/server.properties"\nversion = "3.9.1"\n'
        '[assignments]\nsources = ["file"]\nfile = "/var/lib/logagent/assignments.json"\n'
    )


def test_there_is_something_to_run() -> None:
    names = [name_of(page) for page in SHOWN]
    how_to = [name for name in names if name.startswith("docs/how-to/")]
    assert "README.md" in names and "docs/index.md" in names and len(how_to) > 8


@pytest.mark.parametrize("page", SHOWN, ids=name_of)
def test_every_shell_block_works_as_pasted(page: Path, host: PrivateHost) -> None:
    printed, plans = "", Plans()
    for block in blocks(page):
        if block.language == "sh":
            printed = ""
            for line in filter(str.strip, block.text.splitlines()):
                out = run(host, plans.named(line))
                plans.remember(out)
                printed += out
        elif block.language == "text" and block.follows:
            compare(block, printed)


class Plans:
    """The plans that a page has shown: `--approve PLAN_ID` is about the last one that was not carried out, `--plan
    PLAN_ID` about the last one that was."""

    def __init__(self) -> None:
        self._shown, self._done = "", ""

    def remember(self, out: str) -> None:
        for plan, rest in re.findall(r"^Plan ([0-9a-f]{16})(.*)$", out, re.MULTILINE):
            if "not carried out" in rest:
                self._shown = plan
            else:
                self._done = plan

    def named(self, line: str) -> str:
        for option, plan in (("--approve", self._shown), ("--plan", self._done)):
            assert plan or f"{option} PLAN_ID" not in line, f"no such plan was shown before: {line}"
            line = line.replace(f"{option} PLAN_ID", f"{option} {plan}")
        return line


def run(host: PrivateHost, line: str) -> str:
    """What the line printed; it has to end with the status that its comment says, else 0."""
    script = f"PATH=/usr/local/bin:$PATH COLUMNS=120 HOME={HOME}; export PATH COLUMNS HOME\n{line}"
    done = host.run("sh", "-c", script, user="kafka", check=False)
    said = re.search(r"#.*\bexit status (\d+)", line)
    shown = f"$ {line}\n{done.stdout}{done.stderr}"
    assert done.returncode == (int(said[1]) if said else 0), shown
    assert "Traceback" not in shown, shown
    return done.stdout + done.stderr


def compare(block: Block, printed: str) -> None:
    """Sizes differ from file system to file system."""
    lines = [re.sub(r"\s+", " ", line) for line in printed.splitlines()]
    for line in block.text.splitlines():
        words = [re.escape(word).replace("…", r"\S*") for word in re.sub(r"[\d.]+ [KMG]?i?B\b", "…", line).split()]
        assert any(re.search(r"\b.*?".join(words), there) for there in lines), f"{line!r}\n{printed}"
