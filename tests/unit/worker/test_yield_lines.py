"""The line of the project that yielded what is wrong, whatever stands between it and us."""

from __future__ import annotations

import asyncio
from itertools import chain

import pytest
from scrapy.utils.asyncgen import as_async_generator

from scrapy_itemgraph.worker.executions import error_records
from scrapy_itemgraph.worker.spider import callbacks, yield_lines


class Pages:
    """Callbacks that yield what is wrong, each in its own way."""

    def plain(self):
        yield "right"
        yield "wrong"

    async def awaited(self):
        yield "right"
        yield "wrong"

    def delegated(self):
        yield "right"
        yield from self.rest()

    def rest(self):
        yield (
            "wrong"  # the yield is what is named
        )

    def returned(self):
        return ["right", "wrong"]


async def process_spider_output_async(outputs):
    """Pass on outputs, as a middleware of the project."""
    async for one in outputs:
        yield one


def error_of(outputs, callback=None):
    """Return the error about the output "wrong", as it is recorded."""

    async def look():
        given = process_spider_output_async(callbacks.iterate(outputs))
        async for one in given:
            if one == "wrong":
                error = ValueError("it is wrong")
                yield_lines.show(error, given, callback)
                return error_records.describe(error, {})
        raise AssertionError

    return asyncio.run(look())


@pytest.mark.parametrize("name", ["plain", "awaited"])
def test_a_traceback_is_the_line_of_the_callback(name):
    """Generators of Scrapy and of middlewares, plain or asynchronous, stand between unseen."""
    error = error_of(getattr(Pages(), name)())

    number = getattr(Pages, name).__code__.co_firstlineno + 2
    assert error.traceback.splitlines()[1] == f'  File "{__file__}", line {number}, in {name}'
    assert error.traceback.count("  File ") == 1
    assert error.place.endswith(f"test_yield_lines.Pages.{name}")


def test_a_traceback_goes_on_to_what_the_callback_delegates_to():
    """`yield from` is followed to the generator that yields, through iterators of any kind."""
    error = error_of(chain(map(str, Pages().delegated()), ["more"]))

    lines = [line for line in error.traceback.splitlines() if "File" in line]
    assert [line.rpartition(" in ")[2] for line in lines] == ["delegated", "rest"]
    assert error.place.endswith("Pages.rest")


def test_of_a_returned_list_the_function_is_named():
    """A list does not know its lines; nobody claims to know one where the project has no part."""
    pages = Pages()
    error = error_of(as_async_generator(pages.returned()), pages.returned)
    unknown = error_of(["wrong"], asyncio.run)

    first = Pages.returned.__code__.co_firstlineno
    named = f'File "{__file__}", line {first}, in Pages.returned, which returned it'
    assert named in error.traceback
    assert "File" not in unknown.traceback
    assert yield_lines.line(iter(["wrong"])) is None
