"""`logagent assignments`: the topics, partitions and replicas of the cluster, for people and for other hosts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from logagent.base.config.config import load_valid_part
from logagent.base.console.options import Call, common, reads_assignments
from logagent.base.console.render import dump, human_ms, table
from logagent.base.errors import Exit, LogAgentError, UsageError
from logagent.base.units import counted, human_time
from logagent.cleanup.session.of_command import read_assignments, refuse_wrong_user, session_of
from logagent.kafka.files.exported import document_pieces, write_assignments
from logagent.kafka.image import AssignmentImage
from logagent.verdict.evidence.assignment_sources import mode_unknown


@click.group()
def assignments() -> None:
    """Show or export the replica assignments that verdicts are based on."""


@assignments.command()
@click.argument("file", metavar="FILE|-")
@reads_assignments
@common
def export(call: Call, file: str) -> None:
    """Write the assignments to FILE or stdout (with --json to both), for a host that cannot read them itself (there:
    --assignments FILE)."""
    image, now = _image(call, for_others=True)
    if file != "-":
        if Path(file).is_dir():
            raise UsageError(f"{file} is a directory", hint="give a file name")
        try:
            write_assignments(file, image)
        except OSError as e:
            raise LogAgentError(f"cannot write {file}: {e.strerror}", hint="name a file in a folder that exists") from e
        call.say(
            f"{counted(image.topic_count, 'topic')}, {counted(image.partition_count, 'partition')},"
            f" {human_ms(image.age_ms(now))} old: {file}"
        )
    if file == "-" or call.json:
        sys.stdout.buffer.writelines(document_pieces(image))
        sys.stdout.buffer.flush()


@assignments.command()
@reads_assignments
@common
def show(call: Call) -> None:
    """Show where the assignments come from, how old they are and how many topics and partitions they cover."""
    image, now = _image(call)
    if call.json:
        dump(json.loads(b"".join(document_pieces(image))))
        return
    rows = [
        ["source", f"{image.source.value}: {image.origin}"],
        ["cluster", image.cluster_id or "unknown"],
        ["at", f"{human_time(image.at_ms)} ({human_ms(image.age_ms(now))} old)"],
        ["offset", "" if image.offset is None else str(image.offset)],
        ["topics", str(image.topic_count)],
        ["partitions", str(image.partition_count)],
        ["brokers", ", ".join(map(str, sorted(image.brokers))) or ", ".join(map(str, sorted(image.nodes)))],
    ]
    table("Assignments", [("", "left"), ("", "left")], rows, color=call.color)


def _image(call: Call, *, for_others: bool = False) -> tuple[AssignmentImage, int]:
    """The image to show, and the time. A metadata log that the broker may not use is refused, however recent it is, and
    `for_others` what is not of the history that is remembered here: another host would take an export of it for what
    the cluster says."""
    settings = load_valid_part(call.config_file)[0].settings
    elsewhere = call.assignments or settings.kafka.bootstrap_servers or "file" in settings.assignments.sources
    if not elsewhere:
        refuse_wrong_user(call)  # Only the log dirs are left to read.
    with session_of(call) as session:
        read_assignments(session, call, to_show=True)
        image, now = session.assignments.shown, session.clock.now_ms()
        doubt = mode_unknown(session.target)
        if image is not None and doubt is not None and image is session.assignments.own_log:
            raise LogAgentError(
                f"{image.origin} is no source of assignments: {doubt}",
                hint="or set kafka.bootstrap_servers, to ask the cluster",
            )
        found = session.assignments
        if image is not None and for_others:
            of_log = found.lineage_problem if image is found.own_log else None
            if (why := of_log or found.other_history) is not None:
                raise LogAgentError(
                    f"{image.origin or image.source} is no source of assignments for other hosts: {why}",
                    hint="export them where the metadata log is the true one",
                )
        if image is None and session.assignments.unreachable is not None:
            raise session.assignments.unreachable
        if image is None:
            raise LogAgentError(
                "no source of assignments could be read",
                hint="set kafka.bootstrap_servers for the Admin API, or run this on a KRaft node",
            )
        if not session.assignments.usable:
            call.record_status(Exit.FAILED)
    return image, now
