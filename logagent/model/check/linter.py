"""The start-up linter: what would keep this broker from starting, or make it take a log dir offline. Without I/O.

All codes, as observed on real nodes (tests/broker/check: what each release makes of more than 140 damaged files and
layouts). Codes are stable. A node that is a controller only loads no partition directory, so there are no findings
about them.

==========================  ========  ===========  ==========================================================
code                        severity  releases     condition
==========================  ========  ===========  ==========================================================
unparsable-name             fatal     all          a directory whose name is not a partition's (`bar`, `.trash`, `-0`)
lost-and-found              fatal     all          `lost+found`: the log dir is the root of a file system
stray-unsupported           fatal     < 3.6.1      a `-stray` directory
cache-unsupported           fatal     < 3.5.0      `remote-log-index-cache` (2.5.1 fails, 3.5.2 does not)
duplicate-partition         fatal     all [1]      two current directories of one partition, here or in two log dirs
duplicate-future            fatal     all [1]      two `-future` directories of one partition
future-beside-current       fatal     all          a `-future` directory in the log dir of its own current one
delete-through-link         fatal     all          a symlink named `-delete`: the segments it leads to are deleted
broken-partition-metadata   fatal     >= 2.8.0     a `partition.metadata` that Kafka cannot read, or an empty one
no-topic-id                 fatal     3.7.0        no `partition.metadata` (KRaft)
no-topic-id                 warning   >= 3.7.1     the same: set aside; fatal if assigned: recreated empty (KRaft)
odd-segment-file            fatal     all          `backup.log`: named like a segment file, but without an offset [4]
mounted-partition           warning   all          a partition directory that is a mount point
too-long-to-delete          warning   < 2.2.2      a name too long to be marked for deletion (KAFKA-4893)
too-long-to-delete          fatal     < 2.2.2      the same, and the deletion was tried: offline again at each start
future-name-too-long        info      all          a name too long for `-future` to be added
linked-partition            info      all          a partition directory that is a symlink
undecodable-name            info      all          a name that is not UTF-8
wrong-directory             info      all          the cluster expects the partition in another log dir
duplicate-log-dir           fatal     all [2]      one directory listed twice, by name or through a symlink
nested-log-dir              fatal     all          a log dir or `metadata.log.dir` inside a log dir
stray-metadata-log          fatal     all          `__cluster_metadata-0` outside `metadata.log.dir` (KRaft) [5]
broken-metadata-log         fatal     all          a file of the metadata log that Kafka cannot read (KRaft) [6]
other-directory-id          fatal     >= 3.9.0     the only voter of a dynamic quorum has another `directory.id` (KRaft)
no-quorum                   fatal     all          no `controller.quorum.bootstrap.servers` and no voters (KRaft)
broken-epochs               fatal     all          a partition's `leader-epoch-checkpoint` that Kafka cannot read
reserved-broker-id          fatal     < 4.0.0      `broker.id` above `reserved.broker.max.id` (ZooKeeper)
no-broker-id                fatal     < 4.0.0      no `broker.id`, and none is generated (ZooKeeper)
lost-broker-id              fatal     < 4.0.0      no log dir knows the generated id: a new one is taken (ZooKeeper)
empty-log-dirs-item         fatal     >= 4.2.0     `log.dirs=/a,,/b`
no-process-roles            fatal     >= 4.0.0     a ZooKeeper-mode configuration
relative-log-dir            warning   all          a relative path
log-dir-missing             fatal     all          no such directory (ZooKeeper mode: a warning, the broker creates it)
log-dir-not-a-directory     fatal     all          not a directory
log-dir-failed              fatal     all          disk errors, or no answer
read-only                   fatal     all          mounted read-only
full                        fatal     all          no free block or inode
low-space, low-inodes       warning   all          less than 2 % free
temporary-log-dir           warning   all          below `/tmp` or `/var/tmp`, and not on a mount there
log-dir-on-root             warning   all          on the root file system
unformatted                 fatal     all          no `meta.properties` (ZooKeeper mode: a warning)
meta-properties-malformed   fatal     all          a `meta.properties` that Kafka cannot read
foreign-cluster             fatal     all          log dirs of two clusters
foreign-node                fatal     all          log dirs of two nodes, or not of the configured one
duplicate-directory-id      fatal     >= 3.7.0     two log dirs with the same `directory.id`
access-denied               fatal     all          owner or mode keep the broker's user out
lock-held                   fatal     all          another process holds the lock
hidden-holder               warning   all          a process without the lock has files open here
given-up                    warning   all          the running broker took this log dir offline
broken-checkpoint           fatal     all          an offset checkpoint that Kafka cannot read
broken-checkpoint           warning   >= 3.5.0     the same with an out-of-range number [3]
deleted-at-start            warning   2.8 to 3.6   a current directory that is not assigned to this broker (KRaft)
no-directory                warning   all          assigned here without a directory: a start makes it anew, empty
stray-emptied               warning   all          a stray below the log start offset of the partition of its name
open-exchange               warning   all          `restore --replace` was cut short: one dir has another's name
leftover-temp-file          info      all          a temporary file of logagent's
broker-overrides            warning   all          `--override` on the command line of the broker or its unit
version-contradicted        warning   all          `kafka.version`, what runs or ran last, and the jars differ
broker-running              info      all          this broker is running; the rest is about its next start
not-verified                warning   all          could not be inspected from here
==========================  ========  ===========  ==========================================================

[1] From 3.7.1 on, a KRaft broker first sets aside what is not its own by topic id; different topic ids are then info.
[2] The same spelling twice in `log.dirs` is fatal only before 4.2.
[3] Fatal for the replication checkpoint (the partitions of that log dir are not served), and before 3.5.0.
[4] `backup.swap` from 2.6.0 on: 2.5.1 ignores it.
[5] Also the node's own one, if `metadata.log.dir` spells the log dir otherwise than `log.dirs` does.
[6] `quorum-state` from 3.8.0 on: earlier releases begin a new one.

If the version is unknown, what is fatal for only some releases is a warning.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

from logagent.model.check.log_dirs import check_log_dirs
from logagent.model.check.long_names import check_long_names
from logagent.model.check.metadata_dir import check_metadata
from logagent.model.check.partition_dirs import check_names
from logagent.model.check.paths import check_broker_id, check_meta, check_paths
from logagent.model.check.start_facts import StartFacts
from logagent.model.finding import Finding, Severity, concerning, warning
from logagent.model.kafka_version import Version

SHOWN_ALIKE = 20
"""How many findings of one code in one directory are listed; one more says how many are left out."""


def check(facts: StartFacts, version: Version | None, *, at_least: Version | None = None) -> list[Finding]:
    """Every finding that concerns `version` (None: any release from `at_least` on), the worst first."""
    findings = [*check_paths(facts), *check_log_dirs(facts), *check_meta(facts), *check_broker_id(facts)]
    findings += [*check_metadata(facts), *_check_version(facts), *_check_overrides(facts), *_check_exchanges(facts)]
    if not facts.server.controller_only:  # a controller never reads partition directories
        findings += [*check_names(facts), *_check_emptied(facts), *check_long_names(facts), *_without_directory(facts)]
    return _without_repetition(concerning(findings, version, at_least=at_least))


def _check_version(facts: StartFacts) -> Iterator[Finding]:
    doubt = facts.kafka_version.doubt()
    if doubt is not None:
        yield warning("version-contradicted", facts.server.config or "", doubt.fact, doubt.hint)


def _check_overrides(facts: StartFacts) -> Iterator[Finding]:
    for o in facts.overrides:
        yield warning(
            "broker-overrides",
            facts.server.config or "",
            f"{o.who} has --override {o.setting}: this setting is in force, whatever the file says, and check read only"
            " the file",
            "put the setting into the file and start the broker without the override; until then, read the findings"
            " about log dirs with that in mind",
        )


def _check_exchanges(facts: StartFacts) -> Iterator[Finding]:
    for path, name in facts.open_exchanges.items():
        yield warning(
            "open-exchange",
            path,
            f"logagent restore --replace was cut short: {name} is restored, and the directory it displaced still"
            " has the stray name of the restored one",
            "do not restore or remove it by that name; the next logagent command with --execute (or the daemon in"
            " enforce mode) gives it its own name while the broker is stopped",
        )


def _check_emptied(facts: StartFacts) -> Iterator[Finding]:
    for e in facts.emptied:
        end = f"its log ends at {e.log_end}" if e.log_end is not None else "the end of its log is unknown"
        yield warning(
            "stray-emptied",
            e.path,
            f"the checkpointed log start offset for its name is {e.log_start_offset}, and {end}: the broker deletes its"
            " segments when it next loads it",
            "if its records matter, move it out of the log dir before the next start (or logagent restore it)",
        )


def _without_directory(facts: StartFacts) -> Iterator[Finding]:
    for w in facts.without_directory:
        what = "and no other replica is in sync" if w.only_copy else "and is copied from its leader"
        if w.only_copy is None:
            what = "and whether another replica has its records is unknown here"
        hint = f"{w.aside} is of it: logagent restore" if w.aside is not None else "if it was removed by hand: logagent"
        if w.aside is None:
            hint += " rescue shows what a process still has open of it; stop or restart nothing before"
        says = f"{w} is assigned to this broker and has no directory here: a start makes it anew, empty, {what}"
        yield warning("no-directory", str(w), says, hint)


def _without_repetition(findings: list[Finding]) -> list[Finding]:
    """Keep the first 20 findings of a kind in each log dir, and say how many more there are."""
    keys = [(f.severity, f.code, f.path.rpartition("/")[0]) for f in findings]
    counts = Counter(keys)
    shown: dict[tuple[Severity, str, str], int] = defaultdict(int)
    kept = []
    for key, f in zip(keys, findings, strict=True):
        shown[key] += 1
        if shown[key] <= SHOWN_ALIKE:
            kept.append(f)
        elif shown[key] == SHOWN_ALIKE + 1:
            rest = counts[key] - SHOWN_ALIKE
            kept.append(replace(f, path=key[2], says=f"and {rest} more like the {SHOWN_ALIKE} above"))
    return kept
