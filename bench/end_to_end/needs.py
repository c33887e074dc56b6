"""What a run needs of this machine: Debian's packages are installed where root may."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from end_to_end.crawls import PYTHON, ROOT
from end_to_end.served import MANUALS

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = ("scrapy", "twisted", "queuelib", "scrapy-redis", "redis", "sqlalchemy", "psycopg")
POLICY = Path("/usr/sbin/policy-rc.d")


def have(*wanted: str) -> set[str]:
    """Return which of "nginx", "redis" and "manuals" are here, installing what root may."""
    packages = {
        "nginx": ("nginx-light",),
        "redis": ("redis-server",),
        "manuals": ("python3-doc", "postgresql-doc-15"),
    }
    missing = [package for name in wanted if not _is_here(name) for package in packages[name]]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing {', '.join(missing)}", flush=True)
        with _no_services_started():
            for command in (["update"], ["install", "-y", *missing]):
                subprocess.run(
                    ["apt-get", "-qq", *command],
                    env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                    stdout=subprocess.DEVNULL,
                    check=False,
                )
    return {name for name in wanted if _is_here(name)}


def _is_here(name: str) -> bool:
    if "/usr/sbin" not in os.environ["PATH"].split(":"):  # nginx is there, and only root looks
        os.environ["PATH"] += ":/usr/sbin"
    if name == "manuals":
        return all((root / "index.html").exists() for root in MANUALS.values())
    if name == "redis":
        return all(map(shutil.which, ("redis-server", "redis-cli")))
    return shutil.which(name) is not None


@contextmanager
def _no_services_started() -> Iterator[None]:
    """Have Debian's packages start no service of their own, as they else would."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def scrapy_redis() -> bool:
    """Tell whether scrapy-redis is in the benchmark's environment; exit where there is none."""
    if not PYTHON.exists():
        raise SystemExit(f"{PYTHON.parents[1].name} is missing: `make bench` makes it")
    return not subprocess.run(
        [PYTHON, "-c", "import scrapy_redis"], check=False, capture_output=True
    ).returncode


def described(postgresql: str) -> list[str]:
    """Return lines on the day, the hardware and the versions; PostgreSQL's is given."""
    script = (
        "import sys\nfrom importlib.metadata import version, PackageNotFoundError as E\n"
        "print('Python', sys.version.split()[0])\n"
        "for name in sys.argv[1:]:\n  try: print(name, version(name))\n  except E: pass"
    )
    python = _said(str(PYTHON), "-c", script, *PACKAGES).splitlines()
    servers = []
    if found := re.search(r"nginx/(\S+)", _said("nginx", "-v")):
        servers.append(f"nginx {found[1]}")
    if found := re.search(r"v=(\S+)", _said("redis-server", "--version")):
        servers.append(f"redis-server {found[1]}")
    if postgresql:
        servers.append(f"PostgreSQL {postgresql}")
    processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    kilobytes = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())[1]
    commit = _said("git", "-C", str(ROOT), "describe", "--always", "--dirty")
    name = processor[1] if processor else platform.machine()
    memory = f"{int(kilobytes) / 1e6:.0f} GB"
    system = f"{platform.system()} {platform.release()}"
    return [
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit.strip() or 'unknown'}.",
        f"Hardware: {os.cpu_count()} cores ({name}), {memory}, {system}.",
        f"Versions: {', '.join([*python, *servers])}.",
    ]


def _said(*command: str) -> str:
    """Return what a command prints, or nothing where it is missing."""
    try:
        ran = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError:
        return ""
    return ran.stdout + ran.stderr if ran.returncode == 0 else ""
