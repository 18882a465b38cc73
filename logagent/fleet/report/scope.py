"""What a report starts from: who counts, and the frames of what counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.errors import LogAgentError
from logagent.fleet.tables.choice import Asked, Choice, Row, choose
from logagent.fleet.tables.chosen import chosen_rows, silent_frame
from logagent.fleet.tables.parts import parts, seen, topics
from logagent.fleet.tables.store import Commit, Store


@dataclass(frozen=True)
class Scope:
    """`choice`: hosts and clusters, rows of the driver. The frames hold rows of what counts only: `dirs`, `others`,
    `assignments`, `parts` (as `seen` gives them) and `topics`.

    `commits`: the run of each date that is read, decided once: what is ingested meanwhile changes nothing here.
    """

    store: Store
    asked: Asked
    commits: dict[date, Commit]
    choice: Choice
    dirs: DataFrame
    others: DataFrame
    assignments: DataFrame
    parts: DataFrame
    topics: DataFrame
    log_dirs: list[Row] = field(default_factory=list)
    quarantine: list[Row] = field(default_factory=list)

    @property
    def commit(self) -> Commit:
        return self.commits[self.asked.day]

    def hosts(self) -> dict[tuple[str, int], Row]:
        return {(h["cluster_id"], h["node_id"]): h for h in self.choice.hosts}


def asked(store: Store, now: datetime, day: date | None, max_age: timedelta) -> Asked:
    """The date and the moment of a report. Raises `LogAgentError` for a date of which nothing was ingested.

    Without `day` it is the newest date of the store, seen from now; a day of the past is seen from its end.
    """
    known = store.dates()
    if day is None:
        past = [each for each in known if each <= now.date()]
        if not past:
            raise LogAgentError(
                f"nothing was ingested into {store.uri}", hint="run `logagent fleet ingest` with the same --store first"
            )
        return Asked(past[-1], _ms(now), max_age)
    if day not in known:
        last = f"the last date that was is {known[-1]}" if known else "no other date was either"
        raise LogAgentError(f"nothing was ingested for {day}: {last}", hint=f"run `logagent fleet ingest --date {day}`")
    return Asked(day, _ms(min(now, datetime.combine(day + timedelta(days=1), time(), UTC))), max_age)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def scope(store: Store, question: Asked, number: int | None, say: Callable[[str], None]) -> Scope:
    """Chooses. Raises `LogAgentError` without a whole commit of the date, `UnreadableError` for a damaged store."""
    commits = {}
    for day in question.heard:
        commit = store.commit_of(day, number if day == question.day else None)
        if commit is not None:
            commits[day] = commit
    if question.day not in commits:
        raise LogAgentError(
            f"no whole commit{f' {number}' if number else ''} of {question.day} is in the store",
            hint=f"run `logagent fleet ingest --date {question.day}`",
        )
    own = commits[question.day]
    say(f"{question.day}: run {own.run}, ingested {own.at}")
    files = {day: store.small("files", commit) for day, commit in commits.items()}
    choice = choose(question, files, {day: store.small("nodes", commit) for day, commit in commits.items()})
    dirs, others, assignments = (chosen_rows(store, commits, choice, t) for t in ("dirs", "others", "assignments"))
    made = store.small("choice", own)
    if choice.is_within(made):
        stored = store.read("parts", [own])
    else:
        say(f"{question.day}: other hosts count than when it was ingested: partitions are compared anew")
        stored = parts(dirs, assignments)
    rows = seen(stored, silent_frame(store, choice) if _has_silent(choice, stored, made) else None)
    whole = choice.is_within(made) and len(choice.rows()) == len(made)
    by_topic = store.read("topics", [own]) if whole else topics(rows, others)
    counting = {(h["cluster_id"], h["node_id"]): h["day"] for h in choice.counting}
    ledgers = [
        row
        for day, commit in commits.items()
        if day in set(counting.values())
        for row in store.small("log_dirs", commit)
        if counting.get((row["cluster_id"], row["node_id"])) == day
    ]
    quarantine = [
        row | {"date": day.isoformat()}
        for day, commit in sorted(commits.items())
        if day in question.window
        for row in [*store.small("quarantine", commit), *commit.late]
    ]
    return Scope(store, question, commits, choice, dirs, others, assignments, rows, by_topic, ledgers, quarantine)


def _has_silent(choice: Choice, stored: DataFrame, made: list[Row]) -> bool:
    """Whether a node that does not count can stand in `parts`: in its arrays, or in a replica list."""
    del stored, made
    return bool(choice.silent())


def decided_frame(scope: Scope, frame: DataFrame) -> DataFrame:
    """Rows of the clusters that have verdicts."""
    undecided = [c["cluster_id"] for c in scope.choice.clusters if not c["decided"]]
    return frame.where(~fn.col("cluster_id").isin(undecided)) if undecided else frame
