"""Tables: what is left out, folded and shortened where there is little room."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.cli.render import PIPE_WIDTH, shortened, table

HEX = "0123456789abcdef" * 2
COLUMNS = [("action", "left"), ("directory", "path"), ("becomes", "path?"), ("size", "right"), ("why", "text")]
ROWS = [["mark", f"/srv/kafka/d1/{n}{'t' * 200}-0", f"{n}{'t' * 190}.{HEX}-delete", "1.0 KiB", "y " * 40] for n in "ab"]


def drawn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int | None) -> list[str]:
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", str(columns))
    table("Plan", COLUMNS, ROWS, color=False)
    return capsys.readouterr().out.splitlines()


def test_a_pipe_is_200_columns_wide(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(capsys, monkeypatch, None)
    assert 150 < max(map(len, lines)) <= PIPE_WIDTH
    assert "becomes" in lines[2]


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_a_table_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    lines = drawn(capsys, monkeypatch, columns)
    assert max(map(len, lines)) <= columns
    assert ("no room for becomes" in lines[0]) == (columns < 120) == ("becomes" not in lines[2])
    assert all("1.0 KiB" in "".join(lines) for _ in ROWS)


def test_where_nothing_may_shrink_everything_folds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    table("Long", [(f"heading {n}", "left") for n in range(5)], [["x" * 30] * 5], color=False)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60


def test_what_differs_stays() -> None:
    paths = [f"/disk{n}/kafka-logs/orders-{p}" for n in range(1, 3) for p in range(3)]
    short = shortened(paths, 18)
    assert len(set(short)) == len(paths) and {len(s) for s in short} == {18}
    assert [(s[:6], s[-3:]) for s in short] == [(p[:6], p[-3:]) for p in paths]


def test_the_common_folder_goes_first_and_the_uuid_next() -> None:
    names = [f"/srv/kafka/data/{topic}-0.{HEX}-stray" for topic in ("orders", "payments")]
    assert shortened(names, 51) == [f"…/{topic}-0.{HEX}-stray" for topic in ("orders", "payments")]
    assert [s[:11] for s in shortened(names, 30)] == ["…/orders-0.", "…/payments-"]


@given(st.lists(st.text("ab/-.", max_size=60)), st.integers(20, 70))
def test_no_cell_is_longer_than_its_column(cells: list[str], width: int) -> None:
    short = shortened(cells, width)
    assert [len(s) <= width for s in short] == [True] * len(cells)
    assert [s for s, c in zip(short, cells, strict=True) if len(c) <= width] == [c for c in cells if len(c) <= width]


def test_what_is_drawn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "44")
    columns = [("name", "left"), ("size", "right"), ("nothing", "left"), ("why", "text")]
    table("Plan", columns, [["日本", "1 B", "", "none of the brokers has it"], ["b", "20 B", "", "x"]], color=False)
    assert capsys.readouterr().out.splitlines() == [
        "Plan",
        "",
        " name   size   why",
        " " + "─" * 40,
        " 日本    1 B   none of the brokers has it",
        " b      20 B   x",
        "",
    ]


def test_headings_and_titles_fold_like_cells(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    columns = [("name", "left"), ("failed attempts", "text"), ("kind", "left?")]
    table("Strays [past]\tretention", columns, [["orders-0", "the disk is full", "stray"]], color=False)
    assert capsys.readouterr().out.splitlines() == [
        "Strays [past]\\tretention (no",
        "room for kind)",
        "",
        " name       failed attempts",
        " " + "─" * 27,
        " orders-0   the disk is full",
        "",
    ]


def test_the_head_is_bold_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for on_terminal, color in ((True, True), (True, False), (False, True)):
        monkeypatch.setattr(sys.stdout, "isatty", lambda on_terminal=on_terminal: on_terminal)
        table("", [("name", "left")], [["x"]], color=color)
        head = capsys.readouterr().out.splitlines()[1]
        assert head == ("\x1b[1m name\x1b[0m" if on_terminal and color else " name")


def test_a_table_of_nothing_is_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    table("Plan", [("a", "left"), ("b", "left")], [["", ""]], color=False)
    assert capsys.readouterr().out == ""
