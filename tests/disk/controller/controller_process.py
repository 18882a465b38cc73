"""`python -m tests.disk.controller.controller_process STORE CLUSTER ROUNDS`: a controller as a process of its own.

Its Admin API writes each topic id that it was asked to delete as a line to `STORE/asked`, in one write.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path

from logagent.controller.deletion_client import TopicOutcome
from logagent.controller.replica_deletions import Pauses
from logagent.controller.rounds import DeletionRounds
from logagent.controller.setting import Setting
from logagent.store.control import Control
from logagent.store.deletion import RequestedTopic
from logagent.store.epochs import EpochLost
from logagent.store.signing import public_key
from tests.disk.controller.small_fleet import KEY


class RecordingAdmin:
    """A cluster that deletes whatever it is asked for, and says so in a file."""

    def __init__(self, record: Path) -> None:
        self._fd = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def topics_now(self, topics: Mapping[str, str]) -> Mapping[str, RequestedTopic]:
        return {}

    def unknown_ids(self, topics: Mapping[str, str]) -> Collection[str]:
        return set(topics)

    def in_sync(self, topics: Mapping[str, str]) -> Mapping[tuple[str, int], frozenset[int]]:
        return {}

    def delete_topics(self, topics: Mapping[str, str]) -> Mapping[str, TopicOutcome]:
        os.write(self._fd, "".join(f"{os.getpid()} {topic_id}\n" for topic_id in topics).encode())
        return dict.fromkeys(topics, TopicOutcome("deleted"))

    def reassigning(self, topics: Mapping[str, str]) -> Collection[str]:
        return ()


def controller(store: Path, cluster: str) -> DeletionRounds:
    return DeletionRounds(
        Setting(Control(store, cluster), KEY, (public_key(KEY.public()),), RecordingAdmin(store / "asked"),
                lambda: datetime.now(UTC), "ops", f"pid-{os.getpid()}", pauses=Pauses())
    )  # fmt: skip


def main() -> int:
    store, cluster, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    ours = controller(store, cluster)
    try:
        ours.start()
        print(f"epoch {ours.epoch}", flush=True)
        for _ in range(rounds):
            ours.round()
            print("round", flush=True)
            time.sleep(0.02)
    except EpochLost as lost:
        print(f"lost: {lost}", flush=True)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
