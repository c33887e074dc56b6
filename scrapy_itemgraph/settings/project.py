"""A project's settings: read whole, with its directories, and the names that are none of ours."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from scrapy_itemgraph.model.blobs import DATABASE
from scrapy_itemgraph.settings.sections import NAMES, PREFIX, Settings
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

logger = logs.logger(__name__)

_NEAR = 0.85  # of 1: how much a name that may be misspelt resembles one of ours


class ProjectSettings(Protocol):
    """What is asked of Scrapy's settings."""

    def get(self, name: str, /) -> Any:
        """Return a setting's value; None when it is unset."""

    def getpriority(self, name: str, /) -> int | None:
        """Return a setting's priority: 0 for a default of Scrapy."""

    def __iter__(self) -> Iterator[Any]:
        """Go over the names of all settings."""


def read_project(project: ProjectSettings) -> Settings:
    """Read a project's settings as `Settings.read` does; directories become absolute."""
    read = Settings.read(project.get)
    here = project_directory() or Path.cwd()
    data_dir, blobs = here / read.database.data_dir, blob_store(read.records.blobs, here)
    return read.but(data_dir=data_dir, blobs=blobs)


def project_directory() -> Path | None:
    """Return the directory of the project, whose `scrapy.cfg` is here or above; None without."""
    here = Path.cwd()
    return next((one for one in (here, *here.parents) if (one / "scrapy.cfg").exists()), None)


def blob_store(given: str, here: Path) -> str:
    """Return what ITEMGRAPH_BLOBS says as a URL, a folder's under a directory; or "database"."""
    if given == DATABASE or ("://" in given and not given.startswith("file://")):
        return given
    if given.startswith("file://"):
        return (here / unquote(urlsplit(given).path)).as_uri()
    return Path(os.path.abspath(here / Path(given).expanduser())).as_uri()  # noqa: PTH100 - links stay


def warn_of_unknown(project: ProjectSettings) -> None:
    """Log each setting of the project that looks like one of ours and is none."""
    given = [name for name in project if project.getpriority(name)]
    for name, near in _unknown(given):
        logger.warning(
            "There is no setting %s, so it changes nothing%s",
            name,
            f"; did you mean {near}?" if near else "",
            extra={"action": "unknown_setting", "setting": name},
        )


def _unknown(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Return names of settings that look like ours and are none, each with a near miss or ""."""
    for name in sorted(set(names) - NAMES):
        near = difflib.get_close_matches(name, NAMES, n=1, cutoff=_NEAR)
        if near or name.startswith(PREFIX):
            yield name, near[0] if near else ""
