"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# A machine that is slow for a moment is no failure; what hangs is stopped by pytest's own time limit.
settings.register_profile("logagent", deadline=None, print_blob=True)
settings.load_profile("logagent")
