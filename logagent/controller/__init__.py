"""Deletion across the fleet, modelled on Kafka's `kafka.controller`: what is deleted, its state, the orders to hosts.

The state machines, `ControllerContext` and `TopicDeletionManager` only decide: they do no I/O and read no clock.
"""
