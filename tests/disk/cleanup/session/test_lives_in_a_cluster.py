"""Lives of a directory in a cluster: unclean elections, reassignments, a metadata log that was rolled back or left over
from another mode, versions, retention, processes of other mount namespaces, a configuration cut short. Between any two
of these an operator, or a timer, runs some command. What must never come of it stands in `host_in_cluster`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logagent.verdict.evidence.version_seen import LINEAGE_FILE_NAME
from tests.command_line import LOCKER, process
from tests.disk.cleanup.session.host_in_cluster import NEW, OLD, PARTITION, STRAY_SINCE, HostInCluster, Records, parsed
from tests.disk.cleanup.session.test_version_seen import running
from tests.lives import Pick, by_chance, seeds, told
from tests.living_cluster import HERE, NAME, OTHER, THIRD, LeaderLog, listening
from tests.needs import need_root
from tests.serving import seen_serving


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with listening() as found:
        yield found


# What the cluster does, whether this host knows of it or not


def elect_uncleanly(host: HostInCluster, pick: Pick) -> None:
    if NAME in host.cluster.topics:
        host.cluster.elect_uncleanly(NAME, pick("since", (50, 100, 200)))


def lag(host: HostInCluster, pick: Pick) -> None:
    """What its leader has is not committed, or is again."""
    host.cluster.log.high_watermark = pick("high watermark", (100, 150, host.cluster.log.end))


def expire(host: HostInCluster, pick: Pick) -> None:
    """Retention, or an operator, deleted it where it is led."""
    host.cluster.log.start = pick("log start", (0, 100, 200))


def lead_here(host: HostInCluster, pick: Pick) -> None:
    """This host's broker led it, so nobody does now; or the other one takes over."""
    if NAME in host.cluster.topics:
        topic = host.cluster.topics[NAME]
        topic.leader = pick("leader", topic.replicas)


def reassign(host: HostInCluster, pick: Pick) -> None:
    if NAME in host.cluster.topics:
        host.cluster.reassign(NAME, *pick("replicas", ((OTHER, THIRD), (OTHER, THIRD), (HERE, OTHER), (HERE,))))


def delete_topic(host: HostInCluster, pick: Pick) -> None:
    if NAME in host.cluster.topics:
        host.cluster.delete(NAME)


def create_topic(host: HostInCluster, pick: Pick) -> None:
    if NAME not in host.cluster.topics:
        host.cluster.create(NAME)
        host.cluster.log = LeaderLog(((0, 0),), 300, 0, 300)


def keep(host: HostInCluster, pick: Pick) -> None:
    if NAME in host.cluster.topics:
        host.cluster.keep(NAME, pick("setting", ("retention.ms", "retention.bytes")), pick("value", (900, -1)))


def cut_off(host: HostInCluster, pick: Pick) -> None:
    """Who answers was deposed, and has not noticed."""
    host.cluster.deposed = pick("deposed", (True, False))


def answer(host: HostInCluster, pick: Pick) -> None:
    host.cluster.reachable = pick("reachable", (True, False))


# What becomes of the host


def serve(host: HostInCluster, pick: Pick) -> None:
    host.serve()


def learn(host: HostInCluster, pick: Pick) -> None:
    """Its broker ran for a moment, and had no time for more than to follow the metadata."""
    host.sync()


def roll_back(host: HostInCluster, pick: Pick) -> None:
    """The metadata volume, or the whole quorum, comes from a backup."""
    host.roll_back(fresh=pick("fresh", (True, True, False)))


def change_mode(host: HostInCluster, pick: Pick) -> None:
    """A migration was reverted: what lies in the metadata dir is of then."""
    host.in_kraft_mode(False)
    host.roll_back(fresh=pick("fresh", (True, False)))


def come_back(host: HostInCluster, pick: Pick) -> None:
    host.in_kraft_mode(True)
    host.sync()


def change_version(host: HostInCluster, pick: Pick) -> None:
    """It runs for a moment, and an agent acts meanwhile. `kafka.version` stays what it was."""
    version = pick("version", (OLD, NEW))
    if version < STRAY_SINCE and any(path.name.endswith("-stray") for path in host.aside()):
        return  # it would not start
    with running(host.d1, ".".join(map(str, version))) as pid:
        if version >= STRAY_SINCE:
            host.run("cleanup")
            seen_serving(host.state, pid, host.d1)
        host.run("cleanup", "--execute")
    host.version = version


def move(host: HostInCluster, pick: Pick) -> None:
    """To the other log dir, as an operator moves things."""
    for path in [*filter(None, [host.current()]), *host.aside()][:1]:
        path.rename(next(d for d in host.log_dirs if d != path.parent) / path.name)


def set_bits(host: HostInCluster, pick: Pick) -> None:
    """`chmod -R ug+s`."""
    for path in [*host.aside(), *filter(None, [host.current()])]:
        path.chmod(path.stat().st_mode | 0o6000)


# What is done about it

COMMANDS = (("cleanup", "--execute"), ("prestart",), ("rescue", "--execute"))
DELETES: tuple[tuple[str, ...], ...] = (
    (),
    ("--quarantine",),
    ("--even-last-copy",),
    ("--allow-assigned",),
    ("--allow-assigned", "--quarantine"),
    ("--allow-assigned", "--even-last-copy", "--quarantine"),
)
RESTORES: tuple[tuple[str, ...], ...] = (
    (),
    ("--replace",),
    ("--replace", "--even-last-copy"),
    ("--retention-will-delete",),
    ("--leader-will-truncate",),
    ("--broker-will-delete",),
    ("--retention-will-delete", "--leader-will-truncate"),
)


def act(host: HostInCluster, pick: Pick) -> None:
    command, *words = pick("command", COMMANDS)
    host.run(command, *words)


def delete(host: HostInCluster, pick: Pick) -> None:
    words = pick("delete", DELETES)
    if words == ("--even-last-copy",) and not host.assigned():
        return  # that is the word for what is not assigned here
    host.run("delete", "--partition", PARTITION, *words, "--execute")


def restore(host: HostInCluster, pick: Pick) -> None:
    if host.aside():
        host.run("restore", pick("which", host.aside()).name, *pick("restore", RESTORES), "--execute")


ACTS = (act, act, delete, restore)


def beside_another_namespace(host: HostInCluster, pick: Pick) -> None:
    places = [*filter(None, [host.current()]), *host.aside()]
    if places:
        with host.open_elsewhere(pick("open", places)):
            pick("act", ACTS)(host, pick)


def beside_a_recovering_broker(host: HostInCluster, pick: Pick) -> None:
    """It holds the locks, and has loaded nothing yet."""
    before = host.found()
    with process(LOCKER, *host.log_dirs):
        pick("act", ACTS)(host, pick)
    assert host.found() == before, "it was acted on beside a broker that is still recovering"


def with_a_torn_configuration(host: HostInCluster, pick: Pick) -> None:
    whole = host.properties.read_text()
    host.properties.write_text(whole.removesuffix(f",{host.d2}\n") if pick("cut", (True, False)) else "")
    assert host.why_no_reload() is not None, "a daemon would take it"
    pick("act", ACTS)(host, pick)
    host.properties.write_text(whole)
    assert host.why_no_reload() is None


EVENTS: tuple[Callable[[HostInCluster, Pick], None], ...] = (
    elect_uncleanly, lag, expire, lead_here, reassign, reassign, delete_topic, create_topic, keep, cut_off, answer,
    serve, learn, learn, roll_back, change_mode, come_back, change_version, move, set_bits,
    beside_another_namespace, beside_a_recovering_broker, with_a_torn_configuration,
)  # fmt: skip


@pytest.mark.parametrize("seed", seeds(5))
def test_no_life_in_a_cluster_leads_to_fewer_records_without_a_word(tmp_path: Path, port: int, seed: int) -> None:
    need_root()
    host, pick = HostInCluster(tmp_path, port), by_chance(seed)
    for _ in range(6):
        pick("event", EVENTS)(host, pick)
        pick("act", ACTS)(host, pick)


# Those that chance takes a while to find, one for each guard: without it, it is red


@pytest.fixture
def host(tmp_path: Path, port: int) -> HostInCluster:
    return HostInCluster(tmp_path, port)


def everything_is_tried(host: HostInCluster) -> None:
    """What a timer runs, and what an operator may try without a word that gives records up."""
    for command in (COMMANDS[0], COMMANDS[0], *COMMANDS):
        host.run(*command)
    host.run("delete", "--partition", PARTITION, "--execute")


def records(host: HostInCluster) -> frozenset[Records]:
    return frozenset(r for found in host.found().values() for r in found.records)


def deposed(host: HostInCluster) -> None:
    host.cluster.deposed = True


def elected_uncleanly(host: HostInCluster) -> None:
    host.cluster.elect_uncleanly(NAME, 100)


def not_committed(host: HostInCluster) -> None:
    host.cluster.log.high_watermark = 150


def past_retention(host: HostInCluster) -> None:
    host.cluster.log.start = 200


def silent(host: HostInCluster) -> None:
    host.cluster.reachable = False


def forget_the_topic(host: HostInCluster) -> None:
    """It is deleted. The metadata log here has that; an answer only counts for what has not changed in a minute."""
    host.cluster.delete(NAME)
    host.sync()
    silent(host)


@pytest.mark.parametrize("leader", [elected_uncleanly, deposed, not_committed, past_retention, silent])
def test_moved_away_and_not_covered_it_is_set_aside_and_stays(
    host: HostInCluster, leader: Callable[[HostInCluster], None]
) -> None:
    """A living ISR, after an unclean election and a reassignment: 0 of 300 records were left."""
    had = records(host)
    host.cluster.reassign(NAME, OTHER, THIRD)
    leader(host)
    host.sync()
    everything_is_tried(host)
    assert records(host) == had and host.current() is None


def test_moved_away_and_covered_it_goes(host: HostInCluster) -> None:
    """So that the lives around this one are not all alike."""
    host.cluster.reassign(NAME, OTHER, THIRD)
    host.sync()
    everything_is_tried(host)
    assert records(host) == frozenset()


@pytest.mark.parametrize("bits", [True, False])
def test_a_stray_that_lives_here_stays_whatever_its_mode_says(host: HostInCluster, bits: bool) -> None:
    """`chmod -R ug+s` is no removal that has started."""
    had = records(host)
    silent(host)
    host.run("delete", "--partition", PARTITION, *DELETES[-1], "--execute")
    if bits:
        set_bits(host, told())
    everything_is_tried(host)
    assert records(host) == had


@pytest.mark.parametrize("alone", [True, False])
def test_a_quorum_that_was_restored_from_a_backup_proves_nothing(host: HostInCluster, alone: bool) -> None:
    """A living partition was `topic-absent`, and an approved rescue removed it."""
    host.cluster.reachable = not alone
    host.roll_back(fresh=True)
    everything_is_tried(host)
    assert host.current() is not None


def test_a_metadata_log_of_another_mode_proves_nothing(host: HostInCluster) -> None:
    (host.state / LINEAGE_FILE_NAME).unlink()
    silent(host)
    change_mode(host, told(fresh=True))
    everything_is_tried(host)
    assert host.current() is not None


def test_a_source_that_was_read_is_not_dropped(host: HostInCluster) -> None:
    """An export of a clone calls it absent, and the metadata log on this host, which is newer, has it."""
    file = host.export_without_it()
    host.sync()
    for command in COMMANDS:
        host.run(*command, "--assignments", file)
    host.run("delete", "--partition", PARTITION, "--execute", "--assignments", file)
    assert host.current() is not None


def test_after_a_rollback_nothing_becomes_a_stray(host: HostInCluster) -> None:
    """`kafka.version` was left over: 3.5.2 did not start with the `-stray` that prestart made."""
    change_version(host, told(version=OLD))
    host.cluster.reassign(NAME, OTHER, THIRD)
    host.sync()
    everything_is_tried(host)
    host.cluster.reassign(NAME, HERE, OTHER)
    host.sync()
    host.run("delete", "--partition", PARTITION, "--quarantine", "--allow-assigned", "--even-last-copy", "--execute")


def test_what_a_process_of_another_namespace_has_open_stays_where_it_is(host: HostInCluster) -> None:
    forget_the_topic(host)
    for _ in range(2):  # as it is, and once it is a stray
        (path,) = [*filter(None, [host.current()]), *host.aside()]
        with host.open_elsewhere(path):
            everything_is_tried(host)
        host.run("cleanup", "--execute")
    assert not host.found()


def test_beside_a_broker_that_recovers_no_stray_goes(host: HostInCluster) -> None:
    """It loads its strays last: real ones died of it, "Error starting LogManager"."""
    forget_the_topic(host)
    host.run("cleanup", "--execute")
    before = host.found()
    with process(LOCKER, *host.log_dirs):
        everything_is_tried(host)
    assert host.found() == before != {}
    host.run("cleanup", "--execute")
    assert not host.found()


@pytest.mark.parametrize("how", ["retention.ms", "retention.bytes", "its leader's log start", "its leader's epochs"])
def test_what_goes_soon_after_a_restore_does_not_come_back_without_a_word(host: HostInCluster, how: str) -> None:
    host.run("delete", "--partition", PARTITION, *DELETES[-1], "--execute")
    if how.startswith("retention"):
        host.cluster.keep(NAME, how, 900)
    elif how == "its leader's log start":
        past_retention(host)
    else:
        elected_uncleanly(host)
    (stray,) = host.aside()
    for words in RESTORES[:3]:
        host.run("restore", stray.name, *words, "--execute")
        assert host.current() is None
    word = RESTORES[4] if "epochs" in how else RESTORES[3]
    host.run("restore", stray.name, *word, "--execute")
    assert host.current() is not None


def test_a_configuration_that_is_cut_short_forgets_no_log_dir(host: HostInCluster) -> None:
    """A partition was current twice after a `restore`."""
    silent(host)
    host.run("delete", "--partition", PARTITION, *DELETES[-1], "--execute")
    host.make(host.d2 / PARTITION, host.topic.topic_id)
    assert parsed(host.run("restore", host.aside()[0].name, "--execute"))["refusals"]
    for cut in (True, False):
        for words in RESTORES:
            with_a_torn_configuration(host, told(cut=cut, act=restore, which=host.aside()[0], restore=words))
        with_a_torn_configuration(host, told(cut=cut, act=act, command=COMMANDS[0]))
    assert len(host.found()) == 2
