"""What comes back, under which name, in whose place, and what is refused before any guard has seen it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logagent.base.claims import Claim
from logagent.base.dir_names import rename_uuid
from logagent.base.records import ActionKind, DirKey, Health, Identity, Kind, PartitionDir
from logagent.cleanup.plan.plan import Proposal, Refusal
from logagent.cleanup.plan.queue import NO_REMOVALS, RemovalIntent, RemovalIntents, removal_has_started
from logagent.cleanup.restore.rules import CopyRead, Owner, RestoreOptions, Wanted, restorations
from logagent.kafka.extents import EpochEnd, LogExtent
from logagent.kafka.image import AssignmentImage, PartitionAssignment, Source, Topic, make_image
from logagent.kafka.retention.settings import SegmentAge, TopicConfigs, first_check
from logagent.verdict.facts import Facts
from logagent.verdict.marks import Contents, Mark
from tests.hosts import CLUSTER, DEVICE, HEX, LOG_DIR, NOW, TOPIC_ID, directory, facts, log_dir

STRAY = f"orders-0.{HEX}-stray"
MARKED = f"orders-0.{HEX}-delete"
OTHER_ID = "EEEEEEEEEEEEEEEEEEEEEA"
NOTHING = RestoreOptions()
NOBODY = Owner()
COPY = CopyRead(LogExtent(0, 100, ((3, 0),)))


def restored(
    chosen: list[PartitionDir],
    others: tuple[PartitionDir, ...] = (),
    *,
    marks: dict[DirKey, Mark] | None = None,
    options: RestoreOptions = NOTHING,
    seen: Facts | None = None,
    copy: CopyRead = COPY,
    owner: Owner = NOBODY,
    removals: RemovalIntents = NO_REMOVALS,
) -> tuple[list[Proposal], list[Refusal]]:
    wanted = Wanted(chosen, [*chosen, *others], marks or {}, {d.key: copy for d in chosen}, removals)
    return restorations(wanted, seen or facts(), owner, options, lambda: HEX[::-1])


@pytest.mark.parametrize("name", [STRAY, MARKED])
def test_it_gets_its_name_back(name: str) -> None:
    ((p,), refusals) = restored([directory(name)])
    assert refusals == []
    assert (p.action, p.new_name, p.new_dir, p.full_topic) == (ActionKind.RESTORE, "orders-0", None, "orders")


def test_to_the_letter() -> None:
    marks = {DirKey(LOG_DIR, f"zzz-1.{HEX}-stray"): Mark(NOW, "zzz", old_name="zzz-01")}
    ((p,), _) = restored([directory(f"zzz-1.{HEX}-stray")], marks=marks)
    assert p.new_name == "zzz-01"


def test_a_future_log_becomes_one_again() -> None:
    future = f"orders-0.{HEX}-future"
    marks = {DirKey(LOG_DIR, MARKED): Mark(NOW, "orders", old_name=future)}
    ((p,), _) = restored([directory(MARKED)], (directory("orders-0", inode=3),), marks=marks)
    assert p.new_name == future


def test_what_was_set_aside_before_it_was_marked_gets_its_current_name() -> None:
    marks = {DirKey(LOG_DIR, MARKED): Mark(NOW, "orders", old_name=STRAY)}
    ((p,), _) = restored([directory(MARKED)], marks=marks)
    assert p.new_name == "orders-0"


FUTURE = f"orders-0.{HEX}-future"


def test_a_future_log_may_come_back_where_no_current_one_is() -> None:
    marks = {DirKey(LOG_DIR, MARKED): Mark(NOW, "orders", old_name=FUTURE)}
    ((p,), refusals) = restored([directory(MARKED)], marks=marks)
    assert (p.new_name, refusals) == (FUTURE, [])
    # One partition twice, whatever its kind.
    _, (refusal,) = restored([directory(MARKED)], (directory(FUTURE, inode=3),), marks=marks)
    assert "exists in this log dir" in refusal.why.fact


def test_not_beside_a_future_log_in_one_log_dir() -> None:
    """No broker starts with both."""
    for marks in ({}, {DirKey(LOG_DIR, STRAY): Mark(NOW, "orders", old_name="orders-0")}):
        proposals, (refusal,) = restored([directory(STRAY)], (directory(FUTURE, inode=3),), marks=marks)
        assert proposals == [] and refusal.why.code == "policy" and "no broker starts with both" in refusal.why.fact


def test_not_where_a_future_log_alone_may_have_more() -> None:
    """The broker would truncate it to what came back."""
    future = replace(directory(FUTURE, inode=3), log_dir="/data/d2")
    seen = replace(facts(), log_dirs={**facts().log_dirs, "/data/d2": log_dir("/data/d2")})
    _, (refusal,) = restored([directory(STRAY)], (future,), seen=seen)
    assert refusal.why.code == "policy" and "truncated to this one" in refusal.why.fact
    # Set aside by us a moment ago, while it was moved: it goes back to where it was.
    undo = {DirKey(LOG_DIR, STRAY): Mark(NOW, "orders", old_name="orders-0")}
    ((p,), _) = restored([directory(STRAY)], (future,), seen=seen, marks=undo)
    assert p.new_name == "orders-0"
    (_, p), _ = restored(
        [directory(STRAY)],
        (future, directory("orders-0", inode=4)),
        seen=seen,
        options=RestoreOptions(replace=True, even_last_copy=True),
    )
    assert p.new_name == "orders-0"


LONG = "t" * 249
CUT = f"{'t' * 213}-0.{HEX}-delete"


def test_a_cut_name_needs_the_journal_or_the_operator() -> None:
    found = directory(CUT, truncated=True)
    assert found.truncated and len(CUT) == 255
    _, (refusal,) = restored([found])
    assert "--topic-name" in refusal.why.hint
    ((p,), _) = restored([found], marks={DirKey(LOG_DIR, CUT): Mark(NOW, LONG, old_name=f"{LONG}-0")})
    assert p.new_name == f"{LONG}-0"
    ((p,), _) = restored([found], options=RestoreOptions(topic=LONG))
    assert p.new_name == f"{LONG}-0"
    _, (refusal,) = restored([found], options=RestoreOptions(topic="u" * 249))
    assert "does not begin with" in refusal.why.fact


@pytest.mark.parametrize(
    ("found", "guard", "says"),
    [
        (directory("orders-0"), "policy", "it is a current dir"),
        (directory("lost+found"), "policy", "it is a invalid dir"),
        (directory(STRAY, segments=0), "policy", "no segments left"),
        (directory(STRAY, error="a mount point"), "inside", "it cannot be trusted: a mount point"),
    ],
)
def test_what_cannot_come_back(found: PartitionDir, guard: str, says: str) -> None:
    proposals, (refusal,) = restored([found])
    assert proposals == []
    assert (refusal.why.code, refusal.key.name) == (guard, found.name)
    assert says in refusal.why.fact


@pytest.mark.parametrize(
    ("then", "says"),
    [
        ([RemovalIntent(files=9, bytes=1000)], "4 of 9 files are left"),
        # A large segment is shortened before it goes; a second removal found what the first had left.
        ([RemovalIntent(files=4, bytes=2000)], "some of its records may be gone"),
        ([RemovalIntent(files=9, bytes=2000), RemovalIntent(files=4, bytes=1000)], "4 of 9 files are left"),
        # A journal of an earlier release has no number.
        ([RemovalIntent(files=None, bytes=1000)], "some of its records may be gone"),
    ],
)
def test_not_once_its_removal_has_begun(then: list[RemovalIntent], says: str) -> None:
    found = directory(STRAY, removal_started=True)
    _, (refusal,) = restored([found], removals={DirKey(LOG_DIR, STRAY): then})
    assert refusal.why.code == "journal" and refusal.why.fact == f"its removal has started: {says}"
    assert "replica" not in refusal.why.hint and "copy what is left" in refusal.why.hint


def test_what_a_removal_had_marked_and_not_touched_comes_back() -> None:
    """A batch of removals was killed: of its directories one has the mark, and every file."""
    found = directory(STRAY, removal_started=True)
    (p,), _ = restored([found], removals={DirKey(LOG_DIR, STRAY): [RemovalIntent(files=4, bytes=1000)] * 2})
    assert p.new_name == "orders-0"


@pytest.mark.parametrize("is_of_copy", [False, True])
@pytest.mark.parametrize("started", [False, True])
def test_what_a_removal_took_is_known_without_the_mark(started: bool, is_of_copy: bool) -> None:
    """`cp -r` leaves the mode bit behind: 196 of 300 records were served, and the outcome was "done"."""
    found = directory(STRAY, removal_started=started, segments=1)
    then = RemovalIntent(files=9, bytes=3000, segments=3, log_bytes=3000, is_of_copy=is_of_copy)
    _, (refusal,) = restored([found], removals={DirKey(LOG_DIR, STRAY): [then]})
    assert refusal.why.code == "journal" and "4 of 9 files are left" in refusal.why.fact
    assert removal_has_started(found, {found.key: [then]}) is (started and not is_of_copy)


@pytest.mark.parametrize("started", [False, True])
def test_indexes_that_a_broker_stretched_are_no_removal(started: bool) -> None:
    """It opens strays at its start, and makes the newest segment's indexes 10 MiB each."""
    found = directory(STRAY, removal_started=started, bytes=1000 + (20 << 20), beside_log_bytes=20 << 20)
    then = RemovalIntent(files=4, bytes=1020, segments=1, log_bytes=1000)
    (p,), _ = restored([found], removals={found.key: [then]})
    assert p.new_name == "orders-0" and not removal_has_started(found, {found.key: [then]})
    shortened = replace(found, bytes=found.bytes - 1)
    _, (refusal,) = restored([shortened], removals={found.key: [then]})
    assert refusal.why.code == "journal", "a byte of a log is gone: a removal shortens large files first"


@pytest.mark.parametrize(("files", "segments"), [(5, 2), (3, 2), (4, 3)], ids=["snapshot", ".deleted", "rolled"])
def test_files_that_a_broker_makes_or_drops_are_no_removal(files: int, segments: int) -> None:
    """After a crash it writes a snapshot of producers as it loads a stray (3.9.1, 4.3.1), and it drops `.deleted`."""
    found = directory(STRAY, removal_started=True, files=files, segments=segments, bytes=1060, beside_log_bytes=60)
    then = RemovalIntent(files=4, bytes=1000, segments=2, log_bytes=1000)
    (p,), _ = restored([found], removals={found.key: [then]})
    assert p.new_name == "orders-0" and not removal_has_started(found, {found.key: [then]})
    _, (refusal,) = restored([replace(found, segments=1)], removals={found.key: [then]})
    assert refusal.why.code == "journal", "an empty segment is one, too"


def test_of_an_empty_log_its_bytes_do_not_tell_what_a_removal_took() -> None:
    """Its one `.log` is the first file to go, with the offset in its name; a broker that loads the rest makes another
    one, which begins at 0."""
    found = directory(STRAY, removal_started=True, files=4, segments=1, bytes=20, beside_log_bytes=20)
    then = RemovalIntent(files=4, bytes=20, segments=1, log_bytes=0)
    (p,), _ = restored([found], removals={found.key: [then]})
    assert p.new_name == "orders-0", "nothing was touched"
    for changed in (replace(found, files=3), replace(found, bytes=10, beside_log_bytes=10)):
        _, (refusal,) = restored([changed], removals={found.key: [then]})
        assert refusal.why.code == "journal" and refusal.why.claim is Claim.WHOLE


def test_a_mark_that_it_had_under_its_own_name_says_nothing() -> None:
    """`chmod -R ug+s` on a log dir, and a day later the directory was set aside."""
    found = directory(STRAY, removal_started=True, segments=2)
    had = Contents(files=5, bytes=1000, segments=2, log_bytes=1000)
    mark = Mark(NOW, "orders", old_name="orders-0", had=had, had_bit=True)
    (p,), _ = restored([found], marks={DirKey(LOG_DIR, STRAY): mark})
    assert p.new_name == "orders-0", "a broker that loaded it dropped a file"
    for more in (replace(had, segments=3), replace(had, log_bytes=1001)):
        _, (refusal,) = restored([found], marks={DirKey(LOG_DIR, STRAY): replace(mark, had=more)})
        assert refusal.why.code == "journal", "another state dir's removal took some"


@pytest.mark.parametrize(
    ("had", "intact", "is_whole"),
    [
        (Contents(files=4, bytes=1000, segments=1, log_bytes=1000), True, True),
        (Contents(files=4, bytes=3000, segments=3, log_bytes=1000), False, False),
        # After a crash a broker that loads it cuts off what is torn.
        (Contents(files=4, bytes=1001, segments=1, log_bytes=1001), False, True),
        (Contents(files=4, bytes=1001, segments=1, log_bytes=1001), True, False),
        # Releases before this one did not note it.
        (Contents(files=None, bytes=1001), True, True),
        (None, True, True),
    ],
)
def test_what_it_had_when_it_was_set_aside_tells_without_mark_and_without_intent(
    had: Contents | None, intact: bool, is_whole: bool
) -> None:
    """A copy without the mode bit, and a journal from before the removal: half of it was served, "done"."""
    marks = {DirKey(LOG_DIR, STRAY): Mark(NOW, "orders", old_name="orders-0", had=had, intact=intact)}
    accepted, refusals = restored([directory(STRAY, segments=1)], marks=marks)
    assert (len(accepted), len(refusals)) == ((1, 0) if is_whole else (0, 1))
    assert [r for r in refusals if not (r.why.code == "journal" and "when it was set aside" in r.why.fact)] == []


def test_of_a_log_that_was_set_aside_and_is_empty_now_all_was_removed() -> None:
    """A broker that loads a stray without segments makes one."""
    had = Contents(files=4, bytes=1000, segments=1, log_bytes=1000)
    marks = {DirKey(LOG_DIR, STRAY): Mark(NOW, "orders", old_name="orders-0", had=had)}
    _, (refusal,) = restored([directory(STRAY, segments=1, bytes=0)], marks=marks)
    assert refusal.why.code == "journal"


def test_a_mark_that_nobody_knows_sends_nobody_to_a_replica() -> None:
    """`chmod -R ug+s` on what was set aside: whole directories could never come back, and were given up."""
    found = directory(STRAY, removal_started=True)
    for marks in ({}, {DirKey(LOG_DIR, STRAY): Mark(NOW, "orders", old_name="orders-0")}):
        _, (refusal,) = restored([found], marks=marks)
        assert refusal.why.code == "journal" and "this journal knows of none" in refusal.why.fact
        assert "replica" not in refusal.why.hint and "chmod" not in refusal.why.hint and "copy it" in refusal.why.hint


def test_not_while_a_log_dir_was_left_out() -> None:
    proposals, (refusal,) = restored([directory(STRAY)], seen=replace(facts(), left_out=("/data/d9",)))
    assert proposals == [] and refusal.why.code == "online" and "/data/d9" in refusal.why.fact
    assert "--log-dir" in refusal.why.hint


def test_not_while_one_is_missing_that_the_cluster_has() -> None:
    here, dead = "A" * 22, "B" * 22
    seen = replace(facts(log_dir(directory_id=here)), directory_ids=lambda: frozenset({here, dead}))
    proposals, (refusal,) = restored([directory(STRAY)], seen=seen)
    assert (
        proposals == []
        and refusal.why.code == "online"
        and dead in refusal.why.fact
        and "--kafka-config" in refusal.why.hint
    )
    assert restored([directory(STRAY)], seen=replace(seen, directory_ids=lambda: frozenset({here})))[1] == []


def test_not_while_a_log_dir_is_offline() -> None:
    dead = log_dir("/data/d2", health=Health.OFFLINE, health_reason="EIO")
    _, (refusal,) = restored([directory(STRAY)], seen=facts(log_dir(), dead))
    assert refusal.why.code == "online" and "/data/d2" in refusal.why.fact


def test_not_over_what_stands_there_unless_that_is_set_aside_first() -> None:
    there = directory("orders-0", inode=3)
    _, (refusal,) = restored([directory(STRAY)], (there,))
    assert "--replace" in refusal.why.hint
    (away, back), refusals = restored([directory(STRAY)], (there,), options=RestoreOptions(replace=True))
    assert refusals == []
    assert (away.action, away.dir.name, away.makes_room_for) == (
        ActionKind.QUARANTINE,
        "orders-0",
        DirKey(LOG_DIR, STRAY),
    )
    assert away.through == DirKey(LOG_DIR, STRAY) and away.new_name == f"orders-0.{HEX[::-1]}-stray"
    assert away.flags.allow_assigned and away.flags.include_internal and not away.flags.even_last_copy
    assert (back.action, back.new_name) == (ActionKind.RESTORE, "orders-0")
    (away, _), _ = restored([directory(STRAY)], (there,), options=RestoreOptions(replace=True, even_last_copy=True))
    assert away.flags.even_last_copy


def test_what_is_displaced_never_bears_a_name_that_a_broker_purges() -> None:
    there = directory("orders-0", inode=3)
    (first, away, back), _ = restored([directory(MARKED)], (there,), options=RestoreOptions(replace=True))
    assert (first.action, first.dir.name, first.new_name) == (ActionKind.QUARANTINE, MARKED, STRAY)
    assert away.makes_room_for == away.through == DirKey(LOG_DIR, STRAY)
    assert (back.dir.name, back.dir.kind, back.new_name) == (STRAY, Kind.STRAY, "orders-0")
    old = facts(log_dir(), log_dir("/quarantine", quarantine=True), quarantine_dirs={LOG_DIR: "/quarantine"})
    (first, away, back), _ = restored([directory(MARKED)], (there,), options=RestoreOptions(replace=True), seen=old)
    assert (first.new_dir, away.new_dir, back.dir.log_dir, back.new_dir) == (*["/quarantine"] * 3, LOG_DIR)


# Which indexes go


@pytest.mark.parametrize(
    ("name", "mark", "every"),
    [
        (STRAY, Mark(NOW, "orders", intact=True), False),
        (STRAY, Mark(NOW, "orders"), True),
        (STRAY, None, True),
        (MARKED, Mark(NOW, "orders", intact=True), True),
    ],
)
def test_all_indexes_are_rebuilt_unless_it_was_closed_cleanly_and_never_marked(
    name: str, mark: Mark | None, every: bool
) -> None:
    copy = replace(COPY, rebuild_some=10, rebuild_all=1000)
    ((p,), _) = restored([directory(name)], marks={} if mark is None else {DirKey(LOG_DIR, name): mark}, copy=copy)
    assert p.rebuild_all is every
    assert f"reads {1000 if every else 10} bytes" in p.reason


def test_not_half_a_directory() -> None:
    _, (refusal,) = restored([directory(STRAY)], copy=replace(COPY, without_log=("00000000000000000000.index",)))
    assert refusal.why.code == "journal" and "its removal had started" in refusal.why.fact


DELETED = "00000000000000000000.log.deleted"


@pytest.mark.parametrize(
    ("log", "log_start_back", "comes_back"),
    [
        (LogExtent(80, 100, ((1, 0),)), 0, False),
        (LogExtent(80, 100, ((1, 79), (2, 90))), 0, False),
        (LogExtent(80, 100), 79, False),
        (LogExtent(None, None), 100, False),
        (LogExtent(80, 100, ((1, 80), (2, 90))), 0, True),
        (LogExtent(80, None), 80, True),
    ],
)
def test_not_what_a_broker_had_begun_to_remove_unless_its_log_start_had_moved(
    log: LogExtent, log_start_back: int, comes_back: bool
) -> None:
    """It renames segment by segment to `.deleted`, the first one first; retention does so too, with the log start."""
    copy = replace(COPY, log=log, log_start_back=log_start_back, deleted=(DELETED,))
    proposals, refusals = restored([directory(MARKED)], copy=copy)
    assert bool(proposals) is comes_back
    assert comes_back or (refusals[0].why.code == "journal" and DELETED in refusals[0].why.fact)
    assert restored([directory(MARKED)], copy=replace(copy, deleted=()))[0]


# Whose it is


def image(*topics: Topic) -> AssignmentImage:
    return make_image(
        topics,
        AssignmentImage(
            source=Source.KRAFT_LOG,
            cluster_id=CLUSTER,
            at_ms=NOW,
            known_until_ms=NOW,
            complete=True,
            metadata_version=21,
        ),
    )


def living(
    topic_id: str | None = TOPIC_ID,
    replicas: tuple[int, ...] = (1,),
    name: str = "orders",
    isr: tuple[int, ...] | None = None,
) -> Owner:
    assigned = PartitionAssignment(replicas, replicas if isr is None else isr)
    return Owner(image(Topic(name, topic_id, {0: assigned})), 1)


@pytest.mark.parametrize("replacing", [False, True])
@pytest.mark.parametrize("has", [OTHER_ID, None])
def test_another_incarnation_does_not_take_the_name(has: str | None, replacing: bool) -> None:
    others = (directory("orders-0", inode=3),) if replacing else ()
    found = directory(STRAY, topic_id=has)
    proposals, (refusal,) = restored([found], others, options=RestoreOptions(replace=True), owner=living())
    assert proposals == [] and refusal.why.code == "assigned"
    assert f"topic orders now exists with {TOPIC_ID}" in refusal.why.fact


def test_nor_the_id_of_another_topic() -> None:
    _, (refusal,) = restored([directory(STRAY)], owner=living(name="payments"))
    assert refusal.why.code == "assigned" and "topic payments" in refusal.why.fact


@pytest.mark.parametrize("has", [OTHER_ID, None])
def test_without_assignments_only_the_same_incarnation_takes_a_place(has: str | None) -> None:
    there = directory("orders-0", inode=3, topic_id=has)
    _, (refusal,) = restored([directory(STRAY)], (there,), options=RestoreOptions(replace=True))
    assert refusal.why.code == "assigned" and "no assignments" in refusal.why.fact
    ((p,), _) = restored([directory(STRAY)])
    assert "its owner is unknown" in p.reason


@pytest.mark.parametrize("owner", [living(replicas=(2, 3)), Owner(image(), 1)])
def test_one_that_is_not_assigned_comes_back_with_a_word(owner: Owner) -> None:
    ((p,), _) = restored([directory(STRAY)], owner=owner)
    assert "sets it aside again" in p.reason
    ((p,), _) = restored([directory(STRAY)], owner=living())
    assert "sets it aside again" not in p.reason


def test_what_the_assignments_need_not_list_is_not_called_unassigned() -> None:
    partial = Owner(replace(image(), source=Source.ADMIN, complete=False), 1)
    ((p,), _) = restored([directory(STRAY)], owner=partial)
    assert "may be incomplete" in p.reason and "not assigned" not in p.reason


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("has", [OTHER_ID, None])
def test_where_the_topic_is_not_listed_only_the_same_incarnation_takes_a_place(has: str | None, complete: bool) -> None:
    owner = Owner(replace(image(), complete=complete), 1)
    options = RestoreOptions(replace=True, even_last_copy=True)
    there = directory("orders-0", inode=3, topic_id=has)
    _, (refusal,) = restored([directory(STRAY)], (there,), owner=owner, options=options)
    assert refusal.why.code == "assigned" and "do not list topic orders" in refusal.why.fact
    _, refusals = restored([directory(STRAY)], (replace(there, topic_id=TOPIC_ID),), owner=owner, options=options)
    assert refusals == []


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize(
    ("owner", "refused"),
    [(living(), False), (living(replicas=(2, 3)), True), (Owner(image(), 1), True), (NOBODY, True)],
)
def test_what_its_broker_would_delete_needs_consent(owner: Owner, refused: bool, marked: bool) -> None:
    """Seen on 3.3.2, 3.5.2 and 3.6.0: what is not assigned to a KRaft broker it marks and removes at its start."""
    marks = {DirKey(LOG_DIR, STRAY): Mark(NOW, "orders", old_name="orders-0")} if marked else {}
    before_3_7 = replace(owner, deletes_unassigned=True)
    proposals, refusals = restored([directory(STRAY)], owner=before_3_7, marks=marks)
    assert bool(refusals) is refused and bool(proposals) is not refused
    if refused:
        assert "--broker-will-delete" in refusals[0].why.hint
    word = RestoreOptions(broker_will_delete=True)
    assert restored([directory(STRAY)], owner=before_3_7, options=word, marks=marks)[1] == []
    assert restored([directory(STRAY)], owner=owner, marks=marks)[1] == []


END_OF_LEADER = EpochEnd("the leader, node 2", 3, 99, 0, high_watermark=10**6)


@pytest.mark.parametrize(
    ("answer", "isr", "allowed"),
    [
        (END_OF_LEADER, (1, 2), False),
        (replace(END_OF_LEADER, end_offset=100), (1, 2), True),
        (None, (1, 2), False),
        (END_OF_LEADER, (1,), True),
    ],
)
def test_a_copy_that_its_leader_would_truncate(answer: EpochEnd | None, isr: tuple[int, ...], allowed: bool) -> None:
    led = living(replicas=isr)
    owner = replace(led, leaders={} if answer is None else {DirKey(LOG_DIR, STRAY): answer})
    proposals, refusals = restored([directory(STRAY)], owner=owner)
    assert bool(proposals) is allowed and bool(refusals) is not allowed
    if refusals:
        assert "--leader-will-truncate" in refusals[0].why.hint and "ends at offset 100" in refusals[0].why.fact
        assert answer is None or "ends it at 99" in refusals[0].why.fact
    (_, refusals) = restored([directory(STRAY)], owner=owner, options=RestoreOptions(leader_will_truncate=True))
    assert refusals == []


@pytest.mark.parametrize(
    ("log_start", "goes"),
    [(None, None), (59, None), (60, "7 of its 10 bytes"), (100, "all its 10"), (500, "all its 10")],
)
def test_a_copy_of_what_its_leader_has_deleted(log_start: int | None, goes: str | None) -> None:
    copy = replace(COPY, segments=((0, 7), (60, 3)))
    answer = replace(END_OF_LEADER, end_offset=100, log_start=log_start)
    owner = replace(living(replicas=(1, 2)), leaders={DirKey(LOG_DIR, STRAY): answer})
    _, refusals = restored([directory(STRAY)], owner=owner, copy=copy)
    reasons = [r.why for r in refusals]
    assert [goes in r.fact and "--retention-will-delete" in r.hint for r in reasons if goes] == [True] * bool(goes)
    assert bool(refusals) is bool(goes)
    word = RestoreOptions(retention_will_delete=True)
    assert restored([directory(STRAY)], owner=owner, copy=copy, options=word)[1] == []


def test_what_comes_back_to_where_it_was_asks_no_leader_that_does_not_answer() -> None:
    marks = {DirKey(LOG_DIR, STRAY): Mark(NOW, "orders", old_name="orders-0")}
    (proposals, _) = restored([directory(STRAY)], marks=marks, owner=living(replicas=(1, 2)))
    assert len(proposals) == 1
    there = directory("orders-0", inode=3)
    options = RestoreOptions(replace=True)
    (_, (refusal,)) = restored(
        [directory(STRAY)], (there,), marks=marks, owner=living(replicas=(1, 2)), options=options
    )
    assert "nobody was asked" in refusal.why.fact


@pytest.mark.parametrize(("isr", "allowed"), [((1, 2), True), ((1,), True), ((2,), False), ((), False)])
def test_it_asks_where_it_is_not_in_sync_any_more(isr: tuple[int, ...], allowed: bool) -> None:
    """Another leader may have been elected since, and have fewer records."""
    marks = {DirKey(LOG_DIR, STRAY): Mark(NOW, "orders", old_name="orders-0")}
    led = living(replicas=(1, 2), isr=isr)
    proposals, refusals = restored([directory(STRAY)], marks=marks, owner=led)
    assert bool(proposals) is allowed
    if not allowed:
        assert ("no replica of its partition is in sync" if not isr else "in sync on node 2") in refusals[0].why.fact
    covered = replace(led, leaders={DirKey(LOG_DIR, STRAY): replace(END_OF_LEADER, end_offset=100)})
    assert restored([directory(STRAY)], marks=marks, owner=covered)[1] == []


@pytest.mark.parametrize("replace_it", [False, True])
@pytest.mark.parametrize(
    "there",
    [
        directory("orders-0", log_dir="/data/d2", topic_id="EEEEEEEEEEEEEEEEEEEEEA"),
        directory("renamed-0", inode=3),
    ],
    ids=["the name in another log dir", "the incarnation under another name"],
)
def test_never_twice_on_this_host(there: PartitionDir, replace_it: bool) -> None:
    proposals, (refusal,) = restored([directory(STRAY)], (there,), options=RestoreOptions(replace=replace_it))
    assert proposals == [] and there.name in refusal.why.fact
    # Not only because it is another topic's: a swap across log dirs would be a copy.
    assert refusal.why.code == "policy" and "does not start with one partition twice" in refusal.why.hint


@pytest.mark.parametrize(
    ("one", "other"),
    [("zzz-1", "zzz-01"), ("zzz-+1", "zzz-1"), (f"zzz-1.{HEX}-future", f"zzz-1.{HEX[::-1]}-future")],
)
def test_two_spellings_of_one_partition_do_not_both_come_back(one: str, other: str) -> None:
    """A broker starts neither with two current nor with two future logs of one partition."""
    dirs = [
        directory(f"zzz-1.{n * 32}-stray", inode=int(n), topic_id=n * 22, log_dir=f"/data/d{n}") for n in ("1", "2")
    ]
    marks = {d.key: Mark(NOW, "zzz", old_name=name) for d, name in zip(dirs, (one, other), strict=True)}
    proposals, (refusal,) = restored(dirs, marks=marks)
    assert [p.new_name for p in proposals] == [one]
    assert "already restored" in refusal.why.fact
    standing = directory(one, inode=9, topic_id="9" * 22, log_dir="/data/d3")
    proposals, refusals = restored(dirs[1:], (standing,), marks=marks)
    assert proposals == [] and one in refusals[0].why.fact


def test_from_a_quarantine_directory_it_goes_home_or_stays() -> None:
    quarantine = log_dir("/quarantine", quarantine=True)
    found = replace(directory(STRAY), log_dir="/quarantine")
    _, (refusal,) = restored([found], seen=facts(log_dir(), quarantine))
    assert refusal.why.code == "journal"
    marks = {DirKey("/quarantine", STRAY): Mark(NOW, "orders", old_name="orders-0", original_dir=LOG_DIR)}
    ((p,), _) = restored([found], marks=marks, seen=facts(log_dir(), quarantine))
    assert (p.new_dir, p.new_name) == (LOG_DIR, "orders-0")


def test_the_log_dir_it_came_from_may_have_another_path_now() -> None:
    quarantine = log_dir("/quarantine", quarantine=True)
    found = replace(directory(STRAY), log_dir="/quarantine")
    marks = {DirKey("/quarantine", STRAY): Mark(NOW, "orders", old_name="orders-0", original_dir="/old/d1")}
    elsewhere = log_dir("/data/d2", identity=Identity(DEVICE + 1, 2))
    ((p,), _) = restored([found], marks=marks, seen=facts(log_dir(), elsewhere, quarantine))
    assert p.new_dir == LOG_DIR
    # Two log dirs on its file system: it may be from either.
    _, (refusal,) = restored([found], marks=marks, seen=facts(log_dir(), log_dir("/data/d2"), quarantine))
    assert refusal.why.code == "journal" and "which log dir" in refusal.why.fact
    # Moved back by hand since.
    moved = {DirKey(LOG_DIR, STRAY): marks[DirKey("/quarantine", STRAY)]}
    ((p,), _) = restored([directory(STRAY)], marks=moved, seen=facts(log_dir(), quarantine))
    assert p.new_dir is None


def test_of_what_we_renamed_and_the_journal_does_not_know_the_log_start_offset_is_unknown() -> None:
    ours = f"orders-0.{rename_uuid(NOW, bytes(10))}-stray"
    ((p,), _) = restored([directory(ours)])
    assert "records deleted before it may come back" in p.reason
    for found, marks in ((STRAY, {}), (ours, {DirKey(LOG_DIR, ours): Mark(NOW, "orders")})):
        ((p,), _) = restored([directory(found)], marks=marks)
        assert "log start offset" not in p.reason


_SHORT = TopicConfigs(policy="delete", retention_ms=1000, retention_bytes=-1, complete=True)
EXPIRES = first_check("orders", [SegmentAge(4096, 0)], [1000], NOW, _SHORT, "")


@pytest.mark.parametrize("replace_it", [False, True])
def test_what_retention_deletes_comes_back_only_with_the_operators_word(replace_it: bool) -> None:
    there = (directory("orders-0", inode=3),) if replace_it else ()
    copy = replace(COPY, first_check=EXPIRES)
    options = RestoreOptions(replace=replace_it)
    proposals, (refusal,) = restored([directory(STRAY)], there, copy=copy, options=options, owner=living())
    assert not proposals and "deletes all its 1000 bytes" in refusal.why.fact
    assert (
        "--add-config retention.ms=-1 keeps them" in refusal.why.hint and "--retention-will-delete" in refusal.why.hint
    )
    word = replace(options, retention_will_delete=True)
    proposals, refusals = restored([directory(STRAY)], there, copy=copy, options=word, owner=living())
    assert not refusals and "deletes all its 1000 bytes" in proposals[-1].reason


def test_retention_deletes_nothing_of_what_the_broker_sets_aside_again() -> None:
    """Not assigned, and in KRaft mode from 3.7 on; a broker in ZooKeeper mode loads whatever is there."""
    copy = replace(COPY, first_check=EXPIRES)
    elsewhere = replace(living(), node_id=99)
    assert restored([directory(STRAY)], copy=copy, owner=elsewhere)[1] == []
    for loads in (replace(elsewhere, zookeeper=True), NOBODY):
        (refusal,) = restored([directory(STRAY)], copy=copy, owner=loads)[1]
        assert "first retention check" in refusal.why.fact


def test_a_restore_says_as_of_when_its_retention_is_known() -> None:
    owner = replace(living(), settings_as_of={"orders": "Retention settings as of 14:02."})
    ((p,), _) = restored([directory(STRAY)], owner=owner)
    assert "Retention settings as of 14:02. At its next start" in p.reason
