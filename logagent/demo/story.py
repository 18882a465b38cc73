"""The story of `logagent demo`: each chapter tells, runs real commands, and checks on the disk what they did."""

from __future__ import annotations

from pathlib import Path

from logagent.demo.broker import broker_holds
from logagent.demo.host import CONFIG, LOG_DIRS, STATE_DIR, Tree, look
from logagent.demo.stage import Stage

TOPICS = r"orders|plant\..*\.in-service"
LONG_TOPIC = r"plant\..*\.in-service"
LONGEST_TOPIC = 249
LONGEST_NAME = 255
FREELY = ("--allow-assigned", "--even-last-copy")


def tell(stage: Stage) -> None:
    """Everything, in order. What does not come out as told is in `stage.failures` at the end."""
    _inventory(stage)
    _broker_is_there(stage)
    _refused(stage)
    plan_id = _planned(stage)
    original = _deleted(stage, plan_id)
    _restored(stage, plan_id, original)
    second = _waits(stage)
    _removed(stage, second)
    _set_aside(stage)
    _history(stage)


def _inventory(stage: Stage) -> None:
    stage.chapter(
        "What lies on this disk",
        """The log dirs of a real Kafka 3.9.1 broker that was killed. Whoever asks the broker hears of current and
        future logs only; what it marked for deletion (-delete) or set aside (-stray) is on the disk all the same.""",
    )
    stage.command("scan")
    _, document = stage.ask("scan")
    seen = {f"{Path(d['log_dir']).name}/{d['name']}" for d in document["dirs"]}
    stage.check(seen == set(look(stage.folder).dirs), f"all {len(seen)} directories were seen")
    stage.check(not (stage.folder / STATE_DIR).exists(), "looking wrote nothing, not even a state dir")


def _broker_is_there(stage: Stage) -> None:
    stage.chapter(
        "While a broker holds the log dirs, nothing is touched",
        """Another process now takes the lock of both log dirs, as a broker does. An operator who deletes all the same
        is refused, with the guard, the fact that it saw, and what to do.""",
    )
    arguments = ("delete", "--partition", "orders-1", *FREELY, "--execute")
    with broker_holds([stage.folder / d for d in LOG_DIRS]) as pid, stage.watching() as before:
        stage.command(*arguments, expect=3)
        _, document = stage.ask(*arguments)
        refusals = document["refusals"]
        told = len(refusals) > 0 and all(r["guard"] == "window" and str(pid) in r["fact"] for r in refusals)
        stage.check(told, f"guard `window` named process {pid}")
        stage.check(look(stage.folder) == before(), "the disk is as it was, down to every ctime")
    stage.tell("That process is gone again: the broker is stopped from here on.")


def _refused(stage: Stage) -> None:
    stage.chapter(
        "A partition that may be in use is not deleted by mistake",
        """Without proof that nobody needs it (an orphan), a partition goes only if the operator says so in words.""",
    )
    with stage.watching() as before:
        stage.command("delete", "--partition", "orders-1", "--execute", expect=3)
        stage.check(look(stage.folder) == before(), "the disk is as it was")
    _, document = stage.ask("delete", "--partition", "orders-1", "--execute")
    stage.check([r["guard"] for r in document["refusals"]] == ["assigned"], "guard `assigned` refused it")


def _planned(stage: Stage) -> str:
    stage.chapter(
        "A plan, and nothing but a plan",
        f"""Two topics now: `orders`, and one whose name has {LONGEST_TOPIC} characters, the most that Kafka allows.
        Without --execute this only shows what would be done. It is more than a tenth of this small host, so the guard
        `blast-radius` wants the operator's word for exactly this plan (exit status 4).""",
    )
    arguments = ("delete", "--topic", TOPICS, *FREELY)
    with stage.watching() as before:
        stage.command(*arguments, expect=4)
        stage.check(look(stage.folder) == before(), "a dry run changes nothing")
    _, document = stage.ask(*arguments)
    stage.command(*arguments, "--execute", expect=4)
    stage.check(look(stage.folder) == before(), "and without --approve even --execute changes nothing")
    return str(document["plan_id"])


def _deleted(stage: Stage, plan_id: str) -> Tree:
    stage.chapter(
        "Delete: rename first, remove later",
        """This is LogManager.asyncDelete by hand: each directory is renamed to TOPIC-PARTITION.UNIQUE-delete, cut to
        255 bytes, and leaves the offset checkpoints. The journal knew each intent before the first rename.""",
    )
    with stage.watching() as before:
        stage.command("delete", "--topic", TOPICS, *FREELY, "--execute", "--approve", plan_id)
        original, now = before(), look(stage.folder)
        gone, new = set(original.dirs) - set(now.dirs), set(now.dirs) - set(original.dirs)
        marked = all(name.endswith("-delete") for name in new)
        stage.check(len(gone) == len(new) == 5 and marked, "five directories have other names, all end in -delete")
        longest = max(len(name.partition("/")[2].encode()) for name in new)
        stage.check(longest == LONGEST_NAME, f"the longest new name has {longest} bytes: the topic's end was cut off")
        stage.check(_contents(original, gone) == _contents(now, new), "no file in them changed")
    stage.tell("The names on disk are the queue, and the journal still knows the full topics:")
    stage.command("queue")
    _, document = stage.ask("queue")
    known = {len(e["full_topic"]) for e in document["entries"] if e["owner"] == "logagent"}
    stage.check(LONGEST_TOPIC in known, f"the {LONGEST_TOPIC}-character topic is known in full")
    return original


def _contents(tree: Tree, names: set[str]) -> list[str]:
    return sorted(str(sorted(tree.dirs[name].items())) for name in names)


def _restored(stage: Stage, plan_id: str, original: Tree) -> None:
    stage.chapter(
        "Restore: all of it back, under its full names",
        """As long as the directories exist they come back: names, log start offsets (here: records of orders-1 that
        had been deleted up to offset 25 stay deleted) and recovery points.""",
    )
    with stage.watching():
        stage.command("restore", "--plan", plan_id, "--execute")
        now = look(stage.folder)
        stage.check(now.dirs == original.dirs, "every name, byte and modification time is as it was in the beginning")
        stage.check(now.checkpoints == original.checkpoints, "and so is every entry of the checkpoints")
        longest = max(len(name.partition("/")[2]) for name in now.dirs if name.endswith("in-service-1"))
        stage.check(longest == LONGEST_TOPIC + 2, f"the {LONGEST_TOPIC}-character topic has its full name again")


def _waits(stage: Stage) -> str:
    stage.chapter(
        "Mark again: what is marked waits its time",
        """Only the long topic this time. What is marked stays for file.delete.delay.ms, which this broker's
        server.properties sets to a day; what the broker itself marked or set aside has its own times.""",
    )
    with stage.watching() as before:
        stage.command("delete", "--topic", LONG_TOPIC, *FREELY, "--execute")
        now = look(stage.folder)
        stage.check(len(set(now.dirs) - set(before().dirs)) == 2, "two directories are marked")
    _, document = stage.ask("history")
    with stage.watching() as before:
        stage.command("cleanup", "--execute")
        stage.check(look(stage.folder) == before(), "cleanup removed nothing: nothing is due")
    return str(document["entries"][-1]["plan_id"])


def _removed(stage: Stage, plan_id: str) -> None:
    stage.chapter(
        "Removal: what is due goes",
        f"""A day is long for a demo, so its {CONFIG} now sets delete.file_delete_delay_ms = 0. The directories which
        the broker marked itself are still its own for `cleanup.leftover_grace`.""",
    )
    with (stage.folder / CONFIG).open("a", encoding="utf-8") as file:
        file.write("\n[delete]\nfile_delete_delay_ms = 0\n")
    stage.command("cleanup")
    with stage.watching() as before:
        stage.command("cleanup", "--execute")
        gone = set(before().dirs) - set(look(stage.folder).dirs)
        freed = sum(map(before().bytes_of, gone))
        stage.check(len(gone) == 2 and freed > 0, f"two directories with {freed} bytes are gone")
    stage.tell("Removed is removed, and the undo says so:")
    stage.command("restore", "--plan", plan_id, "--execute", expect=2)


def _set_aside(stage: Stage) -> None:
    stage.chapter(
        "Quarantine: out of the broker's sight, kept for a week",
        """With --quarantine a directory becomes -stray: brokers since 3.6.1 keep those and never delete them;
        logagent removes them after `cleanup.stray_retention`.""",
    )
    with stage.watching() as before:
        stage.command("delete", "--partition", "visits-1", "--quarantine", *FREELY, "--execute")
        new = set(look(stage.folder).dirs) - set(before().dirs)
        aside = len(new) == 1 and all(n.startswith("d1/visits-1.") and n.endswith("-stray") for n in new)
        stage.check(aside, "visits-1 is set aside")


def _history(stage: Stage) -> None:
    stage.chapter("History: who did what, when, and what came of it", "The journal, oldest first.")
    stage.command("history")
    _, document = stage.ask("history")
    done = [e["action"] for e in document["entries"] if e["outcome"] == "done"]
    wanted = ["mark"] * 5 + ["restore"] * 5 + ["mark"] * 2 + ["remove"] * 2 + ["quarantine"]
    stage.check(done == wanted, f"{len(wanted)} actions, each with its outcome")
