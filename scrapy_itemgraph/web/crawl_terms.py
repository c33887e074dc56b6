"""What may be asked of a new crawl over HTTP: the project's spiders, and settings that run nothing.

A setting may have a runner import what it names, write files or open ports, and a variable of its
environment may be a secret. So those that are given over HTTP are listed here, or by whoever starts
the server.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model import crawl_arguments, package_spiders
from scrapy_itemgraph.model.crawl_states import NewCrawl
from scrapy_itemgraph.settings import queued
from scrapy_itemgraph.tools.hiding import FROM_ENVIRONMENT
from scrapy_itemgraph.tools.wording import closest, one_line

# How fast, how far and how much is crawled, and what of it is told.
SETTINGS = frozenset(
    {
        "AUTOTHROTTLE_ENABLED",
        "AUTOTHROTTLE_MAX_DELAY",
        "AUTOTHROTTLE_START_DELAY",
        "AUTOTHROTTLE_TARGET_CONCURRENCY",
        "CLOSESPIDER_ERRORCOUNT",
        "CLOSESPIDER_ITEMCOUNT",
        "CLOSESPIDER_PAGECOUNT",
        "CLOSESPIDER_PAGECOUNT_NO_ITEM",
        "CLOSESPIDER_TIMEOUT",
        "CLOSESPIDER_TIMEOUT_NO_ITEM",
        "CONCURRENT_ITEMS",
        "CONCURRENT_REQUESTS",
        "CONCURRENT_REQUESTS_PER_DOMAIN",
        "COOKIES_ENABLED",
        "DEPTH_LIMIT",
        "DEPTH_PRIORITY",
        "DOWNLOAD_DELAY",
        "DOWNLOAD_MAXSIZE",
        "DOWNLOAD_TIMEOUT",
        "DOWNLOAD_WARNSIZE",
        "HTTPERROR_ALLOWED_CODES",
        "HTTPERROR_ALLOW_ALL",
        "ITEMGRAPH_DEFAULT_TTL",
        "ITEMGRAPH_KEEP_ITEMS",
        "ITEMGRAPH_KEEP_LOGS",
        "ITEMGRAPH_RATE_LIMIT",
        "LOG_LEVEL",
        "METAREFRESH_ENABLED",
        "RANDOMIZE_DOWNLOAD_DELAY",
        "REDIRECT_ENABLED",
        "REDIRECT_MAX_TIMES",
        "REFERER_ENABLED",
        "RETRY_ENABLED",
        "RETRY_HTTP_CODES",
        "RETRY_TIMES",
        "ROBOTSTXT_OBEY",
        "URLLENGTH_LIMIT",
        "USER_AGENT",
    }
)
_KNOWN_FOR = 60.0  # seconds for which spiders that were listed are shown
_WITHIN = 60.0  # seconds in which they are to be listed


@dataclass(frozen=True, kw_only=True)
class CrawlTerms:
    """What crawls may be added with over HTTP; without any, those of other servers' projects.

    `project` is the server's own, and `list_spiders` the command that lists its spiders by line,
    each with the arguments that it refuses, by tabs; without the command the server has no
    project's code. `ignored` are the names of arguments that
    make no crawl of their own. `settings` and `variables` may be given besides those that do no
    harm. `feeds` and `keeps` are FEEDS and ITEMGRAPH_KEEP_ITEMS of the server's own project.
    """

    project: str | None = None
    list_spiders: Sequence[str] | None = None
    ignored: Collection[str] = ()
    settings: Collection[str] = ()
    variables: Collection[str] = ()
    feeds: Collection[str] = ()
    keeps: Any = None
    _spiders: Spiders = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_spiders", Spiders(self.list_spiders or ()))

    @property
    def has_code(self) -> bool:
        """Whether the server has a project's code, and so knows its spiders."""
        return self.list_spiders is not None

    def spiders(self) -> list[str]:
        """Return the names of the project's spiders; none where they are not known."""
        return sorted(self._spiders.listed()) if self.has_code else []

    def of_project(self, given: str | None) -> str:
        """Return the project whose crawl is meant.

        Raises:
            OperationError: none is given, and the server has none.

        """
        project = given or (self.project if self.has_code else None)
        if project is None:
            raise OperationError(
                'say which project\'s runners take it, as "project": this server runs outside of '
                "a project's folder"
            )
        return project

    def check_spider(self, name: str, project: str, arguments: Collection[str] = ()) -> list[str]:
        """Return what a person should know of a spider that was not looked up.

        Raises:
            NotFoundError: the project has none of this name, and it says which are near; or it is
                the package's own, and no spider of a project that is known here.
            OperationError: an argument of these that may not be given over HTTP.

        """
        is_own = self.has_code and project == self.project
        known = self._spiders.listed() if is_own else {}
        if is_own and name not in known:
            known = self._spiders.listed(known_for=0.0)  # it may be new
        if name not in known and name in package_spiders.SPIDERS:
            raise NotFoundError(
                f"the spider {name!r} comes with scrapy-itemgraph and fetches what it is told to, "
                "in any network; over HTTP it takes a spider of the project of its kind, or add "
                "the crawl on the command line"
            )
        _check_arguments(name, arguments, known.get(name))
        if not is_own:
            said = f"this server does not have the code of the project {project}; whether it has a"
            return [f"{said} spider {name} shows when a runner starts it"]
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            said = f"there is no spider {name!r:.80}{closest(name, known)}"
            raise NotFoundError(f"{said}; the project has {listed}")
        return []

    def new_crawl(
        self,
        spider: str,
        project: str | None,
        arguments: Mapping[str, Any],
        settings: Mapping[str, Any],
        **terms: Any,
    ) -> tuple[NewCrawl, list[str]]:
        """Return a crawl that may be put into the queue, and what a person should know of it.

        `terms` are those of `NewCrawl`.

        Raises:
            NotFoundError: the project has no spider of this name.
            OperationError: an argument, a setting or a variable that may not be given; or no
                project is.

        """
        of_project = self.of_project(project)
        warnings = self.check_spider(spider, of_project, arguments)
        new = NewCrawl(
            spider=spider,
            project=of_project,
            arguments=crawl_arguments.texts(arguments),
            settings=crawl_arguments.texts(settings),
            ignored=self.ignored,
            **terms,
        )
        self.check(new.arguments, new.settings)
        self.check_feeds(of_project, new.settings)
        return new, warnings

    def check_feeds(self, project: str, settings: Mapping[str, Any]) -> None:
        """Check the feeds of a crawl with these settings, as far as those of its project are known.

        Raises:
            OperationError: it is told to keep no items, so that each host would have a part.

        """
        is_own = self.has_code and project == self.project
        of_project = {"feeds": self.feeds, "keeps": self.keeps} if is_own else {}
        queued.check_feeds(settings, **of_project)

    def check(self, arguments: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Check what a crawl is to be started with.

        Raises:
            OperationError: a setting, or a variable of the environment, that may not be given.

        """
        for name in settings:
            if name not in SETTINGS and name not in self.settings:
                raise OperationError(
                    f"the setting {name!r:.80} may not be given over HTTP, for a setting may have "
                    "a process import, write and open what it names; give it on the command line, "
                    f"or start the server with --allow-setting {name:.80}"
                )
        for name, value in (*arguments.items(), *settings.items()):
            variable = str(value).removeprefix(FROM_ENVIRONMENT)
            if variable != str(value) and variable not in self.variables:
                raise OperationError(
                    f"{name!r:.80} may not have the variable {variable!r:.80} over HTTP, for it "
                    "may be any secret of the runner; give it on the command line, or start the "
                    f"server with --allow-variable {variable:.80}"
                )


def _check_arguments(
    spider: str, arguments: Collection[str], refused: Collection[str] | None
) -> None:
    """Refuse arguments that a spider does; `refused` is None where its code is not known here."""
    if refused is not None:
        for name in crawl_arguments.reserved(arguments, refused):
            raise OperationError(
                crawl_arguments.reserved_error(name, spider)
                if name in crawl_arguments.RESERVED or name.startswith("__")
                else f"the spider {spider} does not take the argument {name!r:.80} over HTTP; give "
                "it on the command line"
            )
    for name in crawl_arguments.reserved(arguments, _UNSEEN if refused is None else ()):
        raise OperationError(
            f"the argument {name!r:.80} may not be given over HTTP for a spider whose code this "
            "server does not have, since it may replace what Scrapy has on a spider, or name a "
            "file; add the crawl on the command line, or start the server in the project's folder"
        )


# What spiders of the package refuse, and so those of projects that are made of them.
_UNSEEN = crawl_arguments.RESERVED | package_spiders.LOCAL_ARGUMENTS


class Spiders:
    """A project's spiders, listed by a process of its own that loads the code."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._listed: dict[str, list[str]] = {}
        self._read_at: float | None = None

    def listed(self, known_for: float = _KNOWN_FOR) -> Mapping[str, Collection[str]]:
        """Return the arguments that each refuses, by name, as of so many seconds ago at most.

        Raises:
            OperationError: the project's code cannot be loaded.

        """
        asked_at = time.monotonic()
        with self._lock:
            if self._read_at is None or self._read_at < asked_at - known_for:
                self._listed = _listed(self._command)
                self._read_at = time.monotonic()
            return self._listed


def _listed(command: Sequence[str]) -> dict[str, list[str]]:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:replace"}
    try:
        done = subprocess.run(  # noqa: S603 - the command of whoever made the application
            command,
            capture_output=True,
            check=False,
            encoding="utf-8",
            env=environment,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_WITHIN,
        )
    except subprocess.TimeoutExpired:
        raise OperationError(f"the project's spiders were not listed in {_WITHIN:.0f} s") from None
    if done.returncode != 0:
        last = one_line((done.stderr.strip().splitlines() or ["it did not say why"])[-1])
        raise OperationError(f"the project's spiders cannot be loaded: {last}")
    lines = [one.strip().split("\t") for one in done.stdout.splitlines() if one.strip()]
    return {name: refused for name, *refused in lines}


# These are not worth a thread.
async def _of_server(request: Request) -> CrawlTerms:
    terms: CrawlTerms = request.app.state.crawl_terms
    return terms


Terms = Annotated[CrawlTerms, Depends(_of_server)]
