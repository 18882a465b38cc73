"""How large a file of each kind may be. A larger one was not written by Kafka or by us, and is not read.

Each limit is well above what a host with a million partitions needs. The limits guard against sparse files and disks
that return garbage; they do not judge a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB


@dataclass(frozen=True, slots=True)
class FileLimit:
    """What a file is called in messages, and the most bytes that are read from it."""

    what: str
    max_bytes: int


CONFIG: Final = FileLimit("a configuration file", MIB)
PROPERTIES: Final = FileLimit("a properties file", MIB)
META_PROPERTIES: Final = FileLimit("a meta.properties", 64 * KIB)
PARTITION_METADATA: Final = FileLimit("a partition.metadata", 64 * KIB)
QUORUM_STATE: Final = FileLimit("a quorum-state", 256 * KIB)
# About 250,000 entries with the longest topic names, a million with usual ones.
CHECKPOINT: Final = FileLimit("an offset checkpoint", 64 * MIB)
LEADER_EPOCHS: Final = FileLimit("a leader-epoch-checkpoint", 16 * MIB)
# `metadata.log.segment.bytes` and `segment.bytes` are ints; the index of a segment is far smaller than the segment.
SEGMENT: Final = FileLimit("a segment", 2 * GIB)
INDEX: Final = FileLimit("an index file", 2 * GIB)
SNAPSHOT: Final = FileLimit("a metadata snapshot", 2 * GIB)
EXPORTED_ASSIGNMENTS: Final = FileLimit("exported assignments", 256 * MIB)
PEM: Final = FileLimit("a PEM file", MIB)
SCRIPT: Final = FileLimit("a start script", MIB)
UNIT: Final = FileLimit("a systemd unit", MIB)
MARKER: Final = FileLimit("a file of logagent's", MIB)
DATABASE: Final = FileLimit("a journal", GIB)
REPORT_TABLE: Final = FileLimit("a table of a fleet report", 4 * GIB)
STORE_FILE: Final = FileLimit("a file of the fleet job's", 256 * MIB)
