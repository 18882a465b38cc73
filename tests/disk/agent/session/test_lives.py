"""Lives of one directory: found, set aside, loaded by a broker, removed in part, its journal lost or old, its id
edited, restored and replaced. No path leads from "assigned" to fewer records without the operator's word for it.

The broker is a model of what was seen on 3.9.1 and 4.3.1: it stretches the indexes of strays and trusts every index
beside a clean-shutdown marker, empties the leader epochs of marked ones, and makes what is assigned and missing anew.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from logagent.errors import RemovalStopped
from logagent.host.log_dir.log_dir import LogDirFailures, OpenLogDir
from logagent.host.removal.control import WorkControl
from logagent.host.removal.remove import remove_dir
from logagent.model.records import Identity
from tests.disk.killed import in_process

TOPIC_ID, OTHER_ID = "DDDDDDDDDDDDDDDDDDDDDA", "EEEEEEEEEEEEEEEEEEEEEA"
NAME = "orders-0"
BASES = ("00000000000000000000", "00000000000000000100")
FLAGS = ((), ("--replace",), ("--replace", "--even-last-copy"), ("--replace", "--even-last-copy"))
EPOCHS = "0\n1\n0 0\n"
STRETCHED = b"\1" * 24 + bytes(24)
SOUND = b"\1" * 24


class Host:
    """One log dir with one assigned partition, the agent's state dir, and a broker that is stopped."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.d1 = root / "d1"
        self.d1.mkdir()
        self.current = self.d1 / NAME
        meta = "version=1\ncluster.id=abcdefghijklmnopqrstuv\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAZg\n"
        (self.d1 / "meta.properties").write_text(meta)
        self._make(records=True)
        self.stop(clean=True)

    def _make(self, *, records: bool) -> None:
        self.current.mkdir()
        for base in BASES if records else BASES[:1]:
            (self.current / f"{base}.log").write_bytes(f"records from {base}".encode() if records else b"")
        for base in BASES if records else BASES[:1]:
            self._index(self.current, base, SOUND)
        (self.current / "leader-epoch-checkpoint").write_text(EPOCHS)
        (self.current / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")

    @staticmethod
    def _index(path: Path, base: str, content: bytes) -> None:
        for suffix in (".index", ".timeindex"):
            (path / f"{base}{suffix}").write_bytes(content)

    def stop(self, *, clean: bool) -> None:
        for log in sorted(self.current.glob("*.log"))[-1:]:
            self._index(self.current, log.stem, SOUND if clean else STRETCHED)
        if clean:
            (self.d1 / ".kafka_cleanshutdown").touch()

    def start(self) -> None:
        """Load, serve, and check the retention."""
        marker = self.d1 / ".kafka_cleanshutdown"
        clean = marker.exists()
        marker.unlink(missing_ok=True)
        for path in self.d1.iterdir():
            logs = sorted(path.glob("*.log")) if path.is_dir() else []
            if path == self.current:
                self._load(path, logs, clean=clean)
            elif path.name.endswith("-stray") and logs:
                self._index(path, logs[-1].stem, STRETCHED)
            elif path.name.endswith("-delete"):
                (path / "leader-epoch-checkpoint").write_text("0\n0\n")
        if not self.current.is_dir():
            self._make(records=False)

    def _load(self, path: Path, logs: list[Path], *, clean: bool) -> None:
        recovered = [log for log in logs if not clean or not log.with_suffix(".index").exists()]
        for log in recovered:
            self._index(path, log.stem, SOUND)
        epochs = path / "leader-epoch-checkpoint"
        if recovered == logs:
            epochs.write_text(EPOCHS)
        lost = [
            log
            for log in logs
            if log not in recovered and log.with_suffix(".timeindex").read_bytes()[-12:] == bytes(12)
        ]
        # A replica without epochs is truncated to what its leader has.
        for log in logs if epochs.read_text() == "0\n0\n" else lost:
            log.write_bytes(b"")

    def aside(self) -> list[Path]:
        return sorted(p for p in self.d1.iterdir() if p.name.startswith(f"{NAME}."))

    def run(self, *arguments: str) -> int:
        status, document = in_process(self.root, list(arguments))
        if status == 4:
            status, _ = in_process(self.root, [*arguments, "--approve", document["plan_id"]])
        return status


def records(path: Path) -> dict[str, bytes]:
    return {log.name: log.read_bytes() for log in path.glob("*.log") if log.stat().st_size}


def whole(path: Path) -> bool:
    return set(records(path)) == {f"{base}.log" for base in BASES}


# What can happen to it


def delete(host: Host, draw: st.DataObject) -> None:
    """The operator's word: set aside or marked, and not lost."""
    how = ("--quarantine",) if draw.draw(st.booleans(), "quarantine") else ()
    host.run("delete", "--partition", NAME, *how, "--allow-assigned", "--even-last-copy", "--execute")


def delete_without_the_word(host: Host, draw: st.DataObject) -> None:
    before = os.stat(host.current).st_ino if host.current.is_dir() else None
    assert host.run("delete", "--partition", NAME, "--execute") != 0 or before is None
    assert before is None or os.stat(host.current).st_ino == before


def serve(host: Host, draw: st.DataObject) -> None:
    host.start()
    host.stop(clean=draw.draw(st.booleans(), "clean"))


def restore(host: Host, draw: st.DataObject) -> None:
    if not host.aside():
        return
    chosen = draw.draw(st.sampled_from(host.aside()), "which")
    flags = draw.draw(st.sampled_from(FLAGS), "flags")
    had, mode = records(chosen), chosen.stat().st_mode
    in_place = os.stat(host.current).st_ino if host.current.is_dir() else None
    displaced = records(host.current) if in_place is not None else {}
    status = host.run("restore", chosen.name, *flags, "--execute")
    if status != 0:
        assert in_place is None or os.stat(host.current).st_ino == in_place
        return
    assert not mode & 0o4000, "half of it is gone"
    assert in_place is None or "--even-last-copy" in flags
    assert not displaced or any(records(path) == displaced for path in host.aside())
    host.start()
    assert records(host.current) == had
    host.stop(clean=True)


def remove_in_part(host: Host, draw: st.DataObject) -> None:
    if not host.aside():
        return
    chosen = draw.draw(st.sampled_from(host.aside()), "removed in part")
    left = draw.draw(st.integers(0, 8), "calls")
    with OpenLogDir(str(host.d1), LogDirFailures()) as log_dir:
        calls = iter(range(left))

        class Stops:
            def before(self) -> None:
                if next(calls, None) is None:
                    raise RemovalStopped("stopped")

            def expire(self) -> None: ...

        found = chosen.stat()
        try:
            remove_dir(log_dir, chosen.name, Identity(found.st_dev, found.st_ino), Stops(), control=WorkControl())
        except RemovalStopped:
            pass


def lose_the_journal(host: Host, draw: st.DataObject) -> None:
    shutil.rmtree(host.root / "state", ignore_errors=True)


def keep_the_journal(host: Host, draw: st.DataObject) -> None:
    if (host.root / "state").is_dir():
        shutil.copytree(host.root / "state", host.root / "kept", dirs_exist_ok=True)


def take_the_old_journal(host: Host, draw: st.DataObject) -> None:
    if (host.root / "kept").is_dir():
        shutil.rmtree(host.root / "state", ignore_errors=True)
        shutil.copytree(host.root / "kept", host.root / "state")


def edit_the_id(host: Host, draw: st.DataObject) -> None:
    places = [p for p in (*host.aside(), host.current) if (p / "partition.metadata").exists()]
    if places:
        path = draw.draw(st.sampled_from(places), "whose id")
        topic_id = draw.draw(st.sampled_from([TOPIC_ID, OTHER_ID]), "id")
        (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")


EVENTS: list[Callable[[Host, st.DataObject], None]] = [
    delete, delete_without_the_word, serve, restore, remove_in_part, lose_the_journal, keep_the_journal,
    take_the_old_journal, edit_the_id,
]  # fmt: skip


FEW = st.lists(st.sampled_from(EVENTS), max_size=3)
# Whatever else happens, it is set aside, loaded, and asked back twice.
LIVES = st.tuples(FEW, FEW, FEW).map(lambda few: [*few[0], delete, serve, *few[1], restore, *few[2], restore])


@settings(
    phases=[Phase.explicit, Phase.generate],
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.data(), LIVES)
def test_no_life_leads_to_fewer_records_without_a_word(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, events: list[Callable[[Host, st.DataObject], None]]
) -> None:
    root = tmp_path_factory.mktemp("life")
    host = Host(root)
    try:
        worded = removed = False
        for event in events:
            event(host, data)
            worded |= event is delete
            removed |= event is remove_in_part
            if not worded:
                assert whole(host.current)
            elif not removed:
                assert any(whole(path) for path in (host.current, *host.aside()) if path.is_dir())
    finally:
        shutil.rmtree(root)
