"""What `/proc` says about one process: its start time, its user, and what kind of program it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

# In the flags of /proc/PID/stat.
_PF_KTHREAD = 0x00200000
# Apache's (also in its Docker image) and Confluent's main classes.
_BROKER_CLASSES = (b"kafka.", b"org.apache.kafka.", b"io.confluent.")


def process_start_ticks(pid: int) -> int:
    """When `pid` started, in clock ticks since boot; together with the PID it identifies a process.

    Raises `ProcessLookupError` if there is no such process.
    """
    return int(_stat_fields(pid)[19])


def process_start_time_ms(pid: int) -> int:
    """When `pid` started, in milliseconds since the epoch (to the clock tick; the boot time is rounded to seconds).

    Raises `ProcessLookupError` if there is no such process.
    """
    with open("/proc/stat", "rb") as file:
        booted = next(int(line.split()[1]) for line in file if line.startswith(b"btime "))
    return booted * 1000 + process_start_ticks(pid) * 1000 // os.sysconf("SC_CLK_TCK")


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on (the second, the command, may contain blanks and parentheses)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except FileNotFoundError as error:
        raise ProcessLookupError(error.errno, f"there is no process {pid}") from error


def command_name(pid: int) -> str:
    with open(f"/proc/{pid}/comm", "rb") as file:
        return os.fsdecode(file.read()).rstrip("\n")


def is_kernel_thread(pid: int) -> bool:
    """Whether it is a thread of the kernel, which has no files. False if that cannot be read."""
    try:
        return bool(int(_stat_fields(pid)[6]) & _PF_KTHREAD)
    except (OSError, ValueError, IndexError):
        return False


def command_line(pid: int) -> list[bytes]:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().split(b"\0")


def ancestors() -> frozenset[int]:
    """The visible ancestors of this process: shells, `sudo`, the service manager."""
    pids: set[int] = set()
    pid = os.getppid()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        try:
            pid = int(_stat_fields(pid)[1])
        except (OSError, ValueError, IndexError):
            break
    return frozenset(pids)


def is_java(command: str, words: list[bytes]) -> bool:
    """Whether the program itself is a JVM; words in its arguments do not count (`tail -F kafka/server.log` is not
    one)."""
    return command in ("java", "jsvc") or os.path.basename(words[0]) in (b"java", b"jsvc")


def is_kafka(pid: int) -> bool:
    """Whether a process is a JVM or has Kafka's main class on its command line; False if that cannot be read."""
    try:
        words = command_line(pid)
    except OSError:
        return False
    return b"kafka.Kafka" in words or os.path.basename(words[0]) == b"java"


def may_be_a_broker(words: list[bytes]) -> bool:
    """For a JVM: whether its command line has a main class of Kafka, is empty, or hides it in `java @FILE`."""
    hidden = not words[0] or any(word.startswith(b"@") for word in words[1:])
    return hidden or any(word.startswith(_BROKER_CLASSES) for word in words[1:])


def effective_user(pid: int, proc: str = "/proc") -> int:
    with open(f"{proc}/{pid}/status", "rb") as file:
        return next(int(line.split()[2]) for line in file if line.startswith(b"Uid:"))


def mount_namespace(pid: int | str) -> int:
    return os.stat(f"/proc/{pid}/ns/mnt").st_ino


def thread_states(pid: int, proc: str = "/proc") -> str:
    """The kernel's state letters of all threads of a process (`R`, `S`, `D` …); empty if there is no such process."""
    states = ""
    # Threads and processes end at any time; the states of the others still count.
    with suppress(OSError):
        for thread in os.listdir(f"{proc}/{pid}/task"):
            with suppress(OSError, IndexError), open(f"{proc}/{pid}/task/{thread}/stat", "rb") as file:
                states += file.read(4096).rpartition(b")")[2].split()[0].decode("ascii", "replace")
    return states


_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp


def process_listens(pid: int, port: int) -> bool:
    """Whether process `pid` has a TCP socket that listens on `port`, in our network namespace; False if unknown.

    A port that a starting broker has not bound yet can be taken by any local user, who could then answer in its place.
    """
    try:
        if os.stat(f"/proc/{pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino:
            return False
        wanted = _listening_inodes(pid, port)
        return bool(wanted) and not wanted.isdisjoint(_socket_inodes(pid))
    except OSError:
        return False


def listening_processes(port: int) -> Iterator[int]:
    """The processes that listen on the TCP port `port` of our network namespace, as far as we may see."""
    wanted = _listening_inodes("self", port)
    for name in os.listdir("/proc") if wanted else ():
        # Another user's process, or one that has just ended, is not seen.
        with suppress(OSError):
            if name.isdecimal() and not wanted.isdisjoint(_socket_inodes(int(name))):
                yield int(name)


def _listening_inodes(pid: int | str, port: int) -> frozenset[str]:
    inodes: set[str] = set()
    for table in ("tcp", "tcp6"):
        # A kernel without IPv6 has no tcp6.
        with suppress(FileNotFoundError), open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
            for fields in (line.split() for line in lines):
                # sl, local address, remote address, state, queues, timer, retransmits, uid, timeout, inode
                if len(fields) > 9 and fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(fields[9])
    return frozenset(inodes)


def _socket_inodes(pid: int) -> set[str]:
    directory = f"/proc/{pid}/fd"
    inodes: set[str] = set()
    for number in os.listdir(directory):
        with suppress(FileNotFoundError):  # closed meanwhile
            link = os.readlink(f"{directory}/{number}")
            if link.startswith("socket:["):
                inodes.add(link[len("socket:[") : -1])
    return inodes
