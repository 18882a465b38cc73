"""Fleets for tests: planted with what `logagent fleet demo` shows, and with all the ways in which input is damaged."""
