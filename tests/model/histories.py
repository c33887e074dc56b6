"""What random histories are made of: code, operations, how executions end; and how many of them."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from model.item_graph import Task
from model.operations import Enqueue

from scrapy_itemgraph.model import operations as ops

if TYPE_CHECKING:
    from collections.abc import Sequence

# 0 in `make test`: a few histories, always the same. `make model` sets them.
EXAMPLES = int(os.environ.get("ITEMGRAPH_TEST_MODEL", "0"))
STEPS = int(os.environ.get("ITEMGRAPH_TEST_MODEL_STEPS", "20"))
SHRINKS = os.environ.get("ITEMGRAPH_TEST_MODEL_SHRINKS", "1") == "1"
SEED = int(os.environ.get("ITEMGRAPH_TEST_MODEL_SEED", "0"))

PROFILE = settings(
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    max_examples=EXAMPLES or 30,
    stateful_step_count=STEPS,
    report_multiple_bugs=False,
    phases=[Phase.generate, Phase.shrink] if SHRINKS else [Phase.generate],
    suppress_health_check=list(HealthCheck),
)

# What the code declares, start after start.
STARTS = (
    {
        "parse": Task(("page",), ttl=24),
        "review": Task(("page",), depends_on=("parse",)),
        "index": Task(("list", "page"), ttl=2, nice=5),
        "read": Task(("callback:read",), is_callback=True),
        "follow": Task(("callback:follow",), is_callback=True, ttl=3),
    },
    {
        "parse": Task(("page",), ttl=24, version="2"),
        "review": Task(("page", "list"), depends_on=("parse",), version="2", max_failures=1),
        "index": Task(("list",), nice=-5, slot="elsewhere.example"),
        "read": Task(("callback:read",), is_callback=True, version="2"),
        "follow": Task(("callback:follow",), is_callback=True),
    },
    {
        "parse": Task(("page", "list"), version="3", retry_failed_on_version_bump=True),
        "review": Task(("page",), depends_on=("parse", "index"), max_failures=2, ttl=6),
        "index": Task(("page",), exclusive="item", retry_failed_on_version_bump=True),
        "read": Task(("callback:read",), is_callback=True, version="2", max_failures=1),
        "follow": Task(("callback:follow",), is_callback=True, ttl=3),
    },
    {
        "parse": Task(("page",), version="2", ttl=3),
        "late": Task(("list",), depends_on=("parse",), download=False),
        "read": Task(("callback:read",), is_callback=True),
        "follow": Task(("callback:follow",), is_callback=True, ttl=3),
    },
)
# Those that do not let go of failures, which may be made by whoever commits meanwhile.
GENTLE_STARTS = [0, 1, 3]
TASKS = ["parse", "review", "index"]
CALLBACKS = ["read", "follow"]


def joined(into: dict[str, Any], gone: dict[str, Any]) -> dict[str, Any]:
    """Merge two items' data or metadata."""
    return {**gone, **into, "joined": [len(into), len(gone)]}


def counted(old: dict[str, Any]) -> dict[str, Any]:
    """Count how often this ran."""
    return {**old, "count": old.get("count", 0) + 1}


def emptied(*_: Any) -> dict[str, Any]:
    """Forget all that was there."""
    return {}


def failing(*_: Any) -> Any:
    """Raise, as what a user wrote might."""
    raise KeyError("price")


# Few names, and most of them of items that a history begins with, so that operations meet.
names = st.sampled_from(["A", "B", "C", "D", "a", "b"])
tags = st.sampled_from(["page", "page", "list", "other"])
tag_lists = st.lists(tags, max_size=2, unique=True) | st.fixed_dictionaries(
    {}, optional={"page": st.integers(0, 2), "list": st.none(), "other": st.just([1])}
)
data = st.sampled_from(
    [
        {"url": "http://a.example/1", "n": 1},
        {"url": "http://b.example/2", "m": 1},
        {"n": 2, "m": 2},
        {"url": "http://a.example/1", "download_slot": "own"},
        {},
    ]
)
task_names = st.sampled_from(TASKS)
some_task = st.none() | task_names
changes = st.sampled_from(
    [
        {"n": 3},
        {"m": 4},
        {"n": 5, "m": 5},
        {"url": "http://c.example/"},
        {"by": "one"},
        counted,
        counted,
        emptied,
        failing,
    ]
)
mergers = st.sampled_from([None] * 6 + [joined, joined, emptied, failing])
blob_names = st.sampled_from(["page", "page", "../picture"])
contents = st.sampled_from([b"", b"1", b"22", b"large", b"as large"])
ttls = st.sampled_from(["1h", "5h", "72h", "never", None])
waits = st.none() | st.sampled_from([timedelta(hours=3), timedelta(hours=30)])
rarely = st.sampled_from([False] * 5 + [True])

Kinds = dict[str, list[st.SearchStrategy[Any]]]


def kinds(target: st.SearchStrategy[str | None]) -> Kinds:
    """Return strategies of all operations, on items that `target` draws, by what they concern."""
    merge_metadata = st.dictionaries(task_names, st.sampled_from([joined, emptied]), max_size=2)
    create = st.builds(
        ops.CreateItem,
        names,
        tag_lists,
        data,
        aliases=st.lists(names, max_size=2),
        created_by=st.none() | names,
        nice=st.none() | st.integers(-1, 1),
        not_before=waits,
        fail_if_exists=rarely,
        merge_tags=st.booleans(),
    )
    rename = st.builds(
        ops.RenameItem,
        names,
        id=target,
        if_taken=st.sampled_from(["error", "merge", "merge"]),
        merge=mergers,
        merge_metadata=merge_metadata,
    )
    merge = st.builds(ops.MergeItem, names, id=target, merge=mergers, merge_metadata=merge_metadata)
    delete = st.builds(ops.DeleteItem, target, forget=st.sampled_from([True, True, False]))
    mimes = st.none() | st.just("a/b")
    attach = st.builds(ops.AttachBlob, blob_names, contents, id=target, mime=mimes)
    return {
        "names": [
            create,
            create,
            rename,
            merge,
            merge,
            delete,
            st.builds(ops.CreateAlias, names, to=target, fail_if_exists=rarely),
            st.builds(ops.DeleteAlias, names),
        ],
        "data": [
            st.builds(ops.AddTag, tags, st.integers(0, 2), id=target),
            st.builds(ops.RemoveTag, tags, id=target),
            st.builds(ops.UpdateData, changes, id=target, upsert=st.booleans()),
        ],
        "results": [
            st.builds(ops.UpdateMetadata, changes, id=target, task=some_task),
            st.builds(ops.UpdateMetadata, changes, id=target, task=task_names),
            st.builds(ops.StoreResult, st.just({"stored": 1}), id=names, task=task_names),
            st.builds(ops.Expire, id=target, task=some_task),
            st.builds(ops.Expire, id=target, task=some_task),
            st.builds(ops.SetTTL, ttls, id=target, task=some_task),
        ],
        "blobs": [attach, attach, st.builds(ops.DetachBlob, blob_names, id=target)],
        "requests": [requests],
    }


requests = st.builds(
    Enqueue,
    st.sampled_from(["R", "S", "A", "a"]),
    st.sampled_from(["read", "read", "follow"]),
    st.sampled_from(["http://a.example/1", "http://r.example/2"]),
    again=st.sampled_from(["never", *["in each run", "if changed"] * 2, "whenever", "if gone"]),
    nice=st.integers(-1, 1),
)


def some(given: Kinds, *concern: str, most: int) -> st.SearchStrategy[tuple[Any, ...]]:
    """Return lists of operations that concern something, each concern as often as the others.

    They are few, for one that cannot be carried out undoes the others.
    """
    chosen = st.one_of([st.one_of(given[one]) for one in concern])
    return st.lists(chosen, min_size=1, max_size=most).map(tuple)


INSIDE = kinds(st.none() | st.none() | names)
OUTSIDE = kinds(names)
EVERYTHING = list(INSIDE)

additions = st.lists(
    st.builds(ops.CreateItem, names, tag_lists, data, nice=st.none() | st.just(2)),
    min_size=1,
    max_size=3,
)
endings = st.sampled_from(
    ["ok"] * 6
    + ["failed"] * 2
    + ["retry"] * 2
    + ["known", "gone", "refused", "released"]
    + ["unchanged"]
)


def ends(given: st.SearchStrategy[Sequence[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Return how an execution may end that yields such operations."""
    return st.fixed_dictionaries(
        {
            "operations": given,
            "outcome": endings,
            "allow_failure": st.booleans(),
            "delay": st.sampled_from([0.0, 3.0]),
        }
    )


acts = st.fixed_dictionaries(
    {"operations": some(OUTSIDE, *EVERYTHING, most=2), "outcome": st.just("outside")}
)
any_ends = ends(st.just(()) | some(INSIDE, *EVERYTHING, most=2))
batches = st.lists(st.one_of(any_ends, any_ends, any_ends, acts), min_size=1, max_size=4)
periods = st.sampled_from([0.5, 1.5, 5.5, 30.5])
