"""Rules: what they may say, and what they decide of a URL."""

from __future__ import annotations

import builtins
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from w3lib.url import safe_url_string

from scrapy_itemgraph.exceptions import ConfigurationError, NotFoundError, OperationError
from scrapy_itemgraph.model import rule_matching
from scrapy_itemgraph.model.rule_matching import CompiledRules
from scrapy_itemgraph.model.rules import MOST_RULES, PageRule, Ruleset, Setting, never_matched

ARCHIVE = Ruleset.read(
    {
        "accept": False,
        "rules": [
            {"match": "^https?://example\\.org/", "accept": True},
            {"match": "/calendar/", "accept": False, "skip": True},
            {"match": "/calendar/about$", "accept": True, "skip": False},
            {"match": "/api/", "user_agent": "archivist", "hook": "signed"},
        ],
    }
)


def test_the_last_rule_that_matches_counts_for_each_setting_by_itself():
    """MNB-11: rules are ordered, the last match wins, and each setting has one value."""
    rules = CompiledRules(ARCHIVE)

    assert rules.accepts("https://example.org/a")
    assert not rules.accepts("https://example.net/a")  # no rule matches: the default
    assert not rules.accepts("https://example.org/calendar/2024")
    assert rules.accepts("https://example.org/calendar/about")
    assert rules.skips("https://example.net/calendar/1")
    assert not rules.skips("https://example.org/calendar/about")
    assert rules.user_agent("https://example.org/api/1") == "archivist"
    assert rules.user_agent("https://example.org/") is None
    decided = rules.decide("https://example.org/api/calendar/1")
    assert decided.by == {
        Setting.ACCEPT: 2,
        Setting.SKIP: 2,
        Setting.USER_AGENT: 4,
        Setting.HOOK: 4,
    }
    assert (decided.accept, decided.skip, decided.hook) == (False, True, "signed")


def test_what_a_page_needs_is_refused_by_a_rule_that_matches_it_alone():
    """MNB-11: pictures of other hosts come along where links are kept to a site."""
    rules = CompiledRules(ARCHIVE)

    assert rules.accepts("https://cdn.example/style.css", is_needed=True)
    assert not rules.accepts("https://cdn.example/style.css")
    assert not rules.accepts("https://cdn.example/calendar/a.png", is_needed=True)


def test_what_is_outside_of_a_site_is_accepted_by_a_rule_that_matches_it_alone():
    """MNB-11: a default that accepts does not take in other hosts, a rule does."""
    rules = CompiledRules(ARCHIVE)

    assert rules.accepts("https://example.org/a", is_outside=True)
    assert not rules.accepts("https://example.net/a", is_outside=True)
    assert not rules.accepts("https://example.org/calendar/2024", is_outside=True)


def test_what_follows_the_hash_of_a_url_decides_nothing():
    """MNB-11: a URL is asked for without its fragment."""
    rules = CompiledRules(ARCHIVE)

    assert rules.accepts("https://example.org/a#/calendar/")
    assert not rules.accepts("https://example.net/a#^https://example.org/")


WORDS = ["/a", "/b", "^http", "x.*y", "[0-9]+$", "\\?id=", "z|/c", "(?i)QUERY"]
RULES = st.lists(
    st.builds(
        PageRule,
        match=st.sampled_from(WORDS),
        accept=st.sampled_from([None, True, False]),
        skip=st.booleans(),
    ),
    max_size=12,
).map(lambda rules: Ruleset(rules=tuple(rules), accept=len(rules) % 2 == 0))


@given(RULES, st.text("abcxyz/0?#i=dhtp:QuERY", max_size=30))
def test_rules_decide_as_one_pattern_after_the_other_does(ruleset, url):
    """MNB-11: all patterns at once give the answer that Python's re gives one by one."""
    accept, skip = ruleset.accept, False
    for rule in ruleset.rules:
        if re.search(rule.match, url.partition("#")[0]):
            accept = accept if rule.accept is None else rule.accept
            skip = rule.skip
    rules = CompiledRules(ruleset)

    assert (rules.accepts(url), rules.skips(url)) == (accept, skip)


def test_any_pattern_is_looked_for_in_as_many_sets_as_have_room(monkeypatch):
    """MNB-11: sets are made once for all URLs; what is no pattern alone is left out."""
    made = []

    class Roomless(CompiledRules):
        def __init__(self, ruleset):
            if len(ruleset.rules) > 2:
                raise OperationError("too large together")
            super().__init__(ruleset)
            made.append(len(ruleset.rules))

    monkeypatch.setattr(rule_matching, "CompiledRules", Roomless)
    patterns = rule_matching.AnyPattern(("/a", "/b$", "(", "/c", "/d"))

    assert [patterns.matches(f"http://x.example/{one}") for one in "abcd"] == [True] * 4
    assert not patterns.matches("http://x.example/bb")
    assert sum(made) == 4
    assert not rule_matching.AnyPattern(()).matches("http://x.example/")


def test_a_set_that_runs_out_of_memory_is_asked_pattern_by_pattern(monkeypatch):
    """MNB-11: RE2 does not say that it ran out of memory, and the answer is right all the same."""
    rules = CompiledRules(ARCHIVE)
    monkeypatch.setattr(rules._accept, "_match", lambda _url: [])

    assert rules.accepts("https://example.org/calendar/about")
    assert not rules.accepts("https://example.org/calendar/2024")
    assert not rules.accepts("https://example.net/")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(.*,){25}P", "(x+x+)+y"])
def test_a_pattern_that_takes_re_minutes_takes_no_time(pattern):
    """MNB-11: patterns are matched in linear time, so no URL of a site stops the crawl."""
    rules = CompiledRules(Ruleset().with_rule(PageRule(match=pattern, skip=True)))
    url = "https://example.org/" + "a" * 2000 + "x" * 2000 + "," * 30 + "!"

    assert rules.skips(url) in {True, False}  # re does not end


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("/a(?=b)", "RE2 has no lookaround"),
        ("/a(?!b)", "write two: one for all, and after it one for what is excepted"),
        ("(?<=x)a", "RE2 has no lookaround"),
        (r"(a)/\1", "RE2 has no backreferences"),
        ("a{2000}", "1,000 times at most"),
        ("(", "missing )"),
        ("[", "missing ]"),
        ("", "write ."),
        ("a\0b", "NUL"),
        ("\ud800", "lone surrogate"),
        ("x" * 4001, "4,001 characters, more than 4,000"),
    ],
)
def test_what_is_no_pattern_is_refused_with_what_to_write(pattern, said):
    """MNB-11: a pattern that cannot be one is refused when it is added, and the error helps."""
    with pytest.raises(OperationError, match="rule 1") as refused:
        CompiledRules(Ruleset().with_rule(PageRule(match=pattern, skip=True)))
    assert said in str(refused.value)


def test_more_rules_than_there_may_be_and_patterns_too_large_are_refused():
    """MNB-11: 1,000 rules are the most, and together they must fit the memory of a set."""
    some = [{"match": f"/{n}/", "skip": True} for n in range(MOST_RULES)]
    full = Ruleset.read({"rules": some})
    assert CompiledRules(full).skips("/999/")
    with pytest.raises(OperationError, match="1,001 rules are more than 1,000"):
        full.with_rule(PageRule(match="one more", skip=True))
    huge = tuple(PageRule(match=f".{{0,300}}{n}.{{300}}", skip=True) for n in range(500))
    with pytest.raises(OperationError, match="too large together"):
        CompiledRules(Ruleset(rules=huge))


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ([], "rules are"),
        ({"rule": []}, "did you mean 'rules'"),
        ({"accept": "no"}, "true or false"),
        ({"rules": "x"}, "list"),
        ({"rules": [1]}, "rule 1 is a JSON object"),
        ({"rules": [{"accept": True}]}, "rule 1 has no match"),
        ({"rules": [{"match": 1, "accept": True}]}, "a pattern is text"),
        ({"rules": [{"match": "a"}]}, "says nothing"),
        ({"rules": [{"match": "a", "accept": 1}]}, "true or false"),
        ({"rules": [{"match": "a", "skipp": True}]}, "did you mean 'skip'"),
        ({"rules": [{"match": "a", "user_agent": "a\r\nHost: b"}]}, "a line of ASCII"),
        ({"rules": [{"match": "a", "user_agent": " "}]}, "is text"),
        ({"rules": [{"match": "a", "hook": 7}]}, "is text"),
    ],
)
def test_json_that_is_no_ruleset_is_refused(stored, said):
    """MNB-11: what is wrong with rules given as JSON is said, and with which rule."""
    with pytest.raises(OperationError) as refused:
        Ruleset.read(stored)
    assert said in str(refused.value)


def test_rules_are_added_moved_and_removed_by_number_and_pattern():
    """MNB-11: operators add, move and remove rules by their place, or by what they match."""
    one, two, three = (PageRule(match=name, skip=True) for name in ("one", "two", "three"))
    rules = Ruleset().with_rule(one).with_rule(three).with_rule(two, at=2)

    assert rules.rules == (one, two, three)
    assert rules.moved("three", 1).rules == (three, one, two)
    assert rules.moved(1, 3).rules == (two, three, one)
    assert rules.without("two").rules == (one, three)
    assert rules.without(3).rules == (one, two)
    assert Ruleset.read(rules.as_document) == rules
    with pytest.raises(NotFoundError, match="did you mean 'three'"):
        rules.without("thre")
    with pytest.raises(NotFoundError, match="there is no rule 4: there are 3"):
        rules.without(4)
    with pytest.raises(NotFoundError, match="several rules have the pattern 'one': 1, 4"):
        rules.with_rule(one).without("one")
    with pytest.raises(OperationError, match="5 is no place for a rule"):
        rules.with_rule(one, at=5)


def test_rules_that_need_google_re2_say_how_to_install_it(monkeypatch):
    """MNB-11: the extra is asked for by name where it is missing; no rules need none."""

    def without_re2(name, *rest):
        raise ImportError(name)

    monkeypatch.setattr(rule_matching, "import_module", without_re2)
    with pytest.raises(
        ConfigurationError, match=re.escape("pip install 'scrapy-itemgraph[rules]'")
    ):
        CompiledRules(ARCHIVE)
    assert builtins.all([CompiledRules(Ruleset()).accepts_all, CompiledRules(Ruleset()).skips_none])


@pytest.mark.parametrize("rules", [["(", "/good/", "(?=x)"], ["", "/good/", "x" * 5000]])
def test_all_faults_of_rules_are_told_at_once(rules):
    """MNB-11: who adds a list learns of each pattern that cannot be, with its number."""
    with pytest.raises(OperationError) as refused:
        CompiledRules(Ruleset().with_rules([PageRule(match=one, skip=True) for one in rules]))
    assert [place for place in (1, 2, 3) if f"rule {place}" in str(refused.value)] == [1, 3]


@pytest.mark.parametrize(
    ("pattern", "never"),
    [
        (r"\{\{.+\}\}", "{"),
        (r"/\^/", "^"),
        ("a b", " "),
        (r"x\|y", "|"),
        (r"^https?://a\.example/[^/]+\d{2,3}\.jpe?g$", None),
        (r"^http://\[::1\]/", None),
        (r"a|\{", None),
        (r"(\{\{)?x", None),
        (r"x\{?y", None),
        (r"[{}^]", None),
    ],
)
def test_a_pattern_that_no_url_matches_is_seen(pattern, never):
    """MNB-11: URLs are asked escaped, so that a brace, say, is in none of them."""
    assert never_matched(pattern) == never
    assert never is None or not re.search(pattern, safe_url_string("http://a.example/{{a b|^/^/"))
