"""Output: JSON for programs, tables for people. Names from disks are hostile: they are escaped, never interpreted.

Streams may be closed, full, or read by nobody any more: what a command does never depends on them. stderr swallows what
cannot be written. stdout does not: a command that only prints has nothing else to do then, and ends; one that acts says
on stderr what was done.
"""

from __future__ import annotations

import io
import os
import re
import select
import sys
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, zip_longest
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unicodedata import combining, east_asian_width

import click

from logagent.base.units import in_units

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from logagent.base.records import Reason


def dump(document: Any) -> None:
    """One JSON document and a newline. ASCII only: bytes that are not UTF-8 appear as `\\udcXX`."""
    import json  # Not at the top, like all that only some commands need: a start is mostly imports.

    json.dump(document, sys.stdout, ensure_ascii=True, indent=2, default=_as_object)
    sys.stdout.write("\n")


def _as_object(value: Any) -> dict[str, Any]:
    """A frozen value with slots is its own document."""
    return {name: getattr(value, name) for name in value.__slots__}


def dump_line(row: Any) -> None:
    import json

    sys.stdout.write(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n")


def dump_rows(rows: Iterable[Any], *, before: str = "[", after: str = "\n]") -> None:
    """One JSON document with a row on each line, written row by row: all rows are never in memory as text."""
    import json

    sys.stdout.write(before)
    for number, row in enumerate(rows):
        sys.stdout.write(("\n" if number == 0 else ",\n") + json.dumps(row, ensure_ascii=True))
    sys.stdout.write(f"{after}\n")


def visible(text: str) -> str:
    """`text` on one line, with everything a terminal could interpret escaped (`\\n`, `\\x1b`, `\\udc80`, …)."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


_MOST_COMPARED: Final = 2000


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """`; did you mean restore?`, to be added to an error; empty if nothing is near."""
    from difflib import get_close_matches

    near = get_close_matches(text, names_around(text, sorted(set(known))), n=3, cutoff=0.7)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def names_around(text: str, names: list[str]) -> list[str]:
    """Of very many sorted names (a host's directories), those around `text`: to compare all would take seconds."""
    if len(names) <= _MOST_COMPARED:
        return names
    at = max(0, bisect(names, text) - _MOST_COMPARED // 2)
    return names[at : at + _MOST_COMPARED]


def human_bytes(count: int) -> str:
    """`1.5 GiB`; exact below 1024."""
    size, unit = in_units(count)
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def human_ms(ms: int) -> str:
    """A duration in its two largest units: `2d 3h`, `5m 10s`, `0s`."""
    seconds = abs(ms) // 1000
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s")]
    first = next((i for i, (n, _) in enumerate(parts) if n), 3)
    text = " ".join(f"{n}{unit}" for n, unit in parts[first : first + 2] if n or (unit == "s" and first == 3))
    return f"-{text}" if ms < 0 and seconds else text


def until_in_words(why: Reason, date: str, once: str = "once ") -> str:
    """What ends it: the `date`, as its reader wants it, and what has to be true before, after the word `once`."""
    until = why.until if why.until is None or why.until.startswith("or ") else f"{once}{why.until}"
    return ", ".join(filter(None, (date, until)))


def short_name(name: str, width: int = 60) -> str:
    """A long name without its middle, so that both what it is (front) and how it is marked (end) stay readable."""
    shown = visible(name)
    tail = min(28, width // 2)
    return shown if len(shown) <= width else f"{shown[: width - tail - 1]}…{shown[len(shown) - tail :]}"


def shortened(cells: Sequence[str], width: int) -> list[str]:
    """The cells, each at most `width` characters. One that is too long loses the folder that all long ones have in
    common, then the stretch in which it differs least from the others ("/disk1…orders-3", "/disk2…orders-3"), never its
    end."""
    common = _folder_of([cell for cell in cells if len(cell) > width])
    if len(common) > 1:
        cells = [f"…{cell.removeprefix(common)}" if len(cell) > width else cell for cell in cells]
    long = [cell for cell in cells if len(cell) > width]
    alike = [Counter(letters) for letters in zip_longest(*long[:_COMPARED])]

    def short(cell: str) -> str:
        away = len(cell) - width + 1
        if away <= 1:
            return cell
        weights = [alike[i][letter] if i < len(alike) else 0 for i, letter in enumerate(cell)]
        for uuid in _UUID.finditer(cell):
            for i in range(*uuid.span()):
                weights[i] = len(long)  # it means nothing to a reader
        sums = [0, *accumulate(weights)]
        last = max(1, len(cell) - away - min(_END, width // 3))
        start = max(range(1, last + 1), key=lambda i: (sums[i + away] - sums[i], -abs(2 * i + away - len(cell))))
        return f"{cell[:start].rstrip('…')}…{cell[start + away :]}"

    return [short(cell) for cell in cells]


def _folder_of(paths: Sequence[str]) -> str:
    """The folder that contains all of `paths`, compared as text because some may be relative."""
    first, last = min(paths, default=""), max(paths, default="")
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:same].rpartition("/")[0]


def show_line(text: str) -> None:
    """A sentence on stdout: one line, which a terminal gets folded at words."""
    sys.stdout.write(f"{folded_at_words(text) if sys.stdout.isatty() else visible(text)}\n")


def folded_at_words(text: str) -> str:
    """A sentence in as many lines as the terminal needs."""
    return "\n".join(_wrapped(visible(text), get_terminal_size().columns))


def table(title: str, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]], *, color: bool) -> None:
    """A table on stdout. `columns` are (heading, kind); cells are plain text, never markup.

    It fits the terminal, COLUMNS, or 200 columns in a pipe (COLUMNS there only from 200 on if there is a "dir": names
    stay whole, so rows are longer than a narrow terminal anyway): a "text" column is folded at words, a "path" is
    shortened (`shortened`), "left" and "right" stay whole. A "long", which is the last column, is never cut, so that it
    can be copied: the terminal breaks its line. Of a "dir", `LOG_DIR/NAME`, topic and partition are never cut: where
    there is no room the UUID is, as in a "name"; then the log dir becomes a line above its rows, which stand together
    then, unless there is an "above" column, which goes into that line: their order tells something. At last a longer
    name takes a line of its own, before all of its row if only so it stays one line. In a pipe it stays whole. If that
    is not enough, columns whose kind ends in "?" are left out, the last one first, and a line below the title says so;
    if even that is not enough, a terminal gets one block per row, and in a pipe the lines are longer: no word is broken
    that `grep` looks for. A column without a single cell in it is not drawn.
    """
    cells = [[visible(cell) for cell in row] for row in rows]
    shown = [i for i in range(len(columns)) if not cells or any(row[i] for row in cells)]
    if not shown:
        return
    on_terminal = sys.stdout.isatty()
    room = get_terminal_size((PIPE_WIDTH, 0)).columns
    if not on_terminal and any(kind == "dir" for _, kind in columns):
        room = max(room, PIPE_WIDTH)
    fit = _fitted(columns, cells, shown, room, on_terminal=on_terminal)
    left_out = [columns[i][0] for i in shown if i not in (*fit.shown, *fit.above)]
    title = "\n".join(_wrapped(visible(title), room))
    if left_out:
        how = "Widen the terminal or use --json." if on_terminal else "--json has them."
        title += "\n" + "\n".join(_wrapped(f"Hidden columns: {', '.join(left_out)}. {how}", room))
    columns = [columns[i] for i in fit.shown]
    if fit.widths is None and on_terminal:
        drawn = _blocks(title, columns, [[row[i] for i in fit.shown] for row in cells])
    else:
        cells = [[row[i] for i in fit.shown] for row in fit.cells]
        widths = fit.widths or _natural(columns, cells)
        drawn = _drawn(
            title,
            columns,
            cells,
            widths,
            fit.log_dirs,
            bold_head=color and on_terminal,
            room=room if on_terminal else None,
        )
    sys.stdout.write(drawn)
    sys.stdout.flush()


class _Fitted(NamedTuple):
    """How the rows are written, what stands above each (its log dir, and what the columns `above` have), which columns
    are shown, and their widths; None if that is still too wide."""

    cells: Sequence[Sequence[str]]
    log_dirs: Sequence[str]
    above: list[int]
    shown: list[int]
    widths: list[int] | None


def _fitted(
    columns: Sequence[tuple[str, str]], cells: list[list[str]], shown: list[int], room: int, *, on_terminal: bool
) -> _Fitted:
    shown, above = list(shown), list[int]()

    def widths(of: Sequence[Sequence[str]], least: Mapping[str, int], *, words: bool = True) -> list[int] | None:
        return _widths([columns[i] for i in shown], [[row[i] for i in shown] for row in of], room, least, words=words)

    for written, log_dirs in _written(columns, cells) if on_terminal else iter([(cells, list[str]())]):
        measured = written
        if log_dirs:
            above = [i for i in shown if columns[i][1] == "above?"]
            shown = [i for i in shown if i not in above]
            of_rows = ([f"{columns[i][0]} {row[i]}" for i in above if row[i]] for row in written)
            log_dirs = ["   ".join([log_dir, *rest]) for log_dir, rest in zip(log_dirs, of_rows, strict=True)]
        if log_dirs or not on_terminal:
            measured = _without_long_names(columns, written, one_line=not on_terminal)
        found = widths(measured, _COMFORTABLE)
        if found is not None:
            break
    while found is None:
        spare = next((i for i in reversed(shown[1:]) if columns[i][1].endswith("?")), None)
        if spare is None:
            break
        shown.remove(spare)
        found = widths(measured, _COMFORTABLE)
    if found is None:
        last = _LEAST if on_terminal else _LEAST_IN_PIPE
        found = widths(measured, last) or (widths(measured, last, words=False) if on_terminal else None)
    return _Fitted(written, log_dirs, above, shown, found)


def _without_long_names(
    columns: Sequence[tuple[str, str]], cells: Sequence[Sequence[str]], *, one_line: bool
) -> list[list[str]]:
    """Only what decides how wide the columns are: one long name is no reason to leave out what the other rows have."""
    names = {i for i, (_, kind) in enumerate(columns) if kind == "dir"}

    def measured(name: str) -> str:
        return name[:_LONGEST_IN_PIPE] if one_line else name if _width(name) <= _LONGEST_NAME else ""

    return [[measured(c) if i in names else c for i, c in enumerate(row)] for row in cells]


def _written(columns: Sequence[tuple[str, str]], cells: list[list[str]]) -> Iterator[tuple[list[list[str]], list[str]]]:
    """The ways to write directories, the fullest first: the cells, and the log dir of each row if that is left out."""
    yield cells, []
    names = [i for i, (_, kind) in enumerate(columns) if kind.rstrip("?") in ("dir", "name")]
    if not names or not cells:
        return
    cut = [_with_short_uuids([row[i] for row in cells]) if i in names else [row[i] for row in cells]
           for i in range(len(columns))]  # fmt: skip
    yield [list(row) for row in zip(*cut, strict=True)], []
    at = next((i for i in names if columns[i][1] == "dir"), None)
    if at is not None:
        if not any(kind == "above?" for _, kind in columns):
            place = {log_dir: i for i, log_dir in reversed([*enumerate(row[at].rpartition("/")[0] for row in cells)])}
            order = sorted(range(len(cells)), key=lambda i: place[cells[i][at].rpartition("/")[0]])
            cells, cut = [cells[i] for i in order], [[column[i] for i in order] for column in cut]
        log_dirs = [row[at].rpartition("/")[0] for row in cells]
        cut[at] = _with_short_uuids([row[at].rpartition("/")[2] for row in cells], log_dirs)
        yield [list(row) for row in zip(*cut, strict=True)], log_dirs


def _with_short_uuids(names: Sequence[str], log_dirs: Sequence[str] = ()) -> list[str]:
    """`orders-3.73d0…-stray`, with as much of the UUIDs as it takes to tell all of them apart."""
    above = log_dirs or [""] * len(names)
    all_of_them = len(set(zip(above, names, strict=True)))
    for digits in range(4, 32, 4):
        rest = re.compile(rf"(?<=\.[0-9a-f]{{{digits}}})[0-9a-f]{{{32 - digits}}}(?=-(?:delete|stray|future)$)")
        short = [rest.sub("…", name) for name in names]
        if len(set(zip(above, short, strict=True))) == all_of_them:
            return short
    return list(names)


PIPE_WIDTH = 200
# Blanks between columns, and around the table.
_BETWEEN, _EDGES = 3, 2
# Below these widths optional columns are dropped first, then the table itself.
_COMFORTABLE = {"text": 20, "path": 32, "long": 20}
_LEAST = {"text": 16, "path": 20, "dir": 22, "long": 20}
_LEAST_IN_PIPE = {"text": 16, "path": 20, "long": 20}
# While there is any room for it, no word of a "text" is broken, but for longer ones than this. And on a terminal a name
# that is longer than that takes a line of its own.
_LONGEST_WORD, _LONGEST_NAME = 28, 40
# In a pipe it moves the rest of its row to the right.
_LONGEST_IN_PIPE = 100
# For `shortened`: how many rows are compared, how many end characters are kept, and the part (a UUID) that may be
# dropped.
_COMPARED, _END = 500, 12
_UUID = re.compile(r"[0-9a-f]{32}")


def _natural(columns: Sequence[tuple[str, str]], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(_width, column)) for column in zip([heading for heading, _ in columns], *cells, strict=True)]


def _widths(
    columns: Sequence[tuple[str, str]],
    cells: Sequence[Sequence[str]],
    room: int,
    at_least: Mapping[str, int],
    *,
    words: bool,
) -> list[int] | None:
    """Column widths with which the table fits into `room`, shrinking the widest that may shrink; None if it cannot
    fit. `words`: none of a "text" is broken, but for very long ones."""
    fit = _natural(columns, cells)
    least = [at_least.get(kind.rstrip("?"), width) for (_, kind), width in zip(columns, fit, strict=True)]
    for i, (_, kind) in enumerate(columns):
        if words and kind.startswith("text"):
            long = (_width(word) for row in cells for word in row[i].split())
            least[i] = max([least[i], *(width for width in long if width <= _LONGEST_WORD)])
    # One step at a time from there on: a cell can be as long as a file.
    fit = [max(low, min(width, room)) for low, width in zip(least, fit, strict=True)]
    for _ in range(sum(fit) + _BETWEEN * (len(fit) - 1) + _EDGES - room):
        spare = [i for i in range(len(fit)) if fit[i] > least[i]]
        if not spare:
            return None
        fit[max(spare, key=lambda i: fit[i])] -= 1
    return fit


def _drawn(
    title: str,
    columns: Sequence[tuple[str, str]],
    cells: Sequence[Sequence[str]],
    widths: Sequence[int],
    log_dirs: Sequence[str],
    *,
    bold_head: bool,
    room: int | None,
) -> str:
    """`room`: None in a pipe. Not drawn by a library: rich takes 0.4 ms for each row, and a host may have 100,000."""
    folded: list[list[Sequence[str]]] = []
    # After a name that takes a line of its own, the rest of its row follows on the next one; of one that would not fit
    # into the line behind what comes before it, all of its row does.
    too_long, before_row = [False] * (len(cells) + 1), [""] * (len(cells) + 1)
    for number, ((heading, kind), width) in enumerate(zip(columns, widths, strict=True)):
        texts = [row[number] for row in cells]
        texts = [heading, *(shortened(texts, width) if kind.startswith("path") else texts)]
        parts = [
            [text] if kind in ("dir", "long") else [_filled(line, width, kind) for line in _wrapped(text, width)]
            for text in texts
        ]
        folded.append([["", *part] if late else part for late, part in zip(too_long, parts, strict=True)])
        if kind == "dir" and room is not None:
            start = _EDGES // 2 + sum(widths[:number]) + _BETWEEN * number
            for i in (i for i, text in enumerate(texts) if _width(text) > width):
                if start + _width(texts[i]) > room > _width(texts[i]) and number:
                    before_row[i], folded[-1][i] = texts[i], [""]
                else:
                    too_long[i] = True
    head, *body = (_joined(row, widths) for row in zip(*folded, strict=True))
    rule = " " + "─" * (sum(widths) + _BETWEEN * (len(widths) - 1))
    lines = [*([title] if title else []), "", *(click.style(line, bold=True) if bold_head else line for line in head)]
    lines.append(rule)
    above = ""
    for row, name, log_dir in zip_longest(body, before_row[1:], log_dirs, fillvalue=""):
        if log_dir not in ("", above):
            lines.append(log_dir)
        above = log_dir
        lines += [f" {name}", *row] if name else row
    lines.append("")
    return "".join(f"{line}\n" for line in lines)


def _joined(row: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    """The lines of one row, each cell of which has one or more."""
    whole = (
        [(part or "") + " " * (width - _width(part or "")) for part, width in zip(parts, widths, strict=True)]
        for parts in zip_longest(*row)
    )
    return [f" {(' ' * _BETWEEN).join(parts)}".rstrip() for parts in whole]


def _filled(line: str, width: int, kind: str) -> str:
    blanks = " " * (width - _width(line))
    return blanks + line if kind.startswith("right") else line + blanks


def _width(text: str) -> int:
    """How many columns of a terminal `text` takes: East Asian characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _wrapped(text: str, width: int) -> list[str]:
    if _width(text) <= width:
        return [text.rstrip()]
    # A setting that is too long for a line begins a new one with its value.
    text = re.sub(rf"(?<!\S)(?=\S{{{width + 1}}})([a-z.]+=)(?=\S)", r"\1 ", text)
    # `wrap` counts characters: where some take two columns, half as many are sure to fit.
    return wrap(text, width if _width(text) == len(text) else width // 2, break_on_hyphens=False) or [""]


def _blocks(title: str, columns: Sequence[tuple[str, str]], cells: Sequence[Sequence[str]]) -> str:
    """One line per cell, for a terminal that is too narrow for a table."""
    wide = max(len(heading) for heading, _ in columns)
    blocks = (
        "".join(f" {heading:<{wide}}  {cell}\n" for (heading, _), cell in zip(columns, row, strict=True) if cell)
        for row in cells
    )
    return f"{title}\n\n" + "\n".join(blocks) + "\n"


class _Stderr(io.FileIO):
    """Under every buffer, so that nothing is left there that makes Python end with 120. Where it is full and does not
    block (whoever shares it has set O_NONBLOCK), it waits for its reader all the same: a refusal is not lost."""

    def write(self, data: ReadableBuffer) -> int:
        with suppress(OSError):
            while (written := super().write(data)) is None:
                select.select((), (self,), ())
            return written
        return memoryview(data).nbytes


def secure_streams() -> None:
    """Once for a process, before it opens anything. Descriptors 0 to 2 that are closed (`>&-`) become /dev/null: no
    file of a log dir may get such a number, and be written to in place of a stream."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest one that is free: this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    encoding = sys.stderr.encoding if sys.stderr is not None else "utf-8"
    raw = io.BufferedWriter(_Stderr(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace", line_buffering=True)


def forget_stdout() -> None:
    """Discard what is still buffered for stdout: it cannot be written."""
    with suppress(OSError):  # a test's stdout has no descriptor, and then nothing is buffered for one
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def said_on_stderr(say: Callable[[str], None], done: str) -> Iterator[None]:
    """For what is printed once something was done: where stdout cannot be written, `done` is said on stderr. Raises the
    OSError all the same."""
    try:
        yield
        sys.stdout.flush()
    except OSError:
        say(done)
        raise


@contextmanager
def whoever_reads(say: Callable[[str], None], failed: Callable[[], None] = lambda: None) -> Iterator[None]:
    """For what is printed while there is still something to do, or where the exit status says more: where stdout cannot
    be written, that is said, and the command goes on; `failed` is called unless it is only that nobody reads it."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        forget_stdout()
        if not isinstance(error, BrokenPipeError):
            say(f"stdout cannot be written: {error.strerror}")
            failed()
