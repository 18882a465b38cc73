"""`logagent explain --what-if KEY=VALUE`: what would go, and what would stay all the same, if topics had these settings
of their own. Asks the same rules as `explain`, once with the settings of now and once with these; changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from logagent.advice.explain.host import Explained, Explainer, Sum, goes_in_words, merged, sum_document, why_in_words
from logagent.base.config.settings import parse_duration, parse_size
from logagent.base.console.options import Call
from logagent.base.console.render import human_bytes, show_line, table, visible
from logagent.base.errors import UsageError
from logagent.base.records import Kind
from logagent.kafka.files.server_properties import broker_listeners
from logagent.kafka.retention import settings as names
from logagent.kafka.retention.reasons import Group, RetentionReason
from logagent.kafka.retention.topic_retention import kafka_configs

if TYPE_CHECKING:
    from logagent.advice.explain.documents import WhatIfDoc
    from logagent.cleanup.session.session import Session

# What the next checks delete.
_DUE: Final = frozenset({RetentionReason.DUE, RetentionReason.BELOW_LOG_START})
_BOOLEANS: Final = frozenset({names.TIERED, names.COPY_DISABLED})
_POLICIES: Final = frozenset({"delete", "compact"})


def parsed_settings(given: Iterable[str]) -> dict[str, str]:
    """By setting, the text as a topic would have it: `3d` and `10GiB` in ms and bytes. Raises UsageError."""
    found: dict[str, str] = {}
    for text in given:
        key, has_value, value = text.partition("=")
        key, value = key.strip(), value.strip()
        if not has_value or key not in names.TOPIC_SETTINGS:
            hint = f"KEY=VALUE, with one of {', '.join(sorted(names.TOPIC_SETTINGS))}"
            raise UsageError(f"--what-if {text}: not a setting of topics that explain knows", hint=hint)
        try:
            found[key] = value
            if key == names.CLEANUP_POLICY:
                words = [word.strip() for word in value.strip("[]").split(",")]
                if not _POLICIES.issuperset(words):
                    raise ValueError("delete, compact or compact,delete")
                found[key] = ",".join(words)
            elif key in _BOOLEANS:
                if value not in ("true", "false"):
                    raise ValueError("true or false")
            elif key == names.MIN_DIRTY_RATIO:
                if not 0 <= float(value) <= 1:
                    raise ValueError("a number from 0 to 1")
            else:
                number = names.parsed_ms(value)
                if number is None:
                    number = parse_duration(value) if key.endswith(".ms") else parse_size(value)
                if number < (least := names.AS_RETENTION if key.startswith("local.") else -1):
                    raise ValueError(f"at least {least}")
                found[key] = str(number)
        except ValueError as e:
            raise UsageError(f"--what-if {text}: {e}") from None
    return found


# The document, and why the rest stays, and until when, otherwise than now or as now.
WhatIf = tuple["WhatIfDoc", Sequence[Sum], Sequence[Sum]]


def what_if(explainer: Explainer, wanted: Sequence[Explained], own: Mapping[str, str]) -> list[WhatIf]:
    """For each topic and log dir of `wanted`, which is what `explainer` said of it, what the rules say with `own`; what
    frees most first."""
    by_place: dict[tuple[str, str], list[Explained]] = {}
    for e in wanted:
        if e.dir.kind is Kind.CURRENT and e.dir.topic is not None:
            by_place.setdefault((e.dir.topic, e.dir.log_dir), []).append(e)
    then = Explainer(explainer.session, explainer.facts, explainer.layers.with_own({t for t, _ in by_place}, own))
    after = {e.dir.key: e.groups for e in then.dirs(e.dir for of_place in by_place.values() for e in of_place)}
    found: list[WhatIf] = []
    for (topic, log_dir), dirs in by_place.items():
        changed: list[Sum] = []
        unchanged: list[Sum] = []
        goes = anyway = after_all = 0
        for e in dirs:
            before, groups = ([g for g in of if g.segments] for of in (e.groups, after.get(e.dir.key, ())))
            due, due_then = (sum(g.allocated for g in of if g.reason in _DUE) for of in (before, groups))
            # Segments go from the oldest on: what goes in one case is the beginning of what goes in the other.
            goes, anyway = goes + max(due_then - due, 0), anyway + min(due, due_then)
            after_all += max(due - due_then, 0)
            as_now = {_without_value(g) for g in before}
            for g in groups:
                if g.reason not in _DUE:
                    one = Sum(g.reason, g.setting, g.first)
                    one.add(g, e.dir.key)
                    (unchanged if _without_value(g) in as_now else changed).append(one)
        changed, unchanged = merged(changed), merged(unchanged)
        document: WhatIfDoc = {
            "topic": topic,
            "log_dir": log_dir,
            "directories": len(dirs),
            "settings": [{"key": key, "value": text, "source": names.Source.TOPIC} for key, text in own.items()],
            "goes": goes,
            "goes_anyway": anyway,
            "stays_after_all": after_all,
            "changed": [sum_document(s) for s in changed],
            "unchanged": [sum_document(s) for s in unchanged],
            "command": command_line(explainer.session, topic, own),
        }
        found.append((document, changed, unchanged))
    return sorted(found, key=lambda w: (-w[0]["goes"], w[0]["topic"], w[0]["log_dir"]))


def _without_value(group: Group) -> tuple[object, ...]:
    return group.reason, group.setting and group.setting.key.removeprefix("log."), group.at_ms, group.first


def command_line(session: Session, topic: str, own: Mapping[str, str]) -> str:
    """The `kafka-configs.sh` command line that sets it for good, for a shell on this host."""
    words = (f"{key}=[{text}]" if "," in text else f"{key}={text}" for key, text in own.items())
    server, kafka = session.target.server.props, session.settings.kafka
    listeners = broker_listeners(server) if session.target.config is not None else ()
    own_address = next((f"{e.host}:{e.port}" for e in listeners if e.protocol == "PLAINTEXT" or kafka.client), None)
    client = ("--command-config", kafka.client) if kafka.client is not None else ()
    servers = kafka.bootstrap_servers or own_address
    return kafka_configs(topic, "--alter", "--add-config", ",".join(words), *client, servers=servers)


def answer_what_if(
    call: Call, own: Mapping[str, str], explainer: Explainer, dirs: Sequence[Explained]
) -> tuple[list[WhatIfDoc], Callable[[], None]]:
    """The documents, and what prints them for people."""
    found = what_if(explainer, dirs, own)
    return [document for document, *_ in found], partial(show_what_if, call, found, own, explainer.facts.now_ms)


def show_what_if(call: Call, found: Sequence[WhatIf], own: Mapping[str, str], now_ms: int) -> None:
    columns = [("topic", "dir"), ("would", "left"), ("allocated", "right"), ("when, or why not", "text")]
    rows: list[list[str]] = []
    for document, changed, unchanged in found:
        topic = f"{document['log_dir']}/{document['topic']}"
        due = [("go", document["goes"]), ("go anyway", document["goes_anyway"])]
        rows += [[topic, would, human_bytes(size), "at the next check"] for would, size in due if size]
        if document["stays_after_all"]:
            rows.append([topic, "not go", human_bytes(document["stays_after_all"]), "it would now"])
        for would, sums in (("stay, but", changed), ("stay as now", unchanged)):
            for s in sums:
                goes = goes_in_words(s.at_ms, s.last_at_ms, s.first, now_ms)
                why = f"{why_in_words(s.reason, s.setting)}{f': {goes}' if goes else ''}"
                rows.append([topic, would, human_bytes(s.allocated), why])
    if not rows:
        return
    what = ", ".join(f"{key}={text}" for key, text in own.items())
    table(f"If topics had {what} (nothing is changed)", columns, rows, color=call.color)
    does = [d["command"] for d, changed, _ in found if d["goes"] or d["stays_after_all"] or changed]
    if does:
        show_line("To set it, for all replicas:")
        for line in dict.fromkeys(does):
            click.echo(visible(line))
