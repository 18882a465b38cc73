"""Connects decisions with effects: LogManager, guards, the cycle, the daemon."""
