"""The examples that each --help ends with, and the same on its man page: every line of them is run on the scratch host
of the pages, or it is said why not."""

from __future__ import annotations

import re

from logagent.cli import COMMANDS, examples
from tests.disk.cli.test_documents_run import host as host
from tests.markdown import commands, why_not_a_command
from tests.pasted import run
from tests.private_host import PrivateHost

# What ends otherwise than with 0 on that host, and why that is right there.
ENDS_WITH = {
    "logagent check --leave /data/d1": 3,  # partitions are assigned to it
    "logagent rescue": 4,  # what goes early needs approval
    "logagent rescue --need 10GiB": 4,
    "logagent status": 69,  # no daemon runs
}
# Lines that are not run there: who runs the same.
ELSEWHERE = {
    "setup": "tests/package/test_installed.py: it wants the package, and root",
    "run": "tests/disk/service/daemon: it does not end",
    "topics": "tests/broker/test_documents_run_live.py: they want a cluster and a store",
    "demo": "docs/first-day.md and tests/disk/demo",
    **dict.fromkeys(
        ("fleet", "fleet archive", "fleet demo", "fleet ingest", "fleet report"), "tests/spark/test_commands.py"
    ),
}
NOT_RUN = re.compile(r"PLAN_ID|REQUEST_ID|BUCKET|ssh |new\.toml|status --json|~/|run --once")


def test_every_command_has_examples_that_exist() -> None:
    for name, text in examples().items():
        lines = text.splitlines()
        assert 1 <= len(lines) <= 3 and all(len(line) <= 76 for line in lines), name
        for line in lines:
            assert line.startswith((f"logagent {name.split()[0]}", "LOGAGENT_")), line
            assert [wrong for words in commands(line) if (wrong := why_not_a_command(words))] == []
    assert {name.split()[0] for name in examples()} == COMMANDS.keys()


def test_the_examples_work(host: PrivateHost) -> None:
    for name, text in examples().items():
        if name in ELSEWHERE or name.startswith("topics "):
            continue
        for line in text.splitlines():
            if NOT_RUN.search(line):
                continue
            run(host, f"{line}  # exit status {ENDS_WITH.get(line, 0)}", shell=False)
