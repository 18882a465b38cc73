"""Cut and flip: however a metadata log was damaged, there is an image of an earlier moment or a clear refusal.

An image counts as right if it is the state after some whole prefix of batches of the undamaged log, and says of
which one: an older state under a newer offset or time would be a wrong image.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from logagent.base.errors import UnreadableError
from logagent.kafka.commitment import GRACE_MS
from logagent.kafka.image import BrokerRegistration
from logagent.kafka.metadata_log.batches import BatchFile
from logagent.kafka.metadata_log.log import MetadataImage, read_metadata_log
from logagent.kafka.metadata_log.replay import Replay
from tests.kafka_disks import KRAFT, extract, metadata_dir
from tests.long_form import FULL, one_in

# In each of the eight disks' logs.
PLACES = 200 if FULL else 40
NOW_MS = 2_000_000_000_000


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Metadata folders without the index files, which are not read unless a segment is long."""
    found = {}
    for name in KRAFT:
        folder = metadata_dir(extract(name, tmp_path_factory.mktemp("disk")))
        for path in [*folder.glob("*index"), *folder.glob("*.deleted")]:
            path.unlink()
        found[name] = folder
    return found


def read(folder: Path) -> MetadataImage:
    return read_metadata_log(str(folder), node_id=1, cluster_id="c", now_ms=NOW_MS)


def _brokers(brokers: Mapping[int, BrokerRegistration]) -> dict[int, BrokerRegistration]:
    """Without the times of the registration and of its unfencing, which a snapshot does not have."""
    return {node_id: b._replace(registered_ms=None, unfenced_ms=None) for node_id, b in brokers.items()}


def summary(image: MetadataImage) -> tuple[Any, ...]:
    assignments = image.assignments
    topics = {i: (t.name, dict(t.partitions)) for i, t in assignments.by_id.items()}
    return topics, _brokers(assignments.brokers), assignments.metadata_version, image.delete_delays


def prefixes(folder: Path) -> dict[int, list[tuple[tuple[Any, ...], int]]]:
    """By end offset: every right (summary, time) there is, from the log and from each snapshot.

    Built from the undamaged files with whole reads and one straight replay, batch by batch.
    """
    right: dict[int, list[tuple[tuple[Any, ...], int]]] = {}
    starts = [(0, Replay())] if (folder / f"{0:020}.log").exists() else []
    for path in folder.glob("*.checkpoint"):
        alone = folder.parent / "alone"
        alone.mkdir()
        shutil.copy(path, alone)
        image = read(alone)
        shutil.rmtree(alone)
        end = image.assignments.offset
        assert end is not None
        right.setdefault(end, []).append((summary(image), image.assignments.at_ms))
        starts.append((end, _replay_of(path)))
    for start, replay in starts:
        for offset, time_ms in _replayed(folder, start, replay):
            right.setdefault(offset, []).append((_summary_of(replay), time_ms))
    return right


def _replay_of(snapshot: Path) -> Replay:
    replay = Replay()
    with snapshot.open("rb") as file:
        for batch in BatchFile(file.fileno(), snapshot.name).batches(0, 0):
            for offset, _, value in batch.records():
                if not batch.control:
                    replay.add(offset, value or b"")
    return replay


def _replayed(folder: Path, start: int, replay: Replay) -> Iterator[tuple[int, int]]:
    for path in sorted(folder.glob("*.log")):
        with path.open("rb") as file:
            for batch in BatchFile(file.fileno(), path.name).batches(int(path.name[:20]), 0):
                if batch.next_offset <= start:
                    continue
                for offset, _, value in batch.records():
                    if offset >= start and not batch.control:
                        replay.add(offset, value or b"")
                yield batch.next_offset, batch.time_ms


def _summary_of(replay: Replay) -> tuple[Any, ...]:
    topics = {i: (t.name, dict(t.partitions)) for i, t in replay.topics.items()}
    return topics, _brokers(replay.brokers), replay.metadata_version, dict(replay.delete_delays)


@cache
def _right(folder: Path) -> dict[int, list[tuple[tuple[Any, ...], int]]]:
    return prefixes(folder)


def check(original: Path, damaged: Path) -> int | None:
    """End offset of the image, None for a refusal; fails on a wrong image."""
    try:
        image = read(damaged)
    except UnreadableError as refusal:
        assert str(damaged) in str(refusal)
        return None
    end = image.assignments.offset
    assert end is not None
    assert (summary(image), image.assignments.at_ms) in _right(original)[end]
    return end


def files_of(folder: Path) -> list[Path]:
    """What an image is read from: segments and snapshots, the longest first."""
    found = [*folder.glob("*.log"), *folder.glob("*.checkpoint")]
    return sorted(found, key=lambda path: (-path.stat().st_size, path.name))


def places(original: Path, seed: str) -> Iterator[tuple[Path, int, random.Random]]:
    """`PLACES` (file, byte) pairs, spread over all files by their size; each batch header gets its share."""
    rng = random.Random(seed)
    files = files_of(original)
    sizes = [path.stat().st_size for path in files]
    for _ in range(PLACES):
        (path,) = rng.choices(files, sizes)
        yield path, rng.randrange(path.stat().st_size), rng


@pytest.mark.parametrize("name", KRAFT)
def test_truncated_it_is_an_earlier_image_or_refused(name: str, originals: dict[str, Path], tmp_path: Path) -> None:
    original = originals[name]
    seen = []
    damaged = Path(shutil.copytree(original, tmp_path / "m"))
    for path, at, _ in places(original, f"cut {name}"):
        os.truncate(damaged / path.name, at)
        seen.append(check(original, damaged))
        shutil.copy(path, damaged / path.name)
    assert len(seen) == PLACES
    assert len(set(seen)) > 1, "no cut made a difference"


@pytest.mark.parametrize("name", KRAFT)
def test_a_flipped_bit_never_changes_what_is_read(name: str, originals: dict[str, Path], tmp_path: Path) -> None:
    original = originals[name]
    seen = []
    damaged = Path(shutil.copytree(original, tmp_path / "m"))
    for path, at, rng in places(original, f"flip {name}"):
        data = bytearray(path.read_bytes())
        data[at] ^= 1 << rng.randrange(8)
        (damaged / path.name).write_bytes(data)
        seen.append(check(original, damaged))
        shutil.copy(path, damaged / path.name)
    assert len(seen) == PLACES
    # Nearly all of this one is in its snapshot, too: few flips make a difference there.
    assert None in seen or (not FULL and name == "3.9.1/node3-down"), "no flip was refused"


def test_every_bit_of_every_header_field_outside_the_crc(originals: dict[str, Path], tmp_path: Path) -> None:
    """Base offset, length, epoch, magic and the CRC itself, in every batch of the log behind the snapshot."""
    original = originals["3.9.1/node2-killed"]
    damaged = Path(shutil.copytree(original, tmp_path / "m"))
    segment = max(original.glob("*.log"))
    with segment.open("rb") as file:
        batches = list(BatchFile(file.fileno(), segment.name).batches(int(segment.name[:20]), 0))
    whole = segment.read_bytes()
    end = batches[-1].next_offset
    refused = earlier = 0
    for batch in batches:
        for byte in range(21):
            for bit in range(8) if FULL else [(batch.next_offset + byte) % 8]:
                data = bytearray(whole)
                data[batch.position + byte] ^= 1 << bit
                (damaged / segment.name).write_bytes(data)
                answer = check(original, damaged)
                # An epoch decides nothing, and the CRC is not looked at where the snapshot knows better.
                assert answer != end or 12 <= byte < 16 or batch.next_offset <= 597
                refused += answer is None
                earlier += answer is not None and answer < end
    assert refused > earlier > 0


def test_cut_at_every_byte_of_the_last_segment(originals: dict[str, Path], tmp_path: Path) -> None:
    original = originals["3.9.1/node2-killed"]
    damaged = Path(shutil.copytree(original, tmp_path / "m"))
    last = damaged / max(original.glob("*.log")).name
    ends = []
    whole = last.stat().st_size
    for size in (*one_in(7, range(whole - 1, 0, -1)), 0):
        os.truncate(last, size)
        end = check(original, damaged)
        assert end is not None and end < 602
        ends.append(end)
    assert ends == sorted(ends, reverse=True)
    # Behind the snapshot nothing is lost that the snapshot has.
    assert ends[-1] == 597


@pytest.mark.parametrize("garbage", [b"\0" * 5000, b"\xff" * 300, random.Random(7).randbytes(2000), b"\0"])
def test_garbage_after_the_end_is_a_torn_tail(garbage: bytes, originals: dict[str, Path], tmp_path: Path) -> None:
    original = originals["3.9.1/node1-killed"]
    whole = read(original)
    damaged = Path(shutil.copytree(original, tmp_path / "m"))
    with max(damaged.glob("*.log")).open("ab") as file:
        file.write(garbage)
    image = read(damaged)
    assert summary(image) == summary(whole)
    assert image.torn_bytes == len(garbage)
    assert image.assignments.known_until_ms == image.assignments.at_ms < whole.assignments.known_until_ms


def test_damage_before_good_batches_is_no_torn_tail(originals: dict[str, Path], tmp_path: Path) -> None:
    """What a broker wrote after the damage may be the topic whose directory we look at."""
    original = originals["3.9.1/node3-killed"]
    damaged = Path(shutil.copytree(original, tmp_path / "m"))
    segment = max(damaged.glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[-800] ^= 1
    segment.write_bytes(data)
    with pytest.raises(UnreadableError, match="but records go on at byte"):
        read(damaged)


@pytest.mark.parametrize("long", [True, False])
def test_a_tail_full_of_headers_is_not_searched_for_ever(
    long: bool, originals: dict[str, Path], tmp_path: Path
) -> None:
    """Each one that looks like a batch is checked up to its end: of many long ones that is a square. (64 MiB of the
    magic byte alone took over 100 CPU seconds.)"""
    folder = Path(shutil.copytree(originals["3.9.1/node1-killed"], tmp_path / "m"))
    log = max(folder.glob("*.log"))
    whole = read(folder)
    size = 4 << 20
    header = struct.pack(">qiiB", (whole.assignments.offset or 0) + 5, size // 2, 1, 2)
    with log.open("ab") as file:
        file.write(b"\0" + (header * (size // len(header)) if long else b"\2" * size))
    if long:
        with pytest.raises(UnreadableError, match="looks like a batch"):
            read(folder)
    else:
        assert summary(read(folder)) == summary(whole)


def test_what_was_last_written_before_the_host_started_may_lack_its_end(tmp_path: Path) -> None:
    """xfs, after a power failure: cut at the very end of a batch, nothing torn. A topic created then is not in it, and
    its directory, which the broker did fsync, would be an orphan."""
    directory = metadata_dir(extract("3.9.1/node1-killed", tmp_path))
    written_ms = max(directory.glob("*.log")).stat().st_mtime_ns // 1_000_000

    def known_until(booted_ms: int | None) -> tuple[int, int]:
        log = read_metadata_log(str(directory), node_id=1, cluster_id="c", now_ms=NOW_MS, booted_ms=booted_ms)
        return log.assignments.known_until_ms, log.assignments.at_ms

    until, at = known_until(written_ms + 1)
    assert until == at < NOW_MS
    assert known_until(written_ms)[0] == known_until(None)[0] == at + GRACE_MS
