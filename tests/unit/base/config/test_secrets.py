"""What may be told of a text that can hold a password."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.config.settings import KafkaSettings, Settings, known_part, plain, without_secret, without_secrets
from logagent.base.errors import ConfigError
from logagent.kafka.files.properties import parse_server_properties
from logagent.kafka.processes.target import resolve_target
from tests.waiting import within_cpu


@pytest.mark.parametrize(
    "words",
    [
        ["java", "-Djavax.net.ssl.keyStorePassword=hunter2", "kafka.Kafka"],
        ["tool", "--password", "hunter2"],
        ["keytool", "-storepass", "hunter2", "-list"],
        ["java", "-Dhttp.proxy=http://me:hunter2@proxy:80/"],
        ["x", "--override", "sasl.jaas.config=M required password='hunter2';"],
    ],
)
def test_a_command_line_is_told_without_passwords(words: list[str]) -> None:
    told = without_secrets(words)
    assert len(told) == len(words) and told[0] == words[0]
    assert "hunter2" not in " ".join(told)


def test_what_is_no_secret_stays() -> None:
    words = ["java", "-Xmx1g", "-cp", "/opt/kafka/libs/*", "kafka.Kafka", "/etc/kafka/server.properties"]
    assert without_secrets(words) == words
    assert without_secret("/data/d1,/data/d2") == "/data/d1,/data/d2"
    assert (plain("SASL_SSL"), known_part("ssl.cipher.suites", ("ssl.key.password",))) == (
        "SASL_SSL", "ssl.cipher.suites",
    )  # fmt: skip


@given(st.text(), st.text(st.characters(categories=["L", "N"]), min_size=6))
def test_what_follows_a_password_s_name_is_cut(before: str, secret: str) -> None:
    assert secret not in without_secret(f"{before}ssl.key.password={secret}").rpartition("password=")[2]


@pytest.mark.parametrize("key", ["log.dirs", "broker.id", "process.roles", "controller.quorum.voters"])
def test_a_line_of_server_properties_joined_with_the_next_one(key: str, tmp_path: object) -> None:
    text = f"{key}=1,\\\nssl.key.password=hunter2\n".encode()
    path = f"{tmp_path}/server.properties"
    with open(path, "wb") as file:
        file.write(text)
    with pytest.raises(ConfigError) as caught:
        parse_server_properties(text, path)
        resolve_target(Settings(kafka=KafkaSettings(config=path)))
    assert caught.value.problems and "hunter2" not in " ".join((str(caught.value), *caught.value.problems))


def test_a_command_line_of_nothing_but_passwords_is_shown_at_once() -> None:
    """Any local user can have one of two megabytes."""
    word = "-" + "password" * 64_000
    with within_cpu(5, "quadratic patterns take minutes"):
        assert without_secrets([word, "x", word, "-Dpassword=y"]) == [word, "***", word, "***"]
        assert without_secret(word) == word
