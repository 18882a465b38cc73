"""Between which images a host's look lies: by offsets of one lineage; by times only where those are far apart."""

from __future__ import annotations

from typing import Any

import pytest

from logagent.fleet.tables.choice import OLDER, YOUNGER, Standing, can_follow, first_look, standing, worth_reading

MINUTE = 60_000
NOON = 1_700_000_000_000


def image(minute: float, offset: int | None = None, source: str = "kraft-log", **more: Any) -> dict[str, Any]:
    at = NOON + round(minute * MINUTE)
    offset = round(minute * 100) + 10_000 if offset is None and source == "kraft-log" else offset
    return {"at": at, "received_at": at + 1000, "offset": offset, "source": source, "file": f"{minute}"} | more


def host(
    minute: float, *, own: tuple[dict[str, Any], dict[str, Any]] | None = None, late_ms: int = 1000, **more: Any
) -> dict[str, Any]:
    at = NOON + round(minute * MINUTE)
    images = None if own is None else {"before": own[0], "after": own[1]}
    return {"at": at, "received_at": at + late_ms, "images": images, "absent": 0 if own else None} | more


def stands(one: dict[str, Any], newest: dict[str, Any], *older: dict[str, Any]) -> Standing:
    return standing(one, newest, [(row["file"], row) for row in (newest, *older)], NOON + 600 * MINUTE)


@pytest.mark.parametrize(
    ("newest", "place"),
    [
        (image(-5), OLDER),
        (image(0), OLDER),
        (image(0.5), None),
        (image(1), YOUNGER),
        (image(9), YOUNGER),
        (image(9, offset=1), None),
        (image(-5, offset=99_999), None),
        (image(9, source="admin"), YOUNGER),
        (image(4, source="admin"), None),
        (image(-4, source="admin"), None),
        (image(-9, source="admin"), OLDER),
    ],
)
def test_where_the_newest_image_stands(newest: dict[str, Any], place: str | None) -> None:
    """Of another lineage (its offset went back while its time went on), or too near by two clocks, it tells nothing."""
    one = host(1, own=(image(0), image(1)))
    assert stands(one, newest).place == place
    assert stands(one | {"absent": None}, newest).place is None, "not every log dir could be seen"


def test_images_that_others_published_stand_in() -> None:
    one = host(0, image_at=NOON - MINUTE)
    assert stands(one, image(0), image(-2)) == Standing(False, None, True, "-2")
    assert stands(one, image(-0.5), image(-2)) == Standing(False, None, False, "-2")
    assert stands(one, image(5), image(-0.5)).older is None, "made while it looked"
    assert stands(one, image(5), image(-2), image(-9)).older == "-2", "the latest"
    assert stands(one, image(5), image(-2, offset=99_999)).older is None, "of another lineage"
    assert stands(one, image(5), image(-2, source="admin")).older is None
    assert stands(one, image(5, image_at=NOON - 1), image(-2)).younger is False, "known until then only"


def test_clocks_that_differ_by_minutes_prove_nothing() -> None:
    """A clock that is ten minutes behind (its file "took" ten minutes to arrive) looked ten minutes later; one that is
    ahead, earlier."""
    behind = host(0, late_ms=10 * MINUTE, image_at=NOON)
    assert not stands(behind, image(5)).younger and stands(behind, image(11)).younger
    ahead = host(0, late_ms=-10 * MINUTE, image_at=NOON)
    assert stands(ahead, image(5), image(-2)).older is None
    assert stands(ahead, image(5), image(-11)).older == "-11"
    late = host(0, late_ms=4 * MINUTE, image_at=NOON)
    assert stands(late, image(1)).younger, "less than five minutes is how long it took"


def test_a_store_that_was_copied_tells_nothing_by_when_its_files_came() -> None:
    """They came after the report's own time, one after another."""
    one = host(0, late_ms=700 * MINUTE, image_at=NOON)
    newest = image(5, received_at=NOON + 760 * MINUTE)
    assert stands(one, newest, image(-2)).older == "-2"


def test_when_a_host_began_to_look() -> None:
    assert first_look({"at": NOON, "began": NOON - 3, "image_at": NOON - 9}) == NOON - 9
    assert first_look({"at": NOON, "began": NOON - 3}) == NOON - 3
    assert first_look({"at": NOON, "image_at": None}) == NOON - 5 * MINUTE


def test_only_images_that_hosts_need_are_read() -> None:
    superseded = [image(minute) for minute in (-30, -20, -10, 0, 10)]
    newest = image(20)
    own = host(1, own=(image(0), image(1)))
    assert worth_reading([own], newest, superseded) == []
    hosts = [own, host(-15, image_at=NOON - 15 * MINUTE), host(5, image_at=NOON + 5 * MINUTE), host(-1)]
    assert [row["file"] for row in worth_reading(hosts, newest, superseded)] == ["-20", "-10", "0"]
    assert worth_reading(hosts, newest, []) == []


def test_lineage_needs_offsets() -> None:
    assert can_follow(image(0), image(1)) and can_follow(image(0), image(0))
    assert not can_follow(image(1), image(0))
    assert not can_follow(image(0) | {"offset": None}, image(1))
    assert can_follow(image(0, source="admin"), image(1, source="admin"))
    assert not can_follow(image(0), image(1, source="admin"))
