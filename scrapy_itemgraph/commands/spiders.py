"""The project's spiders, and those of the package, by their names."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from scrapy.spiderloader import get_spider_loader

from scrapy_itemgraph import spiderloader
from scrapy_itemgraph.exceptions import (
    ConfigurationError,
    ItemGraphError,
    NotFoundError,
    OperationError,
)
from scrapy_itemgraph.model import package_spiders
from scrapy_itemgraph.tools.wording import closest
from scrapy_itemgraph.worker.executions.error_records import is_project_file, type_name
from scrapy_itemgraph.worker.spider.job_arguments import check_reserved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Spider
    from scrapy.settings import BaseSettings


def spider_class(settings: BaseSettings, name: str) -> type[Spider]:
    """Load the class of a spider.

    Raises:
        NotFoundError: the project has none of this name; it says which are near.
        ConfigurationError: a module of the project cannot be imported; it says where, and why.

    """
    loader = _loader(settings)
    known = loader.list()
    if name not in known:
        ours = spiderloader.package_spider(settings, name)
        if ours is not None:
            return ours
        listed = ", ".join(sorted(known)) or "none"
        near = closest(name, [*known, *package_spiders.SPIDERS])
        raise NotFoundError(f"there is no spider {name!r}{near}; the project has {listed}")
    found: type[Spider] = loader.load(name)
    return found


def check_arguments(spider: type[Spider], arguments: Mapping[str, str]) -> None:
    """Check what a spider is to be started with by the queue.

    A spider may have a `check_arguments` for that, which raises a ValueError.

    Raises:
        OperationError: it says what is wrong.

    """
    try:
        check_reserved(spider, arguments)
    except ConfigurationError as error:
        raise OperationError(str(error)) from None
    check = getattr(spider, "check_arguments", None)
    if callable(check):
        try:
            check(arguments)
        except ValueError as error:
            raise OperationError(
                f"the spider {spider.name} cannot be started so: {error}"
            ) from None


def feeds_of(settings: BaseSettings) -> dict[str, Any]:
    """Return the URIs of the feeds, and ITEMGRAPH_KEEP_ITEMS; None: it is not set."""
    is_told = settings.getpriority("ITEMGRAPH_KEEP_ITEMS") is not None
    keeps = settings.get("ITEMGRAPH_KEEP_ITEMS") if is_told else None
    return {"feeds": list(map(str, settings.getdict("FEEDS"))), "keeps": keeps}


def _loader(settings: BaseSettings) -> Any:
    try:
        return get_spider_loader(settings)
    except ItemGraphError:  # of a @task, say: it tells itself where
        raise
    except Exception as error:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ConfigurationError(
            f"the project's spiders cannot be loaded: {type_name(error)}: {said}{_where(error)}"
        ) from error


def _where(error: Exception) -> str:
    """Return the project's line, and its module, in which an import failed; else nothing."""
    if isinstance(error, SyntaxError) and error.filename:
        return f", in line {error.lineno} of {error.filename}"
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_project_file(frame.f_code.co_filename)
        and not frame.f_code.co_filename.startswith("<")
    ]
    if not frames:
        return ""
    frame, line = frames[-1]
    module = frame.f_globals.get("__name__")
    return f", in line {line} of {frame.f_code.co_filename} (the module {module})"
