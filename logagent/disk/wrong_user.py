"""Refuses a user who may not read the log dirs, for the commands that are nothing without them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from functools import wraps
from typing import Any

from logagent.base.console.options import Call, F
from logagent.base.errors import LogAgentError, NotPermitted

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
    from logagent.kafka.files.server_properties import read_server_properties

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
    from logagent.base.linux.access import READ, SEARCH
    from logagent.base.linux.child import ask_as, lacking

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
