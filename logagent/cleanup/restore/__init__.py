"""Renames marked and stray directories back (`logagent restore`)."""
