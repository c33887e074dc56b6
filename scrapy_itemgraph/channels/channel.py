"""The channels of a project: its webhooks, URLs that apprise knows, and its own function."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.model.notices import Watch
from scrapy_itemgraph.settings import project_directory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from scrapy_itemgraph.settings.sections import Notices

_WEB = ("http", "https")


class Means(StrEnum):
    """How a channel sends."""

    WEBHOOK = "webhook"
    APPRISE = "apprise"
    FUNCTION = "function"


@dataclass(frozen=True, slots=True)
class Channel:
    """One way in which people are told.

    `name` may be shown, `target` may hold secrets: a URL, or the function's import path.
    """

    name: str
    means: Means
    target: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Channels:
    """The channels of a project; false where it has none.

    `kinds` of notices are sent, and `watch` says what is looked for. `directory` is the project's,
    in which processes send, `secret` what webhooks are signed with, and `cockpit` what links begin
    with.
    """

    project: str
    channels: tuple[Channel, ...] = ()
    kinds: frozenset[str] = frozenset()
    watch: Watch = field(default_factory=Watch)
    directory: Path = field(default_factory=Path)
    secret: str | None = field(default=None, repr=False)
    cockpit: str | None = None

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self.channels)

    @classmethod
    def of(cls, settings: Notices, project: str, directory: Path | None = None) -> Self:
        """Return the channels that the settings of a project say, which is here if not told.

        Raises:
            ConfigurationError: the extra `apprise` is needed and not installed, or a function's
                module does not exist.

        """
        channels = tuple(_named(_all(settings)))
        here = directory or project_directory() or Path.cwd()
        if any(one.means is Means.APPRISE for one in channels) and find_spec("apprise") is None:
            raise ConfigurationError(
                "ITEMGRAPH_NOTIFY_URLS has a URL that is none of HTTP, for which the package "
                'apprise is needed; install it with `pip install "scrapy-itemgraph[apprise]"`'
            )
        if settings.notify_function is not None:
            module = settings.notify_function.partition(".")[0]
            if PathFinder.find_spec(module, [str(here), *sys.path]) is None:
                raise ConfigurationError(
                    f"ITEMGRAPH_NOTIFY_FUNCTION is {settings.notify_function!r}, and there is no "
                    f"module {module!r}; write the import path of a function of the project"
                )
        return cls(
            project=project,
            channels=channels,
            kinds=frozenset(settings.notify_kinds),
            watch=Watch(idle=settings.notify_idle, failures=settings.notify_failures),
            directory=here,
            secret=settings.notify_secret,
            cockpit=settings.cockpit_url,
        )


def _all(settings: Notices) -> Iterable[Channel]:
    for url in settings.notify_urls:
        parts = urlsplit(url)
        if parts.scheme in _WEB:
            yield Channel(f"{parts.scheme}://{_host(url)}", Means.WEBHOOK, url)
        else:  # what follows may be a token, already where a host would stand
            yield Channel(f"apprise {url.partition(':')[0]}", Means.APPRISE, url)
    if settings.notify_function is not None:
        name = settings.notify_function
        yield Channel(f"function {name}", Means.FUNCTION, name)


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _named(channels: Iterable[Channel]) -> Iterable[Channel]:
    """Return the channels, those with a number that would be shown alike."""
    seen: Counter[str] = Counter()
    for one in channels:
        seen[one.name] += 1
        number = seen[one.name]
        yield one if number == 1 else Channel(f"{one.name} ({number})", one.means, one.target)
