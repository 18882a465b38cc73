"""Brokers on this host: their configurations, processes, units, and the files they have open."""
