"""Where distributions, Confluent's packages and people who unpack an archive keep a broker's configuration."""

from __future__ import annotations

import os

from logagent.broker.files.meta_properties import META_PROPERTIES
from logagent.broker.files.server_properties import ServerProperties
from logagent.host.brokers.systemd_units import under

# Apache's archive, Confluent's packages, Bigtop, Bitnami, BSD and the distributions that package Kafka.
USUAL_SERVER_PROPERTIES = (
    "/etc/kafka/server.properties",
    "/etc/kafka/kraft/server.properties",
    "/etc/kafka/kraft/broker.properties",
    "/etc/kafka/broker.properties",
    "/etc/kafka/conf/server.properties",
    "/opt/kafka/config/server.properties",
    "/opt/kafka/config/kraft/server.properties",
    "/opt/kafka/config/kraft/broker.properties",
    "/opt/kafka/config/broker.properties",
    "/opt/bitnami/kafka/config/server.properties",
    "/opt/confluent/etc/kafka/server.properties",
    "/usr/local/kafka/config/server.properties",
    "/usr/local/kafka/config/kraft/server.properties",
    "/usr/share/kafka/config/server.properties",
)
# Looked at only if nothing else is found: releases from before an upgrade stay there with their configuration.
UNPACKED_SERVER_PROPERTIES = (
    "/opt/kafka[_-]*/config/server.properties",
    "/opt/kafka[_-]*/config/kraft/server.properties",
    "/opt/kafka[_-]*/config/broker.properties",
    "/opt/confluent-*/etc/kafka/server.properties",
    "/opt/confluent-*/etc/kafka/kraft/server.properties",
)
# `log.dirs` in the files shipped with Kafka and with Confluent's packages.
_SHIPPED_LOG_DIRS = frozenset(
    {
        "/tmp/kafka-logs",
        "/tmp/kraft-combined-logs",
        "/tmp/kraft-broker-logs",
        "/tmp/kraft-controller-logs",
        "/var/lib/kafka",
    }
)


def is_sample(server: ServerProperties, root: str = "/") -> bool:
    """Whether a configuration is as shipped with Kafka and its log dirs were never used."""
    log_dirs = [d.rstrip("/") for d in server.log_dirs]
    # Nothing else on a disk is touched, because it may hang.
    shipped = all(d in _SHIPPED_LOG_DIRS for d in log_dirs)
    return shipped and not any(os.path.lexists(f"{under(root, d)}/{META_PROPERTIES}") for d in log_dirs)
