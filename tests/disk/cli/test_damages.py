"""`logagent check` on a real disk with each damage of the table, beside what the table says that it finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.command_line import run_here
from tests.damages import DAMAGES
from tests.damages.disk import CONFIGURATION, NOBODY, Disk, StoppedNode
from tests.damages.row import Damage, Kind, answers, findings
from tests.disk.conftest import run
from tests.long_form import FULL
from tests.needs import need_root

# Kind of node to the releases of which there is a disk.
FIXTURES: dict[Kind, tuple[str, ...]] = {
    "combined": ("4.4.0", "3.9.1"),
    "broker": ("4.4.0",),
    "controller": ("4.4.0",),
    "dynamic": ("4.4.0",),
    "zookeeper": ("3.5.2",),
    "unprivileged": ("4.4.0", "3.9.1"),
}


def rows() -> Iterator[tuple[Damage, Kind, str]]:
    """In a default run one release where all say the same, and of the kinds that say the same one."""
    for damage in DAMAGES.values():
        told: set[tuple[str, ...]] = set()
        for kind in damage.kinds:
            answers = damage.answers(kind)
            for release in (release for release in FIXTURES[kind] if release in answers):
                if damage.trimmed and release != "4.4.0":
                    continue
                if FULL or answers[release].found not in told:
                    told.add(answers[release].found)
                    yield damage, kind, release


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    ("damage", "kind", "release"), [pytest.param(*row, id=f"{row[2]} {row[1]} {row[0].id}") for row in rows()]
)
def test_check_finds_what_the_table_says(
    tmp_path: Path, undo: ExitStack, damage: Damage, kind: Kind, release: str
) -> None:
    need_root()
    made = "combined" if kind == "unprivileged" else kind
    node = StoppedNode(tmp_path / "node", f"{release}-{made}{'-trimmed' * damage.trimmed}")
    options = []
    if kind == "unprivileged":
        run("chown", "-R", f"{NOBODY}:{NOBODY}", node.root)
        options = ["--broker-user", str(NOBODY)]
    disk = Disk(node, undo)
    damage.do(disk)
    (tmp_path / "logagent.toml").write_text(CONFIGURATION)
    options += ["--kafka-config", str(node.config), "--config", str(tmp_path / "logagent.toml")]
    ran = run_here("check", "--json", "--kafka-version", release, "--state-dir", str(tmp_path / "state"), *options)
    answer = damage.answers(kind)[release]
    assert findings(ran.json["findings"]) == answer.found, ran.json["findings"]
    gone = any(health["health"] == "offline" for health in ran.json["log_dirs"])
    assert ran.status == (5 if gone else 6 if answer.fatal else 0)


def test_every_row_is_in_both_files_of_the_table() -> None:
    assert [damage.id for damage in DAMAGES.values() if not damage.kinds] == []
    assert {name for name, _ in answers()} == {*DAMAGES}
