"""Lists the project's spiders for `serve`, in a process of its own that loads the code.

    python -m scrapy_itemgraph.commands.list_spiders -s NAME=VALUE

A line is a spider's name and the arguments that it refuses over HTTP, with tabs between.
"""

from __future__ import annotations

import sys

from scrapy.spiderloader import get_spider_loader
from scrapy.utils.conf import arglist_to_dict
from scrapy.utils.project import get_project_settings

from scrapy_itemgraph.worker.spider.job_arguments import reserved_by

if __name__ == "__main__":
    settings = get_project_settings()
    settings.setdict(arglist_to_dict(sys.argv[2::2]), "cmdline")
    loader = get_spider_loader(settings)
    for name in sorted(loader.list()):
        spider = loader.load(name)
        refused = reserved_by(spider) | getattr(spider, "local_arguments", frozenset())
        print(name, *sorted(refused), sep="\t")  # noqa: T201
