"""How much is removed so that a broker can start."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logagent.base.dir_names import stray_name
from logagent.base.records import ActionKind, DirKey
from logagent.base.units import NOTHING, Space
from logagent.cleanup.plan.plan import Proposal
from logagent.service.prestart.rules import needed_to_start, room_to_start, until_it_starts
from tests.hosts import DEVICE, HEX, LOG_DIR, directory


def removal(n: int, *, device: int = DEVICE) -> Proposal:
    """Of a directory that looks larger than anything it gives back."""
    there = directory(stray_name(f"t{n}", 0, HEX), inode=n, allocated=10**9, device=device)
    return Proposal(ActionKind.REMOVE, there, "test")


def gains(*removals: tuple[Proposal, int]) -> dict[DirKey, Space]:
    return {p.key: Space(size, 4) for p, size in removals}


def test_what_a_start_needs_grows_with_the_partitions() -> None:
    few, many = needed_to_start([directory("a-0")]), needed_to_start(directory(f"a-{n}", inode=n) for n in range(100))
    assert few.bytes < many.bytes and few.inodes < many.inodes and many.bytes >= 100 * 28 * 1024
    assert needed_to_start([directory(stray_name("a", 0, HEX))]) == needed_to_start([])


@given(st.dictionaries(st.sampled_from(["/d1", "/d2", "/d3"]), st.integers(1, 2)), st.integers(0, 10**7))
def test_needs_on_one_file_system_add_up(devices: dict[str, int], free: int) -> None:
    dirs = [directory(f"a-{n}", log_dir=path, inode=n) for path in devices for n in range(int(path[-1]))]
    rooms = room_to_start(dirs, devices, dict.fromkeys(devices, Space(free, 9)))
    assert rooms.keys() == set(devices.values())
    for device, room in rooms.items():
        here = [path for path in devices if devices[path] == device]
        needs = [needed_to_start(d for d in dirs if d.log_dir == path) for path in here]
        assert room.log_dirs == tuple(here) and room.need == sum(needs, NOTHING)
        assert room.lacks == Space(max(0, room.need.bytes - free), room.need.inodes - 9)


lacks = st.builds(Space, st.integers(0, 1000), st.integers(0, 30))


@given(st.lists(st.tuples(st.integers(0, 1), lacks), max_size=8), lacks, lacks)
def test_only_as_much_is_removed_as_the_start_lacks(found: list[tuple[int, Space]], first: Space, other: Space) -> None:
    removals = [removal(n, device=device) for n, (device, _) in enumerate(found)]
    known = {p.key: gain for p, (_, gain) in zip(removals, found, strict=True)}
    chosen = until_it_starts([*removals, removal(99)], {0: first, 1: other}, known)
    assert chosen == [p for p in removals if p in chosen], "in order"
    for device, lack in ((0, first), (1, other)):
        left = lack
        for p in (p for p in removals if p.dir.device == device):
            gain = known[p.key]
            helps = min(left.bytes, gain.bytes) > 0 or min(left.inodes, gain.inodes) > 0
            assert (p in chosen) == helps
            left = left.less(gain) if helps else left


def test_what_does_not_lack_anything_gives_nothing() -> None:
    p = removal(1)
    assert p.dir.log_dir == LOG_DIR and until_it_starts([p], {DEVICE + 1: Space(10, 10)}, gains((p, 10))) == []
