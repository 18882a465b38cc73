"""Damages of a node's disk: one table, and three runners that take its rows.

A row is a `Damage` (`row.py`): what is done to the disk of a stopped node (`files`, `directories`, `log_dirs`,
`metadata`), the facts that it gives (`facts`), and in `answers.tsv` by kind of node and release what `logagent check`
says to it and what a broker then does. The rules' runner (tests/unit/advice/check/rules/test_damages.py) has them
decide from the facts, the runner on disk (tests/disk/cli/test_damages.py) runs `logagent check` on the disks of
tests/fixtures, and the one on real brokers (tests/broker/check/test_damages.py) starts them.
"""

from tests.damages.directories import OF_DIRECTORIES
from tests.damages.files import IN_FILES
from tests.damages.log_dirs import OF_LOG_DIRS
from tests.damages.metadata import OF_METADATA

DAMAGES = {damage.id: damage for damage in (*OF_DIRECTORIES, *IN_FILES, *OF_METADATA, *OF_LOG_DIRS)}
assert len(DAMAGES) == len(OF_DIRECTORIES) + len(IN_FILES) + len(OF_METADATA) + len(OF_LOG_DIRS)
