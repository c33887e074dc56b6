"""What scrapyd-deploy packs: the package `shop`, and where its settings are."""

from __future__ import annotations

from setuptools import find_packages, setup

setup(
    name="shop",
    version="1.0",
    packages=find_packages(),
    entry_points={"scrapy": ["settings = shop.settings"]},
)
