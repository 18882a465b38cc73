"""What the broker's own log says of marks that failed: since the last start, of our log dirs, in any language."""

from __future__ import annotations

from pathlib import Path

import pytest

from logagent.advice.check.start_inspection import failed_marks, log_places
from logagent.base.records import DirKey

START = "[2026-11-25 09:37:39,840] INFO starting (kafka.server.KafkaServer)\n"
NAME = "l" * 249 + "-0"


def failed(log_dir: str = "/d1", name: str = NAME, why: str = "File name too long") -> str:
    return (
        f"[2026-11-25 09:37:44,232] ERROR Error while renaming dir for {name} in log dir {log_dir} (kafka…)\n"
        f"java.nio.file.FileSystemException: {log_dir}/{name} -> {log_dir}/{name}.{'0a' * 16}-delete: {why}\n"
    )


@pytest.mark.parametrize(
    ("text", "shows"),
    [
        (START + failed(), True),
        (failed(), True),
        (START + failed(why="Dateiname zu lang") + "[…] ERROR Shutdown broker\n", True),
        (START + failed() + START, False),
        (START + failed("/d9"), False),
        (START + failed(name="short-0", why="Input/output error"), False),
        ("", False),
    ],
)
def test_only_failures_since_the_last_start_count(tmp_path: Path, text: str, shows: bool) -> None:
    log = tmp_path / "server.log"
    log.write_text(text)
    found = {DirKey("/d1", NAME): str(log)} if shows else {}
    assert failed_marks([str(tmp_path / "none"), str(tmp_path), str(log)], ["/d1"]) == found


def test_the_log_is_where_the_process_says_or_beside_the_installation(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cmdline").write_bytes(b"java\0-Dkafka.logs.dir=/srv/logs\0kafka.Kafka\0")
    assert log_places("/opt/kafka/config/server.properties", (), 7, str(tmp_path)) == ["/srv/logs/server.log"]
    places = log_places("/opt/kafka/config/server.properties", ["/usr/lib/kafka/bin/kafka-server-start.sh"], None)
    assert places[:2] == ["/usr/lib/kafka/logs/server.log", "/opt/kafka/logs/server.log"]
