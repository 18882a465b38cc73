"""The daemon: its loops, its cycles, what it logs, and the socket that answers `logagent status`."""
