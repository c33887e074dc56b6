"""What a command is: its name, its arguments, and its group, if it has one."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from scrapy.exceptions import UsageError

from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_itemgraph.commands.call import Call

Run: TypeAlias = "Callable[[Call], int | None]"

COMMANDS: dict[str, Command] = {}  # by what is typed: "show", "crawls list"
GROUPS: dict[str, Group] = {}  # by the first word of their commands


class Argument:
    """A positional argument or an option, in argparse's words."""

    def __init__(self, *flags: str, **options: Any) -> None:
        self.flags = flags
        self.options = options
        self.is_option = flags[0].startswith("-")
        if not self.is_option:
            options.setdefault("metavar", flags[0].upper())


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command: what it is called, takes and does."""

    name: str  # as it is typed: "show", "crawls list"
    summary: str
    run: Run
    arguments: tuple[Argument, ...]
    notes: str


def command(*arguments: Argument) -> Callable[[Run], Run]:
    """Make a function a command of its name; its docstring is the summary, and then the notes.

    The exit code is 0 unless it returns another one.
    """

    def register(run: Run) -> Run:
        return _register(run.__name__.replace("_", "-"), run, arguments)

    return register


def _register(name: str, run: Run, arguments: tuple[Argument, ...]) -> Run:
    summary, _, notes = (inspect.getdoc(run) or "").partition("\n\n")
    COMMANDS[name] = Command(
        name=name, summary=summary.removesuffix("."), run=run, arguments=arguments, notes=notes
    )
    return run


class Group:
    """Commands that share their first word, such as `crawls list` and `crawls delete`."""

    def __init__(self, name: str, summary: str) -> None:
        """Take the first word, and a line that says what the commands are for."""
        self.name, self.summary = name, summary
        self.verbs: dict[str, Command] = {}
        GROUPS[name] = self

    def command(self, verb: str, *arguments: Argument) -> Callable[[Run], Run]:
        """Make a function the command `NAME VERB`, as `command` does it otherwise."""

        def register(run: Run) -> Run:
            name = f"{self.name} {verb}"
            _register(name, run, arguments)
            self.verbs[verb] = COMMANDS[name]
            return run

        return register

    def find(self, words: Sequence[str]) -> Command:
        """Return the command whose verb is the first of the words.

        Raises:
            UsageError: there is no word, or it is none of the verbs.

        """
        listed = ", ".join(self.verbs)
        if not words:
            raise UsageError(f"say which: {listed}")
        if words[0] not in self.verbs:
            near = closest(words[0], self.verbs)
            raise UsageError(
                f"unknown command {f'{self.name} {words[0]}'!r}{near}; after {self.name!r} comes "
                f"one of: {listed}"
            )
        return self.verbs[words[0]]


# What other programs call it.
_MEANT = {
    **dict.fromkeys(("retry", "rerun", "resolve", "fix", "requeue"), "handle"),
    **dict.fromkeys(("errors", "error", "fails"), "failures"),
    **dict.fromkeys(("run", "start", "queue"), "crawls"),
    **dict.fromkeys(("test", "try", "dry-run"), "simulate"),
    **dict.fromkeys(("why",), "explain"),
    **dict.fromkeys(("refresh", "refetch"), "expire"),
    **dict.fromkeys(("worker", "runner"), "work"),
    **dict.fromkeys(("cockpit", "web", "ui"), "serve"),
}


def find(words: Sequence[str]) -> tuple[Command | Group | None, Sequence[str]]:
    """Return the command or group that the first word names, and the words after it.

    Without a word there is none.

    Raises:
        UsageError: there is no command and no group of this name.

    """
    if not words:
        return None, words
    known = first_words()
    if words[0] not in known:
        meant = _MEANT.get(words[0])
        near = f"; did you mean {meant!r}?" if meant else closest(words[0], known)
        raise UsageError(
            f"unknown command {words[0]!r}{near}; `scrapy itemgraph` lists the commands"
        )
    return known[words[0]], words[1:]


def first_words() -> dict[str, Command | Group]:
    """Return the commands without a group, and the groups, by what is typed first."""
    alone = {name: one for name, one in COMMANDS.items() if " " not in name}
    return {**alone, **GROUPS}
