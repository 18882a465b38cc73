"""Several workers remove the segments of one large directory, each in a thread and with an interlock of its own."""

from __future__ import annotations

import threading

from logagent.errors import RemovalStopped
from logagent.host.removal.unlink import FileRemover
from logagent.host.removal.work_control import Progress

# With fewer segments than this each, threads cost more than they gain.
SEGMENTS_PER_WORKER = 50


def one_at_a_time(on_progress: Progress) -> Progress:
    mutex = threading.Lock()

    def guarded(files: int, size: int) -> None:
        with mutex:
            on_progress(files, size)

    return guarded


def remove_segments(workers: list[FileRemover], fd: int, pending: list[str]) -> None:
    """Let all workers remove the segments of the directory, each taking every n-th whole segment. `pending` keeps what
    is left: files of no segment, and directories."""
    bases = {name[:20]: 0 for name in reversed(pending) if name[20:21] == "." and name[:20].isdigit()}
    if len(bases) < SEGMENTS_PER_WORKER * len(workers):
        return
    for number, base in enumerate(bases):
        bases[base] = number % len(workers)
    shares: list[list[str]] = [[] for _ in workers]
    rest: list[str] = []
    for name in pending:
        number = bases.get(name[:20], -1) if name[20:21] == "." else -1
        (rest if number < 0 else shares[number]).append(name)
    pending[:] = rest + _together(workers, fd, shares)


def _together(workers: list[FileRemover], fd: int, shares: list[list[str]]) -> list[str]:
    """Let each worker remove its share, the first one (and each that gets no thread) in this thread. Returns the
    directories that they found.

    The first failure stops all of them at their next file and is raised when they all have stopped.
    """
    failures: list[BaseException] = []
    directories: list[str] = []

    def work(worker: FileRemover, share: list[str]) -> None:
        try:
            # One file at a time towards the end, so that the others notice one worker's failure.
            while share and not failures:
                portion = [share.pop() for _ in range(min(8, len(share)))][::-1]
                while portion:
                    met = worker.remove_files(fd, portion)
                    if met is not None:
                        directories.append(met)
        except BaseException as failure:
            failures.append(failure)

    threads: list[threading.Thread] = []
    ours = [(workers[0], shares[0])]
    for pair in zip(workers[1:], shares[1:], strict=True):
        thread = threading.Thread(target=work, args=pair, name="logagent-removal", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the thread limit; nobody may leave here before those that were started have ended
            ours.append(pair)
        else:
            threads.append(thread)
    for worker, share in ours:
        work(worker, share)
    for thread in threads:
        thread.join()
    if failures:
        # A failure says more than a worker that was asked to stop.
        raise next((f for f in failures if not isinstance(f, RemovalStopped)), failures[0])
    return directories
