"""How Kafka parses a directory name, as a document and for people. Touches no disk."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from logagent.base.console.render import short_name, table
from logagent.base.dir_names import classify, current_name
from logagent.base.records import Kind

if TYPE_CHECKING:
    from logagent.advice.explain.documents import NameDoc

_UUID: Final = re.compile(r"[0-9a-f]{32}")


def explain_document(name: str) -> NameDoc:
    """`logagent.explain/1`: what Kafka makes of a directory name (`names.classify`). Never raises.

    `remote-log-index-cache` is valid although Kafka's parser would refuse it: the broker skips that directory. `valid`:
    whether a broker starts if a log dir contains a directory of this name; `error` says why not.
    """
    parsed = classify(name)
    return {
        "schema": "logagent.explain/1",
        "name": name,
        "kind": parsed.kind,
        "topic": parsed.topic,
        "partition": parsed.partition,
        "uuid": parsed.uuid,
        "topic_truncated": parsed.truncated,
        "valid": parsed.kind is not Kind.INVALID,
        "error": parsed.error,
    }


def last_part(path: str) -> str:
    """As `java.io.File.getName`: names are often pasted, or expanded by a shell, with their log dir."""
    return path.rstrip("/").rpartition("/")[2]


def show_names(explanations: Iterable[NameDoc], *, color: bool) -> None:
    columns = [("name", "left"), ("kind", "left"), ("topic", "left"), ("partition", "right"), ("note", "left")]
    rows = [
        (short_name(e["name"]), e["kind"], short_name(e["topic"] or ""),
         "" if e["partition"] is None else str(e["partition"]), _note(e))
        for e in explanations
    ]  # fmt: skip
    table("", columns, rows, color=color)


def _note(explanation: NameDoc) -> str:
    """Remarks for a person, besides the parts."""
    if explanation["error"] is not None:
        return f"a broker does not start with it: {explanation['error'].partition(': ')[2]}"
    kind = explanation["kind"]
    notes = []
    if kind is Kind.METADATA:
        notes.append("the KRaft metadata log: never touched")
    if kind is Kind.CACHE:
        notes.append("index cache of tiered storage: brokers ignore it")
    if kind is Kind.STRAY:
        notes.append("brokers before 3.6.1 do not start with it")
    if explanation["topic_truncated"]:
        notes.append("the topic name may be truncated")
    topic, partition, uuid = explanation["topic"], explanation["partition"], explanation["uuid"]
    if topic is not None and partition is not None:
        plain = current_name(topic, partition)
        stem = explanation["name"] if uuid is None else explanation["name"].rpartition(".")[0]
        if stem != plain:
            notes.append(f"another spelling of {short_name(plain)}: the same partition to the broker")
    if uuid is not None and _UUID.fullmatch(uuid) is None:
        notes.append("the part before the suffix is not a UUID: no broker wrote this name")
    return "; ".join(notes)
