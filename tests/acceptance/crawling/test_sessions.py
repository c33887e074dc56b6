"""Cookies and spider.state over restarts and processes, and sessions that expire."""

from __future__ import annotations

import threading
from collections import defaultdict
from http.cookies import SimpleCookie

import pytest
from support import sites
from support.projects import kill, until


class Members(sites.Site):
    """A site with a login: /login?as= and POST /login set a cookie, /private wants it.

    `cookies` has the Cookie headers by path; `passes` the sessions that are good.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cookies: dict[str, list[str]] = defaultdict(list)
        self.passes: set[str] = set()
        self.is_hopeless = False
        self.reached = threading.Event()
        self.opened = threading.Event()
        self._guard = threading.Lock()
        self._issued = 0

    def respond(self, method, target, headers, body):
        sent = headers.get("Cookie") or ""
        with self._guard:
            self.cookies[target].append(sent)
        if "/gate" in target:
            self.reached.set()
            self.opened.wait(60)
        status, given, page = self.answer(target.replace("/gate", "/gated"))
        if target.startswith("/set"):
            given["Set-Cookie"] = f"{target.rpartition('?')[2]}; Path=/"
        if method == "POST" and target == "/login":
            if b"password=right" not in body:
                return 403, given, b"wrong password"
            given["Set-Cookie"] = f"session={self._issue()}; Path=/"
        if "/sent-away" in target and not self._is_member(sent):
            return 302, {"Location": "/form"}, b""
        if "/private" in target and not self._is_member(sent):
            return 401, given, b"who are you?"
        return status, given, page

    def release(self):
        super().release()
        self.opened.set()

    def expire(self):
        """End all sessions."""
        self.passes.clear()

    def _issue(self):
        with self._guard:
            self._issued += 1
            name = f"pass{self._issued}"
            if not self.is_hopeless:
                self.passes.add(name)
            return name

    def _is_member(self, sent):
        session = SimpleCookie(sent).get("session")
        return session is not None and session.value in self.passes


@pytest.fixture(scope="module")
def site_kind():
    """Return a site with a login."""
    return Members


# Cookies

LOGIN = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/set?session=abc"]

    def parse(self, response):
        yield scrapy.Request(SITE + "/gate/first", self.more, priority=1)
        for n in range(8):
            yield scrapy.Request(f"{SITE}/page/{n}", self.more)

    def more(self, response):
        yield {"url": response.url}
"""


def test_cookies_outlive_a_process(project, site):
    """A login of a process that was killed holds for the next one."""
    project.write(LOGIN, "CONCURRENT_REQUESTS = 1")
    process = project.start("crawl", "s")
    assert site.reached.wait(120), project.log()
    kill(process)
    site.opened.set()

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/set?session=abc"] == 1
    assert site.cookies["/gate/first"] == ["session=abc", "session=abc"]
    assert {tuple(site.cookies[f"/page/{n}"]) for n in range(8)} == {("session=abc",)}


def test_cookies_are_shared_by_processes(project, other, site):
    """What one process logged in to, another one goes on with."""
    for one in (project, other):
        one.write(LOGIN, "CONCURRENT_REQUESTS = 1\nITEMGRAPH_CLAIM_BATCH = 1")
    busy = project.start("crawl", "s")
    assert site.reached.wait(120), project.log()

    helper = other.start("crawl", "s")
    until(lambda: sum(site.hits[f"/page/{n}"] for n in range(8)) >= 6, other.log)
    site.opened.set()
    runs = [project.finish(busy), other.finish(helper)]

    assert {run.stats["reason"] for run in runs} == {"finished"}, runs[1].log
    assert runs[1].stats["item_scraped_count"] >= 6
    assert site.hits["/set?session=abc"] == 1
    assert {tuple(site.cookies[f"/page/{n}"]) for n in range(8)} == {("session=abc",)}


def test_each_jar_is_kept_apart(project, site):
    """Requests with a `cookiejar` carry the cookies of that jar, also after a restart."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"

        async def start(self):
            for jar in (1, "two"):
                url = f"{SITE}/set/{jar}?session=of-{jar}"
                yield scrapy.Request(url, meta={"cookiejar": jar}, dont_filter=True)

        def parse(self, response):
            jar = response.meta["cookiejar"]
            yield scrapy.Request(f"{SITE}/gate/{jar}", self.more, meta={"cookiejar": jar})

        def more(self, response):
            yield scrapy.Request(f"{response.url}/none", self.last)

        def last(self, response):
            pass
    """)
    process = project.start("crawl", "s")
    until(lambda: site.cookies.keys() >= {"/gate/1", "/gate/two"}, project.log)
    kill(process)
    site.opened.set()

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.cookies["/gate/1"] == ["session=of-1"] * 2
    assert site.cookies["/gate/two"] == ["session=of-two"] * 2
    assert site.cookies["/gate/1/none"] == site.cookies["/gate/two/none"] == [""]


def test_without_cookies_none_are_kept(project, site):
    """COOKIES_ENABLED=False: none are sent, none are stored."""
    project.write(LOGIN, "COOKIES_ENABLED = False")
    site.opened.set()

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert {sent for values in site.cookies.values() for sent in values} == {""}
    assert project.rows("SELECT count(*) FROM cookies") == [(0,)]


# spider.state


def test_the_state_outlives_a_process(project, site):
    """spider.state is saved with the commits, and there again before start() after kill -9."""
    project.write("""
    class S(scrapy.Spider):
        name = "s"

        async def start(self):
            self.logger.info(f"BEGINS WITH {dict(sorted(self.state.items()))}.")
            yield scrapy.Request(SITE + "/page/1", dont_filter=True)

        def parse(self, response):
            self.state["pages"] = self.state.get("pages", 0) + 1
            self.state["when"] = {"a": (1, 2)}
            yield scrapy.Request(SITE + "/gate/2", self.more)

        def more(self, response):
            self.state["pages"] += 1
    """)
    process = project.start("crawl", "s")
    assert site.reached.wait(120), project.log()
    first = project.log()
    kill(process)
    site.opened.set()

    second = project.crawl()
    third = project.crawl()

    assert "BEGINS WITH {}." in first
    assert "BEGINS WITH {'pages': 1, 'when': {'a': (1, 2)}}." in second.log
    assert "BEGINS WITH {'pages': 2, 'when': {'a': (1, 2)}}." in third.log


def test_the_state_is_shared_by_processes(project, other, site):
    """What one process sets, another one that runs at the same time sees."""
    spider = """
    class S(scrapy.Spider):
        name = "s"
        start_urls = [SITE + "/gate/1"]

        async def parse(self, response):
            for _ in range(600):
                if "from the other" in self.state:
                    self.logger.info("SEEN HERE")
                    return
                await asyncio.sleep(0.05)

        def more(self, response):
            self.state["from the other"] = True
    """
    project.write(spider)
    starting = 'start_urls = [SITE + "/gate/1"]'
    other.write(
        spider.replace(
            starting,
            "async def start(self):\n"
            '            yield scrapy.Request(SITE + "/page/2", self.more, dont_filter=True)',
        )
    )
    process = project.start("crawl", "s")
    assert site.reached.wait(120), project.log()
    helper = other.start("crawl", "s")
    until(lambda: site.hits["/page/2"] == 1, other.log)
    site.opened.set()

    runs = [project.finish(process), other.finish(helper)]

    assert {run.stats["reason"] for run in runs} == {"finished"}, runs[0].log
    assert sum(run.log.count("SEEN HERE") for run in runs) == 1


# Sessions that expire

MEMBER = """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/start"]
    handle_httpstatus_list = [401, 403]

    async def login(self):
        self.logger.info("LOGIN BEGINS")
        yield scrapy.Request(SITE + "/form", self.fill, dont_filter=True)

    def fill(self, response):
        yield scrapy.FormRequest(
            SITE + "/login", self.logged_in, formdata={"password": "right"}, dont_filter=True
        )

    def logged_in(self, response):
        if response.status != 200:
            raise ValueError("the password is wrong")

    def parse(self, response):
        for n in range(6):
            yield scrapy.Request(f"{SITE}/private/{n}", self.member)

    def member(self, response):
        if response.status == 401:
            raise SessionExpired("who are you?")
        yield {"url": response.url}
"""


@pytest.mark.crawls(MEMBER)
def test_an_expired_session_is_renewed_once(run, project, site):
    """The work goes back without a failure, the spider logs in once, and the crawl goes on."""
    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/login"] == site.hits["/form"] == 1
    assert run.log.count("LOGIN BEGINS") == 1
    assert run.stats["itemgraph/logins"] == 1
    assert run.stats["item_scraped_count"] == 6
    outcomes = project.request_outcomes()
    assert {path: ends[-1] for path, ends in outcomes.items()} == {
        "/page/start": "ok",
        **{f"/private/{n}": "ok" for n in range(6)},
    }
    assert {end for ends in outcomes.values() for end in ends} == {"ok", "released"}
    assert project.errors() == []


def test_a_session_that_expires_again_is_renewed_again(project, site):
    """A login in a later run is one more; what was fetched before stays."""
    never = 'ITEMGRAPH_DEFAULT_TTL = "never"\n'
    project.write(MEMBER, never)
    project.crawl()
    site.expire()
    project.write(MEMBER.replace("range(6)", "range(9)"), never)

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/login"] == 2
    assert run.stats["item_scraped_count"] == 3
    assert project.errors() == []


def test_one_process_logs_in_for_all(project, other, site):
    """Two processes that find the session expired: one login, and both go on with it."""
    spider = MEMBER.replace("range(6)", "range(40)").replace(
        "/private/{n}", "/slow/0.05/private/{n}"
    )
    for one in (project, other):
        one.write(spider, "CONCURRENT_REQUESTS = 4\nITEMGRAPH_CLAIM_BATCH = 2")

    processes = [project.start("crawl", "s"), other.start("crawl", "s")]
    runs = [one.finish(process) for one, process in zip((project, other), processes, strict=True)]

    assert {run.stats["reason"] for run in runs} == {"finished"}, runs[1].log
    assert site.hits["/login"] == 1
    assert sum(run.stats.get("itemgraph/logins", 0) for run in runs) == 1
    assert sum(run.stats.get("item_scraped_count", 0) for run in runs) == 40
    assert project.errors() == []


@pytest.mark.tracebacks("SessionExpired: who are you?")
@pytest.mark.crawls("""
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/1"]

    def parse(self, response):
        yield scrapy.Request(SITE + "/page/2", self.more)
        yield scrapy.Request(SITE + "/page/3", self.last)

    def more(self, response):
        raise SessionExpired("who are you?")

    def last(self, response):
        yield {"url": response.url}
""")
def test_an_expired_session_without_a_login_is_a_failure_that_says_so(run, project, site):
    """A spider without login(): the failure tells what is missing, and the crawl goes on."""
    assert run.stats["reason"] == "finished", run.log
    ((url, message),) = project.errors()
    assert url == site.url + "/page/2"
    assert "no login()" in message
    assert run.stats["item_scraped_count"] == 1


@pytest.mark.parametrize("kind", ["callback", "login", "download"])
@pytest.mark.tracebacks("ValueError: the password is wrong", "ValueError: no key")
def test_a_login_that_fails_closes_the_spider_and_loses_nothing(project, site, kind):
    """The reason says it, the work waits, and a start with the right password goes on."""
    broken = {
        "callback": MEMBER.replace('"right"', '"wrong"'),
        "login": MEMBER.replace('self.logger.info("LOGIN BEGINS")', "raise ValueError('no key')"),
        "download": MEMBER.replace("/form", "/status/404"),
    }[kind]
    project.write(broken)

    run = project.crawl()

    assert run.stats["reason"] == "itemgraph_error", run.log
    assert "login() failed" in run.log
    assert project.errors() == []
    assert project.claimed() == 0

    project.write(MEMBER)
    fixed = project.crawl()

    assert fixed.stats["reason"] == "finished", fixed.log
    assert fixed.stats["item_scraped_count"] == 6
    assert site.hits["/page/start"] == 1
    assert project.errors() == []


@pytest.mark.parametrize("how", ["robots", "offsite"])
@pytest.mark.tracebacks("CannotResolveHostError", "DNSLookupError")
def test_a_login_that_is_refused_is_a_login_that_fails(project, site, how):
    """Requests of login() that robots.txt or allowed_domains refuse do not pass for a login."""
    site.robots = "User-agent: *\nDisallow: /form\n"
    spider, settings = MEMBER, "ROBOTSTXT_OBEY = True"
    if how == "offsite":
        spider = MEMBER.replace('SITE + "/form"', '"http://login.example/form"')
        spider = spider.replace(
            "async def login", 'allowed_domains = ["127.0.0.1"]\n\n    async def login'
        )
        settings = ""
    project.write(spider, settings)

    run = project.crawl()

    assert run.log.count("LOGIN BEGINS") == 1
    assert run.stats["reason"] == "itemgraph_error", run.log
    assert "login() failed" in run.log
    assert project.errors() == []


@pytest.mark.tracebacks("SessionExpired: who are you?")
def test_logins_that_do_not_help_are_a_failure_of_that_work(project, site):
    """After three logins work that still finds itself logged out fails; the rest goes on."""
    site.is_hopeless = True
    spider = MEMBER.replace("range(6)", "range(1)").replace(
        "def member(self",
        """def other(self, response):
        yield {"other": response.url}

    def member(self""",
    )
    spider = spider.replace(
        "def parse(self, response):",
        'def parse(self, response):\n        yield scrapy.Request(SITE + "/page/more", self.other)',
    )
    project.write(spider)

    run = project.crawl()

    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/login"] == 3
    ((url, message),) = project.errors()
    assert url == site.url + "/private/0"
    assert "3 logins did not help" in message
    assert run.stats["item_scraped_count"] == 1


@pytest.mark.crawls("""
class S(scrapy.Spider):
    name = "s"
    handle_httpstatus_list = [401]

    def seeds(self):
        for n in range(3):
            yield seed(f"PAGE:{n}", f"/private/{n}")
            yield seed(f"FOLLOWS:{n}", f"/page/{n}", tags=["follows"])

    def login(self):
        yield scrapy.FormRequest(
            SITE + "/login", self.logged_in, formdata={"password": "right"}, dont_filter=True
        )

    def logged_in(self, response):
        assert response.status == 200

    @task(tags=["page"])
    def parse_page(self, response, item):
        if response.status == 401:
            raise SessionExpired("who are you?")
        yield UpdateData({"done": True})

    @task(tags=["follows"])
    def parse_follows(self, response, item):
        yield scrapy.Request(response.url.replace("/page/", "/private/f"), self.follow)

    def follow(self, response, item):
        if response.status == 401:
            raise SessionExpired("who are you?")
        yield UpdateData({"done": True})
""")
def test_a_task_spider_logs_in_too(run, project, site):
    """SessionExpired in a @task, and in its follow-up, gives the work back and logs in."""
    assert run.stats["reason"] == "finished", run.log
    assert site.hits["/login"] == 1
    assert all(data["done"] for data in project.data().values())
    assert {ends[-1] for ends in project.outcomes().values()} == {"ok"}
    assert project.rows("SELECT count(*) FROM failures") == [(0,)]


@pytest.mark.parametrize("dont_filter", [False, True])
@pytest.mark.crawls.with_args(
    lambda dont_filter: (
        f"DONT_FILTER = {dont_filter}\n"
        """
class S(scrapy.Spider):
    name = "s"
    start_urls = [SITE + "/page/start"]

    def parse(self, response):
        for n in range(8):
            yield response.follow(
                f"/page/sent-away/{n}", self.member, dont_filter=DONT_FILTER
            )

    def login(self):
        yield scrapy.FormRequest(
            SITE + "/login", formdata={"password": "right"}, callback=self.logged_in
        )

    def logged_in(self, response):
        pass

    def member(self, response):
        if response.url.endswith("/form"):
            raise SessionExpired
        yield {"url": response.url}
"""
    )
)
def test_a_page_that_sends_to_the_login_form_is_fetched_again(run, project, site, dont_filter):
    """The form is nobody's page: each page that was sent there is fetched after the login."""
    assert run.stats["reason"] == "finished", run.log
    assert run.stats["item_scraped_count"] == 8, run.log
    assert run.stats["itemgraph/logins"] == 1
    assert project.errors() == []
