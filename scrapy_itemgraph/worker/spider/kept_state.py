"""What a spider's code shows that goes wrong here: state on `self`, retries that are given up."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scrapy import Spider

logger = logs.logger(__name__)

# Methods that no request has for its callback.
_NO_CALLBACKS = {
    *("start", "start_requests", "from_crawler", "update_settings", "handles_request", "seeds"),
    *("login", "closed", "close", "log"),
}
_KNOWN = {"state", "crawler", "settings", "logger", "name", "custom_settings", "start_urls"}
_CHANGING = {
    *("add", "append", "appendleft", "extend", "insert", "update", "setdefault", "pop", "popitem"),
    *("remove", "discard", "clear"),
}
_MOST = 5  # attributes that are named


class Kept(NamedTuple):
    """An attribute of the spider that one callback writes and another one reads, or the same."""

    attribute: str
    writer: str
    reader: str


@dataclass
class _Method:
    """What a method does with attributes of `self`: in which line first."""

    writes: dict[str, int] = field(default_factory=dict)
    reads: dict[str, int] = field(default_factory=dict)
    sets: dict[str, int] = field(default_factory=dict)  # writes that leave nothing of before
    changes: set[str] = field(default_factory=set)  # what is written by what it was before
    calls: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)  # methods that it may give to requests
    takes_response: bool = False
    gives_up: bool = False  # what `get_retry_request` returns as None


def warn_of_kept_state(spider: Spider) -> None:
    """Warn of attributes by which callbacks tell each other something."""
    kept = found_in(type(spider))
    if not kept:
        return
    said = "; ".join(map(_said, kept[:_MOST]))
    more = f"; and {len(kept) - _MOST} more" if len(kept) > _MOST else ""
    logger.warning(
        "The spider %s keeps on itself what its callbacks tell each other: %s%s. Other processes "
        "do not have it, and after a restart it is gone, while the page that brought it counts as "
        "done. Pass it on in meta or cb_kwargs, or keep it in self.state (docs: an existing "
        "project, what callbacks keep)",
        spider.name,
        said,
        more,
        extra={"action": "kept_on_self", "attributes": [one.attribute for one in kept]},
    )


def _said(one: Kept) -> str:
    if one.writer == one.reader:
        return f"self.{one.attribute} goes on from page to page in {one.writer}"
    return f"self.{one.attribute} is written in {one.writer} and read in {one.reader}"


def warn_of_given_up_retries(spider: Spider) -> None:
    """Warn of methods that end quietly where `get_retry_request` returns None."""
    names = giving_up(type(spider))
    if names:
        logger.warning(
            "The spider %s calls get_retry_request() in %s, and does nothing where that returns "
            "None: then the retries are used up, and the page counts as done. Raise an error "
            "there, so that it is a failure (docs: an existing project, retries)",
            spider.name,
            ", ".join(names[:_MOST]),
            extra={"action": "retries_given_up", "methods": names},
        )


def giving_up(cls: type) -> list[str]:
    """Return the methods of a spider that end quietly when a page has no retry left."""
    try:
        return sorted(name for name, one in _methods(cls).items() if one.gives_up)
    except Exception:  # noqa: BLE001 - as above: it is advice
        return []


def found_in(cls: type) -> list[Kept]:
    """Return what is kept on `self` by callbacks of a spider; nothing where its code is not there.

    A method is a callback if it takes a response, or is named where a request could have it. What
    it calls of `self` is part of it. What a callback sets before it reads it is its own.
    """
    try:
        methods = _methods(cls)
        named = {"parse"} | _named_in_rules(cls)
    except Exception:  # noqa: BLE001 - it is advice: no code of a spider's may stand in its way
        return []
    named = named.union(*(one.names for one in methods.values()))
    callbacks = sorted(
        name
        for name, one in methods.items()
        if name not in _NO_CALLBACKS
        and not name.startswith("__")
        and (name in named or one.takes_response)
    )
    whole = {name: _whole(name, methods) for name in callbacks}
    kept: dict[str, Kept] = {}
    for writer in callbacks:
        for attribute in whole[writer].writes:
            others = [one for one in callbacks if one != writer]
            may_read = [*others, writer] if attribute in whole[writer].changes else others
            readers = (one for one in may_read if _reads(whole[one], attribute))
            reader = next(readers, None)
            if reader is not None and attribute not in kept and not _is_given(cls, attribute):
                kept[attribute] = Kept(attribute, writer, reader)
    return [one for one in kept.values() if one.attribute not in _KNOWN]


def _is_given(cls: type, attribute: str) -> bool:
    """Tell whether a name is that of a method or a property, and no value of the spider."""
    there = inspect.getattr_static(cls, attribute, None)
    return inspect.isroutine(there) or hasattr(type(there), "__get__")


def _named_in_rules(cls: type) -> set[str]:
    """Return the callbacks of a `CrawlSpider`'s rules."""
    rules = inspect.getattr_static(cls, "rules", ())
    if not isinstance(rules, list | tuple):  # a property, None: known from an instance at most
        return set()
    return {one.callback for one in rules if isinstance(getattr(one, "callback", None), str)}


def _reads(one: _Method, attribute: str) -> bool:
    first = one.reads.get(attribute)
    return first is not None and not one.sets.get(attribute, first + 1) <= first


@cache
def _methods(cls: type) -> dict[str, _Method]:
    found: dict[str, _Method] = {}
    for base in cls.__mro__:
        if base is object or base.__module__.partition(".")[0] == "scrapy":
            continue
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError):  # it has no source
            continue
        for node in getattr(tree, "body", ()):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(node.name, _read(node))
    for one in found.values():
        one.names &= found.keys()
    return found


def _read(function: ast.FunctionDef | ast.AsyncFunctionDef) -> _Method:
    one = _Method()
    arguments = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if not arguments or any(
        isinstance(each, ast.Name) and each.id in {"staticmethod", "classmethod"}
        for each in function.decorator_list
    ):
        return one
    one.takes_response = "response" in arguments[1:2]
    nodes = list(ast.walk(function))
    one.gives_up = _gives_up(nodes)
    told = _read_uses(nodes, arguments[0], one)
    one.changes |= {attribute for each in nodes for attribute in _set_by_itself(each, arguments[0])}
    # What is set whatever happens: not under a condition, and not by what it was before.
    set_at_once = (
        each
        for each in function.body
        if isinstance(each, ast.Assign | ast.AnnAssign) and not _set_by_itself(each, arguments[0])
    )
    always = {node for each in set_at_once for node in ast.walk(each)}
    for node in nodes:
        if not _is_of(node, arguments[0]) or node in told:
            continue
        if isinstance(node.ctx, ast.Store):
            one.writes.setdefault(node.attr, node.lineno)
            if node in always:
                one.sets[node.attr] = min(node.lineno, one.sets.get(node.attr, node.lineno))
        else:
            one.reads[node.attr] = min(node.lineno, one.reads.get(node.attr, node.lineno))
            one.names.add(node.attr)
    return one


def _read_uses(nodes: Iterable[ast.AST], own: str, one: _Method) -> set[ast.AST]:
    """Note what is called, changed in place or asked for; return these mentions of attributes."""
    told: set[ast.AST] = set()
    for node in nodes:
        for attribute, mention in _changes(node, own):
            one.writes.setdefault(attribute, mention.lineno)
            one.changes.add(attribute)
            told.add(mention)
            if isinstance(node, ast.AugAssign):
                one.reads[attribute] = min(node.lineno, one.reads.get(attribute, node.lineno))
        if isinstance(node, ast.Call) and _is_of(node.func, own):
            one.calls.add(node.func.attr)
            told.add(node.func)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            one.names.add(node.value)
        match _asked_for(node, own):
            case "setattr", attribute:
                one.writes.setdefault(attribute, getattr(node, "lineno", 0))
            case _, attribute:
                one.reads.setdefault(attribute, getattr(node, "lineno", 0))
    return told


def _changes(node: ast.AST, own: str) -> Iterator[tuple[str, ast.Attribute]]:
    """Yield attributes that a piece of code changes in place, with their mention."""
    if isinstance(node, ast.AugAssign):
        target = node.target.value if isinstance(node.target, ast.Subscript) else node.target
        if _is_of(target, own):
            yield target.attr, target
            return
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store | ast.Del)
        and _is_of(node.value, own)
    ):
        yield node.value.attr, node.value
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _CHANGING
        and _is_of(node.func.value, own)
    ):
        yield node.func.value.attr, node.func.value


def _set_by_itself(node: ast.AST, own: str) -> set[str]:
    """Return the attributes to which an assignment gives a value made of what they were."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return set()
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    given = {one.attr for target in targets for one in ast.walk(target) if _is_of(one, own)}
    return given & {one.attr for one in ast.walk(node.value) if _is_of(one, own)}


def _gives_up(nodes: Sequence[ast.AST]) -> bool:
    """Tell whether code calls `get_retry_request`, and does nothing where that returns None.

    It does something if it raises, anywhere, or tests what it got for None.
    """
    calls = {one for one in nodes if isinstance(one, ast.Call) and _is_retry(one.func)}
    if not calls or any(isinstance(one, ast.Raise) for one in nodes):
        return False
    kept_as = {
        target.id
        for one in nodes
        if isinstance(one, ast.Assign | ast.NamedExpr) and one.value in calls
        for target in (one.targets if isinstance(one, ast.Assign) else [one.target])
        if isinstance(target, ast.Name)
    }
    tests = [
        one
        for one in nodes
        if isinstance(one, ast.If)
        and any(isinstance(each, ast.Name) and each.id in kept_as for each in ast.walk(one.test))
    ]
    return not any(one.orelse or _is_for_none(one.test) for one in tests)


def _is_for_none(test: ast.AST) -> bool:
    """Tell whether a condition is `not given` or `given is None`."""
    match test:
        case ast.UnaryOp(op=ast.Not()) | ast.Compare(ops=[ast.Is()]):
            return True
    return False


def _is_retry(function: ast.AST) -> bool:
    name = getattr(function, "id", None) or getattr(function, "attr", None)
    return name == "get_retry_request"


def _asked_for(node: ast.AST, own: str) -> tuple[str, str] | None:
    """Return `getattr`, `hasattr` or `setattr`, and the attribute of `self` that it is given."""
    match node:
        case ast.Call(
            func=ast.Name(id="getattr" | "hasattr" | "setattr" as function),
            args=[ast.Name(id=name), ast.Constant(value=str(attribute)), *_],
        ) if name == own:
            return function, attribute
    return None


def _is_of(node: ast.AST, own: str) -> TypeGuard[ast.Attribute]:
    """Tell whether a piece of code is an attribute of `self`."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == own
    )


def _whole(name: str, methods: Mapping[str, _Method]) -> _Method:
    """Return what a method does with all that it calls of `self`."""
    whole, left = _Method(), [name]
    seen: set[str] = set()
    while left:
        called = left.pop()
        if called in seen or called not in methods:
            continue
        seen.add(called)
        one = methods[called]
        left += sorted(one.calls)
        whole.writes = {**one.writes, **whole.writes}
        whole.changes |= one.changes
        # Lines of another method say nothing of what is before what.
        whole.reads |= one.reads if called == name else dict.fromkeys(one.reads, 0)
        if called == name:
            whole.sets = dict(one.sets)
    return whole
