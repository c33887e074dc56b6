"""The executions under way: what they leave when they end, and what is told of them."""

from __future__ import annotations

import asyncio

from support.parts import Parts

from scrapy_itemgraph.model.operations import CreateItem
from scrapy_itemgraph.model.work import Outcome


def test_an_execution_without_anything_to_commit_leaves_nothing():
    """A request of no claim that brought no changes ends without a changeset, and makes room."""

    async def run() -> tuple[int, bool, bool]:
        parts = Parts()
        parts.active.begin(url="http://a.example").open_leg().close()
        return parts.outbox.pending, parts.active.is_quiet, parts.active.room.is_set()

    assert asyncio.run(run()) == (0, True, True)


def test_it_is_quiet_only_when_all_is_committed():
    """A changeset in the outbox keeps a process from being quiet until its batch is settled."""

    async def run() -> list[bool]:
        parts = Parts()
        parts.claimed().open_leg().close()
        waits = parts.active.is_quiet
        parts.outbox.take()
        taken = parts.active.is_quiet
        parts.outbox.settle(back=[])
        return [waits, taken, parts.active.is_quiet]

    assert asyncio.run(run()) == [False, False, True]


def test_a_claimed_execution_says_what_it_works_on_and_where_its_error_was():
    """Spider, task and item stand in its log lines, and in the record of its error."""

    async def run() -> tuple[str, dict[str, str]]:
        parts = Parts()
        execution = parts.claimed(7)
        return execution.where, parts.active.error_of(execution, ValueError("wrong"))

    where, error = asyncio.run(run())

    assert where.startswith("spider s, task parse, item 7")
    assert (error.type, error.message, error.task, error.item) == (
        "ValueError",
        "wrong",
        "parse",
        "7",
    )


def test_closing_gives_back_what_is_claimed():
    """At the end each execution ends, and those of claims as released."""

    async def run() -> list[Outcome]:
        parts = Parts()
        parts.claimed().open_leg()
        parts.active.begin().open_leg()
        parts.active.close()
        return [entry.changeset.outcome for entry in parts.outbox.take()]

    assert asyncio.run(run()) == [Outcome.RELEASED]


def test_something_new_means_that_the_run_is_not_over():
    """Operations that belong to no execution, and new executions, take back that all is done."""

    async def run() -> list[bool]:
        parts = Parts()
        found = []
        for begin in (
            lambda: parts.active.apply([], "here"),
            lambda: parts.active.apply([CreateItem(id="A")], "here"),
            parts.active.begin,
        ):
            parts.active.is_over = True
            begin()
            found.append(parts.active.is_over)
        return found

    assert asyncio.run(run()) == [True, False, False]
