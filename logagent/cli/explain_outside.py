"""What `logagent explain` shows of what is outside the log dirs on their file systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from logagent.agent.session.session import Session
from logagent.cli.options import Call
from logagent.cli.render import human_bytes, table
from logagent.model.outside import OtherLogDir, Outside, PlaceKind, Whose, whose

if TYPE_CHECKING:
    from logagent.documents.inventory import OutsideDoc

_WHOSE: Final = {
    Whose.METADATA_LOG_DIR: "metadata.log.dir of this node",
    Whose.THIS_NODE: "log dir of this node, not in its log.dirs",
    Whose.OTHER_NODE: "log dir of node {node} of this cluster",
    Whose.OTHER_CLUSTER: "log dir of node {node} of cluster {cluster}",
    Whose.UNKNOWN: "log dir without meta.properties",
}
_KINDS: Final = {
    PlaceKind.DIRECTORY: "{files} files",
    PlaceKind.REMAINDER: "{files} files (the rest of it)",
    PlaceKind.FILE: "file",
}


def outside_document(session: Session, outside: Outside) -> OutsideDoc:
    return {
        "root": outside.root,
        "log_dirs": [
            {
                "path": d.path,
                "whose": _whose(session, d),
                "cluster_id": d.cluster_id,
                "node_id": d.node_id,
                "partitions": d.partitions,
                "allocated": d.allocated,
                "in_use": d.in_use,
            }
            for d in outside.log_dirs
        ],
        "places": [
            {"path": p.path, "kind": p.kind, "allocated": p.allocated, "files": p.files} for p in outside.places
        ],
        "rest": outside.rest,
        "rest_files": outside.rest_files,
        "unread_directories": outside.unread,
        "unfinished": outside.unfinished,
    }


def show_outside(call: Call, session: Session, outside: Outside) -> None:
    """Log dirs and other places in one table, largest first; and what is missing from it."""
    lines = [(d.allocated, d.path, _of_log_dir(session, d)) for d in outside.log_dirs]
    lines += [(p.allocated, p.path, _KINDS[p.kind].format(files=f"{p.files:,}")) for p in outside.places]
    lines.sort(key=lambda line: -line[0])
    if outside.rest:
        lines.append((outside.rest, "", f"everything else, {outside.rest_files:,} files"))
    columns = [("allocated", "right"), ("what", "text"), ("path", "path")]
    rows = [[human_bytes(allocated), what, path] for allocated, path, what in lines]
    if rows:
        table(f"Outside the log dirs, below {outside.root}", columns, rows, color=call.color)
    if outside.unfinished is not None:
        where = f" (below {outside.root})" if outside.root else ""
        call.say(f"not everything outside the log dirs was counted{where}: {outside.unfinished}")
    if outside.unread:
        call.say(f"{outside.unread} directories below {outside.root} could not be read, and are not counted")


def _of_log_dir(session: Session, d: OtherLogDir) -> str:
    words = _WHOSE[_whose(session, d)].format(node="?" if d.node_id is None else d.node_id, cluster=d.cluster_id or "?")
    return f"{words}, {d.partitions} partitions{', in use' if d.in_use else ''}"


def _whose(session: Session, d: OtherLogDir) -> Whose:
    cluster, target = session.log_dirs.cluster, session.target
    metadata_log_dir = target.server.metadata_log_dir if target.config is not None else None
    return whose(d, cluster.cluster_id, cluster.node_id, metadata_log_dir)
