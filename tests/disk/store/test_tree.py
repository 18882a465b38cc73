"""The store as one who can write it would prepare it: nothing outside it is read, written or removed."""

from __future__ import annotations

import os
import stat
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from logagent.base.errors import ServiceUnreachable
from logagent.store import landing_files
from logagent.store.contract import as_date, as_node, is_plain, publisher_of
from logagent.store.landing_files import ManifestHead
from logagent.store.shared import check_store, init_store
from logagent.store.tree import MARKER, StoreTree
from tests.needs import need_root
from tests.real_users import User, reachable_folder

AT = datetime(2026, 11, 22, 1, 2, 3, tzinfo=UTC)
SNAPSHOT = ManifestHead("20261122T010203000Z-7", "snapshot", "cluster", 7, "host7", AT)
IMAGE = ManifestHead("kraft-log-9-20261122T010203000Z-7", "assignments", "cluster", None, "host7", AT)


def _send(store: Path, claim: ManifestHead, spool: Path) -> None:
    data = landing_files.put(spool / claim.kind, claim, ['{"row": "x"}'])
    with StoreTree(store) as tree:
        landing_files.deliver(tree, claim, data, landing_files.manifest_of(data).read_bytes(), lambda: None)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = tmp_path / "store"
    made.mkdir()
    assert init_store(str(made))
    return made


@pytest.mark.parametrize("depth", range(4))
def test_a_symlink_in_the_store_leads_an_agent_nowhere(store: Path, tmp_path: Path, depth: int) -> None:
    """A dated folder inside a log dir would be a partition to Kafka."""
    log_dir = tmp_path / "log-dir"
    log_dir.mkdir()
    (tmp_path / "spool").mkdir()
    names = landing_files.place(SNAPSHOT)
    link = store.joinpath(*names[: depth + 1])
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.exists():
        link.rmdir()
    link.symlink_to(log_dir)
    with pytest.raises(OSError):
        _send(store, SNAPSHOT, tmp_path / "spool")
    assert list(log_dir.iterdir()) == []


def test_what_lies_at_the_temporary_name_is_replaced_not_followed(store: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "spool").mkdir()
    place = store.joinpath(*landing_files.place(SNAPSHOT))
    place.mkdir(parents=True)
    (place / f"{SNAPSHOT.snapshot_id}.jsonl.gz.tmp").symlink_to(precious)
    os.mkfifo(place / f"{SNAPSHOT.snapshot_id}.manifest.json.tmp")
    _send(store, SNAPSHOT, tmp_path / "spool")
    assert precious.read_text() == "precious"
    assert sorted(p.name for p in place.iterdir()) == [
        f"{SNAPSHOT.snapshot_id}.jsonl.gz",
        f"{SNAPSHOT.snapshot_id}.manifest.json",
    ]


def test_hosts_with_other_user_ids_share_a_day() -> None:
    """Whoever comes first makes the folders of the day; his umask is not the others'."""
    need_root()
    with reachable_folder() as folder:
        store = folder / "store"
        store.mkdir()
        store.chmod(0o1777)
        init_store(str(store))
        for number, uid in enumerate((4001, 4002)):
            spool = folder / f"spool-{uid}"
            spool.mkdir()
            os.chown(spool, uid, uid)
            with User(uid, uid).acting():
                _send(store, ManifestHead(f"s-{uid}", "snapshot", "cluster", number, "h", AT), spool)
                _send(store, ManifestHead(f"k-1-t-{number}", "assignments", "cluster", None, "h", AT), spool)
        day = store / "landing" / "cluster" / "2026-11-22"
        assert {p.name for p in day.iterdir()} == {"0", "1", "assignments"}
        assert stat.S_IMODE(day.stat().st_mode) == 0o1777
        assert {stat.S_IMODE(p.stat().st_mode) for p in day.rglob("*.gz")} == {0o644}
        own = {name: stat.S_IMODE((day / name).stat().st_mode) & 0o022 for name in ("0", "1", "assignments")}
        assert own == {"0": 0, "1": 0, "assignments": 0o022}, "nobody publishes into the folder of another node"


def test_a_manifest_that_proves_nothing_keeps_nobody_from_publishing(store: Path, tmp_path: Path) -> None:
    place = store.joinpath(*landing_files.place(IMAGE))
    place.mkdir(parents=True)
    now = time.time()

    def recent() -> bool:
        with StoreTree(store) as tree:
            return landing_files.has_recent_assignments(tree, IMAGE, now - 60, now)

    empty = place / "kraft-log-1-x-9.manifest.json"
    empty.touch()
    assert not recent()
    (place / "kraft-log-1-x-9.jsonl.gz").write_bytes(b"x")
    assert not recent(), "not one of our manifests"
    empty.unlink()
    data = landing_files.land(store, IMAGE, ['{"row": "assignments"}'])
    manifest = landing_files.manifest_of(data)
    os.utime(manifest, (now + 86400, now + 86400))
    assert not recent(), "from the future"
    os.utime(manifest, (now, now))
    assert recent()
    data.unlink()
    assert not recent(), "its data is not there"


def test_an_empty_mount_point_is_no_store(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(ServiceUnreachable) as raised:
            check_store(str(path))
        assert raised.value.hint is not None
        assert "logagent fleet init" in raised.value.hint
    assert init_store(str(tmp_path))
    assert not init_store(str(tmp_path)), "it is one already"
    check_store(str(tmp_path))
    (tmp_path / MARKER).unlink()
    check_store(str(tmp_path))  # a store of before there were markers has its landing


def test_of_two_creators_one_wins(store: Path) -> None:
    with StoreTree(store) as tree:
        assert tree.create_new(["commits", "2026-11-22", "1.json"], b"first")
        assert not tree.create_new(["commits", "2026-11-22", "1.json"], b"second")
        assert tree.entries(["commits", "2026-11-22"])[0][0] == "1.json"
    assert (store / "commits/2026-11-22/1.json").read_bytes() == b"first"
    assert len(list((store / "commits/2026-11-22").iterdir())) == 1


def test_reading_takes_plain_files_only(store: Path, tmp_path: Path) -> None:
    os.mkfifo(store / "fifo")
    (tmp_path / "secret").write_text("secret")
    (store / "link").symlink_to(tmp_path / "secret")
    with StoreTree(store) as tree:
        for name in ("fifo", "link", "landing"):
            with pytest.raises(OSError):
                tree.open_file([name])


@pytest.mark.parametrize(
    "name",
    [
        "2026-W01-1",
        "20261122",
        "2026-1-2",
        "2026-02-30",
        "2026-11-2२",
        "dt=2026-11-22",
        "0001-01-01",
        "1969-12-31",
        "9999-12-31",
    ],
)
def test_only_one_spelling_is_a_date(name: str) -> None:
    assert as_date(name) is None


def test_names() -> None:
    assert not any(map(is_plain, ["", ".", "..", ".x", "a/b", "prod:eu", "a b", "x*", "a\n", "[a]", "ä", "x" * 201]))
    assert all(map(is_plain, ["MkU3OEVBNTcwNTJENDM2Qg", "-id_with.dots-", "a"]))
    assert [as_node(n) for n in ("0", "7", "07", "+7", "-1", "", "2147483647", "2147483648", "७")] == [
        0, 7, None, None, None, None, 2147483647, None, None,
    ]  # fmt: skip
    assert (publisher_of(IMAGE.snapshot_id), publisher_of("plain")) == (7, None)
