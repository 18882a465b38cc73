"""The health of log dirs, the meaning of probes, when a broker serves, and whether the clock can be trusted."""
