"""The `ITEMGRAPH_*` settings, read once into plain values."""

from __future__ import annotations

import ast
import difflib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from scrapy_itemgraph.exceptions import ConfigurationError, InvalidIdError
from scrapy_itemgraph.model import input_checks, periods
from scrapy_itemgraph.model.blobs import DATABASE
from scrapy_itemgraph.model.hosts import HostRule, read_rules
from scrapy_itemgraph.model.rates import RateLimit
from scrapy_itemgraph.tools import logs

logger = logs.logger(__name__)

PREFIX = "ITEMGRAPH_"
_NEAR = 0.85
_TRUE = {True, "1", "true", "True"}
_FALSE = {False, "0", "false", "False"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a project says of its item graph; periods are timedeltas."""

    enabled: bool = True
    database_url: str | None = field(default=None, repr=False)  # it may hold a password
    session_url: str | None = field(default=None, repr=False)  # likewise
    data_dir: Path = Path(".scrapy/itemgraph")
    postgres_bin: Path | None = None
    crawl: str | None = None
    ignored_arguments: tuple[str, ...] = ()
    idle: str = "close"
    lease: timedelta = timedelta(seconds=60)
    claim_batch: int = 100
    commit_batch: int = 100
    commit_interval: float = 0.2
    patience: timedelta = timedelta(minutes=15)
    default_ttl: timedelta | None = None
    has_default_ttl: bool = False  # be it "never"
    items: Mapping[Any, Mapping[str, Any]] = field(default_factory=dict)
    callbacks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    held_requests: int = 1000
    keep_items: bool | timedelta = False
    max_retry_after: timedelta = timedelta(hours=1)
    max_crawl_delay: timedelta = timedelta(minutes=1)
    rate_limit: RateLimit | None = None
    rate_groups: Mapping[str, RateLimit] = field(default_factory=dict)
    learn_delays: bool = True
    tag_renames: Mapping[str, str] = field(default_factory=dict)
    auto_migrate: bool | None = None
    allowed_modules: tuple[str, ...] = ()
    max_operations: int = 2_000_000
    tune_gc: bool = True
    keep_logs: int = 100
    keep_snippets: int = 1000
    blobs: str = field(default=DATABASE, repr=False)  # a URL may hold a password
    allowed_hosts: tuple[HostRule, ...] = ()
    public_only: bool = False

    @property
    def incremental_callbacks(self) -> list[str] | None:
        """The plain callbacks whose pages a new run does not fetch again; None: all of them.

        A request's own `itemgraph_ttl` makes its page incremental, too.
        """
        if self.has_default_ttl:
            return None
        return [name for name, options in self.callbacks.items() if options.get("ttl") is not None]

    def ttl_of(self, options: Mapping[str, Any]) -> timedelta | None:
        """Return the time to live that a plain callback's options give it; None: never, or none."""
        ttl = options.get("ttl")
        return None if ttl is None else periods.parse_ttl(ttl)

    @classmethod
    def of_project(cls, project: ProjectSettings) -> Settings:
        """Read a project's settings as `read` does; directories become absolute."""
        read = cls.read(project.get)
        here = project_directory() or Path.cwd()
        return replace(read, data_dir=here / read.data_dir, blobs=blob_store(read.blobs, here))

    @classmethod
    def read(cls, get: Callable[[str], Any]) -> Settings:
        """Read the settings through `get`, which takes a full name and gives None when it is unset.

        A ConfigurationError names the setting that cannot be read.
        """
        given: dict[str, Any] = {}
        for name, reader in _READERS.items():
            value = get(PREFIX + name.upper())
            if value is None:
                continue
            try:
                given[name] = reader(value)
            except (ValueError, TypeError, SyntaxError) as error:
                raise ConfigurationError(f"{PREFIX}{name.upper()}: {error}") from None
        return cls(**given, has_default_ttl="default_ttl" in given)


class ProjectSettings(Protocol):
    """What is asked of Scrapy's settings."""

    def get(self, name: str, /) -> Any:
        """Return a setting's value; None when it is unset."""

    def getpriority(self, name: str, /) -> int | None:
        """Return a setting's priority: 0 for a default of Scrapy."""

    def __iter__(self) -> Iterator[Any]:
        """Go over the names of all settings."""


def project_directory() -> Path | None:
    """Return the directory of the project, whose `scrapy.cfg` is here or above; None without."""
    here = Path.cwd()
    return next((one for one in (here, *here.parents) if (one / "scrapy.cfg").exists()), None)


def warn_of_unknown(project: ProjectSettings) -> None:
    """Log each setting of the project that looks like one of ours and is none."""
    given = [name for name in project if project.getpriority(name)]
    for name, near in unknown(given):
        logger.warning(
            "There is no setting %s, so it changes nothing%s",
            name,
            f"; did you mean {near}?" if near else "",
            extra={"action": "unknown_setting", "setting": name},
        )


def unknown(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Return names of settings that look like ours and are none, each with a near miss or ""."""
    known = {PREFIX + name.upper() for name in _READERS}
    for name in sorted(set(names) - known):
        near = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
        if near or name.startswith(PREFIX):
            yield name, near[0] if near else ""


def blob_store(given: str, here: Path) -> str:
    """Return what ITEMGRAPH_BLOBS says as a URL, a folder's under a directory; or "database"."""
    if given == DATABASE or ("://" in given and not given.startswith("file://")):
        return given
    if given.startswith("file://"):
        return (here / unquote(urlsplit(given).path)).as_uri()
    return Path(os.path.abspath(here / Path(given).expanduser())).as_uri()  # noqa: PTH100 - links stay


def _boolean(value: Any) -> bool:
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise ValueError(f"write True or False, not {value!r}")


def _kept(value: Any) -> bool | timedelta:
    """Read whether scraped items are kept, or for how long."""
    try:
        return _boolean(value)
    except ValueError:
        return _period(value)


def _integer(value: Any, least: int = 1) -> int:
    number = int(value)
    if number < least:
        raise ValueError(f"write a whole number from {least}, not {value!r}")
    return number


def _natural(value: Any) -> int:
    return _integer(value, least=0)


def _seconds(value: Any) -> float:
    return _period(value).total_seconds()


def number(value: Any) -> Any:
    """Read text such as "60" from a command line as the number it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _period(value: Any) -> timedelta:
    return periods.parse_period(number(value), "it")


def _ttl(value: Any) -> timedelta | None:
    return periods.parse_ttl(number(value), "it")


def _idle(value: Any) -> str:
    if value not in {"close", "wait"}:
        raise ValueError(f'write "close" or "wait", not {value!r}')
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"write a text, not {value!r}")
    return input_checks.check_text(value, "it", error=ValueError)


def _url(value: Any) -> str:
    """Read a URL, which no error may quote: it may hold a password."""
    if not isinstance(value, str) or not value:
        what = "an empty one" if isinstance(value, str) else f"a {type(value).__name__}"
        raise ValueError(f"write a text, not {what}")
    try:
        return input_checks.check_text(value, "it", error=ValueError)
    except ValueError:
        raise ValueError("it has a NUL character or a lone surrogate, as no URL has") from None


def _blobs(value: Any) -> str:
    return str(value) if isinstance(value, Path) else _url(value)


def _mapping(value: Any) -> dict[Any, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = ast.literal_eval(value)
    if not isinstance(value, Mapping):
        raise TypeError(f"write a dict, not {value!r}")
    return dict(value)


def _listed(value: Any) -> list[Any]:
    """Return the parts of a list, or of comma-separated text."""
    given = value.split(",") if isinstance(value, str) else list(value)
    return [one.strip() if isinstance(one, str) else one for one in given]


def _modules(value: Any) -> tuple[str, ...]:
    names = _listed(value)
    for name in names:
        if not isinstance(name, str) or not all(map(str.isidentifier, name.split("."))):
            raise ValueError(f'write names of modules such as "shop.items", not {name!r}')
    return tuple(names)


def _names(value: Any) -> tuple[str, ...]:
    names = _listed(value)
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError('write names of arguments such as ["depth", "dry_run"]')
    return tuple(names)


def _renames(value: Any) -> dict[str, str]:
    names = [name for pair in _mapping(value).items() for name in pair]
    try:
        for name in names:
            input_checks.check_id(name, "a tag")
    except InvalidIdError as error:
        raise ValueError(str(error)) from None
    return _mapping(value)


def _rate_groups(value: Any) -> dict[str, RateLimit]:
    groups = _mapping(value)
    try:
        for name in groups:
            input_checks.check_tag(name, "the name of a group")
    except InvalidIdError as error:
        raise ValueError(
            f'{error}; write names of tasks, with * for any text, such as {{"shop:*": "1/s"}}'
        ) from None
    return {name: RateLimit.read(rate, f"the group {name!r}") for name, rate in groups.items()}


_READERS: dict[str, Callable[[Any], Any]] = {
    "enabled": _boolean,
    "database_url": _url,
    "session_url": _url,
    "data_dir": Path,
    "postgres_bin": lambda value: Path(_text(value)).expanduser() if value else None,
    "crawl": _text,
    "idle": _idle,
    "lease": _period,
    "claim_batch": _integer,
    "commit_batch": _integer,
    "commit_interval": _seconds,
    "patience": _period,
    "default_ttl": _ttl,
    "items": _mapping,
    "callbacks": _mapping,
    "ignored_arguments": _names,
    "held_requests": _integer,
    "keep_items": _kept,
    "max_retry_after": _period,
    "max_crawl_delay": _period,
    "rate_limit": lambda value: RateLimit.read(value, "it"),
    "rate_groups": _rate_groups,
    "learn_delays": _boolean,
    "tag_renames": _renames,
    "auto_migrate": _boolean,
    "allowed_modules": _modules,
    "max_operations": _integer,
    "tune_gc": _boolean,
    "keep_logs": _natural,
    "keep_snippets": _natural,
    "blobs": _blobs,
    "allowed_hosts": read_rules,
    "public_only": _boolean,
}
