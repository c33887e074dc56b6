"""The source of a task's code, as a digest: whether it has changed since results were made."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def digest(functions: Iterable[Callable[..., Any]]) -> uuid.UUID | None:
    """Return a digest of what functions do; None where the source of one is not at hand.

    Comments, layout, docstrings and decorators do not count, nor does what stands around them.
    """
    shapes = [_shape_of(function) for function in functions]
    if not shapes or None in shapes:
        return None
    return uuid.UUID(bytes=hashlib.sha256(repr(shapes).encode(errors="replace")).digest()[:16])


def _shape_of(function: Callable[..., Any]) -> Any:
    try:
        source = textwrap.dedent(inspect.getsource(function))
        (found,) = ast.parse(source).body
        if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        found.decorator_list = []
        if ast.get_docstring(found, clean=False) is not None:
            del found.body[0]
        return _shape(found)
    except Exception:  # noqa: BLE001 - no source, or not what it was when it was imported
        return None


def _shape(node: Any) -> Any:
    """Return a syntax tree without places, and without what only some versions of Python have."""
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if name != "ctx")
        return type(node).__name__, [
            (name, _shape(value)) for name, value in fields if value not in (None, [])
        ]
    if isinstance(node, list):
        return [_shape(one) for one in node]
    return repr(node)
