"""For tests beside a process that stands for a serving broker: what the journal knows once a real one has answered."""

from __future__ import annotations

from pathlib import Path

from logagent.base.clock import SystemClock
from logagent.base.linux.kernel import process_start_time_ms
from logagent.cleanup.state.journal import Journal
from logagent.verdict.facts import SeenHolder


def seen_serving(state_dir: Path, pid: int, *log_dirs: Path) -> None:
    """Note that process `pid` said that it serves these log dirs. (That it says so is for real brokers to show.)"""
    started_ms = process_start_time_ms(pid)
    # What was said before it started would be another one's word.
    holder = SeenHolder(pid, started_ms, max(started_ms, SystemClock().now_ms()))
    with Journal.open(str(state_dir)) as journal:
        journal.note_serving({str(path): holder for path in log_dirs})
