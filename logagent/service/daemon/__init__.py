"""The daemon: its loops, its cycles, what it logs."""
