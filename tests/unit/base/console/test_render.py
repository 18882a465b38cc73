"""Tables: what is left out, folded and shortened where there is little room."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.console.render import PIPE_WIDTH, did_you_mean, names_around, shortened, table

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
    hidden = lines[1].startswith("Hidden columns: ") and "becomes" in lines[1]
    assert hidden == (columns < 120) == ("becomes" not in lines[3 if hidden else 2])
    assert [_ for _ in ROWS if "1.0 KiB" not in "".join(lines)] == []


def test_in_a_pipe_no_word_is_broken_where_nothing_may_shrink(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`COLUMNS=80 logagent scan | grep topic-recreated` finds it."""
    monkeypatch.setenv("COLUMNS", "60")
    table("Long", [(f"heading {n}", "left") for n in range(5)], [["x" * 30] * 5], color=False)
    assert capsys.readouterr().out.rstrip().splitlines()[-1].split() == ["x" * 30] * 5


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
        "Strays [past]\\tretention",
        "Hidden columns: kind. --json",
        "has them.",
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


LONG = f"/data/d1/{'t' * 90}-0.{HEX}-stray"
DIRS = [f"/data/d1/orders-3.{HEX}-stray", f"/data/d1/orders-4.{HEX}-delete", "/data/d2/clicks-0", LONG]


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


def test_of_a_directory_the_uuid_is_cut_first_then_its_log_dir_stands_above(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(columns: int, dirs: list[str]) -> list[str]:
        on_terminal(monkeypatch, columns)
        table("", [("directory", "dir"), ("why", "left")], [[d, "y" * 12] for d in dirs], color=False)
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()[3:-1]]

    assert rows(80, DIRS[:1]) == [f" {DIRS[0]}   {'y' * 12}"]
    assert rows(60, DIRS[:1]) == [f" /data/d1/orders-3.0123…-stray   {'y' * 12}"]
    assert rows(40, DIRS[:3]) == [
        "/data/d1",
        f" orders-3.0123…-stray    {'y' * 12}",
        f" orders-4.0123…-delete   {'y' * 12}",
        "/data/d2",
        f" clicks-0                {'y' * 12}",
    ]
    assert rows(80, DIRS[1:]) == [
        "/data/d1",
        f" orders-4.0123…-delete   {'y' * 12}",
        f" {'t' * 90}-0.0123…-stray",
        f"                         {'y' * 12}",
        "/data/d2",
        f" clicks-0                {'y' * 12}",
    ]


def test_rows_whose_order_tells_something_keep_it_below_the_log_dir(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch, 40)
    rows = [[f"/data/of/a/broker/{d}/{'x' * 25}-0", "one plan"] for d in ("d1", "d2", "d1")]
    table("", [("directory", "dir"), ("plan", "above?")], rows, color=False)
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("/")] == [
        f"/data/of/a/broker/{d}   plan one plan" for d in ("d1", "d2", "d1")
    ]


def test_in_a_pipe_nothing_is_hidden_because_the_terminal_is_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`export COLUMNS; logagent scan | less -S`: rows are as long as their names anyway."""
    monkeypatch.setenv("COLUMNS", "80")
    rows = [[f"/data/d1/{'t' * 60}-0", "1.0 KiB", "2.0 KiB"]]
    table("", [("directory", "dir"), ("size", "right?"), ("allocated", "right?")], rows, color=False)
    out = capsys.readouterr().out
    assert "Hidden" not in out and "2.0 KiB" in out


def test_a_name_that_does_not_fit_behind_its_columns_stands_before_its_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch, 80)
    topic = "t" * 60
    rows = [["leftovers", f"/data/d1/{name}", "1.0 KiB"] for name in ("a-0", f"{topic}-11.{HEX}-stray", f"{topic}-1")]
    table("", [("step", "left"), ("directory", "dir"), ("frees", "right")], rows, color=False)
    assert capsys.readouterr().out.splitlines()[3:-1] == [
        "/data/d1",
        " leftovers   a-0         1.0 KiB",
        f" {topic}-11.0123…-stray",
        " leftovers               1.0 KiB",
        f" leftovers   {topic}-1",
        "                         1.0 KiB",
    ]


def test_two_that_only_their_uuids_tell_apart_show_enough_of_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch, 40)
    names = [f"orders-3.01234567{digit}{HEX[9:]}-stray" for digit in "8f"]
    table("", [("directory", "dir"), ("", "left")], [[f"/data/d1/{name}", "yyy"] for name in names], color=False)
    out = capsys.readouterr().out
    assert "orders-3.012345678…" not in out and "orders-3.0123456789ab…-stray" in out
    assert "orders-3.01234567f9ab…-stray" in out


def test_a_pipe_gets_directories_whole_and_loses_no_column_for_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    very_long = f"/data/d1/{'t' * 200}-0.{HEX}-delete"
    rows = [[d, "1.0 KiB", "y " * 60] for d in (*DIRS, very_long)]
    table("", [("directory", "dir"), ("size", "right?"), ("why", "text")], rows, color=False)
    out = capsys.readouterr().out
    assert [d for d in (*DIRS, very_long) if f" {d} " not in out] == []
    assert "no room" not in out and out.count("1.0 KiB") == 5


def test_no_word_is_broken_where_there_is_room(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch, 70)
    said = "no topic has the id z9Bc4zKfQdqsPKIwD-NxxQ, by kafka.bootstrap_servers"
    table("", [("directory", "dir"), ("what", "text"), ("why", "text")], [["d/x-0", said, said]], color=False)
    out = capsys.readouterr().out
    assert out.count("z9Bc4zKfQdqsPKIwD-NxxQ") == 2 and out.count("kafka.bootstrap_servers") == 2


def test_a_setting_that_is_too_long_for_a_line_is_broken_before_its_value(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch, 42)
    setting = "log.segment.delete.delay.ms=86400000"
    table("", [("why", "text"), ("dirs", "right")], [[f"a move: {setting} (file)", "1" * 9]], color=False)
    folded = [line.split("  ")[0].strip() for line in capsys.readouterr().out.splitlines()]
    assert folded[-4:-1] == ["a move:", "log.segment.delete.delay.ms=", "86400000 (file)"]


def test_a_table_of_nothing_is_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    table("Plan", [("a", "left"), ("b", "left")], [["", ""]], color=False)
    assert capsys.readouterr().out == ""


def test_of_very_many_names_those_around_it_in_the_alphabet_are_compared() -> None:
    names = sorted(f"orders-{n}" for n in range(100_000))
    assert "orders-77777" in did_you_mean("orders-77777x", names)
    for text in ("aaa", "orders-5", "zzz"):
        some = names_around(text, names)
        assert 0 < len(some) <= 2000 and set(some) <= set(names)
    assert names_around("orders-5", names[:2000]) == names[:2000]


def test_no_word_is_broken_while_names_can_take_a_line_of_their_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    until = "2026-11-27 16:23:14Z (in 58m 37s)"
    columns = [("action", "left"), ("directory", "dir"), ("waits for", "text"), ("until", "text")]
    rows = [["remove", f"/d1/orders-2019-{n}.{HEX}-delete", "file.delete.delay.ms", until] for n in range(3)]
    table("Waiting", columns, rows, color=False)
    out = capsys.readouterr().out
    assert out.count("file.delete.delay.ms") == out.count("2026-11-27 16:23:14Z") == 3
    assert [line for line in out.splitlines() if len(line) > 80] == []
