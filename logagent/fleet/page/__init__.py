"""The fleet report as one self-contained HTML page: `render(report, tables)`. Pure: no pyspark, no clock, no files
but this package's own assets."""

from __future__ import annotations

from logagent.fleet.page.document import MOST_BYTES, render

__all__ = ["MOST_BYTES", "render"]
