"""Whether a callback takes what a request has for it."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from scrapy_itemgraph.worker.spider.callback_arguments import misfit


class PageObject:
    """What scrapy-poet would give a callback."""


def loose(function):
    """Take any arguments, in the place of a function that gets one more."""

    @functools.wraps(function)
    def taking(self, *args, **kwargs):
        return function(self, *args, session=None, **kwargs)

    return taking


class S:
    """A spider's methods, of which only the signatures count."""

    def plain(self, response):
        """Take a response alone."""

    def row(self, response, row, page=1):
        """Take an argument that is needed, and one that is not."""

    def named(self, response, *, row: int):
        """Take a needed argument by its name."""

    def any(self, response, **kwargs: Any):
        """Take all that is given by name."""

    def poet(self, response, page: PageObject):
        """Take what others give."""

    @loose
    def decorated(self, response, session):
        """Take what its decorator gives."""

    @staticmethod
    def of_class(response, row):
        """Take no self."""


@pytest.mark.parametrize(
    ("callback", "cb_kwargs", "said"),
    [
        (S().plain, {}, None),
        (S().plain, {"row": 1}, "got an unexpected keyword argument 'row'"),
        (S().plain, {"response": 1}, "multiple values for argument 'response'"),
        (S().row, {}, "missing a required argument: 'row'"),
        (S().row, {"row": 1}, None),
        (S().row, {"row": 1, "page": 2}, None),
        (S().named, {}, "missing a required argument: 'row'"),
        (S().named, {"row": 1}, None),
        (S().any, {"row": 1}, None),
        (S().poet, {}, None),
        (S().decorated, {"row": 1}, None),
        (S().of_class, {}, "missing a required argument: 'row'"),
        (functools.partial(S().row, row=1), {}, None),
        (dict, {"row": 1}, None),
    ],
)
def test_what_a_callback_lacks_or_does_not_take_is_said(callback, cb_kwargs, said):
    """Where it is not sure nothing is said: of decorators, of what others give, of builtins."""
    found = misfit(callback, cb_kwargs)

    assert found is None if said is None else said in found
