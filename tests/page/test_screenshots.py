"""Pictures of the page, for eyes: light, dark, narrow, on paper.

With `LOGAGENT_TESTS_KEEP_SCREENSHOTS=1` they replace those in `screenshots/`; else they go to a temporary directory, so
that a run leaves no changes behind (fonts differ between machines). What is asserted is what a picture must have: its
size, and that its themes and layouts differ.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Open

KEPT = Path(__file__).parent / "screenshots"
# Name -> browser context, and the section where the picture begins.
WIDE, NARROW = {"width": 1400, "height": 1000}, {"width": 400, "height": 800}
PICTURES: dict[str, tuple[dict[str, Any], str]] = {
    "light": ({"viewport": WIDE, "color_scheme": "light"}, "html"),
    "dark": ({"viewport": WIDE, "color_scheme": "dark"}, "html"),
    "tables": ({"viewport": WIDE, "color_scheme": "light"}, "#browse"),
    "narrow": ({"viewport": NARROW, "color_scheme": "light"}, "html"),
    "narrow-dark": ({"viewport": NARROW, "color_scheme": "dark"}, "#browse"),
    "print": ({"viewport": {"width": 1032, "height": 720}, "color_scheme": "dark"}, "html"),
}
HEIGHT = 1000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if os.environ.get("LOGAGENT_TESTS_KEEP_SCREENSHOTS") != "1":
        return tmp_path
    KEPT.mkdir(exist_ok=True)
    return KEPT


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_a_picture_of_the_page(open_page: Open, fleet_page: Path, folder: Path, name: str) -> None:
    context, start = PICTURES[name]
    page = open_page(fleet_page, **context)
    if name == "print":
        page.emulate_media(media="print")
    top = page.evaluate("(start) => document.querySelector(start).getBoundingClientRect().top + scrollY", start)
    width = context["viewport"]["width"]
    picture = folder / f"{name}.png"
    clip = {"x": 0, "y": top, "width": width, "height": HEIGHT}
    page.screenshot(path=picture, full_page=True, animations="disabled", clip=clip)  # type: ignore[arg-type]
    header = picture.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    assert (int.from_bytes(header[16:20]), int.from_bytes(header[20:24])) == (width, HEIGHT)


def test_light_and_dark_are_different_pictures_and_paper_is_light(open_page: Open, small_page: Path) -> None:
    pictures = {}
    for name in ("light", "dark", "print"):
        page = open_page(small_page, **PICTURES[name][0])
        if name == "print":
            page.emulate_media(media="print")
        pictures[name] = page.evaluate("getComputedStyle(document.querySelector('.panel')).backgroundColor")
    assert pictures["light"] == pictures["print"] != pictures["dark"]
