"""Names from disks on the page: everything can be seen, nothing runs, nothing crashes."""

from __future__ import annotations

import re
import unicodedata
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.fleet.page.words import LONGEST, esc, name_html, spelled, visible

# As `os.fsdecode` gives them (lone surrogates for bytes that are not UTF-8), and as the fleet store spells those.
names = st.one_of(
    st.text(st.characters(codec=None), max_size=40),
    st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
    st.text(st.sampled_from("ab \\ud/cf8<>&\"'\u202e\u200b\n\x00\x1b\u0301\u3164\udcff")),
)


@given(names)
def test_every_name_encodes_and_hides_nothing(name: str) -> None:
    shown = visible(name)
    shown.encode("utf-8")
    for char in shown:
        assert char == " " or unicodedata.category(char) not in {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}, ascii(
            char
        )
    assert shown == shown.strip(" ")
    assert "  " not in shown


@given(names)
def test_escaped_text_has_no_markup_and_keeps_the_name(name: str) -> None:
    assert not re.search(r"[<>\"']", esc(name))
    assert unescape(esc(name)) == visible(name)


@given(names)
def test_the_html_of_a_name_shows_the_same_text(name: str) -> None:
    markup = re.sub(r'<span class="x">|</span>', "", name_html(name))
    assert not re.search(r"[<>\"']", markup)
    assert unescape(markup) == visible(name)


@given(st.lists(names, min_size=2, max_size=2, unique=True))
def test_two_names_look_alike_only_where_the_store_spells_them_alike(pair: list[str]) -> None:
    first, second = pair
    if visible(first) == visible(second):
        assert _as_stored(first) == _as_stored(second) or max(len(first), len(second)) > LONGEST


def _as_stored(name: str) -> str:
    return re.sub("[\udc80-\udcff]", lambda found: spelled(found.group()), name)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("orders-0", "orders-0"),
        ("Größe.δ-1", "Größe.δ-1"),
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("line\nbreak", "line\\u000abreak"),
        ("\x1b[31mred", "\\u001b[31mred"),
        ("caf\udce9", "caf\\udce9"),
        ("caf\\udce9", "caf\\udce9"),
        ("c:\\u202e", "c:\\\\u202e"),
        (" lead", "\\u0020lead"),
        ("trail ", "trail\\u0020"),
        ("two  blanks", "two \\u0020blanks"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("filler\u3164", "filler\\u3164"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("nbsp\u00a0", "nbsp\\u00a0"),
        ("e\u0301", "e\u0301"),
        ("e" + "\u0301" * 4, "e\u0301\u0301\\u0301\\u0301"),
        ("", ""),
    ],
)
def test_what_a_name_looks_like(name: str, shown: str) -> None:
    assert visible(name) == shown


def test_long_names_are_cut_visibly() -> None:
    assert visible("a" * LONGEST) == "a" * LONGEST
    assert visible("a" * 5000) == "a" * (LONGEST - 1) + "…"
    assert len(name_html("\u202e" * 5000)) < 2_000
