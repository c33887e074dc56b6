"""How threads take turns while much is added."""

from __future__ import annotations

import sys

import pytest

from scrapy_itemgraph.tools.bulk import bulk_work


@pytest.mark.parametrize("error", [None, ValueError])
def test_threads_take_turns_more_often_until_it_ends(error):
    """Afterwards, also after an error, they do so as before."""
    before = sys.getswitchinterval()

    try:
        with bulk_work():
            within = sys.getswitchinterval()
            if error:
                raise error
    except ValueError:
        pass

    assert within < before
    assert sys.getswitchinterval() == before
