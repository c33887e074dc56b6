"""Commands that people are told to type next, as they can be pasted into a shell."""

from __future__ import annotations

import shlex


def simulate(spider: str, task: str | None, name: str, *, crawl: str | None = None) -> str:
    """Return the command that tries a task of an item, without a change.

    Of a plain page `task` is None, and `name` its URL.
    """
    of_task = () if task is None else (task,)
    return command("simulate", spider, *of_task, name, crawl=crawl)


def command(verb: str, *words: object, crawl: str | None = None) -> str:
    """Return a command with its arguments; `crawl` is what it names, None: no crawl."""
    given = [str(one) for one in words]
    end = ["--"] if any(one.startswith("-") for one in given) else []
    of_crawl = [] if crawl is None else ["--crawl", crawl]
    return shlex.join(["scrapy", "itemgraph", verb, *of_crawl, *end, *given])
