"""Becomes `scrapy crawl …` with the arguments that stand in the environment; run by its path.

    python with_secrets.py crawl SPIDER -a token=@env:TOKEN

The value is put in its place here, so that others never see it among the process's arguments.
"""

from __future__ import annotations

import os
import sys

_PERMANENT = 2  # the exit code of a mistake that another try does not mend


def resolved(argument: str, mark: str) -> str:
    """Return NAME=VALUE with the value of the environment's variable, if it names one."""
    name, equals, value = argument.partition("=")
    if not (equals and value.startswith(mark)):
        return argument
    variable = value.removeprefix(mark)
    if variable not in os.environ:
        print(  # noqa: T201 - it goes to the job's log
            f"scrapy-itemgraph: the runner's environment has no {variable}, which -a {argument} "
            "names; start `scrapy itemgraph work` with it",
            file=sys.stderr,
        )
        sys.exit(_PERMANENT)
    return f"{name}={os.environ[variable]}"


if __name__ == "__main__":
    sys.path[0] = os.getcwd()  # noqa: PTH109 - as `python -m scrapy` has it, before any import
    from scrapy.cmdline import execute

    from scrapy_itemgraph.model.crawl_arguments import FROM_ENVIRONMENT

    execute(["scrapy", *(resolved(one, FROM_ENVIRONMENT) for one in sys.argv[1:])])
