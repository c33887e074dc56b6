"""Processes that tests start by forking are what they would be if they were executed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import processes

pytestmark = pytest.mark.skipif(
    os.environ.get("ITEMGRAPH_TEST_EXEC") == "1", reason="all processes are executed"
)

# What a process finds as it begins, and what it reads.
FOUND = """
import gc, json, os, signal, sys, threading, time
print(json.dumps({
    "argv": sys.argv,
    "path": sys.path,
    "options": [sys.orig_argv, list(sys.flags), sys.warnoptions, sys.executable, sys.prefix],
    "main": [__name__, vars().get("__file__"), sys.modules["__main__"].__dict__ is globals()],
    "streams": [
        [one.encoding, one.errors, one.mode, one.isatty(), one.closed, one.fileno()]
        for one in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "is buffered": [sys.stdout.line_buffering, sys.stdout.write_through],
    "read": sys.stdin.read(),
    "environment": dict(os.environ),
    "zone": time.tzname,
    "directory": os.getcwd(),
    "group": [os.getpgid(0), os.getsid(0), os.getuid(), os.umask(0)],
    "files": [one for one in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{one}")],
    "signals": {one.name: str(signal.getsignal(one)) for one in signal.valid_signals()
                if isinstance(one, signal.Signals)},
    "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "threads": threading.active_count(),
    "collects": [gc.isenabled(), gc.get_threshold()],
    "reactor": "twisted.internet.reactor" in sys.modules,
}))
print("written to standard error", file=sys.stderr)
sys.exit(3)
"""
MODULES = "import sys; print(len(sys.modules) > 1000, flush=True)"
FILES = Path("/proc/self/fd")
READY = "import time; print('ready', flush=True)\n"


@pytest.mark.parametrize("kind", ["-c", "script"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_fork_finds_what_a_start_finds(tmp_path, kind, unbuffered):
    """Arguments, paths, files, streams, environment, signals: all are those of a new process."""
    script = tmp_path / "script.py"
    script.write_text(FOUND)
    environment = os.environ | {"PYTHONPATH": "sub:/nowhere", "TZ": "Asia/Tokyo", "OWN": "ü"}
    if unbuffered:
        environment["PYTHONUNBUFFERED"] = unbuffered
    command = [sys.executable, *(["-c", FOUND] if kind == "-c" else [script]), "one", "--two"]
    options = {"cwd": tmp_path, "env": environment, "input": "given", "text": True}

    forked = processes.run(command, capture_output=True, **options)
    executed = subprocess.run(command, capture_output=True, check=False, **options)

    found, expected = json.loads(forked.stdout), json.loads(executed.stdout)
    if unbuffered:  # of the flags, this alone is not set
        expected["options"][1] = list(sys.flags)
    assert found == expected
    assert (forked.returncode, forked.stderr) == (3, executed.stderr)


def test_a_command_of_scrapy_is_forked(tmp_path):
    """`python -m scrapy` runs in a fork, writes the same, and knows itself by the same name."""
    command = [sys.executable, "-m", "scrapy", "version", "--verbose"]

    with processes.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        shown = process.communicate()[0]

    assert process.is_forked
    assert process.returncode == 0
    assert shown == subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_fork_as_a_start(number):
    """A process that a signal ended says so, and whoever looked before saw it run."""
    if number == signal.SIGINT and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        pytest.skip("a job in the background ignores an interrupt, and so does what it starts")
    command = [sys.executable, "-c", READY + "time.sleep(600)"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with processes.Popen(command, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        assert process.is_forked
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)

    assert process.returncode == -number
    assert errors.endswith("KeyboardInterrupt\n") is (number == signal.SIGINT)


def test_an_error_that_nobody_catches_ends_a_fork_as_a_start():
    """Its traceback is written, and its code is 1."""
    ended = processes.run([sys.executable, "-c", "1 / 0"], capture_output=True, text=True)

    assert ended.returncode == 1
    assert re.fullmatch(
        r"Traceback.*\nZeroDivisionError: division by zero\n", ended.stderr, re.DOTALL
    )


def test_a_fork_runs_code_as_it_is_written(tmp_path):
    """Annotations are evaluated, unless the code says otherwise: nothing of the server's rules."""
    script = tmp_path / "script.py"
    script.write_text("def f(x: 1 + 1): ...\nprint(f.__annotations__)")

    for command in ([script], ["-c", script.read_text()]):
        ran = processes.run([sys.executable, *command], capture_output=True, check=True)
        assert ran.stdout == b"{'x': 2}\n"


def test_a_fork_of_an_ended_server_is_an_error_and_waits_for_nothing(monkeypatch):
    """A fork server that was killed: neither a start nor a wait hangs, both say so."""
    monkeypatch.setattr(processes, "forks", processes.Forks(dict(os.environ)))
    process = processes.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    processes.forks.server.process.kill()

    with pytest.raises(RuntimeError, match="the fork server has ended"):
        processes.Popen([sys.executable, "-c", ""])
    with pytest.raises(RuntimeError, match="the fork server has ended"):
        process.wait(60)
    with pytest.raises(RuntimeError, match="the fork server has ended"), process:
        process.stdin.close()  # it reads the end of its input, and ends
    process.returncode = 0  # as far as anybody can tell
    processes.forks.close()


def test_a_fork_that_is_stopped_has_not_ended():
    """What SIGSTOP holds is still waited for."""
    command = [sys.executable, "-c", READY + "time.sleep(600)"]
    with processes.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        process.kill()

    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "how",
    [
        *("hash", "language", "home", "module", "package", "customization"),
        *("new session", "option", "other module", "long"),
    ],
)
def test_what_would_differ_in_a_fork_is_executed(tmp_path, how):
    """What Python and libraries read as they load, or what hides one of them, needs a start."""
    own = {"hash": "PYTHONHASHSEED", "language": "LC_ALL", "home": "HOME"}.get(how, "PYTHONPATH")
    value = {"hash": "1", "language": "C"}.get(how, str(tmp_path))
    if how == "module":
        (tmp_path / "fastapi.py").touch()
    if how == "customization":
        (tmp_path / "sitecustomize.py").touch()
    if how == "package":
        (tmp_path / "scrapy_itemgraph").mkdir()
        (tmp_path / "scrapy_itemgraph" / "__init__.py").touch()
    python = [sys.executable, *(["-Wignore"] if how == "option" else [])]
    command = [*python, *(["-m", "this"] if how == "other module" else ["-c", MODULES])]
    options = {"start_new_session": True} if how == "new session" else {}
    if how == "long":
        own, value = "OWN", "x" * 120_000

    with processes.Popen(
        command, env=os.environ | {own: value}, stdout=subprocess.PIPE, **options
    ) as process:
        shown = process.communicate()[0]

    assert not process.is_forked
    assert process.returncode == 0
    assert b"True" not in shown


def test_where_it_cannot_run_is_an_error_as_always(tmp_path):
    """A directory that is not there is told as `subprocess` tells it."""
    with pytest.raises(FileNotFoundError, match="nowhere"):
        processes.run([sys.executable, "-c", ""], cwd=tmp_path / "nowhere")


def test_many_are_started_at_once():
    """Thirty forks from thirty threads each get their own input and code."""
    from concurrent.futures import ThreadPoolExecutor

    def one(number: int) -> tuple[int, str]:
        command = [sys.executable, "-c", "import sys; print(input()); sys.exit(int(sys.argv[1]))"]
        ran = processes.run(
            [*command, str(number)], input=f"{number}\n", capture_output=True, text=True
        )
        return ran.returncode, ran.stdout

    with ThreadPoolExecutor(30) as pool:
        assert list(pool.map(one, range(30))) == [(n, f"{n}\n") for n in range(30)]


def test_what_has_ended_takes_no_file_of_whoever_waited():
    """Of processes that were killed and waited for, nothing stays open."""
    command = [sys.executable, "-c", READY + "time.sleep(600)"]
    processes.run([sys.executable, "-c", ""])  # there is a fork server now
    before = len(list(FILES.iterdir()))
    for _ in range(3):
        process = processes.Popen(command, stdout=subprocess.DEVNULL)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert len(list(FILES.iterdir())) == before
