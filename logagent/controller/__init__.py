"""Deletion across the fleet, after Kafka's `kafka.controller`: what goes, where it stands, what each host is told.

The state machines, `ControllerContext` and `TopicDeletionManager` decide only: they do no I/O and read no clock.
"""
