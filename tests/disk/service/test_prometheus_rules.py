"""config/prometheus-rules.yml: valid for Prometheus' own tool, about metrics that exist, with advice that can be
followed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from logagent.base.records import Health, Outcome
from logagent.cli import COMMANDS
from logagent.deletion.store.answers import State
from logagent.service.metrics import METRICS
from tests.needs import need_command

ROOT = Path(__file__).parents[3]
RULES = ROOT / "config/prometheus-rules.yml"
TESTS = sorted((ROOT / "tests/fixtures/prometheus").glob("*.test.yml"))
TEXT = RULES.read_text()
RUNBOOK = (ROOT / "docs/reference/alerts.md").read_text()
ALERTS = re.findall(r"- alert: (\w+)\n((?:        .*\n)+)", TEXT)


def promtool(*arguments: str | Path) -> None:
    need_command("promtool")
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_them() -> None:
    promtool("check", "rules", "--lint-fatal", RULES)


def test_every_alert_fires_when_it_should_and_only_then() -> None:
    assert len(TESTS) == 2
    promtool("test", "rules", *TESTS)


def test_every_alert_is_in_those_tests() -> None:
    tested = "".join(path.read_text() for path in TESTS)
    assert len(ALERTS) >= 15
    assert [name for name, _ in ALERTS if f'alertname="{name}"' not in tested] == []


def test_they_ask_for_metrics_and_labels_that_exist() -> None:
    # The head of the file is prose.
    asked = re.findall(r"\b((?:logagent|kafka)_\w+)(?:\{([^}]*)\})?", TEXT.partition("groups:")[2])
    names = {name for name, _ in asked}
    assert names <= METRICS.keys()
    assert len(names) > 15
    for name, matchers in asked:
        labels = set(re.findall(r"(\w+)=", matchers))
        assert labels <= set(METRICS[name].labels), name


def test_they_ask_for_label_values_that_exist() -> None:
    answered = re.compile(r'logagent_requests_directories\{state="(\S+?)"')
    assert set(answered.findall(TEXT)) <= set(get_args(State))
    assert set(re.findall(r'state="(\S+?)"', answered.sub("", TEXT))) <= set(Health)
    assert set(re.findall(r'outcome="(\S+?)"', TEXT)) <= set(Outcome)


@pytest.mark.parametrize(("name", "body"), ALERTS, ids=[name for name, _ in ALERTS])
def test_each_says_what_it_means_and_what_to_do(name: str, body: str) -> None:
    assert name.startswith("Logagent")
    assert re.search(r"labels: \{severity: (critical|warning)\}", body)
    for annotation in ("summary", "description", "action", "runbook_url"):
        assert re.search(rf"^          {annotation}: \S", body, re.MULTILINE), annotation
    assert "$labels.instance" in body


def test_each_has_a_section_in_the_runbook_and_links_to_it() -> None:
    sections = re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)
    assert sections == [name for name, _ in ALERTS]
    for name, body in ALERTS:
        assert f'runbook_url: "file:///usr/share/doc/logagent/docs/reference/alerts.md#{name.lower()}"' in body


def test_the_commands_that_they_name_exist() -> None:
    named = set(re.findall(r"(?:`|^)logagent (\w+)", TEXT + RUNBOOK, re.MULTILINE))
    assert named >= {"status", "check", "cleanup", "queue", "history", "scan"}
    assert named <= set(COMMANDS)
