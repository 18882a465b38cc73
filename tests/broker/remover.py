"""The other side of the races: one process that runs `logagent cleanup --execute` until STOP_FILE exists.

    python -m tests.broker.remover KAFKA_CONFIG STATE_DIR LOG STOP_FILE [--without-interlock]

Ages are zero and limits are off (environment of the caller). One JSON line per round that did or refused something
goes to LOG. `--without-interlock` takes the looks at `.lock` out, to show that the races find what happens then.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys

from logagent.cli import run
from logagent.kafka.processes.lock import Interlock


def take_out_the_interlock() -> None:
    """No look before any unlink or rename; what is left are the guards at the start of each batch."""
    for name in ("before", "after_rename"):
        setattr(Interlock, name, lambda self: None)


def main(config: str, state_dir: str, log: str, stop_file: str, *flags: str) -> None:
    if "--without-interlock" in flags:
        take_out_the_interlock()
    with open(log, "a", buffering=1, encoding="utf-8") as out:
        out.write('{"ready": true}\n')
        while not os.path.exists(stop_file):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                status = run(["cleanup", "--execute", "--json", "--kafka-config", config, "--state-dir", state_dir])
            document = json.loads(said.getvalue()) if said.getvalue() else {}
            outcomes = [a["outcome"] for a in document.get("actions", [])]
            counted = {outcome: outcomes.count(outcome) for outcome in sorted(set(map(str, outcomes)))}
            guards = sorted({r["guard"] for r in document.get("refusals", [])})
            errors = sorted({a["error"] for a in document.get("actions", []) if a["error"]})
            if outcomes or guards or status not in (0, 3):
                out.write(json.dumps({"status": status, **counted, "guards": guards, "errors": errors}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
