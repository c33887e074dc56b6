"""Each requirement of the notes that the engine owns is named by a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
OWNED = {*range(1, 33), *range(38, 61)}

# Named by no test here, and why.
ELSEWHERE: dict[int, str] = {}


def named_requirements() -> set[int]:
    """Return the numbers of the requirements that docstrings of tests name."""
    docstrings = [
        ast.get_docstring(node) or ""
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    ]
    return {int(number) for text in docstrings for number in re.findall(r"SRAP-(\d+)", text)}


def test_each_requirement_is_named_by_a_test():
    """SRAP-1…24, 28…32 and 38…60 each stand in the docstring of a test."""
    unnamed = OWNED - named_requirements() - set(ELSEWHERE)

    assert not unnamed, f"no test names {sorted(f'SRAP-{number}' for number in unnamed)}"


def test_no_requirement_is_excused_that_a_test_names():
    """What stands in the list of excuses is really missing."""
    assert not set(ELSEWHERE) & named_requirements()
