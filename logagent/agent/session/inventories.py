"""Scans every log dir of a session, each in its own call, with one counter for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from logagent.errors import KafkaStorageError
from logagent.host.inventory.scan import LogDirInventory, ScanTurn, ScanTurns, scan_log_dir
from logagent.host.log_dir.calls import DiskCalls, Stop, refuse_if
from logagent.host.log_dir.log_dir import OpenLogDir


def scan_log_dirs(
    opened: Mapping[str, OpenLogDir],
    known: dict[str, LogDirInventory],
    calls: DiskCalls,
    on_progress: Callable[[int], None] | None,
    only: Callable[[str], bool] | None,
) -> dict[str, LogDirInventory]:
    """The inventories of those that could be scanned, by path.

    known: the last inventories, from which these continue; replaced in place for log dirs that did not fail during the
    scan. A scan uses up the known inventory: if it is given up, none is left.
    """
    done: dict[str, int] = dict.fromkeys(opened, 0)
    turns = ScanTurns()

    def job(path: str, log_dir: OpenLogDir, previous: LogDirInventory | None) -> Callable[[Stop], LogDirInventory]:
        def scan(stop: Stop) -> LogDirInventory:
            turn = ScanTurn(turns)

            def tell(count: int) -> None:
                refuse_if(stop, path)
                done[path] = count
                if on_progress is not None:
                    on_progress(sum(done.values()))
                turn.tick()

            with turn:
                inventory = scan_log_dir(log_dir, previous, on_progress=tell, only=only)
            done[path] = len(inventory.dirs)
            return inventory

        return scan

    scanned: dict[str, LogDirInventory] = {}
    for path, found in calls.work({path: job(path, d, known.pop(path, None)) for path, d in opened.items()}).items():
        if isinstance(found, LogDirInventory):
            scanned[path] = found
            if opened[path].offline() is None:
                known[path] = found
        elif not isinstance(found, KafkaStorageError):
            raise found
    return scanned
