"""The states of log dirs, what a probe means, who holds a log dir, which Kafka version holds."""
