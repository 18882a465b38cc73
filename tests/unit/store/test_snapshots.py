"""A snapshot as changes of its base: it reads as the whole one would, or not at all."""

from __future__ import annotations

import gzip
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.errors import UnreadableError
from logagent.base.records import DirKey
from logagent.store import snapshots
from logagent.store.snapshots import MAX_LINE, Base, Rest, delta_of, dir_line, numbers_of, snapshot_lines, whole_lines

HEAD = {"schema": "logagent.snapshot/3"}
REST = Rest([{"path": "/d"}], [{"topic": "t", "topic_id": None, "partition": 0, "left": None}])
Dirs = dict[str, dict[str, Any]]

NAMES = st.sampled_from(["a-0", 'b,"bytes":1,-1', "c\udcff-2", *(f"t-{n}" for n in range(20))])
NUMBER = st.integers(0, 1 << 50)
ROWS = st.fixed_dictionaries(
    {"bytes": NUMBER, "allocated": NUMBER, "sightings": st.integers(0, 3), "reason": st.sampled_from([None, "x"])},
    optional={"first_offset": st.none() | NUMBER, "end_offset": st.none() | NUMBER, "marked_at": st.none()},
)
DIRS = st.dictionaries(NAMES, ROWS, max_size=23)


def dirs_of(rows: Dirs) -> list[tuple[DirKey, bytes]]:
    return [
        (DirKey("/d", name), dir_line({"log_dir": "/d", "name": name, "kind": "current", **rows[name]}, {}))
        for name in sorted(rows)
    ]


def packed(lines: Any) -> bytes:
    return gzip.compress(b"".join(line + b"\n" for line in lines), 1, mtime=0)


def compact(row: dict[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode()


def whole(rows: Dirs) -> bytes:
    return packed(whole_lines(HEAD, REST, (line for _, line in dirs_of(rows))))


def files_of(before: Dirs, after: Dirs) -> dict[str, bytes] | None:
    base = whole(before)
    delta = delta_of(Base("base", hashlib.sha256(base).hexdigest()), base, dirs_of(after))
    return None if delta is None else {"base": base, "delta": packed(delta.lines(HEAD, REST))}


def read(files: dict[str, bytes], name: str = "delta") -> list[bytes]:
    def content(stem: str) -> bytes:
        if stem not in files:
            raise FileNotFoundError(stem)
        return files[stem]

    return list(snapshot_lines(content, name))


@given(DIRS, DIRS)
def test_a_delta_reads_as_the_whole_snapshot(before: Dirs, after: Dirs) -> None:
    files = files_of(before, after)
    if files is None:
        assert len(after.keys() - before.keys()) > 0 or any(before[n] != after[n] for n in after)
        return
    head, log_dir, absent, *dirs = read(files)
    assert json.loads(head)["base"]["snapshot_id"] == "base"
    assert json.loads(log_dir)["path"] == "/d"
    assert json.loads(absent) == {"row": "absent", "topic": "t", "topic_id": None, "partition": 0, "left": None}
    assert sorted(dirs) == sorted(line for _, line in dirs_of(after))


NUMBERS_AS_READ = st.lists(
    st.tuples(
        st.sampled_from(["allocated", "newest_mtime", "segments", "x", "bytes"]),
        st.sampled_from(["0", "-0", "7", "-7", "007", "1.5", str(2**62), str(2**63), "9" * 18]),
        st.sampled_from([":", ": "]),
    ),
    max_size=5,
)
CHANGE = st.lists(st.integers(-1, 9), max_size=5) | st.just([0, 2**62, 2**63 - 1]) | st.just([1, 1, 1.5])


def applied(base: list[bytes], delta: list[bytes]) -> tuple[list[bytes], str]:
    """Line by line: the lines of a delta, made whole, or what is wrong with it."""
    old, found, dirs = list(base), delta[:1], []
    for line in delta[1:]:
        if not line.startswith(b'{"row":"changes"'):
            dirs += [*old, line]
            old = []
            continue
        changes = json.loads(line)["dirs"]
        if not all(c and c[0] >= 0 and all(type(n) is int and abs(n) < 2**63 for n in c) for c in changes):
            return [], "its changes cannot be read"
        for unchanged, *by in changes:
            if len(old) <= unchanged:
                return [], "it changes more directories than its base has"
            dirs, old, last = dirs + old[:unchanged], old[unchanged + 1 :], old[unchanged]
            if by:
                try:
                    start, numbers = numbers_of(last)
                except UnreadableError as error:
                    return [], str(error)
                if len(by) > len(numbers):
                    return [], "its changes do not fit its base"
                for n, name in enumerate(numbers):
                    numbers[name] += (by[n] if n < len(by) else 0) + (by[0] if name == "allocated" else 0)
                dirs.append(start + b"," + compact(numbers)[1:])
    return found + dirs + old, ""


@given(
    st.lists(NUMBERS_AS_READ, max_size=9),
    st.lists(st.lists(CHANGE, max_size=4) | st.just(None), max_size=4),
    st.sampled_from([1, 2, 3, 4096]),
)
def test_changes_give_what_they_give_line_by_line(old: list[Any], lines: list[Any], held: int) -> None:
    """Also of a base that no agent of ours has written, and whatever is held at a time."""
    tails = [",".join(f'"{name}"{colon}{number}' for name, number, colon in [("bytes", "5", ":"), *row]) for row in old]
    base = [f'{{"row":"dir","name":"t-{n}",{tail}}}'.encode() for n, tail in enumerate(tails)]
    head: dict[str, Any] = {"row": "snapshot", "base": None}
    files = {"base": packed([compact(head), *base])}
    new = [
        b'{"row":"dir","name":"new","bytes":1}' if line is None else compact({"row": "changes", "dirs": line})
        for line in lines
    ]
    head["base"] = {"snapshot_id": "base", "sha256": hashlib.sha256(files["base"]).hexdigest()}
    expected, wrong = applied(base, [b"", *new])
    head |= {"dirs": len(expected) - 1, "dirs_sha256": hashlib.sha256(b"".join(expected)).hexdigest()}
    files["delta"] = packed([compact(head), *new])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(snapshots, "_LINES_HELD", held)
        if wrong:
            with pytest.raises(UnreadableError, match=wrong):
                read(files)
        else:
            assert read(files)[1:] == expected[1:]


@pytest.mark.parametrize("line", [b"x" * (MAX_LINE - 1), b"x" * (2 * MAX_LINE)])
@pytest.mark.parametrize("tail", [b"", b"\n", b"y", b"y\n", b"\n\n", b"yy"])
@pytest.mark.parametrize("before", [b"\n", b"\nx\n", b"\n" + b"z" * 600_000 + b"\n"])
def test_a_line_has_at_most_a_megabyte_with_its_end(before: bytes, line: bytes, tail: bytes) -> None:
    text = b"{}" + before + line + tail
    lines = text.splitlines(keepends=True)
    files = {"delta": gzip.compress(text, 1)}
    if max(map(len, lines)) > MAX_LINE:
        with pytest.raises(UnreadableError, match="line of more than 1 MiB"):
            read(files)
    else:
        assert read(files) == [each.rstrip(b"\n") for each in lines]


BEFORE: Dirs = {f"t-{n}": {"bytes": n, "first_offset": n} for n in range(9)}
AFTER: Dirs = {**BEFORE, "t-3": {"bytes": 77, "first_offset": 1}, "new-0": {"bytes": 1}}
del AFTER["t-5"]


def test_a_delta_of_which_nothing_is_left_lists_no_directories() -> None:
    files = files_of(BEFORE, {})
    assert files is not None
    assert [json.loads(line)["row"] for line in read(files)[1:]] == ["log_dir", "absent"]


def test_a_missing_base_is_said_and_is_not_a_host_without_directories() -> None:
    files = files_of(BEFORE, AFTER)
    assert files is not None
    with pytest.raises(UnreadableError, match="base of the snapshot, base, is missing"):
        read({"delta": files["delta"]})


@pytest.mark.parametrize("lied", [AFTER, {}, {**BEFORE, "t-1": {"bytes": 2, "first_offset": 1}}])
def test_another_base_than_the_one_named_is_refused(lied: Dirs) -> None:
    files = files_of(BEFORE, AFTER)
    assert files is not None
    with pytest.raises(UnreadableError, match="has changed"):
        read({**files, "base": whole(lied)})


def test_a_base_that_is_a_delta_is_refused() -> None:
    files = files_of(BEFORE, AFTER)
    assert files is not None
    second = delta_of(Base("base", "0" * 64), files["base"], dirs_of(AFTER))
    assert second is None, "nor is one written on a base that has changed"
    lines = [json.loads(line) for line in gzip.decompress(files["delta"]).splitlines()]
    lines[0]["base"]["sha256"] = hashlib.sha256(files["delta"]).hexdigest()
    with pytest.raises(UnreadableError, match="is no base"):
        read({"delta": packed(map(compact, lines)), "base": files["delta"]})


def _changed(lines: list[dict[str, Any]], what: str) -> None:
    (changes,) = [line for line in lines if line["row"] == "changes"]
    if what == "unchanged":
        lines.remove(changes)
    elif what == "more-than-there-are":
        changes["dirs"].append([40])
    elif what == "backwards":
        changes["dirs"][0][0] = -1
    elif what == "too-short":
        changes["dirs"][0].pop()
    elif what == "no-number":
        changes["dirs"][0][1] = "5"
    elif what == "other-numbers":
        changes["dirs"][0][1] += 1
    elif what == "lost-at-the-end":
        lines.pop()
    else:
        changes["dirs"] = 5


LIES = ("unchanged", "more-than-there-are", "backwards", "too-short", "no-number", "other-numbers", "lost-at-the-end")


@pytest.mark.parametrize("what", [*LIES, "no-list"])
def test_a_delta_that_does_not_give_what_its_head_says_is_unreadable(what: str) -> None:
    files = files_of(BEFORE, AFTER)
    assert files is not None
    lines = [json.loads(line) for line in gzip.decompress(files["delta"]).splitlines()]
    _changed(lines, what)
    lied = packed(map(compact, lines))
    with pytest.raises(UnreadableError):
        read({**files, "delta": lied})


@pytest.mark.parametrize("base", [{}, 5, {"snapshot_id": "../x", "sha256": "y"}, {"snapshot_id": "x"}, "x"])
def test_a_base_that_cannot_be_named_is_not_read(base: object) -> None:
    lines = [json.dumps({"row": "snapshot", "base": base}).encode()]
    with pytest.raises(UnreadableError):
        read({"delta": packed(lines), "x": b""})


def test_most_directories_new_is_the_next_base() -> None:
    assert files_of(BEFORE, {f"other-{n}": {"bytes": n} for n in range(20)}) is None


NUMBERED = st.dictionaries(st.from_regex(r"\A[a-z_]{1,12}\Z"), st.integers(1 - 2**63, 2**63 - 1), max_size=8)


@given(NUMBERED, st.sampled_from([(",", ":"), (", ", ": ")]))
def test_numbers_of_a_directory_are_read_as_json_reads_them(more: dict[str, int], separators: tuple[str, str]) -> None:
    numbers = {"bytes": 5} | more
    line = b'{"row":"dir","name":"a,\\"bytes\\":1"' + ("," + json.dumps(numbers, separators=separators)[1:]).encode()
    assert numbers_of(line) == (b'{"row":"dir","name":"a,\\"bytes\\":1"', numbers)


@pytest.mark.parametrize(
    "tail",
    [
        b'"bytes":01}',
        b'"bytes":1.5}',
        b'"bytes":1,}',
        b'"bytes":1',
        b'"bytes":true}',
        b'"bytes":1}x',
        b'"bytes":' + b"9" * 4300 + b"}",
    ],
)
def test_what_is_no_number_is_refused(tail: bytes) -> None:
    with pytest.raises(UnreadableError):
        numbers_of(b'{"row":"dir",' + tail)


@pytest.mark.parametrize("schema", ["logagent.snapshot/1", "logagent.snapshot/2"])
def test_one_of_before_the_first_release_is_refused(schema: str) -> None:
    """Read as one of today, it would say of no replica that it is missing."""
    files = {"old": packed([compact({"row": "snapshot", "schema": schema}), compact({"row": "dir", "name": "t-0"})])}
    with pytest.raises(UnreadableError, match=f"{schema} is what builds from before the first release write"):
        read(files, "old")
    later = {"new": packed([compact({"row": "snapshot", "schema": "logagent.snapshot/4", "base": None})])}
    assert len(read(later, "new")) == 1
