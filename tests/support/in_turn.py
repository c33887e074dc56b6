"""Crawls of several projects that run one after the other in one process.

Each has a directory, a database and a site of its own. What a process costs to start it costs
once.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import servers
import sites
from projects import Project, Run

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


@contextmanager
def crawled(
    marks: Mapping[str, pytest.Mark],
    kind: type[sites.Site],
    new_database: Callable[[], AbstractContextManager[str]],
) -> Iterator[dict[str, Crawled]]:
    """Crawl what each mark says (arguments of `Project.write`); yield what came of it, by name."""
    with ExitStack() as stack:
        folder = stack.enter_context(servers.open_directory())
        parts = []
        for number, mark in enumerate(marks.values()):
            site = stack.enter_context(sites.site(kind))
            directory = folder / f"proj{number}"
            project = Project(
                directory, stack.enter_context(new_database()), site.url, directory.name
            )
            parts.append((project.write(*mark.args, **mark.kwargs), site))
        whole = Project(folder, "")
        process = whole.start_python(
            str(SCRIPT), *(f"{project.directory}={site.url}" for project, site in parts)
        )
        ended = whole.finish(process, 60 + 60 * len(parts))
        assert ended.code == 0, ended.log
        yield {
            name: Crawled(project, site, _run_of(project))
            for name, (project, site) in zip(marks, parts, strict=True)
        }


def _run_of(project: Project) -> Run:
    stats = project.directory / "stats.json"
    return Run(
        0,
        (project.directory / "log.txt").read_text(),
        "",
        json.loads(stats.read_text()) if stats.exists() else {},
    )
