"""What a hurried operator types wrong: one clear sentence that names the slip and what was meant, the documented
status, whole at every width and in a pipe, and nothing is changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from logagent.errors import Exit
from tests.cli_host import CliHost
from tests.terminal import on_a_terminal, plain

MISTYPED = {
    "clenup": (Exit.USAGE, "No such command 'clenup'; did you mean cleanup?"),
    "cleanup --excute": (Exit.USAGE, "No such option '--excute'. Did you mean '--execute'?"),
    "cleanup --min-age 1h": (Exit.USAGE, "cleanup.min_age is a setting, in logagent.toml or as LOGAGENT_CLEANUP__"),
    "scan --sort szie": (Exit.USAGE, "'szie' is not one of 'size', 'name', 'files', 'newest'"),
    "delete --topic": (Exit.USAGE, "Option '--topic' requires an argument."),
    "delete --topic (": (Exit.USAGE, "--topic '(' is not a regular expression"),
    "delete --topic ordrs --execute": (Exit.OK, "no topic here matches 'ordrs' as a whole; did you mean orders?"),
    "delete --partition ordrs-0 --execute": (Exit.OK, "ordrs-0: no such log here; nothing to do; did you mean orders-"),
    "restore orders-0.deadbeef --execute": (Exit.USAGE, "no directory orders-0.deadbeef in the log dirs"),
    "rescue --need lots --execute": (Exit.USAGE, "--need: 'lots' is not a size, for example 64MiB"),
    "explain ordrs": (Exit.OK, "did you mean orders or orders-"),
    "check --leave /dta/d1": (Exit.USAGE, "--leave: /dta/d1 is no log dir of this broker"),
    "queue --kafka-config /etc/kafka/servr.properties": (Exit.CONFIG, "/etc/kafka/servr.properties: No such file"),
}  # fmt: skip


@pytest.fixture
def host(tmp_path: Path) -> CliHost:
    made = CliHost(tmp_path)
    made.with_assignments()
    return made


@pytest.mark.parametrize("line", MISTYPED)
def test_a_slip_is_named_with_what_was_meant(host: CliHost, line: str) -> None:
    status, sentence = MISTYPED[line]
    before = host.snapshot()
    ran = host.spawn(*line.split())
    assert ran.status == status, ran
    assert sentence in ran.out + ran.err and "Traceback" not in ran.err
    for columns in (80, 120, 200):
        shown = " ".join(plain(on_a_terminal(host.arguments(*line.split()), columns=columns)))
        assert re.sub(r"\s+", " ", sentence) in re.sub(r"\s+", " ", shown), columns
    assert host.snapshot() == before
