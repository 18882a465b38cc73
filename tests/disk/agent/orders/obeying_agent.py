"""`python -m tests.disk.agent.orders.obeying_agent CONFIG STATE_DIR`: agents that look for orders once and obey.

For each line on stdin one agent, a process of its own: its id is a line on stdout, it stops itself before it begins,
and the line after that is its status as of `os.waitpid`. It ends with 1 for what a daemon's cycle would report as
failed, and with a traceback for anything else. Forked, because at each of hundreds of calls most time went to imports.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback

from logagent.agent.clock import SystemClock
from logagent.agent.config import load
from logagent.agent.orders.box import box_of
from logagent.agent.session.open_session import open_session
from logagent.agent.target import resolve_target
from logagent.errors import LogAgentError


def main() -> int:
    for _ in sys.stdin:
        agent = os.fork()
        if agent == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
            status = 70
            try:
                status = obey_once()
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        os.waitpid(agent, os.WUNTRACED)
        print(agent, flush=True)
        print(os.waitpid(agent, 0)[1], flush=True)
    return 0


def obey_once() -> int:
    settings, clock = load(sys.argv[1]).settings, SystemClock()
    target = resolve_target(settings, ())
    try:
        with open_session(target, settings, clock, state_dir=sys.argv[2], act=True, actor="daemon") as session:
            session.read_assignments()
            session.take_inventory()
            box = box_of(settings, sys.argv[2], clock, session)
            assert box is not None
            box.receive()
            box.obey(session, session.facts(), lambda: False)
        box.send()
    except (LogAgentError, OSError) as error:
        print(f"said: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
