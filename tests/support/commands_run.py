"""`scrapy itemgraph`, run in this process or in one of its own, and what it wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass

TASKS = {
    "parse": {"tags": ["page"], "ttl": "1d", "max_failures": 3},
    "reviews": {"tags": ["page"], "depends_on": ["parse"]},
}
DAY = 86400
NOWHERE = "postgresql://nobody@127.0.0.1:1/none"
STORED_ERROR = {"type": "ValueError", "message": "no price"}


@dataclass(frozen=True)
class Ran:
    """What a command wrote, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def document(self):
        """The JSON document on standard output."""
        return json.loads(self.out)
