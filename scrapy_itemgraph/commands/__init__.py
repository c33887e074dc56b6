"""The command line: `scrapy itemgraph COMMAND`.

It may import every room; nothing imports it.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError
from scrapy.utils.conf import arglist_to_dict
from scrapy.utils.log import configure_logging

from scrapy_itemgraph.commands import (
    blobs,
    crawl_queue,
    crawl_views,
    crawls,
    databases,
    depths,
    docs,
    dumps,
    export,
    failures,
    frontier,
    helping,
    item_lists,
    items,
    jobs,
    limits,
    notices,
    pages,
    parsing,
    printing,
    rules,
    runners,
    schedules,
    serve,
    simulate,
    status,
    tasks,
    tokens,
    work,
    worklist,
)
from scrapy_itemgraph.commands.call import Call
from scrapy_itemgraph.commands.command import COMMANDS, GROUPS, Command, Group, find
from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.settings import read_project, warn_of_unknown

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

__all__ = ["COMMANDS", "GROUPS", "ItemGraphCommand"]

# Modules of commands, in the order of the overview; a docstring is the heading there, unless the
# module has but more verbs of a group.
_SECTIONS = (
    databases,
    items,
    item_lists,
    blobs,
    worklist,
    pages,
    failures,
    simulate,
    status,
    tasks,
    crawls,
    crawl_queue,
    crawl_views,
    depths,
    rules,
    limits,
    export,
    dumps,
    serve,
    frontier,
    tokens,
    work,
    runners,
    jobs,
    schedules,
    notices,
    docs,
)
_OK, _REFUSED, _MISUSED, _INTERRUPTED = 0, 1, 2, 130


def _forget_garbage() -> None:
    """Collect once: as it ends Python collects three times, a tenth of a short command."""
    gc.collect()
    gc.freeze()


class ItemGraphCommand(ScrapyCommand):
    """`scrapy itemgraph`: finds the command, reads its arguments, and turns errors into a line."""

    requires_project = False
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, Any]] = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        """Say how it is written."""
        return "COMMAND [arguments] [options]"

    def short_desc(self) -> str:
        """Say what it is."""
        return "Look into and change the item graph"

    def add_options(self, parser: ArgumentParser) -> None:
        """Take the options that every command has, from anywhere between its arguments."""
        super().add_options(parser)
        parser.allow_abbrev = False  # --p would be --profile, and never reach the command
        parser.add_argument("-h", "--help", action="store_true", help="say what a command takes")
        parser.add_argument("--json", action="store_true", help="write one JSON document")
        parser.add_argument("--crawl", metavar="NAME", help="the crawl that is meant")

    def run(self, args: list[str], opts: Namespace) -> None:
        """Run a command; the exit code is 0, 1 when it was refused, or 2 for misuse."""
        self._configure_logging(quiet=opts.nolog)
        atexit.unregister(_forget_garbage)  # once, however many commands this process runs
        atexit.register(_forget_garbage)
        assert self.settings is not None
        warn_of_unknown(self.settings)
        found: Command | Group | None = None
        try:
            found, rest = find(args)
            if isinstance(found, Group) and (rest or not opts.help):
                found, rest = found.find(rest), rest[1:]
            self.exitcode = self._run(found, rest, opts) or _OK
            sys.stdout.flush()
        except UsageError as error:
            self.exitcode = _MISUSED
            printing.write(sys.stderr, f"{helping.usage(found)}\nscrapy itemgraph: {error}")
        except BrokenPipeError:
            # The reader has seen enough; nor must the interpreter flush into the pipe at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (ItemGraphError, OSError) as error:
            self.exitcode = _REFUSED
            line = " ".join(str(error).splitlines())
            printing.write(sys.stderr, f"scrapy itemgraph: {printing.clean(line)}")
        except KeyboardInterrupt:
            self.exitcode = _INTERRUPTED

    def _run(
        self, command: Command | Group | None, arguments: Sequence[str], opts: Namespace
    ) -> int | None:
        if command is None:
            printing.write(sys.stdout, helping.overview(_SECTIONS))
            return _OK
        if isinstance(command, Group):
            printing.write(sys.stdout, helping.of_group(command))
            return _OK
        if opts.help:
            printing.write(sys.stdout, parsing.parser(command, command.arguments).format_help())
            return _OK
        given = parsing.parse(command, arguments)
        if opts.crawl == "":
            raise UsageError("--crawl names no crawl")
        if opts.crawl is not None and hasattr(given, "crawl"):
            raise UsageError(f"{command.name} takes CRAWL as its argument, not --crawl")
        assert self.settings is not None
        call = Call(
            given=given,
            options=arglist_to_dict(opts.set),
            scrapy_settings=self.settings,
            settings=read_project(self.settings),
            crawl=opts.crawl,
            as_json=opts.json,
        )
        return command.run(call)

    def _configure_logging(self, *, quiet: bool) -> None:
        """Log where -L or --logfile say so; else warnings alone go to stderr, as Python does it."""
        assert self.settings is not None
        if self.settings.getbool("LOG_ENABLED"):
            configure_logging(self.settings)
        elif quiet:
            logging.getLogger("scrapy_itemgraph").addHandler(logging.NullHandler())
