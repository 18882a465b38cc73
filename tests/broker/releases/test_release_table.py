"""The table of what releases support is what their own classes say, as far as their jars are here."""

from __future__ import annotations

import subprocess
import sys

import pytest

import logagent.model.check.release_table as table
from tests.broker.releases.facts import TABLE, TABLED, cached, made_table, release_row
from tests.broker.rig.jars import version_tuple
from tests.long_form import FULL
from tests.needs import need_command

# What other tests of a default run start; of others that are here, the jars are read as well.
OFTEN = ("3.7.0", "3.9.1", "4.3.1")
READ = sorted({*OFTEN, *cached(), *(TABLED if FULL else ())}, key=version_tuple)


@pytest.mark.parametrize("version", READ)
def test_a_row_is_what_the_classes_of_its_release_say(version: str) -> None:
    """Of every patch that is here, too: the table has one row for all of a minor release."""
    need_command("javac")
    row = table.RELEASES[version_tuple(version)[0], version_tuple(version)[1]]
    assert row._replace(patch=version) == release_row(version)


def test_every_minor_release_has_a_row_of_its_newest_patch() -> None:
    assert [row.patch for row in table.RELEASES.values()] == list(TABLED)


@pytest.mark.skipif(not FULL, reason="fetches the jars of every release: LOGAGENT_TESTS_FULL=1")
def test_the_table_is_what_the_script_makes() -> None:
    need_command("javac")
    ruff = [sys.executable, "-m", "ruff", "format", "-"]
    assert (
        subprocess.run(ruff, input=made_table(), capture_output=True, text=True, check=True).stdout == TABLE.read_text()
    )
