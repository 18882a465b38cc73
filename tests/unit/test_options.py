"""No option is ignored: the value of every declared one is read by its command, on some path.

An option that only some commands need is declared by those. The common options are promised for every command
(README), so where one has no effect it is listed here with the reason.
"""

from __future__ import annotations

from pathlib import Path

import logagent

ROOT = Path(logagent.__file__).parent
# How a common option reaches a command: the attributes of Call, and what of Call reads them.
READ_AS = {
    "kafka_config": {"kafka_config", "settings"},
    "config_file": {"config_file", "settings", "state_dir"},
    "log_dirs": {"log_dirs"},
    "state_dir_named": {"state_dir"},
    "assignments": {"assignments", "settings"},
    "json": {"json"},
    "verbose": {"verbose", "detail"},
    "no_color": {"color"},
}
