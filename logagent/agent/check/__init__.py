"""Gathers the facts that `model/check` decides on, for `logagent check` and `logagent prestart`."""
