"""Through the Admin API somebody answers: our own broker, another one of our cluster, or a stranger with our ids."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from logagent.base.errors import ServiceUnreachable, UnreadableError
from logagent.base.records import Health, Holder, HolderState, Identity, Kind, PartitionDir
from logagent.kafka.admin.responses import IdAnswer, LogDirDescription
from logagent.kafka.commitment import QuorumRead, QuorumReplica
from logagent.kafka.identity import BrokerPlace
from logagent.kafka.image import AssignmentImage, PartitionAssignment, Source, Topic, make_image
from logagent.verdict.evidence.assignment_sources import Assignments
from logagent.verdict.evidence.judge import identify, judge
from logagent.verdict.facts import LogDirFacts, Ruling
from logagent.verdict.rules import Host

NOW = 1_800_000_000_000
HOUR = 3_600_000
LIVING, MOVED, GONE = "L" * 21 + "A", "M" * 21 + "A", "G" * 21 + "A"
OLD_NS = (NOW - HOUR) * 1_000_000


def directory(name: str, topic_id: str, **changes: Any) -> PartitionDir:
    topic = name.removesuffix("-0")
    made = PartitionDir(
        "/d1", name, Kind.CURRENT, topic, 0, None, False, 7, hash(name), OLD_NS, OLD_NS, topic_id=topic_id
    )
    return replace(made, newest_mtime_ns=OLD_NS, **changes)


LIVES, GOES, MOVES = directory("lives-0", LIVING), directory("gone-0", GONE), directory("moved-0", MOVED)
DIRS = [LIVES, GOES, MOVES]
HERE = Topic("here", "H" * 21 + "A", {0: PartitionAssignment((1,))})
OURS = frozenset({BrokerPlace(1, "one", 9092), BrokerPlace(2, "two", 9092), BrokerPlace(3, "three", 9092)})
ALL_HERE = frozenset({("lives", 0), ("gone", 0), ("moved", 0)})


def quorum(*, fetched: int = NOW - 400, caught_up: int = NOW - 500, clock: int = NOW) -> QuorumRead:
    """Three controllers, of which 11 leads; brokers 2 and 3 observe."""
    voters = (
        QuorumReplica(11, -1, clock),
        QuorumReplica(12, fetched, fetched),
        QuorumReplica(13, NOW - HOUR, NOW - HOUR),
    )
    return QuorumRead(11, voters, (QuorumReplica(2, NOW, caught_up), QuorumReplica(3, NOW, caught_up)))


@dataclass
class Reader:
    """A cluster as it answers over the network. `shown`: what its node 1 says lies on its disk, None = it is down."""

    shown: frozenset[tuple[str, int]] | None = ALL_HERE
    places_now: frozenset[BrokerPlace] = OURS
    known: dict[str, IdAnswer] = field(default_factory=lambda: {LIVING: IdAnswer.KNOWN, GONE: IdAnswer.UNKNOWN})
    described: QuorumRead | str | None = field(default_factory=quorum)
    asked: list[tuple[int, str]] = field(default_factory=list)
    path: str = "/d1"
    error_code: int = 0

    def places(self) -> frozenset[BrokerPlace]:
        return self.places_now

    def log_dirs(self, node_id: int) -> dict[str, LogDirDescription]:
        if self.shown is None:
            raise ServiceUnreachable(f"node {node_id} is down")
        return {
            self.path: LogDirDescription(
                self.path, self.error_code, frozenset(self.shown) if self.error_code == 0 else None
            )
        }

    def log_dir_served(self, node_id: int, path: str) -> bool:
        return True

    def has_quorum(self, node_id: int) -> bool:
        return self.described is not None

    def quorum(self) -> QuorumRead:
        if isinstance(self.described, str):
            raise UnreadableError(self.described)
        assert self.described is not None
        return self.described

    def image(self, at_ms: int, *, node_id: int | None = None) -> AssignmentImage:
        topics = [
            Topic("lives", LIVING, {0: PartitionAssignment((1, 2), (2,))}),
            Topic("moved", MOVED, {0: PartitionAssignment((2, 3), (2, 3))}),
        ]
        return make_image(
            topics,
            AssignmentImage(
                source=Source.ADMIN, cluster_id="ours", at_ms=at_ms, known_until_ms=at_ms - 60_000, complete=False
            ),
        )

    def topic_ids_known(
        self, node_id: int, topic_ids: list[str], *, canaries: list[str] | None = None
    ) -> dict[str, IdAnswer]:
        self.asked += [(node_id, i) for i in topic_ids]
        if canaries is not None and not (canaries and all(self.known.get(i) is IdAnswer.KNOWN for i in canaries)):
            return dict.fromkeys(topic_ids, IdAnswer.CANNOT_TELL)
        return {i: self.known.get(i, IdAnswer.NOT_AUTHORISED) for i in topic_ids}


def rulings(
    reader: Reader,
    *,
    held: bool,
    seen: frozenset[BrokerPlace] = OURS,
    dirs: list[PartitionDir] | None = None,
    acted_on: list[PartitionDir] | None = None,
    proven: frozenset[str] = frozenset(),
    own: AssignmentImage | None = None,
    first: AssignmentImage | None = None,
) -> tuple[dict[str, tuple[str, str | None]], Assignments]:
    """Verdict and reason by name, and what was found out. `own`: the metadata log on our disk, which
    is no source; `first`: one that is."""
    dirs = DIRS if dirs is None else dirs
    holder = Holder(HolderState.STARTING, 42) if held else Holder(HolderState.FREE)
    where = {"/d1": LogDirFacts("/d1", Identity(7, 2), Health.ONLINE, None, holder)}
    usable = [*([first] if first is not None else []), reader.image(NOW)]
    found = Assignments(usable=usable, reader=reader, own_log=own)  # type: ignore[arg-type]
    host = Host(1, "ours", 900_000)
    identify(found, host, dirs, where, seen, NOW)
    told = judge(dirs if acted_on is None else acted_on, found, host, where, NOW, inventory=dirs, proven_absent=proven)

    def outcome(ruling: Ruling) -> tuple[str, str | None]:
        return str(ruling.verdict), ruling.reason

    return {name: outcome(ruling) for (_, name), ruling in told.items()}, found


DECIDED = {
    "lives-0": ("assigned", None),
    "gone-0": ("orphan", "topic-absent"),
    "moved-0": ("orphan", "not-a-replica"),
}
NOTHING = dict.fromkeys(DECIDED, ("unknown", "no-assignments"))


def test_our_own_broker_settles_what_its_disk_holds() -> None:
    reader = Reader()
    told, found = rulings(reader, held=True, seen=frozenset())
    assert told == DECIDED
    assert reader.asked == [(1, GONE)]
    assert found.answering is not None and found.answering.own and found.answering.places == OURS
    assert found.log_dir_served(1, "/d1") is True


def test_a_copy_made_by_hand_under_another_name_does_not_make_our_broker_another() -> None:
    """`cp -a lives-0 backup-0` beside it, more than a minute ago: our broker never loaded that one."""
    copied = [*DIRS, replace(LIVES, name="backup-0", topic="backup")]
    told, _ = rulings(Reader(), held=True, dirs=copied)
    assert told == {**DECIDED, "backup-0": ("unknown", "no-assignments")}
    told, found = rulings(Reader(shown=ALL_HERE - {("lives", 0)}), held=True, dirs=copied)
    assert set(told.values()) == set(NOTHING.values())
    assert "does not show lives-0" in found.problems[0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shown": frozenset({("other", 0)})}, "does not show gone-0"),
        ({"shown": ALL_HERE - {("lives", 0)}}, "does not show lives-0"),
        ({"shown": ALL_HERE, "path": "/data"}, "has no log dir /d1"),
        ({"shown": frozenset(), "error_code": 56}, "shows none of the partitions on this disk"),
    ],
)
def test_a_clone_with_all_our_ids_decides_nothing(changes: dict[str, Any], says: str) -> None:
    told, found = rulings(Reader(**changes), held=True)
    assert told == NOTHING
    assert any(says in problem for problem in found.problems), found.problems
    # Nor does ours count as serving because theirs does: strays are removed under a serving broker only.
    assert found.log_dir_served(1, "/d1") is None


def test_where_everything_is_young_all_of_it_has_to_be_shown() -> None:
    """A broker touches every directory when it starts. What nobody could show in time counts as missing."""
    young = [replace(d, ctime_ns=NOW * 1_000_000) for d in DIRS]
    told, _ = rulings(Reader(), held=True, dirs=young)
    assert told["moved-0"] == DECIDED["moved-0"]
    told, found = rulings(Reader(shown=ALL_HERE - {("moved", 0)}), held=True, dirs=young)
    assert told == NOTHING
    assert "does not show moved-0" in found.problems[0]
    one_is = [*young[:2], MOVES]
    told, _ = rulings(Reader(shown=frozenset({("moved", 0)})), held=True, dirs=one_is)
    assert told["moved-0"] == DECIDED["moved-0"]


def test_who_answers_as_our_node_while_ours_is_down_is_another() -> None:
    told, found = rulings(Reader(), held=False)
    assert told == NOTHING
    assert "this host's broker is down, so that one runs on another host" in found.problems[0]


def test_a_cluster_that_changes_between_two_questions_proves_no_absence() -> None:
    class Turns(Reader):
        def topic_ids_known(self, *given: Any, **more: Any) -> dict[str, IdAnswer]:
            self.shown = frozenset({("other", 0)})
            return super().topic_ids_known(*given, **more)

    told, _ = rulings(Turns(), held=True)
    assert told["gone-0"] == ("unknown", "no-assignments")


def test_while_ours_is_down_another_one_proves_absence() -> None:
    reader = Reader(shown=None)
    told, found = rulings(reader, held=False)
    assert told == DECIDED
    assert reader.asked == [(2, GONE)]
    assert found.log_dir_served(1, "/d1") is None


@pytest.mark.parametrize(
    ("places", "seen"),
    [
        (OURS, frozenset()),
        (frozenset({BrokerPlace(2, "clone", 9092), BrokerPlace(3, "clone", 9093)}), OURS),
        (frozenset({BrokerPlace(1, "one", 9092)}), OURS),
    ],
)
def test_brokers_that_were_never_seen_answer_nothing(
    places: frozenset[BrokerPlace], seen: frozenset[BrokerPlace]
) -> None:
    reader = Reader(shown=None, places_now=places)
    told, found = rulings(reader, held=False, seen=seen)
    assert told == NOTHING
    assert reader.asked == []
    assert "none of those that do was seen" in found.problems[0]


@pytest.mark.parametrize(("own_end", "ours"), [(100, True), (101, False)])
def test_a_clone_that_listens_where_our_brokers_listened_is_behind_our_own_log(own_end: int, ours: bool) -> None:
    """It has our ids, addresses and canaries, and knows nothing of what was deleted there."""
    reader = Reader(shown=None, described=replace(quorum(), high_watermark=100))
    own = replace(reader.image(NOW - HOUR), source=Source.KRAFT_LOG, offset=own_end)
    told, found = rulings(reader, held=False, own=own)
    assert (told["gone-0"] == ("orphan", "topic-absent")) is ours
    assert all(verdict == "unknown" for verdict, _ in told.values()) is not ours
    assert any("on this host up to 101" in problem for problem in found.problems) is not ours


UNPROVEN = {
    "lives-0": ("assigned", None),
    "gone-0": ("unknown", "no-assignments"),
    "moved-0": ("unknown", "uncommitted"),
}


@pytest.mark.parametrize(
    "described",
    [
        quorum(clock=NOW + 31_000),
        quorum(caught_up=-1),
        QuorumRead(11, (QuorumReplica(11, -1, NOW), QuorumReplica(12, -1, -1), QuorumReplica(13, -1, -1))),
        QuorumRead(11, ()),
        "the quorum is not described: error 31",
    ],
)
def test_one_of_which_nobody_knows_how_far_it_is_proves_nothing(described: QuorumRead | str) -> None:
    told, _ = rulings(Reader(shown=None, described=described), held=False)
    assert told in (UNPROVEN, NOTHING)


def test_what_is_younger_than_the_answer_is_not_decided() -> None:
    """An isolated leader calls its followers caught up; that its voters fetched long ago tells."""
    isolated = Reader(shown=None, described=quorum(fetched=NOW - 2 * HOUR))
    told, _ = rulings(isolated, held=False)
    assert (told["gone-0"][0], told["moved-0"][0]) == ("unknown", "unknown")
    young = [LIVES, replace(GOES, newest_mtime_ns=(NOW - 59_000) * 1_000_000), MOVES]
    told, _ = rulings(Reader(shown=None), held=False, dirs=young)
    assert told["gone-0"] == ("unknown", "no-assignments")


@pytest.mark.parametrize("known", [{GONE: IdAnswer.UNKNOWN}, {LIVING: IdAnswer.UNKNOWN, GONE: IdAnswer.UNKNOWN}])
def test_a_principal_that_may_see_nothing_proves_nothing(known: dict[str, IdAnswer]) -> None:
    told, _ = rulings(Reader(shown=None, known=known), held=False)
    assert told["gone-0"] == ("unknown", "no-assignments")


def of_log(at_ms: int, *topics: Topic) -> AssignmentImage:
    """What a metadata log says that ends then."""
    return make_image(
        topics,
        AssignmentImage(
            source=Source.KRAFT_LOG,
            cluster_id="ours",
            at_ms=at_ms,
            known_until_ms=at_ms,
            complete=True,
            metadata_version=21,
        ),
    )


def test_one_that_was_never_seen_contradicts_a_younger_proof_and_proves_nothing() -> None:
    """The metadata volume of this host was rolled back, and its broker is down: who answers may well be our cluster."""
    rolled_back = of_log(NOW - 300_000, Topic("gone", "B" * 21 + "A", {0: PartitionAssignment((1,))}))
    reader = Reader(shown=None)
    told, found = rulings(reader, held=False, seen=frozenset(), first=rolled_back)
    # It lists two of the three topics; that it does not list the third says nothing.
    assert told["lives-0"] == told["moved-0"] == ("unknown", "sources-disagree")
    assert told["gone-0"] == ("orphan", "topic-recreated") and reader.asked == []
    # Alone it decides nothing, also where it would be believed if it had been seen.
    assert rulings(reader, held=False, seen=frozenset())[0] == NOTHING
    assert [image.source for image in found.usable] == [Source.KRAFT_LOG]


def test_without_a_directory_that_lives_there_is_no_canary() -> None:
    told, _ = rulings(Reader(shown=None), held=False, dirs=[GOES, MOVES])
    assert told["gone-0"] == ("unknown", "no-assignments")


def test_in_zookeeper_mode_two_must_agree_and_only_our_own_broker_proves_absence() -> None:
    """A broker that lost its session serves what was once, as of now."""
    two = Reader(shown=None, described=None)
    told, _ = rulings(two, held=False, proven=frozenset({GONE}))
    assert told == DECIDED
    assert two.asked == []
    told, _ = rulings(two, held=False)
    assert told["gone-0"] == ("unknown", "no-assignments")
    alone = Reader(shown=None, described=None, places_now=OURS - {BrokerPlace(3, "three", 9092)})
    told, _ = rulings(alone, held=False, proven=frozenset({GONE}))
    assert told == {**DECIDED, "moved-0": ("unknown", "uncommitted")}


@pytest.mark.parametrize(("behind", "told"), [(2, ("assigned", None)), (3, ("unknown", "sources-disagree"))])
def test_in_zookeeper_mode_one_that_serves_old_metadata_contradicts_the_other(
    behind: int, told: tuple[str, str | None]
) -> None:

    class OneBehind(Reader):
        def image(self, at_ms: int, *, node_id: int | None = None) -> AssignmentImage:
            image = super().image(at_ms, node_id=node_id)
            if node_id != behind:
                return image
            before = Topic("moved", MOVED, {0: PartitionAssignment((1, 2))})
            return replace(image, by_id={**image.by_id, MOVED: before}, by_name={**image.by_name, "moved": before})

    assert rulings(OneBehind(shown=None, described=None), held=False)[0]["moved-0"] == told


def test_what_was_not_seen_may_contradict_only_that_this_node_is_a_replica() -> None:
    moved = Topic("moved", MOVED, {0: PartitionAssignment((3,))})
    told, _ = rulings(Reader(shown=None), held=False, seen=frozenset(), first=of_log(NOW - 300_000, moved, HERE))
    assert told["moved-0"] == ("orphan", "not-a-replica")

    class Back(Reader):
        def image(self, at_ms: int, *, node_id: int | None = None) -> AssignmentImage:
            image = super().image(at_ms, node_id=node_id)
            back = Topic("moved", MOVED, {0: PartitionAssignment((2, 1))})
            return replace(image, by_id={**image.by_id, MOVED: back}, by_name={**image.by_name, "moved": back})

    told, _ = rulings(Back(shown=None), held=False, seen=frozenset(), first=of_log(NOW - 300_000, moved, HERE))
    assert told["moved-0"] == ("unknown", "sources-disagree")


def test_what_is_about_to_be_acted_on_is_judged_as_it_was_planned() -> None:
    """Another broker has to know what lives here, and of what is acted on nothing lives: right before the act, a topic
    that is gone was unknown again, whoever was asked."""
    planned, _ = rulings(Reader(shown=None), held=False)
    assert planned["gone-0"] == ("orphan", "topic-absent")
    for d in DIRS:
        if d.name in planned:
            again, _ = rulings(Reader(shown=None), held=False, acted_on=[d])
            assert again == {d.name: planned[d.name]}


def test_our_own_log_contradicts_another_brokers_answer_that_is_older() -> None:
    """Our broker stopped a moment ago; how far the other one is, is known only until a minute ago."""
    back = Topic("moved", MOVED, {0: PartitionAssignment((2, 1))})
    told, _ = rulings(Reader(shown=None), held=False, own=of_log(NOW - 20_000, back))
    assert told["moved-0"] == ("unknown", "sources-disagree")
    told, _ = rulings(Reader(shown=None), held=False, own=of_log(NOW - HOUR, back))
    assert told["moved-0"] == ("orphan", "not-a-replica")


def test_a_source_that_is_not_usable_decides_nothing_whatever_is_wrong_with_it() -> None:
    """A file of a clone is as fresh as any, and has our cluster's id: only our own log's offset gave it away."""
    clone = replace(of_log(NOW, HERE), source=Source.FILE)
    found = Assignments(unusable=[clone], problems=["file: it belongs to another cluster, or to this one's past"])
    told = judge(DIRS, found, Host(1, "ours", 900_000), {}, NOW, inventory=DIRS)
    assert {(r.verdict.value, r.reason) for r in told.values()} == {("unknown", "no-assignments")}
    assert [r for r in told.values() if "to this one's past" not in (r.detail or "")] == []
