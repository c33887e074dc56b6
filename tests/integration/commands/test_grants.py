"""Roles of a server: what each kind of role may do, and what it is refused (SS-2)."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from support.races import Crawl, ended

from scrapy_itemgraph import task
from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.graph import ItemGraph, WorkerGraph
from scrapy_itemgraph.model.crawl_states import NewCrawl
from scrapy_itemgraph.model.operations import CreateItem, UpdateData
from scrapy_itemgraph.model.roles import RoleKind
from scrapy_itemgraph.model.schedule_terms import NewSchedule
from scrapy_itemgraph.model.schedules import Rule
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.model.work import ClaimBudget
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import urls
from scrapy_itemgraph.postgres.grants import quote
from scrapy_itemgraph.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOKS = [
    ["status"],
    ["show", "book"],
    ["worklist"],
    ["explain", "book"],
    ["failures"],
    ["tasks"],
    ["slots"],
    ["export", "-o", "kept.jsonl"],
]
SCHEDULES = [
    ["add", "new", "--tag", "page"],
    ["apply", "-"],
    ["expire", "book"],
    ["set-ttl", "book", "2d", "--task", "parse"],
    ["set-ttl", "--task", "parse", "--recompute"],
    ["handle", "--all"],
    ["disable", "parse"],
    ["enable", "parse"],
    ["block", "shop.example", "--for", "1h"],
    ["unblock", "shop.example"],
    ["set-delay", "shop.example", "2"],
    ["set-limit", "task:spider/parse", "10/s"],
    ["delete", "book"],
]
OPERATIONS = """
{"op": "createItem", "id": "A", "tags": ["page"], "data": {"url": "http://shop.example/A"}}
{"op": "createItem", "id": "B", "tags": ["page"]}
{"op": "updateData", "id": "A", "merge": {"title": "a title"}}
{"op": "updateMetadata", "id": "A", "task": "parse", "merge": {"links": 1}}
{"op": "storeResult", "id": "B", "task": "parse", "metadata": {}}
{"op": "createAlias", "alias": "A too", "to": "A"}
{"op": "deleteAlias", "alias": "A too"}
{"op": "addTag", "id": "A", "tag": "rare"}
{"op": "removeTag", "id": "A", "tag": "rare"}
{"op": "renameItem", "id": "A", "to": "C"}
{"op": "mergeItem", "id": "B", "into": "C"}
{"op": "setTTL", "id": "C", "task": "parse", "ttl": "1d"}
{"op": "expire", "id": "C"}
{"op": "deleteItem", "id": "old"}
"""
WHOLE_CRAWLS = [["restart", "books", "--yes"], ["age", "books", "1d"]]
NEVER_BUT_BY_WORKERS = ("workers", "attempts", "handed", "journal", "cookies", "commit_tokens")


KEPT = sa.text(
    "INSERT INTO journal (crawl_id, item_class, fields) VALUES (:crawl, 'dict', '{\"a\": 1}')"
)


class Books:
    """A crawl with one task."""

    @task(tags=["page"], rate_limit="5/s")
    def parse(self, response, item): ...


def crawl(url: str) -> list[str]:
    """Claim what there is as a worker, commit a change of each, and return the ids."""

    async def run() -> list[str]:
        settings = Settings.of(database_url=url)
        graph = await WorkerGraph.open(
            settings, crawl="books", spider="spider", tasks=discover(Books)
        )
        try:
            result = await graph.claims.claim(ClaimBudget(most=10))
            change = UpdateData({"title": "a title"})
            await graph.commits.commit([ended(claim, change) for claim in result.claims])
            await graph.upkeep.keep_up()
            return sorted(claim.item.id for claim in result.claims)
        finally:
            await graph.close("finished")

    return asyncio.run(run())


@pytest.fixture
def roles(server_url) -> Iterator[dict[RoleKind, str]]:
    """Yield a role of each kind, which has no rights yet."""
    names = {kind: f"{kind}%_{uuid.uuid4().hex[:8]}" for kind in RoleKind}
    admin = engines.sync_engine(server_url)
    with admin.begin() as connection:
        for name in names.values():
            connection.exec_driver_sql(
                f"CREATE ROLE {quote(name)} LOGIN PASSWORD 'sesame'".replace("%", "%%")
            )
    yield names
    with admin.begin() as connection:
        for name in names.values():
            connection.exec_driver_sql(f"DROP ROLE {quote(name)}".replace("%", "%%"))
    admin.dispose()


@pytest.fixture
def graph_of(roles, database, scrapy) -> dict[RoleKind, str]:
    """Return URLs of a graph by kind of role; each role has been granted the rights of its kind."""
    engine = engines.sync_engine(database)
    crawl(database)  # its start makes tasks and limits
    books = Crawl(engine, Books)
    data = {"url": "http://shop.example/"}
    with engine.begin() as connection:
        items = (CreateItem(name, tags=["page"], data=data) for name in ("book", "old"))
        books.operate(connection, *items)
        connection.execute(KEPT, {"crawl": books.id})
    engine.dispose()
    for kind, role in roles.items():
        assert scrapy("grants", kind, role, "--apply").code == 0
    url = urls.normalise_url(database)
    return {
        kind: url.set(username=role, password="sesame").render_as_string(hide_password=False)
        for kind, role in roles.items()
    }


def as_role(scrapy, url: str, *arguments: str):
    """Run a command as a role."""
    return scrapy(*arguments, stdin=OPERATIONS, ITEMGRAPH_DATABASE_URL=url, ITEMGRAPH_CRAWL="books")


@pytest.mark.parametrize("kind", RoleKind)
def test_every_kind_of_role_may_look(graph_of, scrapy, kind):
    """All that only reads works for each, export too."""
    for arguments in LOOKS:
        ran = as_role(scrapy, graph_of[kind], *arguments)
        assert (ran.code, ran.err) == (0, ""), arguments


@pytest.mark.parametrize("kind", [RoleKind.MANAGER, RoleKind.WORKER, RoleKind.SCHEDULER])
def test_whoever_schedules_may_change_what_is_to_be_done(graph_of, scrapy, kind):
    """Items, their work and their failures, tasks switched on and off, limits, by any operation."""
    for arguments in SCHEDULES:
        ran = as_role(scrapy, graph_of[kind], *arguments)
        assert ran.code == 0, (arguments, ran.err)


@pytest.mark.parametrize("kind", [RoleKind.MANAGER, RoleKind.WORKER, RoleKind.SCHEDULER])
def test_whoever_schedules_may_queue_crawls(graph_of, kind):
    """SS-2: crawls, their schedules and jobs are added and steered, by a scheduler too."""
    new = NewCrawl(spider="s", name="new", project="p", arguments={}, settings={})
    with ItemGraph.open(graph_of[kind], "books") as graph:
        graph.queue.add(new, by="ann")
        rule = Rule.read({"every": "1h"})
        made = graph.schedules.add("new", NewSchedule(rule=rule), by="ann")
        graph.schedules.disable(made.id, by="ann")
        graph.queue.change("new", "pause", by="ann")
        graph.queue.change("new", "resume", by="ann")
        graph.queue.set("new", by="ann", nice=3, resource="proxy")
        graph.schedules.remove(made.id, by="ann")

        assert graph.queue.get("new").nice == 3


def test_a_read_only_role_changes_nothing(graph_of, scrapy):
    """Each command that changes something is refused in one line that names the right's giver."""
    for arguments in [*SCHEDULES, *WHOLE_CRAWLS]:
        ran = as_role(scrapy, graph_of[RoleKind.READ_ONLY], *arguments)
        assert ran.code == 1, arguments
        assert "permission denied" in ran.err
        assert "scrapy itemgraph grants" in ran.err
        assert ran.err.count("\n") == 1


@pytest.mark.parametrize("arguments", WHOLE_CRAWLS, ids=" ".join)
def test_a_whole_crawl_is_emptied_or_aged_by_workers_and_managers_alone(
    graph_of, scrapy, arguments
):
    """A scheduler is refused, and nothing of it is done; the others may."""
    ran = as_role(scrapy, graph_of[RoleKind.SCHEDULER], *arguments)
    assert ran.code == 1
    assert "permission denied" in ran.err
    assert as_role(scrapy, graph_of[RoleKind.READ_ONLY], "show", "book").code == 0
    for kind in (RoleKind.WORKER, RoleKind.MANAGER):
        assert as_role(scrapy, graph_of[kind], *arguments).code == 0


@pytest.mark.parametrize("kind", [RoleKind.MANAGER, RoleKind.WORKER])
def test_a_worker_may_crawl(graph_of, kind):
    """It registers its tasks, claims, commits and keeps the crawl up."""
    assert crawl(graph_of[kind]) == ["book", "old"]


@pytest.mark.parametrize("kind", [RoleKind.SCHEDULER, RoleKind.READ_ONLY])
def test_whoever_is_no_worker_may_not_crawl(graph_of, kind):
    """It is refused at its start, with what to do about it."""
    with pytest.raises(ItemGraphError, match=r"permission denied.*scrapy itemgraph grants"):
        crawl(graph_of[kind])


def test_a_scheduler_writes_nothing_that_is_a_workers(graph_of, database, roles):
    """It can make no worker, attempt, scraped item, session or token of a commit."""
    engine = engines.sync_engine(database)
    may = sa.text("SELECT has_table_privilege(:role, :table, 'INSERT')")
    with engine.connect() as connection:
        for table in NEVER_BUT_BY_WORKERS:
            given = {"role": roles[RoleKind.SCHEDULER], "table": table}
            assert not connection.execute(may, given).scalar_one(), table
    engine.dispose()


@pytest.mark.parametrize("kind", [RoleKind.WORKER, RoleKind.SCHEDULER, RoleKind.READ_ONLY])
def test_only_a_manager_changes_tables(graph_of, scrapy, roles, kind):
    """Others make, alter and drop none, do not touch the schema's version, and grant nothing."""
    engine = engines.sync_engine(graph_of[kind])
    for statement in (
        "CREATE TABLE mine (x int)",
        "ALTER TABLE items ADD COLUMN x int",
        "DROP TABLE attempts",
        "TRUNCATE items",
        "UPDATE itemgraph_version SET version_num = '0001'",
    ):
        with (
            pytest.raises(sa.exc.ProgrammingError, match=r"permission denied|must be owner"),
            engine.begin() as connection,
        ):
            connection.exec_driver_sql(statement)
    engine.dispose()
    ran = as_role(scrapy, graph_of[kind], "grants", "worker", roles[RoleKind.READ_ONLY], "--apply")
    assert ran.code == 1
    assert "the tables belong to" in ran.err


def test_a_manager_changes_tables_and_grants(graph_of, scrapy, roles):
    """It is a member of the role that owns them."""
    engine = engines.sync_engine(graph_of[RoleKind.MANAGER])
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE items ADD COLUMN x int")
    engine.dispose()
    role = roles[RoleKind.SCHEDULER]
    ran = as_role(scrapy, graph_of[RoleKind.MANAGER], "grants", "read-only", role, "--apply")

    assert ran.out == f"{role} has the rights of a read-only role\n"


def test_a_role_has_the_rights_of_the_last_kind_alone(graph_of, scrapy, roles):
    """Who was a worker and becomes read-only can no longer write, nor what is made later."""
    role = roles[RoleKind.WORKER]
    assert scrapy("grants", "read-only", role, "--apply").code == 0

    assert as_role(scrapy, graph_of[RoleKind.WORKER], "add", "new").code == 1
    assert as_role(scrapy, graph_of[RoleKind.WORKER], "status").code == 0


def test_a_manager_that_gets_another_kind_owns_the_tables_no_more(graph_of, scrapy, roles):
    """It leaves the role that owns them, so that it has the rights of the last kind alone."""
    role = roles[RoleKind.MANAGER]
    assert scrapy("grants", "read-only", role, "--apply").code == 0

    assert as_role(scrapy, graph_of[RoleKind.MANAGER], "add", "new").code == 1
    assert as_role(scrapy, graph_of[RoleKind.MANAGER], "status").code == 0


def test_workers_and_read_only_roles_have_rights_to_later_tables(graph_of, database, roles):
    """A migration that makes a table grants them what they have to all others."""
    engine = engines.sync_engine(database)
    may = sa.text("SELECT has_table_privilege(:role, 'later', :right)")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE later (x int)")
        found = {
            (kind, right)
            for kind in (RoleKind.WORKER, RoleKind.READ_ONLY)
            for right in ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE")
            if connection.execute(may, {"role": roles[kind], "right": right}).scalar_one()
        }
    engine.dispose()

    rights = {(RoleKind.WORKER, right) for right in ("SELECT", "INSERT", "UPDATE", "DELETE")}
    assert found == rights | {(RoleKind.READ_ONLY, "SELECT")}


def test_grants_are_printed_and_not_carried_out_unless_asked(scrapy, database):
    """What is printed can be given to psql as it is, and takes no role for a fact."""
    ran = scrapy("grants", "worker", 'a "worker" at 100%')

    assert ran.code == 0
    assert ran.out.startswith("GRANT CONNECT ON DATABASE")
    assert all(line.endswith(' "a ""worker"" at 100%";') for line in ran.out.splitlines())
    assert scrapy("grants", "worker", "nobody", "--json").document["applied"] is False


def test_a_role_that_does_not_exist_is_refused(scrapy, database):
    """The error says how to make it."""
    ran = scrapy("grants", "worker", "nobody", "--apply")

    assert ran.code == 1
    assert "CREATE ROLE" in ran.err


def test_what_a_role_may_be_is_told(scrapy, database):
    """An unknown kind is misuse, and the kinds are named."""
    ran = scrapy("grants", "boss", "nobody")

    assert ran.code == 2
    assert "scheduler" in ran.err


def test_a_graph_gives_grants_in_python_too(database, roles):
    """`graph.database.grants` is what the command calls."""
    with ItemGraph.open(database) as graph:
        found = graph.database.grants("read-only", roles[RoleKind.READ_ONLY])
        with pytest.raises(ItemGraphError, match="the kinds are manager, worker"):
            graph.database.grants("boss", roles[RoleKind.READ_ONLY])

    assert not any("INSERT" in statement for statement in found.statements)
