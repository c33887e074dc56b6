"""Debian 13 in a folder: its Python 3.13 and PostgreSQL 17, which are run by chroot.

Only root can do this. What has to be mounted there is mounted in a mount namespace of each
command's own, so that nothing stays mounted, and removing the folder removes nothing else.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from packages import FOLDER, ROOT, Environment, UnavailableError, check_passable, run

SUITE = "trixie"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = (
    *("python3-venv", "postgresql-17", "pgbouncer", "openssl", "git", "procps", "iproute2"),
    *("ca-certificates", "tzdata", "media-types", "curl"),
)
FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt")
PROGRAMS = Path("/usr/lib/postgresql/17/bin")
# $0: the system's folder, $1: the checkout, $2: the matrix's folder, then the command.
ENTER = """
for mounted in /proc /sys /dev "$1" "$2"; do
    mkdir -p "$0$mounted"
    mount --rbind "$mounted" "$0$mounted"
done
checkout=$1
shift 2
exec chroot "$0" /bin/sh -c 'cd "$0"; exec "$@"' "$checkout" "$@"
"""


def environment(scrapy: str) -> Environment:
    """Return a virtual environment of Debian 13's Python, with this checkout."""
    system = FOLDER / "debian13"
    inside = ("unshare", "--mount", "sh", "-euc", ENTER, str(system), str(ROOT), str(FOLDER))
    if not (system / "ready").exists():
        _set_up(system)
    return Environment.made(f"debian13-scrapy{scrapy}", Path("/usr/bin/python3"), scrapy, inside)


def _set_up(system: Path) -> None:
    """Install Debian 13 into a folder."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise UnavailableError("Debian 13: only root can set it up in a folder, on Linux")
    if not shutil.which("unshare") or not shutil.which("chroot"):
        raise UnavailableError("Debian 13: unshare and chroot are needed")
    check_passable(FOLDER)
    shutil.rmtree(system, ignore_errors=True)
    variables = dict(os.environ)
    debootstrap = shutil.which("debootstrap")
    if debootstrap is None:
        if not shutil.which("apt-get"):
            raise UnavailableError("Debian 13: there is neither debootstrap nor apt-get")
        tool = FOLDER / "debootstrap"
        shutil.rmtree(tool, ignore_errors=True)
        tool.mkdir()
        run("apt-get", "download", "-qq", "debootstrap", cwd=tool)
        [package] = tool.glob("*.deb")
        run("dpkg", "-x", package, tool)
        debootstrap = str(tool / "usr/sbin/debootstrap")
        variables["DEBOOTSTRAP_DIR"] = str(tool / "usr/share/debootstrap")
    options = ("--variant=minbase", f"--include={','.join(PACKAGES)}")
    # What debootstrap mounts there goes with its namespace, also when it is killed.
    run("unshare", "--mount", "sh", debootstrap, *options, SUITE, system, MIRROR, env=variables)
    for name in FILES:
        if Path(name).exists():
            shutil.copy(name, f"{system}{name}")
    (system / "ready").touch()
