"""Commands that people are told to type next, as they can be pasted into a shell."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from scrapy_itemgraph.model import crawl_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTINUES = "ITEMGRAPH_CONTINUE=True"
"""The setting with which a start goes on with the last run, though that is over."""

KEEPS_DONE = "ITEMGRAPH_DEFAULT_TTL=never"
"""The setting with which a new run fetches again no page of a plain callback that is done."""


def simulate(
    spider: str | None,
    task: str | None,
    name: str,
    *,
    crawl: str | None = None,
    arguments: Mapping[str, str] | None = None,
) -> str:
    """Return the command that tries a task of an item, without a change.

    Of a plain page `task` is None, and `name` its URL; without a spider a word stands for it.
    `arguments` are those of the spider that made the crawl.
    """
    of_task = () if task is None else (task,)
    typed = command("simulate", spider or "SPIDER", *of_task, name, crawl=crawl)
    return f"{typed} {crawl_arguments.as_options(arguments)}" if arguments else typed


def simulate_in(
    crawl: str, arguments: Mapping[str, str], spider: str | None, task: str | None, name: str
) -> str:
    """Return the same for a crawl, which is named unless the spider's own is meant anyway."""
    is_own = spider is not None and crawl == crawl_arguments.label(spider, arguments)
    named = None if is_own else crawl
    return simulate(spider, task, name, crawl=named, arguments=arguments)


def crawl(spider: str, arguments: Mapping[str, str], *settings: str) -> str:
    """Return the command that starts a crawl again; in the place of a secret stand three dots."""
    options = [crawl_arguments.as_options(arguments)] if arguments else []
    given = shlex.join([one for setting in settings for one in ("-s", setting)])
    return " ".join(filter(None, ["scrapy crawl", shlex.quote(spider), *options, given]))


def command(verb: str, *words: object, crawl: str | None = None) -> str:
    """Return a command with its arguments; `crawl` is what it names, None: no crawl."""
    given = [str(one) for one in words]
    end = ["--"] if any(one.startswith("-") for one in given) else []
    of_crawl = [] if crawl is None else ["--crawl", crawl]
    return shlex.join(["scrapy", "itemgraph", verb, *of_crawl, *end, *given])
