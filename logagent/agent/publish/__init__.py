"""Sends inventory snapshots and assignments to the fleet store, through a bounded spool."""
