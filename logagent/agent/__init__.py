"""Joins decisions and effects: LogManager, guards, the cycle, the daemon."""
