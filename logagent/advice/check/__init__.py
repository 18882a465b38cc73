"""Finds what would make a broker refuse to start, or take a log dir offline (`logagent check`)."""
