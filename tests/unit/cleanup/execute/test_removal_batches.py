"""Which removals share a transaction of the journal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logagent.base.records import ActionKind
from logagent.cleanup.execute.log_manager import BATCH_BYTES, BATCH_DIRS, BATCH_FILES, next_batch
from logagent.cleanup.plan.plan import Proposal
from tests.hosts import directory, proposal

SIZES = st.sampled_from([0, 4096, BATCH_BYTES // 2, BATCH_BYTES, BATCH_BYTES + 1, 10 * BATCH_BYTES])
FILES = st.sampled_from([0, 5, BATCH_FILES // 2, BATCH_FILES, BATCH_FILES + 1])
DIRS = st.one_of(
    st.lists(st.tuples(FILES, SIZES, SIZES), min_size=1, max_size=8),
    st.integers(BATCH_DIRS - 1, BATCH_DIRS + 2).map(lambda count: [(5, 4096, 4096)] * count),
)


BEFORE = [proposal(ActionKind.REMOVE, directory("payments-0"))]


def within(batch: list[Proposal]) -> bool:
    files = sum(p.dir.files for p in batch)
    size = sum(p.dir.allocated for p in batch)
    return len(batch) <= BATCH_DIRS and files <= BATCH_FILES and size <= BATCH_BYTES


@given(DIRS)
def test_a_batch_is_what_comes_next_and_as_much_of_it_as_may_be(dirs: list[tuple[int, int, int]]) -> None:
    following = [
        proposal(ActionKind.REMOVE, directory(f"orders-{number}", files=files, bytes=size, allocated=allocated))
        for number, (files, size, allocated) in enumerate(dirs)
    ]
    batch = next_batch([*BEFORE, *following], len(BEFORE))
    assert list(batch) == following[: len(batch)]
    assert len(batch) == 1 or within(list(batch))
    assert len(batch) == len(following) or not within(following[: len(batch) + 1])
