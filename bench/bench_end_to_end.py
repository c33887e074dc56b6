"""Whole crawls beside Scrapy's own queues, scrapy-redis and a fixed list: `make bench`.

A full run writes its tables and its picture to `docs/benchmarks.md`, which says what is measured.
A part of it is printed alone: `--site deep --only memory,task --rounds 1 --pages 600`.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from end_to_end import rounds

if __name__ == "__main__":
    rounds.main(sys.argv[1:])
