"""The process of `in_turn`: crawl the projects that the arguments name, DIRECTORY=SITE."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.spiderloader import SpiderLoader
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.log import configure_logging, install_scrapy_root_handler
from scrapy.utils.reactor import install_reactor


async def crawl(directory: str, site: str) -> None:
    """Crawl with the spider of a project; its log is `log.txt` there."""
    os.chdir(directory)
    os.environ["SITE"] = site
    sys.path.insert(0, directory)
    settings = Settings()
    settings.setmodule(f"{Path(directory).name}.settings", priority="project")
    settings.set("LOG_FILE", f"{directory}/log.txt", priority="cmdline")
    install_scrapy_root_handler(settings)
    spider = SpiderLoader.from_settings(settings).load("s")
    await Crawler(spider, settings).crawl_async()


async def crawl_all() -> None:
    """Crawl one after the other."""
    for argument in sys.argv[1:]:
        directory, _, site = argument.partition("=")
        await crawl(directory, site)


def main() -> None:
    """Crawl in Scrapy's usual reactor, or without one."""
    configure_logging(install_root_handler=False)
    if os.environ.get("ITEMGRAPH_TEST_REACTORLESS") == "1":
        asyncio.run(crawl_all())
        return
    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    from twisted.internet import task

    task.react(lambda _: deferred_from_coro(crawl_all()))


if __name__ == "__main__":
    main()
