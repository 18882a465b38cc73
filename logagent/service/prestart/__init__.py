"""Renames what is due while the broker restarts (`logagent prestart`)."""
