"""Imports inside functions: each is listed here, with the reason why it is not at the top of its file.

What is counted is an import statement within a function of `logagent/`, as `tests.frozen.figures` counts. An import at
the top is the rule, as the file of a command is loaded only when that command runs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import logagent
from tests.frozen.figures import read

ROOT = Path(logagent.__file__).parents[1]
SMALL = ("--help", "explain --names x-0")
# Named files that are not there: what is loaded then is what is imported at the top, whatever runs on this host.
OFTEN = (*SMALL, "history --state-dir /nowhere", "status --state-dir /nowhere", "queue --kafka-config /nowhere")

# Why, what is imported (of the product a module, else the package), and the commands that have to start without it.
REASONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("`--version` is answered without click", "logagent.cli", ()),
    ("`explain --names` and `--help` print text", "json", SMALL),
    ("only a shell that completes asks",
     "click.shell_completion logagent.base.dir_names logagent.kafka.retention.settings", ()),
    ("only what was mistyped is compared", "difflib", SMALL),
    ("`systemctl show` is asked by doctor, check and setup only", "subprocess", OFTEN),
    ("only where a file, or what a daemon answers, is validated",
     "pydantic pydantic_core logagent.service.status.documents", OFTEN),
    ("`explain --names` and `--help` read no configuration and look at no disk",
     "logagent.advice.explain.host logagent.base.config.config logagent.base.config.settings"
     " logagent.base.linux.state_dir"
     " logagent.kafka.files.properties logagent.kafka.processes.discovery logagent.base.linux.access"
     " logagent.base.linux.access", SMALL),
    ("a daemon that neither publishes nor takes requests does not hold it in memory",
     "logagent.service.publish logagent.deletion.agent.node_requests logagent.deletion.agent.memory"
     " logagent.deletion.agent.directories", OFTEN),
    ("only where processes are looked at", "psutil", OFTEN),
    ("only where a setting is misspelled", "difflib", OFTEN),
    ("only the daemon watches folders", "watchdog", OFTEN),
    ("prometheus_client: only a daemon that is asked for metrics", "logagent.service.metrics", OFTEN),
    ("kafka-python: only where a cluster is asked",
     "logagent.kafka.admin.client logagent.kafka.admin.reader logagent.kafka.admin.client_properties"
     " logagent.kafka.admin.topic_deletion", OFTEN),
    ("`queue` shows what is marked without assignments",
     "logagent.kafka.metadata_log.log logagent.kafka.metadata_log.replay logagent.kafka.files.exported", OFTEN),
    ("`queue` shows what is marked without verdicts, and plans nothing",
     "logagent.cleanup.session.gather logagent.cleanup.plan.planner", OFTEN),
    ("what only looks does not load what acts",
     "logagent.cleanup.execute.renames logagent.cleanup.execute.log_manager"
     " logagent.cleanup.execute.recovery logagent.cleanup.execute.changeable logagent.disk.unlink",
     OFTEN),
    ("only where a level of `metadata.version` is named", "logagent.kafka.release_table", OFTEN),
    ("only beside a broker that runs can a log dir be one that it gave up", "logagent.disk.health", OFTEN),
    ("`queue` reads of moves only where there are `-future` directories", "logagent.verdict.copies", OFTEN),
    ("a broker waits for `prestart`, which checks only after it has acted", "logagent.advice.check.run_check", OFTEN),
    ("it looks up its own version among all packages, which takes longer than most commands", "crc32c", OFTEN),
    ("an extra, for stores in a bucket", "obstore logagent.store.objects", OFTEN),
    ("a machine that runs `submit.py` may have nothing but Spark",
     "cryptography logagent.deletion.store.answers logagent.store.signing", OFTEN),
    ("an extra: without pyspark, `fleet` shows its help and `init` works",
     "logagent.fleet.demo logagent.fleet.ingest.dates logagent.fleet.job logagent.fleet.page.document"
     " logagent.fleet.spark_session logagent.fleet.submit logagent.fleet.tables.store", OFTEN),
    ("`topics` asks only of a store on a mount which kind it is", "logagent.base.linux.kernel", SMALL),
)  # fmt: skip
KNOWN = {name for _, names, _ in REASONS for name in names.split()}


def found() -> set[str]:
    """What functions import: a module of the product, or another package."""
    modules = read(ROOT)
    lazy = (name for module in modules.values() for name, _ in module.lazy)
    return {_named(name) for name in lazy}


def _named(imported: str) -> str:
    if imported.startswith("logagent"):
        return imported.removesuffix(".__init__")
    name = imported.split()[1]  # the statement itself
    return name if name in KNOWN else name.partition(".")[0]


def test_each_import_in_a_function_has_a_reason() -> None:
    assert found() == KNOWN


def _loaded(command: str) -> frozenset[str]:
    program = "import sys; from logagent.cli import run; run(sys.argv[1:]); print(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, *command.split()], capture_output=True, text=True, check=True)
    return frozenset(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("command", OFTEN)
def test_a_command_starts_without_what_is_imported_in_functions(command: str) -> None:
    unwanted = {name for _, names, without in REASONS if command in without for name in names.split()}
    assert not unwanted & _loaded(command)
