"""Spiders that come with the package; each is found by its name, behind the project's own.

They stand on the public API alone, what `scrapy_itemgraph.__all__` lists, as a project's spiders
do. Nothing imports them before one is asked for: `model.package_spiders` has their paths.
"""
