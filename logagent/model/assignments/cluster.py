"""Whether all log dirs of a host belong to the configured node (Kafka's `MetaPropertiesEnsemble.verify`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MetaLook:
    """`meta.properties` of one log dir. `missing`: there is none. `error`: why it cannot be read."""

    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None
    missing: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The ids that all log dirs agree on, and by log dir why nothing may be done there. `copied`: log dirs with the
    same directory.id as another one, so that one is a copy, and nobody can tell which."""

    cluster_id: str | None
    node_id: int | None
    problems: Mapping[str, str] = field(default_factory=dict)
    copied: Collection[str] = ()


def agree(metas: Mapping[str, MetaLook], configured_node_id: int | None) -> ClusterFacts:
    """Compare the `meta.properties` of the online log dirs.

    An unformatted log dir is a problem only of that log dir. Ids that differ, or that are not the configured node's,
    are a problem of every log dir, because any of them may be the wrong one.
    """
    problems = {path: "it is unformatted (no meta.properties)" for path, m in metas.items() if m.missing}
    problems |= {path: f"its meta.properties cannot be read: {m.error}" for path, m in metas.items() if m.error}
    readable = {path: m for path, m in metas.items() if not m.missing and not m.error}
    clusters = {m.cluster_id for m in readable.values() if m.cluster_id is not None}
    nodes = {m.node_id for m in readable.values() if m.node_id is not None and m.node_id >= 0}
    doubt: str | None = None
    if len(clusters) > 1:
        doubt = f"the log dirs belong to different clusters: {_each(readable, 'cluster_id')}"
    elif len(nodes) > 1:
        doubt = f"the log dirs belong to different nodes: {_each(readable, 'node_id')}"
    elif configured_node_id is not None and nodes and nodes != {configured_node_id}:
        doubt = f"meta.properties says node {next(iter(nodes))}, the broker's configuration {configured_node_id}"
    elif any(m.error for m in metas.values()) and readable:
        doubt = "another log dir's meta.properties cannot be read"
    if doubt is not None:
        problems |= dict.fromkeys(readable, doubt)
    problems |= {p: "its meta.properties has no cluster.id" for p, m in readable.items() if m.cluster_id is None}
    return ClusterFacts(
        next(iter(clusters)) if len(clusters) == 1 else None,
        next(iter(nodes)) if len(nodes) == 1 else configured_node_id,
        problems,
        _copied(readable),
    )


def _copied(readable: Mapping[str, MetaLook]) -> frozenset[str]:
    by_id: dict[str, list[str]] = {}
    for path, m in readable.items():
        if m.directory_id is not None:
            by_id.setdefault(m.directory_id, []).append(path)
    return frozenset(path for paths in by_id.values() if len(paths) > 1 for path in paths)


def _each(readable: Mapping[str, MetaLook], attribute: str) -> str:
    return ", ".join(f"{path} {getattr(m, attribute)}" for path, m in sorted(readable.items()))
