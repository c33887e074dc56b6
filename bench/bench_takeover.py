"""How soon a killed Scrapyd job's work is taken over, and how many pages that costs.

Two jobs of a real Scrapyd share the crawl of the manuals; one gets SIGKILL, the other finishes.
The seconds are the database's: from just before the kill to the attempts with the outcome `died`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import sqlalchemy as sa
from conftest import new_database
from support import manuals, scrapyds, servers

from scrapy_itemgraph.postgres import engine as engines

ROUNDS = 3
SPIDER = sys.argv[1] if len(sys.argv) > 1 else "plain"
PAGES_BEFORE_THE_KILL = 500

DIED = """
    SELECT count(*), min(a.ended_at) - CAST(:killed AS timestamptz),
        max(a.ended_at) - CAST(:killed AS timestamptz)
    FROM attempts a JOIN workers w ON w.id = a.worker_id
    WHERE a.outcome = 'died' AND w.job = :job
"""
OK = """
    SELECT w.job, count(*) FROM attempts a JOIN workers w ON w.id = a.worker_id
    WHERE a.outcome = 'ok' GROUP BY w.job
"""


def takeover(server: scrapyds.Scrapyd, site: manuals.Manuals, url: str) -> str:
    """Crawl with two jobs, kill one, and tell what came of it."""
    settings = {"ITEMGRAPH_DATABASE_URL": url}
    doomed, other = (server.schedule(SPIDER, settings, site=site.url) for _ in range(2))
    engine = engines.sync_engine(url)

    def have_both_worked() -> bool:
        if sum(site.fetched().values()) < PAGES_BEFORE_THE_KILL:
            return False
        with engine.connect() as connection:
            return len(connection.execute(sa.text(OK)).all()) > 1

    server.until(have_both_worked, doomed, other)
    with engine.connect() as connection:
        killed = connection.execute(sa.text("SELECT clock_timestamp()")).scalar_one()
    server.cancel(doomed, "KILL")
    server.until_finished(other, seconds=300)

    with engine.connect() as connection:
        values = {"killed": killed, "job": doomed}
        count, first, last = connection.execute(sa.text(DIED), values).one()
        done = dict(map(tuple, connection.execute(sa.text(OK))))
    engine.dispose()
    assert "'finish_reason': 'finished'" in server.log(other), server.log(other)[-3000:]
    fetched = site.fetched()
    again = sum(number - 1 for number in fetched.values())
    seconds = f"{first.total_seconds():.2f} to {last.total_seconds():.2f} s" if count else "no time"
    return (
        f"{count} claims of the dead job were free after {seconds}; "
        f"{again} of {len(fetched)} pages fetched twice; "
        f"commits: {done.get(doomed, 0)} by it, {done[other]} by the other"
    )


def main() -> None:
    """Do it several times, each on a database and a site of its own."""
    with servers.server() as server_url, tempfile.TemporaryDirectory() as directory:
        for number in range(1, ROUNDS + 1):
            with (
                scrapyds.server(Path(directory) / str(number)) as server,
                manuals.site(Path(directory)) as site,
                new_database(server_url) as url,
            ):
                server.deploy(manuals.PROJECT)
                print(f"round {number}: {takeover(server, site, url)}", flush=True)


if __name__ == "__main__":
    main()
