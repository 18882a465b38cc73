"""Command lines of brokers: of processes, and as units have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.kafka.processes.broker_process import launch_of_java, launch_of_script, version_of_class_path

JARS = "/opt/kafka/bin/../libs/kafka_2.13-3.9.1.jar:/opt/kafka/bin/../libs/kafka-clients-3.9.1.jar"


@pytest.mark.parametrize("main", ["kafka.Kafka", "io.confluent.support.metrics.SupportedKafka"])
@pytest.mark.parametrize("option", [("-cp", JARS), ("-classpath", JARS), (f"--class-path={JARS}",)])
def test_a_brokers_process(main: str, option: tuple[str, ...]) -> None:
    words = ["/usr/bin/java", "-Xmx1G", *option, main, "/etc/kafka/s.p", "--override", "broker.id=4"]
    launch = launch_of_java(words)
    assert launch is not None
    assert (launch.config, dict(launch.overrides)) == ("/etc/kafka/s.p", {"broker.id": "4"})
    assert version_of_class_path(launch.class_path) == (3, 9, 1)


@pytest.mark.parametrize(
    "words",
    [
        [],
        [""],
        ["java"],
        ["kafka.Kafka", "/etc/kafka/s.p"],
        ["java", "-cp", JARS, "org.apache.zookeeper.server.quorum.QuorumPeerMain", "/etc/kafka/s.p"],
        ["java", "-cp", JARS, "kafka.tools.ConsoleConsumer", "--topic", "kafka.Kafka.x"],
        ["java", "-cp", JARS, "kafka.Kafka"],
        ["java", "-cp", JARS, "kafka.Kafka", "--override", "broker.id=4"],
        ["vi", "/etc/kafka/server.properties"],
    ],
)
def test_what_is_no_broker(words: list[str]) -> None:
    assert launch_of_java(words) is None


def test_overrides_in_both_forms_and_before_the_file() -> None:
    words = ["java", "kafka.Kafka", "--override=a=b=c", "s.p", "--override", " node.id = 3 "]
    launch = launch_of_java(words)
    assert launch is not None and (launch.config, launch.overrides) == ("s.p", {"a": "b=c", "node.id": "3"})


def test_a_wildcard_of_the_class_path_says_nothing_of_what_is_loaded() -> None:
    assert version_of_class_path(["/usr/share/java/kafka/*"]) is None
    assert version_of_class_path(["/x/kafka-clients-3.9.1.jar"]) is None
    assert version_of_class_path(["/x/kafka_2.13-3.9.1.jar", "/y/kafka_2.13-3.5.2.jar"]) is None


@given(st.lists(st.text(max_size=12)), st.text(max_size=60))
def test_nothing_that_stands_there_breaks_it(words: list[str], command: str) -> None:
    launch_of_java(words)
    launch_of_java(["java", "kafka.Kafka", *words])
    launch_of_script(command, {})
    launch_of_script(f"/bin/kafka-server-start.sh {command}", {"X": "y"})
