"""Plans a rescue: every step that may be offered, in order, until enough is freed. Reads for that what inventory and
facts do not have: what each directory would free, the logs of duplicates, the ages of segments.

Carries it out: what is removed directly, what is set aside and then removed in the same run, and more of what is due
while the file system has got back less than is needed.

One step after the other: no copy of another step is read before a marked directory is gone, and on a full disk a rename
may need what the removals before it have freed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TypeVar

from logagent.base.claims import Claim
from logagent.base.dir_names import LOG_START_OFFSET, REMOTE_LOG_METADATA, REPLICATION, classify, leftovers
from logagent.base.errors import LogAgentError
from logagent.base.linux.kernel import kind_of
from logagent.base.records import (
    LIVE_KINDS,
    DirKey,
    Holder,
    HolderState,
    Identity,
    Kind,
    Outcome,
    PartitionDir,
    TopicPartition,
    Verdict,
)
from logagent.base.units import NOTHING, Space
from logagent.cleanup.execute.log_manager import TRUNCATES_HELD_SINCE, LogManager
from logagent.cleanup.plan.plan import Execution, Flags, Plan, Proposal, Refusal, Waiting, action_id, plan_id, refused
from logagent.cleanup.plan.planner import RETRY, DuePart
from logagent.cleanup.rescue.rules import (
    BOOKS_BYTES,
    EARLY,
    LARGEST_TOPICS,
    BrokersPart,
    CameBack,
    Offer,
    OpenRemoved,
    RemovedByHand,
    Rescue,
    Step,
    advise,
    approved,
    at_risk,
    given_back,
    in_order,
    kept,
    loaded,
    offer_duplicate,
    offer_leftovers,
    removal_of,
    up_to,
    with_approval,
    without_a_stop,
)
from logagent.cleanup.session.gather import own_log_dirs, rule_on_strays
from logagent.cleanup.session.session import Session, new_uuid
from logagent.disk.calls import Stop
from logagent.disk.log_dir import BROKER_FILES, OpenLogDir
from logagent.disk.unlink import gives_back
from logagent.kafka.files.checkpoint_files import TEMP_PREFIX, Entries
from logagent.kafka.files.properties import META_PROPERTIES, broker_listeners
from logagent.kafka.files.segment_files import read_log_files
from logagent.kafka.processes.broker_process import inspect_process
from logagent.kafka.retention.reasons import bytes_due, offsets_of, settings_of
from logagent.kafka.retention.settings import (
    CLEANUP_POLICY,
    LOCAL_RETENTION,
    REMOTE_STORAGE,
    RETENTION,
    TopicConfigs,
    kafka_configs,
)
from logagent.verdict.copies import Duplicates, duplicates, moves_of, pairs
from logagent.verdict.evidence.stray_questions import read_as_loaded
from logagent.verdict.facts import Facts, unread_processes

T = TypeVar("T")
# With what `kafka-storage.sh format` writes.
_KAFKAS_FILES = frozenset({*BROKER_FILES, "bootstrap.checkpoint"})
# Free inodes of a file system that creates them on demand (btrfs).
UNCOUNTED = 1 << 31


def plan_rescue(
    session: Session,
    facts: Facts,
    *,
    need: int | None,
    approve: str | None = None,
    only_due: bool = False,
    include_internal: bool = False,
    leave_out: Collection[DirKey] = (),
) -> Rescue:
    """What can be freed now. `only_due`: without what would need approval (plain `--execute`); `approve`: exactly the
    plan with that id; `leave_out`: directories that are not offered, because they were tried already."""
    found = _possible(session, facts, Flags(include_internal=include_internal), leave_out)
    due = [o for o in found.offers if o.shortens is None]
    only_due = only_due and approve is None
    chosen = up_to(due if only_due else found.offers, need)
    of_that_id = _approved(approve, chosen, found.offers, due) if approve is not None else None
    if of_that_id is not None:
        chosen = of_that_id
    refusals = list(found.refusals)
    if only_due and (need is None or given_back(chosen) < need):
        early = [o for o in found.offers if o.shortens is not None and (need is None or o.helps)]
        # Not the id of a plan that was not shown: it is read first, and approved then.
        hint = "without --execute, the same command shows them as a plan, with the id that approves it"
        refusals += [Refusal.of(o.proposal.dir, refused("policy", f"{EARLY} ({o.shortens})", hint)) for o in early]
    plan = session.plan(
        [o.proposal for o in chosen],
        found.waiting,
        refusals,
        facts=facts,
        approve=approve if of_that_id is None else None,
    )
    # Less than was chosen, if the plan of that id was made before something was added.
    planned = {p.key for p in plan.actions}
    by_key = {o.key: o for o in chosen if o.key in planned}
    return _rescue(session, facts, found, with_approval(plan, by_key, approve), by_key, need)


@dataclass(frozen=True, slots=True)
class _Possible:
    """`offers`: every step that the guards permit, in order; `refusals` and `waiting`: of the others. `concerned`: what
    any of these names. `duplicates`: what is known of all."""

    offers: list[Offer]
    refusals: list[Refusal]
    waiting: list[Waiting]
    concerned: set[DirKey]
    duplicates: Duplicates


def _possible(session: Session, facts: Facts, flags: Flags, leave_out: Collection[DirKey]) -> _Possible:
    offers, waiting = _offers(session, facts, flags)
    duplicate_offers, decided = _duplicates(session, facts, flags)
    offers = [o for o in (*offers, *duplicate_offers) if o.key not in leave_out]
    known = {*leave_out, *(o.key for o in offers)}
    offers += [offer_leftovers(d, *found) for d, found in leftover_files(session, facts) if d.key not in known]
    offers, only_copies = _without_only_copies(session, facts, offers)
    whole = session.plan([o.proposal for o in offers], waiting, only_copies, facts=facts)
    passed = {p.key for p in whole.actions}
    # A directory of which only leftovers go is kept all the same.
    whole_dirs = [o for o in offers if o.step is not Step.LEFTOVERS]
    concerned = {x.key for some in (whole_dirs, waiting, only_copies) for x in some}
    refusals = [r for r in whole.refusals if r.key.name]
    return _Possible(in_order(o for o in offers if o.key in passed), refusals, waiting, concerned, decided)


def _rescue(
    session: Session, facts: Facts, found: _Possible, plan: Plan, offers: dict[DirKey, Offer], need: int | None
) -> Rescue:
    """The plan with everything that a rescue reports beside it."""
    by_hand, spared, given = _removed_by_hand(facts), session.spared, given_back(offers.values())
    if by_hand:
        plan = replace(plan, refusals=tuple(map(without_a_stop, plan.refusals)))
    idle = [o.proposal.dir for o in found.offers if need is not None and not o.helps and o.key not in offers]
    here = [d for d in session.dirs if d.log_dir not in spared]
    missing = None if need is None else need - given
    return Rescue(
        plan,
        offers,
        given_back(found.offers) - given,
        need,
        kept(here, plain_files(session), facts, found.concerned, found.duplicates, idle),
        _open_removed(facts, spared),
        unread_processes(facts.log_dirs),
        brokers_part(session, facts, {o.key for o in found.offers}, missing),
        {path: room for path, room in free_room(session).items() if path not in spared},
        by_hand,
    )


def _approved(approve: str, chosen: list[Offer], possible: list[Offer], due: list[Offer]) -> list[Offer] | None:
    """The offers of the plan with that id: most often it is what is `chosen` now. A plain `--execute` can exceed the
    blast radius: that plan, of what is `due`, can be approved, too."""
    if plan_id(o.proposal for o in chosen) == approve:
        return approved(chosen, approve)
    return approved(possible, approve) or (approved(due, approve) if len(due) < len(possible) else None)


_Found = tuple[Step, Proposal, str | None]


def _offers(session: Session, facts: Facts, flags: Flags) -> tuple[list[Offer], list[Waiting]]:
    """Every step but doubles, before the guards check it, and what cannot be a step now. While the clock is in doubt
    nothing is due: everything would be early, and needs approval."""
    planner = session.planner(facts)
    now, whole = (planner.due(flags, waits_over=over) for over in (False, True))
    doubt = session.recalled.doubt
    why = f" ({doubt.why})" if doubt is not None else ""
    past, within = Step.STRAY_PAST_RETENTION, Step.STRAY_WITHIN_RETENTION
    found = [
        *_due_first(now.marked, whole.marked, Step.MARKED, Step.MARKED, f"file.delete.delay.ms{why}"),
        *_due_first(now.strays, whole.strays, past, within, f"cleanup.stray_retention{why}"),
    ]
    away = [replace(p, flags=flags, then_removed=True) for p in whole.orphans.due]
    found += [(Step.ORPHAN, p, f"cleanup.min_age, cleanup.stray_retention{why}") for p in away]
    # When it goes is what every command shows, whatever is shortened here. The proposal's own date stays the one
    # without waits: by it, what came after a plan was approved is told from what is in that plan.
    planner = planner.after(now)
    room = room_given_back(session, facts, [p.dir for _, p, _ in found])
    offers = [Offer(step, p, _bytes(room, p.dir), wait, planner.says(p.dir).goes_at_ms) for step, p, wait in found]
    return offers, [*whole.marked.waiting, *whole.orphans.waiting]


def _without_only_copies(session: Session, facts: Facts, offers: list[Offer]) -> tuple[list[Offer], list[Refusal]]:
    """An orphan is removed right after it is set aside, so the checks on a stray's removal are made now."""
    rulings = rule_on_strays(session, [o.proposal.dir for o in offers if o.step is Step.ORPHAN], facts.now_ms)
    kept_back = [o for o in offers if o.key in rulings and not rulings[o.key].may_go]

    def refusal(o: Offer) -> Refusal:
        why, covered = rulings[o.key].why, rulings[o.key].covered
        hint = "it stays, as it may be the only copy; logagent cleanup sets it aside when it is due"
        hint += f"; its leader could not be asked: {why.hint}" if why.hint else ""
        return Refusal.of(o.proposal.dir, refused("assigned", why.fact, hint, Claim.COVERED if covered else None))

    return [o for o in offers if o not in kept_back], [refusal(o) for o in kept_back]


def _due_first(now: DuePart, whole: DuePart, past: Step, within: Step, setting: str) -> list[_Found]:
    """What is due, and the rest, with the wait that removing it now would shorten: the setting's, or the one after a
    failed removal."""
    waits = {w.key: "the wait after a failed removal" if w.why.code == RETRY else setting for w in now.waiting}
    rest = [(p, waits[p.key]) for p in whole.due if p.key in waits]
    return [*((past, p, None) for p in now.due), *((within, p, wait) for p, wait in rest)]


def _duplicates(session: Session, facts: Facts, flags: Flags) -> tuple[list[Offer], Duplicates]:
    """Checked only if there are any, because it reads logs. The guard checks again right before each is set aside. Also
    returns what is known of all."""
    logs = read_as_loaded([d for pair in pairs(session.dirs) for d in pair], own_log_dirs(session), session.calls)
    free = {path: room for paths, room in file_systems(session) for path in paths} if logs else {}
    decided = duplicates(session.dirs, facts, logs, session.spared, free)
    found = decided.found
    room = room_given_back(session, facts, [duplicate.dir for duplicate in found])
    session.duplicates = {d.dir.key: d.other for d in found}
    offers = [offer_duplicate(d, _bytes(room, d.dir), new_uuid, flags, facts) for d in found]
    return offers, decided


def _bytes(room: Mapping[DirKey, Space], d: PartitionDir) -> int:
    return room.get(d.key, NOTHING).bytes


def _is_broker(holder: Holder, pid: int) -> bool:
    """Whether it has the lock, or `.lock` open at least: what has nothing but files open may be anybody's."""
    locked = holder.state.is_broker
    return (locked and pid == holder.pid) or pid in holder.lock_open_by


def _open_removed(facts: Facts, spared: Collection[str]) -> list[OpenRemoved]:
    """What is freed when a process ends. A process that keeps what was removed by hand is left out with all that it
    has."""
    never = {file.pid for _, file in at_risk(facts)}
    found: list[OpenRemoved] = []
    for path, where in facts.log_dirs.items():
        by_process: dict[int, dict[Identity, int]] = {}
        for file in where.open_removed:
            if file.pid not in never:
                by_process.setdefault(file.pid, {})[file.identity] = file.allocated
        for pid, files in by_process.items():
            if path not in spared and any(files.values()):
                found.append(OpenRemoved(path, pid, _program(pid), files, _is_broker(where.holder, pid)))
    return sorted(found, key=lambda o: (-o.bytes, o.log_dir, o.pid))


def _removed_by_hand(facts: Facts) -> list[RemovedByHand]:
    """In every log dir: whatever `--log-dir` leaves out is lost with the same process."""
    return [
        RemovedByHand(path, file, _program(file.pid), _is_broker(facts.log_dirs[path].holder, file.pid))
        for path, file in at_risk(facts)
    ]


def _program(pid: int) -> str | None:
    process = inspect_process(pid)
    return process.short_command if process is not None else None


# What is read besides inventory and facts


def inspect_each(
    session: Session, dirs: Iterable[PartitionDir], read: Callable[[int, PartitionDir], T]
) -> dict[DirKey, T]:
    """`read(fd, dir)` for those that still exist and can be opened, log dir by log dir."""

    def of_log_dir(log_dir: OpenLogDir, dirs: Sequence[PartitionDir]) -> dict[DirKey, T]:
        of_them: dict[DirKey, T] = {}
        for d in dirs:
            try:
                with log_dir.acting("read", d.name):
                    fd = log_dir.open_child(d.name, d.identity)
                    try:
                        of_them[d.key] = read(fd, d)
                    finally:
                        os.close(fd)
            except LogAgentError:
                if log_dir.offline() is not None:
                    raise
        return of_them

    by_log_dir: dict[str, list[PartitionDir]] = {}
    for d in dirs:
        by_log_dir.setdefault(d.log_dir, []).append(d)
    opened = session.log_dirs.opened()
    jobs = {path: partial(of_log_dir, opened[path], ds) for path, ds in by_log_dir.items() if path in opened}
    found: dict[DirKey, T] = {}
    for looked in session.calls.call_each(jobs).values():
        if not isinstance(looked, LogAgentError):
            found |= looked
    return found


def room_given_back(session: Session, facts: Facts, dirs: Iterable[PartitionDir]) -> dict[DirKey, Space]:
    """By directory, what its file system gets back if it is removed now."""
    truncates = facts.kafka_version is not None and facts.kafka_version >= TRUNCATES_HELD_SINCE

    def read(fd: int, d: PartitionDir) -> Space:
        where = facts.log_dirs[d.log_dir]
        held = where.holder.state is HolderState.HELD and bool(where.open_by.get(d.name))
        return gives_back(fd, held=held, truncates_held=truncates)

    return inspect_each(session, dirs, read)


def leftover_files(session: Session, facts: Facts) -> list[tuple[PartitionDir, tuple[list[str], int]]]:
    """Of assigned directories on log dirs that no broker uses now: the files that a start would drop, and the bytes
    that their file system gets back."""

    def read(fd: int, d: PartitionDir) -> tuple[list[str], int]:
        names = leftovers(os.listdir(fd))
        size = 0
        for name in names:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                size += status.st_blocks * 512
        return names, size

    free = {p for p, where in facts.log_dirs.items() if where.holder.state is HolderState.FREE and not where.quarantine}
    assigned = [
        d for d in session.of_kind(*LIVE_KINDS) if d.log_dir in free and facts.ruling(d).verdict is Verdict.ASSIGNED
    ]
    seen = inspect_each(session, assigned, read)
    return [(d, seen[d.key]) for d in assigned if d.key in seen and seen[d.key][0]]


def brokers_part(session: Session, facts: Facts, planned: Container[DirKey], need: int | None) -> BrokersPart:
    """`planned`: what the plan removes or could remove; `need`: the bytes that are needed beyond that."""
    if need is not None and need <= 0:
        return BrokersPart()
    configs = _with_signs(session.assignments.topic_configs, session.dirs)
    spared = session.spared
    current = loaded((d for d in session.dirs if d.log_dir not in spared), facts, planned)
    sizes: dict[str, int] = {}
    for d in current:
        sizes[d.topic or ""] = sizes.get(d.topic or "", 0) + d.allocated
    ordered = sorted(sizes, key=lambda topic: (-sizes[topic], topic))
    compacted = [(topic, sizes[topic], configs.policy_of(topic) or "") for topic in ordered if configs.keeps_all(topic)]
    ordered = [topic for topic in ordered if not configs.keeps_all(topic)]
    left_out = [(topic, sizes[topic], why) for topic in ordered if (why := configs.why_no_setting(topic)) is not None]
    largest = [topic for topic in ordered if configs.setting_of(topic) is not None][:LARGEST_TOPICS]
    # Retention does not go on in what is being moved, while the cleaner is on (`explain` says so, too).
    moving = {move.source.key for move in moves_of(session.dirs) if move.source is not None}
    wanted = [d for d in current if d.topic in largest]
    logs = inspect_each(session, wanted, lambda fd, d: read_log_files(fd).segments)
    opened, layers = session.log_dirs.opened(), session.assignments.layers
    tiers = replace(layers, file={**(layers.file or {}), REMOTE_STORAGE: "true"})
    checkpoints: dict[str, tuple[list[Entries], int | None]] = {}
    for path in {d.log_dir for d in wanted}.intersection(opened):
        as_of_ms = opened[path].written_ms(REPLICATION) if facts.log_dirs[path].holder.state.is_broker else None
        read = [opened[path].checkpoint(name) or {} for name in (LOG_START_OFFSET, REPLICATION)]
        checkpoints[path] = read, as_of_ms

    def freed(topic: str, own: Mapping[str, str]) -> int:
        # Where the policy is not known, it may free nothing, and that is said.
        known = {} if configs.policy_of(topic) is not None else {CLEANUP_POLICY: "delete"}
        of = tiers if configs.setting_of(topic) == LOCAL_RETENTION else layers
        settings = settings_of(of.with_own({topic}, {**known, **own}), topic)
        size = 0
        for d in wanted:
            if d.topic == topic and d.key in logs and not (d.key in moving and settings.cleaner.text == "true"):
                where = TopicPartition(topic, d.partition or 0)
                offsets = offsets_of(where, *checkpoints.get(d.log_dir, ((), None)))
                size += bytes_due(logs[d.key], settings, offsets, facts.now_ms)
        return size

    advice, expired = advise(freed, largest, sizes, need, configs)
    advice = [replace(a, command=to_set(session, a.topic, {a.setting: str(a.retention_ms)})) for a in advice]
    return BrokersPart(
        [a for a in advice if a.setting == RETENTION],
        [a for a in advice if a.setting == LOCAL_RETENTION],
        expired,
        compacted[:LARGEST_TOPICS],
        left_out[:LARGEST_TOPICS],
    )


def to_set(session: Session, topic: str, own: Mapping[str, str]) -> str:
    """The `kafka-configs.sh` command line that gives a topic these settings for good, for a shell on this host."""
    words = (f"{key}=[{text}]" if "," in text else f"{key}={text}" for key, text in own.items())
    server, kafka = session.target.server.props, session.settings.kafka
    listeners = broker_listeners(server) if session.target.config is not None else ()
    own_address = next((f"{e.host}:{e.port}" for e in listeners if e.protocol == "PLAINTEXT" or kafka.client), None)
    client = ("--command-config", kafka.client) if kafka.client is not None else ()
    servers = kafka.bootstrap_servers or own_address
    return kafka_configs(topic, "--alter", "--add-config", ",".join(words), *client, servers=servers)


def _with_signs(configs: TopicConfigs, dirs: Iterable[PartitionDir]) -> TopicConfigs:
    """`configs`, with what a broker that has remote storage leaves in its log dirs, whatever `server.properties` says:
    its cache of remote indexes (`RemoteIndexCache`), or the topic of its remote metadata."""
    if not any(d.kind is Kind.CACHE or d.topic == REMOTE_LOG_METADATA for d in dirs):
        return configs
    return replace(configs, tiering=replace(configs.tiering, on_broker=True))


def plain_files(session: Session) -> list[tuple[DirKey, int]]:
    """The files in the log dirs that are acted on and that Kafka did not write, with their bytes on disk."""

    def read(log_dir: OpenLogDir) -> list[tuple[DirKey, int]]:
        with log_dir.acting("read"), os.scandir(log_dir.fd) as entries:
            files: list[tuple[DirKey, int]] = []
            for e in entries:
                # Also what Kafka and we write before it gets its name.
                name = e.name.removeprefix(TEMP_PREFIX).removesuffix(".tmp")
                if name not in _KAFKAS_FILES and e.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        files.append((DirKey(log_dir.path, e.name), e.stat(follow_symlinks=False).st_blocks * 512))
            return files

    online = session.log_dirs.online()
    jobs = {path: partial(read, d) for path, d in online.items() if path not in session.spared}
    looked = session.calls.call_each(jobs).values()
    return [file for files in looked if not isinstance(files, LogAgentError) for file in files]


def free_room(session: Session) -> Mapping[str, Space]:
    """By log dir, what is free for users other than root (a large number if inodes are not counted)."""

    def read(log_dir: OpenLogDir) -> Space:
        with log_dir.acting("statvfs"):
            room = os.fstatvfs(log_dir.fd)
        return Space(room.f_bavail * room.f_frsize, room.f_favail if room.f_files else UNCOUNTED)

    jobs = {path: partial(read, log_dir) for path, log_dir in session.log_dirs.online().items()}
    return {
        path: found for path, found in session.calls.call_each(jobs).items() if not isinstance(found, LogAgentError)
    }


def file_systems(session: Session) -> list[tuple[list[str], int]]:
    """The log dirs that may be acted on by file system, each with its free bytes, the fullest first. Told apart by
    device, as everywhere: subvolumes that share their space count as several. Log dirs that were never used, such as
    the mount point of a disk that is not mounted, are left out."""
    opened, found = session.log_dirs.online(), dict[int, tuple[list[str], int]]()
    looked = session.calls.call_each({path: partial(_is_unused, log_dir) for path, log_dir in opened.items()})
    for path, room in free_room(session).items():
        if path not in session.spared and looked.get(path) is not True:
            found.setdefault(opened[path].identity.device, ([], room.bytes))[0].append(path)
    return sorted(found.values(), key=lambda where: where[1])


def _is_unused(log_dir: OpenLogDir) -> bool:
    """No `meta.properties`, and nothing that is named like what a broker makes: there is nothing to free."""
    with log_dir.acting("read"), os.scandir(log_dir.fd) as entries:
        return not any(e.name == META_PROPERTIES or classify(e.name).kind is not Kind.INVALID for e in entries)


# Carrying it out


def carry_out_rescue(
    session: Session, rescue: Rescue, manager: LogManager, *, approved: bool, include_internal: bool
) -> tuple[Rescue, Execution]:
    """Execute the plan, and then, while less came back than is needed, what else is due: a guard may refuse at the act
    what it let pass before, and other files or processes may keep the blocks of what was removed. Returns the rescue
    with everything that was tried, and the outcome. Raises JournalError.

    `approved`: the plan was approved by its id. Then exactly that plan is carried out.
    """
    before, stop = free_by_device(session), manager.control.stop
    plan, execution = _with_removals(session, rescue.plan, manager)
    rescue = replace(rescue, plan=plan)
    if execution.results or plan.needs_approval is None:
        rescue = _measured(session, rescue, execution, before, stop)
    tried, going_on = set(rescue.offers), not approved and plan.needs_approval is None
    while going_on and rescue.missing and not stop():
        session.take_inventory()
        found = plan_rescue(
            session,
            session.facts(),
            need=rescue.missing,
            only_due=True,
            include_internal=include_internal,
            leave_out=tried,
        )
        tried.update(found.offers)
        rescue = _joined(rescue, found)
        going_on = bool(found.plan.actions) and found.plan.needs_approval is None
        if going_on:
            execution = _together(execution, manager.execute(replace(found.plan, plan_id=rescue.plan.plan_id)))
            rescue = _measured(session, rescue, execution, before, stop)
    return (_with_who_keeps_it(session, rescue) if rescue.came_less else rescue), execution


def _measured(
    session: Session, rescue: Rescue, execution: Execution, before: Mapping[int, FreeBytes], stop: Stop
) -> Rescue:
    """With what came back until now where it acted: elsewhere a broker frees and writes, too."""
    expected = execution.freed_bytes
    acted_on = {p.dir.device for p in rescue.plan.actions}
    rooms = {device: before.get(device) for device in acted_on}
    return replace(rescue, came=what_came(session, rooms, expected - BOOKS_BYTES, stop), expected=expected)


def _with_who_keeps_it(session: Session, rescue: Rescue) -> Rescue:
    """With the processes that keep removed files open now, what this run removed included. What they kept before is no
    reason: it was not free then either."""
    session.take_inventory()
    facts = session.facts()
    now, unread = _open_removed(facts, session.spared), unread_processes(facts.log_dirs)
    acted_on = {p.dir.device for p in rescue.plan.actions}
    before = {identity for o in rescue.open_removed for identity in o.files}
    new = {i: size for o in now for i, size in o.files.items() if i not in before and i.device in acted_on}
    return replace(rescue, open_removed=now, unread_processes=unread, kept_open=sum(new.values()))


def _joined(rescue: Rescue, found: Rescue) -> Rescue:
    """`rescue` with the actions of `found`; if those would need an approval, with a refusal of each instead."""
    actions, refusals, offers, more = found.plan.actions, found.plan.refusals, found.offers, found.more
    stop = found.plan.needs_approval
    if stop is not None:
        hint = "logagent rescue without --need shows all that can be freed;"
        hint += " --execute --approve PLAN_ID carries that plan out"
        each = (Refusal.of(p.dir, refused("blast-radius", stop.why.fact, hint)) for p in actions)
        refusals = (*(r for r in refusals if r != stop), *each)
        actions, offers, more = (), {}, found.more + found.gives_back
    plan = replace(
        rescue.plan,
        actions=(*rescue.plan.actions, *actions),
        refusals=tuple(dict.fromkeys((*rescue.plan.refusals, *refusals))),
    )
    return replace(
        rescue,
        plan=plan,
        offers=rescue.offers | offers,
        more=more,
        by_broker=found.by_broker,
    )


def _with_removals(session: Session, plan: Plan, manager: LogManager) -> tuple[Plan, Execution]:
    """Execute `plan`, and remove what it has set aside: an approval covers that too. Returns the plan with those
    removals, and the outcome of everything."""
    whole, execution = plan, Execution()
    if plan.needs_approval is not None:
        return whole, execution
    for _, group in groupby(plan.actions, key=_step):
        left = list(group)
        while left:
            execution = _together(execution, manager.execute(replace(plan, actions=tuple(left))))
            aside = [p for p in left if p.then_removed and _outcome(execution, p) is Outcome.DONE]
            if not aside:
                break
            then = _removals(session, whole, aside)
            if then.needs_approval is None:
                execution = _together(execution, manager.execute(then))
            whole = replace(
                whole,
                actions=(*whole.actions, *then.actions),
                refusals=(*whole.refusals, *then.refusals),
                needs_approval=then.needs_approval,
            )
            if whole.needs_approval is not None:
                return whole, execution
            # Renames, too, need some space, and there is more of it now.
            left = [p for p in left if _outcome(execution, p) is Outcome.FAILED]
    return whole, execution


def _step(p: Proposal) -> tuple[bool, bool, Kind | None]:
    return p.then_removed, p.duplicate, None if p.then_removed else p.dir.kind


def _removals(session: Session, plan: Plan, aside: Sequence[Proposal]) -> Plan:
    """The removal of what `plan` has just set aside."""
    session.take_inventory()
    before = {(p.new_dir or p.dir.log_dir, p.new_name): p for p in aside}
    removals = [removal_of(d, p) for d in session.dirs if (p := before.get(d.key)) is not None]
    session.duplicates |= {r.key: session.duplicates[before[r.key].key] for r in removals if r.duplicate}
    return replace(session.plan(removals, facts=session.facts()), plan_id=plan.plan_id)


def _together(first: Execution, then: Execution) -> Execution:
    return Execution(first.results | then.results, [*first.refusals, *then.refusals])


def _outcome(execution: Execution, p: Proposal) -> Outcome | None:
    result = execution.results.get(action_id(p))
    return result.outcome if result is not None else None


# What came back

# File systems on which files can share blocks: a copy by `cp --reflink`, or a snapshot, keeps what is removed.
_SHARES_BLOCKS = frozenset({"xfs", "btrfs", "zfs", "bcachefs", "ocfs2"})
# What is removed comes back with the next transaction there: by default within 30 s (btrfs), 5 s (zfs).
_COMES_LATE = frozenset({"btrfs", "zfs", "bcachefs"})
_QUIET_SECONDS, _LATE_SECONDS, _POLL_SECONDS = 2.0, 35.0, 0.05


@dataclass(frozen=True, slots=True)
class FreeBytes:
    """Free bytes of one file system: for users other than root, and for root, whose reserve is among them."""

    users: int
    root: int
    kind: str


def free_by_device(session: Session) -> dict[int, FreeBytes]:
    """Of each file system that a log dir is on which answers."""

    def read(log_dir: OpenLogDir) -> tuple[int, FreeBytes]:
        with log_dir.acting("statvfs"):
            room, kind = os.fstatvfs(log_dir.fd), kind_of(log_dir.fd)
        return log_dir.identity.device, FreeBytes(room.f_bavail * room.f_frsize, room.f_bfree * room.f_frsize, kind)

    jobs = {path: partial(read, log_dir) for path, log_dir in session.log_dirs.online().items()}
    return dict(r for r in session.calls.call_each(jobs).values() if not isinstance(r, LogAgentError))


def what_came(
    session: Session, before: Mapping[int, FreeBytes | None], wanted: int, stop: Callable[[], bool]
) -> CameBack:
    """Waits until `wanted` bytes came back, or no more comes: xfs frees what was removed in the background, and btrfs
    with its next transaction. `before`: by device, None if it did not answer."""
    clock = session.clock
    late = any(room is not None and room.kind in _COMES_LATE for room in before.values())
    quiet = _LATE_SECONDS if late else _QUIET_SECONDS
    most, since = -1, clock.monotonic()
    while (came := _came(before, free_by_device(session))).bytes < wanted and not stop():
        if came.bytes > most:
            most, since = came.bytes, clock.monotonic()
        elif clock.monotonic() - since > quiet:
            break
        clock.sleep(_POLL_SECONDS)
    return came


def _came(before: Mapping[int, FreeBytes | None], now: Mapping[int, FreeBytes]) -> CameBack:
    both = [(room, now[device]) for device, room in before.items() if room is not None and device in now]
    users = sum(max(0, after.users - room.users) for room, after in both)
    root = sum(max(0, after.root - room.root) for room, after in both)
    shares = sorted({room.kind for room, _ in both if room.kind in _SHARES_BLOCKS})
    return CameBack(users, max(0, root - users), tuple(shares), len(before) - len(both))
