"""Mappings for a great many texts: as a dict, but for their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_itemgraph.tools.parted_dict import MANY, PartedDict, mapping_for

KEYS = st.text(max_size=2)
STEPS = st.lists(st.tuples(st.sampled_from(("set", "drop", "take out")), KEYS, st.integers()))


@given(STEPS)
def test_it_is_what_a_dict_is(steps):
    """After any steps it has the keys and values of a dict, and misses what that misses."""
    plain, parted = {}, PartedDict()
    for step, key, value in steps:
        if step == "set":
            plain[key] = parted[key] = value
        elif step == "drop":
            assert parted.pop(key, None) == plain.pop(key, None)
        elif plain:
            taken, there = parted.popitem()
            assert plain.pop(taken) == there

        assert len(parted) == len(plain)
        assert dict(parted) == plain
        assert (key in parted) is (key in plain)
        assert parted.get(key) == plain.get(key)


def test_what_is_not_there_is_a_key_error():
    """Of a key, and of any key of an empty one."""
    parted = PartedDict()
    with pytest.raises(KeyError):
        parted["a"]
    with pytest.raises(KeyError):
        del parted["a"]
    with pytest.raises(KeyError):
        parted.popitem()


def test_it_is_taken_where_keys_are_many():
    """Fewer have a dict, which is quicker and keeps their order."""
    assert isinstance(mapping_for(MANY - 1), dict)
    assert isinstance(mapping_for(MANY), PartedDict)
