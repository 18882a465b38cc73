"""The Admin API, read-only: topics, replicas and the cluster id."""
