"""Carries out plans: LogManager, renames, removals, offset checkpoints, recovery after a crash."""
