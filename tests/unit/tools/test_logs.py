"""What comes from outside neither forges a line of a log nor steers a terminal."""

from __future__ import annotations

import importlib
import io
import json
import logging
import pkgutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scrapy_itemgraph
from scrapy_itemgraph.commands import printing
from scrapy_itemgraph.tools import logs
from scrapy_itemgraph.tools.wording import one_line

FORGED = (
    "URL:x\n2026-01-01 00:00:00 [scrapy] CRITICAL: forged\r\x1b[2J\x9b2J\u202etxt\x85\u2028\x7f"
)
anything = st.text(st.characters(exclude_categories=()))


@pytest.fixture(name="written")
def write_log():
    """Return a logger of the package, and a function that returns what it has written."""
    logger = logs.logger("scrapy_itemgraph.of_test")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    yield logger, stream.getvalue
    logger.removeHandler(handler)


@given(anything)
def test_a_line_is_one_printable_line(text):
    """Any text becomes one line of printable characters, and printable text stays as it is."""
    line = one_line(text)
    assert line.isprintable()
    assert line == text or not text.isprintable()
    line.encode()


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("of %s", (FORGED,)),
        ("of %r", (FORGED,)),
        ("of %s", (ValueError(FORGED),)),
        ("of %(id)s", ({"id": FORGED},)),
        ("of %.80s in %d s", (FORGED, 5)),
        (FORGED.replace("%", ""), ()),
    ],
)
def test_a_log_line_cannot_be_forged(written, message, arguments):
    """Whatever an argument holds, the record is one line without control characters."""
    logger, text = written
    logger.warning(message, *arguments)
    (line,) = text().split("\n")[:-1]
    assert line.isprintable()
    assert "forged" in line
    assert "\\n2026" in line
    assert "\\\\n" not in line


def test_an_error_in_a_traceback_cannot_forge_a_line(written):
    """The messages of errors, of their causes and notes, begin no line of their own."""
    logger, text = written
    try:
        try:
            raise KeyError(FORGED)  # noqa: TRY301 - it is the cause
        except KeyError as cause:
            error = ExceptionGroup(FORGED, [ValueError(FORGED)])
            error.add_note(FORGED)
            raise error from cause
    except ExceptionGroup:
        logger.exception("Failed")
    lines = text().split("\n")
    assert all(line.isprintable() for line in lines)
    assert not [line for line in lines if line.startswith("2026")]
    assert sum("forged" in line for line in lines) == 4
    assert any("test_logs.py" in line for line in lines)


def test_every_logger_of_the_package_is_safe():
    """No module has a logger that `logs.logger` did not make."""
    for module in pkgutil.walk_packages(scrapy_itemgraph.__path__, "scrapy_itemgraph."):
        importlib.import_module(module.name)
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("scrapy_itemgraph.") and isinstance(logger, logging.Logger):
            assert logger.filters, name


@given(st.recursive(anything, lambda parts: st.lists(parts) | st.dictionaries(anything, parts)))
def test_json_is_safe_for_a_terminal_and_says_the_same(document):
    """--json escapes C1, bidi and other invisible characters, and is the same document."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    text = printing.dump(document, stream)
    assert text.replace("\n", "").isprintable()
    text.encode()
    assert json.loads(text) == document


def test_json_escapes_as_json_does():
    """Each character that is not printable is one escape, or two beyond the 16 bits."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    text = printing.dump(["é\x9b\u202e\ud800\U000e0001"], stream)
    assert text == '[\n  "é\\u009b\\u202e\\ud800\\udb40\\udc01"\n]'


def test_a_line_on_the_terminal_has_colours_alone():
    """What was not cleaned before is when it is written; colours and newlines are let pass."""
    stream = io.StringIO()
    printing.write(stream, "\x1b[31mred\x1b[0m \x1b[2J\u202e\x9b\nnext")
    assert stream.getvalue() == "\x1b[31mred\x1b[0m \\x1b[2J\\u202e\\x9b\nnext\n"
