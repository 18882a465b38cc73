"""The first screen as text: the same figures, and names that no terminal and no chat obeys."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from logagent.fleet.command import show_summary
from logagent.fleet.page import words as units
from logagent.fleet.page.document import brief
from tests.page.sample import empty
from tests.page.test_first_screen import FLEETS, directories
from tests.page.test_render import HOSTILE, altered


@pytest.mark.parametrize("name", sorted(FLEETS))
def test_the_figures_are_those_of_the_rows(name: str) -> None:
    made = FLEETS[name]()
    text = brief(made[0])
    assert len(text.splitlines()) <= 10 and max(map(len, text.splitlines())) <= 200
    rows = made[1]["usage_log_dirs"]["rows"]
    used, size = (sum(row[key] or 0 for row in rows) for key in ("used", "size"))
    least = "" if name == "healthy" else "at least "
    assert f"Used: {least}{units.size(used)} of {units.size(size)}, {units.percent(used / size)}" in text
    for window, label in (("now", "now"), ("restart", "at next broker restart"), ("approval", "only with approval")):
        mine = sum(row["allocated"] for row in directories(made) if row["window"] == window)
        assert f"{label} {units.size(mine)}" in text
    missing = made[1]["missing_replicas"]["rows"]
    lost = len({(row["topic_id"], row["partition"]) for row in missing if row["copies_elsewhere"] == 0})
    assert f"At risk: {lost} partitions with no copy" in text
    assert ("hosts reporting" in text) is (name != "healthy")


UNSEEN = {"state": "not_yet", "reason": "no-younger-assignments", "replicas": 9, "hosts": 3}


def test_every_figure_has_its_remainder() -> None:
    """What a mail says in place of the page: each remainder alone."""
    document = FLEETS["healthy"]()[0]
    plain = brief(document)
    for path, value, words in (
        (("answers", "disks", "unread"), 2, "; 2 log dirs without figures"),
        (("answers", "risk", "pace_unknown"), 3, "in 30 days 0 (3 log dirs not known)"),
        (("answers", "reclaim", "barred"), 4096, "; blocked until something is fixed 4.00 KiB"),
        (("tables", "undecided", "rows"), 5, "; 5 directories undecided"),
        (("answers", "replicas", "no_copy"), 3, "0 partitions with no copy anywhere (3 more could not be compared)"),
        (("answers", "replicas", "not_compared"), [UNSEEN], "9 replicas on 3 hosts (their snapshots are younger"),
        (("tables", "duplicates", "rows"), 1, "; 1 partition in two log dirs of a host"),
        (("warnings",), ["rejected files or rows: 1"], "3 clusters; 1 warning, see the page"),
        (("answers", "changes", 0, "log_dirs"), 7, " on 7 log dirs, "),
    ):
        short = deepcopy(document)
        *above, last = path
        place: Any = short
        for key in above:
            place = place[key]
        place[last] = value
        assert words in brief(short) and words not in plain, path


def test_a_full_log_dir_is_full_and_what_frees_nothing_promises_nothing() -> None:
    document = deepcopy(FLEETS["healthy"]()[0])
    step = dict.fromkeys(("cluster_id", "node_id", "topic", "requestable"))
    step |= {
        "what": "log-dir",
        "host": "kafka-1",
        "log_dir": "/d1",
        "bytes": 0,
        "window": None,
        "days": 0.0,
        "hosts": 1,
    }
    document["answers"]["steps"] = [step, step | {"days": None}, step | {"days": 0.5}]
    lines = brief(document).splitlines()
    assert [line for line in lines if line.startswith("Next")] == [
        "Next 1: kafka-1 /d1 full", "Next 2: kafka-1 /d1 nearly full", "Next 3: kafka-1 /d1 full in 12 h"
    ]  # fmt: skip


def test_a_topic_is_named_with_its_cluster_where_there_are_several() -> None:
    document = deepcopy(FLEETS["on fire"]()[0])
    cluster = document["clusters"][0]
    step = {"what": "topic", "topic": "orders", "cluster_id": cluster["cluster_id"], "hosts": 2, "bytes": 1 << 30}
    document["answers"]["steps"] = [step | {"window": "now"}]
    name = cluster.get("name") or cluster["cluster_id"]
    assert f"Next 1: topic orders in {name} on 2 hosts frees 1.00 GiB now\n" in brief(document)
    document["clusters"] = [cluster]
    assert "Next 1: topic orders on 2 hosts frees 1.00 GiB now\n" in brief(document)


def test_nothing_known_is_not_nothing_there() -> None:
    assert brief(empty()[0]).splitlines()[1:] == ["No host reported: nothing is known."]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_one_line_of_text(name: str) -> None:
    plain = brief(FLEETS["on fire"]()[0])
    text = brief(altered(FLEETS["on fire"](), lambda _: name)[0])
    assert len(text.splitlines()) <= len(plain.splitlines())
    assert text.replace("\n", "").isprintable()


def test_what_the_command_prints_is_allocated_and_has_its_remainders(capsys: pytest.CaptureFixture[str]) -> None:
    content = deepcopy(FLEETS["healthy"]()[0])
    content["totals"] |= {"allocated": 1 << 20, "bytes": 61 << 20, "orphans": 0, "orphan_bytes": 0}
    content["totals"]["missing_replicas"] = 0
    one = {"state": "not_yet", "reason": "assigned-since", "replicas": 14, "hosts": 3}
    for rows, left in ((2, [one]), (0, [])):
        content["tables"]["undecided"]["rows"] = rows
        content["answers"]["replicas"]["not_compared"] = left
        show_summary(content, "/srv/reports/one")
        said = capsys.readouterr().out
        assert "used by logs      1.0 MiB (file sizes: 61.0 MiB)" in said
        assert ("orphans           0 (0 B); 2 more directories undecided" in said) is bool(rows)
        assert ("missing replicas  0 (14 more could not be compared)" in said) is bool(left)


def test_what_could_not_be_compared_for_several_reasons_begins_with_all_of_it() -> None:
    """It is a link to all of these rows."""
    content = deepcopy(FLEETS["healthy"]()[0])
    left = [
        {"state": "not_read", "reason": "log-dir-not-read", "replicas": 1600, "hosts": 1},
        {"state": "unproven", "reason": "marked", "replicas": 1, "hosts": 1},
    ]
    for rows, begins in ((left, "1,601 replicas could not be compared: 1,600 on 1 host (they"),
                         (left[1:], "could not be compared: 1 replica on 1 host (all")):  # fmt: skip
        content["answers"]["replicas"] |= {"not_compared": rows, "no_copy": 0}
        assert units.not_compared_words(content).startswith(begins)
