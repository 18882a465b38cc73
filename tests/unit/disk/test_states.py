"""States of a log dir: what takes it offline, what does not, and what it takes to come back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.records import Health, Identity
from logagent.disk.health import LogDirState, ProbedLogDir, ProbeOutcome, ProbeResult, next_state
from logagent.kafka.identity import MetaRead

PATH = "/data/d1"
HERE = Identity(2049, 64)
ELSEWHERE = Identity(1, 2)
META = MetaRead("cluster-1", 3, "directory-1")
RECOVERY = 3
GOOD = ProbeResult(PATH, ProbeOutcome.GOOD, 1.0, wrote=True)
FULL = ProbeResult(PATH, ProbeOutcome.FULL, 1.0, "its file system has no free block")
READ_ONLY = ProbeResult(PATH, ProbeOutcome.READ_ONLY, 1.0, "its file system is mounted read-only")
FAILED = ProbeResult(PATH, ProbeOutcome.FAILED, 1.0, "the probe failed (Input/output error)", errno=5)
HUNG = ProbeResult(PATH, ProbeOutcome.HUNG, 10.0, "it did not answer within 10 s")
UNABLE = ProbeResult(PATH, ProbeOutcome.GOOD, 1.0, None, False, "it could not be probed (Too many open files)", 24)
WELL = ProbedLogDir(probe=GOOD, identity=HERE, meta=META)


def after(*rounds: ProbedLogDir, start: LogDirState | None = None) -> LogDirState:
    """The state after these rounds, one second apart."""
    state = start
    for number, seen in enumerate(rounds):
        now = (state.since_ms if state is not None else 0) + 1000 + number
        state = next_state(PATH, state, seen, now, RECOVERY)
    assert state is not None
    return state


def blind(probe: ProbeResult) -> ProbedLogDir:
    return ProbedLogDir(probe=probe)


def scanned(seen: ProbedLogDir) -> ProbedLogDir:
    return replace(seen, scanned=seen.identity)


def test_a_good_log_dir_is_online_and_stays_so_since_the_first_round() -> None:
    first = after(WELL)
    assert (first.health, first.reason, first.identity, first.meta) == (Health.ONLINE, None, HERE, META)
    assert after(WELL, WELL, WELL, start=first) == first


@pytest.mark.parametrize(
    ("probe", "health"), [(FULL, Health.FULL), (READ_ONLY, Health.READ_ONLY)], ids=["full", "read-only"]
)
def test_full_and_read_only_are_states_and_not_offline(probe: ProbeResult, health: Health) -> None:
    state = after(WELL, replace(WELL, probe=probe))
    assert (state.health, state.reason) == (health, probe.reason)
    # They go as they came, without recovery: nothing was lost from sight.
    assert after(WELL, start=state).health is Health.ONLINE


def test_without_meta_properties_it_is_unformatted_until_a_broker_formats_it() -> None:
    state = after(replace(WELL, meta=MetaRead(missing=True)))
    assert (state.health, state.reason) == (Health.UNFORMATTED, "there is no meta.properties")
    assert after(WELL, start=state).health is Health.ONLINE


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (blind(FAILED), "the probe failed (Input/output error)"),
        (blind(HUNG), "it did not answer within 10 s"),
        (replace(WELL, failed="rename of a-0 failed (I/O error)"), "rename of a-0 failed (I/O error)"),
        (replace(WELL, identity=ELSEWHERE, meta=MetaRead(missing=True)), "its path now leads to another directory"),
        (replace(WELL, meta=MetaRead(missing=True)), "its meta.properties is gone"),
        (replace(WELL, meta=replace(META, directory_id="directory-2")), "its meta.properties has changed"),
        (replace(WELL, meta=replace(META, cluster_id="cluster-2")), "its meta.properties has changed"),
        (replace(WELL, meta=MetaRead(error="Permission denied")), "its meta.properties can no longer be read"),
    ],
    ids=["failed", "hung", "own failure", "unmounted", "meta gone", "other disk", "other cluster", "meta unreadable"],
)  # fmt: skip
def test_one_round_is_enough_to_see_it_fail(seen: ProbedLogDir, reason: str) -> None:
    state = after(WELL, seen)
    assert state.health is Health.OFFLINE
    assert state.reason is not None and state.reason.startswith(reason)
    # The first failure wins.
    assert after(blind(HUNG), start=state) == state


def test_a_read_only_mount_that_an_action_of_ours_met_first_is_read_only() -> None:
    state = after(WELL, replace(WELL, probe=READ_ONLY, failed="rename of a-0 failed (Read-only file system)"))
    assert (state.health, state.reason) == (Health.READ_ONLY, READ_ONLY.reason)


@pytest.mark.parametrize(
    "before", [MetaRead("cluster-1", 3), MetaRead(None, 3), MetaRead()], ids=["3.6", "0.10", "empty"]
)
def test_a_broker_that_completes_its_meta_properties_at_an_upgrade_is_no_failure(before: MetaRead) -> None:
    state = after(replace(WELL, meta=before), WELL)
    assert (state.health, state.meta) == (Health.ONLINE, META)


def test_what_the_broker_gave_up_is_believed_in_the_second_round() -> None:
    given_up = replace(WELL, given_up="the running broker (process 7) holds other log dirs but not this one")
    once = after(WELL, given_up)
    assert once.health is Health.ONLINE
    assert after(given_up, start=once).reason == given_up.given_up
    # One that starts takes its locks one after the other.
    assert after(WELL, given_up, WELL, given_up, start=once).health is Health.ONLINE


def test_it_stays_offline_while_the_broker_has_given_it_up_and_comes_back_after_its_restart() -> None:
    given_up = replace(WELL, given_up="gave it up")
    state = after(WELL, *[given_up] * 10)
    assert (state.health, state.good_probes) == (Health.OFFLINE, 0)
    assert after(*[WELL] * RECOVERY, scanned(WELL), start=state).health is Health.ONLINE


def test_it_comes_back_after_good_probes_in_a_row_and_a_scan() -> None:
    offline = after(WELL, blind(FAILED))
    state = after(*[WELL] * (RECOVERY - 1), start=offline)
    assert (state.good_probes, state.wants_scan(RECOVERY)) == (RECOVERY - 1, False)
    state = after(WELL, start=state)
    assert (state.health, state.reason, state.wants_scan(RECOVERY)) == (Health.OFFLINE, offline.reason, True)
    # As long as the scan takes, it stays where it is.
    assert after(WELL, WELL, start=state).health is Health.OFFLINE
    back = after(scanned(WELL), start=state)
    assert (back.health, back.reason, back.good_probes, back.suspected) == (Health.ONLINE, None, 0, 0)
    assert back.since_ms > offline.since_ms


def test_a_bad_probe_starts_the_count_anew() -> None:
    state = after(WELL, blind(FAILED), WELL, WELL, blind(HUNG), WELL, WELL)
    assert (state.health, state.good_probes) == (Health.OFFLINE, 2)
    assert after(WELL, blind(FAILED), WELL, WELL, UNABLE_ROUND, WELL).good_probes == 1


UNABLE_ROUND = replace(WELL, probe=UNABLE)


def test_our_own_shortage_is_no_failure_and_no_proof_of_recovery() -> None:
    assert after(WELL, UNABLE_ROUND).health is Health.ONLINE
    assert after(WELL, blind(FAILED), *[UNABLE_ROUND] * 9).good_probes == 0


def test_a_scan_of_another_directory_proves_nothing() -> None:
    state = after(WELL, blind(FAILED), *[WELL] * RECOVERY, replace(WELL, scanned=ELSEWHERE))
    assert state.health is Health.OFFLINE


def test_while_a_call_of_ours_hangs_there_it_does_not_come_back() -> None:
    hanging = replace(scanned(WELL), hanging=True)
    state = after(WELL, blind(HUNG), *[hanging] * 9)
    assert (state.health, state.good_probes) == (Health.OFFLINE, 0)


def test_an_empty_mount_point_never_comes_back_and_the_remounted_disk_does() -> None:
    empty = ProbedLogDir(probe=GOOD, identity=ELSEWHERE, meta=MetaRead(missing=True))
    state = after(WELL, *[scanned(empty)] * 9)
    assert (state.health, state.good_probes) == (Health.OFFLINE, 0)
    remounted = replace(WELL, identity=Identity(2050, 64))
    back = after(*[remounted] * RECOVERY, scanned(remounted), start=state)
    assert (back.health, back.identity) == (Health.ONLINE, Identity(2050, 64))


def test_a_replaced_disk_comes_back_when_the_broker_has_formatted_it() -> None:
    other = replace(WELL, identity=ELSEWHERE, meta=replace(META, directory_id="directory-2"))
    back = after(WELL, blind(FAILED), *[other] * RECOVERY, scanned(other))
    assert (back.health, back.meta) == (Health.ONLINE, other.meta)


@pytest.mark.parametrize(
    "meta",
    [replace(META, cluster_id="cluster-2"), replace(META, node_id=4), MetaRead(error="no"), MetaRead(missing=True)],
    ids=["cluster", "node", "unreadable", "missing"],
)
def test_a_disk_of_somebody_else_does_not_come_back(meta: MetaRead) -> None:
    strange = scanned(replace(WELL, identity=ELSEWHERE, meta=meta))
    assert after(WELL, blind(FAILED), *[strange] * 9).health is Health.OFFLINE


def test_two_directories_by_turns_are_never_good_in_a_row() -> None:
    other = replace(WELL, identity=ELSEWHERE)
    state = after(WELL, blind(FAILED), *[scanned(WELL), scanned(other)] * 6)
    assert (state.health, state.good_probes) == (Health.OFFLINE, 1)


def test_one_that_was_missing_at_the_start_comes_when_it_is_there() -> None:
    state = after(blind(replace(FAILED, reason="it cannot be opened (No such file or directory)", errno=2)))
    assert state.health is Health.OFFLINE
    back = after(*[WELL] * RECOVERY, scanned(WELL), start=state)
    assert (back.health, back.meta) == (Health.ONLINE, META)


def rounds() -> st.SearchStrategy[ProbedLogDir]:
    """Rounds of any kind, more good than bad ones."""
    identities = st.sampled_from([HERE, HERE, HERE, ELSEWHERE])
    metas = st.sampled_from([META, META, META, MetaRead(missing=True), replace(META, cluster_id="other")])
    full = st.builds(
        ProbedLogDir,
        probe=st.sampled_from([GOOD, GOOD, GOOD, FULL, READ_ONLY, UNABLE]),
        identity=identities,
        meta=metas,
        given_up=st.sampled_from([None, None, None, "gave it up"]),
        failed=st.sampled_from([None, None, None, "we failed"]),
        hanging=st.sampled_from([False, False, False, True]),
        scanned=st.sampled_from([None, HERE, HERE, ELSEWHERE]),
    )
    return st.one_of(full, full, full, st.sampled_from([blind(FAILED), blind(HUNG)]))


@given(st.lists(rounds(), max_size=30))
def test_offline_ends_only_after_good_probes_of_one_directory_and_its_scan(seen: list[ProbedLogDir]) -> None:
    state: LogDirState | None = None
    for number, this in enumerate(seen):
        before, state = state, next_state(PATH, state, this, number, RECOVERY)
        if state.health is Health.OFFLINE:
            assert state.reason
            if before is not None and before.health is Health.OFFLINE:
                assert (state.reason, state.since_ms) == (before.reason, before.since_ms)
        elif before is not None and before.health is Health.OFFLINE:
            last = seen[number - RECOVERY : number + 1]
            assert len(last) == RECOVERY + 1
            assert {s.identity for s in last} == {this.identity} == {this.scanned}
            assert [s for s in last if not (s.probe.errno is None and s.given_up is None and not s.hanging)] == []
        if this.probe.outcome in (ProbeOutcome.FAILED, ProbeOutcome.HUNG):
            assert state.health is Health.OFFLINE


@given(st.lists(rounds(), max_size=30))
def test_what_is_known_of_a_log_dir_is_never_forgotten_by_a_failure(seen: list[ProbedLogDir]) -> None:
    known: MetaRead | None = None
    state: LogDirState | None = None
    for number, this in enumerate(seen):
        state = next_state(PATH, state, this, number, RECOVERY)
        if state.health is not Health.OFFLINE and this.meta is not None:
            known = this.meta
        assert state.meta == known
