"""What the check of processes' logs finds, and what it lets pass."""

from __future__ import annotations

import pytest
from support import logs

ONE = """\
2026-01-01 00:00:00 [scrapy.core.scraper] ERROR: Spider error processing <GET http://a/>
Traceback (most recent call last):
  File "s.py", line 1, in parse
    raise KeyError("cause")
KeyError: 'cause'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "s.py", line 3, in parse
    raise ValueError("no title")
ValueError: no title
2026-01-01 00:00:01 [scrapy.core.engine] INFO: Closing spider (finished)
"""
OTHER = """\
Traceback (most recent call last):
  File "s.py", line 9, in close
TypeError: not callable
"""


@pytest.mark.parametrize(
    ("log", "expected", "count"),
    [
        ("2026-01-01 00:00:00 [x] INFO: all is well\n", (), 0),
        (ONE, (), 1),
        (ONE, ("ValueError: no title",), 0),
        (ONE, ("KeyError: 'cause'",), 0),
        (ONE, ("ValueError: no price",), 1),
        (ONE + OTHER, ("ValueError: no title",), 1),
        (OTHER + OTHER, (), 2),
        ("[asyncio] ERROR: Task exception was never retrieved\n", (), 1),
        ("s.py:3: RuntimeWarning: coroutine 'f' was never awaited\n", (), 1),
        ("s.py:3: RuntimeWarning: coroutine 'f' was never awaited\n", ("'f' was never",), 0),
    ],
)
def test_what_stands_in_a_log_and_should_not(log, expected, count):
    """Each traceback counts once, with what it is chained to, unless a text of it is expected."""
    assert len(list(logs.of_text(log, expected))) == count


def test_logs_are_looked_at_once(tmp_path):
    """What was found in the log of a process is told to the test that started it alone."""
    log = tmp_path / "log.txt"
    logs.watch(log)
    log.write_text(OTHER)

    assert len(logs.complaints(())) == 1
    assert logs.complaints(()) == []
