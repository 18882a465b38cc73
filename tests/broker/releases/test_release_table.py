"""The table of what releases support is what their own classes say, as far as their jars are here."""

from __future__ import annotations

import subprocess
import sys

import pytest

import logagent.kafka.release_table as table
from logagent.kafka.retention.settings import BROKER_SETTINGS, OF_NO_ACCOUNT, TOPIC_SETTINGS, Layers, is_not_considered
from tests.broker.releases.facts import TABLE, TABLED, cached, made_table, release_facts, release_row
from tests.broker.rig.jars import version_tuple
from tests.long_form import FULL, long_form
from tests.needs import need_command

# What other tests of a default run start; in the long form every release that is in the table or here.
OFTEN = ("3.9.1", "4.3.1", "4.4.0")
READ = sorted({*OFTEN, *((*cached(), *TABLED) if FULL else ())}, key=version_tuple)


@pytest.mark.parametrize("version", READ)
def test_a_row_is_what_the_classes_of_its_release_say(version: str) -> None:
    """Of every patch that is here, too: the table has one row for all of a minor release. Which settings differ between
    releases is for the long form to show, which has the jars of all."""
    need_command("javac")
    row = table.RELEASES[version_tuple(version)[0], version_tuple(version)[1]]
    assert row._replace(patch=version) == release_row(version, tabled_limits)


def tabled_limits(kind: str) -> list[str]:
    rows = table.RELEASES.values()
    return sorted({name for row in rows for name in (row.broker_limits if kind == "broker" else row.topic_limits)})


@pytest.mark.parametrize("version", READ)
def test_each_setting_of_a_release_that_is_near_ours_is_read_or_known_not_to_be(version: str) -> None:
    """Names that are new in a release turn up here: are they to be read, of no account, or not modelled?"""
    need_command("javac")
    configs = release_facts(version)["configs"]
    assert {name for of in configs.values() for name in of if is_not_considered(name)} == set()


def test_the_settings_and_defaults_that_explain_reads_are_those_of_the_newest_release() -> None:
    need_command("javac")
    configs = release_facts(TABLED[-1])["configs"]
    assert set(TOPIC_SETTINGS) <= configs["topic"].keys() | configs["broker"].keys()
    for name in TOPIC_SETTINGS:
        found = Layers(file={}).default(name)
        assert found.text == configs["broker" if name in BROKER_SETTINGS else "topic"][found.key], name
    # `log.message.*` went with 4.0, and everything else that is passed over is a setting still.
    gone = {name for name in OF_NO_ACCOUNT if name not in configs["broker"] | configs["topic"]}
    assert [name for name in gone if not name.startswith("log.message.")] == []


def test_every_minor_release_has_a_row_of_its_newest_patch() -> None:
    assert [row.patch for row in table.RELEASES.values()] == list(TABLED)


@long_form
def test_the_table_is_what_the_script_makes() -> None:
    need_command("javac")
    ruff = [sys.executable, "-m", "ruff", "format", "-"]
    assert (
        subprocess.run(ruff, input=made_table(), capture_output=True, text=True, check=True).stdout == TABLE.read_text()
    )
