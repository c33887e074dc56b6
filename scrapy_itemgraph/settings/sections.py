"""The settings, in sections. A setting's name stands once: in capitals, that of its field.

`read` is given what a project says; `of` is for whoever has values already.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.model import periods
from scrapy_itemgraph.model.blobs import DATABASE
from scrapy_itemgraph.model.hosts import HostRule, read_rules
from scrapy_itemgraph.model.notices import Kind as NoticeKind
from scrapy_itemgraph.model.schedules import Kind
from scrapy_itemgraph.settings import readers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy_itemgraph.model.rates import RateLimit

PREFIX = "ITEMGRAPH_"
_READER = "reader"


def _by(reader: Callable[[Any], Any]) -> Mapping[str, Any]:
    """Return the metadata of a field that is a setting, read by `reader`."""
    return {_READER: reader}


@dataclass(frozen=True, kw_only=True)
class Run:
    """Whether the add-on does anything, which crawl a run works on, and when it ends."""

    enabled: bool = field(default=True, metadata=_by(readers.boolean))
    crawl: str | None = field(default=None, metadata=_by(readers.text))
    project: str | None = field(default=None, metadata=_by(readers.text))
    ignored_arguments: tuple[str, ...] = field(default=(), metadata=_by(readers.names))
    continue_: bool = field(default=False, metadata=_by(readers.boolean))
    close_ends_run: bool = field(default=True, metadata=_by(readers.boolean))
    idle: str = field(default="close", metadata=_by(readers.idle))
    tune_gc: bool = field(default=True, metadata=_by(readers.boolean))


@dataclass(frozen=True, kw_only=True)
class Database:
    """Where the graph is, and how long it is waited for. URLs may hold passwords."""

    database_url: str | None = field(default=None, repr=False, metadata=_by(readers.url))
    session_url: str | None = field(default=None, repr=False, metadata=_by(readers.url))
    data_dir: Path = field(default=Path(".scrapy/itemgraph"), metadata=_by(Path))
    postgres_bin: Path | None = field(default=None, metadata=_by(readers.path))
    auto_migrate: bool | None = field(default=None, metadata=_by(readers.boolean))
    lease: timedelta = field(default=timedelta(seconds=60), metadata=_by(readers.period))
    patience: timedelta = field(default=timedelta(minutes=15), metadata=_by(readers.period))


@dataclass(frozen=True, kw_only=True)
class Worklist:
    """How much work is claimed, committed and held in memory at once."""

    claim_batch: int = field(default=100, metadata=_by(readers.integer))
    commit_batch: int = field(default=100, metadata=_by(readers.integer))
    commit_interval: float = field(default=0.2, metadata=_by(readers.seconds))  # seconds
    held_requests: int = field(default=1000, metadata=_by(readers.integer))
    max_operations: int = field(default=2_000_000, metadata=_by(readers.integer))


@dataclass(frozen=True, kw_only=True)
class Results:
    """How long results are fresh, what answers mean; and callbacks and tags."""

    default_ttl: timedelta | None = field(default=None, metadata=_by(readers.ttl))
    has_default_ttl: bool = False  # a default was given, be it "never"
    callbacks: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict, metadata=_by(readers.mapping)
    )
    answers: Mapping[int, str] = field(default_factory=dict, metadata=_by(readers.answers))
    tag_renames: Mapping[str, str] = field(default_factory=dict, metadata=_by(readers.renames))
    max_unchanged: int = field(default=50, metadata=_by(readers.integer))

    @property
    def incremental_callbacks(self) -> list[str] | None:
        """The plain callbacks whose pages a new run does not fetch again; None: all of them.

        A request's own `itemgraph_ttl` makes its page incremental, too.
        """
        if self.has_default_ttl:
            return None
        return [
            name
            for name, options in self.callbacks.items()
            if any(options.get(option) is not None for option in ("ttl", *Kind))
        ]

    @property
    def has_answers(self) -> bool:
        """Whether pages of plain callbacks may be gone."""
        return bool(self.answers) or any(one.get("answers") for one in self.callbacks.values())

    def ttl_of(self, options: Mapping[str, Any]) -> timedelta | None:
        """Return the time to live that a plain callback's options give it; None: never, or none."""
        ttl = options.get("ttl")
        return None if ttl is None else periods.parse_ttl(ttl)


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which pages belong to a crawl."""

    least_depth: bool = field(default=False, metadata=_by(readers.boolean))


@dataclass(frozen=True, kw_only=True)
class ScrapedItems:
    """What becomes of scraped items."""

    items: Mapping[Any, Mapping[str, Any]] = field(
        default_factory=dict, metadata=_by(readers.mapping)
    )
    keep_items: bool | timedelta = field(default=False, metadata=_by(readers.kept))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How fast websites are asked."""

    rate_limit: RateLimit | None = field(default=None, metadata=_by(readers.rate))
    rate_groups: Mapping[str, RateLimit] = field(
        default_factory=dict, metadata=_by(readers.rate_groups)
    )
    learn_delays: bool = field(default=True, metadata=_by(readers.boolean))
    max_retry_after: timedelta = field(default=timedelta(hours=1), metadata=_by(readers.period))
    max_crawl_delay: timedelta = field(default=timedelta(minutes=1), metadata=_by(readers.period))


@dataclass(frozen=True, kw_only=True)
class Safety:
    """Where requests may lead; which modules stored values, and hooks rules, may name."""

    allowed_hosts: tuple[HostRule, ...] = field(default=(), metadata=_by(read_rules))
    public_only: bool = field(default=False, metadata=_by(readers.boolean))
    allowed_modules: tuple[str, ...] = field(default=(), metadata=_by(readers.modules))
    hooks: Mapping[str, Any] = field(default_factory=dict, metadata=_by(readers.hooks))


@dataclass(frozen=True, kw_only=True)
class Records:
    """What is kept of executions: lines of a log, characters of a response, answers, binary data.

    The URL of `blobs` may hold a password.
    """

    keep_logs: int = field(default=100, metadata=_by(readers.natural))
    keep_snippets: int = field(default=1000, metadata=_by(readers.natural))
    keep_pages: bool = field(default=False, metadata=_by(readers.boolean))
    blobs: str = field(default=DATABASE, repr=False, metadata=_by(readers.blobs))


@dataclass(frozen=True, kw_only=True)
class Notices:
    """Whom to tell what happens to crawls. URLs and the secret are shown nowhere.

    `notify_idle` is for how long nothing is done in a crawl, and `notify_failures` how many may be
    open, until people are told; None: never. `cockpit_url` is where they reach the cockpit.
    """

    notify_urls: tuple[str, ...] = field(default=(), repr=False, metadata=_by(readers.channels))
    notify_secret: str | None = field(default=None, repr=False, metadata=_by(readers.secret))
    notify_function: str | None = field(default=None, metadata=_by(readers.function))
    notify_kinds: tuple[str, ...] = field(
        default=tuple(NoticeKind), metadata=_by(readers.notice_kinds)
    )
    notify_idle: timedelta | None = field(default=None, metadata=_by(readers.idle_period))
    notify_failures: int | None = field(default=None, metadata=_by(readers.most_failures))
    cockpit_url: str | None = field(default=None, metadata=_by(readers.web_address))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a project says of its item graph; periods are timedeltas."""

    run: Run = field(default_factory=Run)
    database: Database = field(default_factory=Database)
    worklist: Worklist = field(default_factory=Worklist)
    results: Results = field(default_factory=Results)
    scope: Scope = field(default_factory=Scope)
    scraped_items: ScrapedItems = field(default_factory=ScrapedItems)
    limits: Limits = field(default_factory=Limits)
    safety: Safety = field(default_factory=Safety)
    records: Records = field(default_factory=Records)
    notices: Notices = field(default_factory=Notices)

    @classmethod
    def of(cls, **given: Any) -> Settings:
        """Return settings with these values, by their fields' names; others have their defaults."""
        return cls().but(**given)

    def but(self, **given: Any) -> Settings:
        """Return the settings with other values, by their fields' names."""
        sections = {one.name: _changed(getattr(self, one.name), given) for one in fields(self)}
        if given:
            raise TypeError(f"there are no settings {', '.join(sorted(given))}")
        return Settings(**sections)

    @classmethod
    def read(cls, get: Callable[[str], Any]) -> Settings:
        """Read the settings through `get`, which takes a full name and gives None when it is unset.

        A ConfigurationError names the setting that cannot be read.
        """
        given: dict[str, Any] = {}
        for name, reader in _READERS.items():
            value = get(full_name(name))
            if value is None:
                continue
            try:
                given[name] = reader(value)
            except (ValueError, TypeError, SyntaxError) as error:
                raise ConfigurationError(f"{full_name(name)}: {error}") from None
        return cls.of(**given, has_default_ttl="default_ttl" in given)


def _changed(section: Any, given: dict[str, Any]) -> Any:
    """Return a section with those of the values that are its own, which are taken out."""
    own = {one.name: given.pop(one.name) for one in fields(section) if one.name in given}
    return replace(section, **own)


def full_name(name: str) -> str:
    """Return a setting's name as a project writes it, by that of its field."""
    return PREFIX + name.rstrip("_").upper()


_READERS: dict[str, Callable[[Any], Any]] = {
    one.name: one.metadata[_READER]
    for section in fields(Settings)
    for one in fields(section.default_factory)  # type: ignore[arg-type]  # it is a section's class
    if _READER in one.metadata
}


def check_value(name: str, value: Any) -> None:
    """Read the value of a setting by its full name, and drop it; a name that is none passes.

    Raises:
        ValueError: it cannot be read; or a TypeError, or a SyntaxError.

    """
    reader = _READERS.get(name.removeprefix(PREFIX).lower())
    if reader is not None:
        reader(value)


NAMES = frozenset(map(full_name, _READERS))
"""The names of all settings."""
