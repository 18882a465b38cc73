"""What 1.0 wrote, every later 1.x reads: the samples of `tests/formats.py`, which are never made again.

A test that fails here says that an upgrade would lose something, or break somebody's script. Change the code, not the
sample (docs/reference/compatibility.md).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import TypeAdapter

from logagent.base.config.config import as_document, load
from logagent.base.config.settings import Settings
from logagent.base.errors import Exit
from logagent.base.records import ActionKind, DirKey, Outcome
from logagent.cleanup.state.journal import Journal
from logagent.deletion.agent.memory import RequestMemory
from logagent.deletion.store.answers import Answers
from logagent.deletion.store.requests import ControlFolder, Filed, RequestFolder
from logagent.fleet.documents import SCHEMAS as OF_THE_FLEET
from logagent.fleet.report.columns import json_schema
from logagent.kafka.files.exported import SCHEMA, parse_document
from logagent.schemas import SCHEMAS as OF_A_HOST
from logagent.service.metrics import METRICS
from logagent.store.signing import public_key
from logagent.store.snapshots import snapshot_lines
from logagent.verdict.evidence import version_seen
from tests import formats
from tests.command_line import run_here
from tests.formats import CLUSTER, FORMATS, NODE, NOT_UTF8, SAMPLES, WRITERS, unpacked

DOCUMENTS = sorted(path.stem for path in (SAMPLES / "documents").glob("*.json"))
SCHEMAS = sorted(path.stem for path in (SAMPLES / "schemas").glob("*.json"))


@pytest.fixture(scope="module", params=WRITERS)
def writer(request: pytest.FixtureRequest) -> Path:
    """The samples of one version."""
    return FORMATS / str(request.param)


@pytest.fixture
def state(writer: Path, tmp_path: Path) -> Path:
    """The state dir that it left."""
    return unpacked(writer / "host.tar.xz", tmp_path / "state")


@pytest.fixture(scope="module")
def store(writer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fleet store; nobody writes to it."""
    return unpacked(writer / "store.tar.xz", tmp_path_factory.mktemp("formats") / "store")


@pytest.fixture(scope="module")
def filed(writer: Path, store: Path) -> dict[str, Filed]:
    """Its requests."""
    key = public_key((writer / "orders.keys").read_text().strip())
    return RequestFolder(ControlFolder(str(store), CLUSTER), (key,)).read()


def document(name: str, samples: Path = SAMPLES) -> Any:
    return json.loads((samples / f"documents/{name}.json").read_bytes())


def lines(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (SAMPLES / name).read_text().splitlines()]


# The journal, and what else is in the state dir


def test_the_journal_has_every_row_of_each_kind(state: Path) -> None:
    with Journal.open_read_only(str(state)) as journal:
        history = journal.history()
        made = [entry for entry in history if entry.intent.plan_id == formats.INTENT.plan_id]
        assert [(e.intent.action, e.outcome) for e in made] == [(a, o) for a in ActionKind for o in (None, *Outcome)]
        for entry in made:
            whole = journal.with_checkpoint_entries(entry)
            assert whole.intent == replace(formats.INTENT, action=entry.intent.action)
            assert entry.at_ms == formats.AT and (entry.error == formats.ERROR) is (entry.outcome is not None)
        assert made[-1].permission_ended == "it was restored"
        assert {e.intent.action for e in history if e not in made} >= {"mark", "quarantine", "restore", "remove"}
        assert [e.id for e in journal.unsettled()] == [e.id for e in made if e.outcome is None]
        failed = journal.failures()[DirKey(formats.INTENT.log_dir, NOT_UTF8)]
        assert (failed.count, failed.last_error) == (1, formats.ERROR)
        assert journal.sightings() and journal.serving() == {formats.INTENT.log_dir: formats.SERVING}
        assert formats.AT in journal.incarnations().values() and formats.INCARNATION in journal.incarnations()
        assert journal.last_clocks() == formats.CLOCKS and journal.clock_jumps()[-1] == formats.JUMP
        assert journal.clock_doubt() == formats.DOUBT
        assert (host := journal.host()) is not None and (host.cluster_id, host.node_id) == (CLUSTER, NODE)
        assert len(host.directory_ids) == 2


def test_the_journal_goes_on(state: Path) -> None:
    with Journal.open(str(state)) as journal:
        before = len(journal.history())
        (number,) = journal.begin([formats.INTENT], formats.AT + 1000)
        journal.finish([(number, Outcome.DONE, None)], formats.AT + 2000)
        assert len(journal.history()) == before + 1 and journal.history()[-1].intent.name == NOT_UTF8


def test_history_shows_what_it_showed(writer: Path, state: Path) -> None:
    ran = run_here("history", "--state-dir", str(state), "--json")
    assert ran.status == 0, ran.err
    then = {entry["id"]: entry for entry in document("history", writer)["entries"]}
    now = {entry["id"]: entry for entry in ran.json["entries"]}
    assert {id_: {key: now[id_][key] for key in entry} for id_, entry in then.items()} == then


def test_the_other_memories_of_a_host_count(state: Path) -> None:
    where = str(state)
    assert version_seen.read_version_seen(where, CLUSTER, NODE).version == formats.VERSION
    assert version_seen.read_brokers_seen(where, CLUSTER) == formats.BROKERS
    assert len(version_seen.read_log_dirs_seen(where, CLUSTER, NODE).dirs) == 2
    lineage = version_seen.read_lineage(where, CLUSTER, NODE)
    assert lineage.unread is None and lineage.point is not None and lineage.topic_ids
    memory = RequestMemory.load(where, formats.AT)
    assert memory.stood == () and memory.requests
    rows = [row.answer for request in memory.requests.values() for row in request.rows.values()]
    assert rows and [row for row in rows if not row.name] == []


# The fleet store


def test_a_snapshot_is_read_and_one_that_changes_it(store: Path) -> None:
    (folder,) = (store / f"landing/{CLUSTER}").glob(f"*/{NODE}")
    manifests = [json.loads(path.read_bytes()) for path in sorted(folder.glob("*.manifest.json"))]
    read = [list(_snapshot(folder, m["snapshot_id"])) for m in manifests]
    for rows in read:
        assert rows[0]["row"] == "snapshot" and (rows[0]["cluster_id"], rows[0]["node_id"]) == (CLUSTER, NODE)
        assert {row["row"] for row in rows} >= {"snapshot", "log_dir", "act", "dir"}
        assert NOT_UTF8 in {row["name"] for row in rows if row["row"] == "dir"}
    assert [m["kind"] for m in manifests[:2]] == ["snapshot", "delta"]
    whole, changed = ({row["name"]: row for row in rows if row["row"] == "dir"} for rows in read[:2])
    assert changed.keys() - whole.keys() == {"added-0"} and whole.keys() <= changed.keys()
    (written,) = (name for name, row in whole.items() if row["newest_mtime"] != changed[name]["newest_mtime"])
    assert written.startswith("orders-")


def _snapshot(folder: Path, snapshot_id: str) -> Iterator[dict[str, Any]]:
    found = snapshot_lines(lambda name: (folder / f"{name}.jsonl.gz").read_bytes(), snapshot_id)
    return (json.loads(line) for line in found)


def test_assignments_are_read_as_published_and_as_exported(store: Path) -> None:
    image = parse_document((SAMPLES / "documents/assignments.json").read_bytes(), origin="1.0", schema=SCHEMA)
    assert image.cluster_id == CLUSTER and len(image.by_id) > 5
    for file in sorted((store / f"landing/{CLUSTER}").glob("*/assignments/*.jsonl.gz")):
        rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
        assert {row["row"] for row in rows} == {"assignments", "broker", "partition"}


def test_requests_decisions_and_outcomes_are_verified(filed: dict[str, Filed]) -> None:
    found = list(filed.values())
    assert len(found) == 3 and [f.hold for f in found] == [None] * 3
    by_kind = {(f.request.kind, None if f.decision is None else f.decision.decision): f for f in found if f.request}
    assert set(by_kind) == {("topics", "delete"), ("directories", "cancelled"), ("directories", None)}
    topics, done = by_kind["topics", "delete"], by_kind["directories", None]
    assert topics.outcome is not None and topics.outcome.topics[0].result == "deleted"
    assert topics.request is not None and topics.request.approvals == ("limit",)
    assert done.request is not None and "only-copy" in done.request.approvals
    assert done.outcome is not None and {d.result for d in done.outcome.directories} <= {"removed", "quarantined"}


def test_answers_of_agents_are_read(store: Path, filed: dict[str, Filed]) -> None:
    answers = Answers(str(store), CLUSTER)
    seen = answers.seen(NODE)
    assert seen is not None and seen.log_dirs is not None and seen.log_dirs.all_online
    found = [answer for number in filed if (answer := answers.answer(NODE, number)) is not None]
    assert {(d.state, d.result) for answer in found for d in answer.directories} == {
        ("done", "quarantined"),
        ("done", "removed"),
    }


# What scripts rely on


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_what_its_schema_promised(name: str) -> None:
    schema = json.loads((SAMPLES / f"schemas/{name}.json").read_bytes())
    found = document(name)
    for one in found if isinstance(found, list) else [found]:
        jsonschema.validate(one, schema, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", SCHEMAS)
def test_nothing_that_a_schema_promised_is_gone(name: str) -> None:
    """Fields, words of a field and documents may be added; what there was keeps its name, its type and its number."""
    then = json.loads((SAMPLES / f"schemas/{name}.json").read_bytes())
    forms = {**OF_A_HOST, **OF_THE_FLEET}
    now = json_schema() if name == "fleet-tables" else TypeAdapter(forms[name]).json_schema()
    assert list(gone(inline(then), inline(now), name)) == []


def inline(schema: Any) -> Any:
    """The schema with each form in place of its name in `$defs`, which is in no document. None has itself in it."""
    forms = {f"#/$defs/{name}": form for name, form in schema.get("$defs", {}).items()}

    def meant(part: Any) -> Any:
        match part:
            case list():
                return [meant(one) for one in part]
            case {"$ref": name}:
                return meant(name)
            case dict():
                return {key: meant(value) for key, value in part.items() if key != "$defs"}
        return meant(forms[part]) if isinstance(part, str) and part in forms else part

    return meant(schema)


TOLD = ("description", "title")


def gone(then: Any, now: Any, where: str) -> Iterator[str]:
    """The places in a schema at which something is missing or is another thing."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key, value in then.items():
            # A field may be called like an explanation.
            if key in TOLD and isinstance(value, str):
                continue
            if key not in now:
                yield f"{where}.{key}"
            else:
                yield from gone(value, now[key], f"{where}.{key}")
    elif isinstance(then, list) and isinstance(now, list):
        yield from (f"{where}: {one}" for one in then if not any(not list(gone(one, other, "")) for other in now))
    elif then != now:
        yield f"{where}: {then!r} is {now!r}"


def test_what_is_gone_is_seen() -> None:
    """That the comparison of schemas sees what it is for."""
    then = json.loads((SAMPLES / "schemas/queue.json").read_bytes())
    text = json.dumps(then)
    assert list(gone(then, json.loads(text.replace("overdue_seconds", "overdue_s")), ""))
    assert list(gone(then, json.loads(text.replace("logagent.queue/1", "logagent.queue/2")), ""))
    assert list(gone(then, json.loads(text.replace('"integer"', '"string"')), ""))
    more = json.loads(text)
    more["properties"]["new"] = {"type": "string"}
    assert list(gone(then, more, "")) == [] != list(gone(more, then, ""))
    form = next(name for name, form in then["$defs"].items() if "properties" in form)
    other = inline(json.loads(text.replace(f'"{form}"', '"Other"').replace(f"$defs/{form}", "$defs/Other")))
    assert list(gone(inline(then), other, "")) == []
    del more["$defs"][form]["properties"][next(iter(then["$defs"][form]["properties"]))]
    assert list(gone(inline(then), inline(more), ""))


def test_an_approval_outlives_an_upgrade() -> None:
    assert formats.plan_ids() == json.loads((SAMPLES / "plan-ids.json").read_bytes())


def test_exit_statuses_keep_their_meaning() -> None:
    now = {str(status.value): status.name for status in Exit}
    assert {number: now.get(number) for number, _ in lines("exit-statuses.tsv")} == dict(lines("exit-statuses.tsv"))


def test_metrics_keep_type_and_labels() -> None:
    for name, kind, labels in lines("metrics.tsv"):
        assert (METRICS[name].type, " ".join(METRICS[name].labels)) == (kind, labels), name


def test_commands_and_options_are_still_there() -> None:
    assert {line for (line,) in lines("options.tsv")} - set(formats.options()) == set()


def test_a_configuration_means_what_it_meant(tmp_path: Path) -> None:
    then = json.loads((SAMPLES / "settings.json").read_bytes())
    now = as_document(load(str(SAMPLES / "settings.toml"), {}).settings)
    defaults = as_document(Settings())
    for section, keys in then["read"].items():
        assert {key: now[section][key] for key in keys} == keys
        assert {key: defaults[section][key] for key in keys} == then["defaults"][section]
