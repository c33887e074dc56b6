"""Locks of feeds behind a transaction pooler: an open transaction holds them."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from support.proxies import proxy

from scrapy_itemgraph.connections import feed_locks


@pytest.fixture
def network(engine, monkeypatch):
    """Yield a network that can fall silent, and the URL of the database through it."""
    monkeypatch.setattr(feed_locks, "_SILENCE", 0.2)
    with proxy(engine) as (network, url):
        yield network, url


def connect_arguments(url: str) -> dict[str, Any]:
    """Return what psycopg needs for a connection."""
    return sa.make_url(url).translate_connect_args(username="user", database="dbname")


def locks_through(url: str) -> feed_locks.TransactionLocks:
    """Return locks of a worker that connects by this URL."""
    return feed_locks.TransactionLocks(connect_arguments(url))


def test_a_lock_has_one_owner_who_gives_it_up(network):
    """Another cannot take a lock before it is released."""
    _, url = network

    async def go() -> list[bool]:
        one, other = locks_through(url), locks_through(url)
        taken = [await one.take(1), await other.take(1), await one.stand()]
        await one.release()
        taken.append(await other.take(1))
        await other.release()
        return taken

    assert asyncio.run(go()) == [True, False, True, True]


@pytest.mark.parametrize("call", ["take", "stand"])
def test_a_lock_on_a_silent_connection_is_lost(network, call):
    """Who asks a server that does not answer is told that the lock is lost, and may ask anew."""
    silent, url = network

    async def go() -> list[bool]:
        locks = locks_through(url)
        said = [await locks.take(1)]
        silent.freeze()
        said.append(await (locks.take(2) if call == "take" else locks.stand()))
        silent.thaw()
        said.append(await locks.take(2))
        await locks.release()
        return said

    assert asyncio.run(go()) == [True, False, True]


def test_releasing_a_lock_does_not_wait_for_a_silent_server(network):
    """A crawl ends though its connection for feeds gets no answer."""
    silent, url = network

    async def go() -> None:
        locks = locks_through(url)
        assert await locks.take(1)
        silent.freeze()
        await locks.release()

    asyncio.run(go())

    silent.thaw()
    with psycopg.connect(**connect_arguments(url)) as connection:
        waits = "SELECT pg_advisory_xact_lock(CAST('feeds'::regclass::oid AS int), 1)"
        connection.execute(waits)  # free as soon as the server hears of the end
