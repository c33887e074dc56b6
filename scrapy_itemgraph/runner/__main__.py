"""`python -m scrapy_itemgraph.runner FD`: the runner, told what to do through a file in memory."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.runner import supervisor
from scrapy_itemgraph.runner.options import Options
from scrapy_itemgraph.tools.wording import one_line

_FORMAT = "%(asctime)s %(levelname)s: %(message)s"
_REFUSED = 1


def main(descriptor: int) -> int:
    """Read the options, and run until told to end; return the exit code."""
    with os.fdopen(descriptor, encoding="utf-8") as file:
        options = Options.from_json(file.read())
    logging.basicConfig(level=logging.INFO, format=_FORMAT, datefmt="%Y-%m-%d %H:%M:%S")
    try:
        asyncio.run(supervisor.run(options))
    except (ItemGraphError, OSError) as error:
        print(f"scrapy itemgraph: {one_line(error)}", file=sys.stderr)  # noqa: T201 - for people
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
