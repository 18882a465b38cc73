"""Attacks through the Admin API: it answers, but it is another cluster's."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from logagent.agent.session.assignments import Assignments, judge
from logagent.broker.admin.answers import IdAnswer
from logagent.model.assignments.image import PartitionAssignment, Source, Topic, make_image
from logagent.model.assignments.verdict import Host
from logagent.model.facts import LogDirFacts
from logagent.model.records import Health, Holder, HolderState, Identity, Kind, PartitionDir, Verdict

NOW_MS = 1_800_000_000_000
LIVING, HIDDEN = "L" * 22, "H" * 21 + "A"
OURS, THEIRS = "ours", "theirs"
DIR = PartitionDir("/d1", "hidden-0", Kind.CURRENT, "hidden", 0, None, False, 7, 11, 0, 0, topic_id=HIDDEN)
WHERE = LogDirFacts("/d1", Identity(7, 2), Health.ONLINE, None, Holder(HolderState.FREE))


@dataclass
class Reader:
    """The other cluster's broker, which has never heard of the topic."""

    asked: list[str] = field(default_factory=list)

    def topic_ids_known(self, node_id: int, topic_ids: list[str]) -> dict[str, IdAnswer]:
        self.asked += topic_ids
        return dict.fromkeys(topic_ids, IdAnswer.UNKNOWN)

    def log_dir_served(self, node_id: int, path: str) -> bool:
        self.asked.append(path)
        return True


def assignments(admin_cluster: str) -> Assignments:
    """An export of our cluster by a principal that may not see all topics, and the Admin API of `admin_cluster`."""
    topics = [Topic("living", LIVING, {0: PartitionAssignment((1,))})]
    exported = make_image(
        topics,
        source=Source.FILE,
        exported_from=Source.ADMIN,
        cluster_id=OURS,
        at_ms=NOW_MS,
        known_until_ms=NOW_MS,
        complete=False,
    )
    admin = make_image(
        topics, source=Source.ADMIN, cluster_id=admin_cluster, at_ms=NOW_MS, known_until_ms=NOW_MS, complete=False
    )
    mine = admin_cluster == OURS
    return Assignments(
        usable=[exported, admin] if mine else [exported],
        unusable=[] if mine else [admin],
        reader=Reader(),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(("cluster", "verdict"), [(OURS, Verdict.ORPHAN), (THEIRS, Verdict.UNKNOWN)])
def test_another_clusters_broker_proves_no_absence(cluster: str, verdict: Verdict) -> None:
    rulings = judge([DIR], assignments(cluster), Host(1, OURS, 900_000), {"/d1": WHERE}, NOW_MS)
    assert rulings["/d1", "hidden-0"].verdict is verdict


@pytest.mark.parametrize(("cluster", "served"), [(OURS, True), (THEIRS, None)])
def test_another_clusters_broker_says_nothing_about_ours(cluster: str, served: bool | None) -> None:
    """Its node 1 may serve a log dir of the same path while ours still loads: strays are not removed under that."""
    assert assignments(cluster).log_dir_served(1, "/d1") is served
