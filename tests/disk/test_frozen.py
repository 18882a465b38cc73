"""`python -m tests.frozen`: two runs are equal, and what changed is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.frozen.__main__ import HERE, save_all, show_differences
from tests.frozen.masks import Raw, masked
from tests.long_form import long_form
from tests.needs import need_command, need_root


@long_form
def test_two_runs_are_equal_and_a_changed_byte_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan that needs approval, what a cleanup did to a disk, and what Kafka was asked about names."""
    need_root()
    need_command("unshare", "mount")
    before, after = tmp_path / "before", tmp_path / "after"
    assert save_all(before, HERE, "names") == 0
    assert save_all(before, HERE, "limits/3.9.1*") == 0
    assert "masked: " in capsys.readouterr().out
    shutil.copytree(before, after)
    assert show_differences(before, after, "*") == 0
    assert capsys.readouterr().out == "2 cases compared, 0 differ\n"
    changed = next(after.glob("limits/*.txt"))
    text = changed.read_text()
    assert "exit 4" in text and "needs approval" in text
    changed.write_text(text.replace("exit 4", "exit 3", 1))
    assert show_differences(before, after, "*") == 1
    shown = capsys.readouterr().out
    assert "-exit 4\n+exit 3\n" in shown and shown.endswith("2 cases compared, 1 differ\n")
    changed.unlink()
    assert show_differences(before, after, "*") == 1


UUIDS = ["0123456789abcdef" * 2, "fedcba9876543210" * 2]
OTHERS = ["00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100"]
FIXED = "aaaabbbbccccdddd" * 2


def _raw(uuids: list[str], root: str, started: str, due: str, words: str = "guard: assigned") -> Raw:
    names = f"{root}/a-0.{uuids[0]}-delete {root}/b-0.{FIXED}-stray {root}/a-0.{uuids[0]}-delete {uuids[1]}"
    return Raw(root, 1_800_000_000.0, f"{names}\nat {started} due {due} from 2026-11-21T11:10:45Z\n{words}\n")


def test_only_what_differs_by_chance_is_masked() -> None:
    first = _raw(UUIDS, "/tmp/frozen-aaaa", "2027-01-15T08:00:00.123Z", "2027-01-16T08:00:01.000Z")
    second = _raw(OTHERS, "/tmp/frozen-bbbb", "2027-01-15T08:00:02.456Z", "2027-01-16T08:00:03.789Z")
    one, two = masked(first, second).text, masked(second, first).text
    assert one == two
    assert one == (
        f"<root>/a-0.<uuid 1>-delete <root>/b-0.{FIXED}-stray <root>/a-0.<uuid 1>-delete <uuid 2>\n"
        "at <time> due <time+1d> from 2026-11-21T11:10:45Z\nguard: assigned\n"
    )


def test_moments_of_two_runs_may_be_the_same_millisecond() -> None:
    """What one run has in one place and the other in another one; then, in the same place."""
    early, late = "2027-01-15T08:00:01.297Z", "2027-01-15T08:00:02.456Z"
    for times in (((late, early), (early, late)), ((early, late), (late, late)), ((late, late), (late, early))):
        first, second = (_raw(uuids, "/tmp/frozen-aaaa", *at) for uuids, at in zip((UUIDS, OTHERS), times, strict=True))
        one, two = masked(first, second).text, masked(second, first).text
        assert one == two and "at <time> due <time> from 2026-11-21T11:10:45Z" in one, f"{one}\n{two}"
    day_after, later = "2027-01-16T08:00:01.297Z", "2027-01-17T08:00:01.297Z"
    first = _raw(UUIDS, "/tmp/frozen-aaaa", day_after, later)
    second = _raw(OTHERS, "/tmp/frozen-bbbb", "2027-01-16T08:00:02.456Z", later.replace("01.297", "03.789"))
    second = Raw(second.root, second.started, second.text + "\n")
    assert "at <time+1d> due <time+2d>" in masked(first, second).text
    crossed = Raw(second.root, second.started, second.text.replace("2027-01-17T08:00:03.789Z", day_after))
    assert "at <time+1d> due <time+2d>" in masked(first, crossed).text


@pytest.mark.parametrize("what", ["order", "link", "due", "guard"])
def test_what_means_something_is_not_masked(what: str) -> None:
    times = ("2027-01-15T08:00:00.123Z", "2027-01-16T08:00:01.000Z")
    first = _raw(UUIDS, "/tmp/frozen-aaaa", *times)
    second = _raw(OTHERS, "/tmp/frozen-bbbb", "2027-01-15T08:00:01.000Z", "2027-01-16T08:00:02.000Z")
    text = second.text
    changed = {
        "order": "\n".join(reversed(text.split("\n"))),
        "link": text.replace(OTHERS[0], OTHERS[1], 1),
        "due": text.replace("2027-01-16", "2027-01-17"),
        "guard": text.replace("assigned", "in-use"),
    }[what]
    second = Raw(second.root, second.started, changed)
    assert masked(first, second).text != masked(second, first).text
