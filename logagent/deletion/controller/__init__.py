"""Deletions across a cluster, as in Kafka's `kafka.controller`: what is irreversible is asked once; everything else is
computed from what can be seen, by anyone, as often as they look."""
