"""Becomes `scrapy crawl …` with what stands in the environment in its place; run by its path.

    python with_secrets.py crawl SPIDER -a token=@env:TOKEN -s FTP_PASSWORD=@env:PASSWORD

A value is put in its place here, so that others never see it among the process's arguments. The
value of a setting has no `repr`, so Scrapy's list of overridden settings does not show it.
"""

from __future__ import annotations

import os
import sys

_PERMANENT = 2  # the exit code of a mistake that another try does not mend


class Unsaid(str):
    """The text of a setting, which is not shown where its settings are listed."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return three dots."""
        return "'…'"


def resolved(argument: str, mark: str) -> str:
    """Return NAME=VALUE with the value of the environment's variable, if it names one."""
    name, equals, value = argument.partition("=")
    if not (equals and value.startswith(mark)):
        return argument
    variable = value.removeprefix(mark)
    if variable not in os.environ:
        print(  # noqa: T201 - it goes to the job's log
            f"scrapy-itemgraph: the runner's environment has no {variable}, which {argument} "
            "names; start `scrapy itemgraph work` with it",
            file=sys.stderr,
        )
        sys.exit(_PERMANENT)
    return f"{name}={os.environ[variable]}"


def split(given: list[str], mark: str) -> tuple[list[str], dict[str, Unsaid]]:
    """Return the options of a command without settings that the environment has, and these."""
    options: list[str] = []
    settings: dict[str, str] = {}
    for option, argument in zip(given[::2], given[1::2], strict=True):
        if option == "-s":
            name, _, value = argument.partition("=")
            settings[name] = value
        else:
            options += option, resolved(argument, mark)
    unsaid = {}
    for name, value in settings.items():
        if value.startswith(mark):
            unsaid[name] = Unsaid(resolved(f"{name}={value}", mark).partition("=")[2])
        else:
            options += "-s", f"{name}={value}"
    return options, unsaid


if __name__ == "__main__":
    sys.path[0] = os.getcwd()  # noqa: PTH109 - as `python -m scrapy` has it, before any import
    from scrapy.cmdline import execute
    from scrapy.utils.project import get_project_settings

    from scrapy_itemgraph.tools.hiding import FROM_ENVIRONMENT

    crawl, spider, *given = sys.argv[1:]
    options, unsaid = split(given, FROM_ENVIRONMENT)
    settings = get_project_settings()
    settings.setdict(unsaid, "cmdline")
    execute(["scrapy", crawl, spider, *options], settings)
