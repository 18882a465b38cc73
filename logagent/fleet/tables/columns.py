"""Bounds of columns. Unlike Spark's `least` and `greatest`, which skip nulls: what is unknown stays unknown."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as fn


def at_most(value: Column, most: float) -> Column:
    return fn.when(value > most, fn.lit(most)).otherwise(value)


def at_least(value: Column, least: float) -> Column:
    return fn.when(value < least, fn.lit(least)).otherwise(value)
