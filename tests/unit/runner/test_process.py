"""A process of a runner: its output, its end, and the steps by which it is stopped."""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from scrapy_itemgraph.model.runners import Assigned, Terms
from scrapy_itemgraph.runner import log_files, process, with_secrets
from scrapy_itemgraph.runner.log_files import JobLog
from scrapy_itemgraph.runner.options import Options
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.tools.path_parts import log_folder

READY = "READY"
JOB = Assigned(job=7, place=1, crawl="a/b", spider="s", arguments={"n": "1"}, schedule=3)

# A process that says when it can be stopped, in this way.
WAITS = """
import os, signal, sys, time
{before}
print("READY", flush=True)
while True:
    time.sleep(60)
"""


@pytest.fixture
def options(tmp_path) -> Options:
    """Return what a runner is told whose processes have a moment to end."""
    return Options(
        terms=Terms(name="r", project="p", places=1),
        settings=Settings.of(database_url="postgresql://secret@host/d"),
        directory=tmp_path,
        logs=tmp_path / "logs",
        max_logs=10**9,
        min_memory=0,
        min_disk=0,
        stop_after=timedelta(seconds=0.2),
        environment={"ITEMGRAPH_DATABASE_URL": "postgresql://secret@host/d"},
    )


@pytest.fixture
def run(options, monkeypatch):
    """Return what runs Python code as the process of a job, and does something once it is ready."""

    def run(code, at_ready=None, **given):
        monkeypatch.setattr(process, "command", lambda *_: [sys.executable, "-c", code])
        for name, value in given.items():
            monkeypatch.setattr(process, name, value)

        async def within():
            log = JobLog(options.logs, JOB.crawl, JOB.job)
            child = process.Child.start(JOB, log, options)
            while at_ready and READY not in log.tail:  # noqa: ASYNC110 - a file's end
                await asyncio.sleep(0.01)
            if at_ready is not None:
                at_ready(child)
            return await asyncio.wait_for(child.ended(), 30), log

        return asyncio.run(within())

    return run


def test_a_process_that_outlives_its_kill_is_said(run, monkeypatch, caplog):
    """A runner knows it, so that it does not wait for what nobody can end."""
    kill, found = process.Child.kill, []

    def kills_late(child):
        found.append(child)
        child._loop.call_later(0.3, kill, child)

    monkeypatch.setattr(process.Child, "kill", kills_late)
    code = WAITS.format(before="signal.signal(signal.SIGINT, signal.SIG_IGN)")
    ended, _ = run(code, process.Child.stop, _KILL_AFTER=0.05)

    assert ended.code == -signal.SIGKILL
    assert found[0].outlives_kill
    assert "has not ended though it was killed: its process" in caplog.text


def test_a_process_has_its_job_its_own_session_and_a_log(run, options):
    """What it writes is in its file, also where a grandchild holds the pipe; its code is seen."""
    ended, log = run(
        """
import os, subprocess, sys
print(os.environ["ITEMGRAPH_JOB"], os.environ["ITEMGRAPH_CRAWL"], os.getsid(0) == os.getpid())
print(open("/proc/self/oom_score_adj").read().strip())
one = ["sleep", "60"]
print("left", subprocess.Popen(one).pid, flush=True)
print("apart", subprocess.Popen(one, start_new_session=True).pid, file=sys.stderr, flush=True)
os._exit(3)
"""
    )

    assert ended.code == 3
    assert ended.memory > 10**6
    first, adjusted, left, apart = log.tail.splitlines()
    assert first == "7 a/b True"
    assert int(adjusted) >= 500
    assert log.path.read_text() == log.tail
    assert log.path == options.logs / "a%2Fb" / "7.log"
    os.kill(int(apart.split()[1]), signal.SIGKILL)  # it left the group, and so is nobody's
    with pytest.raises(ProcessLookupError):
        until_gone(int(left.split()[1]))


def until_gone(number: int) -> None:
    """Return never: raise once a process is gone, which was killed and may be a zombie yet."""
    while True:
        os.kill(number, 0)
        if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            raise ProcessLookupError


@pytest.mark.parametrize(
    ("before", "code"),
    [
        ("signal.signal(signal.SIGINT, lambda *_: sys.exit(5))", 5),
        (
            "n = []\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(6) if n else n.append(1))",
            6,
        ),
        ("signal.signal(signal.SIGINT, signal.SIG_IGN)", -signal.SIGKILL),
    ],
)
def test_a_process_is_stopped_step_by_step(run, before, code):
    """SIGINT, a second one after its time, and at last a kill: it always ends."""
    ended, _ = run(WAITS.format(before=before), lambda child: child.stop(), _KILL_AFTER=0.2)

    assert ended.code == code


def test_a_worker_that_obeys_by_itself_gets_no_signal(run):
    """Who was told through the database has a moment to end for the reason that was given."""

    def stop(child):
        child.has_worker = True
        child.stop()

    code = WAITS.format(before="signal.signal(signal.SIGINT, lambda *_: sys.exit(5))")
    ended, _ = run(code.replace("time.sleep(60)", "time.sleep(0.2); sys.exit(0)"), stop)

    assert ended.code == 0


def test_a_log_is_rotated_and_its_end_kept(run, options, monkeypatch):
    """A process that fills its log has three parts of it at most, and the last lines in memory."""
    monkeypatch.setattr(log_files, "PART", 100_000)

    ended, log = run("for n in range(100_000): print('line', n)")

    assert ended.code == 0
    assert log.tail.endswith("\nline 99999\n")
    assert len(log.tail) <= log_files.TAIL
    parts = sorted(one.name for one in log.path.parent.iterdir())
    assert parts == ["7.log", "7.log.1.gz", "7.log.2.gz"]
    with gzip.open(log.path.with_suffix(".log.1.gz"), "rt") as file:
        lines = file.read()
    assert (lines + log.path.read_text()).endswith("\nline 99999\n")
    assert log_files.prune(options.logs, 0, {log.path}) == 2
    assert log.path.exists()


def test_logs_of_others_are_not_deleted(options):
    """MNB-1: files with other names stay, and a log stays until whoever writes it has closed it."""
    folder = options.logs / "nginx"
    folder.mkdir(parents=True)
    names = ["access.log", "error.log.1", "7.log.old", "7.log.gz", "x7.log"]
    for name in names:
        (folder / name).write_text("x" * 1000)
    ours, theirs = (JobLog(options.logs, JOB.crawl, job) for job in (7, 8))
    theirs.write(b"line\n")
    pruned = [log_files.prune(options.logs, 0, {ours.path})]
    theirs.rotate()
    theirs.path.with_suffix(".log.1.gz").unlink()
    theirs.write(b"line\n")
    pruned.append(log_files.prune(options.logs, 0, {ours.path}))
    theirs.close()
    pruned.append(log_files.prune(options.logs, 0, {ours.path}))
    ours.close()

    assert pruned == [0, 0, 1]
    assert ours.path.exists()
    assert sorted(one.name for one in folder.iterdir()) == sorted(names)


def test_a_job_begins_a_log_of_its_own(options):
    """MNB-1: of an older job with its number nothing is left, unless that one is written still."""
    for text in (b"old\n", b"new\n"):
        log = JobLog(options.logs, JOB.crawl, JOB.job)
        log.write(text)
        log.rotate()
        log.write(text)
        log.close()
    (part,) = log.path.parent.glob("*.gz")
    assert gzip.decompress(part.read_bytes()) == log.path.read_bytes() == b"new\n"

    with_both = [JobLog(options.logs, JOB.crawl, JOB.job) for _ in range(2)]
    for one in with_both:
        one.write(b"line\n")
        one.close()
    assert log.path.read_bytes() == b"line\nline\n"


def test_a_process_goes_on_where_its_log_cannot_be_written(run, options, caplog):
    """On a full disk its output is dropped, but for the end in memory; the runner says so once."""
    folder = options.logs / log_folder(JOB.crawl)
    folder.mkdir(parents=True)
    (folder / f"{JOB.job}.log").symlink_to("/dev/full")

    ended, log = run("for n in range(100_000): print('line', n)")

    assert ended.code == 0
    assert log.tail.endswith("\nline 99999\n")
    assert log.lines == 100_000
    (said,) = [one.getMessage() for one in caplog.records if "cannot be written" in one.msg]
    assert "No space left on device" in said


def test_secrets_are_no_arguments_of_a_process(options, monkeypatch):
    """What the environment alone may have is not in the command; @env: is resolved in the child."""
    job = Assigned(job=1, place=1, crawl="c", spider="s", arguments={"key": "@env:KEY"})
    told = process.command(job, options)
    monkeypatch.setenv("KEY", "hidden")

    assert not [one for one in told if "secret@host" in one]
    assert told[-2:] == ["-a", "key=@env:KEY"]
    of_setting = replace(job, arguments={}, settings={"KEY": "@env:KEY"})
    assert process.command(of_setting, options)[1].endswith("with_secrets.py")
    assert process.environment(job, options)["ITEMGRAPH_DATABASE_URL"].endswith("secret@host/d")
    assert with_secrets.resolved("key=@env:KEY", "@env:") == "key=hidden"
    monkeypatch.delenv("KEY")
    with pytest.raises(SystemExit, match="2"):
        with_secrets.resolved("key=@env:KEY", "@env:")


def test_options_arrive_as_they_were_given(options):
    """The command and the daemon mean the same: nothing is lost on the way between them."""
    assert Options.from_json(options.to_json()) == options
