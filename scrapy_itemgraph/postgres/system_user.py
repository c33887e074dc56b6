"""System accounts and file modes: who PostgreSQL runs as, and what that account may reach."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph import exceptions
from scrapy_itemgraph.tools import locks, logs

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logs.logger(__name__)

_WITHIN = 60.0  # seconds that a program of the system has
SYSTEM_USER = "pgserver"  # who PostgreSQL runs as when we are root, which it refuses
# Root's own: what others may open, they may lock for ever, as they may /etc/passwd.
_LOCK = Path("/var/lib/scrapy-itemgraph/account.lock")


def system_account() -> pwd.struct_passwd:
    """Return the account that PostgreSQL runs as when we are root, made if it is missing."""
    with suppress(KeyError):
        return pwd.getpwnam(SYSTEM_USER)
    # Two `useradd` at once succeed both, and the second gives the account another number.
    try:
        _make_lock_directory()
        with locks.locked(_LOCK, 2 * _WITHIN):
            with suppress(KeyError):
                return pwd.getpwnam(SYSTEM_USER)
            _make_account()
    except OSError as error:
        logger.warning("%s cannot be locked: %s", _LOCK, error)
    with suppress(KeyError):
        return pwd.getpwnam(SYSTEM_USER)
    raise exceptions.EmbeddedServerError(
        f"PostgreSQL does not run as root, and the account {SYSTEM_USER!r} could not be made. Make "
        f"it (`useradd --system {SYSTEM_USER}`), run as another user, or set "
        "ITEMGRAPH_DATABASE_URL."
    )


def _make_lock_directory() -> None:
    """Make the directory of the lock, as that of clusters that stand apart is."""
    directory = _LOCK.parent
    if not directory.exists():
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
    check_owner(directory, os.geteuid())


def _make_account() -> None:
    program = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        return
    arguments = ["--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER]
    if not _code([program, *arguments]):
        logger.info(
            "PostgreSQL does not run as root: made the account %s for it",
            SYSTEM_USER,
            extra={"action": "account_made"},
        )


def run_as(account: pwd.struct_passwd | None) -> dict[str, Any]:
    """Return the options that have `subprocess` run a program as an account; None: as we are."""
    if account is None:
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def can(account: pwd.struct_passwd, script: str, *arguments: Path) -> bool:
    """Tell whether a shell script succeeds as an account: what the system lets it do, ACLs too."""
    return not _code(["/bin/sh", "-c", script, "sh", *arguments], **run_as(account), cwd="/")


def _code(command: Sequence[str | Path], **options: Any) -> int:
    """Run a program without input; return its exit code, and 1 where it takes too long."""
    try:
        done = subprocess.run(  # noqa: S603
            command,
            **options,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=_WITHIN,
        )
    except subprocess.TimeoutExpired as error:
        logger.warning("%s", error)
        return 1
    return done.returncode


def can_pass(account: pwd.struct_passwd, directory: Path) -> bool:
    """Tell whether an account can get into a directory."""
    return can(account, 'cd -- "$1"', directory)


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


def let_pass(path: Path, account: pwd.struct_passwd) -> None:
    """Let an account pass through a directory, by the one class of the mode that counts for it."""
    status = path.stat()
    shift = 6 if status.st_uid == account.pw_uid else 3 if status.st_gid == account.pw_gid else 0
    missing = (stat.S_IXOTH << shift) & ~status.st_mode
    if missing:
        path.chmod(stat.S_IMODE(status.st_mode) | missing)


def give(path: Path, account: pwd.struct_passwd) -> None:
    """Make an account the owner of a path and of all under it."""
    os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            give(inner, account)
