"""Turns facts about a host into findings: what works, what does not yet, and the line to change. Pure."""
