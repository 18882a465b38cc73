"""Which `.index` files go before a directory is restored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.kafka.files.segment_files import IndexFile, Rebuild, Segment, SegmentsRead, indexes_to_rebuild

SOUND = IndexFile(16, True)
STRETCHED = IndexFile(10 << 20, False)


def segment(
    base: int, index: IndexFile | None = SOUND, timeindex: IndexFile | None = SOUND, size: int = 100
) -> Segment:
    return Segment(f"{base:020d}", size, index, timeindex)


def rebuild(*segments: Segment, every: bool = False) -> Rebuild:
    return indexes_to_rebuild(SegmentsRead(segments), every_segment=every)


def test_the_last_segment_always() -> None:
    assert rebuild(segment(0, size=1000), segment(10)) == Rebuild(("00000000000000000010.index",), 100)
    assert rebuild(segment(0)) == Rebuild(("00000000000000000000.index",), 100)


@pytest.mark.parametrize("defect", [None, STRETCHED, IndexFile(13, False)])
@pytest.mark.parametrize("which", ["index", "timeindex"])
def test_each_segment_with_an_index_that_is_missing_or_not_sound(defect: IndexFile | None, which: str) -> None:
    damaged = segment(0, index=defect) if which == "index" else segment(0, timeindex=defect)
    found = rebuild(damaged, segment(10), segment(20))
    missing = which == "index" and defect is None
    first = () if missing else ("00000000000000000000.index",)
    # The broker reads the segment in either case.
    assert found == Rebuild((*first, "00000000000000000020.index"), 200)


def test_every_segment_where_that_is_asked_for() -> None:
    found = rebuild(segment(0), segment(10), segment(20), every=True)
    assert found == Rebuild(tuple(f"{base:020d}.index" for base in (0, 10, 20)), 300)


def test_nothing_of_a_directory_without_segments() -> None:
    assert rebuild() == rebuild(every=True) == Rebuild((), 0)


INDEXES = st.sampled_from([None, SOUND, STRETCHED])


@given(st.lists(st.tuples(INDEXES, INDEXES, st.integers(0, 10**9)), max_size=6), st.booleans())
def test_only_index_files_go_and_no_defect_stays(
    parts: list[tuple[IndexFile | None, IndexFile | None, int]], every: bool
) -> None:
    segments = [segment(n, *part) for n, part in enumerate(parts)]
    found = rebuild(*segments, every=every)
    assert [name for name in found.unlink if not name.endswith(".index")] == []
    kept = [s for s in segments if s.base + ".index" not in found.unlink and s.index is not None]
    assert [s for s in kept if not (s.index == s.timeindex == SOUND)] == []
    assert segments[-1:] not in [[s] for s in kept]
