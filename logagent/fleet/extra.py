"""Checks that the extra `fleet` is installed before anything that needs it is imported."""

from __future__ import annotations

from logagent.errors import ConfigError


def need_pyspark() -> None:
    """Raises ConfigError if pyspark is not installed."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        hint = "pip install 'logagent[fleet]' (and Java 17 or later)"
        raise ConfigError("pyspark is not installed", hint=hint) from error
