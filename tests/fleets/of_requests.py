"""How far the deletions of a store have come, from its requests that a key vouches for and the answers to them."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.fleets.published import Row


def deletion_progress(store: Path, key_id: str) -> list[Row]:
    """Nothing has an outcome yet: what agents have done is in their answers. `key_id`: the one that is trusted."""
    asked: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for path in store.glob("control/*/requests/*/request.json"):
        signed = json.loads(path.read_bytes())
        if signed["key_id"] != key_id:
            continue
        request = json.loads(base64.b64decode(signed["payload"]))
        answers = store.glob(f"answers/{request['cluster_id']}/*/{path.parent.name}.json")
        said = {int(answer.parent.name): json.loads(answer.read_bytes()) for answer in answers}
        done = {
            (node, row["log_dir"], row["name"]): row["result"]
            for node, each in said.items()
            for row in each.get("directories", ())
            if row["state"] == "done"
        }
        for row in request.get("directories", ()):
            result = done.get((row["node_id"], row["log_dir"], row["name"]))
            freed = row["bytes"] if result == "removed" else 0
            copy = {"node": row["node_id"], "bytes": row["bytes"], "done": result is not None, "freed": freed}
            asked[request["cluster_id"], row["topic"]].append(copy | {"at": request["at"]})
        for topic in request.get("topics", ()):
            nodes = [node for partition in topic["partitions"] for node in partition["replicas"]]
            whole = [topic.get("bytes", 0), *(0 for _ in nodes[1:])]
            for node, size in zip(nodes, whole, strict=True):
                copy = {"node": node, "bytes": size, "done": False, "freed": 0, "at": request["at"]}
                asked[request["cluster_id"], topic["topic"]].append(copy)
    return [{"cluster_id": cluster, "topic": topic} | _of(copies) for (cluster, topic), copies in asked.items()]


def _of(copies: list[Row]) -> dict[str, Any]:
    marked, removed = len(copies), sum(copy["done"] for copy in copies)
    hosts = {copy["node"] for copy in copies}
    busy = {copy["node"] for copy in copies if not copy["done"]}
    sums = {"marked_bytes": "bytes", "removed_bytes": "freed"}
    return {
        "marked": marked, "removed": removed, "remaining": marked - removed, "done_share": removed / marked,
        "hosts": len(hosts), "hosts_done": len(hosts - busy), "since": min(copy["at"] for copy in copies)[:10],
        **{name: sum(copy[of] for copy in copies) for name, of in sums.items()},
    }  # fmt: skip
