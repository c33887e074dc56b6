"""Where an embedded server's cluster stands.

That is the project's own directory. Where we are root, and the account that PostgreSQL runs as
cannot pass to it, the cluster stands apart, and a pointer in the project's directory says where.
No mode of a directory that is not ours is changed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_itemgraph import exceptions
from scrapy_itemgraph.postgres import file_turns, system_user
from scrapy_itemgraph.tools import locks, logs

if TYPE_CHECKING:
    import pwd

logger = logs.logger(__name__)

APART = Path("/var/lib/scrapy-itemgraph")
CLUSTER = "cluster"
POINTER = "place"  # in the project's directory: the path of the place apart
PROJECT = "project"  # there: the path of the project's directory


def has_cluster(data_dir: Path) -> bool:
    """Tell whether there is a cluster, or a pointer to one that may be gone."""
    return (data_dir / CLUSTER).exists() or (data_dir / POINTER).exists()


def choose(home: Path, account: pwd.struct_passwd | None) -> Path:
    """Return where the cluster of a project's directory stands or will stand; made when need be.

    If there is no such place, or it is another project's, that is an EmbeddedServerError.
    """
    with file_turns.turn(home / "start.lock"):
        if (place := _read(home / POINTER)) is not None:
            _check(home, place)
        elif account is None or _is_running(home) or _is_passable(home, account):
            return home
        else:
            place = _set_apart(home, account)
        if (home / CLUSTER).exists():
            _bring(home, place, account)
        return place


def _is_running(directory: Path) -> bool:
    try:
        return not locks.is_free(directory / "server.lock")
    except FileNotFoundError:
        return False


def _is_passable(home: Path, account: pwd.struct_passwd) -> bool:
    """Tell whether the account can pass to the directory, which itself is ours to open."""
    if system_user.can_pass(account, home):
        return True
    if not system_user.can_pass(account, home.parent):
        return False
    system_user.let_pass(home, account)
    return system_user.can_pass(account, home)


def _check(home: Path, place: Path) -> None:
    """Refuse a place that is gone, or that another directory uses; follow a project that moved."""
    pointer = home / POINTER
    if not place.is_dir():
        raise exceptions.EmbeddedServerError(
            f"The item graph of {home} was in {place}, by the file {pointer}, but that is gone. "
            f"Bring it back, or remove {pointer} to begin with an empty graph."
        )
    system_user.check_owner(place, os.geteuid())
    other = _read(place / PROJECT)
    if other is None:
        raise exceptions.EmbeddedServerError(
            f"{pointer} names {place}, which was not made for an item graph. Remove {pointer} to "
            "begin with an empty one."
        )
    if other == home:
        return
    if _read(other / POINTER) == place and not other.samefile(home):
        raise exceptions.EmbeddedServerError(
            f"{home} is a copy of {other}: both point to the item graph in {place}. Remove "
            f"{pointer} to begin with an empty graph here, or set ITEMGRAPH_DATA_DIR to {other} to "
            "share its graph."
        )
    _write(place / PROJECT, home)
    logger.info(
        "The item graph in %s is now that of %s; its project was moved",
        place,
        home,
        extra={"action": "embedded_followed"},
    )


def _set_apart(home: Path, account: pwd.struct_passwd) -> Path:
    """Make a place that the account can pass to, and point to it."""
    place = APART / secrets.token_hex(8)
    try:
        if not APART.exists():
            APART.mkdir(parents=True, exist_ok=True)
            APART.chmod(0o755)
        place.mkdir()
        place.chmod(0o711)
        problem = "" if system_user.can_pass(account, place) else "it cannot pass there either"
        _write(place / PROJECT, home)
        if not problem:
            _write(home / POINTER, place)
    except OSError as error:
        problem = str(error)
    if problem:
        shutil.rmtree(place, ignore_errors=True)
        raise exceptions.EmbeddedServerError(
            f"PostgreSQL, run by root, runs as {account.pw_name}, which cannot pass to {home}; "
            f"{APART} will not do for it: {problem}. Set ITEMGRAPH_DATA_DIR to a directory that "
            f"{account.pw_name} can pass to, or run as another user."
        )
    logger.info(
        "PostgreSQL, run by root, runs as %s, which cannot pass to %s; so its files are in %s",
        account.pw_name,
        home,
        place,
        extra={"action": "embedded_apart"},
    )
    _tell_orphans()
    return place


def _tell_orphans() -> None:
    """Name the places whose projects are gone; nobody removes them but a person."""
    for place in APART.iterdir():
        project = _read(place / PROJECT)
        if project is not None and _read(project / POINTER) != place:
            logger.warning(
                "%s holds the item graph of %s, which is gone; `rm -r %s` frees the space",
                place,
                project,
                place,
                extra={"action": "embedded_orphan"},
            )


def _bring(home: Path, place: Path, account: pwd.struct_passwd | None) -> None:
    """Move a cluster from the project's directory; the pointer to its new place stands already."""
    old, new = home / CLUSTER, place / CLUSTER
    if new.exists():
        logger.warning("%s is not used: %s is. It can be removed", old, new)
        return
    try:
        hold = locks.lock(home / "holders.lock", fcntl.LOCK_EX)
    except BlockingIOError:
        raise exceptions.EmbeddedServerError(
            f"The item graph in {home} has to move to {place}, but is in use. Stop its crawls, "
            "then try again."
        ) from None
    try:
        try:
            old.rename(new)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy(old, new, account)
    finally:
        locks.release(hold)
    logger.info("Moved %s to %s", old, new, extra={"action": "embedded_moved"})


def _copy(old: Path, new: Path, account: pwd.struct_passwd | None) -> None:
    """Move to another file system, so that a kill leaves no half."""
    half = new.with_suffix(".new")
    shutil.rmtree(half, ignore_errors=True)
    shutil.copytree(old, half, symlinks=True)
    if account is not None:
        system_user.give(half, account)
    os.sync()
    half.rename(new)
    shutil.rmtree(old, ignore_errors=True)


def _write(path: Path, content: Path) -> None:
    """Write a path into a file, all or nothing."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(os.fsencode(content) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _read(path: Path) -> Path | None:
    """Return the path in a file, or None where there is none."""
    try:
        content = path.read_bytes().removesuffix(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Path(os.fsdecode(content)) if content else None
