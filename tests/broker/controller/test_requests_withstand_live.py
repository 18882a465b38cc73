"""What no request may do, and what each one survives, on one cluster of three real brokers with an agent beside each.

The topics live on all the time, and every record of each is counted after each test; at the end once more, after every
broker was started again and has looked twice for what its retention deletes.

The cluster is its own, as its brokers are stopped and killed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.deletion_cases import recreated
from tests.broker.deletion_stage import NODES, PARTITIONS, RECORDS, Stage
from tests.broker.rig.ordered_cluster import ASKED, DECIDED, SENT, Backup, current
from tests.broker.rig.process import wait_until
from tests.broker.rig.rig import Rig
from tests.long_form import long_form

pytestmark = long_form

RUNNERS = "control/{}/runners"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("three")
    rig = Rig(root)
    try:
        with Stage(rig, root, "4.3.1", "kraft") as stage:
            yield stage
    finally:
        rig.close()


@pytest.fixture
def stage(shared: Stage) -> Iterator[Stage]:
    shared.everything_runs()
    yield shared
    shared.everything_runs()
    shared.is_untouched(shared.kept, shared.kept_id)
    counts_every_record(shared)


def counts_every_record(s: Stage) -> None:
    topics = [name for name in s.cluster.topics() if not name.startswith("__")]
    found = {topic: [len(s.cluster.read_all(topic, p)) for p in range(PARTITIONS)] for topic in topics}
    assert found == {topic: [RECORDS] * PARTITIONS for topic in topics}
    print(f"{len(topics)} living topics, {RECORDS} records in each partition", flush=True)


def cancelled(s: Stage, request: Any) -> None:
    status, _, said = s.ordered.topics("cancel", request["request_id"])
    assert status == 0 and s.request(request["request_id"])["state"] == "cancelled", said


def looks_again(s: Stage, times: int = 3) -> None:
    """The `topics run` that runs has begun so many rounds since."""
    folder = s.ordered.store / RUNNERS.format(s.cluster.nodes[0].cluster_id)

    def renewed() -> int:
        return max((path.stat().st_mtime_ns for path in folder.glob("*.json")), default=0)

    for _ in range(times):
        last = renewed()
        wait_until(lambda last=last: renewed() > last, 60, "the running `topics run` looks again")  # type: ignore[misc]


def test_a_recreated_topic_is_another_one(stage: Stage) -> None:
    recreated(stage)


def test_a_cancelled_request_stays_so_in_a_store_put_back_while_an_agent_was_down(stage: Stage) -> None:
    topic = stage.create("put-back")
    topic_id = stage.cluster.topic_id(topic)
    request = stage.ordered.asked_and_killed(topic, ASKED)
    backup = Backup(stage.ordered.store)
    stage.ordered.stop_agent(3)
    cancelled(stage, request)
    backup.put_back()
    stage.ordered.agent(3)
    stage.stays_undecided(request)
    stage.is_untouched(topic, topic_id)
    cancelled(stage, request)


@pytest.mark.parametrize("behind", [ASKED, DECIDED])
def test_a_store_that_fell_back_under_a_running_process(stage: Stage, behind: str) -> None:
    topic = stage.create(f"fell-back-{behind[-6:].replace('_', '-')}")
    topic_id = stage.cluster.topic_id(topic)
    request = stage.ordered.asked_and_killed(topic, behind)
    backup = Backup(stage.ordered.store)
    cancelled(stage, request)
    with stage.ordered.controller():
        looks_again(stage)
        backup.put_back()
        looks_again(stage)
        assert stage.request(request["request_id"])["state"] in ("open", "deleting")
    stage.is_untouched(topic, topic_id)
    cancelled(stage, request)


def test_a_folder_replaced_by_a_copy_without_its_decision(stage: Stage) -> None:
    """One that was cancelled; and one that was carried out, whose topic's name belongs to another one by now."""
    topic, gone = stage.create("replaced"), stage.create("replaced-done")
    topic_id = stage.cluster.topic_id(topic)
    done = stage.delete(gone)
    stage.completes(done)
    gone_id = stage.cluster.topic_id(stage.create(gone))
    request = stage.ordered.asked_and_killed(topic, ASKED)
    cancelled(stage, request)
    requests = stage.ordered.store / "control" / stage.cluster.nodes[0].cluster_id / "requests"
    for each in (request, done):
        folder = requests / each["request_id"]
        folder.rename(stage.root / f"aside-{each['request_id']}")
        folder.mkdir()
        shutil.copy(stage.root / f"aside-{each['request_id']}" / "request.json", folder)
    for each in (request, done):
        stage.stays_undecided(each)
    stage.is_untouched(topic, topic_id)
    stage.is_untouched(gone, gone_id)
    for each in (request, done):
        cancelled(stage, each)


@pytest.mark.parametrize("behind", [DECIDED, SENT])
def test_a_runner_killed_behind_its_decision_or_before_the_acknowledgement_is_resumed(
    stage: Stage, behind: str
) -> None:
    topic = stage.create(f"resumed-{behind[-6:].replace('_', '-')}")
    request = stage.ordered.asked_and_killed(topic, behind)
    requests = stage.ordered.store / "control" / stage.cluster.nodes[0].cluster_id / "requests"
    outcome = requests / request["request_id"] / "outcome.json"
    # The hosts may have answered before the first status: then it says already that nothing is left.
    assert request["state"] in ("deleting", "done") and not outcome.exists(), request
    if behind == DECIDED:
        assert topic in stage.cluster.topics()
    else:
        wait_until(lambda: topic not in stage.cluster.topics(), 60, "the cluster has deleted it")
    stage.completes(request)
    stage.is_gone(topic)
    wait_until(lambda: stage.ordered.topics("run", "--once")[0] == 0 and outcome.exists(), 120, "somebody closes it")


def test_a_partition_metadata_that_was_emptied_keeps_its_replica_open(stage: Stage) -> None:
    topic, three = stage.create("emptied"), stage.cluster.node(3)
    three.kill()
    stage.ordered.stop_agent(3)  # as by a power failure: an agent that ran knows the id that it read
    (path,) = [d / f"{topic}-0" / "partition.metadata" for d in three.log_dirs if (d / f"{topic}-0").is_dir()]
    content = path.read_bytes()
    path.write_bytes(b"")
    stage.ordered.agent(3)
    request = stage.delete(topic)
    stage.only_missing(request, 3, f"the topic id of {path.parent} cannot be read")
    publishes(stage, 3)
    stage.ordered.stop_agent(3)
    shutil.rmtree(stage.ordered.store / "answers" / stage.cluster.nodes[0].cluster_id / "3")
    stage.only_missing(request, 3, "it was there at")  # by its snapshot, which shows the other partition
    path.write_bytes(content)
    stage.everything_runs()
    stage.completes(request)
    stage.is_gone(topic)
    stage.gives_back(request, 3, topic)


def orphans_on_three(s: Stage, topic: str) -> Any:
    """Two orphans on the stopped node 3, that a report lists, and that are its alone to set aside."""
    three = s.cluster.node(3)
    three.stop()
    topic_id = s.moved_away(topic)
    s.age(3, topic)
    s.report(topic, "orphans")
    return topic_id


def test_agents_that_are_new_carry_out_nothing_that_stood(stage: Stage) -> None:
    topic, lives = stage.create("all-new"), stage.create("lives-on")
    lives_id = stage.cluster.topic_id(lives)
    topic_id = orphans_on_three(stage, topic)
    undecided = stage.ordered.asked_and_killed(lives, ASKED)
    stage.ordered.stop_agent(3)
    request = stage.purge_all(topic, "orphan")
    backup = Backup(stage.ordered.store)
    cancelled(stage, request)
    cancelled(stage, undecided)
    for node_id in (1, 2):
        stage.ordered.stop_agent(node_id)
    for node_id in NODES:
        shutil.rmtree(stage.root / f"agent{node_id}" / "state")
    backup.put_back()
    for node_id in NODES:
        stage.ordered.agent(node_id)
    why = "memory is newer than the request"
    stage.rounds_until(request, lambda r: str(r["topics"]).count(why) == PARTITIONS, "the new agent refuses it")
    stage.stays_undecided(undecided)
    assert len(current(stage.cluster.node(3), topic)) == PARTITIONS
    for each in (request, undecided):
        cancelled(stage, each)
    stage.everything_runs()
    stage.is_untouched(topic, topic_id, replicas=(1, 2))
    stage.is_untouched(lives, lives_id)


def test_what_was_restored_and_renamed_by_the_broker_stays_in_report_mode(stage: Stage) -> None:
    """Beside it, what the same request set aside and nobody restored goes after its retention."""
    topic, three = stage.create("restored"), stage.cluster.node(3)
    topic_id = orphans_on_three(stage, topic)
    stage.ordered.settings["LOGAGENT_CLEANUP__STRAY_RETENTION"] = "60s"
    stage.ordered.stop_agent(3)
    stage.ordered.agent(3)
    try:
        request = stage.purge_all(topic, "orphan")
        stage.rounds_until(request, lambda r: r["state"] == "done", "both are set aside")
        strays = [name for name in three.dir_names() if name.startswith(f"{topic}-0.")]
        stage.ordered.stop_agent(3)  # as an operator does who wants something back
        ran = stage.ordered.command(3, "restore", *strays, "--execute")
        assert ran.status == 0 and current(three, topic) == [f"{topic}-0"], (ran.out, ran.err)
        stage.ordered.agent(3)
        three.start(timeout=240)

        def names(partition: int) -> list[str]:
            return [name for name in three.dir_names() if name.startswith(f"{topic}-{partition}")]

        wait_until(lambda: names(0) != [f"{topic}-0"], 120, "the broker renames what it was given back")
        (left,) = names(0)
        assert left.endswith("-stray") and left not in strays, left
        wait_until(lambda: not names(1), 300, "what nobody restored goes", interval=1)
        outlasts_retention(stage, left)
        assert names(0) == [left]
    finally:
        stage.ordered.settings |= stage.settings | {"LOGAGENT_CLEANUP__STRAY_RETENTION": "15s"}
        stage.ordered.stop_agent(3)
    stage.everything_runs()
    stage.is_untouched(topic, topic_id, replicas=(1, 2))


def outlasts_retention(s: Stage, name: str) -> None:
    """Until a cleanup plan of node 3 would remove it, and then until its agent has published three times."""

    def is_due() -> bool:
        return name in s.ordered.command(3, "cleanup", "--json").out

    wait_until(is_due, 300, "its retention is over", interval=2)
    publishes(s, 3, times=3)


def publishes(s: Stage, node_id: int, times: int = 1) -> None:
    """So many snapshots more."""
    landing = s.ordered.store / "landing" / s.cluster.nodes[0].cluster_id

    def count() -> int:
        return len(list(landing.glob(f"*/{node_id}/*.manifest.json")))

    until = count() + times
    wait_until(lambda: count() >= until, 300, f"node {node_id} publishes", interval=0.5)


def test_no_living_topic_loses_a_record_over_a_restart_and_two_retention_checks(stage: Stage) -> None:
    """A topic whose records are all past their retention shows when each broker has looked: then they are gone."""
    each = {node - 1: [node, *(n for n in NODES if n != node)] for node in NODES}
    counts_every_record(stage)
    for node in reversed(stage.cluster.nodes):
        node.stop()
        node.start(timeout=240)
    stage.everything_runs()
    for check in range(2):
        topic = f"__retention-{check}"
        stage.cluster.create_topic(topic, partitions=3, rf=3, assignments=each, config={"retention.ms": "1000"})
        for partition in each:
            stage.cluster.produce(topic, partition, n=RECORDS)
        wait_until(
            lambda topic=topic: not any(stage.cluster.read_all(topic, p) for p in each),  # type: ignore[misc]
            300, "every broker has looked for what its retention deletes", interval=2,
        )  # fmt: skip
        stage.cluster.delete_topic(topic)
    counts_every_record(stage)
