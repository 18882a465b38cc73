"""The metadata log on this host's own disk: a source of assignments, and evidence of which cluster others are about.

It is that only for a broker in KRaft mode (`process.roles`). A migration that was reverted leaves one behind
(KAFKA-16463), with our cluster id beside it, which knows nothing of the topics made in ZooKeeper mode since.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from logagent.agent.target import Target
from logagent.broker.files.meta_properties import META_PROPERTIES, read_meta_properties
from logagent.errors import UnreadableError
from logagent.files.safe_open import opened_directory
from logagent.model.assignments.verdict import Host

if TYPE_CHECKING:
    from logagent.broker.metadata_log.log import MetadataImage

METADATA_DIR = "__cluster_metadata-0"
MODE_UNKNOWN = (
    "whether the broker uses it is unknown, since its configuration was not read (a migration to KRaft that was"
    " reverted leaves such a log behind): name server.properties with --kafka-config"
)


def why_no_source(target: Target) -> str:
    """Why `read_own_log` read nothing."""
    if target.config is not None and not target.server.process_roles:
        return (
            f"{target.config} has no process.roles, so this broker is in ZooKeeper mode and uses no metadata log (one"
            " on this host would be left over from a migration)"
        )
    return "there is no metadata log on this host (it may be stored elsewhere)"


def mode_unknown(target: Target) -> str | None:
    """Why a metadata log that was read proves nothing, whatever it says; None if the broker uses it."""
    return MODE_UNKNOWN if target.config is None else None


def read_own_log(target: Target, host: Host, now_ms: int) -> MetadataImage | None:
    """What it says; None if there is none, or if the broker's configuration says that it is in ZooKeeper mode.

    Without that configuration it is read, but `mode_unknown` says why it proves nothing. Its cluster id comes from the
    `meta.properties` beside it: the log itself has none. Raises UnreadableError.
    """
    if target.config is not None and not target.server.process_roles:
        return None
    if target.config is None:
        directory = next((d for d in target.log_dirs if os.path.isdir(os.path.join(d, METADATA_DIR))), None)
    else:
        directory = target.server.metadata_log_dir
    if directory is None or not os.path.isdir(os.path.join(directory, METADATA_DIR)):
        return None
    from logagent.broker.metadata_log.log import read_metadata_log

    return read_metadata_log(
        os.path.join(directory, METADATA_DIR),
        node_id=host.node_id,
        cluster_id=_cluster_id_beside(directory),
        now_ms=now_ms,
        configured_voters=len(target.server.quorum_voters) or None,
        fetch_timeout_ms=target.server.quorum_fetch_timeout_ms,
        booted_ms=now_ms - time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000,
    )


def _cluster_id_beside(directory: str) -> str | None:
    try:
        with opened_directory(directory, follow=True) as dir_fd:
            meta = read_meta_properties(dir_fd)
    except OSError as e:
        raise UnreadableError(f"{os.path.join(directory, META_PROPERTIES)}: {e.strerror}") from e
    if meta is None:
        raise UnreadableError(f"there is no {META_PROPERTIES} in {directory}")
    return meta.cluster_id
