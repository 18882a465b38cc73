"""A request that is closed (done, cancelled, dropped) never deletes a topic again, whatever is found later."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest

from logagent.cli.deletions.progress import progress_document
from logagent.controller.deletion_plan import ExistingTopic, plan_topics
from logagent.controller.rounds import DeletionRounds
from logagent.model.planning.proposals import compile_topics
from logagent.store.deletion import Closed, RequestedTopic
from logagent.store.deletion_progress import deletion_progress
from logagent.store.orders import instant, write_closed
from tests.disk.controller.small_fleet import CLUSTER, DIRECTORY, KEY, TOPIC_ID, SmallFleet

OTHER = "B" * 22


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    return SmallFleet(tmp_path).everywhere()


def controller(fleet: SmallFleet) -> DeletionRounds:
    started = fleet.controller()
    started.start()
    return started


def look(fleet: SmallFleet) -> DeletionRounds:
    looking = fleet.controller()
    looking.look()
    return looking


def living(fleet: SmallFleet) -> RequestedTopic:
    topic = fleet.topic()
    fleet.admin.now = {TOPIC_ID: topic}
    return topic


def later_snapshots(fleet: SmallFleet) -> None:
    fleet.now += timedelta(minutes=10)
    for node in fleet.hosts:
        fleet.publish(node)
    fleet.now += timedelta(minutes=1)


def is_untouched(fleet: SmallFleet) -> bool:
    return TOPIC_ID in fleet.admin.living and all(h.disk and not h.acted for h in fleet.hosts.values())


@pytest.mark.parametrize("same_controller", [True, False])
def test_a_dropped_topic_lives_on_when_deletion_is_enabled_and_a_snapshot_shows_it(
    fleet: SmallFleet, same_controller: bool
) -> None:
    fleet.request(topics=(living(fleet),))
    fleet.admin.disabled = {TOPIC_ID}
    ours = controller(fleet)
    fleet.rounds(ours)
    fleet.admin.disabled = set()
    for _ in range(2):
        later_snapshots(fleet)
        assert look(fleet).states.of("request-1") == "dropped" and not look(fleet).is_due()
        fleet.rounds(ours if same_controller else controller(fleet))
    assert fleet.admin.asked == [TOPIC_ID] and is_untouched(fleet)
    (told,) = progress_document(look(fleet))["requests"]
    assert told["state"] == "dropped" and told["topics"] == []
    assert [(d["topic"], d["why"]) for d in told["dropped"]] == [("clicks", "TOPIC_DELETION_DISABLED")]


def test_what_is_dropped_stays_dropped_while_the_rest_of_its_request_goes_on(fleet: SmallFleet) -> None:
    """The other topic waits for a host: the request is open, and the next controllers ask the cluster nothing."""
    fleet.hosts[3].dumb = True
    other = replace(living(fleet), topic="views", topic_id=OTHER)
    fleet.hosts[3].disk[OTHER, 0] = replace(DIRECTORY, name="views-0")
    fleet.request(topics=(fleet.topic(), other))
    fleet.admin.living.add(OTHER)
    fleet.admin.disabled = {TOPIC_ID}
    fleet.rounds(controller(fleet))
    fleet.admin.disabled = set()
    later_snapshots(fleet)
    fleet.rounds(controller(fleet))
    assert fleet.admin.asked.count(TOPIC_ID) == 1 and look(fleet).states.of("request-1") == "open"
    plan = plan_topics(
        compile_topics("clicks"), [ExistingTopic(fleet.topic(), 1)], CLUSTER,
        open_requests=look(fleet).states.not_closed(),
    )  # fmt: skip
    assert [t.topic for t in plan.topics] == ["clicks"], "it may be asked for again, as it is not queued any more"
    (row,) = deletion_progress(str(fleet.store), CLUSTER, fleet.keys, fleet.now)
    assert row["topic"] == "views", "nothing of it is left to be deleted"
    fleet.hosts[3].dumb = False
    fleet.now += timedelta(hours=1)
    later_snapshots(fleet)
    for _ in range(4):
        fleet.rounds(controller(fleet))
        fleet.now += timedelta(hours=1)
        later_snapshots(fleet)
    assert look(fleet).states.of("request-1") == "dropped" and (OTHER, 0) in fleet.hosts[3].acted
    assert fleet.admin.asked.count(TOPIC_ID) == 1 and TOPIC_ID in fleet.admin.living


@pytest.mark.parametrize("outcome", ["done", "cancelled"])
def test_a_topic_that_lives_is_not_deleted_for_a_closed_request(
    fleet: SmallFleet, outcome: Literal["done", "cancelled"]
) -> None:
    """So a version before this one closed what it had dropped."""
    request = fleet.request(topics=(living(fleet),))
    write_closed(fleet.control, Closed(request.request_id, CLUSTER, 1, outcome, "ops", instant(fleet.now)), KEY)
    for _ in range(2):
        later_snapshots(fleet)
        fleet.rounds(controller(fleet))
    assert fleet.admin.asked == [] and is_untouched(fleet)
    assert look(fleet).states.of("request-1") == ("dropped" if outcome == "done" else "cancelled")
    assert not look(fleet).is_due(), "no controller comes back to it"


def test_agents_are_asked_about_a_copy_found_later_only_once_the_topic_is_known_to_be_gone(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic(),))
    fleet.rounds(controller(fleet))
    assert look(fleet).states.of("request-1") == "done" and fleet.admin.asked == [TOPIC_ID]
    fleet.hosts[2].disk[TOPIC_ID, 0] = replace(DIRECTORY, inode=99)
    fleet.hosts[2].acted.clear()
    fleet.admin.hidden = {TOPIC_ID}
    later_snapshots(fleet)
    fleet.rounds(controller(fleet))
    assert fleet.hosts[2].disk, "the cluster may only hide it"
    fleet.admin.hidden = set()
    fleet.now += timedelta(hours=1)
    later_snapshots(fleet)
    fleet.rounds(controller(fleet))
    assert not fleet.hosts[2].disk and look(fleet).states.of("request-1") == "done"
    assert fleet.admin.asked == [TOPIC_ID], "DeleteTopics was sent once"
