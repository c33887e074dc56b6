"""Settings of crawls of the queue, checked when they are given: a process starts hours later.

Names are Scrapy's, 2.14 to 2.19, by what it reads their values as, and ours. Others are taken as
they are.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model.rates import LONGEST_GAP
from scrapy_itemgraph.settings import readers
from scrapy_itemgraph.settings.sections import PREFIX, check_value
from scrapy_itemgraph.tools import url_secrets
from scrapy_itemgraph.tools.hiding import FROM_ENVIRONMENT
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_LEVELS = ("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG", "NOTSET", "FATAL", "WARN")


def check(settings: Mapping[str, Any]) -> None:
    """Refuse values that a process could not be started with, or that make no sense.

    A value is checked as the process gets it: text as it is, all else as JSON. What the runner's
    environment has is not known yet.

    Raises:
        OperationError: it names the setting, and says what to write.

    """
    for name, value in settings.items():
        if str(value).startswith(FROM_ENVIRONMENT):
            continue
        try:
            text = value if isinstance(value, str) else json.dumps(value)
            if name.startswith(PREFIX):
                check_value(name, value)
            elif name in _CHECKS:
                _CHECKS[name](text)
        except (ValueError, TypeError, SyntaxError) as error:
            raise OperationError(f"the setting {name}: {error}") from None


def check_feeds(
    given: Mapping[str, Any], *, feeds: Collection[str] = (), keeps: Any = None
) -> None:
    """Refuse feeds of a crawl that is told to keep no items: each host would have a part.

    `given` are the crawl's own settings. `feeds` and `keeps` are FEEDS and ITEMGRAPH_KEEP_ITEMS of
    its project, as far as they are known; None: it does not say. What the runner's environment has
    is not known yet.

    Raises:
        OperationError: it is told so, and has feeds.

    """
    kept, own = given.get("ITEMGRAPH_KEEP_ITEMS", keeps), given.get("FEEDS", feeds)
    if kept is None or any(str(one).startswith(FROM_ENVIRONMENT) for one in (kept, own)):
        return
    try:
        named = json.loads(own) if isinstance(own, str) else own
        is_kept = bool(readers.kept(kept))
    except ValueError:  # which `check` says
        return
    uris = [url_secrets.without_login(uri) for uri in named if not uri.startswith("stdout:")]
    if uris and not is_kept:
        raise OperationError(
            f"ITEMGRAPH_KEEP_ITEMS is False, so each process of the crawl would write {uris[0]} by "
            "itself: when its runner dies and one on another host goes on, each host has a part. "
            "Leave that setting out, and a queued crawl with feeds keeps its items for 30 days; "
            "or give it ITEMGRAPH_KEEP_ITEMS=True"
        )


def _switch(text: str) -> None:
    try:
        int(text)
    except ValueError:
        if text not in {"True", "true", "False", "false"}:
            raise ValueError(f"write True or False, not {text!r:.80}") from None


def _integer(text: str) -> None:
    _whole(text, -math.inf)


def _natural(text: str) -> None:
    _whole(text, 0)


def _count(text: str) -> None:
    _whole(text, 1)


def _whole(text: str, least: float) -> None:
    try:
        is_one = int(text) >= least
    except ValueError:
        is_one = False
    if not is_one:
        from_least = "" if least == -math.inf else f" from {least:.0f}"
        raise ValueError(f"write a whole number{from_least}, not {text!r:.80}")


def _seconds(text: str) -> None:
    _number(text, "write a number of seconds from 0", lambda number: number >= 0)


def _delay(text: str) -> None:
    asked = f"write a number of seconds, 0 to {LONGEST_GAP:.0f} (a day)"
    _number(text, asked, lambda number: 0 <= number <= LONGEST_GAP)


def _share(text: str) -> None:
    _number(text, "write a number above 0", lambda number: number > 0)


def _number(text: str, asked: str, holds: Callable[[float], bool]) -> None:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and holds(number)):
        raise ValueError(f"{asked}, not {text!r:.80}")


def _level(text: str) -> None:
    if text not in _LEVELS:
        near = closest(text.upper(), list(_LEVELS))
        raise ValueError(f"{text!r:.80} is no level{near}; there are {', '.join(_LEVELS[:5])}")


def _codes(text: str) -> None:
    for one in filter(None, text.split(",")):
        if not (one.strip().isdecimal() and one.isascii()):
            raise ValueError(
                f'write HTTP statuses with commas, such as "404,410", not {text!r:.80}'
            )


def _object(text: str) -> None:
    try:
        is_object = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise ValueError(f"write an object as JSON, not {text!r:.80}")


def _line(text: str) -> None:
    if not text.isprintable():
        raise ValueError(f"write one line of text, not {text!r:.80}")


_SWITCHES = """
    AJAXCRAWL_ENABLED AUTOTHROTTLE_DEBUG AUTOTHROTTLE_ENABLED COMPRESSION_ENABLED COOKIES_DEBUG
    COOKIES_ENABLED CRAWLSPIDER_FOLLOW_LINKS DEPTH_STATS_VERBOSE DNSCACHE_ENABLED
    DOWNLOADER_CLIENT_TLS_VERBOSE_LOGGING DOWNLOADER_STATS DOWNLOAD_FAIL_ON_DATALOSS
    DOWNLOAD_VERIFY_CERTIFICATES DUPEFILTER_DEBUG FEED_STORAGE_FTP_ACTIVE FEED_STORE_EMPTY
    FORCE_CRAWLER_PROCESS FTP_PASSIVE_MODE HTTPCACHE_ALWAYS_STORE HTTPCACHE_ENABLED HTTPCACHE_GZIP
    HTTPCACHE_IGNORE_MISSING HTTPERROR_ALLOW_ALL HTTPPROXY_ENABLED HTTPX_HTTP2_ENABLED LOG_COLOR
    LOG_ENABLED LOG_FILE_APPEND LOG_INSTALL_ROOT_HANDLER LOG_SHORT_NAMES LOG_STDOUT MAIL_SSL
    MAIL_TLS MEMDEBUG_ENABLED MEMUSAGE_ENABLED METAREFRESH_ENABLED PERIODIC_LOG_TIMING_ENABLED
    RANDOMIZE_DOWNLOAD_DELAY REDIRECT_ENABLED REFERER_ENABLED REMOTE_CONTROL_ENABLED RETRY_ENABLED
    ROBOTSTXT_OBEY SCHEDULER_DEBUG SPIDER_LOADER_WARN_ONLY STATS_DUMP TELNETCONSOLE_ENABLED
    TWISTED_REACTOR_ENABLED WARN_ON_GENERATOR_RETURN_VALUE
"""
_INTEGERS = """
    DEPTH_PRIORITY FEED_EXPORT_INDENT REDIRECT_PRIORITY_ADJUST RETRY_PRIORITY_ADJUST
"""
_NATURALS = """
    AJAXCRAWL_MAXSIZE CLOSESPIDER_ERRORCOUNT CLOSESPIDER_ITEMCOUNT CLOSESPIDER_PAGECOUNT
    CLOSESPIDER_PAGECOUNT_NO_ITEM CLOSESPIDER_TIMEOUT_NO_ITEM DEPTH_LIMIT DNSCACHE_SIZE
    DOWNLOAD_MAXSIZE DOWNLOAD_WARNSIZE FEED_EXPORT_BATCH_ITEM_COUNT HTTP2_MAX_FRAME_SIZE
    HTTPCACHE_EXPIRATION_SECS MAIL_PORT MEMUSAGE_LIMIT_MB MEMUSAGE_WARNING_MB METAREFRESH_MAXDELAY
    REDIRECT_MAX_TIMES REMOTE_CONTROL_OUTPUT_MAX_BYTES REMOTE_CONTROL_TRACEBACK_MAX_BYTES
    RETRY_TIMES SCRAPER_SLOT_MAX_ACTIVE_SIZE URLLENGTH_LIMIT
"""
_COUNTS = """
    CONCURRENT_ITEMS CONCURRENT_REQUESTS CONCURRENT_REQUESTS_PER_DOMAIN REACTOR_THREADPOOL_MAXSIZE
"""
_SECONDS = """
    AUTOTHROTTLE_MAX_DELAY CLOSESPIDER_TIMEOUT DNS_TIMEOUT DOWNLOAD_DELAY_JITTER DOWNLOAD_TIMEOUT
    LOGSTATS_INTERVAL MEMUSAGE_CHECK_INTERVAL_SECONDS REMOTE_CONTROL_TIMEOUT_DEFAULT
    REMOTE_CONTROL_TIMEOUT_MAX
"""
_OBJECTS = """
    ADDONS DEFAULT_REQUEST_HEADERS DOWNLOADER_MIDDLEWARES DOWNLOAD_HANDLERS DOWNLOAD_SLOTS
    EXTENSIONS FEEDS FEED_EXPORTERS FEED_STORAGES ITEM_PIPELINES REFERRER_POLICIES
    SPIDER_CONTRACTS SPIDER_MIDDLEWARES
"""
_KINDS: dict[Callable[[str], None], str] = {
    _switch: _SWITCHES,
    _integer: _INTEGERS,
    _natural: _NATURALS,
    _count: _COUNTS,
    _seconds: _SECONDS,
    _delay: "AUTOTHROTTLE_START_DELAY DOWNLOAD_DELAY",
    _share: "AUTOTHROTTLE_TARGET_CONCURRENCY",
    _level: "DEFAULT_DROPITEM_LOG_LEVEL LOG_LEVEL RETRY_GIVE_UP_LOG_LEVEL",
    _codes: "HTTPCACHE_IGNORE_HTTP_CODES HTTPERROR_ALLOWED_CODES RETRY_HTTP_CODES",
    _object: _OBJECTS,
    _line: "USER_AGENT",
}
_CHECKS = {name: check for check, names in _KINDS.items() for name in names.split()}

NAMES = frozenset(_CHECKS)
"""Scrapy's settings whose values are checked."""
