"""`logagent check` beside real brokers: what it calls fatal ends or hurts a start, what it calls harmless does not.

Every case damages a disk, asks `check` about it for one release, and then starts a broker of that release on it. A
default run takes the versions that a case names as quick; `tests/run --full` takes the whole matrix.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from logagent.cli.main import run as logagent
from logagent.model.check import linter
from tests.broker.check.conftest import Preparer
from tests.broker.check.corpus import CORPUS
from tests.broker.check.start_cases import ACCESS, CASES, ZOOKEEPER, Case
from tests.broker.check.starts import NOBODY, Disk, Outcome, outcome
from tests.broker.check.test_other_release import CHANGES
from tests.long_form import FULL
from tests.needs import need_root


def matrix(cases: list[Case]) -> list[Any]:
    """The (case, version) pairs of this run, by version, so that each disk is prepared once."""
    pairs = [(case, version) for case in cases for version in (case.outcomes if FULL else case.quick)]
    pairs.sort(key=lambda pair: pair[1])
    return [pytest.param(case, version, id=f"{version} {case.id}") for case, version in pairs]


def checked(disk: Disk, capsys: pytest.CaptureFixture[str], version: str, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit status and document of `logagent check --json` for the broker of `disk`."""
    # A disk under many tests at once may be slow, and these are not about slow disks.
    config = disk.root.parent / "logagent.toml"
    config.write_text('[health]\nprobe_timeout = "5m"\n')
    arguments = ["check", "--json", "--kafka-config", str(disk.node.config), "--config", str(config)]
    arguments += ["--state-dir", str(disk.root.parent / "state")]
    capsys.readouterr()
    status = logagent([*arguments, "--kafka-version", version, *more])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return status, document


def of_severity(document: dict[str, Any], severity: str) -> set[str]:
    return {f["code"] for f in document["findings"] if f["severity"] == severity}


def compare(disk: Disk, case: Case, version: str, status: int, document: dict[str, Any]) -> None:
    """What was said beforehand, and then what the broker does."""
    expected = case.outcomes[version]
    fatal = of_severity(document, "fatal")
    said = {f["code"] for f in document["findings"]}
    if expected is Outcome.STARTS:
        assert fatal == set(), document["findings"]
        # A log dir that is not there is offline, also where the broker would make it.
        assert status == (5 if "log-dir-missing" in said else 0)
        assert set(case.also) <= said
    else:
        assert fatal == set(case.codes), document["findings"]
        assert status in (5, 6)
    if case.where is not None:
        assert str(disk.root / case.where) in {f["path"] for f in document["findings"]}
    patience = case.patience if expected is Outcome.OFFLINE else 0
    assert outcome(disk, patience, write=case.write) is expected, disk.node.log_tail()


@pytest.mark.parametrize(("case", "version"), matrix(CASES))
def test_a_real_broker_does_what_check_says(
    prepared: Preparer, capsys: pytest.CaptureFixture[str], case: Case, version: str
) -> None:
    need_root()
    with prepared(version, "zookeeper" if version in ZOOKEEPER else "combined").disk() as disk:
        case.damage(disk)
        status, document = checked(disk, capsys, version)
        compare(disk, case, version, status, document)


@pytest.mark.parametrize(("case", "version"), matrix(ACCESS))
def test_a_broker_without_privileges_does_what_check_says(
    prepared_as_nobody: Preparer, capsys: pytest.CaptureFixture[str], case: Case, version: str
) -> None:
    with prepared_as_nobody(version).disk() as disk:
        case.damage(disk)
        status, document = checked(disk, capsys, version, "--broker-user", str(NOBODY))
        compare(disk, case, version, status, document)


def test_every_fatal_code_was_seen_on_a_real_broker() -> None:
    """By the table of codes. A symlink's target is emptied later than at the start: test_check_live shows that; names
    that are too long, tests/broker/execute/test_before_2_4.py. A broker starts with two partitions in one dir, and
    one overwrites the other: no outcome of a start."""
    table = linter.__doc__ or ""
    fatal = set(re.findall(r"^([a-z][a-z-]+) +fatal ", table, re.MULTILINE))
    shown = {
        code for case in [*CASES, *ACCESS] for code in case.codes if set(case.outcomes.values()) - {Outcome.STARTS}
    }
    shown |= {code for damage in CORPUS for code in damage.codes}
    shown |= {code for change in CHANGES for code in change.codes}
    assert fatal - shown == {"delete-through-link", "too-long-to-delete", "linked-partition"}
    assert shown <= fatal


def test_a_default_run_shows_every_fatal_code_that_its_releases_know() -> None:
    quick = {
        code
        for case in [*CASES, *ACCESS]
        if any(case.outcomes[version] is not Outcome.STARTS for version in case.quick)
        for code in case.codes
    }
    quick |= {code for change in CHANGES if change.quick for code in change.codes}
    every = {code for case in [*CASES, *ACCESS] for code in case.codes}
    every |= {code for change in CHANGES for code in change.codes}
    assert every - quick == {"stray-unsupported", "cache-unsupported"}
