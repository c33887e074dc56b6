"""What callbacks, pipelines and signal handlers were given, a JSON line each."""

from __future__ import annotations

import dataclasses
import json
from datetime import date
from pathlib import Path

from itemadapter import ItemAdapter, is_item
from scrapy import Request
from scrapy.http import Response
from twisted.python.failure import Failure

NOTES = Path("notes.jsonl")
PLAIN = (str, bytes, int, float, bool, type(None), date)


def write(kind, name, **facts):
    """Add a line to the notes."""
    with NOTES.open("a") as file:
        file.write(json.dumps({"kind": kind, "name": name, **facts}) + "\n")


def note(callback, of, **arguments):
    """Note a call of a callback or an errback: what it was given, and what it can see of it."""
    given = show(arguments)
    if isinstance(of, Failure):
        response = getattr(of.value, "response", None)
        write(
            "errback",
            callback,
            error=of.type.__name__,
            status=response.status if response is not None else None,
            arguments=given,
            **_request(of.request),
        )
        return
    write(
        "callback",
        callback,
        response=type(of).__name__,
        url=of.url,
        status=of.status,
        flags=of.flags,
        text=of.text if hasattr(of, "text") else repr(of.body[:100]),
        encoding=getattr(of, "encoding", None),
        cb_kwargs=show(of.cb_kwargs),
        arguments=given,
        **_request(of.request),
    )


def _request(request):
    return {
        "request": f"{type(request).__name__} {request.method} {request.url}",
        "callback": _name(request.callback),
        "body": repr(request.body),
        "headers": show({k.decode(): v for k, v in request.headers.items()}),
        "cookies": show(request.cookies),
        "priority": request.priority,
        "dont_filter": request.dont_filter,
        "request_flags": list(request.flags),
        "request_encoding": request.encoding,
        "meta": {key: show(value) for key, value in request.meta.items()},
    }


def _name(function):
    return getattr(function, "__qualname__", None) or type(function).__name__


def show(value):
    """Show a value so that equal values of equal types look alike, in every process."""
    kind = type(value).__name__
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, (Request, Response)):
        return f"{kind}({value.url})"
    if isinstance(value, dict):
        pairs = sorted(f"{show(k)}: {show(v)}" for k, v in value.items())
        return f"{kind}({', '.join(pairs)})"
    if isinstance(value, (set, list, tuple)):
        shown = map(show, value)
        return f"{kind}({', '.join(sorted(shown) if isinstance(value, set) else shown)})"
    if is_item(value):
        return f"{kind}({show(ItemAdapter(value).asdict())})"
    return repr(value) if dataclasses.is_dataclass(value) else kind
