"""Writes `docs/fleet-tables.md`, the tables of a fleet report with every column.

python packaging/fleet_tables.py            # write it
python packaging/fleet_tables.py --check    # exit status 1 unless the file is what this program makes
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from logagent.store.contract import NO_CSV, TABLES
from logagent.store.meanings import UNITS, columns

FILE = Path(__file__).resolve().parents[1] / "docs" / "fleet-tables.md"
HEAD = """# The tables of a fleet report

`logagent fleet report --out DIR` writes each table as `DIR/<run>/parquet/<table>/` and `DIR/<run>/<table>.csv`
(RFC 4180, UTF-8; times as RFC 3339, null as an empty field). `logagent schema fleet-tables` prints the same as JSON
Schema. Every row has the report's `date` and `run_id`, so that all reports in DIR can be read as one:

```python
spark.read.parquet("DIR/20*/parquet/usage_log_dirs")  # `latest` is one of them already
```

Rows are in the order that the table names; `-` is descending. Made by `packaging/fleet_tables.py`.
"""


def build() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, table in TABLES.items():
        only = " Parquet only, with `--with-partitions`." if name in NO_CSV else ""
        order = ", ".join(f"`{column}`" for column in table.order)
        parts.append(f"\n## {name}\n\n{table.title}.{only} Order: {order}.\n\n| column | type | unit | meaning |\n")
        parts.append("| --- | --- | --- | --- |\n")
        for column, meaning in columns(name):
            kind, unit = UNITS[column.unit]
            parts.append(f"| `{column.name}` | {kind} | {unit} | {meaning} |\n")
    return "".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/fleet-tables.md.")
    parser.add_argument("--check", action="store_true", help="only say whether the file is up to date")
    made = build()
    if parser.parse_args().check:
        if FILE.read_text() != made:
            print(f"{FILE.name} is not what packaging/fleet_tables.py makes: run it", file=sys.stderr)
            return 1
        return 0
    FILE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
