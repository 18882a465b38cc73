"""Two machines on one node id, and one machine that was rebooted: told apart by the boot ids of their snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.fleet.tables.choice import claimants, newest_first, perhaps_two

HOUR = 3_600_000


def entry(hour: float, boot: str | None, *, clock: float = 0, late: float = 0, host: str = "kafka-1") -> dict[str, Any]:
    """A snapshot taken at `hour`, by a clock that is ahead by `clock` hours, which arrives `late` hours later."""
    at = round((hour + clock) * HOUR)
    return {"host": host, "boot_id": boot, "at": at, "received_at": round((hour + late) * HOUR) + 2000,
            "snapshot_id": f"{at:012d}-1", "file": f"{at:012d}"}  # fmt: skip


def judged(*entries: dict[str, Any]) -> str | None:
    return claimants(newest_first(entries))


ONE_MACHINE = {
    "no reboot": [entry(n, "a") for n in range(4)],
    "a reboot": [entry(0, "a"), entry(1, "a"), entry(2, "b"), entry(3, "b")],
    "three boots": [entry(0, "a"), entry(1, "b"), entry(2, "c"), entry(3, "c")],
    "agents that do not say": [entry(0, None), entry(1, "a"), entry(2, None), entry(3, "b")],
    "the clock is an hour behind after the reboot": [
        *(entry(n / 2, "a") for n in range(5)), *(entry(2.5 + n / 2, "b", clock=-1.2) for n in range(4))
    ],
    "the clock was an hour behind before the reboot": [
        *(entry(n / 2, "a", clock=-1.2) for n in range(5)), *(entry(2.5 + n / 2, "b") for n in range(4))
    ],
    "the clock was ahead before the reboot": [
        *(entry(n / 2, "a", clock=3) for n in range(5)), *(entry(2.5 + n / 2, "b") for n in range(4))
    ],
    "the store was down, and what was kept came after the reboot, the newest first": [
        entry(0, "a"), entry(1, "a", late=3), entry(2, "a", late=2.5), entry(3, "b"), entry(4, "b"), entry(5, "b"),
    ],
}  # fmt: skip

TWO_MACHINES = {
    "in turns": [entry(0, "a"), entry(0.5, "b"), entry(1, "a"), entry(1.5, "b")],
    "one comes once": [entry(0, "a"), entry(0.5, "b"), entry(1, "a")],
    "one is rebooted meanwhile": [entry(0, "a"), entry(1, "c"), entry(2, "b"), entry(3, "c")],
    "their clocks differ": [
        *(entry(n, "a") for n in range(5)), *(entry(n + 0.5, "b", clock=-1.2) for n in range(5))
    ],
    "the store was down for one of them": [
        entry(0, "a"), entry(0.5, "b"), entry(1, "a", late=2), entry(1.5, "b"), entry(2, "a", late=1), entry(3.2, "b"),
        entry(4, "a"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("entries", ONE_MACHINE.values(), ids=ONE_MACHINE)
def test_a_reboot_is_one_machine(entries: list[dict[str, Any]]) -> None:
    assert judged(*entries) is None


@pytest.mark.parametrize("entries", TWO_MACHINES.values(), ids=TWO_MACHINES)
def test_two_machines_with_one_name_are_told(entries: list[dict[str, Any]]) -> None:
    assert "two machines with the same host name" in (judged(*entries) or "")


def test_two_names_are_two_machines_whatever_their_boots_are() -> None:
    assert "2 hosts claim" in (judged(entry(0, "a"), entry(1, "a", host="kafka-9")) or "")


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.lists(st.floats(-3, 3), min_size=5, max_size=5),
    st.data(),
)
def test_one_boot_after_the_other_is_never_two_machines(
    counts: list[int], clocks: list[float], data: st.DataObject
) -> None:
    """Whatever each boot's clock says, if all arrives at once; and however late each arrives, with a right clock."""
    boots = [boot for boot, count in enumerate(counts) for _ in range(count)]
    wrong = [entry(hour, str(boot), clock=clocks[boot]) for hour, boot in enumerate(boots)]
    late = [entry(hour, str(boot), late=data.draw(st.floats(0, 9))) for hour, boot in enumerate(boots)]
    assert judged(*wrong) is None and judged(*late) is None


def up(hour: float, boot: str, since: float, *ids: str, clock: float = 0, late: float = 0) -> dict[str, Any]:
    """A snapshot of a machine that was booted at `since`, by its clock, with log dirs of these ids."""
    made = entry(hour, boot, clock=clock, late=late)
    return made | {"booted_at": round((since + clock) * HOUR), "directory_ids": list(ids)}


ONCE_EACH = {
    "two machines": ([up(10, "a", 1, "A"), up(11, "b", 2, "B")], "two machines with the same host name", None),
    "two machines of a Kafka before 3.7": ([up(10, "a", 1), up(11, "b", 2)], None, "a broker that was moved"),
    "a reboot": ([up(10, "a", 1, "A"), up(11, "b", 10.5, "A")], None, None),
    "a reboot of a Kafka before 3.7": ([up(10, "a", 1), up(11, "b", 10.5)], None, None),
    "log dirs that went to another machine": ([up(10, "a", 1, "A", "C"), up(11, "b", 2, "A")], None, None),
    "a reboot with new disks": ([up(10, "a", 1, "A"), up(11, "b", 10.5, "B")], None, "new disks, or a second machine"),
    "agents that do not say": ([entry(10, "a"), entry(11, "b")], None, "a reboot, or a second machine"),
    "one boot": ([up(10, "a", 1, "A"), up(11, "a", 1, "B")], None, None),
}


@pytest.mark.parametrize("name", ONCE_EACH)
def test_one_snapshot_of_each_is_enough_where_anything_tells_them_apart(name: str) -> None:
    """And what does not tell is said."""
    entries, shown, perhaps = ONCE_EACH[name]
    for order in (entries, entries[::-1]):
        claims, says = judged(*order), perhaps_two(order)
        assert (claims is not None) == (shown is not None) and (shown or "") in (claims or "")
        if shown is None:
            assert (says is not None) == (perhaps is not None) and (perhaps or "") in (says or "")


@given(st.floats(-9, 9), st.floats(-9, 9), st.floats(0, 9), st.booleans())
def test_a_reboot_is_one_machine_whatever_its_clocks_say(before: float, after: float, late: float, wrong: bool) -> None:
    """Wrong clocks, or late arrivals: other disks after it are a doubt, never a second machine."""
    if wrong:
        boots = [up(20, "a", 11, "A", clock=before), up(21, "b", 20.5, "B", clock=after)]
    else:
        boots = [up(20, "a", 11, "A", late=late), up(21, "b", 20.5, "B", late=late / 2)]
    assert judged(*boots) is None and perhaps_two(boots) is not None


class Compared(list[str]):
    """Ids of log dirs; counts how often they are read."""

    reads = 0

    def __iter__(self) -> Iterator[str]:
        Compared.reads += 1
        return super().__iter__()


def test_a_host_with_ever_new_boots_costs_no_more_than_it_publishes() -> None:
    """Each of 1,000 with each took minutes; and it is said."""
    entries = [up(n / 100, str(n), n / 100) | {"directory_ids": Compared("A")} for n in range(1000)]
    assert judged(*entries) is None and "1000 boots" in (perhaps_two(newest_first(entries)) or "")
    assert Compared.reads < 2000
