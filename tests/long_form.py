"""The default run and the long form: `tests/run --full`, which leaves nothing out.

`LONG` is the one list of what the default run leaves out, by test file; `python -m tests.long_form` prints it. Nothing
in it is the only test of a guard. `tests/unit/test_long_form.py` holds list and files together.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import pytest

T = TypeVar("T")
FULL = os.environ.get("LOGAGENT_TESTS_FULL") == "1"
long_form = pytest.mark.long_form
"""Only in the long form: minutes of work for what shorter tests show in part."""


@dataclass(frozen=True)
class Long:
    """What the long form of a test file adds, and the minutes of CPU that the whole file then took, with the brokers,
    browsers and Spark that it started (what several share is counted with the first of them). How long that is by the
    clock depends on what else the machine does. The two longest of the brokers' are reckoned from a part: check's
    `test_damages.py` from 184 of 782 starts, `test_restores.py` from 14 of 48 lives."""

    adds: str
    minutes: float | None = None
    """None: not measured on its own yet."""


_RELEASES = "the other releases"
_EACH_POINT = "each point of failure instead of one of each kind"

LONG = {
    "tests/broker/admin/test_admin.py": Long("other releases, and ZooKeeper mode", 0.9),
    "tests/broker/admin/test_leader_answers.py": Long(_RELEASES, 0.6),
    "tests/broker/check/test_check_live.py": Long(_RELEASES, 1.2),
    "tests/broker/check/test_damages.py": Long(
        "not one of each outcome, but each damage where releases differ, and each cure", 22
    ),
    "tests/broker/check/test_features_live.py": Long("raised and lowered levels on three releases", 1.2),
    "tests/broker/check/test_leave_live.py": Long("a log dir that is taken away, on four releases", 1.4),
    "tests/broker/check/test_other_release.py": Long("each pair of releases", 5.2),
    "tests/broker/controller/test_requests_withstand_live.py": Long("three brokers with an agent beside each", 5.1),
    "tests/broker/controller/test_topic_deletion_live.py": Long("other releases, and ZooKeeper mode", 1.8),
    "tests/broker/daemon/test_daemon_live.py": Long(_RELEASES, 0.9),
    "tests/broker/daemon/test_deleted_while_down.py": Long("two brokers with an agent beside each", 0.3),
    "tests/broker/evidence/test_deleter_live.py": Long(
        "what stops retention on a real broker, and answers of --what-if carried out", 2.8
    ),
    "tests/broker/evidence/test_explain_live.py": Long("other releases, twenty drawn topics, a longer wait", 1.9),
    "tests/broker/evidence/test_headline_case.py": Long("other releases, and a clone that is stopped", 0.9),
    "tests/broker/evidence/test_isolated_leader.py": Long(
        "a leader without its majority: four nodes for a minute", 1.3
    ),
    "tests/broker/evidence/test_metadata_live.py": Long(
        "other releases, three nodes, the minute after which Kafka cleans", 1
    ),
    "tests/broker/evidence/test_moved_away_live.py": Long(_RELEASES, 0.9),
    "tests/broker/evidence/test_orphans_live.py": Long("other releases, and strays that a live broker holds open", 1.6),
    "tests/broker/evidence/test_orphans_zookeeper.py": Long("three brokers in ZooKeeper mode", 0.2),
    "tests/broker/evidence/test_public_questions_live.py": Long("what is asked in public, on real brokers", 2),
    "tests/broker/evidence/test_recovering_live.py": Long(_RELEASES, 0.6),
    "tests/broker/evidence/test_restored_quorum.py": Long("a metadata log that is exchanged, on three releases", 0.7),
    "tests/broker/evidence/test_rolled_back_metadata.py": Long(
        "other releases, and a reverted migration from ZooKeeper", 0.7
    ),
    "tests/broker/evidence/test_same_image.py": Long(_RELEASES, 0.1),
    "tests/broker/evidence/test_same_verdicts.py": Long("one scenario on three releases", 0.9),
    "tests/broker/execute/test_copies_and_leftovers.py": Long(_RELEASES, 1.6),
    "tests/broker/execute/test_full_disk.py": Long("other releases, and xfs", 1.7),
    "tests/broker/execute/test_races.py": Long("other releases, more rounds, a broker that is not ready in time", 1.7),
    "tests/broker/execute/test_removed_by_hand.py": Long(_RELEASES, 0.3),
    "tests/broker/execute/test_restore_past_retention.py": Long(_RELEASES, 1),
    "tests/broker/execute/test_restores.py": Long("other releases, with one node and with three, both modes", 10),
    "tests/broker/execute/test_start_on_what_we_leave.py": Long(_RELEASES, 0.6),
    "tests/broker/execute/test_started_mark.py": Long("other releases, and batches that are killed and copied", 2.2),
    "tests/broker/execute/test_unassigned.py": Long(_RELEASES, 0.5),
    "tests/broker/fidelity/test_kafka_classes.py": Long("Kafka's own classes of 4.3.1 and 4.4.0 are asked", 1.2),
    "tests/broker/releases/test_release_table.py": Long("the jars of every release are fetched", 0.9),
    "tests/broker/rig/test_rig.py": Long("the rig itself: every mode, each kind of security", 1.4),
    "tests/broker/test_another_broker_answers.py": Long("other releases, and the whole minute a broker is given", 1.1),
    "tests/broker/test_documents_run_live.py": Long("the pages' commands for a live fleet", 2.2),
    "tests/broker/test_strays_live.py": Long(_RELEASES, 0.5),
    "tests/disk/service/daemon/test_daemon_hangs.py": Long("each call that may hang instead of some", 1.8),
    "tests/disk/service/daemon/test_daemon_killed.py": Long(_EACH_POINT, 0.4),
    "tests/disk/service/daemon/test_daemon_soak.py": Long("two minutes instead of 22 events", 0.2),
    "tests/disk/cleanup/execute/test_killed.py": Long(_EACH_POINT, 2.3),
    "tests/disk/kafka/metadata_log/test_damage.py": Long("five to eight times as many places to cut or flip", 0.3),
    "tests/disk/cleanup/rescue/test_rescue.py": Long("ten drawn messes on each file system instead of three", 0.3),
    "tests/disk/cli/test_damages.py": Long("of damages that are alike everywhere, each release and kind of node", 0.6),
    "tests/disk/cli/test_hostile_files.py": Long(
        "each command that reads a file, and each thing in place of every one, not only of one of its kind", 0.7
    ),
    "tests/disk/cli/test_one_voice.py": Long("60 hosts drawn by the seed", 1.5),
    "tests/disk/deletion/controller/test_deletions.py": Long("50,000 files of junk instead of 1,000", 0.5),
    "tests/disk/deletion/controller/test_hosts_without_a_key.py": Long("five times as much junk", 0.3),
    "tests/disk/base/files/test_whole_file.py": Long("EIO beside ENOSPC and kills", 0.1),
    "tests/disk/disk/test_scan.py": Long("100,000 partitions instead of 25,000", 0.2),
    "tests/disk/disk/test_removal.py": Long("ext4 and xfs", 0.1),
    "tests/disk/test_frozen.py": Long("the tool that compares what others read, before and after a move", 0.2),
    "tests/package/test_build.py": Long("packed with xz, fetched and built twice, linted for both architectures", 3.9),
    "tests/package/test_image.py": Long("made twice, and the image of the fleet job", 6.9),
    "tests/package/test_first_plan.py": Long("three brokers beside an installed package", 0.4),
    "tests/page/test_accessibility.py": Long("each theme in each width, instead of each once", 0.5),
    "tests/page/test_browser.py": Long("10,000 hosts", 0.7),
    "tests/page/test_copied_commands.py": Long("a place that needs no quotes, beside one that needs all", 0.6),
    "tests/page/test_links.py": Long("a fleet whose figures nobody can count by eye", 0.5),
    "tests/page/test_render.py": Long("10,000 hosts", 0.4),
    "tests/page/test_ten_tasks.py": Long("ten tasks on a page of 2,000 hosts", 0.3),
    "tests/spark/ingest/test_delta_log.py": Long("reading with another Spark", 1.9),
    "tests/spark/ingest/test_killed.py": Long(
        "each write instead of two of a kind, reports after a killed report and around a trim", 1.8
    ),
    "tests/spark/ingest/test_object_store.py": Long("S3: Hadoop's connector is fetched", 5.1),
    "tests/spark/ingest/test_year.py": Long("a year of 50 hosts, night by night", 1),
    "tests/spark/ingest/test_skew.py": Long("a topic that has nearly all of 24,000 directories", 0.2),
    "tests/spark/report/test_every_table.py": Long("92 hosts, and the demo's fleet", 2.4),
    "tests/spark/report/test_reference.py": Long("100 drawn clusters instead of 24", 0.1),
    "tests/spark/report/test_replicas.py": Long("twenty nights instead of ten", 0.1),
    "tests/spark/report/test_rests_on.py": Long("each input withheld by itself, not three at once", 4.8),
    "tests/spark/report/test_same_result.py": Long(
        "seven partitions, adaptive, with generated code; everything ingested again", 1.5
    ),
    "tests/spark/test_formats.py": Long("a second report, on each format", 0.5),
    "tests/spark/test_cluster.py": Long("real clusters: spark-submit, a worker and a driver that die", 4),
    "tests/unit/test_kafka_suites.py": Long("forty rows broken on purpose, each in a copy of the tree", 0.9),
}


def one_in(number: int, found: Sequence[T]) -> Sequence[T]:
    """Every so many-th of many alike, from the first to the last; all of them in the long form."""
    return found if FULL else found[::number]


def versions(*releases: T) -> list[T]:
    """The releases of Kafka that a test is run against, for `pytest.mark.parametrize`: the first of those it names, or
    all of them in the long form. The default runs of different tests take different releases."""
    return list(releases if FULL else releases[:1])


if __name__ == "__main__":
    for path, long in LONG.items():
        minutes = "" if long.minutes is None else f"{long.minutes:g} CPU min"
        print(f"{minutes:>12}  {path:60}  {long.adds}")
