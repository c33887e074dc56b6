"""A command of the project's own, as Scrapy's documentation shows it."""

from __future__ import annotations

import logging
import os
import urllib.request
from pathlib import Path

from scrapy.commands import BaseRunSpiderCommand

logger = logging.getLogger(__name__)


class Command(BaseRunSpiderCommand):
    """Crawls with several spiders, one after another, each in a directory of its own."""

    requires_project = True

    def syntax(self):
        return "<spider> [<spider> ...]"

    def short_desc(self):
        return "Crawl with several spiders, one after another"

    def run(self, args, opts):
        top = Path.cwd()
        names = iter(args)

        def crawl_next(_finished=None):
            name = next(names, None)
            if name is None:
                return
            logger.info("Now %s", name)
            with urllib.request.urlopen(f"{os.environ['SITE']}/chapter/{name}"):
                pass
            (top / name).mkdir()
            os.chdir(top / name)
            self.crawler_process.crawl(name, **opts.spargs).add_done_callback(crawl_next)

        crawl_next()
        self.crawler_process.start()
        if self.crawler_process.bootstrap_failed:
            self.exitcode = 1
