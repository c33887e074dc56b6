"""Locks on files: a wait for one has a limit, and says which process has it."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil
import pytest
from support.projects import until

from scrapy_itemgraph.exceptions import EmbeddedServerError
from scrapy_itemgraph.feed_exports import line_files
from scrapy_itemgraph.postgres import file_turns
from scrapy_itemgraph.postgres.cluster import Cluster
from scrapy_itemgraph.postgres.embedded_server import EmbeddedServer
from scrapy_itemgraph.tools import locks

if TYPE_CHECKING:
    from pathlib import Path

HOLDS = """
import fcntl, sys
file = open(sys.argv[1], "ab")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(path: Path):
    """Have a process hold the lock of a file, and be stopped."""
    command = [sys.executable, "-I", "-S", "-c", HOLDS, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        process.send_signal(signal.SIGSTOP)
        until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Have waits end soon."""
    monkeypatch.setattr(file_turns, "SAY_AFTER", 0.05)
    monkeypatch.setattr(file_turns, "WITHIN", 0.1)
    monkeypatch.setattr(line_files, "_TURN_WITHIN", 0.05)


def test_a_wait_for_a_stopped_process_ends_and_names_it(tmp_path, caplog):
    """It is a warning after some seconds and an error in the end; when it is killed we go on."""
    path = tmp_path / "start.lock"
    with held(path) as process:
        said = pytest.raises(EmbeddedServerError, match=r"locked .* by .*process")
        with said, file_turns.turn(path):
            pytest.fail("another process has it")
        named = locks.holder(path)
        with pytest.raises(BlockingIOError), file_turns.turn(path, waits=False):
            pytest.fail("another process has it")
    with file_turns.turn(path):
        pass

    assert "this process waits for it" in caplog.text
    assert named in {f"process {process}, which is stopped", "another process"}


@pytest.mark.parametrize("name", ["start.lock", "holders.lock"])
def test_a_start_ends_that_waits_for_a_stopped_process(tmp_path, monkeypatch, name):
    """Whichever file of the embedded server it has, others are told, and do not hang."""
    monkeypatch.setattr(Cluster, "ensure_running", lambda *_, **__: pytest.fail("it went on"))
    with held(tmp_path / name), pytest.raises(EmbeddedServerError, match=name):
        EmbeddedServer.start(tmp_path)


def test_a_line_is_not_waited_for_without_end(tmp_path):
    """Of a feed whose lock a stopped process has, an append is an error of the file."""
    path = tmp_path / "feed.jl"
    place = line_files.end_of(path)
    with held(path), pytest.raises(OSError, match="has been locked"):
        line_files.append(path, b"{}\n", place)

    assert line_files.append(path, b"{}\n", place)[0]


def test_a_program_of_the_system_is_not_waited_for_without_end(tmp_path):
    """A lock that others have for longer than was asked for is a TimeoutError, which names them."""
    path = tmp_path / "account.lock"
    said = pytest.raises(TimeoutError, match=r"account.lock has been locked")
    with held(path), said, locks.locked(path, 0.05):
        pytest.fail("another process has it")


def test_a_lock_is_had_as_soon_as_it_is_free(tmp_path):
    """A wait ends when the lock is given up, and not at its limit."""
    path = tmp_path / "one"
    first = locks.lock(path, fcntl.LOCK_SH)
    second = locks.opened(path)
    assert not locks.lock_within(second, fcntl.LOCK_EX, 0)
    locks.release(first)
    assert locks.lock_within(second, fcntl.LOCK_EX, 0)
    locks.release(second)
