"""What a report starts from: which hosts and clusters count, and the frames of their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.base.errors import LogAgentError
from logagent.fleet.tables.choice import Choice, ReportScope, Row, Standing, choose, chosen_rows, silent_frame, standing
from logagent.fleet.tables.frames import TOPIC, local_frame, parts, seen, together, topics
from logagent.fleet.tables.store import Commit, Store
from logagent.store.contract import ASSIGNMENTS, DATA


@dataclass(frozen=True)
class Image:
    """Assignments whose rows a table of a date has. `entry`: the row of its file, which is called `stem`."""

    table: str
    day: date
    stem: str
    entry: Row

    @property
    def name(self) -> str:
        return f"{self.day}/{self.stem}"


def _images(files: Mapping[date, list[Row]]) -> dict[str, list[Image]]:
    found: dict[str, list[Image]] = {}
    for day, rows in files.items():
        for entry in rows:
            table = "assignments" if entry["status"] == "taken" else "earlier" if entry.get("earlier") else None
            if entry["kind"] == ASSIGNMENTS and table is not None:
                stem = str(entry["file"]).rpartition("/")[2].removesuffix(DATA)
                found.setdefault(entry["cluster_id"], []).append(Image(table, day, stem, entry))
    return found


@dataclass(frozen=True)
class Scope:
    """`choice`: hosts and clusters, rows of the driver. The frames contain only rows of what counts: `dirs`, `others`,
    `absent`, `assignments`, `parts` (as `seen` gives them) and `topics`. `images`: by cluster, the stored images and
    the rows of their files.

    `commits`: the run used for each date, decided once: an ingest during the report changes nothing.
    """

    store: Store
    asked: ReportScope
    commits: dict[date, Commit]
    choice: Choice
    dirs: DataFrame
    others: DataFrame
    absent: DataFrame
    assignments: DataFrame
    parts: DataFrame
    topics: DataFrame
    log_dirs: list[Row] = field(default_factory=list)
    quarantine: list[Row] = field(default_factory=list)
    images: dict[str, list[Image]] = field(default_factory=dict)

    @property
    def commit(self) -> Commit:
        return self.commits[self.asked.day]

    def hosts(self) -> dict[tuple[str, int], Row]:
        return {(h["cluster_id"], h["node_id"]): h for h in self.choice.hosts}

    @cached_property
    def nodes(self) -> dict[tuple[str, int], Row]:
        """What the assignments that count know of each node."""
        decided = {cluster["cluster_id"]: cluster["day"] for cluster in self.choice.decided}
        return {
            (row["cluster_id"], row["node_id"]): row
            for day in sorted(set(decided.values()))
            for row in self.store.small("nodes", self.commits[day])
            if decided.get(row["cluster_id"]) == day
        }

    @cached_property
    def standings(self) -> dict[tuple[str, int], Standing]:
        """How the newest assignments stand to what each host that counts has seen."""
        newest = {cluster["cluster_id"]: cluster for cluster in self.choice.decided}
        return {
            (host["cluster_id"], host["node_id"]): standing(
                host,
                newest[host["cluster_id"]],
                [(image.name, image.entry) for image in self.images.get(host["cluster_id"], ())],
                self.asked.as_of_ms,
            )
            for host in self.choice.counting
            if host["cluster_id"] in newest
        }

    def older_images(self) -> DataFrame | None:
        """Rows of the images that `standings` name as `older`, where something rests on them; None if nothing does."""
        names = {each.older for each in self.standings.values() if not each.own and each.older is not None}
        images = [image for found in self.images.values() for image in found if image.name in names]
        frames = []
        for table, day in sorted({(image.table, image.day) for image in images}):
            named = [
                {"c": image.entry["cluster_id"], "image": image.stem, "older": image.name}
                for image in images
                if (image.table, image.day) == (table, day)
            ]
            known = fn.broadcast(local_frame(self.store.spark, named, "c string, image string, older string"))
            rows, same = self.store.read(table, [self.commits[day]]), fn.col("cluster_id") == fn.col("c")
            if table == "earlier":
                rows = rows.withColumnRenamed("image", "of")
                same = same & (fn.col("of") == fn.col("image"))
            frames.append(rows.join(known, same).select(*TOPIC, "partition", "replicas", "older"))
        return together(frames) if frames else None

    @cached_property
    def host_frame(self) -> DataFrame:
        """The hosts that count, for joins: name, times in milliseconds, and what the assignments know of them."""
        nodes, rows = self.nodes, []
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
    named = ("dirs", "others", "absent", "assignments")
    dirs, others, absent, assignments = (chosen_rows(store, commits, choice, table) for table in named)
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
    chosen = Scope(store, question, commits, choice, dirs, others, absent, assignments, rows, by_topic)
    return replace(chosen, log_dirs=ledgers, quarantine=quarantine, images=_images(files))


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
