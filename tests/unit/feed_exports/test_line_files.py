"""Files of lines, as a killed process leaves them."""

from __future__ import annotations

import pytest

from scrapy_itemgraph.feed_exports import line_files, torn_lines


@pytest.fixture
def path(tmp_path):
    """Return the path of a file that is not there yet."""
    return tmp_path / "a"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b'{"a": 1}\n', b'{"a": 1}\n'),
        (b'{"a": 1}', b'{"a": 1}\n'),
        (b'{"a": 1}\n{"b', b'{"a": 1}\n'),
        (b'{"a', b""),
        (b'{"a": "\xc3', b""),
        (b"1\n" * 70_000 + b"[" * 70_000, b"1\n" * 70_000),
    ],
)
def test_json_lines_end_with_a_whole_line(path, before, after):
    """A line that is whole is ended, a part of one is taken off."""
    path.write_bytes(before)

    mended = torn_lines.mend_json(path)

    assert path.read_bytes() == after
    assert mended.removed == max(0, len(before) - len(after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"a,b\r\n1,2\r\n", b"a,b\r\n1,2\r\n"),
        (b"a,b\r\n1,2", b"a,b\r\n1,2\r\n"),
        (b"a,b\r\n1", b"a,b\r\n"),
        (b'a,b\r\n1,"two\r\nlines"\r\n', b'a,b\r\n1,"two\r\nlines"\r\n'),
        (b'a,b\r\n1,"two\r\nli', b"a,b\r\n"),
        (b'a,b\r\n1,"two\r\n', b"a,b\r\n"),
        (b'a,b\r\n1,"say ""so""\r\n', b"a,b\r\n"),
        (b"a,b", b""),
    ],
)
def test_a_table_ends_with_a_whole_row(path, before, after):
    """A row that may be whole is ended; one with too few fields or an open quote is taken off."""
    path.write_bytes(before)

    mended = torn_lines.mend_csv(path, dialect={})

    assert path.read_bytes() == after
    assert mended.header == (("a", "b") if after else None)


def test_a_table_of_another_dialect_or_encoding_is_only_ended(path):
    """Where quotes are not known to be such, the last line is ended, and the columns are read."""
    path.write_bytes(b"a;'b'\n1;'2")
    dialect = {"delimiter": ";", "quotechar": "'"}

    assert torn_lines.mend_csv(path, dialect=dialect).header == ("a", "b")
    assert path.read_bytes() == b"a;'b'\n1;'2\n"
    path.write_bytes("a,b\n1,2".encode("utf-16"))
    assert torn_lines.mend_csv(path, "utf-16", dialect={}).header == ("a", "b")
    assert path.read_bytes().decode("utf-16") == "a,b\n1,2\n"


def test_json_lines_of_an_encoding_of_wide_characters_are_left(path):
    """In UTF-16 a byte is no sign of a line's end."""
    path.write_bytes('{"a'.encode("utf-16"))

    assert torn_lines.mend_json(path, "utf-16") == torn_lines.Mended()


def test_what_comes_after_a_place_is_cut(path):
    """A file goes on where it was marked, and only there, as long as what stands there is known."""
    begin = line_files.end_of(path)
    _, place = line_files.append(path, b"one\n", begin)
    line_files.append(path, b"two\n", place)

    assert line_files.cut(path, place)
    assert path.read_bytes() == b"one\n"
    assert line_files.cut(path, begin)
    assert path.read_bytes() == b""


def test_a_file_of_the_same_name_is_not_cut(path):
    """Another file is known by what stands in it, though it may have the number of the first."""
    _, place = line_files.append(path, b"one\n", line_files.end_of(path))
    path.unlink()
    assert not line_files.cut(path, place)
    path.write_bytes(b"else\nmore\n")

    assert not line_files.cut(path, place)
    assert line_files.append(path, b"two\n", place) == (False, None)
    path.write_bytes(b"on")
    assert not line_files.cut(path, place)
    assert path.read_bytes() == b"on"


def test_lines_of_others_are_seen_before_more_is_written(path):
    """Where somebody else has appended, nothing is written, and the new end is told."""
    _, place = line_files.append(path, b"one\n", line_files.end_of(path))
    with path.open("ab") as file:
        file.write(b"theirs\n")

    is_done, found = line_files.append(path, b"two\n", place)

    assert not is_done
    assert found == line_files.end_of(path)
    assert line_files.append(path, b"two\n", found)[0]
    assert path.read_bytes() == b"one\ntheirs\ntwo\n"
