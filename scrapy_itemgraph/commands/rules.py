"""Which pages belong to a crawl: rules that are changed while it runs."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import parsing, printing, streams
from scrapy_itemgraph.commands.command import Argument, Group
from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.model import counts
from scrapy_itemgraph.model.rules import PageRule, Setting, never_matched, said
from scrapy_itemgraph.model.tasks import callback_tag
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.graph import ItemGraph
    from scrapy_itemgraph.model.rule_matching import Decision
    from scrapy_itemgraph.model.rules import StoredRuleset
    from scrapy_itemgraph.store.registry.rule_sweeps import Difference

_POLL = 0.2  # seconds
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")

_RULES = Group("rules", "Rules of a crawl")

_WHICH = Argument(
    "rule", type=parsing.count_or_name, metavar="RULE", help="its number, or its pattern"
)
_NUMBER = Argument("--number", type=parsing.count, metavar="N", help="of an earlier ruleset")
_CHANGE = (
    Argument(
        "--if",
        dest="only_after",
        type=parsing.natural,
        metavar="NUMBER",
        help="only if this ruleset is still in force",
    ),
    Argument("--note", metavar="TEXT", help="why, for those who look"),
    Argument("--apply", action="store_true", help="and apply the rules to what waits already"),
)


@_RULES.command(
    "list",
    _NUMBER,
    Argument("--versions", action="store_true", help="all rulesets, with who made them and when"),
)
def list_rules(call: Call) -> None:
    """List the rules of a crawl in their order; of those that match a URL the last one counts."""
    given = call.given
    with call.graph() as graph:
        if given.versions:
            found = graph.rules.versions()
            call.write([document(one) for one in found], _versions(found))
            return
        one = graph.rules.get(given.number)
    call.write(document(one), _lines(one))


@_RULES.command(
    "add",
    Argument(
        "pattern",
        nargs="?",
        help="what a URL has anywhere, as RE2 writes it; quote it for the shell",
    ),
    Argument(
        "--file", metavar="PATTERNS", help="one rule for each line of a file; -: standard input"
    ),
    Argument(
        "--accept", action="store_true", default=None, help="links to such pages are taken in"
    ),
    Argument("--no-accept", dest="refuse", action="store_true", help="they are not"),
    Argument("--skip", action="store_true", default=None, help="such pages are set aside"),
    Argument("--no-skip", dest="keep", action="store_true", help="they are not"),
    Argument("--user-agent", metavar="TEXT", help="they are asked for with it"),
    Argument("--hook", metavar="NAME", help="a function of ITEMGRAPH_HOOKS gets their requests"),
    Argument("--at", type=parsing.count, metavar="N", help="its place, from 1; else the last"),
    Argument(
        "--dry-run", action="store_true", help="change nothing, and count what it would change"
    ),
    *_CHANGE,
)
def add(call: Call) -> None:
    """Add a rule for the pages whose URL a pattern matches, or one for each pattern of a file.

    It is in force from the next claim of each process on. A page that is under way, and the links
    that it finds, keep to the rules that it began with.
    """
    given = call.given
    rules = _rules(call)
    if given.dry_run:
        with call.graph() as graph:
            found = graph.rules.diff(graph.rules.get().ruleset.with_rules(rules, given.at))
        call.write(found._asdict(), _differences(found))
        return
    with call.graph() as graph:
        stored = graph.rules.add(
            *rules, by=call.by, at=given.at, only_after=given.only_after, note=given.note
        )
        _apply_if_asked(call, graph)
        tasks = [] if rules[0].accept is None else graph.tasks.declared()
    place = given.at or len(stored.ruleset.rules) - len(rules) + 1
    for hint in filter(None, map(_hint, rules)):
        call.note(hint)
    if tasks and not any(callback_tag(one.name) in one.tags for one in tasks):
        call.note(
            "accept is asked of links, which plain callbacks yield; the crawl has tasks alone, "
            "whose items are made as their code says. --skip is asked of their pages, too"
        )
    said_ = f"rule {place}: {rules[0]}"
    if len(rules) > 1:
        said_ = f"rules {place} to {place + len(rules) - 1}: {said(rules[0].says)}"
    _say(call, stored, said_)


@_RULES.command("remove", _WHICH, *_CHANGE)
def remove(call: Call) -> None:
    """Remove a rule."""
    given = call.given
    with call.graph() as graph:
        stored = graph.rules.remove(
            given.rule, by=call.by, only_after=given.only_after, note=given.note
        )
        _apply_if_asked(call, graph)
    _say(call, stored, f"removed the rule {given.rule}")


@_RULES.command(
    "move",
    _WHICH,
    Argument("to", type=parsing.count, metavar="N", help="its place, from 1"),
    *_CHANGE,
)
def move(call: Call) -> None:
    """Move a rule to another place among the others."""
    given = call.given
    with call.graph() as graph:
        stored = graph.rules.move(
            given.rule, given.to, by=call.by, only_after=given.only_after, note=given.note
        )
        _apply_if_asked(call, graph)
    _say(call, stored, f"moved the rule {given.rule} to {given.to}")


@_RULES.command(
    "default",
    Argument(
        "accept",
        choices=["accept", "refuse"],
        metavar="accept|refuse",
        help="what becomes of links that no rule matches",
    ),
    *_CHANGE,
)
def default(call: Call) -> None:
    """Say what holds for links that no rule matches: they are accepted, or refused."""
    given = call.given
    accept = given.accept == "accept"
    with call.graph() as graph:
        stored = graph.rules.change(
            lambda now: now.with_default(accept=accept),
            by=call.by,
            said=f"default: {given.accept}",
            only_after=given.only_after,
            note=given.note,
        )
        _apply_if_asked(call, graph)
    _say(call, stored, f"links that no rule matches are {given.accept.removesuffix('e')}ed")


@_RULES.command("test", Argument("urls", nargs="+", metavar="URL", help="what is tried"), _NUMBER)
def test(call: Call) -> None:
    """Say what the rules make of URLs, and which rule decides."""
    given = call.given
    with call.graph() as graph:
        stored = graph.rules.get(given.number)
        found = [(url, graph.rules.test(url, given.number)) for url in given.urls]
    documents = [{"url": url, **decision(one)} for url, one in found]
    lines = (line for url, one in found for line in _decided(url, one, stored))
    call.write({"number": stored.number, "urls": documents}, lines)


@_RULES.command("diff", _NUMBER)
def diff(call: Call) -> None:
    """Count what rules would change of what waits, if they were applied now.

    It looks at 10,000 pages that wait, and 10,000 that are skipped, at most.
    """
    number = call.given.number
    with call.graph() as graph:
        stored = graph.rules.get(number)
        found = graph.rules.diff(stored.ruleset)
    call.write({"number": stored.number, **found._asdict()}, _differences(found))


@_RULES.command(
    "apply", Argument("--wait", action="store_true", help="do it here, and return when it is done")
)
def apply(call: Call) -> None:
    """Apply the rules in force to what waits: set aside what they skip, and take back what not.

    The crawl's processes do it, a thousand rows of work at a time; status says how far they are.
    """
    with call.graph() as graph:
        graph.rules.apply()
        _apply(call, graph)


def _apply(call: Call, graph: ItemGraph) -> None:
    """Say that rules are applied; with --wait do it."""
    number = graph.rules.get().number
    if not getattr(call.given, "wait", False):
        said = (
            f"ruleset {number} is applied to what waits, by the crawl's processes; scrapy "
            "itemgraph status says how far. --wait does it here"
        )
        call.write({"number": number, "is_done": False}, printing.sentence(said))
        return
    with call.progress("apply", "pages") as progress:
        seen = graph.rules.applying()
        while graph.rules.apply_step():
            found = graph.rules.applying()
            if found is not None and found == seen:
                time.sleep(_POLL)  # another process does a step
            seen = found or seen
            progress.reach(0 if seen is None else seen.swept)
    call.write({"number": number, "is_done": True}, [f"ruleset {number} is applied to what waits"])


def document(one: StoredRuleset) -> dict[str, Any]:
    """Return a ruleset as JSON."""
    return {
        "number": one.number,
        **one.ruleset.as_document,
        "created_at": one.created_at,
        "created_by": one.created_by,
        "note": one.note,
    }


def decision(found: Decision) -> dict[str, Any]:
    """Return what rules say of a URL as JSON: each setting, and the number of the rule."""
    return {one.value: {"value": getattr(found, one), "rule": found.by.get(one)} for one in Setting}


def _hint(rule: PageRule) -> str | None:
    """Return what to write where a pattern has what URLs have escaped; None: it has no such."""
    if not rule.match.isascii():
        written = _BEYOND_ASCII.sub(lambda one: quote(one[0]), rule.match)
        return (
            f"URLs are asked as they are requested, with {written} in the place of "
            f"{rule.match}; write that if links are meant"
        )
    never = never_matched(rule.match)
    if never is None:
        return None
    return (
        f"{rule.match} matches no link: URLs are asked as they are requested, with {quote(never)} "
        f"in the place of {never!r}"
    )


def _patterns(call: Call) -> list[str]:
    """Return the given pattern, or the patterns of a file; lines that begin with # are comments."""
    given = call.given
    if (given.pattern is None) == (given.file is None):
        raise UsageError("give a pattern, or --file PATTERNS")
    if given.file is None:
        return [given.pattern]
    try:
        with streams.opened(given.file) as file:
            lines = file.read().decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OperationError(f"{given.file} cannot be read: {error}") from None
    found = [line for line in map(str.strip, lines) if line and not line.startswith("#")]
    if not found:
        raise OperationError(f"{given.file} has no pattern")
    return found


def _rules(call: Call) -> list[PageRule]:
    """Return the rules that are given, which all say the same, if they say something."""
    given = call.given
    patterns = _patterns(call)
    for one, other, option in (("accept", "refuse", "accept"), ("skip", "keep", "skip")):
        if getattr(given, one) and getattr(given, other):
            raise UsageError(f"give one of --{option} and --no-{option}")
    rule = PageRule(
        match=patterns[0],
        accept=False if given.refuse else given.accept,
        skip=False if given.keep else given.skip,
        user_agent=given.user_agent,
        hook=given.hook,
    )
    if not rule.says:
        raise UsageError(
            "say what holds for such pages: --no-accept, say, or --skip; scrapy itemgraph rules "
            "add --help shows all"
        )
    hooks = call.settings.safety.hooks
    if rule.hook is not None and rule.hook not in hooks:
        raise OperationError(
            f"ITEMGRAPH_HOOKS of this project has no hook {rule.hook!r}{closest(rule.hook, hooks)}"
        )
    return [replace(rule, match=one) for one in patterns]


def _apply_if_asked(call: Call, graph: ItemGraph) -> None:
    if call.given.apply:
        graph.rules.apply()


def _say(call: Call, stored: StoredRuleset, what: str) -> None:
    line = f"{what}. Ruleset {stored.number} is in force from the next claim on"
    if call.given.apply:
        line += ", and is applied to what waits; scrapy itemgraph status says how far"
    call.write(document(stored), printing.sentence(printing.clean(line)))


def _differences(found: Difference) -> Iterator[str]:
    """Say what rules would change of what waits."""
    some = "" if found.is_all else ", the first of them"
    yield f"of {counts.many(found.waiting, 'page')} that wait{some}:"
    yield f"  {found.skipped:,} would be skipped"
    yield from (f"    {printing.clean(url)}" for url in found.examples["skipped"])
    yield f"  {found.refused:,} are there already, and links to them would be refused now"
    yield from (f"    {printing.clean(url)}" for url in found.examples["refused"])
    yield f"of {counts.many(found.set_aside, 'page')} that are skipped:"
    yield f"  {found.freed:,} would be taken back"
    yield from (f"    {printing.clean(url)}" for url in found.examples["freed"])


def _lines(one: StoredRuleset) -> Iterator[str]:
    if not one.number:
        yield "the crawl has no rules: all links that its spider yields are taken in"
        return
    made = f"ruleset {one.number}, made {printing.moment(one.created_at)} by {one.created_by}"
    yield from printing.sentence(printing.clean(made + (f": {one.note}" if one.note else "")))
    rules = one.ruleset.rules
    if rules:
        columns: printing.Columns = {
            "RULE": lambda pair: pair[0],
            "PATTERN": lambda pair: pair[1].match,
            "SAYS": lambda pair: said(pair[1].says),
        }
        yield from printing.table(list(enumerate(rules, start=1)), columns)
    yield f"links that none of them matches are {'accepted' if one.ruleset.accept else 'refused'}"


def _versions(found: Sequence[StoredRuleset]) -> Iterable[str]:
    columns: printing.Columns = {
        "RULESET": "number",
        "MADE": "created_at",
        "BY": "created_by",
        "RULES": lambda one: len(one.ruleset.rules),
        "NOTE": "note",
    }
    return printing.table(found, columns) if found else ["the crawl has no rules"]


def _decided(url: str, found: Decision, stored: StoredRuleset) -> Iterator[str]:
    yield printing.clean(url)
    rules = stored.ruleset.rules
    for one in Setting:
        value, place = getattr(found, one), found.by.get(one)
        if value is None:
            continue
        why = (
            "the default, for no rule speaks of it"
            if place is None
            else f"rule {place}: {rules[place - 1].match}"
        )
        shown = {True: "yes", False: "no"}.get(value, value)
        yield printing.clean(f"  {one.replace('_', ' ')}: {shown} ({why})")
