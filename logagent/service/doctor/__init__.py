"""Inspects everything that logagent needs on this host, for `logagent doctor`."""
