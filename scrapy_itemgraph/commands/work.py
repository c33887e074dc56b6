"""The runner: a daemon that runs the crawls of the queue."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError
from scrapy.settings import SETTINGS_PRIORITIES

from scrapy_itemgraph.commands import parsing
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import input_checks
from scrapy_itemgraph.model.runners import Terms
from scrapy_itemgraph.runner.options import Options
from scrapy_itemgraph.settings import NAMES, project_directory

if TYPE_CHECKING:
    from scrapy_itemgraph.commands.call import Call

_MOST_PROCESSES = 1000


@command(
    Argument("--processes", metavar="N", type=parsing.count, default=1, help="at once (1)"),
    Argument("--name", metavar="NAME", help="of the runner; by default the host's name"),
    Argument(
        "--tag",
        metavar="TAG",
        action="append",
        default=[],
        help="take crawls with this tag, too; may be repeated",
    ),
    Argument("--only-tagged", action="store_true", help="take no crawls without a tag"),
    Argument(
        "--no-preempt", action="store_true", help="end no process for a crawl that goes before"
    ),
    Argument("--logs", metavar="DIR", type=Path, help="where logs go (.scrapy/itemgraph-logs)"),
    Argument(
        "--max-logs", metavar="SIZE", type=parsing.size, default="5G", help="of all logs (5G)"
    ),
    Argument(
        "--min-memory",
        metavar="SIZE",
        type=parsing.size,
        default="500M",
        help="start nothing while less is free (500M)",
    ),
    Argument(
        "--min-disk",
        metavar="SIZE",
        type=parsing.size,
        default="5G",
        help="start nothing while less is free (5G)",
    ),
    Argument(
        "--stop-after",
        metavar="PERIOD",
        type=parsing.period,
        default="5m",
        help="how long a process that is told to end may take (5m)",
    ),
    Argument("--once", action="store_true", help="end when there is nothing more to start"),
)
def work(call: Call) -> None:
    """Run the crawls of the queue, some processes at once, until Ctrl-C.

    Each process is `scrapy crawl SPIDER` in this project, and has a log of its own. At SIGTERM or
    Ctrl-C nothing is started any more, and what runs has --stop-after to end; a second one stops it
    at once, a third kills it.
    """
    options = _options(call)
    told = os.memfd_create("runner", 0)  # memory that the next program has, and no other
    with os.fdopen(told, "w", encoding="utf-8", closefd=False) as file:
        file.write(options.to_json())
    os.lseek(told, 0, os.SEEK_SET)
    sys.stdout.flush()
    runner = [sys.executable, "-m", "scrapy_itemgraph.runner", str(told)]
    os.execv(sys.executable, runner)  # noqa: S606 - a Python without Scrapy, a third of the memory


def _options(call: Call) -> Options:
    given = call.given
    directory = _logical(project_directory())
    if directory is None:
        raise OperationError(
            "there is no Scrapy project here (no scrapy.cfg in this folder or above); go to the "
            "project whose crawls are to be run"
        )
    if given.processes > _MOST_PROCESSES:
        raise UsageError(f"--processes is 1 to {_MOST_PROCESSES:,}; run several runners for more")
    if given.only_tagged and not given.tag:
        raise UsageError("--only-tagged without a --tag would take nothing; name one: --tag TAG")
    logs = Path.cwd() / (given.logs or directory / ".scrapy" / "itemgraph-logs")
    arguments, environment = _settings(call)
    return Options(
        terms=Terms(
            name=_name(given.name or socket.gethostname()),
            project=call.project,
            places=given.processes,
            tags=tuple(dict.fromkeys(_name(tag) for tag in given.tag)),
            only_tagged=given.only_tagged,
            preempts=not given.no_preempt,
            logs=str(logs),
        ),
        settings=call.settings,
        directory=directory,
        logs=logs,
        max_logs=given.max_logs,
        min_memory=given.min_memory,
        min_disk=given.min_disk,
        stop_after=given.stop_after,
        once=given.once,
        arguments=arguments,
        environment=environment,
    )


def _name(text: str) -> str:
    """Return the name of a runner or a tag.

    Raises:
        UsageError: it is empty, or too long, or cannot be printed.

    """
    if not text.isprintable():
        raise UsageError(f"{text!r:.40} cannot be a name: it has what cannot be printed")
    return input_checks.check_tag(text, "a name")


def _logical(directory: Path | None) -> Path | None:
    """Return a directory as the shell calls it, where links stand that a deployment changes."""
    shown = Path(os.environ.get("PWD", ""))
    if directory is None or not shown.is_absolute():
        return directory
    for one in (shown, *shown.parents):
        if one.exists() and one.samefile(directory):
            return one
    return directory


def _settings(call: Call) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the settings that processes get: as arguments, and by the environment alone.

    Those of ours may be secret, or have one: other users see the arguments of a process.
    """
    settings, database = call.scrapy_settings, call.settings.database
    given = [
        name for name in settings if settings.getpriority(name) == SETTINGS_PRIORITIES["cmdline"]
    ]
    arguments = tuple(f"{name}={settings.get(name)}" for name in given if name not in NAMES)
    environment = {name: str(settings.get(name)) for name in given if name in NAMES}
    environment["ITEMGRAPH_DATA_DIR"] = str(database.data_dir)
    if database.database_url is not None:
        environment["ITEMGRAPH_DATABASE_URL"] = database.database_url
    return arguments, environment
