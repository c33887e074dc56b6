"""Crawls of several projects that run one after the other in one process.

Each has a directory, a database and a site of its own. What a process costs to start it costs
once.
"""

from __future__ import annotations

import inspect
import json
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from support import servers, sites
from support.projects import Project, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    import pytest

SCRIPT = Path(__file__).with_name("in_turn_process.py")


@dataclass
class Crawled:
    """A crawl that has ended, with its project and the site that it crawled."""

    project: Project
    site: sites.Site
    run: Run


def written(item: pytest.Function) -> tuple[list[str], dict[str, str]] | None:
    """Return what is written for the crawl that a test is marked with; None if it has no mark.

    What the mark says may be a function of parameters of the test.
    """
    mark = item.get_closest_marker("crawls")
    if mark is None:
        return None
    given = item.callspec.params if hasattr(item, "callspec") else {}

    def text(one: str | Callable[..., str]) -> str:
        if isinstance(one, str):
            return one
        return one(*(given[name] for name in inspect.signature(one).parameters))

    return list(map(text, mark.args)), {name: text(one) for name, one in mark.kwargs.items()}


@contextmanager
def crawled(
    wanted: Mapping[str, tuple[list[str], dict[str, str]]],
    kind: type[sites.Site],
    new_database: Callable[[], AbstractContextManager[str]],
) -> Iterator[dict[str, Crawled]]:
    """Crawl what is wanted, arguments of `Project.write` by name; yield what came of each."""
    with ExitStack() as stack:
        folder = stack.enter_context(servers.open_directory())
        parts = []
        for number, (texts, modules) in enumerate(wanted.values()):
            site = stack.enter_context(sites.site(kind))
            directory = folder / f"proj{number}"
            project = Project(
                directory, stack.enter_context(new_database()), site.url, directory.name
            )
            parts.append((project.write(*texts, **modules), site))
        whole = Project(folder, "")
        process = whole.start_python(
            str(SCRIPT), *(f"{project.directory}={site.url}" for project, site in parts)
        )
        ended = whole.finish(process, 60 + 60 * len(parts))
        assert ended.code == 0, ended.log
        yield {
            name: Crawled(project, site, _run_of(project))
            for name, (project, site) in zip(wanted, parts, strict=True)
        }


def _run_of(project: Project) -> Run:
    stats = project.directory / "stats.json"
    return Run(
        0,
        (project.directory / "log.txt").read_text(),
        "",
        json.loads(stats.read_text()) if stats.exists() else {},
    )
