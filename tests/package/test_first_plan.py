"""From `apt install` to the right plan: three real brokers, one of them stopped while topics change, and the package
put on a copy of this machine that has the stopped broker's disk. Minutes and commands are printed (`pytest -s`)."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.evidence.test_headline_case import MADE, change_topics, with_topics
from tests.broker.rig.rig import Rig
from tests.long_form import long_form
from tests.needs import need_command
from tests.package.test_installed import Copy
from tests.private_host import private_host
from tests.waiting import wait_until

pytestmark = long_form
PLACE = "/srv/broker"


class OnThisNetwork(Copy):
    """A copy whose processes reach the brokers of this machine."""

    def command(self, *words: str, **options: Any) -> list[str]:
        return [word for word in super().command(*words, **options) if word != "--net"]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[OnThisNetwork]:
    need_command("dpkg")
    with private_host(tmp_path / "copy", OnThisNetwork) as one:
        one.sh("find /etc/systemd/system /usr/lib/systemd/system -name '*kafka*' -delete; rm -rf /opt/*kafka* /data")
        one.sh("useradd --system --user-group --shell /usr/sbin/nologin broker")
        yield one


def test_three_commands_lead_to_the_right_plan(host: OnThisNetwork, deb: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path / "brokers")
    try:
        cluster = with_topics(rig.cluster("4.3.1", nodes=3, log_dirs=1))
        three = cluster.node(3)
        three.stop()
        change_topics(cluster)
        shutil.copytree(three.root, host.path(PLACE), symlinks=True)
        text = (three.root / three.config.name).read_text().replace(str(three.root), PLACE)
        host.write("/etc/kafka/server.properties", text)
        host.sh(f"chown -R broker:broker {PLACE}")

        seconds: dict[str, float] = {}
        started = time.monotonic()
        host.sh(deb)
        seconds["apt install"] = time.monotonic() - started
        said = host.sh("logagent setup --execute")
        assert "User=broker" in said and '"/etc/kafka/server.properties"' in said, said
        seconds["logagent setup --execute"] = time.monotonic() - started
        orphans = {name for name, (verdict, _) in MADE.items() if verdict == "orphan"}
        plan = {}

        def waits_for_all() -> bool:
            words = "setpriv --reuid broker --regid broker --init-groups logagent cleanup --json 2>/dev/null"
            plan.update(json.loads(host.sh(words)))
            return {w["name"] for w in plan["waiting"]} == orphans

        wait_until(waits_for_all, f"a plan with all orphans: {plan}", 240, interval=2)
        seconds["logagent cleanup"] = time.monotonic() - started
        assert plan["actions"] == []
        print("".join(f"\n{after:6.1f} s  {command}" for command, after in seconds.items()))
    finally:
        rig.close()
