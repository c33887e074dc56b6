"""Last values: the latest are kept, the oldest forgotten."""

from __future__ import annotations

from scrapy_itemgraph.tools.last_values import LastValues


def test_what_was_used_last_is_kept():
    """The last half of as many as there may be, and what was asked for again; no older ones."""
    values: LastValues[int, str] = LastValues(10)
    for number in range(100):
        values.put(number, str(number))
        assert values.get(0) == "0"

    assert len(values) <= 10
    assert [values.get(number) for number in (99, 98, 97, 0)] == ["99", "98", "97", "0"]
    assert values.get(80) is None


def test_a_value_is_replaced_whether_it_is_young_or_old():
    """The latest value of a key counts."""
    values: LastValues[str, int] = LastValues(4)
    for number, key in enumerate("aabba"):
        values.put(key, number)

    assert (values.get("a"), values.get("b")) == (4, 3)
