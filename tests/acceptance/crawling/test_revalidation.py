"""Conditional requests: a page that is as it was ends as unchanged, and its callback is not run."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from support import sites
from support.projects import Project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message

PAGES = 10

SPIDER = f"""
class S(scrapy.Spider):
    name = "s"

    def seeds(self):
        for number in range({PAGES}):
            yield seed(f"PAGE:{{number}}", f"/page/{{number}}")

    @task(tags=["page"], ttl="1h"OPTIONS)
    def parse_page(self, response, item):
        yield UpdateData({{"text": response.text}})
        yield UpdateMetadata({{"length": len(response.text)}})
        yield AddTag("read")
        yield {{"url": response.url}}

    @task(tags=["read"], depends_on=["parse_page"], download=False)
    def count_words(self, response, item):
        yield UpdateMetadata({{"words": 1}})
"""


def spider(options: str = ", revalidate=True") -> str:
    """Return the spider, with options of its task."""
    return SPIDER.replace("OPTIONS", options)


class CachedSite(sites.Site):
    """Pages that have validators, and are answered 304 while they are as the client knows them."""

    def __init__(self) -> None:
        super().__init__()
        self.contents: Counter[str] = Counter()  # the state of a page, by its path
        self.asked: list[tuple[str, str | None, str | None]] = []  # conditions, as they came
        self.answers: list[tuple[str, int]] = []
        self.form = '"{}"'  # of an ETag
        self.known_form = self.form  # of the ETag that it knows again
        self.dates: dict[str, str] = {}
        self.redirects: dict[str, str] = {}
        self.says_304 = False

    def respond(
        self, method: str, target: str, headers: Message, body: bytes
    ) -> tuple[int, dict[str, Any], bytes]:
        """Answer 304 to the page's own ETag, or its date if there is none."""
        path = urlsplit(target).path
        if path in self.redirects:
            return 302, {"Location": self.redirects[path]}, b""
        wanted, since = headers["If-None-Match"], headers["If-Modified-Since"]
        self.asked.append((path, wanted, since))
        state = hashlib.sha256(f"{path} {self.contents[path]}".encode()).hexdigest()[:8]
        known = [one.strip() for one in (wanted or "").split(",")]
        is_known = (
            self.known_form.format(state) in known if wanted else since in self.dates.values()
        )
        status = 304 if self.says_304 or (is_known and (wanted or since)) else 200
        self.answers.append((path, status))
        given = {"Content-Type": "text/plain", "ETag": self.form.format(state)}
        if path in self.dates:
            given = {"Content-Type": "text/plain", "Last-Modified": self.dates[path]}
        return status, given, b"" if status == 304 else f"{path} is {self.contents[path]}".encode()

    def statuses(self) -> Counter[int]:
        """Count the answers since this was asked last."""
        found = Counter(status for _, status in self.answers)
        self.answers.clear()
        return found


@pytest.fixture
def site() -> Iterator[CachedSite]:
    """Serve a site whose pages have validators."""
    with sites.site(CachedSite) as one:
        yield one


@pytest.fixture
def project(tmp_path, database, site) -> Project:
    """Return a project that has crawled the site once."""
    one = Project(tmp_path, database, site.url).write(spider())
    run = one.crawl()
    assert run.code == 0, run.log
    assert site.statuses() == {200: PAGES}
    return one


def again(project: Project, *arguments: str) -> str:
    """Have all results expire, crawl once more and return the log."""
    assert project.scrapy("itemgraph", "age", "s", "2h").code == 0
    run = project.crawl(*arguments)
    assert run.code == 0, run.log
    return run.log


def parsed(project: Project, task: str = "parse_page") -> dict[str, int]:
    """Return how often the callback of a task was run, by item."""
    return dict(
        project.rows(
            "SELECT i.name, count(*) FROM attempts a JOIN items i ON i.id = a.item_id "
            f"JOIN tasks t ON t.id = a.task_id WHERE t.name = '{task}' AND a.outcome = 'ok' "
            "GROUP BY i.name"
        )
    )


def test_pages_that_are_as_they_were_end_without_their_callback(project, site):
    """Changed pages are parsed, the others renewed: no data, metadata or dependent changes."""
    changed = {f"PAGE:{number}" for number in (2, 7)}
    site.contents.update({"/page/2": 1, "/page/7": 1})

    log = again(project)

    assert site.statuses() == {304: PAGES - 2, 200: 2}
    expected = {f"PAGE:{number}": 1 for number in range(PAGES)}
    assert parsed(project) == expected | dict.fromkeys(changed, 2)
    assert parsed(project, "count_words") == expected
    assert project.data()["PAGE:2"]["text"] == "/page/2 is 1"
    assert project.data()["PAGE:3"]["text"] == "/page/3 is 0"
    assert log.count("'itemgraph/unchanged': 8") == 1
    assert "'item_scraped_count': 2" in log
    assert {name: ends[-1] for name, ends in project.outcomes().items()} == {
        name: "ok" if name in changed else "unchanged" for name in expected
    }
    assert project.rows("SELECT count(*) FROM work") == [(0,)]
    assert project.rows("SELECT count(*) FROM failures") == [(0,)]
    ((expiring,),) = project.rows(
        "SELECT count(*) FROM results WHERE expires_at = completed_at + interval '1 h'"
    )
    assert expiring == PAGES
    again(project)
    assert site.statuses() == {304: PAGES}  # by the validators of the last 200 of each page


@pytest.mark.parametrize("form", ['"{}"', 'W/"{}"', '"{}-gzip"', "{}"])
def test_validators_are_sent_back_as_they_came(tmp_path, database, site, form):
    """Weak ones and odd ones too, and Apache's mark of a compressed page with and without it."""
    site.form, site.known_form = form, form.replace("-gzip", "")
    site.dates["/page/1"] = "Wed, 21 Oct 2015 07:28:00 GMT"
    project = Project(tmp_path, database, site.url).write(spider())
    assert project.crawl().code == 0
    site.asked.clear()
    site.statuses()

    again(project)

    assert site.statuses() == {304: PAGES}
    assert ("/page/1", None, "Wed, 21 Oct 2015 07:28:00 GMT") in site.asked


def test_a_new_version_asks_for_the_whole_page(project, site):
    """It has to parse again, whatever the website says of the page."""
    project.write(spider(', revalidate=True, version="2"'))

    run = project.crawl()

    assert run.code == 0, run.log
    assert site.statuses() == {200: PAGES}
    assert set(parsed(project).values()) == {2}


def test_what_somebody_expires_is_made_again(project, site):
    """Whoever expires a result by hand wants its callback to run."""
    assert project.scrapy("itemgraph", "expire", "--tag", "page", "--task", "parse_page").code == 0

    run = project.crawl()

    assert run.code == 0, run.log
    assert site.statuses() == {200: PAGES}


def test_code_that_was_changed_asks_for_the_whole_page(project, site):
    """A parser that was mended has its pages parsed once they are stale, without a new version."""
    project.write(spider().replace('"text": response.text', '"text": response.text.upper()'))
    again(project)
    assert site.statuses() == {200: PAGES}
    assert project.data()["PAGE:3"]["text"] == "/PAGE/3 IS 0"

    again(project)

    assert site.statuses() == {304: PAGES}


FOLLOWED = """
    def kept(self, item):
        return self.requests.setdefault(item.id, scrapy.Request(item.data["url"]))

    requests = {}

    @task(tags=["page"], revalidate=True, ttl="1h", request="kept")
    def parse_other(self, response, item):
        yield response.request.replace(url=response.url + "/next", callback=self.parse_next)

    def parse_next(self, response, item):
        yield UpdateMetadata({"next": response.url})
"""


def test_requests_that_are_made_of_a_pages_own_have_no_validators(tmp_path, database, site):
    """Otherwise the next page would be answered by the conditions of this one."""
    project = Project(tmp_path, database, site.url).write(spider() + FOLLOWED)
    assert project.crawl().code == 0
    site.contents.update({f"/page/{number}": 1 for number in range(PAGES)})
    site.asked.clear()

    again(project)

    following = [wanted for path, wanted, _ in site.asked if path.endswith("/next")]
    assert following == [None] * PAGES
    assert sum(wanted is not None for _, wanted, _ in site.asked) == 2 * PAGES
    assert project.errors() == []


def test_validators_go_only_to_the_url_that_they_came_from(project, site):
    """A redirect that leads elsewhere now gets none, and its page is parsed."""
    site.redirects["/page/4"] = "/other"
    site.contents["/other"] = 5
    site.asked.clear()

    again(project)

    assert site.statuses() == {304: PAGES - 1, 200: 1}
    assert ("/other", None, None) in site.asked
    assert project.data()["PAGE:4"]["text"] == "/other is 5"
    again(project)
    assert site.statuses() == {304: PAGES}
    assert ("/other", None, None) not in site.asked[-PAGES:]


def test_a_page_that_is_never_changed_is_fetched_in_full_once_in_a_while(project, site):
    """A broken server may answer 304 to everything; ITEMGRAPH_MAX_UNCHANGED bounds that."""
    site.contents.update({f"/page/{number}": 1 for number in range(PAGES)})
    site.says_304 = True
    for _ in range(2):
        again(project, "-s", "ITEMGRAPH_MAX_UNCHANGED=2")
    assert site.statuses() == {304: 2 * PAGES}
    site.says_304 = False

    again(project, "-s", "ITEMGRAPH_MAX_UNCHANGED=2")

    assert site.statuses() == {200: PAGES}
    assert set(parsed(project).values()) == {2}


def test_a_304_that_nobody_asked_for_is_a_failure(tmp_path, database, site):
    """There is no result that could stand."""
    site.says_304 = True
    project = Project(tmp_path, database, site.url).write(spider())

    run = project.crawl()

    assert run.code == 0, run.log
    assert len(project.errors()) == PAGES
    assert parsed(project) == {}


WHAT_COUNTS = """
    def words(self, response):
        assert isinstance(response.meta, dict)
        return response.text
"""


@pytest.mark.parametrize("what", ["body", "words"])
def test_a_page_is_unchanged_if_what_counts_of_it_is_the_same(tmp_path, database, site, what):
    """Its body, or what a method returns: the website need not know of validators."""
    site.form = '"any {} ' + '"'
    site.known_form = "none"
    project = Project(tmp_path, database, site.url)
    project.write(spider(f', unchanged_if="{what}"') + WHAT_COUNTS)
    assert project.crawl().code == 0
    site.contents.update({"/page/2": 1})
    site.statuses()

    log = again(project)

    assert site.statuses() == {200: PAGES}
    assert all(wanted is None for _, wanted, _ in site.asked)
    expected = {f"PAGE:{number}": 1 for number in range(PAGES)}
    assert parsed(project) == expected | {"PAGE:2": 2}
    assert f"'itemgraph/unchanged': {PAGES - 1}" in log


@pytest.mark.tracebacks("ValueError: no words", "ItemGraphError: unchanged_if='words'")
@pytest.mark.parametrize(
    ("does", "error"),
    [("return 17", "returned 17; return text or bytes"), ("raise ValueError('no words')", "no")],
)
def test_a_method_that_cannot_tell_fails_its_page(tmp_path, database, site, does, error):
    """The error names the option; nothing of the page is kept."""
    project = Project(tmp_path, database, site.url)
    project.write(
        spider(', unchanged_if="words", max_attempts=1')
        + f"\n    def words(self, response):\n        {does}\n"
    )

    assert project.crawl().code == 0

    assert len(project.errors()) == PAGES
    assert all(error in message for _, message in project.errors())
    assert parsed(project) == {}


PLAIN = f"""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]

    def parse(self, response):
        number = int(response.url.rpartition("/")[2])
        yield {{"page": number, "text": response.text}}
        for link in (2 * number + 1, 2 * number + 2, 1):
            if link < {PAGES}:
                yield response.follow(f"/page/{{link}}")
"""

REVALIDATED = """
ITEMGRAPH_CALLBACKS = {"parse": {"revalidate": True}}
"""


@pytest.mark.parametrize("more", ["", "DEPTH_LIMIT = 9", "ITEMGRAPH_LEAST_DEPTH = True"])
def test_a_new_run_of_a_plain_spider_visits_what_unchanged_pages_link_to(
    tmp_path, database, site, more
):
    """A start page that is as it was does not end the crawl: each run asks for each page once."""
    project = Project(tmp_path, database, site.url).write(PLAIN, REVALIDATED + more)
    assert project.crawl().code == 0
    assert site.statuses() == {200: PAGES}
    site.contents.update({"/page/4": 1})

    run = project.crawl()

    assert run.code == 0, run.log
    assert site.statuses() == {304: PAGES - 1, 200: 1}
    assert "'item_scraped_count': 1" in run.log
    assert f"'itemgraph/unchanged': {PAGES - 1}" in run.log
    project.crawl()
    assert site.statuses() == {304: PAGES}
    assert project.rows("SELECT count(*) FROM work") == [(0,)]


def test_links_that_a_page_has_no_more_are_not_visited_for_it(tmp_path, database, site):
    """The links of a page are those that it had when it was read last."""
    shorter = PLAIN.replace("for link in (2 * number + 1, 2 * number + 2, 1)", "for link in [1]")
    project = Project(tmp_path, database, site.url).write(PLAIN, REVALIDATED)
    assert project.crawl().code == 0
    project.write(shorter, REVALIDATED)
    assert project.crawl().code == 0
    site.statuses()

    run = project.crawl()

    assert run.code == 0, run.log
    assert site.statuses() == {304: 2}


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ('ITEMGRAPH_CALLBACKS = {"parse": {"revalidate": True, "ttl": "1d"}}', {304: 1}),
        (
            'ITEMGRAPH_CALLBACKS = {"parse": {"revalidate": True}}\nITEMGRAPH_DEFAULT_TTL = "1d"',
            {304: 1},
        ),
    ],
)
def test_pages_that_stay_fresh_over_runs_are_not_visited_for_a_link(
    tmp_path, database, site, settings, asked
):
    """They are looked at when their time to live is over, as below a page that was read."""
    project = Project(tmp_path, database, site.url).write(PLAIN, settings)
    assert project.crawl().code == 0
    site.statuses()

    run = project.crawl()

    assert run.code == 0, run.log
    assert site.statuses() == asked


CARRIED = f"""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/0"]

    def parse(self, response):
        for link in range(1, {PAGES}):
            yield response.follow(f"/page/{{link}}", lambda response: {{"url": response.url}})
"""


def test_a_page_whose_requests_cannot_be_stored_is_always_read(tmp_path, database, site):
    """Nobody but its callback can make them again."""
    project = Project(tmp_path, database, site.url).write(CARRIED, REVALIDATED)
    assert project.crawl().code == 0
    assert site.statuses() == {200: PAGES}

    run = project.crawl()

    assert run.code == 0, run.log
    assert site.statuses() == {200: PAGES}


ODD = {
    "closes the spider": ("if number == 4: raise CloseSpider('enough')", ""),
    "yields an unfiltered request": (
        "yield response.follow('/page/1', self.other, dont_filter=True)",
        "    def other(self, response): pass",
    ),
    "is as deep as DEPTH_LIMIT": ("", ""),
}


@pytest.mark.parametrize("what", ODD)
def test_a_page_that_has_to_be_read_again_is(tmp_path, database, site, what):
    """Its callback wants it, or has not yielded all that is below it."""
    statement, method = ODD[what]
    begins = f"        number = int(response.url.rpartition('/')[2])\n        {statement}\n"
    text = PLAIN.replace(
        "    def parse(self, response):\n", "    def parse(self, response):\n" + begins
    )
    limit = "DEPTH_LIMIT = 1" if "DEPTH" in what else ""
    project = Project(tmp_path, database, site.url).write(text + method, REVALIDATED + limit)
    project.crawl()
    read = site.statuses()[200]
    site.answers.clear()

    project.crawl("-s", "DEPTH_LIMIT=0")

    asked = [path for path, status in site.answers if status == 200]
    assert read > 0
    if what == "closes the spider":
        assert "/page/4" in asked
    elif "DEPTH" in what:
        assert {"/page/1", "/page/2", "/page/3", "/page/9"} <= set(asked)
    else:
        assert len(asked) >= PAGES


def test_a_page_that_took_another_ones_place_keeps_its_links(tmp_path, database, site):
    """They stand with the item that survived the merge, as its result does."""
    merging = PLAIN.replace(
        "        yield {", "        yield RenameItem(to='ALL', if_taken='merge')\n        yield {"
    ).replace("yield RenameItem", "if number < 2: yield RenameItem")
    project = Project(tmp_path, database, site.url).write(merging, REVALIDATED)
    assert project.crawl().code == 0
    site.statuses()

    run = project.crawl()

    assert run.code == 0, run.log
    # The item that both are has the request of the second page.
    assert {path for path, _ in site.answers} == {
        f"/page/{number}" for number in (1, 3, 4, 7, 8, 9)
    }


def test_a_page_that_expires_itself_is_read_again(tmp_path, database, site):
    """Whoever expires a result by a callback wants it made again, though it is just being made."""
    expiring = PLAIN.replace(
        "        yield {",
        "        if number == 4 and not getattr(self, 'has_expired', False):\n"
        "            self.has_expired = True\n"
        "            yield Expire()\n"
        "        yield {",
    )
    project = Project(tmp_path, database, site.url).write(expiring, REVALIDATED)

    assert project.crawl().code == 0

    assert Counter(site.answers)["/page/4", 200] == 2


def test_pages_with_a_time_to_live_of_their_callbacks_own_are_visited(tmp_path, database, site):
    """A link has them fetched in each run, for it knows nothing of that."""
    text = PLAIN.replace("        yield {", "        yield SetTTL('30d')\n        yield {")
    project = Project(tmp_path, database, site.url).write(text, REVALIDATED)
    assert project.crawl().code == 0
    site.statuses()

    run = project.crawl()

    assert run.code == 0, run.log
    assert site.statuses() == {304: PAGES}
