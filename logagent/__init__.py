"""A broker-side log-directory deletion agent for Apache Kafka."""

__version__ = "1.0.0"
