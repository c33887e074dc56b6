"""The add-on's refusals and warnings."""

from __future__ import annotations

import pytest

from scrapy_itemgraph import addon


@pytest.mark.parametrize(
    ("version", "is_said"),
    [((2, 14, 0), False), ((2, 19, 9), False), ((2, 20, 0), True), ((2, 20, 0, "dev"), True)],
)
def test_a_newer_scrapy_than_was_tested_is_said(caplog, version, is_said):
    """A newer Scrapy works as far as it can, with one warning that names both versions."""
    addon._warn_of_version(version)

    said = [line for line in caplog.messages if "newer than 2.14 to 2.19" in line]
    assert bool(said) is is_said
