"""The rules of a CrawlSpider are known by the names of their callbacks, and not by numbers."""

from __future__ import annotations

import pytest
from scrapy import Request, Spider
from scrapy.spiders import CrawlSpider, Rule

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.settings.sections import Results
from scrapy_itemgraph.worker.spider.callbacks import CallbackTasks
from scrapy_itemgraph.worker.spider.crawl_rules import CrawlRules

URL = "http://shop.example/1"


def parse_elsewhere(response):
    """Parse a page, as a function of the module."""


class Base(CrawlSpider):
    """A spider whose rules the tests choose."""

    name = "s"

    def parse_class(self, response):
        """Parse the page of a class."""

    def parse_other(self, response):
        """Parse another page."""

    def missed(self, failure):
        """Be told of a failure."""


def spider(*rules, base=Base):
    """Return a spider with these rules, each the callback of one."""
    made = [one if isinstance(one, Rule) else Rule(callback=one) for one in rules]
    return type("S", (base,), {"rules": made})()


def stored(of, number, name="_callback"):
    """Return the request that a rule's link becomes, by its number."""
    meta = {"rule": number, "link_text": "more"}
    return Request(URL, callback=getattr(of, name), errback=of._errback, meta=meta)


def test_each_rule_has_the_name_of_its_callback():
    """One without a callback is `follow`, a function its own name, a nameless one `lambda`."""
    one = spider(None, "parse_class", parse_elsewhere, lambda response: None, "parse_class")

    names = CrawlRules(one).names

    assert names == ["follow", "parse_class", "parse_elsewhere", "lambda", "parse_class"]


def test_other_callbacks_of_one_name_have_numbers():
    """So that what is stored for one never goes to another."""

    class Named(Base):
        def follow(self, response):
            """Parse what has the name of rules without callbacks."""

        def parse_elsewhere(self, response):
            """Parse what has the name of a function."""

    one = spider(
        None, "follow", parse_elsewhere, lambda r: None, lambda r: r, "parse_elsewhere", base=Named
    )

    names = CrawlRules(one).names

    assert names == [
        *("follow.2", "follow", "parse_elsewhere.2"),
        *("lambda", "lambda.2", "parse_elsewhere"),
    ]


def test_a_method_of_the_class_body_has_its_name_however_it_is_given():
    """A static method, and a function that the class body names, are the spider's own."""

    class Given(CrawlSpider):
        name = "given"

        @staticmethod
        def parse_static(response):
            """Parse a page."""

        rules = (Rule(callback=parse_static), Rule(callback="parse_static"))

    assert CrawlRules(Given()).names == ["parse_static", "parse_static"]


def test_what_is_of_no_rule_has_no_name():
    """A request of another callback, with another number, or of another spider."""
    one = spider("parse_class")
    rules = CrawlRules(one)

    assert rules.name_of(stored(one, 0)) == "parse_class"
    assert rules.name_of(stored(one, 0, "parse_other")) is None
    assert rules.name_of(stored(one, 1)) is None
    assert rules.name_of(Request(URL, callback=one._callback)) is None
    assert CrawlRules(Spider("plain")).name_of(Request(URL)) is None


def test_rules_that_are_compiled_anew_are_named_anew():
    """Some spiders add rules once they have read what they are given."""
    one = spider("parse_class")
    rules = CrawlRules(one)
    assert rules.names == ["parse_class"]

    one.rules = [Rule(callback="parse_other")]
    one._compile_rules()

    assert rules.names == ["parse_other"]
    assert rules.name_of(stored(one, 0)) == "parse_other"


def test_an_overridden_callback_of_the_rules_is_that_of_the_rules():
    """A subclass that does something before Scrapy's own method is as without."""

    class Overriding(Base):
        def _callback(self, response, **cb_kwargs):
            return super()._callback(response, **cb_kwargs)

    one = spider("parse_class", base=Overriding)

    assert CrawlRules(one).name_of(stored(one, 0)) == "parse_class"


def test_what_is_stored_goes_to_its_callback_whatever_the_number_is_now():
    """Rules that were moved or added do not lead pages of one to another."""
    one = spider(None, "parse_other", "parse_class")
    rules, request = CrawlRules(one), stored(one, 0)

    rules.lead(request, "parse_class")

    assert request.meta["rule"] == 2
    assert request.callback == one._callback


def test_a_number_that_is_still_of_the_callback_stays():
    """Of two rules with one callback the page goes to the one that found it."""
    one = spider("parse_class", "parse_class")
    request = stored(one, 1)

    CrawlRules(one).lead(request, "parse_class")

    assert request.meta["rule"] == 1


def test_a_page_of_a_rule_that_is_gone_goes_to_the_method_by_itself():
    """It is told of no other rule's failures, either."""
    one = spider("parse_other")
    request = stored(one, 0)

    CrawlRules(one).lead(request, "parse_class")

    assert request.callback == one.parse_class
    assert request.errback is None
    assert "rule" not in request.meta


def test_a_page_whose_callback_is_gone_is_an_error_that_says_so():
    """The error names the callback, and one that is like it."""
    one = spider("parse_class")

    with pytest.raises(ItemGraphError, match="'parse_clas' any more; did you mean 'parse_class'"):
        CrawlRules(one).lead(stored(one, 0), "parse_clas")


def test_what_was_stored_before_rules_had_names_goes_by_the_number():
    """As it did then; a number without a rule is an error that says how many there are."""
    one = spider("parse_class")
    rules, request = CrawlRules(one), stored(one, 0)

    rules.lead(request, "_callback")

    assert (request.callback, request.meta["rule"]) == (one._callback, 0)
    with pytest.raises(ItemGraphError, match="rule 3 of the spider, which has 1"):
        rules.lead(stored(one, 2), "_callback")


def test_options_of_scrapys_name_are_those_of_all_rules():
    """What is said of a rule by its own name wins; a spider without rules has what is given."""
    given = {"_callback": {"ttl": "7d"}, "parse_class": {"ttl": "1d"}}
    settings = Settings(results=Results(callbacks=given))
    one = spider(None, "parse_class")

    options = CrawlRules(one).with_options(settings).results.callbacks

    assert options == {**given, "follow": {"ttl": "7d"}}
    assert CrawlRules(Spider("plain")).with_options(settings) is settings


def test_rules_are_callbacks_that_a_worker_has():
    """Also those without a method; their code is that of the callback, and `follow` has none."""
    one = spider(None, "parse_class", parse_elsewhere)

    callbacks = CallbackTasks(one, {}, {})

    assert all(callbacks.has(name) for name in ("follow", "parse_class", "parse_elsewhere"))
    assert not callbacks.has("parse_gone")
    assert callbacks.source_of("follow") is None
    assert callbacks.source_of("parse_class") != callbacks.source_of("parse_elsewhere") is not None
    assert callbacks.name_of(stored(one, 0)) == "follow"
    assert callbacks.name_of(stored(one, 0, "parse_other")) == "parse_other"
