"""Batches: one bad execution spoils no other, and their cost is a fixed number of statements."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa
from support import graphs, oracle

from scrapy_itemgraph import (
    AddTag,
    CreateAlias,
    CreateItem,
    DeleteAlias,
    DeleteItem,
    Expire,
    MergeItem,
    RemoveTag,
    RenameItem,
    SetTTL,
    StoreResult,
    UpdateData,
    UpdateMetadata,
)
from scrapy_itemgraph.model.work import Outcome

pytestmark = pytest.mark.server


@pytest.fixture
def crawl(connection):
    """Yield a crawl with one task, and check its worklist at the end."""
    crawl = graphs.Crawl.of(connection)
    yield crawl
    oracle.assert_worklist_is_true(connection, crawl.id)


def raises(*_):
    """Raise, as a merger of a user might."""
    raise ZeroDivisionError


BAD = [
    UpdateData(raises),
    UpdateData({}, id="nobody"),
    MergeItem("nobody"),
    RenameItem("taken"),
    CreateItem("taken", fail_if_exists=True),
    CreateAlias("taken", fail_if_exists=True),
    DeleteAlias("taken"),
    StoreResult({}, id="taken", task="nothing"),
    UpdateMetadata({}, task="nothing"),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda operation: operation.verb)
def test_one_bad_execution_fails_alone(crawl, bad):
    """A bad execution's failure is recorded and nothing of it done; its neighbours commit whole."""
    crawl.item("taken")
    names = [f"A{n}" for n in range(3)]
    claims = [crawl.claimed(name) for name in names]

    first, middle, last = crawl.commit(
        graphs.changeset(claims[0], UpdateData({"n": 1}), CreateItem("from first")),
        graphs.changeset(claims[1], UpdateData({"n": 1}), CreateItem("from middle"), bad),
        graphs.changeset(claims[2], UpdateData({"n": 1}), CreateItem("from last")),
    )

    assert (first.outcome, middle.outcome, last.outcome) == ("ok", "failed", "ok")
    assert middle.error.message.startswith(f"{type(bad).__name__}: ")
    assert [crawl.get(name).data.get("n") for name in names] == [1, None, 1]
    assert [crawl.get(f"from {which}") is None for which in ("first", "middle", "last")] == [
        *(False, True, False)
    ]
    assert [crawl.state(name) for name in names] == ["fresh", "held", "fresh"]
    assert crawl.failures() == ["A1"]


def test_what_a_failed_execution_did_is_not_seen_by_the_next(crawl):
    """Names, items and tags of an execution that failed are as if it had never run."""
    one, two = crawl.claimed("A"), crawl.claimed("B")

    crawl.commit(
        graphs.changeset(one, CreateItem("C", data={"n": 1}), DeleteItem("B"), UpdateData(raises)),
        graphs.changeset(two, CreateItem("C", data={"n": 2}), RenameItem("BB")),
    )

    assert crawl.get("C").data == {"n": 2}
    assert crawl.get("C").created_by == "B"
    assert crawl.get("B").id == "BB"


def test_executions_of_a_batch_see_what_those_before_them_did(crawl):
    """Changesets of a batch are applied in order, each on what the ones before it left."""
    one, two, three = (crawl.claimed(name) for name in "ABC")

    crawl.commit(
        graphs.changeset(one, CreateItem("X", data={"n": [1]})),
        graphs.changeset(two, UpdateData(lambda old: {"n": [*old["n"], 2]}, id="X")),
        graphs.changeset(three, RenameItem("Y", id="X"), CreateItem("X", data={"n": [3]})),
    )

    assert crawl.get("X").id == "Y"
    assert crawl.get("X").data == {"n": [1, 2]}


def test_a_batch_ends_claims_of_every_kind(crawl):
    """Successes, failures, refusals, retries and releases end together, each in its own way."""
    outcomes = [
        Outcome.OK,
        Outcome.FAILED,
        Outcome.REFUSED,
        Outcome.RETRY,
        Outcome.RELEASED,
    ]
    for outcome in outcomes:
        crawl.work(str(outcome))
    claims = {claim.item.id: claim for claim in crawl.claim()}

    applied = crawl.commit(
        *(
            graphs.changeset(claims[str(o)], CreateItem(f"of {o}"), outcome=o, delay=timedelta(1))
            for o in outcomes
        )
    )

    assert [one.outcome for one in applied] == outcomes
    assert [crawl.state(str(o)) for o in outcomes] == [
        *("fresh", "held", "held", "never run", "never run")
    ]
    assert [crawl.get(f"of {o}") is None for o in outcomes] == [False, True, True, True, True]
    assert [crawl.attempts(str(o)) for o in outcomes] == [[str(o)] for o in outcomes]
    left = crawl.rows("SELECT tries, not_before FROM work ORDER BY tries")
    assert [(row.tries, row.not_before is None) for row in left][-1] == (1, False)


def test_a_claim_ends_once(crawl):
    """A claim that was ended, or taken over, changes nothing when it is ended again."""
    claim = crawl.claimed("A")
    crawl.end(claim, UpdateData({"n": 1}))

    again = [
        crawl.end(claim, UpdateData({"n": 2}), outcome=outcome, delay=timedelta(1))
        for outcome in (Outcome.OK, Outcome.FAILED, Outcome.RETRY, Outcome.RELEASED)
    ]

    assert [applied.outcome for applied in again] == [None] * 4
    assert crawl.get("A").data["n"] == 1
    assert crawl.state("A") == "fresh"
    assert crawl.attempts("A") == ["ok"]


def a_page(number, items):
    """Return operations of every kind that cannot fail, on items of this page's own."""
    name = f"{number}"
    return [
        UpdateData({"n": number}),
        UpdateMetadata({"n": number}),
        CreateItem(f"new {name}", {"page": number}, aliases=[f"alias of new {name}"]),
        CreateItem(f"known {name}", ["page"], merge_tags=True),
        CreateAlias(f"alias {name}"),
        DeleteAlias(f"old alias {name}"),
        AddTag("seen", number),
        RemoveTag("page", id=f"known {name}"),
        RenameItem(f"renamed {name}", id=f"known {name}"),
        MergeItem(f"into {name}", id=f"gone {name}"),
        DeleteItem(f"deleted {name}"),
        DeleteItem(f"tombstone {name}", forget=False),
        UpdateData({"n": 1}, id=f"upsert {name}", upsert=True),
        StoreResult({"n": 1}, id=f"stored {name}", task="parse"),
        Expire(id=f"expired {name}"),
        SetTTL("1h", id=f"expired {name}"),
    ][:items]


def test_the_number_of_statements_does_not_depend_on_the_number_of_operations(crawl):
    """A batch with hundreds of operations of every kind takes as many statements as a small one."""
    others = ("known", "into", "gone", "deleted", "tombstone", "stored", "expired")
    numbers = range(26)
    crawl.do(*(CreateItem(f"{n}", ["page"], aliases=[f"old alias {n}"]) for n in numbers))
    crawl.do(*(CreateItem(f"{kind} {n}", ["page"]) for kind in others for n in numbers))
    crawl.do(
        *(
            StoreResult({}, id=f"{kind} {n}", task="parse")
            for kind in ("gone", "expired")
            for n in numbers
        )
    )
    claims = {claim.item.id: claim for claim in crawl.claim()}
    crawl.release(*(claim for name, claim in claims.items() if not name.isdigit()))

    def statements(pages):
        counted = []

        def count(connection, cursor, statement, *_):
            counted.append(statement)

        batch = [
            graphs.changeset(
                claims[str(n)],
                *a_page(n, 100),
                outcome=Outcome.OK if n % 4 else Outcome.FAILED,
                allow_failure=True,
            )
            for n in pages
        ]
        sa.event.listen(crawl.connection, "before_cursor_execute", count)
        applied = crawl.commit(*batch)
        sa.event.remove(crawl.connection, "before_cursor_execute", count)
        assert all(one.error is None for one in applied), applied
        return len(counted)

    few = statements(range(2))
    many = statements(range(2, 26))

    assert many <= few
    assert many < 60


def test_new_items_of_one_batch_each_get_their_own_work(connection):
    """Items that differ in slot, nice, tags, data or start have work as if each came alone."""
    crawl = graphs.Crawl.of(
        connection,
        parse={"tags": ("page",), "rate_limit_by_tag": {"slow": "1/s"}},
        price={"tags": ("product",), "depends_on": ("parse",)},
        stock={"tags": ("product",), "nice": 5},
    )
    tags = [("page",), ("page", "slow"), ("slow", "page"), ("product",), ("page", "product"), ()]
    made = [
        CreateItem(
            f"N{n}",
            tags=tags[n % len(tags)],
            data={"url": f"http://{'abc'[n % 3]}.example/{n}"},
            nice=n % 2 * 7 - 3,
            not_before=timedelta(hours=1) if n % 5 == 0 else None,
        )
        for n in range(90)
    ]

    crawl.commit(graphs.changeset(None, *made), graphs.changeset(None, AddTag("page", id="N5")))

    oracle.assert_worklist_is_true(connection, crawl.id)
    pairs = crawl.rows("SELECT i.name, w.task_id FROM work w JOIN items i ON i.id = w.item_id")
    assert len(pairs) == len(set(pairs)) == 60 + 30 + 1
    assert crawl.rows(
        "SELECT count(*) FROM work WHERE seq <> (SELECT count(*) FROM work o WHERE"
        " (o.item_id, o.task_id) <= (work.item_id, work.task_id)) + (SELECT min(seq) FROM work) - 1"
    ) == [(0,)]


@pytest.mark.parametrize("is_named", [True, False])
def test_a_failure_is_expired_by_what_comes_after_it_in_its_batch(connection, is_named):
    """An `Expire` lets a pair run again whose execution failed earlier in the same commit."""
    crawl = graphs.Crawl.of(connection)
    failing = crawl.claimed("A")
    expire = Expire(id="A", task="parse" if is_named else None)

    crawl.commit(graphs.changeset(failing, outcome=Outcome.FAILED), graphs.changeset(None, expire))

    assert crawl.worklist() == ["A parse"]
    assert crawl.failures() == []
    assert crawl.rows("SELECT handled_by FROM failures") == [("expired",)]


def test_a_failure_gives_way_to_a_merge_that_comes_after_it_in_its_batch(connection):
    """A good result that a merge brings replaces one that failed earlier in the same commit."""
    crawl = graphs.Crawl.of(connection)
    crawl.done("B", UpdateMetadata({"title": "B"}))
    failing = crawl.claimed("A")

    crawl.commit(
        graphs.changeset(failing, outcome=Outcome.FAILED),
        graphs.changeset(None, MergeItem("A", id="B")),
    )

    assert crawl.state("A") == "fresh"
    assert crawl.result("A").metadata == {"title": "B"}
    assert crawl.failures() == []
    assert crawl.worklist() == []


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.FAILED])
def test_an_attempt_goes_with_a_merge_that_comes_after_it_in_its_batch(connection, outcome):
    """It stays on record where the survivor's own result is kept, as from a commit to the next."""
    crawl = graphs.Crawl.of(connection)
    claim = crawl.claimed("A")
    crawl.done("B")
    of_now = StoreResult({"n": 1}, id="B", task="parse")

    crawl.commit(
        graphs.changeset(claim, outcome=outcome),
        graphs.changeset(None, of_now, MergeItem("B", id="A")),
    )

    assert crawl.attempts("B") == ["ok", outcome]
    assert crawl.failures() == []
    assert crawl.state("B") == "fresh"


def test_a_failure_goes_with_a_merge_that_comes_after_it_in_its_batch(connection):
    """The failure of an item that is merged later in the same commit holds the survivor."""
    crawl = graphs.Crawl.of(connection)
    failing = crawl.claimed("A")
    crawl.item("B")

    crawl.commit(
        graphs.changeset(failing, outcome=Outcome.FAILED),
        graphs.changeset(None, MergeItem("B", id="A")),
    )

    assert crawl.state("B") == "held"
    assert crawl.failures() == ["B"]


@pytest.mark.parametrize("is_one_batch", [True, False])
def test_what_is_given_back_later_in_its_batch_is_claimed_until_then(connection, is_one_batch):
    """That a pair was expired while it was claimed is on record, however soon it is free."""
    crawl = graphs.Crawl.of(connection, parse={"tags": ["page"]}, index={"tags": ["page"]})
    crawl.item("A", tags=["page"])
    claims = {claim.task: claim for claim in crawl.claim(2)}
    changesets = [
        graphs.changeset(claims["parse"], Expire(task="index")),
        graphs.changeset(claims["index"], outcome=Outcome.RETRY),
    ]

    for batch in [changesets] if is_one_batch else [[one] for one in changesets]:
        crawl.commit(*batch)

    expired = "SELECT invalidated_at IS NOT NULL, completed_at FROM results"
    assert crawl.rows(f"{expired} WHERE completed_at IS NULL") == [(True, None)]


@pytest.mark.parametrize("is_one_batch", [True, False])
def test_a_merge_keeps_the_result_of_the_later_changeset_of_its_batch(connection, is_one_batch):
    """SRAP-44: as it would have if each had been committed by itself."""
    crawl = graphs.Crawl.of(connection)
    running = crawl.claimed("A")
    crawl.done("B")
    changesets = [
        graphs.changeset(running, UpdateMetadata({"title": "A"})),
        graphs.changeset(None, StoreResult({"title": "B"}, id="B", task="parse")),
        graphs.changeset(None, MergeItem("A", id="B")),
    ]

    for batch in [changesets] if is_one_batch else [[one] for one in changesets]:
        crawl.commit(*batch)

    assert crawl.result("A").metadata == {"title": "B"}


@pytest.mark.parametrize("is_merged_within", [True, False])
@pytest.mark.parametrize("later", ["A", "B"])
def test_a_merge_keeps_the_data_of_the_later_changeset_of_a_batch(
    connection, later, is_merged_within
):
    """SRAP-44: who was made or changed later wins a key, in a merge in the batch or after it."""
    crawl = graphs.Crawl.of(connection)
    crawl.item("B")
    made = graphs.changeset(None, CreateItem("A", data={"n": "A"}))
    changed = graphs.changeset(None, UpdateData({"n": "B"}, id="B"))
    merge = graphs.changeset(None, MergeItem("B", id="A"))
    batch = [made, changed] if later == "B" else [changed, made]

    for each in [[*batch, merge]] if is_merged_within else [batch, [merge]]:
        crawl.commit(*each)

    assert crawl.get("B").data["n"] == later


def test_a_failure_is_superseded_by_a_result_that_is_stored_after_it_in_its_batch(connection):
    """A `StoreResult` completes a pair whose execution failed earlier in the same commit."""
    crawl = graphs.Crawl.of(connection)
    failing = crawl.claimed("A")

    crawl.commit(
        graphs.changeset(failing, outcome=Outcome.FAILED),
        graphs.changeset(None, StoreResult({"title": "A"}, id="A", task="parse")),
    )

    assert crawl.state("A") == "fresh"
    assert crawl.result("A").is_successful
    assert crawl.failures() == []


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.RETRY, Outcome.RELEASED])
def test_two_claims_of_one_pair_in_a_batch_are_told_apart(connection, outcome):
    """SRAP-11: what a worker ran before it stalled is lost, also beside its new claim of it."""
    crawl = graphs.Crawl.of(connection)
    crawl.work("A")
    stalled = crawl.new_worker(timedelta(seconds=-1))
    (zombie,) = crawl.claim(worker=stalled)
    crawl.take_over()
    (living,) = crawl.claim()

    lost, kept = crawl.commit(
        graphs.changeset(zombie, UpdateData({"zombie": True}), outcome=outcome),
        graphs.changeset(living, UpdateData({"living": True})),
    )

    assert (lost.outcome, kept.outcome) == (None, Outcome.OK)
    assert crawl.get("A").data.get("living")
    assert "zombie" not in crawl.get("A").data
    assert crawl.attempts("A") == ["died", "ok"]


def test_a_claim_that_is_given_back_is_not_taken_for_another_of_its_pair(connection):
    """What a worker ran before it stalled is lost, also beside a new claim that is tried again."""
    crawl = graphs.Crawl.of(connection)
    crawl.work("A")
    (zombie,) = crawl.claim(worker=crawl.new_worker(timedelta(seconds=-1)))
    crawl.take_over()
    (living,) = crawl.claim()

    lost, kept = crawl.commit(
        graphs.changeset(zombie, UpdateData({"zombie": True})),
        graphs.changeset(living, outcome=Outcome.RETRY, delay=timedelta(hours=1)),
    )

    assert (lost.outcome, kept.outcome) == (None, Outcome.RETRY)
    assert "zombie" not in crawl.get("A").data
    assert crawl.attempts("A") == ["died", "retry"]


@pytest.mark.parametrize("outcome", [Outcome.RETRY, Outcome.RELEASED])
def test_a_lost_claim_that_is_given_back_leaves_the_pair_to_whom_has_it(connection, outcome):
    """What happens to the pair later in the commit happens to a claim that is under way."""
    crawl = graphs.Crawl.of(connection)
    crawl.work("A")
    (zombie,) = crawl.claim(worker=crawl.new_worker(timedelta(seconds=-1)))
    crawl.take_over()
    (living,) = crawl.claim()

    lost, _ = crawl.commit(
        graphs.changeset(zombie, outcome=outcome), graphs.changeset(None, Expire(id="A"))
    )
    between = crawl.claim()
    ended = crawl.end(living)

    assert (lost.outcome, between, ended.outcome) == (None, [], Outcome.OK)
    assert crawl.worklist() == ["A parse"]  # it was expired while it ran


@pytest.mark.parametrize("is_one_batch", [True, False])
def test_a_merge_after_a_refused_execution_keeps_the_result_that_was_completed(
    connection, is_one_batch
):
    """SRAP-44: metadata of an execution that was refused complete nothing."""
    crawl = graphs.Crawl.of(connection)
    crawl.done("B", UpdateMetadata({"title": "B"}))
    refused = crawl.claimed("A")
    changesets = [
        graphs.changeset(
            refused, UpdateMetadata({"title": "A"}), outcome=Outcome.REFUSED, allow_failure=True
        ),
        graphs.changeset(None, MergeItem("A", id="B")),
    ]

    for batch in [changesets] if is_one_batch else [[one] for one in changesets]:
        crawl.commit(*batch)

    assert crawl.result("A").metadata == {"title": "B"}
    assert crawl.result("A").is_successful
