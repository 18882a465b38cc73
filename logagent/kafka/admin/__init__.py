"""The Admin API: topics, replicas and the cluster id; and the deletion of topics."""
