"""Gathers what `model/check` decides on, for `logagent check` and `logagent prestart`."""
