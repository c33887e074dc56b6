"""Binary data of items, in each kind of store: attached, replaced, merged, collected."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from scrapy_itemgraph.contents import stores as content_stores
from scrapy_itemgraph.exceptions import BlobStoreError, NotFoundError, OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import blobs as blob_values
from scrapy_itemgraph.model.operations import (
    AttachBlob,
    CreateItem,
    DeleteItem,
    DetachBlob,
    MergeItem,
    RenameItem,
    UpdateData,
    from_json,
)
from scrapy_itemgraph.store import blobs as stored_blobs

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server

NAMES = ["a", "../x", "/etc/passwd", "ü ☃\n", "." * 1000]


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """Yield the URL of a bucket of moto's server, if that and s3fs are installed."""
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0)
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("s3fs")
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    given = {"endpoint_url": url, "key": "test", "secret": "test"}
    fsspec.config.conf["s3"] = given
    client = boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="blobs")
    yield "s3://blobs/of/tests"
    del fsspec.config.conf["s3"]
    server.stop()


@pytest.fixture(params=["database", "folder", "memory", "s3"])
def place(request, tmp_path) -> str:
    """Return what ITEMGRAPH_BLOBS says, for each kind of store."""
    if request.param == "folder":
        return str(tmp_path / "blobs")
    if request.param == "s3":
        return request.getfixturevalue("bucket")
    return {"database": "database", "memory": f"memory://blobs/{tmp_path.name}"}[request.param]


@pytest.fixture
def graph(database, place):
    """Yield a graph that has the items A and B."""
    with ItemGraph.open(database, "books", blobs=place) as graph:
        graph.apply([CreateItem("A"), CreateItem("B")])
        yield graph


def read(graph: ItemGraph, item: str) -> dict[str, bytes]:
    """Return all that an item has."""
    return {one.name: b"".join(graph.blobs.read(item, one.name)) for one in graph.blobs.list(item)}


def contents(graph: ItemGraph) -> list[tuple[str, bool]]:
    """Return state and whether it is to be looked at, of all contents."""
    query = sa.text("SELECT state, collect_at IS NOT NULL FROM blob_contents ORDER BY id")
    return [
        tuple(row)
        for row in graph._transactions.call(lambda connection: connection.execute(query).all())
    ]


def files(tmp_path: Path) -> list[str]:
    """Return the names of the files of a folder's store."""
    return sorted(str(one) for one in (tmp_path / "blobs").rglob("*") if one.is_file())


def test_what_is_attached_is_read_as_it_was(graph):
    """Content of any bytes, also none, is there under any name, with its size, type and hash."""
    given = {name: os.urandom(3000) * number for number, name in enumerate(NAMES)}
    graph.apply([AttachBlob(name, data, id="A", mime="x/y") for name, data in given.items()])

    assert read(graph, "A") == given
    by_name = {one.name: one for one in graph.blobs.list("A")}
    assert by_name["a"].size == 0
    for name, data in given.items():
        assert by_name[name].sha256 == hashlib.sha256(data).hexdigest()
        assert (by_name[name].size, by_name[name].mime) == (len(data), "x/y")


def test_a_file_is_attached_by_its_path_and_base64_by_json(graph, tmp_path):
    """In Python a path's file is read; JSON has base64, which is never taken for a path."""
    path = tmp_path / "page.html"
    path.write_bytes(b"<html>" * 500_000)
    line = {"op": "attachBlob", "name": "j", "content": "AAEC", "id": "A", "mime": "a/b"}
    graph.apply([AttachBlob("p", path, id="A"), from_json(line)])

    assert read(graph, "A") == {"p": path.read_bytes(), "j": b"\x00\x01\x02"}
    with pytest.raises(OperationError, match="base64"):
        from_json(line | {"content": str(path)})
    with pytest.raises(OperationError, match="base64"):
        from_json(line | {"content": 7})


def test_the_same_name_replaces_and_detached_is_gone(graph):
    """A later content has the name, also within one transaction; notes say what happened."""
    notes = graph.apply(
        [
            AttachBlob("a", b"1", id="A"),
            AttachBlob("a", b"2", id="A"),
            AttachBlob("b", b"3", id="A"),
            DetachBlob("b", id="A"),
            DetachBlob("c", id="A"),
        ]
    )
    assert [one.label for one in notes] == [
        "attached",
        "replaced",
        "attached",
        "detached",
        "unknown",
    ]
    assert read(graph, "A") == {"a": b"2"}

    graph.apply([AttachBlob("a", b"4", id="A")])
    assert read(graph, "A") == {"a": b"4"}
    graph.apply([DetachBlob("a", id="A")])
    assert graph.blobs.list("A") == []


def test_of_merged_items_the_later_blob_of_a_name_is_kept(graph):
    """Whichever item has it; rename keeps all, and a merge in the same batch sees what is new."""
    graph.apply([AttachBlob("n", b"old", id="A"), AttachBlob("m", b"A", id="A")])
    graph.apply([AttachBlob("n", b"new", id="B"), AttachBlob("o", b"B", id="B")])
    graph.apply([AttachBlob("m", b"older?", id="B"), AttachBlob("m", b"A again", id="A")])
    graph.apply([RenameItem("A2", id="A"), MergeItem("A2", id="B")])

    assert read(graph, "B") == {"n": b"new", "m": b"A again", "o": b"B"}
    graph.apply([CreateItem("C"), AttachBlob("n", b"C", id="C"), MergeItem("C", id="A")])
    assert read(graph, "A2") == {"n": b"C", "m": b"A again", "o": b"B"}
    graph.blobs.collect(now=True)
    assert read(graph, "A2") == {"n": b"C", "m": b"A again", "o": b"B"}


def test_what_is_deleted_with_an_update_of_it_is_an_error(graph):
    """As with data: deleting an item and attaching to it in one execution contradict each other."""
    for operations in (
        [AttachBlob("a", b"", id="A"), DeleteItem("A")],
        [DeleteItem("A"), AttachBlob("a", b"", id="A")],
    ):
        with pytest.raises(OperationError):
            graph.apply(operations)
    assert read(graph, "A") == {}


def test_what_no_item_has_is_collected_and_all_else_stays(graph, place, tmp_path):
    """After a day, or at once if told so; contents that several items have stay for the last."""
    graph.apply([AttachBlob("a", b"both", id="A"), AttachBlob("a", b"both", id="B")])
    graph.apply([AttachBlob("b", b"A's own" * 100, id="A"), UpdateData({"x": 1}, id="A")])
    assert len(contents(graph)) == 2
    assert graph.blobs.collect() == 0  # none is a day old
    assert contents(graph) == [("stored", True)] * 2
    assert graph.blobs.collect(now=True) == 0
    assert contents(graph) == [("stored", False)] * 2

    graph.apply([DeleteItem("A")])
    assert graph.blobs.collect() == 0
    assert graph.blobs.collect(now=True) == 1
    assert read(graph, "B") == {"a": b"both"}
    if "://" not in place and place != "database":
        assert len(files(tmp_path)) == 1

    graph.apply([DetachBlob("a", id="B")])
    assert graph.blobs.collect(now=True) == 1
    assert contents(graph) == []
    if "://" not in place and place != "database":
        assert files(tmp_path) == []


def test_an_operation_that_cannot_be_leaves_no_blob(graph):
    """Its content is stored before, never visible, and collected."""
    with pytest.raises(OperationError, match="operation 2"):
        graph.apply([AttachBlob("a", b"lost", id="A"), UpdateData({}, id="nobody")])

    assert graph.blobs.list("A") == []
    assert contents(graph) == [("stored", True)]
    assert graph.blobs.collect(now=True) == 1


def test_what_is_collected_between_content_and_commit_is_stored_again(graph, monkeypatch):
    """A commit that finds its content gone does not name it: it is written once more."""
    hold, rounds = stored_blobs.hold, []

    def collected_before(connection, numbers):
        if not rounds:
            rounds.append(graph.blobs.collect(now=True))
        hold(connection, numbers)

    monkeypatch.setattr(stored_blobs, "hold", collected_before)
    graph.apply([AttachBlob("a", b"content", id="A")])

    assert rounds == [1]
    assert read(graph, "A") == {"a": b"content"}
    assert graph.blobs.collect(now=True) == 0


def test_who_collects_leaves_alone_what_a_commit_holds(graph, engine):
    """A commit that has locked a content, and not named it yet for others to see, keeps it."""
    graph.apply([AttachBlob("a", b"content", id="A")])
    graph.apply([DetachBlob("a", id="A")])
    with engine.begin() as connection:
        (number,) = connection.execute(sa.text("SELECT id FROM blob_contents")).scalars()
        stored_blobs.hold(connection, [number])
        assert graph.blobs.collect(now=True) == 0
        assert contents(graph) == [("stored", True)]
    assert graph.blobs.collect(now=True) == 1


def test_what_cannot_be_had_is_refused_by_name(graph, tmp_path, database):
    """An unknown item or blob, or a file that is not there: one clear line."""
    graph.apply([AttachBlob("page", b"1", id="A")])
    with pytest.raises(NotFoundError, match="did you mean 'page'"):
        graph.blobs.read("A", "pages")
    with pytest.raises(NotFoundError, match="nobody"):
        graph.blobs.list("nobody")
    with pytest.raises(OperationError, match=r"operation 1: AttachBlob: content: .*nothing"):
        graph.apply([AttachBlob("a", tmp_path / "nothing", id="A")])


def test_the_database_keeps_contents_up_to_a_size(database, tmp_path, monkeypatch):
    """What is larger is refused, bytes and files alike, by an error that names the setting."""
    monkeypatch.setattr(content_stores, "MOST_IN_DATABASE", 1000)
    monkeypatch.setattr(blob_values, "MOST_IN_DATABASE", 1000)
    path = tmp_path / "large"
    path.write_bytes(b"x" * 1001)
    with ItemGraph.open(database, "books") as graph:
        graph.apply([CreateItem("A"), AttachBlob("a", b"x" * 1000, id="A")])
        for content in (b"x" * 1001, path):
            with pytest.raises(OperationError, match="ITEMGRAPH_BLOBS"):
                graph.apply([AttachBlob("a", content, id="A")])
        assert read(graph, "A") == {"a": b"x" * 1000}


def test_a_folder_that_cannot_be_written_or_has_lost_a_file_says_so(database, tmp_path):
    """Nothing is attached then, and what is damaged is no blob."""
    folder = tmp_path / "blobs"
    folder.write_text("no folder")
    with ItemGraph.open(database, "books", blobs=folder) as graph:
        graph.apply([CreateItem("A")])
        with pytest.raises(BlobStoreError, match="cannot be written: Not a directory"):
            graph.apply([AttachBlob("a", b"x" * 5000, id="A")])
        assert graph.blobs.list("A") == []
        folder.unlink()
        graph.apply([AttachBlob("a", b"x" * 5000, id="A")])
        graph.blobs.collect(now=True)
        (file,) = files(tmp_path)
        Path(file).write_bytes(b"x" * 4999)
        with pytest.raises(BlobStoreError, match="damaged"):
            read(graph, "A")
        Path(file).unlink()
        with pytest.raises(BlobStoreError, match="cannot be read: No such file"):
            read(graph, "A")


def test_contents_stay_where_they_are_when_the_setting_changes(database, tmp_path):
    """Each says where it is, so that a store can be changed at any time."""
    with ItemGraph.open(database, "books") as graph:
        graph.apply([CreateItem("A"), AttachBlob("a", b"in the database", id="A")])
    with ItemGraph.open(database, "books", blobs=tmp_path / "blobs") as graph:
        graph.apply([AttachBlob("b", b"in the folder", id="A")])
        assert read(graph, "A") == {"a": b"in the database", "b": b"in the folder"}
    with ItemGraph.open(database, "books") as graph:
        assert read(graph, "A") == {"a": b"in the database", "b": b"in the folder"}


def test_a_restarted_crawl_has_no_blobs(graph):
    """They go with their items, and their contents are collected."""
    graph.apply([AttachBlob("a", b"1", id="A"), AttachBlob("a", b"2", id="B")])
    assert graph.crawls.restart()["blobs"] == 2
    assert graph.blobs.collect(now=True) == 2
    assert contents(graph) == []


def test_a_dump_with_blobs_makes_the_same_crawl_again(graph, database, place):
    """Also in another store, with merges that end the same; dumped again it is the same."""
    given = {name: os.urandom(150_000) * number for number, name in enumerate(NAMES)}
    graph.apply([AttachBlob(name, data, id="A", mime="x/y") for name, data in given.items()])
    graph.apply([AttachBlob("a", b"later", id="B"), AttachBlob("same", given["../x"], id="B")])
    lines = list(graph.crawls.dump(blobs=True))

    for other in {place, "database"}:
        with ItemGraph.open(database, f"in {other}", blobs=other) as loaded:
            counts = loaded.crawls.load(lines)
            assert counts["contents"] == len(NAMES) + 1
            assert read(loaded, "A") == given
            assert read(loaded, "B") == {"a": b"later", "same": given["../x"]}
            assert list(loaded.crawls.dump(blobs=True))[1:] == lines[1:]
            loaded.apply([MergeItem("A", id="B")])
            assert read(loaded, "A") == given | {"a": b"later", "same": given["../x"]}


def test_a_dump_without_blobs_has_nothing_of_them_and_the_older_format(database):
    """What read dumps before blobs were reads it; with blobs it is of another format."""
    with ItemGraph.open(database, "books") as graph:
        graph.apply([CreateItem("A"), AttachBlob("a", b"content", id="A")])
        plain, full = list(graph.crawls.dump()), list(graph.crawls.dump(blobs=True))
        assert '"itemgraph_dump": 1' in plain[0]
        assert '"itemgraph_dump": 2' in full[0]
        assert not any("blob" in line or "content" in line for line in plain)
        other = graph.of("other")
        other.crawls.load(plain)
        assert other.blobs.list("A") == []


def test_a_damaged_content_of_a_dump_is_refused_by_its_line(database):
    """A part that is missing, another content, or none at all: nothing is loaded."""
    with ItemGraph.open(database, "books") as graph:
        graph.apply([CreateItem("A"), AttachBlob("a", b"content", id="A")])
        lines = list(graph.crawls.dump(blobs=True))
        (at,) = [number for number, line in enumerate(lines) if '"part"' in line]
        cases = {
            "instead of 7": [*lines[:at], *lines[at + 1 :]],
            "is damaged": [*lines[:at], lines[at].replace("Y29", "Y28"), *lines[at + 1 :]],
            "has no content": [*lines[: at - 1], *lines[at + 1 :]],
            "a part of": [*lines[: at - 1], *lines[at:]],
            "base64": [*lines[:at], lines[at].replace("Y29", "!Y2"), *lines[at + 1 :]],
        }
        for message, given in cases.items():
            other = graph.of("other")
            with pytest.raises(OperationError, match=message):
                other.crawls.load(given)
        assert graph.crawls.names() == ["books"]
