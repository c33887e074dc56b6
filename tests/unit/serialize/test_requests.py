"""Requests: stored as JSON, and made again as they were."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import threading

import pytest
import scrapy
from hypothesis import given
from hypothesis import strategies as st
from scrapy.http import FormRequest, HtmlResponse, JsonRequest, Request, XmlRpcRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule
from scrapy.utils.request import request_from_dict

from scrapy_itemgraph.exceptions import InvalidDataError, ItemGraphError, UnstorableError
from scrapy_itemgraph.model.request_operations import EnqueueRequest, Pattern
from scrapy_itemgraph.serialize import request_state, requests
from scrapy_itemgraph.worker.spider import request_builder

URL = "http://shop.example/1"


def undecorated_name(method):
    """Wrap a method so that its name is another."""

    def wrapper(self, response):
        return method(self, response)

    return wrapper


class Base(scrapy.Spider):
    def parse_old(self, response):
        """Be overridden."""


class Shop(Base):
    name = "shop"
    not_a_method = 5

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.parse_alike = lambda response: None

    def parse(self, response):
        """Do nothing."""

    def parse_item(self, response, page=1):
        """Do nothing."""

    def parse_old(self, response):
        """Override."""

    def failed(self, failure):
        """Do nothing."""

    def __private(self, response):
        """Do nothing."""

    @undecorated_name
    def parse_wrapped(self, response):
        """Do nothing."""

    @classmethod
    def parse_class(cls, response):
        """Do nothing."""

    @staticmethod
    def parse_static(response):
        """Do nothing."""

    def private(self):
        """Return the private method."""
        return self.__private

    def overridden(self):
        """Return the method that is overridden."""
        return super().parse_old


class Leaving(Request):
    """Ends the process when it is made."""

    def __init__(self, *args, **kwargs):
        raise SystemExit("bye")


class Vault(Shop):
    """A spider whose properties end the process."""

    name = "vault"

    @property
    def secrets(self):
        """Must not run for a stored name."""
        raise SystemExit

    @functools.cached_property
    def cached(self):
        """Must not run for a stored name."""
        raise SystemExit

    def __getattr__(self, name):
        if name == "dynamic":
            raise SystemExit
        raise AttributeError(name)


class Tokens(Request):
    """A project's own class, whose constructor does things of its own."""

    attributes = (*Request.attributes, "token")

    def __init__(self, url, *args, token=None, **kwargs):
        super().__init__(f"{url}#t", *args, **kwargs)
        self.token = token
        self.meta["token"] = token
        self.meta.setdefault("made", []).append(token)


class Rendered(Request):
    """Keeps what its `attributes` do not name, and has a constructor of its own."""

    def __init__(self, wait_time, script=None, *, url, **kwargs):
        self.wait_time = wait_time
        self.script = script
        super().__init__(url, **kwargs)


class Unequal(Rendered):
    """A class that is not tried by other tests."""


class Slotted(Request):
    """Keeps what it has in slots, one of them private, and one that is not always set."""

    __slots__ = ("__secret", "page", "unset")

    def __init__(self, url, page, **kwargs):
        super().__init__(url, **kwargs)
        self.page = page
        self.__secret = (page,)

    @property
    def secret(self):
        """Return what is private."""
        return self.__secret


class Point:
    """Is equal to nothing but itself."""


@dataclasses.dataclass(eq=False)
class Odd:
    """Can be stored, and does not come back equal."""

    x: int


class Crawl(CrawlSpider):
    name = "crawl"
    rules = (Rule(LinkExtractor(), callback="parse_item"),)

    def parse_item(self, response):
        """Do nothing."""


@pytest.fixture(name="spider", scope="module")
def make_spider():
    """Return a spider."""
    return Shop()


def round_trip(request, spider):
    """Store a request as PostgreSQL would get it, and make it again."""
    text = json.dumps(requests.dump(request, spider), ensure_ascii=False, allow_nan=False)
    return requests.load(json.loads(text), spider)


def facts(request):
    """Return everything that Scrapy knows of a request."""
    known = {name: getattr(request, name) for name in type(request).attributes}
    return known | {
        "class": type(request),
        "headers": list(dict.items(request.headers)),
        "encoding of headers": request.headers.encoding,
        "state": request_state.of(request),
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda s: Request(URL),
        lambda s: Request("http://shop.example/é?q=ü", encoding="latin-1"),
        lambda s: Request(URL, callback=s.parse_item, errback=s.failed, cb_kwargs={"page": 2}),
        lambda s: Request(URL, method="POST", body="a=é", priority=-3, dont_filter=True),
        lambda s: Request(URL, body=b"\xff\x00", flags=["a"]),
        lambda s: Request(URL, body=b"a\x00b"),
        lambda s: Request(URL, cookies={"a": "b"}),
        lambda s: Request(URL, cookies=[{"name": "a", "value": b"b", "secure": True}]),
        lambda s: Request(URL, headers={"z": ["2", "1"], "A": "é", "étag": b"\xff", "$": None}),
        lambda s: Request(URL, meta={"a": (1, {2}), b"k": 1, 3: None, "cookiejar": 1}),
        lambda s: FormRequest(URL, formdata={"a": ["1", "é"]}, callback=s.parse_item),
        lambda s: FormRequest(URL, formdata={"a": "1"}, method="GET"),
        lambda s: JsonRequest(URL, data={"b": 1, "a": 2}, dumps_kwargs={"sort_keys": False}),
        lambda s: JsonRequest(URL, headers={"Accept": "x"}),
        lambda s: XmlRpcRequest(URL, methodname="m", params=(1,)),
        lambda s: XmlRpcRequest(URL, method="GET", dont_filter=False, body="x"),
        lambda s: Tokens(URL, token=b"x", meta={"made": [1]}, callback=s.private()),
        lambda s: Rendered(0.5, "x()", url=URL, callback=s.parse_item, body=b"b"),
        lambda s: Slotted(URL, 3, headers={"A": "1"}),
    ],
)
def test_a_request_comes_back_as_it_was(make, spider):
    """Every attribute of a request, of Scrapy's classes and a project's, is kept exactly."""
    request = make(spider)
    before = copy.deepcopy(facts(request) | {"callback": None, "errback": None})
    loaded = round_trip(request, spider)
    assert facts(loaded) == facts(request)
    assert loaded.to_dict(spider=spider) == request.to_dict(spider=spider)
    assert facts(request) | {"callback": None, "errback": None} == before


def test_a_class_whose_requests_do_not_come_back_equal_is_not_stored(spider):
    """The error says what to do; such a request is carried in memory."""
    with pytest.raises(UnstorableError, match=r"does not come back equal; give .* an __eq__"):
        requests.dump(Unequal(Odd(1), url=URL), spider)
    with pytest.raises(UnstorableError, match="wait_time"):
        requests.dump(Rendered(Point(), url=URL), spider)


def test_requests_of_an_older_version_are_made_by_their_constructor(spider):
    """What waits in a database of before is fetched, with what its `attributes` named."""
    stored = {
        "url": f"{URL}#t",
        "class": f"{__name__}:Tokens",
        "callback": "parse_item",
        "meta": {"token": "x"},
        "extra": {"token": "x"},
    }
    spider.cannot_be_copied = threading.Lock()
    loaded = requests.load(stored, spider)
    assert loaded.callback == spider.parse_item
    assert (type(loaded), loaded.token, loaded.meta) == (Tokens, "x", {"token": "x"})
    assert loaded.url == f"{URL}#t"


def test_the_state_of_a_request_runs_no_code_of_its_class(spider):
    """Neither a property nor a method can be overwritten by what is stored, nor Request's own."""
    for name in ("secret", "replace", "_url", "callback", "__class__", "nothing", 5):
        stored = {"url": URL, "class": f"{__name__}:Slotted", "state": {name: 1}}
        with pytest.raises(InvalidDataError, match="does not keep any more"):
            requests.load(stored, spider)


def test_what_was_changed_after_the_constructor_is_kept(spider):
    """Headers that were taken off, a method's spelling: what the constructor would undo stays."""
    request = JsonRequest(URL, data=[1])
    del request.headers["Accept"]
    request.method = "post"
    plain = Request(URL)
    plain.method = "get"
    for changed in (request, plain):
        assert facts(round_trip(changed, spider)) == facts(changed)


ALIKE = [
    lambda s, url: Request(url),
    lambda s, url: Request(url, callback=s.parse_item),
    lambda s, url: Request(url, callback=s.parse_item, errback=s.failed),
    lambda s, url: Request(url, method="POST"),
    lambda s, url: Request(url, priority=5),
    lambda s, url: Request(url, priority=True),
    lambda s, url: Request(url, dont_filter=True),
    lambda s, url: Request(url, encoding="latin-1"),
    lambda s, url: Request(url, headers={"A": "1", "B": "2"}),
    lambda s, url: Request(url, headers={"A": ["1", "B", "2"]}),
    lambda s, url: Request(url, headers={"A": "1", "B": "2", "depth": "1"}),
    lambda s, url: Request(url, meta={"depth": 1}),
    lambda s, url: Request(url, meta={"depth": True}),
    lambda s, url: Request(url, meta={"depth": 1.0}),
    lambda s, url: Request(url, meta={"depth": "1"}),
    lambda s, url: Request(url, meta={"depth": 1, "link_text": "é"}),
    lambda s, url: Request(url, meta={"links": [1]}),
    lambda s, url: Request(url, meta={"download_slot": "other"}),
    lambda s, url: Request(url, meta={1: 1}),
    lambda s, url: Request(url, meta={True: 1}),
    lambda s, url: Request(url, cookies={"a": "b"}),
    lambda s, url: Request(url, cb_kwargs={"page": 1}),
    lambda s, url: Request(url, flags=["x"]),
    lambda s, url: Request(url, body="x"),
    lambda s, url: JsonRequest(url, data=[1]),
    lambda s, url: Request("data:,x"),
]


def enqueuing(request, spider, name):
    """Return the operation for a request, made of nothing but itself."""
    data = request_builder.request_data(request, spider)
    return EnqueueRequest(id=name, tags=("callback:x",), data=data, nice=-request.priority)


def kept(operation):
    """Return all that an operation for a request holds."""
    return {
        name: getattr(operation, name)
        for name in ("id", "tags", "text", "slot", "shown", "nice", "again", "data")
    }


@pytest.mark.parametrize("make", ALIKE)
def test_what_a_request_shares_with_the_one_before_is_stored_as_if_it_were_alone(spider, make):
    """For whatever follows whatever: an operation by a pattern is the one without a pattern."""
    first = make(spider, "http://shop.example/1?a=b")
    like = requests.likeness(first)

    for other in ALIKE:
        for url in ("http://shop.example/2#é", 'http://user@münchen.example:81/"\\'):
            request = other(spider, url)
            if like is not None and requests.likeness(request) == like:
                pattern = Pattern(enqueuing(first, spider, "REQ:1"))
                made = pattern.operation("REQ:2", request.url)
                assert kept(made) == kept(enqueuing(request, spider, "REQ:2"))
            else:
                assert other is not make or like is None


def test_only_what_differs_from_the_defaults_is_stored(spider):
    """The stored form is short and readable."""
    assert requests.dump(Request(URL), spider) == {"url": URL}
    request = JsonRequest(
        URL, callback=spider.parse_item, data={"a": "é"}, meta={"_itemgraph_leg": object(), "d": 1}
    )
    assert requests.dump(request, spider) == {
        "url": URL,
        "class": "scrapy.http.request.json_request:JsonRequest",
        "callback": "parse_item",
        "method": "POST",
        "headers": {
            "Content-Type": "application/json",
            "Accept": "application/json, text/javascript, */*; q=0.01",
        },
        "body": '{"a": "\\u00e9"}',
        "meta": {"d": 1},
        "state": {"_dumps_kwargs": {"sort_keys": True}},
    }


def test_the_dump_is_private(spider):
    """What is changed in a request after its dump does not show in it."""
    request = Request(URL, meta={"a": [1]}, headers={"A": "1"}, cookies=[{"name": "a"}])
    stored = requests.dump(request, spider)
    request.meta["a"].append(2)
    request.headers.appendlist("A", "2")
    request.cookies[0]["name"] = "b"
    assert stored == {
        "url": URL,
        "headers": {"A": "1"},
        "meta": {"a": [1]},
        "cookies": [{"name": "a"}],
    }


def test_a_crawl_spiders_own_requests_are_stored():
    """CrawlSpider's requests name its private methods and carry the text of their link."""
    spider = Crawl()
    response = HtmlResponse("http://shop.example", body=b"<a href='/x'>Caf&eacute;</a>")
    (request,) = spider._requests_to_follow(response)
    assert requests.dump(request, spider) == {
        "url": "http://shop.example/x",
        "callback": "_callback",
        "errback": "_errback",
        "meta": {"rule": 0, "link_text": "Café"},
    }
    assert facts(round_trip(request, spider)) == facts(request)


meta_keys = st.text().filter(lambda key: key != "made" and not key.startswith("_itemgraph"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts) | st.tuples(parts),
    max_leaves=5,
)


@given(
    url=st.text(max_size=20).map("http://shop.example/".__add__),
    kind=st.sampled_from([Request, FormRequest, JsonRequest, Tokens]),
    values=st.fixed_dictionaries(
        {},
        optional={
            "method": st.sampled_from(["GET", "POST", "odd"]),
            "headers": st.dictionaries(
                st.binary(max_size=9) | st.text(max_size=9), st.lists(st.binary() | st.text())
            ),
            "body": st.binary() | st.text(),
            "cookies": st.dictionaries(st.text(), st.text() | st.integers()),
            "meta": st.dictionaries(meta_keys, json_values),
            "priority": st.integers(),
            "dont_filter": st.booleans(),
            "flags": st.lists(st.text()),
            "cb_kwargs": st.dictionaries(st.text(), json_values),
        },
    ),
)
def test_any_request_comes_back_as_it_was(spider, url, kind, values):
    """Whatever goes into a request comes back from the stored form."""
    request = kind(url, **values)
    assert facts(round_trip(request, spider)) == facts(request)


def test_methods_are_found_by_another_name_than_their_own(spider):
    """Private and decorated methods, and class methods, are stored by what the spider has."""
    for method, name in (
        (spider.private(), "_Shop__private"),
        (spider.parse_wrapped, "parse_wrapped"),
        (spider.parse_class, "parse_class"),
        (spider.parse_static, "parse_static"),
        (spider.parse, "parse"),
    ):
        request = Request(URL, callback=method)
        assert requests.callback_name(request, spider) == name
        assert requests.dump(request, spider)["callback"] == name
        assert round_trip(request, spider).callback == method


def test_a_request_without_callback_is_for_parse(spider):
    """The task of a request without callback is named after Scrapy's default."""
    assert requests.callback_name(Request(URL), spider) == "parse"
    assert "callback" not in requests.dump(Request(URL), spider)


@pytest.mark.parametrize(
    ("choose", "what_is_wrong"),
    [
        (lambda s: lambda response: None, "<lambda> is of type function"),
        (lambda s: functools.partial(s.parse_item, page=2), "is of type partial"),
        (lambda s: s.parse_alike, "is of type function"),
        (lambda s: Shop().parse_item, "is a method of a Shop, not of the spider"),
        (lambda s: [].append, "is of type builtin_function_or_method"),
        (lambda s: s.overridden(), "is not what the spider has by the name 'parse_old'"),
        (lambda s: NO_CALLBACK, "is NO_CALLBACK, so nothing would get its response"),
    ],
)
@pytest.mark.parametrize("role", ["callback", "errback"])
def test_other_callbacks_are_refused(choose, what_is_wrong, role, spider):
    """Only a method that the spider has by name can be stored; the error says which is not."""
    request = Request(URL, **{role: choose(spider)})
    with pytest.raises(UnstorableError) as raised:
        requests.dump(request, spider)
    message = str(raised.value)
    assert message.startswith(f"the request <GET {URL}> cannot be stored: its {role} ")
    assert what_is_wrong in message
    assert "method of the spider" in message


def test_a_value_that_cannot_be_stored_is_named(spider):
    """The error names the request, the place in it and the type."""
    request = Request(URL, cb_kwargs={"loader": [object()]})
    with pytest.raises(UnstorableError) as raised:
        requests.dump(request, spider)
    assert f"<GET {URL}> cannot be stored: cb_kwargs['loader'][0] is of type" in str(raised.value)


def test_a_class_that_cannot_be_imported_is_refused(spider):
    """A Request class inside a function has no path by which another process finds it."""

    class Local(Request):
        pass

    with pytest.raises(UnstorableError, match="move the class to the top of its module"):
        requests.dump(Local(URL), spider)


@pytest.mark.parametrize(
    ("stored", "what_is_wrong"),
    [
        ({"url": URL, "callback": "parse_itm"}, "no method 'parse_itm' any more; did you mean"),
        ({"url": URL, "errback": "qqqq"}, "no method 'qqqq' any more. It is the errback"),
        ({"url": URL, "callback": "not_a_method"}, "is no method of the spider 'shop' any more"),
        ({"url": URL, "callback": 5}, "the callback of a stored request must be str, not int"),
        ({"url": URL, "class": "shop_gone:Request"}, "nothing here imports"),
        ({"url": URL, "class": "scrapy.http:Gone"}, "there is no class"),
        ({"url": URL, "class": "scrapy.http:Response"}, "is no Request class"),
        ({"url": URL, "class": "builtins:dict"}, "is no Request class"),
        ({"url": URL, "class": "scrapy:Request", "extra": {"a": 1}}, "attributes but no class"),
        (
            {"url": URL, "class": f"{__name__}:Tokens", "extra": {"a": 1}},
            "the attribute 'a', which",
        ),
        ({"url": URL, "class": f"{__name__}:Tokens", "extra": {"url": 1}}, "the attribute 'url'"),
        ({"url": URL, "class": f"{__name__}:Leaving"}, "cannot be made again: SystemExit: bye"),
        ({}, "has no url"),
        ({"url": None}, "the url of a stored request must be str, not NoneType: None"),
        ({"url": "shop"}, "cannot be made again: ValueError: Missing scheme"),
        ({"url": URL, "metod": "GET"}, "unknown key 'metod'; did you mean 'method'?"),
        ({"url": URL, "meta": []}, "the meta of a stored request must be dict, not list"),
        ({"url": URL, "headers": ["a"]}, "the headers of a stored request must be dict"),
        ({"url": URL, "headers": {"a": 1}}, "a header is of type int, not text or bytes"),
        ({"url": URL, "headers": {"a": "é"}}, "cannot be made again: UnicodeEncodeError"),
        ({"url": URL, "body": "\ud800"}, "cannot be made again: UnicodeEncodeError"),
        ({"url": URL, "encoding": "klingon", "body": "x"}, "LookupError"),
        ({"url": URL, "priority": "high"}, "the priority of a stored request must be int"),
        ({"url": URL, "meta": {"a": {"$": "pickle"}}}, "unknown tag 'pickle'"),
        ({"$": "tuple", "v": []}, "is no JSON object"),
        (None, "is no JSON object: None"),
        ("url", "is no JSON object: 'url'"),
        (5, "is no JSON object: 5"),
    ],
)
def test_damaged_requests_are_refused_with_a_reason(stored, what_is_wrong, spider):
    """What was written by hand, or whose code is gone, gives an error that says what is wrong."""
    with pytest.raises(ItemGraphError) as raised:
        requests.load(stored, spider)
    assert what_is_wrong in str(raised.value)


@given(
    st.dictionaries(
        st.sampled_from([*requests._TYPES, "x"]),
        json_values | st.just("parse") | st.just(URL) | st.just("scrapy.http:FormRequest"),
    )
)
def test_no_damage_gives_another_error(spider, stored):
    """Whatever stands in a stored request, it is made or refused with an error of ours."""
    try:
        assert requests.load(stored, spider).url
    except ItemGraphError as error:
        assert str(error)  # noqa: PT017 - most give one, some do not


def test_hand_written_urls_are_made_safe(spider):
    """A URL that was written by hand is escaped as Scrapy escapes it."""
    assert requests.load({"url": "http://shop.example/é"}, spider).url.endswith("/%C3%A9")


def test_scrapys_own_round_trip_agrees(spider):
    """Scrapy's dict of a request gives the same request as ours does."""
    request = FormRequest(URL, formdata={"a": "1"}, callback=spider.parse_item, meta={"a": 1})
    theirs = request_from_dict(request.to_dict(spider=spider), spider=spider)
    assert facts(round_trip(request, spider)) == facts(theirs)


@pytest.mark.parametrize("role", ["callback", "errback"])
@pytest.mark.parametrize(
    "name", ["secrets", "cached", "dynamic", "__init__", "_set_crawler", "from_crawler", "name"]
)
def test_a_stored_callback_is_a_method_of_the_project(name, role):
    """Properties, `__getattr__`, dunders and Scrapy's own methods are not reached by a name."""
    with pytest.raises(ItemGraphError, match=f"no method (of the spider 'vault'|'{name}') any mor"):
        requests.load({"url": URL, role: name}, Vault())


def test_keys_of_meta_that_are_ours_are_not_read(spider):
    """What a stored request says under the names that we use ourselves is left out."""
    stored = {"url": URL, "meta": {"_itemgraph_leg": 1, "_itemgraph_no_download": True, "a": 2}}
    assert requests.load(stored, spider).meta == {"a": 2}


def test_errors_about_stored_data_are_of_one_class(spider):
    """Damage is told from a spider that has changed by the class of the error."""
    with pytest.raises(InvalidDataError):
        requests.load({}, spider)
