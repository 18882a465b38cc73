"""What the commands for one host share: opening a session, progress, stopping on a signal, and the refusal of a user
who may not read the log dirs, for the commands that are nothing without them.
"""

from __future__ import annotations

import getpass
import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import Any, Self

import click

from logagent.base.clock import SystemClock
from logagent.base.console.options import Call, F
from logagent.base.console.render import human_bytes, human_ms
from logagent.base.errors import ConfigError, Exit, LogAgentError, NotPermitted, UnreadableError
from logagent.base.linux.access import real_path
from logagent.base.linux.state_dir import become_who_acts, stat_directory
from logagent.base.records import Health, Reason
from logagent.base.units import human_time
from logagent.cleanup.session.session import EXECUTOR_WAIT_SECONDS, Session, Shared, open_session
from logagent.cleanup.state.executor_lock import why_not_to_be_opened
from logagent.cleanup.state.reserve import missing_reserve, why_acting_would_fail
from logagent.disk.log_dir import LogDirFailures
from logagent.kafka.processes.target import Target, named_target, resolve_target
from logagent.verdict.brokers import what_helps
from logagent.verdict.evidence.assignment_sources import ADMIN_NOT_CONFIGURED
from logagent.verdict.facts import Facts

# How long a log dir that `--log-dir` leaves out may take to answer.
LEFT_OUT_SECONDS = 2.0
# How long a command asks the cluster that has to answer without it, too.
NETWORK_SECONDS = 10.0


def target_of(call: Call) -> Target:
    """The broker to inspect. If none is named, only `doctor` and -v say which configuration was found."""
    settings = call.settings()
    target = resolve_target(settings, call.log_dirs)
    if target.config is not None and settings.kafka.config is None:
        call.detail(f"using {target.config}")
    return target


@contextmanager
def session_of(
    call: Call, *, act: bool = False, to_plan: bool = False, wait_seconds: float = EXECUTOR_WAIT_SECONDS
) -> Iterator[Session]:
    """Open the session of one command, to read or (with `act`) to act under the executor lock.

    to_plan: `--log-dir` narrows what is acted on, never what is known. A left-out log dir that does not answer counts
    as offline. What such a command could not do for want of its state dir is said at its end.
    """
    target = named_target(call.settings(), call.log_dirs) if act or to_plan else target_of(call)
    failures = LogDirFailures()
    if to_plan:
        for path in target.left_out:
            if real_path(path, LEFT_OUT_SECONDS) is None:
                failures.mark_offline(path, "its disk does not answer")
        target = target.with_all_log_dirs()
    state_dir = call.state_dir
    if call.progress:
        # Loads what it needs as long as we are root: a Python that lies below /root has no modules for anybody else.
        click.progressbar(length=1, file=sys.stderr)
    foreseen = None
    # Root creates it for the user who acts.
    to_be_made = os.geteuid() == 0 and not os.path.lexists(state_dir)
    if to_plan and not act:
        answering = [path for path in target.log_dirs if failures.reason(path) is None]
        foreseen = become_who_acts(state_dir, {path: stat_directory(path) for path in answering})
        foreseen = foreseen or why_not_to_be_opened(state_dir)
    with open_session(
        target,
        call.settings(),
        SystemClock(),
        state_dir=state_dir,
        act=act,
        actor=f"cli:{_user()}",
        shared=Shared(failures, wait_seconds=wait_seconds, refused=foreseen),
    ) as session:
        lacks = session.journal_problem
        try:
            yield session
        except LogAgentError:
            if to_plan and lacks is not None:
                _say_what_acting_lacks(call, state_dir, lacks)
            raise
    if act or to_plan:
        if not act and lacks is None and (e := why_acting_would_fail(state_dir, root_makes_it=to_be_made)) is not None:
            lacks = Reason(str(e), e.hint or "")
        _say_what_acting_lacks(call, state_dir, lacks)


def _say_what_acting_lacks(call: Call, state_dir: str, problem: Reason | None) -> None:
    """A dry run says what would keep the command from acting; both say where the journal has no reserve."""
    if problem is not None:
        call.tell(problem, "acting would fail: ")
    elif (warning := missing_reserve(state_dir)) is not None:
        call.say(warning)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def take_inventory(session: Session, call: Call) -> None:
    """Scan, with a counter on the terminal if it takes long."""
    with Progress(call, "Scanning", total=None) as progress:
        session.take_inventory(progress.set_count)


def read_assignments(
    session: Session, call: Call, *, to_show: bool = False, quiet: bool = False, seconds: float | None = None
) -> None:
    """Read the sources. Why a source is unusable is reported if that leaves us without verdicts, else (and if `quiet`)
    only with -v.

    Not configuring the Admin API is the operator's choice: `doctor` mentions it, commands only if they have no other
    reason to give. `seconds`: how long the cluster may take (None: as long as its requests do); what is asked later, of
    leaders, has its own limits. Raises UnreadableError or ConfigError if `--assignments` was given and cannot be used
    (not with `to_show`, which shows what is wrong with it).
    """
    # `prestart` has set what half of its budget is, for what is read again, too.
    own = session.network_seconds
    session.network_seconds = own if seconds is None else seconds
    session.read_assignments()
    session.network_seconds, read = own, session.assignments
    if seconds is not None and read.reader is not None:
        read.reader.stop_at(math.inf)
    unusable = unusable_assignments_file(session, call)
    if unusable is not None and not to_show:
        raise unusable
    for problem in read.problems:
        chosen = problem == ADMIN_NOT_CONFIGURED and len(read.problems) > 1
        # `say_where_they_end` says it in full.
        quiet = quiet or (read.ends_at_stop is not None and not to_show)
        quietly = quiet or (read.log_doubt is not None and problem.startswith("kraft-log:") and not to_show)
        (call.detail if read.usable or chosen or quietly else call.say)(f"assignments: {problem}")
    if to_show and read.log_doubt is not None:
        call.tell(read.log_doubt, folded=True)


def say_where_they_end(session: Session, call: Call) -> None:
    """After the log dirs were looked at: that nobody says what happened since the broker stopped, and what the metadata
    log on this host does not prove; and what helps."""
    if (doubt := session.assignments.log_doubt) is not None:
        call.tell(doubt, folded=True)
    if (note := session.assignments.ends_at_stop) is not None:
        call.say(note, folded=True)
        settings = session.settings
        hint = what_helps(settings.kafka.bootstrap_servers, asks="admin" in settings.assignments.sources)
        call.say(f"  hint: {hint}", folded=True)


def unusable_assignments_file(session: Session, call: Call) -> LogAgentError | None:
    """What is wrong with the `--assignments` file: without it nothing would be decided, and a command would end with
    "nothing to do" as if all were well."""
    return None if session.assignments.usable else unusable_file(call, session.assignments.problems)


def unusable_file(call: Call, problems: Sequence[str]) -> LogAgentError | None:
    """The same for problems found by other code that read the file."""
    if call.assignments is None:
        return None
    says, hint = "; ".join(problems), "export it again: logagent assignments export FILE"
    if os.access(call.assignments, os.R_OK, effective_ids=True):
        return UnreadableError(f"--assignments: {says}", hint=hint)
    problem = f"--assignments {call.assignments}: {'not there' if not os.path.exists(call.assignments) else 'refused'}"
    return ConfigError(problem, problems=(problem,), hint="name a file that can be read")


def note_health(call: Call, facts: Facts) -> None:
    """Offline log dirs count in the exit status of every command that read them."""
    for f in facts.log_dirs.values():
        if f.health is Health.OFFLINE:
            call.record_status(Exit.OFFLINE)
            call.say(f"log dir {f.path} is offline: {f.health_reason}")


def nothing_is_due(until_ms: Sequence[int | None], now_ms: int) -> str:
    """The sentence where everything waits; `until_ms`: for what, by directory, where that is known."""
    dates = [ms for ms in until_ms if ms is not None and ms > now_ms]
    waits, the_first = ("waits", "") if len(until_ms) == 1 else ("wait", "the first ")
    when = f", {the_first}until {human_time(min(dates))}" if dates else ""
    undated = f" ({len(until_ms) - len(dates)} without a date)" if 0 < len(dates) < len(until_ms) else ""
    return f"nothing is due: {len(until_ms)} {waits}{when}{undated}"


# No progress bar before this: it would only flicker. Then it is drawn again this often.
_PATIENCE_SECONDS, _REDRAW_SECONDS = 0.5, 0.1


class Stopper:
    """SIGINT and SIGTERM set a flag: work stops between two files, and the journal records that. After Ctrl-C the
    command ends with 130."""

    def __init__(self, call: Call) -> None:
        self.stopped = False
        self._call = call
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        return self.stopped

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopped = True
        if number == signal.SIGINT:
            self._call.record_status(Exit.INTERRUPTED)


# Where there is no terminal, a log gets a line as often as this.
_LINE_SECONDS = 60.0


class Progress:
    """A progress bar on stderr if that is a terminal and the work takes long enough; else, of bytes, a line a minute.
    `total`: bytes; None: things of which nobody knows how many there are."""

    def __init__(self, call: Call, what: str, total: int | None) -> None:
        self.on_bytes: Callable[[int, int], None] | None = self._advance_bytes if call.progress else None
        self._bar: Any = None
        if total and not call.progress:
            started = time.monotonic()
            self._call, self._what, self._total = call, what, total
            self._started, self._next_line, self._done = started, started + _LINE_SECONDS, 0
            self.on_bytes = self._say_bytes
        self._ahead = 0
        self._next = time.monotonic() + _PATIENCE_SECONDS
        if not call.progress:
            return
        self._bar = click.progressbar(
            iter(int, 1) if total is None else None,  # an iterable without a length
            length=total,
            label=what,
            show_pos=total is None,
            item_show_func=None if total is None else lambda _: self._size_and_rate(),
            width=24,  # so that the line fits into 80 columns
            file=sys.stderr,
            color=call.color,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None and self._bar.entered:
            self._bar.render_finish()

    def _size_and_rate(self) -> str:
        seconds = self._bar.time_per_iteration
        return human_bytes(self._bar.pos) + (f", {human_bytes(round(1 / seconds))}/s" if seconds else "")

    def _say_bytes(self, files: int, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now < self._next_line:
            return
        self._next_line = now + _LINE_SECONDS
        rate = self._done / (now - self._started)
        left = (
            f", {human_ms(int((self._total - self._done) / rate * 1000))} left" if 0 < self._done < self._total else ""
        )
        done, total = human_bytes(self._done), human_bytes(self._total)
        self._call.say(f"{self._what}: {done} of {total}, {human_bytes(round(rate))}/s{left}")

    def set_count(self, count: int) -> None:
        if self._bar is not None:
            self._advance(count - self._bar.pos - self._ahead)

    def _advance_bytes(self, files: int, count: int) -> None:
        self._advance(count)

    def _advance(self, steps: int) -> None:
        self._ahead += steps
        if self._bar is not None and time.monotonic() >= self._next:
            self._bar.entered = True
            self._bar.update(self._ahead)
            self._ahead, self._next = 0, time.monotonic() + _REDRAW_SECONDS


# How long the log dirs may take to show whether this user may read them.
_RIGHTS_SECONDS = 2.0


def refuse_wrong_user(call: Call) -> None:
    """Raise NotPermitted if this user may not read a configuration file, or none of the log dirs, which are somebody
    else's: whatever else the command said would be a consequence of that.

    One log dir that refuses beside others that do not is not the user's fault, nor is one of the user's own.
    """
    if os.geteuid() == 0:
        return
    from logagent.base.config.config import load_valid_part
    from logagent.kafka.files.properties import read_server_properties

    try:
        config = call.kafka_config or load_valid_part(call.config_file)[0].settings.kafka.config
        log_dirs = call.log_dirs or (read_server_properties(config).log_dirs if config is not None else ())
    except LogAgentError as e:
        if isinstance(e.__cause__, PermissionError):
            raise
        return  # The command says it, after its own usage.
    if log_dirs and (closed := _closed_to_us(log_dirs)) is not None:
        from logagent.base.linux.access import user_name

        path, owner = closed
        name = user_name(owner)
        again = shlex.join(["sudo", "-u", f"#{owner}" if name == str(owner) else name, "logagent", *call.words])
        raise NotPermitted(
            f"you are {user_name(os.geteuid())} and may not read {path}, which belongs to {name}",
            hint=f"run it as the broker's user: {again}",
        )


def _closed_to_us(log_dirs: Sequence[str]) -> tuple[str, int] | None:
    """One of `log_dirs` and its owner, if none of them may be read and it is somebody else's. None also if their disks
    do not answer in time."""
    from logagent.base.linux.access import READ, SEARCH, ask_as, lacking

    def closed() -> list[tuple[str, int] | None]:
        lacks = [(lacking(path, READ | SEARCH), path) for path in log_dirs]
        return [(path, os.stat(x["at"]).st_uid) if x["lacks"] and x["exists"] else None for x, path in lacks]

    try:
        answers = ask_as(None, closed, _RIGHTS_SECONDS)
    except OSError:
        return None
    others = [answer for answer in answers if answer is not None and answer[1] != os.geteuid()]
    return others[0] if others and None not in answers else None


def needs_log_dirs(command: F) -> F:
    """Put below `common` on a command that is nothing without the log dirs: a user who may not read them is told
    so, before anything else. `doctor` reports missing rights in its findings, `prestart` never keeps a broker from
    starting, and `explain` and `assignments` need the log dirs only for some answers."""

    @wraps(command)
    def refusing(call: Call, **kwargs: Any) -> None:
        refuse_wrong_user(call)
        command(call, **kwargs)

    return refusing  # type: ignore[return-value]
