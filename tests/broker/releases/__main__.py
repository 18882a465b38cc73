"""`python -m tests.broker.releases table`: make model/check/release_table.py anew from the releases' own jars."""

from __future__ import annotations

import sys

from tests.broker.releases.facts import TABLE, write_table


def main() -> int:
    write_table()
    print(f"wrote {TABLE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
