"""`scrapy itemgraph`, run in this process or in one of its own, and what it wrote."""

from __future__ import annotations

TASKS = {
    "parse": {"tags": ["page"], "ttl": "1d", "max_failures": 3},
    "reviews": {"tags": ["page"], "depends_on": ["parse"]},
}
DAY = 86400
NOWHERE = "postgresql://nobody@127.0.0.1:1/none"
STORED_ERROR = {"type": "ValueError", "message": "no price"}
