"""A server that several hosts share, set up as the howto says: roles, and TLS in the URL."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import uuid
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from conftest import new_database
from support import servers
from support.projects import ONE_ITEM, Project

from scrapy_itemgraph import ItemGraph, task
from scrapy_itemgraph.exceptions import DatabaseUnavailableError
from scrapy_itemgraph.graph import WorkerGraph
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import urls
from scrapy_itemgraph.settings import Settings

HOWTO = Path(__file__).parents[3] / "docs" / "howto" / "own-server.md"


class Books:
    @task(tags=["book"])
    def parse(self, response, item): ...


@pytest.mark.server
def test_one_role_migrates_and_another_crawls(server_url, tmp_path):
    """With the howto's grants the crawling role needs no right to make or change tables."""
    suffix = f"_{uuid.uuid4().hex[:12]}"
    make_roles, make_database = (
        block.replace("crawl_owner", f"crawl_owner{suffix}")
        .replace("crawl_worker", f"crawl_worker{suffix}")
        .replace("…", servers.PASSWORD)
        for block in re.findall(
            r"^```sql\n(.*?)^```$", HOWTO.read_text(), re.MULTILINE | re.DOTALL
        )[:2]
    )
    assert "CREATE DATABASE" in make_database  # which the next line does under another name
    with new_database(server_url) as url:
        admin = urls.normalise_url(url)
        name = admin.database
        login = {"password": servers.PASSWORD}
        owner = admin.set(username=f"crawl_owner{suffix}", **login).render_as_string(False)
        worker = admin.set(username=f"crawl_worker{suffix}", **login).render_as_string(False)
        execute(url, make_roles, f"ALTER DATABASE {name} OWNER TO crawl_owner{suffix}")
        try:
            ItemGraph.migrate(owner)
            project = Project(tmp_path, worker).write(ONE_ITEM)
            grant = ["grants", "worker", f"crawl_worker{suffix}", "--apply"]
            as_owner = ["-s", f"ITEMGRAPH_DATABASE_URL={owner}"]
            assert project.scrapy("itemgraph", *grant, *as_owner).code == 0

            run = project.crawl()

            assert project.outcomes() == {"ITEM": ["ok"]}, run.log
            assert project.scrapy("itemgraph", "status").code == 0
            with pytest.raises(sa.exc.ProgrammingError, match="permission denied"):
                execute(worker, "CREATE TABLE mine ()")
        finally:
            execute(
                url,
                f"ALTER DATABASE {name} OWNER TO CURRENT_USER",
                *(f"DROP OWNED BY crawl_{role}{suffix} CASCADE" for role in ("worker", "owner")),
                *(f"DROP ROLE crawl_{role}{suffix}" for role in ("worker", "owner")),
            )


def execute(url: str, *statements: str) -> None:
    """Execute statements."""
    engine = engines.sync_engine(url)
    try:
        with engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
    finally:
        engine.dispose()


def make_certificate(certificate: Path, key: Path) -> None:
    """Make a certificate for 127.0.0.1 that signs itself."""
    names = ("-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1")
    kind = ("-new", "-x509", "-nodes", "-days", "2")
    files = ("-keyout", key, "-out", certificate)
    subprocess.run(["openssl", "req", *kind, *names, *files], check=True, capture_output=True)


@pytest.fixture(scope="module")
def tls_server():
    """Run a server with a certificate for 127.0.0.1; yield it and the certificate."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    with servers.own_postgres() as server:
        data = server.directory / "data"
        certificate, key = data / "server.crt", data / "server.key"
        make_certificate(certificate, key)
        status = data.stat()
        for path in (certificate, key):
            path.chmod(0o600)
            shutil.chown(path, status.st_uid, status.st_gid)
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET ssl = on")
            connection.execute("SELECT pg_reload_conf()")
        copy = server.directory / "root.crt"
        copy.write_bytes(certificate.read_bytes())
        yield server, copy


def test_what_the_url_says_of_tls_holds_for_every_connection(tls_server):
    """With verify-full in the URL each of a worker's connections is encrypted."""
    server, certificate = tls_server
    url = f"{server.url}?sslmode=verify-full&sslrootcert={certificate}"

    async def run() -> None:
        graph = await WorkerGraph.open(
            Settings.of(database_url=url), crawl="books", spider="spider", tasks=discover(Books)
        )
        try:
            found = await asyncio.to_thread(encrypted)
        finally:
            await graph.close("finished")
        assert len(found) >= 2
        assert all(found)

    def encrypted() -> list[bool]:
        with psycopg.connect(server.url) as connection:
            rows = connection.execute(
                "SELECT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) "
                "WHERE a.backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            return [ssl for (ssl,) in rows]

    asyncio.run(run())


def test_a_server_that_cannot_show_its_certificate_is_refused(tls_server, tmp_path):
    """A root certificate that did not sign the server's ends the start with one line."""
    server, _ = tls_server
    other = tmp_path / "other.crt"
    make_certificate(other, tmp_path / "other.key")

    with (
        pytest.raises(DatabaseUnavailableError, match="certificate verify failed"),
        ItemGraph.open(f"{server.url}?sslmode=verify-full&sslrootcert={other}", crawl="books"),
    ):
        pass
