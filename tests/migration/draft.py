"""Draft a migration from what the migrations make to what `postgres.tables` declares.

    python tests/migration/draft.py 0050 "what it is for"

A revision that exists already is drafted anew, from its predecessor.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from alembic import command

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scrapy_itemgraph.postgres import embedded_server, migrate  # noqa: E402
from scrapy_itemgraph.postgres import engine as engines  # noqa: E402

# What Alembic writes and a reader does not need.
TIDY = (
    (r" *# ### .*\n", ""),
    (r"op\.f\((\"[^\"]*(?<!_check)\")\)", r"\1"),  # a check's name would get the convention
    (r",\s*unique=False", ""),
    (r",\s*nullable=True", ""),
    (r"\(always=False\)", "()"),
    (r",(\s*)\)", r"\1)"),  # the formatter then joins what fits on a line
)


def draft(revision: str, message: str) -> Path:
    """Write the draft and return its path."""
    versions = ROOT / "migrations" / "versions"
    for path in versions.glob(f"{revision}_*.py"):
        path.unlink()
    with tempfile.TemporaryDirectory(prefix="itemgraph-") as directory:
        Path(directory).chmod(0o711)  # for PostgreSQL's account, where we are root
        server = embedded_server.EmbeddedServer.start(Path(directory) / "server")
        engine = engines.sync_engine(server.url)
        with engine.connect() as connection:
            config = migrate.config(connection)
            if any(versions.glob("[0-9]*.py")):
                command.upgrade(config, "head")
            command.revision(config, message, autogenerate=True, rev_id=revision)
        engine.dispose()
        server.close()
    (path,) = versions.glob(f"{revision}_*.py")
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", path]
    subprocess.run(ruff, check=True)
    text = path.read_text()
    for pattern, replacement in TIDY:
        text = re.sub(pattern, replacement, text)
    path.write_text(text)
    subprocess.run(ruff, check=True)
    return path


if __name__ == "__main__":
    draft(*sys.argv[1:])
