"""A stored request: the JSON that a Request is kept as, and the Request made of it again."""

from __future__ import annotations

import copy
import inspect
from functools import lru_cache
from types import MethodType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from scrapy import Request, Spider
from scrapy.http.headers import Headers
from scrapy.http.request import NO_CALLBACK

from scrapy_itemgraph.exceptions import (
    InvalidDataError,
    ItemGraphError,
    RefusedUrlError,
    UnstorableError,
)
from scrapy_itemgraph.model import schemes
from scrapy_itemgraph.serialize import classes, json_values, request_state
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Mapping

_OURS = "_itemgraph"  # what keys of meta begin with that are of one run only
_DEFAULTS: dict[str, Any] = {  # of a request's arguments but its URL and headers
    "callback": None,
    "errback": None,
    "method": "GET",
    "body": b"",
    "cookies": {},
    "meta": {},
    "encoding": "utf-8",
    "priority": 0,
    "dont_filter": False,
    "flags": [],
    "cb_kwargs": {},
}
_OTHERS = ("method", "cookies", "encoding", "priority", "dont_filter", "flags", "cb_kwargs")
_TYPES: dict[str, tuple[type, ...]] = {
    "url": (str,),
    "class": (str,),
    "callback": (str,),
    "errback": (str,),
    "method": (str,),
    "headers": (dict,),
    "body": (str, bytes),
    "cookies": (dict, list),
    "meta": (dict,),
    "encoding": (str,),
    "priority": (int,),
    "dont_filter": (object,),
    "flags": (list, tuple),
    "cb_kwargs": (dict,),
    "state": (dict,),
    "extra": (dict,),
    schemes.SCHEME: (str,),
}
_PLAIN = frozenset({str, int, bool, type(None)})  # equal of one type, they are the same for ever
_come_back: WeakSet[type[Request]] = WeakSet()  # classes whose requests come back as they were
_ASSIGNED = ("method", "cookies", "priority", "dont_filter", "callback", "errback", "flags")


def dump(request: Request, spider: Spider) -> dict[str, Any]:
    """Return a request as JSON values, with what differs from the defaults of `Request`.

    Of a subclass all that stands in the instance is stored. Keys of meta that begin with
    `_itemgraph` are left out. Another scheme than http and https is noted beside its URL: so `load`
    knows that a spider yielded it.

    Raises:
        UnstorableError: a callback is no method of the spider, a value has no stored form, or a
            request of this class does not come back as it was.

    """
    try:
        return _dump(request, spider)
    except UnstorableError as error:
        raise UnstorableError(f"the request {request} cannot be stored: {error}") from None


def likeness(request: Request) -> tuple[Any, ...] | None:
    """Return what decides all that `dump` returns but the URL; None where that takes a look.

    Of two requests of one page that are alike only the URL has to be looked at: most that a page
    yields are like the one before.
    """
    if type(request) is not Request or type(request.headers) is not Headers:
        return None
    if not schemes.is_web(request.url):
        return None
    if request.body or request.cookies or request.cb_kwargs or request.flags:
        return None
    parts: list[Any] = [
        request.callback,
        request.errback,
        request.method,
        request.encoding,
        request.priority,
        request.dont_filter,
    ]
    for name, values in dict.items(request.headers):
        parts.append((name, *values))
    for name, value in request.meta.items():
        kind = type(value)
        if kind not in _PLAIN or type(name) is not str:
            return None
        parts.append((name, kind, value))
    return tuple(parts)


def has_plain_url(request: Request) -> bool:
    """Tell whether a URL can be stored as it is: it is ASCII and without NUL."""
    return request.url.isascii() and "\0" not in request.url


def load(stored: Mapping[str, Any], spider: Spider) -> Request:
    """Return the request that `dump` got.

    What somebody else wrote chooses among what is there, and runs nothing else: the class is a
    loaded Request class, whose own constructor does not run, but for what was stored before its
    state was; a callback is a method that the spider's own classes have, found without asking a
    property, and of `scrapy.Spider`'s own one that gets a response, as `parse` does; the rest is
    read by `json_values.load`, which promises more.

    Raises:
        ItemGraphError: a callback or a class is gone, or what is stored is damaged.
        RefusedUrlError: its URL has another scheme than http and https that no spider yielded.

    """
    values = _checked(stored)
    _check_scheme(values["url"], values.pop(schemes.SCHEME, None))
    path = values.pop("class", None)
    kind = Request if path is None else classes.find(path)
    if not issubclass(kind, Request):
        raise InvalidDataError(f"{path!r}, the class of a stored request, is no Request class")
    for role in ("callback", "errback"):
        if role in values:
            values[role] = _method(spider, values[role], role)
    state, extra = values.pop("state", None), values.pop("extra", {})
    if (state or extra) and kind is Request:
        names = sorted(map(repr, {**(state or {}), **extra}))
        raise InvalidDataError(f"a stored request has attributes but no class: {names}")
    _check_extra(kind, extra)
    if "meta" in values:
        values["meta"] = _own_meta(values["meta"])
    try:
        if kind is Request:
            return _plain(values)
        return _of_class(kind, values, state) if state is not None else _built(kind, values, extra)
    except BaseException as error:  # a constructor may raise anything, SystemExit too
        raise InvalidDataError(
            f"the stored request for {values['url']!r:.200} cannot be made again: "
            f"{type(error).__name__}: {error}"
        ) from error


def callback_name(request: Request, spider: Spider) -> str:
    """Return the name of the spider's method that gets the response of a request."""
    return "parse" if request.callback is None else name_of(request.callback, spider, "callback")


def _dump(request: Request, spider: Spider) -> dict[str, Any]:
    kind: Any = type(request)
    stored: dict[str, Any] = {"url": json_values.dump(request.url, "url")}
    stored |= schemes.mark_of(request.url)
    if kind is not Request:
        stored["class"] = _path_of(kind)
    for role in ("callback", "errback"):
        method = getattr(request, role)
        if method is not None:
            stored[role] = name_of(method, spider, role)
    if request.headers:
        stored["headers"] = _stored_headers(request)
    if request.body:
        stored["body"] = _stored_body(request.body)
    meta = _own_meta(request.meta)
    if meta:
        stored["meta"] = json_values.dump(meta, "meta")
    for name in _OTHERS:
        value = getattr(request, name)
        if value and value != _DEFAULTS[name]:
            stored[name] = json_values.dump(value, name)
    if kind is not Request:
        state = request_state.of(request)
        stored["state"] = {name: json_values.dump(value, name) for name, value in state.items()}
        _check_class(kind, request, stored, spider)
    return stored


def _check_class(
    kind: type[Request], request: Request, stored: dict[str, Any], spider: Spider
) -> None:
    if kind not in _come_back:
        _check_round_trip(request, stored, spider)
        _come_back.add(kind)


def _check_round_trip(request: Request, stored: dict[str, Any], spider: Spider) -> None:
    """Refuse a request that does not come back as it was; the first of each class is tried."""
    try:
        is_same = _facts(load(stored, spider)) == _facts(request)
    except ItemGraphError as error:
        raise UnstorableError(str(error)) from None
    except Exception as error:  # noqa: BLE001 - values compare as they like
        raise UnstorableError(f"its values cannot be compared: {error!r:.200}") from None
    if not is_same:
        raise UnstorableError(
            f"what its class {type(request).__qualname__} keeps does not come back equal; give "
            "what it keeps an __eq__, such as a dataclass has, or pass it in meta"
        )


def _facts(request: Request) -> dict[str, Any]:
    known = {name: getattr(request, name) for name in Request.attributes}
    meta = _own_meta(request.meta)
    return known | {"meta": meta, "state": request_state.of(request), "class": type(request)}


def _own_meta(meta: dict[Any, Any]) -> dict[Any, Any]:
    ours = {key for key in meta if isinstance(key, str) and key.startswith(_OURS)}
    return {key: value for key, value in meta.items() if key not in ours} if ours else meta


def _path_of(kind: type[Request]) -> str:
    path = classes.path_of(kind)
    if path is None:
        raise UnstorableError(
            f"its class {kind.__module__}.{kind.__qualname__} cannot be imported by that name; "
            "move the class to the top of its module"
        )
    return path


# Headers and body: text where it is ASCII or UTF-8, else tagged bytes


def _stored_headers(request: Request) -> Any:
    headers: Any = request.headers
    if not isinstance(headers, Headers):  # Scrapy before 2.19 lets anything be assigned
        headers = Headers(headers, encoding=request.encoding)
    compact: dict[Any, Any] = {}
    for name, values in dict.items(headers):
        parts = [_ascii(value) for value in values]
        compact[_ascii(name)] = parts[0] if len(parts) == 1 else parts
    return json_values.dump(compact, "headers")


def _ascii(value: bytes) -> str | bytes:
    return value.decode("ascii") if value.isascii() else value


def _exact_headers(headers: dict[Any, Any], encoding: str) -> Headers:
    """Return headers just as they were; Scrapy would spell the names of some anew."""
    exact = Headers(encoding=encoding)
    for name, value in headers.items():
        values = value if isinstance(value, list) else [value]
        dict.__setitem__(exact, _encoded(name), [_encoded(part) for part in values])
    return exact


def _encoded(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("ascii")
    if isinstance(value, bytes):
        return value
    raise TypeError(f"a header is of type {type(value).__name__}, not text or bytes")


def _stored_body(body: bytes) -> Any:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return json_values.dump(body, "body")
    return text if "\0" not in text else json_values.dump(body, "body")


# Checks of what is stored


def _checked(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a stored request, each of a type that it can have."""
    try:
        values = json_values.load(dict(stored))
    except (TypeError, ValueError):
        values = None
    if not isinstance(values, dict):
        raise InvalidDataError(f"a stored request is no JSON object: {stored!r:.200}")
    if "url" not in values:
        raise InvalidDataError(f"a stored request has no url: {stored!r:.200}")
    for name, value in values.items():
        types = _TYPES.get(name)
        if types is None:
            hint = closest(name, _TYPES) if isinstance(name, str) else ""
            raise InvalidDataError(f"a stored request has the unknown key {name!r}{hint}")
        if not isinstance(value, types):
            raise InvalidDataError(
                f"the {name} of a stored request must be {' or '.join(t.__name__ for t in types)}, "
                f"not {type(value).__name__}: {value!r:.200}"
            )
    return values


def _check_scheme(url: str, yielded: str | None) -> None:
    if ":" in url and not schemes.is_web(url) and schemes.scheme_of(url) != yielded:
        raise RefusedUrlError(
            f"a stored request is for {url!r:.200}, and the spider did not yield it with this "
            "scheme; of what others stored only http and https are fetched"
        )


def _check_extra(kind: Any, extra: Mapping[Any, Any]) -> None:
    for name in extra.keys() - (set(kind.attributes) - set(Request.attributes)):
        raise InvalidDataError(
            f"a stored request has the attribute {name!r:.80}, which {kind.__qualname__} does not "
            "name in its attributes any more; put it back"
        )


def _plain(values: dict[str, Any]) -> Request:
    """Make a plain Request that has just these values."""
    body = values.get("body")
    if isinstance(body, str):
        values["body"] = body.encode()
    headers = values.pop("headers", None)
    request = Request(**values)
    if headers:
        request.headers = _exact_headers(headers, request.encoding)
    request.method = values.get("method", "GET")
    return request


def _of_class(kind: type[Request], values: dict[str, Any], state: dict[Any, Any]) -> Request:
    """Make a request of a subclass that has just these values, without its constructor."""
    if any("__del__" in vars(base) for base in kind.__mro__):
        raise InvalidDataError(f"{kind.__qualname__} has a finaliser; pass what it needs in meta")
    request: Any = Request.__new__(kind)
    _assign(request, values)
    request_state.put(request, state)
    return request  # type: ignore[no-any-return]


def _built(kind: type[Request], values: dict[str, Any], extra: dict[str, Any]) -> Request:
    """Make a request as it was stored before the state of subclasses was: by its constructor."""
    given: dict[str, Any] = {  # its constructor may change what it gets
        name: copy.deepcopy(value) if isinstance(value, (dict, list)) else value
        for name, value in values.items()
    }
    headers = _exact_headers(given.pop("headers", {}), values.get("encoding", "utf-8"))
    if isinstance(given.get("body"), str):
        given["body"] = given["body"].encode()
    request = kind(**{**copy.deepcopy(_DEFAULTS), "headers": headers, **given, **extra})
    _assign(request, values)
    return request


def _assign(request: Request, given: dict[str, Any]) -> None:
    """Give a request just these values, whatever the constructor of its class made of them.

    Only that of Request itself sets a URL and a body.
    """
    values = {**copy.deepcopy(_DEFAULTS), **given}
    body = values["body"]
    Request.__init__(
        request,
        values["url"],
        body=body.encode() if isinstance(body, str) else body,
        meta=values["meta"],
        encoding=values["encoding"],
        cb_kwargs=values["cb_kwargs"],
    )
    request.headers = _exact_headers(values.get("headers", {}), request.encoding)
    for name in _ASSIGNED:
        setattr(request, name, values[name])


# Callbacks and their names


def name_of(callback: Any, spider: Spider, role: str) -> str:
    """Return the name by which a spider has a method, or raise an UnstorableError."""
    name: str | None = getattr(callback, "__name__", None)
    if name and isinstance(callback, MethodType):
        if has_method(spider, name) and getattr(spider, name) == callback:
            return name
        spider_class: Any = type(spider)
        name = _other_name(callback.__func__, spider_class)
        if name and has_method(spider, name) and getattr(spider, name) == callback:
            return name
    elif name and _is_static(spider, name) and getattr(spider, name) is callback:
        return name
    raise UnstorableError(_why_not(callback, spider, role))


def _is_static(spider: Spider, name: str) -> bool:
    """Tell whether a spider's class has a staticmethod of a name that may be a callback."""
    held = inspect.getattr_static(spider, name, None)
    return isinstance(held, staticmethod) and has_method(spider, name)


@lru_cache(maxsize=1000)
def _other_name(function: Any, spider_class: Any) -> str | None:
    """Return the attribute that a function is, where it is not its own name: `_Books__parse`."""
    for base in spider_class.__mro__:
        for name in vars(base):
            found = getattr(spider_class, name, None)
            if getattr(found, "__func__", found) is function:
                return str(name)
    return None


def _why_not(callback: Any, spider: Spider, role: str) -> str:
    if callback is NO_CALLBACK:
        return (
            f"its {role} is NO_CALLBACK, so nothing would get its response; "
            "download it with crawler.engine.download_async(), or name a method of the spider"
        )
    name = getattr(callback, "__qualname__", None) or repr(callback)
    if not isinstance(callback, MethodType):
        why = f"is of type {type(callback).__name__}"
    elif callback.__self__ is spider:
        why = f"is not what the spider has by the name {name.rpartition('.')[2]!r}"
    else:
        why = f"is a method of a {type(callback.__self__).__name__}, not of the spider"
    return (
        f"its {role} {name:.200} {why}; a method of the spider can be stored: use one, "
        "and pass values to it in cb_kwargs"
    )


def has_method(spider: Spider, name: str) -> bool:
    """Tell whether a spider has a method that can be a callback, without running anything of it.

    A property is none, and neither is a dunder, nor what `scrapy.Spider` itself has that takes no
    response: a stored request could name it.
    """
    own = vars(spider).get(name)
    spider_class: Any = type(spider)
    return isinstance(own, MethodType) if own is not None else _is_method(spider_class, name)


@lru_cache(maxsize=1000)
def _is_method(spider_class: Any, name: str) -> bool:
    if name.startswith("__") and name.endswith("__") and name != "__call__":
        return False
    for base in spider_class.__mro__:
        if name in vars(base):
            found = vars(base)[name]
            if base in Spider.__mro__ and not _takes_response(found):
                return False
            return callable(found) or isinstance(found, (classmethod, staticmethod))
    return False


def _takes_response(function: Any) -> bool:
    """Tell whether a function is one that gets a response, as callbacks do, and nothing else."""
    taken = inspect.signature(function).parameters if callable(function) else ()
    return [*taken][:2] == ["self", "response"]


def _method(spider: Spider, name: str, role: str) -> Any:
    method = getattr(spider, name) if has_method(spider, name) else None
    if isinstance(method, MethodType) or _is_static(spider, name):
        return method
    held = inspect.getattr_static(spider, name, None)
    if held is not None:
        raise ItemGraphError(
            f"the {role} {name!r} of a stored request is no method of the spider "
            f"{spider.name!r} any more but a {type(held).__name__}; give one of them another name"
        )
    known = [n for n in dir(type(spider)) if has_method(spider, n)]
    raise ItemGraphError(
        f"the spider has no method {name!r} any more{closest(name, known) or '.'} "
        f"It is the {role} of a stored request; put it back, if only as another name"
    )
