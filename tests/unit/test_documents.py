"""README and docs say what the program has: commands, options, settings, metrics, alerts, guards, columns, messages."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType

import pytest

import logagent
from logagent.base.config.settings import Settings
from logagent.base.errors import Exit
from logagent.cleanup.plan.plan import GUARD_NAMES
from logagent.service.metrics import METRICS
from tests.markdown import (
    ALL,
    DOCS,
    PAGES,
    ROOT,
    anchors,
    blocks,
    commands,
    inline_code,
    links,
    name_of,
    prose,
    why_not_a_command,
)

# Hosts of others that a page may lead to.
KNOWN_HOSTS = {"issues.apache.org", "developmentseed.org"}
RULES = (ROOT / "config/prometheus-rules.yml").read_text(encoding="utf-8")


def _settings() -> dict[str, set[str]]:
    """Section → its keys."""
    sections = {field.name: getattr(Settings(), field.name) for field in fields(Settings)}
    return {name: {key.name for key in fields(section)} for name, section in sections.items() if is_dataclass(section)}


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "packaging/reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_every_link_leads_to_something(page: Path) -> None:
    wrong = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        if "://" in target:
            if target.split("/")[2] not in KNOWN_HOSTS:
                wrong.append(target)
            continue
        there = (page.parent / path).resolve() if path else page
        inside = ROOT / "docs" if page in DOCS else ROOT  # the site has nothing but docs/
        if not there.is_relative_to(inside) or not there.exists() or (anchor and anchor not in anchors(there)):
            wrong.append(target)
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_and_option_exists(page: Path) -> None:
    shown = [b.text for b in blocks(page) if b.language in ("sh", "bash")]
    shown += [code for code in inline_code(page) if re.match(r"(\S*/)?logagent [a-z]", code)]
    wrong = [why for text in shown for words in commands(text) if "…" not in words
             if (why := why_not_a_command([word for word in words if word != "…"])) is not None]  # fmt: skip
    assert [why for why in wrong if not re.match(r"no such command: logagent (COMMAND|in)$", why)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_setting_and_metric_exists(page: Path) -> None:
    sections = _settings()
    named = [code for code in inline_code(page) if re.fullmatch(r"[a-z]+\.[a-z_]+( = .+)?", code)]
    settings = [code.partition(" ")[0].split(".") for code in named if code.split(".")[0] in sections]
    assert [s for s in settings if s[1] not in sections[s[0]]] == []
    variables = re.findall(r"\bLOGAGENT_([A-Z]+)__([A-Z_]+)", page.read_text(encoding="utf-8"))
    example = [("SECTION", "KEY")]
    assert [v for v in variables if v not in example and v[1].lower() not in sections.get(v[0].lower(), ())] == []
    metrics = {m for code in inline_code(page) for m in re.findall(r"\blogagent_[a-z_]+[a-z]\b", code)}
    assert metrics <= METRICS.keys()


def test_the_reference_is_what_the_program_says(tmp_path: Path) -> None:
    # In a process of its own: click keeps the options of --help that a command was first called with.
    subprocess.run([sys.executable, ROOT / "packaging/reference.py", tmp_path], check=True)
    made = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert len(made) > 5
    stale = [name for name, text in made.items() if (ROOT / "docs/reference" / name).read_text("utf-8") != text]
    assert stale == [], "run packaging/reference.py"


def test_every_setting_is_in_the_reference(reference: ModuleType) -> None:
    listed = {(section, name) for section, name, _, _ in reference.settings()}
    assert listed == {(section, key) for section, keys in _settings().items() for key in keys}


def test_every_alert_has_its_section() -> None:
    alerts = re.findall(r"- alert: (\w+)\n(?:        .*\n)*?        labels: \{severity: (\w+)\}", RULES)
    assert len(alerts) == RULES.count("- alert:")
    text = (ROOT / "docs/reference/alerts.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)\n\nSeverity (\w+)\.", text, re.MULTILINE) == alerts
    for section in text.split("\n## ")[1:]:
        assert re.search(r"^1\. ", section, re.MULTILINE), section


def test_every_guard_is_explained() -> None:
    section = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8").split("## By guard")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)) == set(GUARD_NAMES)


def test_exit_statuses_that_are_explained_exist() -> None:
    section = (ROOT / "docs/troubleshooting.md").read_text("utf-8").split("## By exit status")[1].split("\n## ")[0]
    shown = [int(number) for number in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)]
    assert len(shown) > 4 and set(shown) <= {int(e) for e in Exit}


def test_every_message_that_is_explained_is_one_of_the_program() -> None:
    section = (ROOT / "docs/troubleshooting.md").read_text("utf-8").split("## By message")[1].split("\n## ")[0]
    messages = re.findall(r"^\| (?!---|message)(.+?) \|", section, re.MULTILINE)
    assert len(messages) > 8
    sources = "".join(path.read_text("utf-8") for path in sorted((ROOT / "logagent").rglob("*.py")))
    # A message is put together from literals over several lines.
    said = re.sub(r"\s+", " ", re.sub(r"\"\s*\n\s*f?\"", "", sources))
    pieces = [piece.strip(" ,()") for message in messages for piece in message.split("…")]
    assert [piece for piece in pieces if piece not in said and len(piece) > 3] == []


def test_every_page_is_in_the_site() -> None:
    nav = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(nav) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in DOCS)


def test_no_line_of_a_block_asks() -> None:
    """On a terminal it would read the next pasted line as its answer."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    blocks = [
        b for page in pages for b in re.findall(r"^```(?:ba)?sh\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    ]
    asking = re.compile(r"^(?:logagent setup\b(?=.* --execute)|(?:apt|dnf) install\b)(?!.* (?:--yes|-y)\b)")
    lines = [line for block in blocks for line in block.splitlines()]
    assert any(line.startswith("logagent setup") for line in lines), lines
    assert [line for line in lines if asking.match(line)] == []


def test_readme_and_changelog_are_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert len(changes.splitlines()) <= 150
    assert re.findall(r"^## (.+)$", changes, re.MULTILINE)[0] == logagent.__version__


def test_the_two_commands_of_the_readme_are_those_of_ci() -> None:
    first = next(b for b in blocks(ROOT / "README.md") if b.language == "bash").text.splitlines()
    assert len(first) == 2 and first[0].endswith("logagent demo && .venv/bin/logagent fleet demo")
    assert (ROOT / ".ci/run").read_text("utf-8").rstrip().endswith(f"exec {first[1]}")


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_nothing_is_installed_by_a_name_that_nobody_owns(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert (
        re.findall(r"(?:pip|pipx|uv)[\w -]* install [^\n`&;]*(?<![/\w])logagent\b(?!\S*\.(?:whl|deb|rpm))", text) == []
    )


def test_the_version_table_names_releases_that_the_tests_start() -> None:
    table = prose(ROOT / "docs/index.md").split("## For which Kafka?")[1].split("\n## ")[0]
    named = {v for row in re.findall(r"^\| ([\d., ]+) \|", table, re.MULTILINE) for v in row.split(", ")}
    tests = [*sorted((ROOT / "tests/broker").rglob("*.py")), ROOT / "tests/damages/answers.tsv"]
    started = "".join(path.read_text("utf-8") for path in tests)
    assert len(named) > 10
    assert [v for v in named if not re.search(rf"\b{re.escape(v)}\b", started)] == []
