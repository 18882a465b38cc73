"""The health of log dirs, the meaning of probes, who holds a log dir, and which Kafka version applies."""
