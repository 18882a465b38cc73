"""After a crash: what the journal left open is settled by looking at the disk, or stays open until it can be."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from logagent.base.dir_names import CHECKPOINTS, CLEANER, LOG_START_OFFSET, RECOVERY_POINT
from logagent.base.errors import LogAgentError
from logagent.base.records import ActionKind, DirKey, Identity, Outcome, TopicPartition
from logagent.cleanup.execute.recovery import recover
from logagent.cleanup.state.journal import CheckpointEntry, Intent, Journal
from logagent.disk.calls import DirectCalls, DiskCalls, Stop, T, caught
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.kafka.files.checkpoint_files import TEMP_PREFIX, parse_checkpoint, render_checkpoint
from tests.command_line import LOCKER, process
from tests.host import Host
from tests.host_files import write_topic_id
from tests.metadata_writer import batch

TOPIC_ID, OTHER_ID = "DDDDDDDDDDDDDDDDDDDDDA", "EEEEEEEEEEEEEEEEEEEEEA"
HEX = "0123456789abcdef" * 2
NOW = 1_800_000_000_000
MARKED = f"orders-0.{HEX}-delete"
ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 0)
SAVED = tuple(
    CheckpointEntry(file, "orders", 0, n) for n, file in enumerate((LOG_START_OFFSET, CLEANER, RECOVERY_POINT))
)


class CrashedHost(Host):
    """A log dir with two partitions of which one has no entries any more, and a journal that knows them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, root / "d1")
        self.path = self.format().d1
        self.state.mkdir()
        for name in ("orders-0", "payments-0"):
            (self.path / name).mkdir()
        for file in CHECKPOINTS:
            self.write(file, {PAYMENTS: 9})
        self.orders = self.path / "orders-0"

    def write(self, file: str, entries: dict[TopicPartition, int]) -> None:
        (self.path / file).write_bytes(render_checkpoint(entries))

    def read(self, file: str) -> dict[TopicPartition, int]:
        return parse_checkpoint((self.path / file).read_bytes())

    def intent(self, action: ActionKind = ActionKind.MARK, **fields: object) -> Intent:
        found = self.orders.stat()
        away = action is not ActionKind.RESTORE
        meant = Intent(
            action=action,
            log_dir=str(self.path),
            name="orders-0" if away else MARKED,
            new_name=None if action is ActionKind.REMOVE else MARKED if away else "orders-0",
            topic="orders",
            partition=0,
            topic_id=None,
            identity=Identity(found.st_dev, found.st_ino),
            bytes=1,
            plan_id="p",
            actor="test",
            checkpoint_entries=SAVED,
        )
        return replace(meant, **fields)  # type: ignore[arg-type]

    def recover(
        self, *intents: Intent, offline: bool = False, calls: DiskCalls | None = None
    ) -> list[tuple[Outcome | None, str | None]]:
        """Leave `intents` open as a crash does (all of the run before, if there are none), and recover."""
        with Journal.open(str(self.state)) as journal, ExitStack() as stack:
            if intents:
                journal.begin(intents, NOW)
            opened = (
                {} if offline else {str(self.path): stack.enter_context(OpenLogDir(str(self.path), LogDirFailures()))}
            )
            recover(journal, opened, NOW + 1, calls)
            return [(e.outcome, e.error) for e in journal.history()]


@pytest.fixture
def host(tmp_path: Path) -> CrashedHost:
    return CrashedHost(tmp_path)


def rename(host: CrashedHost) -> None:
    host.orders.rename(host.path / MARKED)


def test_a_mark_that_did_not_happen_gets_its_entries_back(host: CrashedHost) -> None:
    ((outcome, error),) = host.recover(host.intent())
    assert (outcome, error) == (Outcome.SKIPPED, "interrupted before the rename")
    for e in SAVED:
        assert host.read(e.file) == {PAYMENTS: 9, ORDERS: e.offset}


def test_where_a_broker_made_newer_entries_those_stay(host: CrashedHost) -> None:
    host.write(LOG_START_OFFSET, {ORDERS: 77})
    host.recover(host.intent())
    assert host.read(LOG_START_OFFSET) == {ORDERS: 77}


def test_a_mark_that_happened_is_completed(host: CrashedHost) -> None:
    meant = host.intent()
    host.write(RECOVERY_POINT, {PAYMENTS: 9, ORDERS: 2})
    rename(host)
    assert host.recover(meant) == [(Outcome.DONE, None)]
    assert host.read(RECOVERY_POINT) == {PAYMENTS: 9}
    assert host.read(LOG_START_OFFSET) == {PAYMENTS: 9}


def test_a_mark_that_happened_takes_nothing_from_a_partition_that_was_made_anew(host: CrashedHost) -> None:
    meant = host.intent()
    rename(host)
    host.orders.mkdir()
    for file in CHECKPOINTS:
        host.write(file, {ORDERS: 1000})
    assert host.recover(meant) == [(Outcome.DONE, None)]
    assert [host.read(file) for file in CHECKPOINTS] == [{ORDERS: 1000}] * len(CHECKPOINTS)


def test_a_restore_that_happened_gets_its_entries(host: CrashedHost) -> None:
    assert host.recover(host.intent(ActionKind.RESTORE)) == [(Outcome.DONE, None)]
    for e in SAVED:
        assert host.read(e.file) == {PAYMENTS: 9, ORDERS: e.offset}


def log_of(directory: Path, topic_id: str | None, *, end: int, tail: bytes = b"") -> None:
    """The directory's log: records 0 to `end`, then `tail`."""
    content = batch(0, [b"record"] * end, 1_700_000_000_000) if end else b""
    (directory / "00000000000000000000.log").write_bytes(content + tail)
    if topic_id is not None:
        write_topic_id(directory, topic_id)


@pytest.mark.parametrize("action", [ActionKind.MARK, ActionKind.RESTORE])
@pytest.mark.parametrize(
    ("topic_id", "end", "tail", "back"),
    [
        (TOPIC_ID, 7, b"", 7),
        (TOPIC_ID, 8, b"", 7),
        # Truncated to what a leader had, since then.
        (TOPIC_ID, 6, b"", None),
        # Where it ends cannot be told.
        (TOPIC_ID, 8, b"torn", None),
        # Deleted and created anew since then, with the same inode.
        (OTHER_ID, 3, b"", None),
        (OTHER_ID, 8, b"", None),
        (None, 8, b"", None),
    ],
)
def test_weeks_later_a_log_start_offset_comes_back_only_below_the_end_of_the_same_log(
    host: CrashedHost, action: ActionKind, topic_id: str | None, end: int, tail: bytes, back: int | None
) -> None:
    """Above the end it makes a broker delete every segment: a mark (or restore) that was cut short was settled weeks
    later, and the partition that lay there by then was emptied."""
    saved = (CheckpointEntry(LOG_START_OFFSET, "orders", 0, 7),)
    meant = host.intent(action, topic_id=TOPIC_ID, checkpoint_entries=saved)
    log_of(host.orders, topic_id, end=end, tail=tail)
    host.recover(meant)
    assert host.read(LOG_START_OFFSET).get(ORDERS) == back


def test_a_restore_that_did_not_happen_changes_nothing(host: CrashedHost) -> None:
    meant = host.intent(ActionKind.RESTORE)
    rename(host)
    assert host.recover(meant)[0][0] is Outcome.SKIPPED
    assert [file for file in CHECKPOINTS if host.read(file) != {PAYMENTS: 9}] == []


@pytest.mark.parametrize("action", [ActionKind.MARK, ActionKind.RESTORE])
@pytest.mark.parametrize("names", [(), ("orders-0", MARKED)])
def test_what_stands_nowhere_or_is_another_directory_failed(
    host: CrashedHost, action: ActionKind, names: tuple[str, ...]
) -> None:
    """Another one: it has the inode of neither, and the topic id of another topic."""
    meant = host.intent(action, topic_id=TOPIC_ID)
    host.orders.rename(host.path / "elsewhere-0")
    for name in names:
        (host.path / name).mkdir()
        log_of(host.path / name, OTHER_ID, end=8)
    ((outcome, error),) = host.recover(meant)
    assert outcome is Outcome.FAILED and "neither name" in (error or "")
    assert [file for file in CHECKPOINTS if host.read(file) != {PAYMENTS: 9}] == []


@pytest.mark.parametrize(
    ("mode", "had", "outcomes"),
    [(0o4755, 1, [Outcome.YIELDED]), (0o755, 0, []), (0o755, 1, [Outcome.YIELDED]), (None, 1, [Outcome.DONE])],
    ids=["begun", "not-reached", "begun-and-its-mark-taken-away", "gone"],
)
def test_what_became_of_a_removal_shows_on_the_disk(
    host: CrashedHost, mode: int | None, had: int, outcomes: list[Outcome]
) -> None:
    rename(host)
    host.orders = host.path / MARKED
    meant = host.intent(ActionKind.REMOVE, name=MARKED, files=had, segments=had, bytes=had, log_bytes=had)
    if mode is None:
        host.orders.rmdir()
    else:
        host.orders.chmod(mode)
    assert [outcome for outcome, _ in host.recover(meant)] == outcomes


def test_a_removal_whose_name_another_directory_has_now_is_not_done(host: CrashedHost) -> None:
    """The words of `history`, and what counts as removed."""
    rename(host)
    host.orders = host.path / MARKED
    log_of(host.orders, OTHER_ID, end=8)
    ((outcome, error),) = host.recover(host.intent(ActionKind.REMOVE, name=MARKED, topic_id=TOPIC_ID, files=2))
    assert outcome is Outcome.FAILED and "another directory" in (error or "")


def copied(host: CrashedHost) -> None:
    """All of the log dir is on another disk now (`cp -a`, a backup that was played back): the same names, other
    inodes."""
    original = host.path.with_name("original")
    host.path.rename(original)
    subprocess.run(["cp", "-a", original, host.path], check=True)
    subprocess.run(["rm", "-r", original], check=True)


@pytest.mark.parametrize("topic_id", [TOPIC_ID, None])
@pytest.mark.parametrize(
    ("mode", "lost", "outcomes"),
    [(0o4755, "00000000000000000000.log", [Outcome.YIELDED]), (0o4755, "partition.metadata", [Outcome.YIELDED]),
     (0o4755, None, []), (0o755, None, [])],
    ids=["begun", "begun-without-its-id", "not-reached", "not-marked"],
)  # fmt: skip
def test_of_a_removal_that_was_cut_short_a_copy_is_there(
    host: CrashedHost, topic_id: str | None, mode: int, lost: str | None, outcomes: list[Outcome]
) -> None:
    log_of(host.orders, topic_id or OTHER_ID, end=8)
    rename(host)
    host.orders = host.path / MARKED
    meant = host.intent(ActionKind.REMOVE, name=MARKED, topic_id=topic_id, files=2, segments=1, removal_started=False,
                        bytes=sum(p.stat().st_size for p in host.orders.iterdir()))  # fmt: skip
    host.orders.chmod(mode)
    if lost is not None:
        (host.orders / lost).unlink()
    copied(host)
    assert [outcome for outcome, _ in host.recover(meant)] == outcomes
    assert bool(host.orders.stat().st_mode & 0o4000) == (lost is not None)


@pytest.mark.parametrize("action", [ActionKind.MARK, ActionKind.QUARANTINE])
def test_a_rename_that_happened_is_done_in_a_copy_too(host: CrashedHost, action: ActionKind) -> None:
    """Otherwise `restore --plan` does not know of it."""
    log_of(host.orders, TOPIC_ID, end=8)
    meant = host.intent(action, topic_id=TOPIC_ID)
    rename(host)
    copied(host)
    assert host.recover(meant) == [(Outcome.DONE, None)]


@pytest.mark.parametrize("action", [ActionKind.MARK, ActionKind.RESTORE])
@pytest.mark.parametrize("happened", [False, True])
def test_in_a_copy_the_topic_id_tells_which_directory_has_its_current_name(
    host: CrashedHost, action: ActionKind, happened: bool
) -> None:
    log_of(host.orders, TOPIC_ID, end=8)
    meant = host.intent(
        action, topic_id=TOPIC_ID, checkpoint_entries=(CheckpointEntry(LOG_START_OFFSET, "orders", 0, 7),)
    )
    at_home = happened is (action is ActionKind.RESTORE)
    if not at_home:
        rename(host)
    copied(host)
    ((outcome, _),) = host.recover(meant)
    assert outcome is (Outcome.DONE if happened else Outcome.SKIPPED)
    assert host.read(LOG_START_OFFSET).get(ORDERS) == (7 if at_home else None)


def test_the_inode_of_a_topic_that_is_gone_is_no_sign(host: CrashedHost) -> None:
    """It is given to the next directory that is made: here, to one of the topic that has the name now."""
    log_of(host.orders, OTHER_ID, end=8)
    ((outcome, error),) = host.recover(host.intent(topic_id=TOPIC_ID))
    assert outcome is Outcome.FAILED and "neither name" in (error or "")


def test_in_a_copy_a_directory_without_a_topic_id_is_not_known_to_be_the_one(host: CrashedHost) -> None:
    log_of(host.orders, TOPIC_ID, end=8)
    meant = host.intent(topic_id=TOPIC_ID)
    copied(host)
    (host.orders / "partition.metadata").unlink()
    ((outcome, error),) = host.recover(meant)
    assert outcome is Outcome.FAILED and "neither name" in (error or "")
    assert [file for file in CHECKPOINTS if host.read(file) != {PAYMENTS: 9}] == []


def test_a_restore_whose_directory_has_its_stray_name_did_not_happen(host: CrashedHost) -> None:
    """Whatever has the current name, as the one that a broker made anew does: it has the same topic id."""
    log_of(host.orders, TOPIC_ID, end=8)
    meant = host.intent(ActionKind.RESTORE, topic_id=TOPIC_ID)
    rename(host)
    host.orders.mkdir()
    log_of(host.orders, TOPIC_ID, end=3)
    copied(host)
    assert host.recover(meant)[0][0] is Outcome.SKIPPED
    assert host.read(LOG_START_OFFSET) == {PAYMENTS: 9}


def test_an_inode_that_was_given_again_says_less_than_a_unique_name(host: CrashedHost) -> None:
    """In a copy, where the partition was assigned here again: its new directory has the number of the old one."""
    log_of(host.orders, TOPIC_ID, end=8)
    rename(host)
    host.orders.mkdir()
    log_of(host.orders, TOPIC_ID, end=3)
    meant = host.intent(topic_id=TOPIC_ID, checkpoint_entries=(CheckpointEntry(LOG_START_OFFSET, "orders", 0, 2),))
    assert host.recover(meant) == [(Outcome.DONE, None)]
    assert host.read(LOG_START_OFFSET) == {PAYMENTS: 9}


def test_a_topic_id_says_less_than_an_inode(host: CrashedHost) -> None:
    """Somebody gave a name that is not unique to a directory of the same topic, once the restored one had left it."""
    stray = "orders-0.backup-stray"
    log_of(host.orders, TOPIC_ID, end=8)
    meant = host.intent(ActionKind.RESTORE, name=stray, topic_id=TOPIC_ID)
    (host.path / stray).mkdir()
    log_of(host.path / stray, TOPIC_ID, end=3)
    assert host.recover(meant) == [(Outcome.DONE, None)]


def exchange(host: CrashedHost) -> tuple[Intent, Intent]:
    """A `restore --replace` that was cut short before its first rename: what goes aside, and what comes back."""
    log_of(host.orders, TOPIC_ID, end=8)
    back = host.intent(ActionKind.RESTORE, topic_id=TOPIC_ID)
    rename(host)
    host.orders.mkdir()
    log_of(host.orders, TOPIC_ID, end=3)
    displaced = host.intent(
        ActionKind.QUARANTINE, topic_id=TOPIC_ID, new_name=f"orders-0.{HEX[::-1]}-stray",
        through=DirKey(str(host.path), MARKED),
    )  # fmt: skip
    return displaced, back


def test_of_two_that_were_being_exchanged_a_copy_does_not_tell_which_has_which_name(host: CrashedHost) -> None:
    """Each had either name: a unique one that may be the other's says nothing, and a copy has neither inode."""
    displaced, back = exchange(host)
    before = sorted(os.listdir(host.path))
    copied(host)
    assert host.recover(displaced, back) == [(None, None)] * 2
    assert sorted(os.listdir(host.path)) == before


def test_an_exchange_that_did_not_happen_is_settled_after_a_broker_took_one_of_the_two(host: CrashedHost) -> None:
    """The other one still has its inode: there is nothing left that may be either."""
    displaced, back = exchange(host)
    host.orders.rename(host.path / f"orders-0.{'a' * 32}-stray")
    assert [outcome for outcome, _ in host.recover(displaced, back)] == [Outcome.FAILED, Outcome.SKIPPED]


def test_a_mark_is_taken_back_where_a_broker_loaded_it_since(host: CrashedHost) -> None:
    """Killed before it was reached, then loaded by a broker, which stretches indexes and writes a snapshot: no byte of
    its log is gone."""
    log_of(host.orders, TOPIC_ID, end=8)
    rename(host)
    host.orders = host.path / MARKED
    log = (host.orders / "00000000000000000000.log").stat().st_size
    meant = host.intent(ActionKind.REMOVE, name=MARKED, topic_id=TOPIC_ID, files=2, segments=1, bytes=log + 47,
                        log_bytes=log, removal_started=False)  # fmt: skip
    host.orders.chmod(0o4755)
    (host.orders / "00000000000000000000.index").write_bytes(bytes(10 << 20))
    (host.orders / "00000000000000000008.snapshot").write_bytes(b"snapshot")
    assert host.recover(meant) == []
    assert not host.orders.stat().st_mode & 0o4000


def test_after_a_reboot_the_device_may_have_another_number(host: CrashedHost) -> None:
    meant = host.intent()
    rename(host)
    assert host.recover(replace(meant, identity=Identity(4242, meant.identity.inode))) == [(Outcome.DONE, None)]


def test_temp_files_of_ours_go_and_those_of_the_broker_stay(host: CrashedHost) -> None:
    for name in (TEMP_PREFIX + RECOVERY_POINT, TEMP_PREFIX + CLEANER, f"{RECOVERY_POINT}.tmp"):
        (host.path / name).write_text("half")
    rename(host)
    host.orders = host.path / MARKED
    host.recover(host.intent())
    left = [name for name in os.listdir(host.path) if name.startswith(".") or name.endswith(".tmp")]
    assert left == [f"{RECOVERY_POINT}.tmp"]


def test_while_a_broker_holds_the_log_dir_its_checkpoints_are_the_truth(host: CrashedHost) -> None:
    with process(LOCKER, host.path):
        ((outcome, _),) = host.recover(host.intent())
    assert outcome is Outcome.SKIPPED
    assert [file for file in CHECKPOINTS if host.read(file) != {PAYMENTS: 9}] == []


def make_lock_unreadable(host: CrashedHost) -> Callable[[], None]:
    os.mkfifo(host.path / ".lock")
    return (host.path / ".lock").unlink


def make_checkpoint_unreadable(host: CrashedHost) -> Callable[[], None]:
    (host.path / LOG_START_OFFSET).write_text("junk")
    return lambda: host.write(LOG_START_OFFSET, {PAYMENTS: 9})


@pytest.mark.parametrize("trouble", [make_lock_unreadable, make_checkpoint_unreadable])
def test_what_cannot_be_settled_now_stays_open_until_it_can(
    host: CrashedHost, trouble: Callable[[Host], Callable[[], None]]
) -> None:
    mended = trouble(host)
    assert host.recover(host.intent()) == [(None, None)]
    assert host.recover() == [(None, None)]
    mended()
    assert host.recover()[0][0] is Outcome.SKIPPED
    assert host.read(LOG_START_OFFSET) == {PAYMENTS: 9, ORDERS: 0}


def test_an_offline_log_dir_is_settled_when_it_is_back(host: CrashedHost) -> None:
    assert host.recover(host.intent(), offline=True) == [(None, None)]
    assert host.recover()[0][0] is Outcome.SKIPPED


def test_a_thread_that_was_given_up_settles_nothing(host: CrashedHost) -> None:
    """It waited for a hung disk, and wakes up when others may have taken over."""

    class GivenUp(DirectCalls):
        def work(self, jobs: Mapping[str, Callable[[Stop], T]]) -> dict[str, T | LogAgentError]:
            return {path: caught(partial(job, lambda: True)) for path, job in jobs.items()}

    rename(host)
    host.orders = host.path / MARKED
    gone = host.intent(ActionKind.REMOVE, name="gone-0.x-delete")
    assert host.recover(host.intent(ActionKind.REMOVE, name=MARKED), gone, calls=GivenUp()) == [(None, None)] * 2


def test_one_that_cannot_be_settled_keeps_no_other_one_open(host: CrashedHost) -> None:
    """Each on its own: what concerns no checkpoint is settled though a checkpoint is broken."""
    make_checkpoint_unreadable(host)
    removal = host.intent(ActionKind.REMOVE, name=MARKED, checkpoint_entries=())
    assert [outcome for outcome, _ in host.recover(host.intent(), removal)] == [None, Outcome.DONE]


def test_leftovers_that_were_being_removed_leave_a_directory_as_it_was(tmp_path: Path) -> None:
    """Whatever is left of them, its broker or the next rescue drops; nothing else of it was touched."""
    host = CrashedHost(tmp_path)
    intent = host.intent(ActionKind.REMOVE_LEFTOVERS, new_name=None, checkpoint_entries=())
    with Journal.open(str(host.state)) as journal, OpenLogDir(str(host.path), LogDirFailures()) as log_dir:
        journal.begin([intent], NOW)
        assert len(recover(journal, {log_dir.path: log_dir}, NOW)) == 1
        assert recover(journal, {log_dir.path: log_dir}, NOW) == []
        (entry,) = journal.history()
    assert entry.outcome is Outcome.YIELDED and host.orders.is_dir()
