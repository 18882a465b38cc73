"""What `doctor` rests on: without each of its inputs it says something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from logagent.advice.finding import Severity
from logagent.base.kafka_version import UNKNOWN_VERSION
from logagent.base.records import Health, HolderState, Reason
from logagent.kafka.image import Source
from logagent.service.doctor.command import DoctorDoc, doctor_document
from logagent.service.doctor.rules.diagnose import diagnose
from logagent.service.doctor.rules.host import AccessFacts, AssignmentsFacts, DaemonFacts, DoctorFacts, StateDirFacts
from tests.rests_on import assert_complete
from tests.unit.service.doctor.rules.test_doctor import FACTS, HOLDER, LOG_DIR, of

UNANSWERED = AccessFacts(path="/d1", what="a directory", answered=False)
DAMAGED = Reason("it is damaged", "move it away", "journal-damaged")
DOUBT = Reason("of a release that was not tested", "ask a broker", "nothing")


def log_dir(**changes: object) -> DoctorFacts:
    return replace(FACTS, log_dirs=(replace(LOG_DIR, **changes),))  # type: ignore[arg-type]


# By input: the host without it, and the finding that says so (None: another part of the document does).
WITHHELD: dict[str, tuple[Callable[[], DoctorFacts], str | None]] = {
    "brokers": (lambda: replace(FACTS, brokers=()), None),
    "configuration": (
        lambda: replace(FACTS, brokers=(), config=replace(FACTS.config, kafka_config=None)),
        "broker-not-found",
    ),
    "configuration in force": (
        lambda: replace(FACTS, holders=(replace(HOLDER, in_doubt="it changed"),)),
        "config-changed",
    ),
    "open files": (lambda: replace(FACTS, holders=(replace(HOLDER, proc="hidden"),)), None),
    "lock": (lambda: log_dir(holder=HolderState.UNREADABLE, pid=None), None),
    "log dirs": (lambda: log_dir(health=Health.OFFLINE, reason="it does not answer"), None),
    "rights": (lambda: log_dir(access=UNANSWERED), None),
    "version": (lambda: replace(FACTS, kafka_version=UNKNOWN_VERSION), "version-unknown"),
    "node": (lambda: replace(FACTS, node_id=None, cluster_id=None), "cluster"),
    "assignments": (lambda: replace(FACTS, assignments=AssignmentsFacts(usable=False)), "assignments-none"),
    "metadata log": (
        lambda: replace(FACTS, assignments=AssignmentsFacts(usable=True, source=Source.KRAFT_LOG, log_doubt=DOUBT)),
        "metadata-log",
    ),
    "log dirs seen": (
        lambda: replace(FACTS, state=StateDirFacts(path="/s", exists=True, forgotten=Reason("damaged", "look"))),
        "log-dir-forgotten",
    ),
    "journal": (
        lambda: replace(
            FACTS, state=StateDirFacts(path="/s", exists=True, refused=(Reason("x", "y", "journal-damaged"),))
        ),
        "journal-damaged",
    ),
    "service": (lambda: replace(FACTS, service=None), None),
    "daemon": (lambda: replace(FACTS, daemon=DaemonFacts(socket="/s", state="refused")), None),
    "state dir": (
        lambda: replace(FACTS, state=StateDirFacts(path="/s", exists=True, access=UNANSWERED)),
        "state-closed",
    ),
}


DOCTOR = {
    "user.uid": ("rights",),
    "brokers": ("brokers",),
    "brokers[].pid": ("brokers",),
    "node_id": ("node",),
    "log_dirs": ("configuration", "log dirs"),
    "log_dirs[].holder.pid": ("lock",),
    "service.main_pid": ("service",),
    "assignments_age_seconds": ("assignments",),
    "findings": tuple(WITHHELD),
    "findings[].change.number": ("configuration",),
}


def test_every_figure_of_doctor_has_a_row_and_every_input_is_withheld() -> None:
    assert_complete(DoctorDoc, DOCTOR, WITHHELD)


@pytest.mark.parametrize("what", WITHHELD)
def test_without_an_input_doctor_says_something_else(what: str) -> None:
    make, code = WITHHELD[what]
    without, found = make(), diagnose(make())
    documents = [doctor_document(f, diagnose(f), "h", "2026-01-01T00:00:00.000Z") for f in (FACTS, without)]
    assert documents[0] != documents[1]
    # Which brokers there are besides the one that is named is said by the list alone.
    assert what == "brokers" or {f.severity for f in found} != {Severity.WORKS}, "what was not seen is not fine"
    if code is not None:
        assert of(without, code).severity is not Severity.WORKS
