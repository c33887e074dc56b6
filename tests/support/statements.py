"""The names of the statements that the package sends: where each stands, such as `claims.TAKE`."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

import scrapy_itemgraph
from scrapy_itemgraph.postgres import engine as engines

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHORT = 60
_BEGIN = " ".join(engines.BEGIN.split())[:_SHORT]
ROOMS = ("changesets", "connections", "contents", "graph", "postgres", "store")


def _modules() -> Iterator[Any]:
    """Return the modules of the rooms that send statements."""
    for room in ROOMS:
        package = importlib.import_module(f"{scrapy_itemgraph.__name__}.{room}")
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


def _assigned(module: Any) -> Iterator[str]:
    """Return the constants that a module assigns itself, not those that it imports."""
    for node in ast.parse(Path(module.__file__).read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        yield from (one.id for one in targets if isinstance(one, ast.Name))


@cache
def _names() -> dict[str, str]:
    names = {}
    for module in _modules():
        for constant in _assigned(module):
            value = getattr(module, constant)
            if isinstance(value, sa.TextClause):
                value = str(value.compile(dialect=postgresql.psycopg.dialect()))
            if isinstance(value, str) and " " in value:
                names.setdefault(_normal(value), f"{module.__name__.split('.')[-1]}.{constant}")
    return names


def _normal(statement: str) -> str:
    return " ".join(statement.split())


def name_of(statement: str) -> str:
    """Return a statement's name, or how it begins if no constant has its text."""
    short = _normal(statement)[:_SHORT]
    return _names().get(_normal(statement), "engine.BEGIN" if short == _BEGIN else short)


@contextmanager
def named() -> Iterator[set[str]]:
    """Collect the names of all statements that connections with an event loop send.

    They are taken where psycopg gets them, through SQLAlchemy or past it.
    """
    sent: set[str] = set()
    execute = psycopg.AsyncCursor.execute

    def noting(cursor: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        sent.add(name_of(query))
        return execute(cursor, query, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.AsyncCursor, "execute", noting)
        yield sent
