"""Least depths of pages: what commits write of them, and how shorter paths are passed on.

Imports columns, items, worklist. Imported by registry and admin, and by changesets and graph.
"""
