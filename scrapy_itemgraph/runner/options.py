"""What a runner is told: by the command `work`, through memory, for it may have secrets."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.model.runners import Terms
from scrapy_itemgraph.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_itemgraph.settings.sections import Notices

_DATABASE = ("database_url", "session_url", "data_dir", "postgres_bin", "auto_migrate")


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a runner runs.

    `directory` is the project's, in which processes start; it is looked up anew for each, so that
    it may be a link that a deployment changes. `logs` is the folder of their logs, of up to
    `max_logs` bytes. Nothing is started while less than `min_memory` or `min_disk` bytes are free.
    `stop_after` is how long a process has to end by itself. `arguments` are settings given as
    `-s NAME=VALUE`, and `environment` those that only the environment may have. With `once` the
    runner ends when there is nothing more to start.
    """

    terms: Terms
    settings: Settings = field(repr=False)
    directory: Path
    logs: Path
    max_logs: int
    min_memory: int
    min_disk: int
    stop_after: timedelta
    once: bool = False
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def to_json(self) -> str:
        """Return the options as JSON; it may have secrets."""
        database = self.settings.database
        given: dict[str, Any] = {
            "terms": asdict(self.terms),
            "database": {name: _plain(getattr(database, name)) for name in _DATABASE},
            "lease": database.lease.total_seconds(),
            "patience": database.patience.total_seconds(),
            "notices": _to_json(self.settings.notices),
            "directory": str(self.directory),
            "logs": str(self.logs),
            "stop_after": self.stop_after.total_seconds(),
            "arguments": list(self.arguments),
            "environment": dict(self.environment),
        }
        for name in ("max_logs", "min_memory", "min_disk", "once"):
            given[name] = getattr(self, name)
        return json.dumps(given)

    @classmethod
    def from_json(cls, text: str) -> Options:
        """Return the options that `to_json` wrote."""
        given = json.loads(text)
        terms, database = given.pop("terms"), given.pop("database")
        for name in ("data_dir", "postgres_bin"):
            database[name] = None if database[name] is None else Path(database[name])
        settings = Settings.of(
            **database,
            lease=timedelta(seconds=given.pop("lease")),
            patience=timedelta(seconds=given.pop("patience")),
            **_notices(given.pop("notices")),
        )
        given["stop_after"] = timedelta(seconds=given["stop_after"])
        for name in ("directory", "logs"):
            given[name] = Path(given[name])
        given["arguments"] = tuple(given["arguments"])
        terms["tags"] = tuple(terms["tags"])
        return cls(terms=Terms(**terms), settings=settings, **given)


def _to_json(notices: Notices) -> dict[str, Any]:
    idle = notices.notify_idle
    return {**asdict(notices), "notify_idle": None if idle is None else idle.total_seconds()}


def _notices(given: dict[str, Any]) -> dict[str, Any]:
    for name in ("notify_urls", "notify_kinds"):
        given[name] = tuple(given[name])
    if given["notify_idle"] is not None:
        given["notify_idle"] = timedelta(seconds=given["notify_idle"])
    return given


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
