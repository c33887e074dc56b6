"""Whether a callback takes what a request has for it, found out before the page is fetched."""

from __future__ import annotations

import builtins
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_BY_NAME = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


def misfit(callback: Any, cb_kwargs: Mapping[str, Any]) -> str | None:
    """Return why a callback cannot be called with a response and `cb_kwargs`; None where it may.

    What is not sure is nothing: of a decorator that takes any arguments, of what has no signature,
    and of a parameter that others may give, such as the page objects of scrapy-poet.
    """
    try:
        signature = inspect.signature(callback, follow_wrapped=False)
    except (TypeError, ValueError):
        return None
    given = {name: None for name in signature.parameters if _may_be_given(signature, name)}
    try:
        signature.bind(None, **{**given, **cb_kwargs})
    except TypeError as error:
        return str(error)
    return None


def _may_be_given(signature: inspect.Signature, name: str) -> bool:
    """Tell whether somebody else may give a parameter: it is annotated, and not as plain data."""
    parameter = signature.parameters[name]
    first = next(iter(signature.parameters))
    annotation = parameter.annotation
    if name == first or annotation is parameter.empty or parameter.kind not in _BY_NAME:
        return False
    kind = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return not hasattr(builtins, kind.partition("[")[0])
