"""What a report starts from: which hosts and clusters count, and the frames of their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.errors import LogAgentError
from logagent.fleet.tables.choice import Choice, ReportScope, Row, choose, chosen_rows, silent_frame
from logagent.fleet.tables.frames import local_frame
from logagent.fleet.tables.parts import parts, seen, topics
from logagent.fleet.tables.store import Commit, Store


@dataclass(frozen=True)
class Scope:
    """`choice`: hosts and clusters, rows of the driver. The frames contain only rows of what counts: `dirs`, `others`,
    `assignments`, `parts` (as `seen` gives them) and `topics`.

    `commits`: the run used for each date, decided once: an ingest during the report changes nothing.
    """

    store: Store
    asked: ReportScope
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

    @cached_property
    def host_frame(self) -> DataFrame:
        """The hosts that count, for joins: name, times in milliseconds, and what the assignments know of them."""
        decided = {cluster["cluster_id"]: cluster["day"] for cluster in self.choice.decided}
        nodes = {
            (row["cluster_id"], row["node_id"]): row
            for day in sorted(set(decided.values()))
            for row in self.store.small("nodes", self.commits[day])
            if decided.get(row["cluster_id"]) == day
        }
        rows = []
        for host in self.choice.counting:
            known = nodes.get((host["cluster_id"], host["node_id"]), {})
            rows.append(
                {
                    "cluster_id": host["cluster_id"],
                    "node_id": host["node_id"],
                    "host": host["host"],
                    "at_ms": host["at"],
                    "received_ms": host["received_at"],
                    "own_image_ms": host.get("image_at"),
                    "has_replicas": bool(known.get("replicas")),
                    "registered": bool(known.get("registered")),
                }
            )
        ddl = "cluster_id string, node_id int, host string, at_ms bigint, received_ms bigint, own_image_ms bigint"
        return fn.broadcast(local_frame(self.store.spark, rows, f"{ddl}, has_replicas boolean, registered boolean"))


def asked(store: Store, now: datetime, day: date | None, max_age: timedelta) -> ReportScope:
    """The date and the time of a report. Raises `LogAgentError` for a date without ingested data.

    Without `day` it is the newest date of the store, as of now; a past day is seen as of its end.
    """
    known = store.dates()
    if day is None:
        past = [each for each in known if each <= now.date()]
        if not past:
            raise LogAgentError(
                f"nothing was ingested into {store.uri}", hint="run `logagent fleet ingest` with the same --store first"
            )
        return ReportScope(past[-1], _ms(now), max_age)
    if day not in known:
        last = f"the last date that was is {known[-1]}" if known else "nor was any other date"
        raise LogAgentError(f"nothing was ingested for {day}: {last}", hint=f"run `logagent fleet ingest --date {day}`")
    return ReportScope(day, _ms(min(now, datetime.combine(day + timedelta(days=1), time(), UTC))), max_age)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def scope(store: Store, question: ReportScope, number: int | None, say: Callable[[str], None]) -> Scope:
    """Chooses what counts. Raises `LogAgentError` without a complete commit of the date, `UnreadableError` for a
    damaged store."""
    commits = _commits(store, question, number)
    own = commits[question.day]
    say(f"{question.day}: run {own.run}, ingested {own.at}")
    files = {day: store.small("files", commit) for day, commit in commits.items()}
    if not files[question.day]:
        raise LogAgentError(
            f"nothing was ingested for {question.day}: landing had no file of that date",
            hint="leave --date out for the newest date, or name another one",
        )
    choice = choose(question, files, {day: store.small("nodes", commit) for day, commit in commits.items()})
    dirs, others, assignments = (chosen_rows(store, commits, choice, t) for t in ("dirs", "others", "assignments"))
    made = store.small("choice", own)
    if choice.is_within(made):
        stored = store.read("parts", [own])
    else:
        say(f"{question.day}: the hosts that count have changed since it was ingested: comparing partitions again")
        stored = parts(dirs, assignments)
    rows = seen(stored, silent_frame(store, choice))
    whole = choice.is_within(made) and len(choice.rows()) == len(made)
    by_topic = store.read("topics", [own]) if whole else topics(rows, others)
    ledgers = _log_dirs(store, commits, choice)
    quarantine = [
        row | {"landing_date": day.isoformat()}
        for day, commit in sorted(commits.items())
        if day in question.window
        for row in [*store.small("quarantine", commit), *commit.late]
    ]
    return Scope(store, question, commits, choice, dirs, others, assignments, rows, by_topic, ledgers, quarantine)


def _commits(store: Store, question: ReportScope, number: int | None) -> dict[date, Commit]:
    """Those of the dates on which hosts are heard. Raises LogAgentError if the date itself has none."""
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
    return commits


def _log_dirs(store: Store, commits: Mapping[date, Commit], choice: Choice) -> list[Row]:
    """The log dirs of each host, as of the date on which it counts."""
    counting = {(h["cluster_id"], h["node_id"]): h["day"] for h in choice.counting}
    return [
        row
        for day, commit in commits.items()
        if day in set(counting.values())
        for row in store.log_dirs(commit)
        if counting.get((row["cluster_id"], row["node_id"])) == day
    ]


def decided_frame(scope: Scope, frame: DataFrame) -> DataFrame:
    """Rows of the clusters that have verdicts."""
    undecided = scope.choice.undecided
    return frame.where(~fn.col("cluster_id").isin(undecided)) if undecided else frame
