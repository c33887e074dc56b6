"""Secrets that a runner took from its environment, in texts and in output that is cut anywhere."""

from __future__ import annotations

import base64
import itertools
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_itemgraph.tools.hiding import Hiding, HidingStream

SECRET = "p/ss 'wörd\" + 1"
KEY = "-----BEGIN KEY-----\nabcdefgh\n-----END KEY-----"


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        repr(SECRET),
        repr(SECRET.encode()),
        json.dumps(SECRET),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_value_is_hidden_as_programs_write_it(form):
    """SS-3: as it is, quoted by Python and JSON, and encoded for URLs and headers."""
    said = Hiding({"WORD": SECRET}).in_text(f"<{form}> stays")

    assert said in {"<@env:WORD> stays", "<'@env:WORD'> stays", '<"@env:WORD"> stays'} | {
        "<b'@env:WORD'> stays",
        '<b"@env:WORD"> stays',
    }


def test_each_line_of_a_value_and_a_password_in_it_are_hidden():
    """SS-3: a key is logged by lines; of a URL the password may stand alone."""
    hiding = Hiding({"KEY": KEY, "FEED": "ftp://bob:s3same%21@h/x"})

    assert hiding.in_text("> abcdefgh\n> -----END KEY-----") == "> @env:KEY\n> @env:KEY"
    assert hiding.in_text(repr(KEY)) == "'@env:KEY'"
    assert hiding.in_text("bob and s3same! or s3same%21") == "bob and @env:FEED or @env:FEED"


def test_a_value_that_stands_in_any_text_by_chance_is_shown_and_named():
    """Hiding "1" would ruin a log: short values stay, and whoever keeps the log can say so."""
    hiding = Hiding({"PIN": "12345", "NONE": "", "LONG": "123456"})

    assert hiding.too_short == ["PIN"]
    assert hiding.in_text("12345 123456") == "12345 @env:LONG"


VALUES = {"A": "secret", "B": "secretsauce", "C": "sauceless", "D": "xxsecretyy", "E": "abcabcd"}


@given(st.data())
def test_however_output_is_cut_the_same_is_hidden(data):
    """SS-3: a value that is split between two reads, or begins another one, is hidden whole."""
    words = [*VALUES.values(), "abc", "sec", "ret", "xx", "é\n", "sauce"]
    text = "".join(data.draw(st.lists(st.sampled_from(words), max_size=8))).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    hiding = Hiding(VALUES)
    stream = HidingStream(hiding)
    places = [0, *cuts, len(text)]
    taken = [stream.take(text[a:b]) for a, b in itertools.pairwise(places)]
    written = b"".join(taken)
    rest = stream.rest()

    assert not any(value.encode() in written + rest for value in VALUES.values())
    whole = hiding.in_text(text.decode()).encode()
    assert whole == written + rest or rest == b"[...]"


def test_what_can_be_written_is_not_kept_waiting():
    """A log's end is there at once, but for what may be the beginning of a value."""
    stream = HidingStream(Hiding({"A": "secret"}))

    assert stream.take(b"a prompt: ") == b"a prompt: "
    assert stream.take(b"is it sec") == b"is it "
    assert stream.take(b"ond?") == b"second?"
    assert stream.take(b"secre") + stream.rest() == b"secre"
