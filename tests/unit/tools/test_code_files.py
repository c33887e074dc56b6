"""Whether a process runs the code that is on disk."""

from __future__ import annotations

import socket

from scrapy_itemgraph.tools import code_files


def test_a_file_that_changed_since_makes_a_process_outdated(tmp_path):
    """What a process of this host began with is compared with the file as it is now."""
    file, host = tmp_path / "books.py", socket.gethostname()
    file.write_text("VERSION = 1")
    code = code_files.digest(file)

    assert not code_files.has_changed(host, str(file), code)
    file.write_text("VERSION = 2")
    assert code_files.has_changed(host, str(file), code)


def test_what_cannot_be_told_is_no_change(tmp_path):
    """Another host's file, one that is gone, a directory, and code of an egg tell nothing."""
    host = socket.gethostname()

    assert not code_files.has_changed("elsewhere", __file__, "00000000")
    assert not code_files.has_changed(host, str(tmp_path / "gone.py"), "00000000")
    assert not code_files.has_changed(host, str(tmp_path), "00000000")
    assert not code_files.has_changed(host, None, "1.2")
