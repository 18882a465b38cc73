"""A full disk: what can be freed, and how (`logagent rescue`)."""
