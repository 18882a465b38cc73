"""Names that brokers before 2.2.2 cannot mark for deletion: KAFKA-4893. Without I/O.

They rename `TOPIC-0` to `TOPIC-0.UUID-delete` without cutting it. If that is too long for the file system, the log dir
goes offline, and with its only log dir the broker exits. From then on it dies at every start: the controller has the
directory made anew, also if somebody renamed or removed it meanwhile, and then deletes the topic again. (2.2.1 does not
cut the name yet, 2.2.2 and 2.3.0 do: seen in their jars. Seen with 2.1.0: the end, and both cures.)
"""

from __future__ import annotations

from collections.abc import Iterator

from logagent.advice.check.rules.start_facts import StartFacts, StartLogDirFacts
from logagent.advice.finding import Finding, Releases, fatal, warning
from logagent.base.dir_names import DELETE_SUFFIX, MAX_NAME
from logagent.base.kafka_version import Version
from logagent.base.records import DirKey, HolderState, Kind

CUTS_SINCE: Version = (2, 2, 2)
_ROOM = MAX_NAME - len(".") - 32 - len(DELETE_SUFFIX)
_CODE = "too-long-to-delete"


def check_long_names(facts: StartFacts) -> Iterator[Finding]:
    """A warning for each directory whose topic must not be deleted yet; fatal where that has been tried.

    Right before a start only a warning: nothing on this host shows whether the marker has been removed since, and a
    `prestart --strict` would hold back the very start that the cure calls for.
    """
    too_long = {d.key: d.topic for d in facts.dirs if d.kind is Kind.CURRENT and too_long_to_mark(d.name)}
    for where in facts.log_dirs:
        if not where.holds_logs:
            continue
        failed = {name: log for key, log in facts.failed_marks.items() if (name := _name_in(where, key)) is not None}
        for name, log in failed.items():
            if not _serves(where):
                yield _failed(facts, where, name, f"{log} shows it, since the broker's last start")
        for log_dir, name in too_long:
            if log_dir != where.path or (name in failed and not _serves(where)):
                continue
            if where.given_up_by is not None:
                yield _failed(facts, where, name, f"process {where.given_up_by} runs without this log dir")
            else:
                yield _not_yet(f"{log_dir}/{name}")


def too_long_to_mark(name: str) -> bool:
    """Whether `name` with `.UUID-delete` is longer than a file system takes, if nobody cuts it."""
    return len(name.encode(errors="surrogateescape")) > _ROOM


def _name_in(where: StartLogDirFacts, key: DirKey) -> str | None:
    return key.name if key.log_dir in (where.path, where.canonical) else None


def _serves(where: StartLogDirFacts) -> bool:
    """A log dir that the broker has now: what its log says of it is over."""
    return where.given_up_by is None and where.holder.state is HolderState.HELD and where.holder_is_broker is True


def _not_yet(path: str) -> Finding:
    return warning(
        _CODE,
        path,
        "its name is too long to be marked for deletion: deleting this topic takes the log dir offline, and with one"
        " log dir the broker does not come up again (KAFKA-4893)",
        "upgrade to 2.2.2 or later before anybody deletes the topic",
        releases=Releases(before=CUTS_SINCE),
    )


def _failed(facts: StartFacts, where: StartLogDirFacts, name: str, shown: str) -> Finding:
    topic = name.rpartition("-")[0]
    return (warning if facts.about_to_start else fatal)(
        _CODE,
        f"{where.path}/{name}",
        "its topic is being deleted, and its name is too long to be marked: each start takes the log dir offline"
        f" again, and with one log dir the broker exits (KAFKA-4893; {shown}). Renaming or removing the directory does"
        " not help: it is made anew",
        "start 2.2.2 or later on this log dir: it finishes the deletion; or, if the topic should live, remove the"
        f" marker while no controller runs on an old release: zookeeper-shell ZOOKEEPER delete"
        f" /admin/delete_topics/{topic}",
        releases=Releases(before=CUTS_SINCE),
    )
