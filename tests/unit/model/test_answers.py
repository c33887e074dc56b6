"""ITEMGRAPH_ANSWERS: what HTTP statuses mean, and what cannot be said of them."""

from __future__ import annotations

import pytest

from scrapy_itemgraph.exceptions import ConfigurationError, TaskDefinitionError
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.settings import Settings


def test_statuses_are_numbers_or_as_json_has_them():
    """A command line gives JSON, in which keys are text."""
    for given in ({404: "gone", 410: "gone"}, '{"404": "gone", "410": "gone"}'):
        assert Settings.read({"ITEMGRAPH_ANSWERS": given}.get).results.answers == {
            404: "gone",
            410: "gone",
        }
    assert not Settings.read({}.get).results.has_answers


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({200: "gone"}, "the status 200; it may have 300 to 599"),
        ({"4o4": "gone"}, "the status '4o4'"),
        ({True: "gone"}, "the status True"),
        ({404: "lost"}, "the answer 'lost'; the only one that there is is 'gone'"),
        ([404], "write a dict"),
    ],
)
def test_what_cannot_be_an_answer_is_refused_with_what_can(given, why):
    """So a start says it, and no page is taken for something else."""
    with pytest.raises(ConfigurationError, match=why):
        Settings.read({"ITEMGRAPH_ANSWERS": given}.get)
    with pytest.raises(TaskDefinitionError):
        tasks.of_callback("parse", {"answers": given})


def test_a_task_and_a_callback_have_answers_of_their_own():
    """None are those of the setting, and an empty dict is none at all."""

    class Spider:
        @tasks.task(tags=["page"], answers={410: "gone"})
        def parse(self, response, item):
            """Do nothing."""

        @tasks.task(tags=["page"])
        def other(self, response, item):
            """Do nothing."""

    found = tasks.discover(Spider)

    assert found["parse"].answers == {410: "gone"}
    assert found["other"].answers is None
    assert tasks.of_callback("plain", {"answers": {}}).answers == {}
    callbacks = {"plain": {"answers": {410: "gone"}}}
    assert Settings.read({"ITEMGRAPH_CALLBACKS": callbacks}.get).results.has_answers
