"""Deletes topics and leftovers across the fleet (`logagent topics`)."""
