"""Asks a broker for the settings of topics (DescribeConfigs, KIP-133)."""

from __future__ import annotations

from collections.abc import Iterable

from logagent.broker.admin.client import AdminClient, DescribeConfigsRequest
from logagent.broker.admin.responses import NONE
from logagent.model.planning.first_check import ASKED, TopicAnswer

_TOPIC = 2  # `ConfigResource.Type`
# `ConfigSource`: of the topic; the dynamic default of all brokers.
_OWN, _COMMON = 1, 3
_TOPICS_A_REQUEST = 500


def ask_topic_settings(client: AdminClient, topics: Iterable[str]) -> dict[str, dict[str, TopicAnswer]]:
    """By topic, the settings that `TopicConfigs` consists of. Topics that do not exist, or that the principal may not
    describe (DESCRIBE_CONFIGS), are missing. Raises ServiceUnreachable and UnreadableError."""
    wanted, found = sorted(set(topics)), dict[str, dict[str, TopicAnswer]]()
    for start in range(0, len(wanted), _TOPICS_A_REQUEST):
        resource = DescribeConfigsRequest.DescribeConfigsResource
        resources = [
            resource(resource_type=_TOPIC, resource_name=topic, configuration_keys=list(ASKED))
            for topic in wanted[start : start + _TOPICS_A_REQUEST]
        ]
        # With the source of each value, which version 0 (before 1.1) lacks.
        response = client.send(lambda asked=resources: DescribeConfigsRequest(resources=asked, min_version=1))  # type: ignore[misc]
        for result in response.results:
            if result.error_code == NONE:
                found[result.resource_name] = {
                    c.name: TopicAnswer(c.value, c.config_source == _OWN, c.config_source == _COMMON)
                    for c in result.configs
                }
    return found
