"""A broker-side log-directory deletion agent for Apache Kafka."""

__version__ = "0.1.0"
