"""What the command line says of itself: usage, the list of all commands, the help of a group."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from scrapy_itemgraph.commands import parsing
from scrapy_itemgraph.commands.command import Command, Group, first_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType


def usage(found: Command | Group | None) -> str:
    """Return the line that stands before a misuse: how the command is written, as far as known."""
    if found is None:
        return "usage: scrapy itemgraph COMMAND"
    if isinstance(found, Group):
        return f"usage: scrapy itemgraph {found.name} {{{','.join(found.verbs)}}}"
    return parsing.parser(found, found.arguments).format_usage().rstrip()


def overview(sections: Iterable[ModuleType]) -> str:
    """Return the list of all commands, under the docstring of the module that has them."""
    shown = first_words()
    lines = []
    for section in sections:
        if own := {name: one for name, one in shown.items() if _is_in(one, section)}:
            lines += ["", parsing.filled(section.__doc__ or ""), *_listed(own, shown)]
    return "\n".join(
        [
            "Usage: scrapy itemgraph COMMAND [arguments] [options]",
            *lines,
            "",
            parsing.filled(
                "scrapy itemgraph COMMAND -h says what a command takes. Every command takes "
                "--json, --crawl NAME (needed when the database has several crawls and "
                "ITEMGRAPH_CRAWL names none), and Scrapy's own options, such as -s NAME=VALUE and "
                "-L LEVEL."
            ),
        ]
    )


def of_group(group: Group) -> str:
    """Return the help of a group: what it is for, and its commands."""
    return "\n".join(
        [
            f"usage: scrapy itemgraph {group.name} COMMAND [arguments] [options]",
            "",
            f"{group.summary}.",
            "",
            *_listed(group.verbs, group.verbs),
            "",
            f"scrapy itemgraph {group.name} COMMAND -h says what one takes.",
        ]
    )


def _listed(shown: Mapping[str, Command | Group], all_of_them: Iterable[str]) -> list[str]:
    """Return a line for each command, as wide as all of the overview asks for."""
    width = max(map(len, all_of_them))
    return [line for name, one in shown.items() for line in _wrapped(name.ljust(width), one)]


def _wrapped(name: str, one: Command | Group) -> list[str]:
    """Return a command's line, or more where the terminal ends, or a group has many verbs."""
    verbs = f": {', '.join(one.verbs)}" if isinstance(one, Group) else ""
    return textwrap.wrap(
        one.summary + verbs,
        width=parsing.width(),
        initial_indent=f"  {name}  ",
        subsequent_indent=" " * (len(name) + 4),
        break_on_hyphens=False,
    )


def _is_in(one: Command | Group, section: ModuleType) -> bool:
    command = next(iter(one.verbs.values())) if isinstance(one, Group) else one
    return command.run.__module__ == section.__name__
