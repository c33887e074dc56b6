"""Items: looking at one, and changing some."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError

from scrapy_itemgraph.commands import next_starts, parsing, printing, streams
from scrapy_itemgraph.commands.arguments import CATEGORY, DATA, ID, ID_HELP, OF_TASK, TAG, URL
from scrapy_itemgraph.commands.call import item_graph
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.exceptions import ItemGraphError, OperationError
from scrapy_itemgraph.model import counts, input_checks, item_names, operations
from scrapy_itemgraph.tools import wording

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from scrapy_itemgraph.commands.call import Call
    from scrapy_itemgraph.model.snapshots import ResultSnapshot

_LEFT_OUT = object()  # None is what "default" means

_ATTEMPTS: printing.Columns = {
    "TASK": "task",
    "TRY": "number",
    "OUTCOME": "outcome",
    "STARTED": "started_at",
    "WORKER": "worker",
    "JOB": "job",
    "RULES": "ruleset",
}
_STATES: printing.Columns = {
    "TASK": "task",
    "NOW": "state",
    "COMPLETED": "completed_at",
    "EXPIRES": "expires_at",
}
_FROM = Argument(
    "--from",
    metavar="LINE",
    dest="first",
    type=parsing.count,
    default=1,
    help="leave out the lines before this one",
)


@command(ID, CATEGORY)
def show(call: Call) -> None:
    """Show an item: names, tags, data, results, and last attempts with what they logged.

    A request is shown by its URL; with --json its id and all its names are there, and all that was
    logged, unless --category is given.
    """
    with item_graph(call) as (graph, name):
        document = graph.show(name)
    categories = call.given.category
    if call.as_json and categories:
        for attempt in document["attempts"]:
            attempt["log"] = printing.shown(attempt["log"], categories)
    call.write(document, _item_lines(document, categories))


def _item_lines(item: dict[str, Any], categories: Collection[str]) -> Iterator[str]:
    creator, by = item["created_by_item"], item["created_by"]
    if by is not None and creator != by:
        by += " (no such item any more)" if creator is None else f" (now {creator})"
    elif by is not None:
        by = item_names.label_of(by, item["created_by_url"], item["created_by_method"])
    shown = item_names.label_of(item["id"], item["url"], item["method"])
    yield from printing.fields(
        [
            ("request", shown if shown != item["id"] else None),
            ("item", item["id"] if shown == item["id"] else None),
            *(("alias", one) for one in item["aliases"] if not item_names.is_request(one)),
            *(
                ("tag", name if value is None else f"{name} = {_json(value)}")
                for name, value in item["tags"].items()
            ),
            ("created", printing.moment(item["created_at"])),
            ("created by", by),
            ("updated", printing.moment(item["updated_at"])),
            *(
                ("blob", f"{one['name']}: {one['size']:,} bytes{_type(one['mime'])}")
                for one in item["blobs"]
            ),
        ]
    )
    yield "data"
    yield from _json_lines(item["data"])
    for result in item["results"]:
        yield ""
        yield from _result_lines(result)
    if item["attempts"]:
        yield ""
        yield from printing.table_of_errors(item["attempts"], _ATTEMPTS, categories)


def _type(mime: str | None) -> str:
    return "" if mime is None else f", {mime}"


def _result_lines(result: dict[str, Any]) -> Iterator[str]:
    version = f", version {result['version']}" if result["version"] is not None else ""
    state = printing.coloured(result["state"])
    yield f"task {printing.clean(result['task'])}: {state}{printing.clean(version)}"
    yield from (
        f"  {line}"
        for line in printing.fields(
            [
                ("completed", printing.moment(result["completed_at"])),
                ("expires", printing.moment(result["expires_at"])),
            ]
        )
    )
    if result["metadata"]:
        yield from _json_lines(result["metadata"])


def _json_lines(value: Any) -> Iterator[str]:
    for line in _json(value, indent=2).split("\n"):
        yield f"  {line}"


def _json(value: Any, indent: int | None = None) -> str:
    return printing.escaped(json.dumps(value, ensure_ascii=False, indent=indent))


@command(
    Argument(
        "id",
        nargs="?",
        help="its id; left out: a random one; -: ids from standard input, one a line",
    ),
    TAG,
    DATA,
    URL,
    Argument(
        "--alias",
        metavar="ID",
        action="append",
        default=[],
        help="another id of it; skipped if taken; may be repeated",
    ),
    Argument("--nice", metavar="N", type=int, help="its priority; lower goes first"),
    Argument("--prefix", metavar="TEXT", help="what a random id begins with"),
    _FROM,
)
def add(call: Call) -> None:
    """Add an item, unless its id is taken: then nothing changes.

    A crawl that --crawl names is made if it does not exist. An id from standard input that is a URL is
    its data's url as well, unless --data is given; ten thousand are added in a transaction.
    """  # noqa: E501 - lines as they are printed
    if call.given.id == "-":
        _add_many(call)
        return
    if call.given.first > 1:
        raise UsageError("--from is for ids from standard input; give - as ID")
    created = _created(call.given)
    with call.graph(may_create=True) as graph:
        is_new = graph.crawl not in graph.crawls.names()
        document = graph.add(created)
        known = {tag for tags in graph.tasks.tags().values() for tag in tags}
        if is_new:
            call.note(f"scrapy itemgraph: made the crawl {printing.clean(graph.crawl)!r}")
    near = filter(None, (wording.near_miss(tag, known) for tag in created.tags))
    call.write(document, _added_lines(document, str(created.id), next(near, None)))


def _add_many(call: Call) -> None:
    given = call.given
    if given.alias or given.prefix is not None or given.url is not None:
        raise UsageError("--alias, --prefix and --url are for one item, not for standard input")

    one = operations.CreateItem("-", dict(given.tag), given.data or {}, nice=given.nice)
    operations.checked(one, "the options")

    def read(where: str, line: bytes) -> operations.Operation:
        try:
            name = line.decode().strip()
        except UnicodeDecodeError as error:
            raise OperationError(f"{where}: {error}") from None
        data = {"url": name} if given.data is None and "://" in name else given.data or {}
        return operations.alike(one, name, data, where)

    with streams.opened("-") as lines, call.graph(may_create=True) as graph:
        streams.Stream(call, lines, read, "add", streams.STEP_OF_ADDITIONS).run(graph)


def _created(given: Namespace) -> operations.CreateItem:
    if given.data is not None and given.url is not None:
        raise UsageError("give --data or --url, not both")
    if given.id is not None and given.prefix is not None:
        raise UsageError("give ID or --prefix, not both")
    data = given.data if given.url is None else {"url": given.url}
    return operations.CreateItem(
        id=given.id,
        tags=dict(given.tag),
        data=data or {},
        prefix=given.prefix,
        aliases=given.alias,
        nice=given.nice,
    )


def _added_lines(document: dict[str, Any], name: str, near: str | None) -> Iterator[str]:
    shown = printing.clean(document["id"])
    if not document["created"]:
        known = "" if document["id"] == name else f" as an alias of {shown}"
        yield f"{printing.clean(name)} exists already{known}; nothing was changed"
        return
    yield f"added {shown}"
    if document["tasks"]:
        yield f"its tasks: {', '.join(document['tasks'])}"
    else:
        hint = "" if near is None else f"; did you mean {near!r}?"
        yield f"no task that is known yet is called for by its tags{hint}"


@command(ID, Argument("--keep-name", action="store_true", help="leave its names taken, for ever"))
def delete(call: Call) -> None:
    """Delete an item, its results and its work."""
    with item_graph(call) as (graph, name):
        deleted = graph.delete(name, keep_name=call.given.keep_name)
    kept = "; its names stay taken" if call.given.keep_name else ""
    document = {"deleted": deleted.text, "names_kept": call.given.keep_name}
    call.write(document, [f"deleted {printing.clean(deleted.shown)}{kept}"])


@command(Argument("file", help="where they are; - for standard input"), _FROM)
def apply(call: Call) -> None:
    """Apply operations, one JSON object a line, a thousand in a transaction.

    For example {"op": "createItem", "id": "URL:x", "tags": ["page"], "data": {"url": "https://x/"}}.
    A transaction has a thousand of them. An error names the line; the transactions before it stand.
    """
    with streams.opened(call.given.file) as given, call.graph(may_create=True) as graph:
        streams.Stream(call, given, _operation, "apply").run(graph)


def _operation(where: str, line: bytes) -> operations.Operation:
    """Read an operation; errors call it by `where`."""
    try:
        read = operations.from_json(json.loads(line.decode()))
    except RecursionError:
        raise OperationError(f"{where}: {input_checks.too_deep('it')}") from None
    except (ItemGraphError, ValueError) as error:
        raise OperationError(f"{where}: {error}") from None
    return operations.checked(read, where)


@command(
    Argument("id", nargs="?", help=ID_HELP),
    Argument("--task", help="of this task or callback alone"),
    Argument("--tag", metavar="NAME", help="of the items with this tag"),
    Argument("--all", action="store_true", help="all of the crawl"),
)
def expire(call: Call) -> None:
    """Make results stale, so that tasks run again: an item's, a task's, a tag's, or all.

    A task that a failure holds back may run again, too. Without ID it goes through the items in
    transactions of two thousand.
    """
    given = call.given
    if given.id is None:
        _expire_many(call)
        return
    if given.tag is not None or given.all:
        raise UsageError("give ID, with --task or without; or --task, --tag or --all, and no ID")
    with item_graph(call) as (graph, name):
        results = graph.expire(name, call.given.task)
        _write_results(call, results, next_starts.lines(call, graph) if results else ())


def _expire_many(call: Call) -> None:
    given = call.given
    if given.all == (given.task is not None or given.tag is not None):
        raise UsageError("say which: ID, --task TASK, --tag NAME, or --all")
    with call.graph() as graph:
        next_starts.say_cost(call, graph.costs.of_expire(given.task, tag=given.tag))
        with call.progress("expire", "results") as progress:
            expired = graph.tasks.expire(given.task, tag=given.tag, reached=progress.reach)
        then = [*next_starts.lines(call, graph)] if expired else []
    document = {"task": given.task, "tag": given.tag, "expired": expired}
    are = "is" if expired == 1 else "are"
    lines = [f"{counts.many(expired, 'result')} {are} stale", *then]
    call.write(document, map(printing.clean, lines))


@command(
    Argument("id", nargs="?", help=ID_HELP),
    Argument(
        "ttl",
        nargs="?",
        type=parsing.ttl,
        default=_LEFT_OUT,
        help='such as 6h, counted from the last result; "never"; or "default" for the task\'s',
    ),
    OF_TASK,
    Argument(
        "--recompute",
        action="store_true",
        help="with --task alone: by the task's own TTL, as it is now, for all its results but "
        "those that have one of their own",
    ),
)
def set_ttl(call: Call) -> None:
    """Change when an item's results expire, or all results of a task.

    Either ID TTL [--task TASK], or --task TASK --recompute.
    """
    given = call.given
    if given.recompute:
        _recompute_ttl(call)
        return
    if given.id is None or given.ttl is _LEFT_OUT:
        raise UsageError("give ID and TTL, or --task TASK --recompute")
    with item_graph(call) as (graph, name):
        _write_results(call, graph.set_ttl(name, given.ttl, given.task))


def _recompute_ttl(call: Call) -> None:
    given = call.given
    if given.id is not None or given.task is None:
        raise UsageError("--recompute takes --task TASK, and no ID")
    with call.graph() as graph:
        changed = graph.tasks.recompute_ttl(given.task)
    document = {"task": given.task, "changed": changed}
    call.write(document, [f"{counts.many(changed, 'result')} changed"])


def _write_results(call: Call, results: Sequence[ResultSnapshot], then: Iterable[str] = ()) -> None:
    """Show what results are after a change, and what comes next."""
    lines = printing.table(results, _STATES) if results else ["no task has a result of it"]
    call.write([asdict(result) for result in results], chain(lines, map(printing.clean, then)))
