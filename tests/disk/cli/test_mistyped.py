"""What is mistyped: one clear sentence, what was meant if that can be known, the documented status, nothing done.

The words are the same on a terminal of 80, 120 and 200 columns as in a pipe: none is cut.
"""

from __future__ import annotations

import pytest

from logagent.base.errors import Exit
from tests.command_line import run_here
from tests.host import NO_LIMITS, Host
from tests.terminal import on_a_terminal, plain

WIDTHS = (80, 120, 200)

# The command line, how it ends, and what it says: the sentence, and what to do.
ON_A_HOST = [
    ("cleanp --execute", Exit.USAGE, "No such command 'cleanp'; did you mean cleanup?"),
    ("cleanup --excute", Exit.USAGE, "No such option '--excute'. Did you mean '--execute'?"),
    ("cleanup --min-age 1d --execute", Exit.USAGE, "No such option '--min-age'. hint: cleanup.min_age is a setting, of "
     "logagent.toml or in LOGAGENT_CLEANUP__MIN_AGE"),
    ("cleanup --partition orders-1 --execute", Exit.USAGE, "No such option '--partition'. hint: --partition is an "
     "option of delete"),
    ("cleanup --frobnicate", Exit.USAGE, "No such option '--frobnicate'."),
    ("delete --execute --partition", Exit.USAGE, "Option '--partition' requires an argument."),
    ("cleanup --approve --execute", Exit.USAGE, "--approve needs a value, and --execute is an option hint: see --help"),
    ("prestart --budget 5q", Exit.USAGE, "--budget: '5q' is not a duration: add a unit, for example 30s, 15m, 24h or "
     "7d hint: logagent prestart --budget 2s"),
    ("rescue --need 5xyz --execute", Exit.USAGE, "--need: '5xyz' is not a size, for example 64MiB, 1.5GiB, 10MB or "
     "1048576 hint: logagent rescue --need 50GiB"),
    ("delete --topic retrns --execute", Exit.OK, "no topic here matches 'retrns'; did you mean returns? nothing to do"),
    ("delete --partition retrns-2 --execute", Exit.OK, "retrns-2: no such log here; did you mean returns-2?"),
    # What is near is assigned, or one of its directories is (visits-1): no deletion is led there.
    ("delete --topic ordrs --execute", Exit.OK, "no topic here matches 'ordrs' nothing to do"),
    ("delete --partition ordrs-1 --execute", Exit.OK, "ordrs-1: no such log here nothing to do"),
    ("delete --partition vists-1 --execute", Exit.OK, "vists-1: no such log here; did you mean visits-2?"),
    ("delete --partition labels-0 --execute", Exit.OK, "labels-0: no such log here; already set aside as labels-0."
     "8b6d5fdf4ca34fdf9182049bc5ca85a0-stray at "),
    ("delete --partition orders --execute", Exit.USAGE, "--partition 'orders' is not TOPIC-PARTITION: "),
    ("restore labels-0.dead --execute", Exit.USAGE, "no directory labels-0.dead in the log dirs hint: logagent scan "
     "lists them"),
    ("restore /etc/passwd --execute", Exit.USAGE, "no directory /etc/passwd in the log dirs hint: logagent scan lists"),
    ("cleanup --log-dir /nowhere --execute", Exit.CONFIG, "--log-dir /nowhere: it is not a log dir hint: the broker's "
     "log dirs are "),
    ("explain --what-if retention.ms", Exit.USAGE, "--what-if retention.ms: the value is missing hint: logagent "
     "explain --what-if retention.ms=VALUE"),
    ("explain --what-if retention.ms=3x", Exit.USAGE, "'3x' is not a duration: add a unit, for example 30s, 15m, 24h "
     "or 7d hint: logagent explain --what-if retention.ms=VALUE"),
    ("history --state-dir /nowhere", Exit.OK, "/nowhere is not there: another --state-dir has a journal of its own"),
    ("history --state-dir /etc/passwd", Exit.FAILED, "the journal /etc/passwd/journal.db cannot be used: Not a "
     "directory hint: "),
]  # fmt: skip
ANYWHERE = {
    "histroy": "did you mean history?",
    "resotre x": "did you mean restore?",
    "docter": "did you mean doctor?",
    "config chekc": "Did you mean 'check'?",
    "topics staus": "Did you mean 'status'?",
    "scan --al": "Did you mean",
    "restore --repalce x": "Did you mean '--replace'?",
    "queue --execute": "--execute is an option of cleanup, delete, restore, rescue, setup",
    "cleanup --topic x": "--topic is an option of delete, topics delete, topics purge",
    "schema paln": "did you mean plan?",
    "topics run --interval 5": "--interval: '5' is not a duration",
    "topics keygen /etc/passwd": "hint: name another file",
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    made = Host.from_disk(tmp_path_factory.mktemp("mistyped"))
    made.with_assignments(**NO_LIMITS)
    return made


@pytest.mark.parametrize("line, status, said", ON_A_HOST, ids=[line for line, _, _ in ON_A_HOST])
def test_a_mistyping_is_said_in_whole_and_changes_nothing(host: Host, line: str, status: Exit, said: str) -> None:
    before = host.snapshot()
    ran = host.run(*line.split())
    assert ran.status == status and said in _words(ran.err), ran.err
    assert "Traceback" not in ran.err and ran.out == ""
    for columns in WIDTHS:
        lines = plain(on_a_terminal(host.arguments(*line.split()), columns=columns))
        assert _words("\n".join(lines)) == _words(ran.err)
    assert host.snapshot() == before


@pytest.mark.parametrize("line", ANYWHERE)
def test_what_was_meant_is_found_without_a_host(line: str) -> None:
    ran = run_here(*line.split())
    assert ran.status == Exit.USAGE and ANYWHERE[line] in ran.err and ran.out == "", ran.err


def _words(text: str) -> str:
    return " ".join(text.split())
