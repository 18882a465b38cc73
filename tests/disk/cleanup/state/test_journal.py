"""The journal on a real disk: durable, readable by others, never taken for empty, never another's database."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.base.errors import JournalError
from logagent.base.records import ActionKind, DirKey, Identity, Outcome
from logagent.cleanup.state.journal import FILE_NAME, SCHEMA_VERSION, CheckpointEntry, Intent, Journal, is_written_to
from logagent.verdict.clock_doubt import ClockDoubt, ClockJump, Clocks
from logagent.verdict.facts import SeenHolder
from logagent.verdict.marks import Sighting
from tests.needs import need_command, need_root

HEX = "0123456789abcdef" * 2
NOW = 1_800_000_000_000
NOBODY = 65534
HERE = Path(__file__).parents[4]


def intent(name: str = "orders-0", **fields: object) -> Intent:
    found = Intent(
        action=ActionKind.MARK,
        log_dir="/data/d1",
        name=name,
        new_name=f"orders-0.{HEX}-delete",
        topic="orders",
        partition=0,
        topic_id="DDDDDDDDDDDDDDDDDDDDDA",
        identity=Identity(2049, 17),
        bytes=1000,
        plan_id="p1",
        actor="cli:kafka",
    )
    return replace(found, **fields)  # type: ignore[arg-type]


def in_child(source: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", source, *map(str, arguments)],
        cwd=HERE, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip


# What it holds


def test_what_is_written_together_is_there_together_or_not_at_all(tmp_path: Path) -> None:
    with Journal.open(str(tmp_path)) as journal:
        (first,) = journal.begin([intent("a")], NOW)
        with pytest.raises(JournalError), journal.together():
            journal.finish([(first, Outcome.DONE, None)], NOW)
            journal.begin([intent("b")], NOW)
            with Journal.open_read_only(str(tmp_path)) as beside:
                assert [e.intent.name for e in beside.unsettled()] == ["a"]
            raise JournalError("on the way")
        assert [e.intent.name for e in journal.unsettled()] == ["a"]
        with journal.together():
            journal.finish([(first, Outcome.DONE, None)], NOW)
            journal.begin([intent("b")], NOW)
        with Journal.open_read_only(str(tmp_path)) as beside:
            assert [e.intent.name for e in beside.unsettled()] == ["b"]


def test_everything_comes_back_as_it_was(tmp_path: Path) -> None:
    entries = (CheckpointEntry("log-start-offset-checkpoint", "orders", 0, 5), CheckpointEntry("c", "orders", 0, 2**62))
    meant = intent(approved=True, new_dir="/quarantine", checkpoint_entries=entries)
    with Journal.open(str(tmp_path)) as journal:
        (first,) = journal.begin([meant], NOW)
        assert [e.id for e in journal.unsettled()] == [first]
        journal.finish([(first, Outcome.DONE, None)], NOW + 5)
        assert journal.unsettled() == []
    with Journal.open_read_only(str(tmp_path)) as journal:
        (entry,) = journal.history()
        assert (entry.at_ms, entry.finished_at_ms, entry.outcome, entry.error) == (NOW, NOW + 5, Outcome.DONE, None)
        assert replace(journal.with_checkpoint_entries(entry).intent, checkpoint_entries=entries) == meant
        assert set(journal.with_checkpoint_entries(entry).intent.checkpoint_entries) == set(entries)


@pytest.mark.parametrize("name", ["caf\xe9-0", "two\nlines-0", "\udcff\udc80-0", "quote'\"-0", "١-٣"])
def test_names_that_are_no_utf8_come_back_to_the_byte(tmp_path: Path, name: str) -> None:
    with Journal.open(str(tmp_path)) as journal:
        (first,) = journal.begin([intent(name, new_name=f"{name}.{HEX}-stray", log_dir=f"/{name}", topic=name)], NOW)
        journal.finish([(first, Outcome.FAILED, f"it is {name}")], NOW)
        journal.record_failure(f"/{name}", name, name, NOW)
        seen = Sighting(f"/{name}", name, Identity(1, 2), None, 3, "topic-absent", 1, 2, 3)
        journal.replace_sightings([seen])
    with Journal.open_read_only(str(tmp_path)) as journal:
        (entry,) = journal.history()
        assert os.fsencode(entry.intent.name) == os.fsencode(name)
        assert (entry.intent.name, entry.intent.log_dir, entry.intent.topic) == (name, f"/{name}", name)
        assert entry.error == f"it is {name}"
        assert list(journal.failures()) == [(f"/{name}", name)]
        assert journal.sightings() == {(f"/{name}", name): seen}


@pytest.mark.parametrize("number", [0, 2**63 - 1, 2**63, 2**64 - 1])
def test_inodes_and_devices_are_unsigned_numbers_of_64_bits(tmp_path: Path, number: int) -> None:
    """Overlay and network file systems use the upper bits."""
    identity = Identity(number, number)
    with Journal.open(str(tmp_path)) as journal:
        journal.finish([(n, Outcome.DONE, None) for n in journal.begin([intent(identity=identity)], NOW)], NOW)
        seen = Sighting("/d", "x", identity, None, 3, "topic-absent", 1, 2, 3)
        journal.replace_sightings([seen])
        known = journal.renamed_to(f"orders-0.{HEX}-delete", identity)
        assert known is not None and known.intent.identity == identity
        assert list(journal.sightings().values()) == [seen]


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64])
def test_a_directory_of_any_size_is_written_down(tmp_path: Path, number: int) -> None:
    """Two sparse files of the size that XFS allows add up to 2**64 - 2 bytes."""
    with Journal.open(str(tmp_path)) as journal:
        journal.begin([intent(bytes=number, allocated=number)], NOW)
        assert [e.intent.bytes for e in journal.unsettled()] == [2**63 - 1]
        assert [a.allocated for a in journal.taken_since(NOW)] == [2**63 - 1]


def test_a_renamed_directory_is_known_over_a_reboot_that_changes_device_numbers(tmp_path: Path) -> None:
    with Journal.open(str(tmp_path)) as journal:
        journal.finish([(n, Outcome.DONE, None) for n in journal.begin([intent()], NOW)], NOW)
        known = journal.renamed_to(f"orders-0.{HEX}-delete", Identity(9999, 17))
        assert journal.renames() == {(f"orders-0.{HEX}-delete", 17): known}
        assert known is not None and known.intent.topic == "orders"
        assert journal.renamed_to(f"orders-0.{HEX}-delete", Identity(2049, 18)) == known, "a copy has the unique name"


def test_saved_checkpoint_entries_reach_back_over_our_renames_but_not_beyond_a_restore(tmp_path: Path) -> None:
    """What was saved before a restore is old: the broker may have moved the offsets since."""
    a, b, c = (f"orders-0.{n * 32}-{s}" for n, s in (("a", "delete"), ("b", "stray"), ("c", "delete")))
    old, new = (CheckpointEntry("log-start-offset-checkpoint", "orders", 0, n) for n in (100, 7))
    steps = [
        intent(new_name=a, checkpoint_entries=(old,)),
        intent(a, action=ActionKind.RESTORE, new_name="orders-0", checkpoint_entries=(old,)),
        intent(new_name=b, action=ActionKind.QUARANTINE),
        intent(b, new_name=c),
    ]
    identity = Identity(2049, 17)
    with Journal.open(str(tmp_path)) as journal:
        for step in steps:
            journal.finish([(n, Outcome.DONE, None) for n in journal.begin([step], NOW)], NOW)
        assert journal.saved_checkpoint_entries(a, identity) == (old,)
        assert journal.saved_checkpoint_entries(c, identity) == ()
        again = [
            intent(c, action=ActionKind.RESTORE, new_name="orders-0"),
            intent(new_name=f"{b}2", action=ActionKind.QUARANTINE, checkpoint_entries=(new,)),
            intent(f"{b}2", new_name=f"{c}2"),
        ]
        for step in again:
            journal.finish([(n, Outcome.DONE, None) for n in journal.begin([step], NOW)], NOW)
        assert journal.saved_checkpoint_entries(f"{c}2", identity) == (new,)


def test_failures_add_up_and_go(tmp_path: Path) -> None:
    with Journal.open(str(tmp_path)) as journal:
        journal.record_failure("/d", "x", "EBUSY", 1)
        journal.record_failure("/d", "x", "EACCES", 2)
        failure = journal.failures()[DirKey("/d", "x")]
        assert (failure.count, failure.last_at_ms, failure.last_error) == (2, 2, "EACCES")
        journal.clear_failures([DirKey("/d", "y")])
        assert journal.failures()
        journal.clear_failures([DirKey("/d", "x")])
        assert journal.failures() == {}


def test_removals_count_as_started_unless_they_were_skipped(tmp_path: Path) -> None:
    with Journal.open(str(tmp_path)) as journal:
        names = ["open", "done", "failed", "yielded", "skipped"]
        removals = [intent(n, action=ActionKind.REMOVE, new_name=None) for n in names]
        ids = journal.begin([*removals, intent("marked")], NOW)
        outcomes = [Outcome.DONE, Outcome.FAILED, Outcome.YIELDED, Outcome.SKIPPED, Outcome.DONE]
        journal.finish([(n, o, None) for n, o in zip(ids[1:], outcomes, strict=True)], NOW)
        assert journal.removal_intents({17, 18}, set()).keys() == {(n, 17) for n in names[:-1]}


def test_only_open_intents_are_withdrawn_and_their_ids_are_not_used_again(tmp_path: Path) -> None:
    """A thread that waited for a hung disk may withdraw what another session has settled since."""
    with Journal.open(str(tmp_path)) as journal:
        settled, *withdrawn = journal.begin([intent(f"orders-{n}") for n in range(3)], NOW)
        journal.finish([(settled, Outcome.DONE, None)], NOW)
        journal.withdraw([settled, *withdrawn])
        assert [e.id for e in journal.history()] == [settled]
        assert journal.begin([intent("payments-0")], NOW)[0] > max(withdrawn)


def test_clocks_and_brokers_seen_serving(tmp_path: Path) -> None:
    with Journal.open(str(tmp_path)) as journal:
        assert journal.last_clocks() is None
        journal.note_clocks(Clocks("b", 1, 2))
        journal.note_clocks(Clocks("c", 3, 4))
        assert journal.last_clocks() == Clocks("c", 3, 4)
        assert journal.clock_doubt() is None and journal.clock_jumps() == []
        journal.note_clock_doubt(ClockDoubt("why", "c", 5, 6))
        assert journal.clock_doubt() == ClockDoubt("", "c", 5, 6)
        journal.trust_clocks(Clocks("c", 9, 9), ClockJump(5, 6))
        assert journal.clock_doubt() is None and journal.clock_jumps() == [ClockJump(5, 6)]
        assert journal.last_clocks() == Clocks("c", 9, 9)
        assert journal.incarnations() == {}
        for number in range(30):
            journal.note_incarnation(f"i{number}", 100 + number)
        journal.note_incarnation("i29", 500)
        assert journal.incarnations() == {f"i{number}": 100 + number for number in range(10, 30)}
        journal.note_serving({"/d1": SeenHolder(1, 2, 3)})
        journal.note_serving({"/d2": SeenHolder(4, 5, 6)})
        assert journal.serving() == {"/d2": SeenHolder(4, 5, 6)}


# Durability


def test_intents_are_on_disk_before_begin_returns(tmp_path: Path) -> None:
    """Seen by strace: the write-ahead log is synced after its last write and before anything else happens."""
    need_command("strace")
    source = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.disk.cleanup.state.test_journal import Journal, intent, NOW\n"
        "j = Journal.open(sys.argv[1])\n"
        "j.begin([intent()], NOW)\n"
        "import os; os.mkdir(sys.argv[1] + '/begun')\n"
        "j.finish([(1, __import__('logagent.base.records').base.records.Outcome.DONE, None)], NOW)\n"
        "os.mkdir(sys.argv[1] + '/finished')\n"
    )
    done = subprocess.run(
        ["strace", "-f", "-y", "-qq", "-e", "trace=pwrite64,fdatasync,fsync,mkdir", sys.executable, "-c", source,
         str(tmp_path)],
        cwd=HERE, capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    for marker in ("begun", "finished"):
        (at,) = [n for n, line in enumerate(lines) if f'{marker}"' in line]
        assert "fdatasync" in lines[at - 1] and f"{FILE_NAME}-wal" in lines[at - 1], lines[at - 1]
        assert "pwrite64" in lines[at - 2] and f"{FILE_NAME}-wal" in lines[at - 2], lines[at - 2]


def test_a_killed_writer_loses_no_intent(tmp_path: Path) -> None:
    source = (
        "import sys, os, signal; sys.path.insert(0, '.')\n"
        "from tests.disk.cleanup.state.test_journal import Journal, intent, NOW\n"
        "j = Journal.open(sys.argv[1])\n"
        "j.begin([intent()], NOW)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert in_child(source, tmp_path).returncode < 0
    assert (tmp_path / f"{FILE_NAME}-wal").stat().st_size > 0
    with Journal.open_read_only(str(tmp_path)) as journal:
        assert [e.intent for e in journal.unsettled()] == [intent()]
    with Journal.open(str(tmp_path)) as journal:
        assert [e.intent for e in journal.unsettled()] == [intent()]


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with Journal.open(str(tmp_path)) as journal:
        with pytest.raises(JournalError, match="NOT NULL"):
            journal.begin([intent(), intent(plan_id=None)], NOW)
        assert journal.history() == []
        assert journal.begin([intent()], NOW) == [1]


@pytest.mark.parametrize("when", ["begin", "finish"])
def test_a_full_disk_is_an_error_and_the_journal_stays_readable(loop_fs: Callable[..., Path], when: str) -> None:
    state = loop_fs("tmpfs", size=1 << 20)
    with Journal.open(str(state)) as journal:
        ids = journal.begin([intent(f"orders-{n}") for n in range(100)], NOW)
        filler = (state / "filler").open("wb")
        with pytest.raises(OSError, match="No space"), filler:
            while True:
                filler.write(b"x" * 4096)
                filler.flush()
        with pytest.raises(JournalError, match="cannot be used"):
            if when == "begin":
                journal.begin([intent(f"more-{n}") for n in range(3000)], NOW)
            else:
                journal.finish([(n, Outcome.FAILED, "x" * 4000) for n in ids], NOW)
        assert len(journal.unsettled()) == 100
        (state / "filler").unlink()
        journal.finish([(n, Outcome.DONE, None) for n in ids], NOW)
    with Journal.open_read_only(str(state)) as journal:
        assert len(journal.history()) == 100 and journal.unsettled() == []


# What is no journal of ours


def test_a_newer_schema_is_refused_for_reading_and_writing(tmp_path: Path) -> None:
    Journal.open(str(tmp_path)).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    db.close()
    for opened in (Journal.open, Journal.open_read_only):
        with pytest.raises(JournalError, match="written by a newer logagent"):
            opened(str(tmp_path))


def test_a_corrupt_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"this is no database\n" * 400)
    for opened in (Journal.open, Journal.open_read_only):
        with pytest.raises(JournalError, match="cannot be used"):
            opened(str(tmp_path))
    assert (tmp_path / FILE_NAME).read_bytes() == b"this is no database\n" * 400


def test_damage_inside_is_an_error_and_never_an_empty_answer(tmp_path: Path) -> None:
    with Journal.open(str(tmp_path)) as journal:
        journal.begin([intent(f"orders-{n}") for n in range(500)], NOW)
    size = (tmp_path / FILE_NAME).stat().st_size
    with (tmp_path / FILE_NAME).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with pytest.raises(JournalError), Journal.open_read_only(str(tmp_path)) as journal:
        journal.history()


@pytest.mark.parametrize("schema", [1, SCHEMA_VERSION - 1])
def test_one_of_an_older_logagent_is_refused_and_left_alone(tmp_path: Path, schema: int) -> None:
    """Taken for empty, what was set aside would be nobody's."""
    with Journal.open(str(tmp_path)) as journal:
        journal.begin([intent("orders-0")], NOW)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        db.execute(f"PRAGMA user_version={schema}")
    before = (tmp_path / FILE_NAME).read_bytes()
    for opened in (Journal.open, Journal.open_read_only):
        with pytest.raises(JournalError, match=f"before the first release .journal schema {schema};") as refused:
            opened(str(tmp_path))
        assert refused.value.hint is not None and "its undo information is lost" in refused.value.hint
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    for opened in (Journal.open, Journal.open_read_only):
        with pytest.raises(JournalError, match="another program"):
            opened(str(tmp_path))


@pytest.mark.parametrize("there", ["dangling symlink", "symlink", "directory"])
def test_nothing_but_a_plain_file_is_opened(tmp_path: Path, there: str) -> None:
    state = tmp_path / "state"
    state.mkdir()
    if there == "directory":
        (state / FILE_NAME).mkdir()
    else:
        (state / FILE_NAME).symlink_to(tmp_path / "elsewhere")
        if there == "symlink":
            (tmp_path / "elsewhere").touch()
    for opened in (Journal.open, Journal.open_read_only):
        with pytest.raises(JournalError):
            opened(str(state))
    assert there != "dangling symlink" or not (tmp_path / "elsewhere").exists()


def test_no_journal_yet_reads_as_empty_and_makes_nothing(tmp_path: Path) -> None:
    with Journal.open_read_only(str(tmp_path / "missing")) as journal:
        assert journal.history() == [] and journal.removal_intents({17}, set()) == {}
        with pytest.raises(JournalError, match="reading only"):
            journal.begin([intent()], NOW)
    assert os.listdir(tmp_path) == []


def test_a_file_that_a_kill_left_empty_is_a_new_journal(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).touch()
    with Journal.open_read_only(str(tmp_path)) as journal:
        assert journal.history() == []
    with Journal.open(str(tmp_path)) as journal:
        assert journal.begin([intent()], NOW) == [1]


# Others who read


# Everything is imported while it still may be: nobody may read the interpreter's own files here and there.
READ = (
    "import sys, os, urllib.parse; sys.path.insert(0, '.')\n"
    "from logagent.cleanup.state.journal import Journal\n"
    "from logagent.base.errors import JournalError\n"
    f"os.setgroups([]); os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3)\n"
    "try:\n"
    "    with Journal.open_read_only(sys.argv[1]) as j: print([e.intent.name for e in j.history()])\n"
    "except JournalError as e: print('refused:', e)\n"
)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A state dir that everybody may look into, in places that everybody may pass."""
    need_root()
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_mode & 0o005 != 0o005 and str(path).startswith("/tmp/"):
            path.chmod(path.stat().st_mode | 0o055)
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    return state


def test_who_may_only_read_reads_it_though_no_writer_is_there(shared: Path) -> None:
    with Journal.open(str(shared)) as journal:
        journal.begin([intent()], NOW)
    (shared / FILE_NAME).chmod(0o644)
    assert os.listdir(shared) == [FILE_NAME]
    seen = in_child(READ, shared)
    assert seen.stdout.strip() == "['orders-0']", seen.stderr
    assert os.listdir(shared) == [FILE_NAME]


def test_who_may_only_read_reads_it_while_a_writer_works(shared: Path) -> None:
    with Journal.open(str(shared)) as journal:
        journal.begin([intent()], NOW)
        for name in os.listdir(shared):
            (shared / name).chmod(0o644)
        seen = in_child(READ, shared)
        assert seen.stdout.strip() == "['orders-0']", seen.stderr
        assert journal.begin([intent("orders-1")], NOW) == [2]


@pytest.mark.parametrize("forbidden", ["state dir", "journal"])
def test_who_may_not_read_gets_an_error_and_not_an_empty_answer(shared: Path, forbidden: str) -> None:
    with Journal.open(str(shared)) as journal:
        journal.begin([intent()], NOW)
    if forbidden == "state dir":
        shared.chmod(0o750)
    else:
        (shared / FILE_NAME).chmod(0o640)
    seen = in_child(READ, shared)
    assert seen.stdout.startswith("refused:") and "Permission denied" in seen.stdout, seen.stdout + seen.stderr


def test_a_reader_is_not_in_the_way_of_a_writer_nor_sees_half_of_it(tmp_path: Path) -> None:
    with Journal.open(str(tmp_path)) as writer, Journal.open_read_only(str(tmp_path)) as reader:
        for n in range(1, 51):
            writer.begin([intent(f"a-{n}"), intent(f"b-{n}")], NOW)
            assert len(reader.history()) == 2 * n
        assert [e.id for e in reader.history(limit=3)] == [98, 99, 100]
        assert reader.history(since_ms=NOW + 1) == []


def test_the_file_is_for_owner_and_group_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Journal.open(str(tmp_path)) as journal:
            journal.begin([intent()], NOW)
            modes = {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == {0o640}


def test_what_is_written_to_is_not_called_damaged(tmp_path: Path) -> None:
    """It was read without SQLite's locks, in the middle of what somebody wrote."""
    path = tmp_path / FILE_NAME
    with Journal.open(str(tmp_path)):
        pass
    before = os.stat(path)
    assert not is_written_to(str(path), before)
    beside = path.with_name(FILE_NAME + "-wal")
    beside.write_bytes(b"x")
    assert is_written_to(str(path), before)
    beside.unlink()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert is_written_to(str(path), before)
    path.unlink()
    assert is_written_to(str(path), before)
