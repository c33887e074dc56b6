"""Accounts and file modes: who PostgreSQL runs as, and what that account may reach."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from scrapy_itemgraph import exceptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SYSTEM_USER = "pgserver"  # who PostgreSQL runs as when we are root, which it refuses


def system_account() -> pwd.struct_passwd:
    """Return the account that PostgreSQL runs as when we are root, made if it is missing."""
    tries = 3  # another root process may be making it
    for attempt in range(tries):
        with suppress(KeyError):
            return pwd.getpwnam(SYSTEM_USER)
        program = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if program is None:
            break
        arguments = ["--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER]
        subprocess.run([program, *arguments], check=False, capture_output=True)  # noqa: S603
        time.sleep(0.2 * attempt)
    with suppress(KeyError):
        return pwd.getpwnam(SYSTEM_USER)
    raise exceptions.EmbeddedServerError(
        f"PostgreSQL does not run as root, and the account {SYSTEM_USER!r} could not be made. Make "
        f"it (`useradd --system {SYSTEM_USER}`), run as another user, or set "
        "ITEMGRAPH_DATABASE_URL."
    )


def check_owner(path: Path, owner: int) -> None:
    """Refuse what belongs to somebody else than the user `owner`."""
    found = path.lstat().st_uid
    if found != owner:
        raise exceptions.EmbeddedServerError(
            f"{path} belongs to {account_name(found)}, not to {account_name(owner)}. Run as "
            f"{account_name(found)}, set ITEMGRAPH_DATA_DIR to a directory of your own, or give "
            f"it away with `chown -R {account_name(owner)} {path}`."
        )


def account_name(uid: int) -> str:
    """Return a user's name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def tree_to_open(directory: Path, programs: Path) -> Iterator[tuple[Path, int]]:
    """Yield the paths that PostgreSQL's account has to use, and the rights it needs on each."""
    passable, readable = stat.S_IXOTH, stat.S_IROTH
    for path in (directory, *directory.parents, *programs.parent.parents):
        yield path, passable
    # Files installed under a narrow umask; all of them are, or none.
    if (programs / "postgres").stat().st_mode & (passable | readable) != passable | readable:
        for path in (programs.parent, *programs.parent.rglob("*")):
            is_run = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            yield path, readable | passable if is_run else readable


def widen(path: Path, account: pwd.struct_passwd, need: int) -> bool:
    """Add the rights that the account lacks, in the one class of the mode that counts for it."""
    status = path.stat()
    shift = 6 if status.st_uid == account.pw_uid else 3 if status.st_gid == account.pw_gid else 0
    missing = (need << shift) & ~status.st_mode
    if missing:
        path.chmod(stat.S_IMODE(status.st_mode) | missing)
    return bool(missing)
