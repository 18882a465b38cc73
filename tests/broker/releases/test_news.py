"""What is said of a new release: from the jars of two, and from the outcomes of starts."""

from __future__ import annotations

from tests.broker.releases.news import differing_starts, news
from tests.needs import need_command


def test_what_changed_for_us_between_two_releases_is_named_and_marked() -> None:
    """3.9.1 and 4.3.1, whose jars a default run has anyway."""
    need_command("javac")
    lines = list(news("3.9.1", "4.3.1"))
    assert "- metadata.version: [1, 21] -> [7, 30]" in lines
    assert "- group.version: new, [0, 1]" in lines
    assert "- BrokerRegistrationChangeRecord (17): versions 0-2 -> 0-3 READ HERE" in lines
    tag = "- BrokerRegistrationChangeRecord (17): field CordonedLogDirs: new, "
    assert any(line.startswith(tag) and "'tag': '3'" in line for line in lines), lines
    assert "- cordoned.log.dirs: new,  READ HERE" in lines
    assert any(
        line.startswith("- log.message.format.version: gone") and line.endswith("near ours") for line in lines
    ), lines
    assert "- message.format.version: gone, was 3.0-IV1" in lines, "of a topic"
    assert not any("is decoded" in line for line in lines), "a record that is newer than the decoder"


def test_nothing_is_news_of_a_release_and_itself() -> None:
    need_command("javac")
    assert [line for line in news("4.3.1", "4.3.1") if not line.endswith("no changes")] == []


def test_starts_that_differ_and_starts_that_check_did_not_foretell_are_named() -> None:
    def row(damage: str, outcome: str, *fatal: str, agrees: bool = True) -> dict[str, object]:
        return {"kind": "combined", "damage": damage, "outcome": outcome, "fatal": fatal, "agrees": agrees}

    before = [row("e", "starts"), row("a", "starts"), row("b", "refuses", "x"), row("c", "refuses", "x")]
    after = [row("a", "starts"), row("b", "starts"), row("c", "refuses", agrees=False), row("d", "starts")]
    assert list(differing_starts(before, after)) == [
        "combined: b: refuses -> starts",
        "combined: c: refuses, and check says nothing fatal",
        "combined: d: not tried -> starts",
        "combined: e: starts -> not tried",
    ]
