"""What people type: names as they were printed, partitions, beginnings, and mistypings."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from logagent.base.errors import Exit
from logagent.cli import COMMANDS, cli
from tests.command_line import Ran, run_here
from tests.host import FREELY, Host, delete


@pytest.fixture
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host.from_disk(tmp_path_factory.mktemp("n"))


def taken(host: Host, partition: str, *options: str) -> str:
    """The name that a partition's directory has after it was marked or set aside."""
    deeds = delete(host, "--partition", partition, *options, *FREELY).deeds
    assert [d["outcome"] for d in deeds] == ["done"]
    return str(deeds[0]["new_name"])


def restored(ran: Ran) -> list[str]:
    assert ran.status == Exit.OK, ran.err
    return [a["name"] for a in ran.deeds]


@pytest.mark.parametrize("options", [(), ("--quarantine",)], ids=["marked", "stray"])
def test_restore_takes_a_directory_by_partition_by_beginning_and_as_printed(
    host: Host, options: tuple[str, ...]
) -> None:
    name = taken(host, "orders-1", *options)
    uuid, end = name.split(".")[-1].split("-")
    where = host.d1 if (host.d1 / name).exists() else host.d2
    for text in (
        name,
        f"{where}/{name}",
        f"orders-1.{uuid[:10]}",
        f"{where}/orders-1.{uuid[:10]}",
        f"orders-1.{uuid[:4]}…-{end}",
        f"{where}/orders-1.{uuid[:4]}…-{end}",
        f"…/{where.name}/orders-1.{uuid[:10]}…-{end}",
    ):
        assert restored(host.run("restore", "--json", "--retention-will-delete", text)) == [name], text


def test_restore_takes_a_partition_also_where_it_is_current_again(host: Host) -> None:
    (other,) = host.find("shipments-0")
    name = taken(host, "orders-1")
    assert restored(host.run("restore", "--json", "--retention-will-delete", "orders-1")) == [name]
    (host.d2 / "orders-1").mkdir()
    refused = host.run("restore", "--json", "orders-1")
    assert list(refused.guards()) == [name], "the one that can be restored, not the one that is there"
    assert host.run("restore", "--json", other).guards() == {other: "policy"}, (
        "as ever where nothing else has that name"
    )


def test_what_may_mean_several_directories_restores_none_and_lists_them(host: Host) -> None:
    names = [taken(host, "orders-1"), taken(host, "orders-2")]
    before = host.snapshot()
    for text in ("orders-", "orders…-delete", "…-delete"):
        ran = host.run("restore", text, "--execute")
        assert ran.status == Exit.USAGE and "may mean" in ran.err, ran.err
        assert all(name in ran.err for name in names), ran.err
    assert host.snapshot() == before


def test_a_partition_is_never_the_beginning_of_another_one(host: Host) -> None:
    """`orders-1` is not `orders-10.…`: whoever says a partition means that one."""
    ten = f"zeta-10.{'0' * 32}-stray"
    (host.d1 / host.find("carts-1.", "-stray")[0]).rename(host.d1 / ten)
    ran = host.run("restore", "zeta-1", "--execute")
    assert ran.status == Exit.USAGE and "no directory zeta-1 in" in ran.err
    assert ten in {a["name"] for a in host.run("restore", "--json", "zeta-10").json["refusals"]}


def test_a_mistyped_name_is_met_with_the_nearest(host: Host) -> None:
    name = taken(host, "shipments-0")
    ran = host.run("restore", name.replace("shipments", "shipmetns"))
    assert ran.status == Exit.USAGE and f"did you mean {name}" in ran.err, ran.err


def test_delete_takes_a_stray_as_printed_and_never_guesses(host: Host) -> None:
    name = taken(host, "shipments-0", "--quarantine")
    uuid = name.split(".")[-1].removesuffix("-stray")
    asked = ("delete", "--json", *FREELY, "--partition")
    for text in (name, f"shipments-0.{uuid[:6]}…-stray", f"shipments-0.{uuid[:6]}"):
        ran = host.run(*asked, text)
        named = {a["name"] for a in ran.json["actions"]} | set(ran.guards())
        assert name in named, (text, ran.out, ran.err)
    for text in ("shipments-0.ffff", "shipments…-delete", "shipmen", f"shipments-0.{uuid[:6]}…-delete"):
        ran = host.run(*asked, text)
        assert ran.status == Exit.USAGE and ran.out == "", text


@pytest.mark.parametrize("options, done", [((), "marked for deletion"), (("--quarantine",), "set aside")])
def test_what_was_taken_away_is_said_to_be_where_it_is(host: Host, options: tuple[str, ...], done: str) -> None:
    """A second delete must not be led to a partition that lives: `shipments-1` is near to `shipments-0`."""
    name = taken(host, "shipments-0", *options)
    where = host.d1 if (host.d1 / name).exists() else host.d2
    before = host.snapshot()
    ran = host.run("delete", "--partition", "shipments-0", *FREELY)
    assert f"; already {done} as {name} at {where}" in " ".join(ran.err.split()), ran.err
    assert "did you mean" not in ran.err
    assert host.snapshot() == before


def test_of_a_name_that_nothing_has_each_command_ends_as_the_table_says(host: Host) -> None:
    """docs/reference/exit-statuses.md: gone already is no error, and what is not here cannot be brought back."""
    stray = f"nosuch-0.{'0' * 32}-stray"
    for words, status in (
        (("delete", "--partition", "nosuch-0"), Exit.OK),
        (("delete", "--partition", stray), Exit.OK),
        (("delete", "--partition", "nosuch-0.00"), Exit.USAGE),
        (("delete", "--topic", "nosuch"), Exit.OK),
        (("explain", "nosuch-0"), Exit.OK),
        (("restore", "nosuch-0"), Exit.USAGE),
        (("restore", stray), Exit.USAGE),
    ):
        ran = host.run(*words)
        assert ran.status == status and "nosuch" in ran.err, (words, ran.status, ran.err)


def test_delete_is_never_led_to_a_living_partition(host: Host) -> None:
    """Nobody says whose these are; with assignments, only orphans are named (test_mistyped)."""
    for wanted in (("--partition", "ordrs-1"), ("--topic", "ordrs")):
        ran = host.run("delete", *wanted, "--execute")
        assert ran.status == Exit.OK and "ordrs" in ran.err and "orders" not in ran.err, ran.err


def test_a_document_is_found_by_the_name_that_it_bears() -> None:
    assert run_here("schema", "logagent.plan/1").out == run_here("schema", "plan").out != ""
    other = run_here("schema", "logagent.plan/99")
    assert other.status == Exit.USAGE and "logagent.plan/1" in other.err and other.out == ""


def acting() -> Iterator[tuple[str, click.Command]]:
    """Every command that has --execute."""
    context = click.Context(cli, info_name="logagent")
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        inner = command.commands if isinstance(command, click.Group) else {"": command}
        for sub, one in inner.items():
            if any("--execute" in p.opts for p in one.params):
                yield f"{name} {sub}".strip(), one


def test_a_dry_run_can_be_asked_for_wherever_it_is_the_default() -> None:
    commands = dict(acting())
    assert {"cleanup", "delete", "restore", "rescue", "setup", "topics delete", "topics purge"} <= set(commands)
    for name, command in commands.items():
        assert any({"-n", "--dry-run"} <= set(p.opts) for p in command.params), name


def test_a_dry_run_that_is_asked_for_does_nothing(host: Host) -> None:
    before = host.snapshot()
    words = ("delete", "--json", "--partition", "orders-1", *FREELY)
    assert host.run(*words, "-n").json["plan_id"] == host.run(*words).json["plan_id"]
    both = host.run(*words, "--dry-run", "--execute")
    assert both.status == Exit.USAGE and both.out == "" and "mutually exclusive" in both.err
    assert host.snapshot() == before
