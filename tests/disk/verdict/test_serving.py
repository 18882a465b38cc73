"""A broker that still loads is not taken for one that serves, whatever the daemon looked at in between."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from logagent.base.config.settings import GuardSettings
from logagent.base.dir_names import delete_name, stray_name
from logagent.cleanup.state.journal import Journal
from tests.command_line import process
from tests.disk.service.daemon.test_daemon_directories import cycles
from tests.disk.sessions import SETTINGS, FailingHost
from tests.host_files import bulk_partition, format_log_dir
from tests.hosts import HEX
from tests.serving import seen_serving

# Holds the lock of the log dir and has open what it has loaded so far.
LOADING = """
import fcntl, sys
log_dir, *loaded = sys.argv[1:]
lock = open(log_dir + "/.lock", "a")
fcntl.lockf(lock, fcntl.LOCK_EX)
files = [open(path) for path in loaded]
print("ready", flush=True)
sys.stdin.read()
"""


def test_marked_directories_that_are_open_do_not_make_a_broker_serve(tmp_path: Path) -> None:
    """The delete queue looks at `-delete` directories only: that those are loaded says nothing of the others."""
    log_dir = format_log_dir(tmp_path / "d1")
    bulk_partition(log_dir, "orders-0")
    stray = bulk_partition(log_dir, stray_name("payments", 0, HEX))
    marked = bulk_partition(log_dir, delete_name("clicks", 0, HEX))
    host = FailingHost(tmp_path / "state", log_dir, settings=replace(SETTINGS, guard=GuardSettings(settle=0)))
    life = cycles(host)
    with process(LOADING, log_dir, *marked.glob("*.log")):
        for _ in range(2):
            assert life.queue().error is None
        with Journal.open_read_only(str(host.state)) as journal:
            assert journal.serving() == {}
        summary = life.cleanup()
        assert summary.results == {}
        assert summary.refusals == {"window": 1}, "the stray; what is marked waits for the broker"
        hint = summary.refused_because["window"].hint
        assert "nothing to do" in hint and "stop the broker" not in hint
        assert stray.is_dir() and marked.is_dir()


def test_a_broker_that_has_everything_open_may_still_be_recovering(tmp_path: Path) -> None:
    """It opens each log before it recovers it, and strays come last: one that is removed then ends it."""
    log_dir = format_log_dir(tmp_path / "d1")
    standing = [bulk_partition(log_dir, name) for name in ("orders-0", delete_name("clicks", 0, HEX))]
    stray = bulk_partition(log_dir, stray_name("payments", 0, HEX))
    host = FailingHost(tmp_path / "state", log_dir, settings=replace(SETTINGS, guard=GuardSettings(settle=0)))
    life = cycles(host)
    with host.session():
        pass  # Now there are assignments: the topic of the stray is gone.
    with process(LOADING, log_dir, *(f for d in (*standing, stray) for f in d.glob("*.log"))) as holder:
        assert life.cleanup().refusals == {"window": 1}, "the stray; what is marked waits for the broker"
        assert stray.is_dir()
        # Once it has said that it serves, it goes.
        seen_serving(host.state, holder, log_dir)
        assert life.cleanup().results == {("remove", "done"): 1}
        assert [d.is_dir() for d in (*standing, stray)] == [True, True, False]
    # Not under the next process that holds the lock.
    stray = bulk_partition(log_dir, stray_name("payments", 1, HEX))
    with process(LOADING, log_dir, *(f for d in (*standing, stray) for f in d.glob("*.log"))):
        assert life.cleanup().refusals == {"window": 1}, "the stray; what is marked waits for the broker"
