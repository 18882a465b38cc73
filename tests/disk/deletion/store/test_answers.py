"""What agents say in a real store: whole files of one node, and junk that hides no other node's."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.deletion.store.answers import Answer, Answers, DirectoryAnswer, Seen, TopicAnswer, as_words
from logagent.deletion.store.requests import LONGEST_WORDS, UNREADABLE
from logagent.store.signing import NotSigned

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
REQUEST = "a" * 64
AT = "2026-11-21T00:00:00.000Z"
SEEN = Seen(CLUSTER, 1, "kafka1", "0" * 32, AT, AT, (REQUEST,), ("b" * 64,))
ROW = DirectoryAnswer("/d1", "t-0", "waits", fact="the broker's next stop", next_try_at=AT)
ANSWER = Answer(CLUSTER, 1, REQUEST, "kafka1", "0" * 32, AT, (ROW,), (TopicAnswer("A" * 22, 0, 2, 100, 50),))


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    (tmp_path / "store").mkdir()
    return Answers(tmp_path / "store", CLUSTER)


def test_what_an_agent_writes_is_read_as_it_was_and_replaced_as_a_whole(answers: Answers) -> None:
    answers.write_seen(SEEN)
    answers.write(ANSWER)
    assert answers.nodes() == [1]
    assert answers.seen(1) == SEEN
    assert answers.answer(1, REQUEST) == ANSWER
    assert answers.seen(2) is None and answers.answer(1, "b" * 64) is None
    later = replace(SEEN, at="2026-11-21T00:01:00.000Z", ended=())
    answers.write_seen(later)
    assert answers.seen(1) == later


def test_nothing_of_it_is_below_the_control_folder(answers: Answers) -> None:
    answers.write_seen(SEEN)
    answers.write(ANSWER)
    assert [each.name for each in Path(answers.store).iterdir()] == ["answers"]


def test_junk_in_the_folders_of_some_nodes_hides_no_other_node(answers: Answers) -> None:
    answers.write_seen(SEEN)
    top = Path(answers.store) / "answers" / CLUSTER
    for node in (2, 3, 4, 5):
        (top / str(node)).mkdir()
    (top / "2" / "seen.json").write_bytes(b"\xff{")
    os.mkfifo(top / "3" / "seen.json")
    (top / "4" / "seen.json").symlink_to(top / "1" / "seen.json")
    (top / "5" / "seen.json").write_bytes((top / "1" / "seen.json").read_bytes())
    (top / "6").symlink_to(top / "1")
    (top / "-1").mkdir()
    (top / "07").write_bytes(b"")
    assert answers.seen(1) == SEEN
    for node in (2, 3, 4, 6):
        with pytest.raises((NotSigned, ValueError, *UNREADABLE)):
            answers.seen(node)
    with pytest.raises(NotSigned, match="another node"):
        answers.seen(5)
    with pytest.raises(UNREADABLE):
        answers.seen(3)


def test_a_seen_file_of_another_schema_or_with_wrong_fields_is_none(answers: Answers) -> None:
    answers.write_seen(SEEN)
    place = Path(answers.store) / "answers" / CLUSTER / "1" / "seen.json"
    good = place.read_bytes()
    for bad in (good.replace(b"seen/2", b"seen/1"), good.replace(AT.encode(), b"now"), good[:-1], b"[" * 100_000):
        place.write_bytes(bad)
        with pytest.raises(NotSigned):
            answers.seen(1)


def test_an_answer_that_is_too_large_loses_words_but_no_row(answers: Answers) -> None:
    rows = tuple(replace(ROW, name=f"t-{n}", fact="f" * 1_500, hint="h" * 500) for n in range(9_000))
    answers.write(replace(ANSWER, directories=rows))
    read = answers.answer(1, REQUEST)
    assert read is not None and len(read.directories) == 9_000
    assert [row for row in read.directories if not (row.hint is None and row.fact == "f" * 200)] == []


def test_words_of_any_path_can_be_written(answers: Answers) -> None:
    assert as_words("/d1/caf\udce9") == "/d1/caf\\udce9"
    assert len(as_words("x" * 5_000)) == LONGEST_WORDS
