"""Sessions in a crawl's process: the jars of Scrapy's CookiesMiddleware, and `spider.state`.

What changed here is unsaved until a commit that took it has succeeded; until then it is newer than
what the database says. What is read while something of it is being saved may be older: each read
keeps what was saved since it began, and leaves that alone.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from http.cookiejar import Cookie as HttpCookie
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.utils.httpobj import urlparse_cached

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.model import input_checks
from scrapy_itemgraph.model.cookies import MAX_KEY_BYTES, Cookie, domains
from scrapy_itemgraph.serialize import json_values
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.worker import scrapy_internals

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
    from datetime import datetime

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http.cookies import CookieJar

logger = logs.logger(__name__)

KNOWN_HOSTS = 10_000
# A large state is dumped less often: dumping it takes at most this part of the time.
STATE_SHARE = 0.05
CHEAP = 0.002  # seconds; a dump that took less is done each time

UNSTORABLE = (ItemGraphError, TypeError, ValueError, RecursionError)

# What a stored cookie leaves out; domain, path and name are columns.
USUAL: dict[str, Any] = {
    "version": 0,
    "value": None,
    "port": None,
    "port_specified": False,
    "domain_specified": False,
    "domain_initial_dot": False,
    "path_specified": False,
    "secure": False,
    "expires": None,
    "discard": True,
    "comment": None,
    "comment_url": None,
    "rest": {},
    "rfc2109": False,
}

Ident = tuple[str, str, str, str]  # jar, domain, path and name of a cookie


@dataclass(eq=False, slots=True, weakref_slot=True)
class Read:
    """A read under way, and the keys that were saved since it began: here they are newer."""

    overtaken: set[Any] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class CookieRead(Read):
    """A read of the cookies of (jar, host) pairs, each with when it was read before, if it was."""

    pairs: dict[tuple[str, str], datetime | None] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)  # of jars, by their texts


class _Synced:
    """Knows the reads under way, and says each thing once."""

    def __init__(self) -> None:
        self._reads: WeakSet[Read] = WeakSet()
        self._told: set[str] = set()

    def _overtake(self, keys: Collection[Any]) -> None:
        for read in self._reads:
            read.overtaken.update(keys)

    def _tell(self, key: str, message: str, *args: object) -> None:
        if key not in self._told:
            self._told.add(key)
            logger.warning(f"{message} (said once)", *args)  # noqa: G004


def _ident(cookie: Cookie) -> Ident:
    return cookie.jar, cookie.domain, cookie.path, cookie.name


def dump_cookie(cookie: HttpCookie) -> str:
    """Return a cookie as JSON, without its domain, path and name and without what is usual."""
    known = vars(cookie)
    attributes = {name: known["_rest" if name == "rest" else name] for name in USUAL}
    return json.dumps({name: value for name, value in attributes.items() if value != USUAL[name]})


def load_cookie(cookie: Cookie) -> HttpCookie:
    """Return the cookie that was dumped."""
    assert cookie.cookie is not None
    stored = json.loads(cookie.cookie)
    attributes = {name: stored.get(name, usual) for name, usual in USUAL.items()}
    return HttpCookie(name=cookie.name, domain=cookie.domain, path=cookie.path, **attributes)


class Jars(_Synced):
    """The jars of a crawler's CookiesMiddleware, and what of them has still to be saved.

    All is a no-op where the project has switched cookies off or keeps them otherwise.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__()
        self._crawler = crawler
        self._middleware: CookiesMiddleware | None = None
        self._seen: dict[Hashable, dict[str, dict[tuple[str, str], HttpCookie]]] = {}
        self._unsaved: dict[Ident, Cookie] = {}
        self._read_at: dict[tuple[str, str], datetime | None] = {}  # by jar and host

    def note(self, request: Request) -> None:
        """Remember as unsaved what a fetch that has ended changed in its jar.

        Only the domains whose cookies the request's host could get are looked at.
        """
        running = self._running()
        host = _host(request)
        if running is None or not running.jars or not _merges_cookies(request) or not host:
            return
        key = request.meta.get("cookiejar")
        try:
            jar = running.jars.get(key)
        except TypeError:  # unhashable: the middleware has failed at it
            return
        if jar is None:
            return
        seen = self._seen.get(key)
        for domain in domains(host):
            live = scrapy_internals.cookies_of(jar).get(domain)
            before = seen.get(domain) if seen else None
            if live or before:
                self._compare(key, domain, live or {})

    def add_to(self, request: Request) -> None:
        """Give a request that is not downloaded the cookies that it would be sent with."""
        running = self._running()
        if running is not None:
            running.process_request(request)

    def unsaved(self) -> list[Cookie]:
        """Return what has to be saved, for a commit; it stays unsaved until `saved` is called."""
        return list(self._unsaved.values())

    def saved(self, cookies: Sequence[Cookie]) -> None:
        """Note that a commit saved these; one that has changed again meanwhile stays unsaved."""
        for cookie in cookies:
            if self._unsaved.get(_ident(cookie)) is cookie:
                del self._unsaved[_ident(cookie)]
        self._overtake({_ident(cookie) for cookie in cookies})

    def save_again(self) -> None:
        """Have all cookies saved and read again: the database lacks what was saved."""
        self._read_at.clear()
        for key, domains_ in self._seen.items():
            for domain, cookies in domains_.items():
                for (path, name), cookie in cookies.items():
                    self._remember(key, domain, path, name, cookie)

    def wanted(self, requests: Iterable[Request]) -> CookieRead:
        """Begin to read the cookies of these requests: which jars, and for which hosts."""
        read = CookieRead()
        if self._running() is None:
            return read
        for request in requests:
            key = request.meta.get("cookiejar")
            host = _host(request) if _merges_cookies(request) else None
            jar = self._jar_text(key) if host else None
            if host and jar is not None:
                read.keys.setdefault(jar, key)
                read.pairs[jar, host] = self._read_at.get((jar, host))
        if read.pairs:
            self._reads.add(read)
        return read

    def merge(
        self, read: CookieRead, cookies: Iterable[Cookie], read_at: datetime | None = None
    ) -> None:
        """Put cookies that were read into the running jars, unless what is there is newer.

        `read_at` is when that was, by the database's clock.
        """
        running = self._running()
        if running is None:
            return
        for cookie in cookies:
            if _ident(cookie) not in self._unsaved and _ident(cookie) not in read.overtaken:
                try:
                    self._put(running.jars, read.keys[cookie.jar], cookie)
                except (AttributeError, *UNSTORABLE) as error:
                    message = "Cannot read a stored cookie of %s: %r"
                    self._tell("stored", message, cookie.domain, error)
        self._reads.discard(read)
        for pair in read.pairs:
            self._read_at.pop(pair, None)  # what was read last goes last
            self._read_at[pair] = read_at
        while len(self._read_at) > KNOWN_HOSTS:
            del self._read_at[next(iter(self._read_at))]

    def _put(self, jars: dict[Any, CookieJar], key: Hashable, stored: Cookie) -> None:
        jar = jars.get(key)
        domain, path, name = stored.domain, stored.path, stored.name
        kept = scrapy_internals.cookies_of(jar)
        live = kept.get(domain, {}).get(path, {}).get(name)
        seen = self._seen.setdefault(key, {}).setdefault(domain, {})
        before = seen.get((path, name))
        if live is not before and not (live is None and before and before.is_expired()):
            return  # changed here, and not yet noted
        new = load_cookie(stored) if stored.cookie is not None else None
        if new is None or new.is_expired():
            seen.pop((path, name), None)
            if jar is not None and live is not None:
                jar.clear(domain, path, name)
        elif live is None or vars(live) != vars(new):
            jars[key].set_cookie(new)
            seen[path, name] = new

    def _compare(self, key: Hashable, domain: str, live: dict[str, dict[str, HttpCookie]]) -> None:
        seen = self._seen.setdefault(key, {}).setdefault(domain, {})
        count = 0
        for path, by_name in live.items():
            for name, cookie in by_name.items():
                count += 1
                before = seen.get((path, name))
                if before is cookie:
                    continue
                seen[path, name] = cookie
                if before is None or vars(before) != vars(cookie):
                    self._remember(key, domain, path, name, cookie)
        if count == len(seen):
            return
        for path, name in [(path, name) for path, name in seen if name not in live.get(path, ())]:
            # One whose time was over is no news, and others may have renewed it.
            if not seen.pop((path, name)).is_expired():
                self._remember(key, domain, path, name, None)

    def _remember(
        self, key: Hashable, domain: str, path: str, name: str, cookie: HttpCookie | None
    ) -> None:
        jar = self._jar_text(key)
        if jar is None:
            return
        try:
            input_checks.check_text(domain + path + name, "A cookie's name")
            changed = Cookie(
                jar=jar,
                domain=domain,
                path=path,
                name=name,
                cookie=None if cookie is None else dump_cookie(cookie),
                expires=None if cookie is None else cookie.expires,
            )
        except UNSTORABLE as error:
            self._tell("cookie", "Cannot save the cookie %.80r of %s: %s", name, domain, error)
            return
        if sum(len(part.encode()) for part in (jar, domain, path, name)) > MAX_KEY_BYTES:
            self._tell(
                "long",
                "Cannot save the cookie %.80r of %s: jar, domain, path and name have together "
                "more than %d bytes. It lives in this process only",
                name,
                domain,
                MAX_KEY_BYTES,
            )
            return
        self._unsaved[_ident(changed)] = changed

    def _jar_text(self, key: Any) -> str | None:
        if key is None:
            return "null"
        try:
            hash(key)
            return _dump(key, "The key of a cookie jar")
        except UNSTORABLE as error:
            self._tell(
                "jar",
                "Cannot save the cookie jar %.80r: %s. Its cookies live in this process only; "
                "use a string or a number as request.meta['cookiejar']",
                key,
                error,
            )
            return None

    def _running(self) -> CookiesMiddleware | None:
        if self._middleware is None and "middleware" not in self._told:
            try:
                found = self._crawler.get_downloader_middleware(CookiesMiddleware)
            except RuntimeError:
                return None  # the engine is not there yet
            self._told.add("middleware")
            self._middleware = found if hasattr(found, "jars") else None
        return self._middleware


class State(_Synced):
    """`spider.state`, as Scrapy's own extension keeps it with a JOBDIR, key by key.

    A spider that has something else under this name is left alone.
    """

    def __init__(self, spider: Spider, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self._spider = spider
        self._clock = clock
        self._next_at = 0.0
        self._stored: dict[str, str] = {}
        self._is_merged = False
        if getattr(spider, "state", None) is None:
            spider.state = {}  # type: ignore[attr-defined]

    def changed(self, *, is_last: bool = False) -> dict[str, str | None]:
        """Return the keys whose value is another than what is stored; None when it was deleted.

        Nothing is noted as saved yet. After a large state was dumped this returns nothing for a
        while, so that it takes a small part of the time; with `is_last` it always looks.
        """
        state = self._current()
        if state is None or not (state or self._stored):
            return {}
        began = self._clock()
        if began < self._next_at and not is_last:
            return {}
        texts, broken = self._texts(state)
        took = self._clock() - began
        self._next_at = began + took / STATE_SHARE if took > CHEAP else 0.0
        changes: dict[str, str | None] = {
            key: text for key, text in texts.items() if self._stored.get(key) != text
        }
        changes.update((key, None) for key in self._stored.keys() - texts.keys() - broken)
        return changes

    def saved(self, changes: Mapping[str, str | None]) -> None:
        """Note that a commit saved these."""
        for key, text in changes.items():
            self._note(key, text)
        self._overtake(changes.keys())

    def save_again(self) -> None:
        """Have all of the state saved again: the database lacks what was saved."""
        self._stored.clear()
        self._next_at = 0.0

    def reading(self) -> Read:
        """Begin to read the stored state."""
        read = Read()
        self._reads.add(read)
        return read

    def merge(self, read: Read, rows: Mapping[str, str | None]) -> None:
        """Take over what is stored, but for keys that were changed here.

        The first time what is stored wins over whatever the spider set up itself.
        """
        self._reads.discard(read)
        state = self._current()
        if state is None or not rows:
            self._is_merged = True
            return
        texts, broken = self._texts(state)
        for key, text in rows.items():
            here = texts.get(key)
            is_changed = self._is_merged and (key in broken or here != self._stored.get(key))
            if not is_changed and key not in read.overtaken:
                if here != text or key in broken:
                    self._take(state, key, text)
                self._note(key, text)
        self._is_merged = True

    def _take(self, state: dict[Any, Any], key: str, text: str | None) -> None:
        try:
            name = json_values.load(json.loads(key))
            if text is None:
                state.pop(name, None)
            else:
                state[name] = json_values.load(json.loads(text))
        except UNSTORABLE as error:
            self._tell(key, "Cannot restore spider.state[%s]: %s", key, error)

    def _texts(self, state: dict[Any, Any]) -> tuple[dict[str, str], set[str]]:
        """Return the state as JSON, and the keys whose values cannot be stored."""
        texts, broken = {}, set()
        for name, value in state.items():
            try:
                key = _dump(name, "A key of spider.state")
            except UNSTORABLE as error:
                self._tell(repr(name), "Cannot save spider.state[%.80r]: %s", name, error)
                continue
            if len(key) > MAX_KEY_BYTES:
                self._tell(key, "Cannot save spider.state[%.80r]: use a shorter key", name)
                continue
            try:
                texts[key] = _dump(value, f"spider.state[{name!r:.80}]")
            except UNSTORABLE as error:
                broken.add(key)
                self._tell(key, "Cannot save spider.state[%.80r]: %s", name, error)
        return texts, broken

    def _note(self, key: str, text: str | None) -> None:
        if text is None:
            self._stored.pop(key, None)
        else:
            self._stored[key] = text

    def _current(self) -> dict[Any, Any] | None:
        state = getattr(self._spider, "state", None)
        return state if isinstance(state, dict) else None


def _merges_cookies(request: Request) -> bool:
    return not request.meta.get("dont_merge_cookies", False)


def _host(request: Request) -> str | None:
    try:
        return urlparse_cached(request).hostname
    except ValueError:  # such as "http://[": it fails when it is downloaded
        return None


def _dump(value: Any, what: str) -> str:
    return json.dumps(json_values.dump(value, what), allow_nan=False)
