"""Lives of one directory: found, set aside, loaded by a broker, removed in part, its journal lost or old, the clock
moved, its id edited, restored and replaced. No path leads from "assigned" to fewer records without the operator's word
for it.

The broker is a model of what was seen on 3.9.1 and 4.3.1: it stretches the indexes of strays and trusts every index
beside a clean-shutdown marker (after a kill they can be wrong), empties the leader epochs of marked ones, makes what is
assigned and missing anew, and is written to.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from logagent.base.clock import SystemClock
from logagent.base.errors import BrokerHoldsLogDir, RemovalStopped
from logagent.base.records import Identity
from logagent.base.units import DAY_MS
from logagent.cleanup.execute.renames import PlanJournal
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.remove import remove_dir
from logagent.disk.unlink import WorkControl
from logagent.kafka.image import PartitionAssignment, Topic
from tests.disk.killed import in_process
from tests.host import Host
from tests.host_files import write_epochs, write_partition, write_topic_id
from tests.lives import Pick, by_chance, seeds, told
from tests.metadata_writer import batch

TOPIC_ID, OTHER_ID = "DDDDDDDDDDDDDDDDDDDDDA", "EEEEEEEEEEEEEEEEEEEEEA"
NAME = "orders-0"
AT_MS = 1_700_000_000_000
BASES = ("00000000000000000000", "00000000000000000100")
FLAGS = ((), ("--replace",), ("--replace", "--even-last-copy"), ("--replace", "--even-last-copy"))
EPOCH = (0, 0)
INDEXES = (".index", ".timeindex")
STRETCHED = b"\1" * 24 + bytes(24)
SOUND = b"\1" * 24
# What nobody sees by its look: a broker that trusts it finds no record.
WRONG = b"\2" * 24
HERE = Topic("orders", TOPIC_ID, {0: PartitionAssignment((1,), (1,))})


class ServedHost(Host):
    """One log dir with one assigned partition, and the model of a broker, which is stopped."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, root / "d1", node_id=1)
        self.format("AAAAAAAAAAAAAAAAAAAAZg")
        self.current = self.d1 / NAME
        # Inodes of what lost files to a removal.
        self.halved: set[int] = set()
        self._make(records=True)
        self.stop(clean=True)

    def _make(self, *, records: bool) -> None:
        logs = {int(base): batch(int(base), [b"record"] * 100, AT_MS) for base in BASES} if records else {0: b""}
        write_partition(self.current, logs, beside=dict.fromkeys(INDEXES, SOUND), epochs=[EPOCH], topic_id=TOPIC_ID)

    @staticmethod
    def _index(path: Path, base: str, content: bytes) -> None:
        for suffix in INDEXES:
            (path / f"{base}{suffix}").write_bytes(content)

    def stop(self, *, clean: bool) -> None:
        logs = sorted(self.current.glob("*.log"))
        for log in logs[-1:]:
            self._index(self.current, log.stem, SOUND if clean else STRETCHED)
        for log in [] if clean else logs[:-1]:
            self._index(self.current, log.stem, WRONG)
        if clean:
            (self.d1 / ".kafka_cleanshutdown").touch()

    def start(self) -> None:
        """Load, serve, and check the retention."""
        marker = self.d1 / ".kafka_cleanshutdown"
        clean = marker.exists()
        marker.unlink(missing_ok=True)
        if self.current.is_dir() and topic_id(self.current) != TOPIC_ID:
            # In the order in which they were made, as ours.
            made_ms = time.time_ns() // 1_000_000
            self.current.rename(self.d1 / f"{NAME}.{made_ms:012x}{uuid.uuid4().hex[12:]}-stray")
        for path in self.d1.iterdir():
            logs = sorted(path.glob("*.log")) if path.is_dir() else []
            if path == self.current:
                self._load(path, logs, clean=clean)
            elif path.name.endswith("-stray") and logs:
                self._index(path, logs[-1].stem, STRETCHED)
            elif path.name.endswith("-delete"):
                write_epochs(path)
        if not self.current.is_dir():
            self._make(records=False)

    def _load(self, path: Path, logs: list[Path], *, clean: bool) -> None:
        recovered = [log for log in logs if not clean or not log.with_suffix(".index").exists()]
        for log in recovered:
            self._index(path, log.stem, SOUND)
        epochs = path / "leader-epoch-checkpoint"
        if recovered == logs:
            write_epochs(path, EPOCH)
        lost = [
            log
            for log in logs
            if log not in recovered and log.with_suffix(".timeindex").read_bytes()[-12:] in (bytes(12), WRONG[-12:])
        ]
        # A replica without epochs is truncated to what its leader has.
        for log in logs if epochs.read_text() == "0\n0\n" else lost:
            log.write_bytes(b"")

    def aside(self) -> list[Path]:
        return sorted(p for p in self.d1.iterdir() if p.name.startswith(f"{NAME}."))

    def act(self, *arguments: str) -> int:
        """Run a command, with an approval where it asks for one; its status."""
        status, document = in_process(self.root, list(arguments))
        if status == 4:
            status, document = in_process(self.root, [*arguments, "--approve", document["plan_id"]])
        print(*arguments, "->", status, {key: document.get(key) for key in ("refusals", "stopped", "said")})
        return status


def records(path: Path) -> dict[str, bytes]:
    return {log.name: log.read_bytes() for log in path.glob("*.log") if log.stat().st_size}


def whole(path: Path) -> bool:
    return set(records(path)) == {f"{base}.log" for base in BASES}


# What can happen to it


def delete(host: ServedHost, pick: Pick) -> None:
    """The operator's word: set aside or marked, and not lost."""
    how = ("--quarantine",) if pick("quarantine", (True, False)) else ()
    host.act("delete", "--partition", NAME, *how, "--allow-assigned", "--even-last-copy", "--execute")


def produce(host: ServedHost, pick: Pick) -> None:
    """To what the broker made anew."""
    log = host.current / f"{BASES[0]}.log"
    if host.current.is_dir() and not records(host.current) and log.exists():
        log.write_bytes(batch(0, [b"another"] * 5, AT_MS, epoch=1))
        write_epochs(host.current, (1, 0))


def clean_up(host: ServedHost, pick: Pick) -> None:
    """Whatever the clock says. What is marked goes (that was the word), and strays that are covered by what is there;
    never the only copy of a living partition."""
    before = {
        path: records(path) for path in host.aside() if path.name.endswith("-stray") and topic_id(path) == TOPIC_ID
    }
    in_place = os.stat(host.current).st_ino if host.current.is_dir() and topic_id(host.current) == TOPIC_ID else None
    ahead = pick("clock ahead", [0, 9 * DAY_MS, -9 * DAY_MS])
    now_ms = time.time_ns() // 1_000_000 + ahead
    known = host.export(HERE, at_ms=now_ms)
    with mock.patch.object(SystemClock, "now_ms", lambda self: time.time_ns() // 1_000_000 + ahead):
        host.act("cleanup", "--execute", "--assignments", str(known))
    assert in_place is None or os.stat(host.current).st_ino == in_place
    for path, had in before.items():
        assert path.is_dir() or had.items() <= records(host.current).items()


def topic_id(path: Path) -> str | None:
    try:
        return (path / "partition.metadata").read_text().split()[-1]
    except FileNotFoundError:
        return None


def delete_without_the_word(host: ServedHost, pick: Pick) -> None:
    before = os.stat(host.current).st_ino if host.current.is_dir() else None
    for half in ((), ("--allow-assigned",), ("--even-last-copy",)):
        assert host.act("delete", "--partition", NAME, *half, "--execute") != 0 or before is None
    assert before is None or os.stat(host.current).st_ino == before


@contextlib.contextmanager
def edited_in_between(path: Path, topic_id: str) -> Iterator[None]:
    """The id of `path` becomes `topic_id` when all is planned and the facts are gathered, right before the act."""
    begin = PlanJournal.begin

    def edit_first(self: PlanJournal, *args: Any, **kwargs: Any) -> list[int]:
        write_topic_id(path, topic_id)
        return begin(self, *args, **kwargs)

    with mock.patch.object(PlanJournal, "begin", edit_first):
        yield


def serve(host: ServedHost, pick: Pick) -> None:
    host.start()
    host.stop(clean=pick("clean", (True, False)))


def restore(host: ServedHost, pick: Pick) -> None:
    if not host.aside():
        return
    chosen = pick("which", host.aside())
    flags = pick("flags", FLAGS)
    had, inode = records(chosen), chosen.stat().st_ino
    in_place = os.stat(host.current).st_ino if host.current.is_dir() else None
    displaced = records(host.current) if in_place is not None else {}
    # Without assignments nobody can say that a name which is free, or taken by the same incarnation as what comes back,
    # belongs to another one; the broker does, and keeps it as a stray.
    same = in_place is None or topic_id(host.current) == topic_id(chosen)
    status = host.act("restore", "--retention-will-delete", chosen.name, *flags, "--execute")
    if status != 0:
        assert in_place is None or os.stat(host.current).st_ino == in_place
        return
    assert inode not in host.halved, "half of it is gone"
    assert in_place is None or "--even-last-copy" in flags
    assert not displaced or any(records(path) == displaced for path in host.aside())
    foreign = same and topic_id(host.current) != TOPIC_ID
    host.start()
    assert records(host.current) == had or (foreign and any(records(path) == had for path in host.aside()))
    host.stop(clean=True)


def restore_beaten(host: ServedHost, pick: Pick) -> None:
    """A broker takes the lock before the two change places, or before anything but that what was marked is a stray."""
    if not host.aside() or not host.current.is_dir():
        return
    chosen = pick("which", host.aside())
    in_place = os.stat(host.current).st_ino
    broker = BrokerHoldsLogDir("a broker was faster", log_dir=str(host.d1))
    step = pick("beaten at", ("drop_indexes", "exchange"))
    with mock.patch(f"logagent.cleanup.execute.renames.{step}", side_effect=broker):
        assert (
            host.act("restore", "--retention-will-delete", chosen.name, "--replace", "--even-last-copy", "--execute")
            != 0
        )
    assert os.stat(host.current).st_ino == in_place
    serve(host, pick)


def remove_in_part(host: ServedHost, pick: Pick) -> None:
    if not host.aside():
        return
    chosen = pick("removed in part", host.aside())
    # Within a segment, or whole ones, of which nothing is left that would tell.
    most = pick("files gone", (0, 1, 3, 3, 6))
    found, had = chosen.stat(), len(os.listdir(chosen))
    with OpenLogDir(str(host.d1), LogDirFailures()) as log_dir:

        class Stops:
            def before(self) -> None:
                if had - len(os.listdir(chosen)) >= most:
                    raise RemovalStopped("stopped")

            def expire(self) -> None: ...

        try:
            remove_dir(log_dir, chosen.name, Identity(found.st_dev, found.st_ino), Stops(), control=WorkControl())
        except RemovalStopped:
            if len(os.listdir(chosen)) < had:
                host.halved.add(found.st_ino)


def lose_the_journal(host: ServedHost, pick: Pick) -> None:
    shutil.rmtree(host.root / "state", ignore_errors=True)


def keep_the_journal(host: ServedHost, pick: Pick) -> None:
    if (host.root / "state").is_dir():
        shutil.copytree(host.root / "state", host.root / "kept", dirs_exist_ok=True)


def take_the_old_journal(host: ServedHost, pick: Pick) -> None:
    if (host.root / "kept").is_dir():
        shutil.rmtree(host.root / "state", ignore_errors=True)
        shutil.copytree(host.root / "kept", host.root / "state")


def edit_the_id(host: ServedHost, pick: Pick) -> None:
    places = [p for p in (*host.aside(), host.current) if (p / "partition.metadata").exists()]
    if places:
        path = pick("whose id", places)
        topic_id = pick("id", [TOPIC_ID, OTHER_ID])
        write_topic_id(path, topic_id)


EVENTS: list[Callable[[ServedHost, Pick], None]] = [
    delete, delete_without_the_word, serve, restore, remove_in_part, lose_the_journal, keep_the_journal,
    take_the_old_journal, edit_the_id, produce, clean_up, restore_beaten,
]  # fmt: skip


def a_life(pick: Pick) -> Iterator[Callable[[ServedHost, Pick], None]]:
    """Whatever else happens, it is set aside, loaded (or removed in part), and asked back twice."""

    def few() -> list[Callable[[ServedHost, Pick], None]]:
        return [pick("event", EVENTS) for _ in range(pick("events", range(4)))]

    yield from few()
    yield from (serve, delete_without_the_word, delete)
    yield from (serve, produce) if pick("loaded", (True, True, False)) else (remove_in_part,)
    yield from few()
    yield restore
    yield from few()
    yield restore


@pytest.mark.parametrize("seed", seeds(10))
def test_no_life_leads_to_fewer_records_without_a_word(tmp_path: Path, seed: int) -> None:
    host, pick = ServedHost(tmp_path), by_chance(seed)
    worded = removed = False
    for event in a_life(pick):
        print(event.__name__)
        event(host, pick)
        worded |= event in (delete, edit_the_id)
        removed |= event in (remove_in_part, clean_up)
        if not worded:
            assert whole(host.current)
        elif not removed:
            assert any(whole(path) for path in (host.current, *host.aside()) if path.is_dir()), (
                host.current,
                *host.aside(),
            )


@pytest.mark.parametrize("quarantine", [True, False])
@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize("other_id", [True, False])
def test_the_short_lives(tmp_path: Path, quarantine: bool, killed: bool, other_id: bool) -> None:
    """Those that chance takes a while to find: set aside after a kill, loaded and stopped cleanly, asked back."""
    host = ServedHost(tmp_path)
    serve(host, told(clean=not killed))
    delete(host, told(quarantine=quarantine))
    serve(host, told(clean=True))
    (aside,) = host.aside()
    if quarantine:
        clean_up(host, told(clock_ahead=0))
    if other_id:
        edit_the_id(host, told(whose_id=aside, id=OTHER_ID))
    restore(host, told(which=aside, flags=("--replace", "--even-last-copy")))
    assert whole(host.current) is not other_id


@pytest.mark.parametrize("step", ["drop_indexes", "exchange"])
def test_what_was_marked_and_then_set_aside_is_rebuilt_whole(tmp_path: Path, step: str) -> None:
    """Its leader epochs went when a broker loaded it under its `-delete` name."""
    host = ServedHost(tmp_path)
    delete(host, told(quarantine=False))
    serve(host, told(clean=True))
    restore_beaten(host, told(which=host.aside()[0], beaten_at=step, clean=True))
    (aside,) = host.aside()
    assert aside.name.endswith("-stray")
    restore(host, told(which=aside, flags=("--replace", "--even-last-copy")))
    assert whole(host.current)


@pytest.mark.parametrize("stray", [True, False])
def test_an_id_that_becomes_the_living_one_between_plan_and_act_saves_it(tmp_path: Path, stray: bool) -> None:
    host = ServedHost(tmp_path)
    path = host.current
    if stray:
        delete(host, told(quarantine=True))
        (path,) = host.aside()
    edit_the_id(host, told(whose_id=path, id=OTHER_ID))
    with edited_in_between(path, TOPIC_ID):
        if stray:
            clean_up(host, told(clock_ahead=0))
            clean_up(host, told(clock_ahead=9 * DAY_MS))
        else:
            assert host.act("delete", "--partition", NAME, "--execute") != 0
    assert whole(path)
