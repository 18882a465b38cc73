"""Both sides of a move between log dirs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logagent.base.records import HolderState, PartitionDir
from logagent.cleanup.plan_documents import move_in_words
from logagent.verdict.copies import moves_of
from tests.damages.disk import UUID
from tests.damages.facts import OTHER_ID, directory

COPY = replace(directory(f"a-0.{UUID}-future", "/d2"), bytes=1 << 30)
SOURCE = replace(directory("a-0", "/d1"), bytes=1 << 31)


@pytest.mark.parametrize(
    "others, source",
    [
        ((SOURCE,), SOURCE),
        ((SOURCE, directory("a-1", "/d1"), directory("b-0", "/d1")), SOURCE),
        ((), None),
        ((replace(SOURCE, log_dir="/d2"),), None),
        ((replace(SOURCE, topic_id=OTHER_ID),), None),
        ((SOURCE, replace(SOURCE, log_dir="/d3")), None),
        ((SOURCE, replace(SOURCE, log_dir="/d3", topic_id=OTHER_ID)), SOURCE),
    ],
    ids=["one", "among others", "none", "beside it", "another topic", "two", "one is another topic's"],
)
def test_a_copy_is_made_from_the_current_directory_elsewhere(
    others: tuple[PartitionDir, ...], source: PartitionDir | None
) -> None:
    (move,) = moves_of((*others, COPY))
    assert (move.future, move.source, move.partition) == (COPY, source, "a-0")
    assert [move.concerns(d) for d in ("/d1", "/d2", "/d9")] == [source is not None, True, False]


def test_an_id_that_was_not_read_is_not_another_one() -> None:
    unread = replace(SOURCE, topic_id=None, error="symlink")
    (move,) = moves_of((unread, COPY))
    assert move.source == unread


def test_it_is_said_what_becomes_what_and_how_far_it_is() -> None:
    (move,) = moves_of((SOURCE, COPY))
    says = "a-0 moves from /d1 to /d2: 1.0 GiB of 2.0 GiB copied. At the end the copy takes its name, and the broker"
    says += " removes /d1/a-0"
    assert move_in_words(move, HolderState.HELD) == move_in_words(move, HolderState.UNREADABLE) == says
    assert move_in_words(move, HolderState.FREE) == f"{says}; it continues when the broker runs"
    assert "was not seen" in move_in_words(moves_of((COPY,))[0], HolderState.FREE)
