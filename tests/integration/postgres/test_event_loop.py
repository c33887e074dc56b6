"""Long work in a transaction: in chunks, between which the event loop has its turn."""

from __future__ import annotations

import asyncio

import pytest

from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import event_loop
from scrapy_itemgraph.postgres.event_loop import CHUNK, LARGE_CHUNK


@pytest.fixture
def turns_within(database):
    """Return a function that runs another in a transaction; it returns its result, and the turns.

    These are how often another task of the event loop had its turn meanwhile.
    """

    async def main(function):
        turns = 0
        engine = engines.async_engine(database, pool_size=1)

        async def beat():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        def counted(connection):
            nonlocal turns
            turns = 0
            found = function(connection)
            return found, turns

        async with engine.begin() as connection:
            other = asyncio.ensure_future(beat())
            await asyncio.sleep(0)
            found = await connection.run_sync(counted)
            other.cancel()
        await engine.dispose()
        return found

    return lambda function: asyncio.run(main(function))


@pytest.mark.parametrize("given", [range, set, dict.fromkeys], ids=["in order", "a set", "a dict"])
def test_values_come_in_chunks_between_which_the_loop_turns(turns_within, given):
    """Each value is there once, and no chunk has more than is said."""
    count = 3 * CHUNK + 1
    values = given(count) if given is range else given(range(count))

    found, turns = turns_within(lambda c: list(event_loop.chunks(c, values)))

    assert [len(chunk) for chunk in found] == [CHUNK] * 3 + [1]
    assert [one for chunk in found for one in chunk] == list(range(count))
    assert turns >= 3


def test_few_values_are_one_chunk_and_cost_no_turn(turns_within):
    """What a usual commit has is gone through at once."""
    found, turns = turns_within(
        lambda c: (list(event_loop.chunks(c, range(CHUNK))), list(event_loop.chunks(c, ())))
    )

    assert found == ([list(range(CHUNK))], [])
    assert turns == 0


def test_values_come_one_by_one_and_the_loop_turns(turns_within):
    """A loop over a great many values says nothing of chunks."""
    found, turns = turns_within(lambda c: list(event_loop.gradually(c, range(LARGE_CHUNK + 1))))

    assert found == list(range(LARGE_CHUNK + 1))
    assert turns >= 1


def test_values_are_sorted_over_all_chunks(turns_within):
    """The order is that of all values, and not of each chunk."""
    values = {(7919 * number) % 10_007 for number in range(10_007)}

    found, turns = turns_within(lambda c: list(event_loop.sorted_chunks(c, values, CHUNK)))

    assert [one for chunk in found for one in chunk] == sorted(values)
    assert max(map(len, found)) == CHUNK
    assert turns >= 10


def test_large_containers_are_emptied_and_small_ones_left(turns_within):
    """Small ones go with their owner."""
    large, small = dict.fromkeys(range(3 * LARGE_CHUNK)), [1, 2, 3]

    _, turns = turns_within(lambda c: event_loop.clear_gradually(c, large, small))

    assert (large, small) == ({}, [1, 2, 3])
    assert turns >= 3


def test_without_a_loop_nothing_waits(connection):
    """Commands run the same functions on connections that block."""
    found = list(event_loop.gradually(connection, range(LARGE_CHUNK + 1)))
    event_loop.yield_after(connection, LARGE_CHUNK)

    assert len(found) == LARGE_CHUNK + 1
