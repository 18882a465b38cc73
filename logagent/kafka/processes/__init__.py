"""Brokers on this host: their configurations, processes, units, versions, and their `.lock`."""
