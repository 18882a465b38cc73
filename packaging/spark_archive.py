"""The files for plain spark-submit, with fixed times: `python packaging/spark_archive.py STAGED_LIB DIRECTORY`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from logagent.fleet.submit import write_archive

for made in write_archive(Path(sys.argv[2])):
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    os.utime(made, (epoch, epoch))
